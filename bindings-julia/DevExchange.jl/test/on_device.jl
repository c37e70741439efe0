# What needs a device, in a process of its own that `devices.jl` starts. The simulated driver makes the process fail if memory
# is touched too early or released too soon.
using DevExchange
using Dates, Libdl
using Test

const DX = DevExchange

include("counting.jl")
include("producers.jl")
include("foreign.jl")
include("driver.jl")

function tensors_there_and_back()
    s, other = DeviceStream(GPU), DeviceStream(GPU)
    a = Float32[10i + j for i in 1:3, j in 1:4]
    t = allocate(Float32, (3, 4), GPU; stream=s)
    ok = size(t) == (3, 4) && strides(t) == (4, 1) && DX.device(t) == GPU
    write!(t, a, s)
    # Elements keep their indices, whatever the order in memory.
    ok &= read!(zeros(Float32, 3, 4), t, s) == a
    rows = PermutedDimsArray(zeros(Float32, 4, 3), (2, 1))
    ok &= read!(rows, t, s) == a && parent(rows) == a'
    # Exported for another stream, imported on it, and copied to the host on it.
    u = import_dlpack(Tensor{Float32,2}, export_share(t; stream=other); stream=other)
    close(t)
    host = copy_to(u, DX.CPU, other)
    ok &= host == a && DX.flags(host) & DX.DLPACK_FLAG_BITMASK_IS_COPIED != 0 && pointer(u) != pointer(host)
    # Copies: of a view, on the device, and one that moves on without a wait.
    c = copy_to(view(a, 1:2, [1, 4]), GPU, s)
    ok &= refused(() -> copy_to(view(c, 1:1, :), DX.CPU, s), DX.DEVX_DEVICE, "cuda:0", "slice(tensor, indices...)")
    d = copy_to(c, GPU, other)
    v = import_dlpack(export_move(d; stream=s); stream=s)
    ok &= read!(zeros(Float32, 2, 2), v, s) == a[1:2, [1, 4]]
    flags = copy_to([true false; false true], GPU, s)
    ok &= read!(zeros(Bool, 2, 2), flags, s) == [true false; false true]
    bytes = UInt8[0, 1, 2, 254]
    on_host = Tensor(Ptr{NTuple{2,Bool}}(pointer(bytes)), (2,); root=bytes)
    pairs = copy_to(on_host, GPU, s)
    ok &= read!(fill((false, false), 2), pairs, s) == [(false, true), (true, true)]
    flag = copy_to(fill(true), GPU, s)
    ok &= read!(fill(false), flag, s)[] === true
    none = copy_to(zeros(0, 3), GPU, s)
    ok &= size(read!(zeros(0, 3), none, s)) == (0, 3)
    managed = export_share_legacy(c; stream=s)
    ok &= refused(() -> import_dlpack_legacy(managed; stream=0), DX.DEVX_INVALID_STREAM, "stream is 0")
    legacy = import_dlpack_legacy(managed; stream=s)
    ok &= read!(zeros(Float32, 2, 2), legacy, s) == a[1:2, [1, 4]]
    part = slice(u, 2:3, :)
    ok &= DX.device(part) == GPU && read!(zeros(Float32, 2, 4), part, s) == a[2:3, :]
    foreach(close, (u, host, c, v, flags, on_host, pairs, flag, none, legacy, part))
    close(s)
    close(other)
    return ok && !isopen(s)
end

# The consumer names no stream: everything is on the legacy default stream, which waits for the producer's.
function on_the_legacy_stream()
    legacy, other, ok = DeviceStream(GPU, DX.LEGACY_STREAM), DeviceStream(GPU), true
    for s in (legacy, other)
        source = copy_to([1.5, 2.5], GPU, s)
        t = copy_to(source, GPU, s)
        u = import_dlpack(export_share(t))
        foreach(close, (source, t))
        wait_on(u, legacy)
        ok &= read!(zeros(2), u, legacy) == [1.5, 2.5]
        close(u)
    end
    close(other)
    return ok
end

# Columns on the device are copied to a matrix, and a matrix becomes a batch of columns.
function matrices()
    s = DeviceStream(GPU)
    b = Batch((a=[1.0, 2.0, 3.0], b=[4.0, 5.0, 6.0]))
    there = copy_to(b, GPU, s)
    ok = refused(() -> DX.matrix(there; copy=:always), DX.DEVX_NOT_READY)
    m = DX.matrix(there; copy=:always, stream=s)
    ok &= size(m) == (3, 2) && strides(m) == (1, 3) && DX.device(m) == GPU
    columns = record_batch(m)
    back = copy_to(columns, DX.CPU, s)
    ok &= back[1] == [1, 2, 3] && back[2] == [4, 5, 6]
    foreach(close, (b, there, m, columns, back, s))
    return ok
end

# A batch with texts, nulls and nested columns, to the device and back through Arrow's structs.
function batches_there_and_back()
    s = DeviceStream(GPU)
    wanted = (n=[1, missing, 3], t=["Zürich", missing, ""], d=DictionaryVector(["sun", "rain", "sun"]),
        f=[true, false, true], l=[[1, 2], Int[], [3]], v=[(1.0, 2.0), (3.0, 4.0), (5.0, 6.0)],
        w=[Date(2012, 1, 1), Date(2012, 1, 2), missing])
    b = Batch(wanted)
    there = copy_to(b, GPU, s)
    close(b)
    ok = DX.device(there) == GPU && size(there) == (3, 7) && DX.name(there[:t]) == "t"
    array, schema = Ref(ArrowDeviceArray()), Ref(ArrowSchema())
    export_move(there, array, schema)
    ok &= matrices()
    ok &= array[].device_type == DX.kDLCUDA && array[].device_id == 0 && array[].sync_event != C_NULL
    again = import_arrow_device(array, schema)
    other = DeviceStream(GPU)
    back = copy_to(again, DX.CPU, other)
    for (k, column) in enumerate(wanted)
        ok &= same(back[k], column)
    end
    foreach(close, (again, back, other, s))
    return ok
end

# Types whose buffers refer to others: views, unions, runs. Also nulls that nobody has counted.
function every_type_there_and_back()
    s = DeviceStream(GPU)
    views = reinterpret(UInt8, Int32[2, 0x6261, 0, 0, 14, 0, 0, 1]) |> collect
    long = Vector{UInt8}("-fourteen bytes")
    b = Batch([
        ArrayBuilder("v", "vu", 2, (nothing, views, long, Int64[15])),
        ArrayBuilder("n", "l", 2, (UInt8[0b10], [1, 2])),
        ArrayBuilder("r", "+r", 2; children=[ArrayBuilder("e", "i", 1, (nothing, Int32[2]); nullable=false),
            ArrayBuilder("x", "g", 1, (nothing, [1.5]))]),
        ArrayBuilder("u", "+ud:0,1", 2, (Int8[1, 0], Int32[0, 0]); children=[ArrayBuilder("0", "l", 1, (nothing, [7])),
            ArrayBuilder("1", "g", 1, (nothing, [2.5]))]),
        ArrayBuilder("m", "+m", 2, (nothing, Int32[0, 1, 1]); children=[ArrayBuilder("entries", "+s", 1, (nothing,);
            nullable=false, children=[ArrayBuilder("key", "l", 1, (nothing, [3]); nullable=false),
                ArrayBuilder("value", "g", 1, (nothing, [4.5]))])])])
    there = copy_to(b, GPU, s)
    close(b)
    n = there["n"]
    ok = eltype(n) == Union{Missing,Int} && null_count(n, s) == 1
    ok &= refused(() -> null_count(n), DX.DEVX_DEVICE) && refused(() -> null_count(n, 0), DX.DEVX_INVALID_STREAM)
    for c in columns(there)
        ok &= length(c) == 2 && refused(() -> c[1], DX.DEVX_DEVICE) && refused(() -> collect(c), DX.DEVX_DEVICE)
    end
    joined = Batch("a" => there, "b" => there; stream=s)
    ok &= refused(() -> Batch("a" => there), DX.DEVX_NOT_READY) && DX.device(joined) == GPU
    back = copy_to(joined, DX.CPU, s)
    c = children(back["b"])
    ok &= same(c[1], ["ab", "fourteen bytes"]) && same(c[2], [missing, 2]) && collect(c[3]) == [1.5, 1.5] &&
        same(c[4], [2.5, 7]) && c[5] == [Dict(3 => 4.5), Dict()]
    foreach(close, (there, joined, back, s))
    return ok
end

# Device memory of the caller as a tensor: ready after the stream that fills it, released after the stream that reads it.
function memory_of_the_callers()
    s, other = DeviceStream(GPU), DeviceStream(GPU)
    source = copy_to([1.0, 2.0, 3.0], GPU, s)
    memory, called = copy_to(source, GPU, s), Ref(0)
    own = Tensor(Ptr{Float64}(pointer(memory)), (3,); device=GPU, release=() -> called[] += 1)
    produced_on(own, s)
    ok = DX.device(own) == GPU && check_pointers(own) === nothing && refused(() -> own[1], DX.DEVX_DEVICE)
    gate = hold_up(other)
    wait_on(own, other)
    used_on(own, other)
    close(own)
    drain()
    ok &= called[] == 0
    let_go(gate)
    ok &= releases_done() && called[] == 1
    pinned = allocate(Float64, 3, DX.PINNED)
    pinned .= [4, 5, 6]
    own = Tensor(pointer(pinned), (3,); device=DLDevice(DX.kDLCUDAHost, 1), root=pinned)
    ok &= DX.device(own) == DX.PINNED && refused(() -> own[1], DX.DEVX_NOT_READY)
    ready = synchronize(own, other)
    ok &= ready == [4, 5, 6]
    foreach(close, (source, memory, own, ready, pinned))
    ok &= releases_done()
    foreach(close, (s, other))
    return ok
end

# Memory that queued work uses is released once, after that work.
function released_after_the_work()
    s, idle = DeviceStream(GPU), DeviceStream(GPU)
    before = stat("live_streams")
    memory = copy_to([1.0, 2.0, 3.0], GPU, s)
    called = Ref(0)
    schema = Schema(Field("x", "g"))
    b = Batch(schema, [Node(3, (nothing, pointer(memory)); null_count=0)]; device=GPU, release=() -> called[] += 1)
    close(schema)
    produced_on(b, s)
    gate = hold_up(s)
    used_on(b, s)
    used_on(memory, s)
    close(b)
    close(idle)
    drain()
    ok = called[] == 0 && releases_waiting() >= 1
    let_go(gate)
    ok &= releases_done() && called[] == 1 && streams_left(before - 1)
    close(memory)
    ok &= releases_done() && called[] == 1
    synchronize(s)
    close(s)
    return ok
end

function pinned_and_managed()
    s = DeviceStream(GPU)
    ok = true
    for place in (DX.PINNED, DX.MANAGED)
        t = allocate(Int32, (2, 2), place)
        t .= Int32[1 2; 3 4]
        ok &= t == [1 2; 3 4] && DX.device(t) == place
        there = copy_to(t, GPU, s)
        back = copy_to(there, place, s)
        # The copy may not be finished.
        ok &= refused(() -> back[1], DX.DEVX_NOT_READY, "stream") && occursin(r"cuda_(host|managed):0", repr(back))
        ready = synchronize(back, s)
        ok &= ready == [1 2; 3 4] && pointer(ready) == pointer(back)
        # What is made of it without a copy can be read here, too, also under a schema of its own; what is made of the
        # unfinished copy cannot.
        for (source, readable) in ((ready, true), (back, false))
            column, row = Batch(source), slice(source, 1:1, :)
            table = record_batch(row)
            made = (column, row, table, DX.matrix(table), slice(column, 1:2), share(root(column)), fixed_shape_column(source),
                Tensor(table[1]), Batch((x=root(column),); metadata=["k" => "v"], stream=s))
            ok &= all(x -> x.readable == readable, made)
            foreach(close, made)
        end
        # A whole batch, too, whose first buffer is in a child.
        host = Batch((n=[(a=1, b="x"), (a=2, b="yz")],))
        moved = copy_to(host, GPU, s)
        late = copy_to(moved, place, s)
        ok &= refused(() -> late[1][1], DX.DEVX_NOT_READY, "synchronize(data, stream)")
        for stream in (s, DX.LEGACY_STREAM)
            whole = synchronize(late, stream)
            ok &= whole.readable && whole[1][2].b == "yz" && whole[1][1].a == 1 && !late.readable
            close(whole)
        end
        ok &= refused(() -> synchronize(moved, s), DX.DEVX_DEVICE, "the memory is on cuda:0")
        foreach(close, (host, moved, late))
        foreach(close, (t, there, back, ready))
    end
    ok &= releases_done()
    close(s)
    return ok
end

# Closes nothing: finalizers release the memory, and then the stream.
@noinline function forget_everything()
    s = DeviceStream(GPU)
    t = copy_to(collect(1:1000), GPU, s)
    used_on(t, s)
    share(t)
    return nothing
end

function forgotten()
    before = stat("live_streams")
    foreach(_ -> forget_everything(), 1:3)
    are_gone() = (GC.gc(); drain(); stat("live_streams") == before)
    return timedwait(are_gone, 300.0; pollint=0.01) === :ok && outstanding() == 0
end

@noinline forget_a_stream() = (DeviceStream(GPU); nothing)

# A forgotten stream stays while anything is outstanding. If what was outstanding is released without a delivery, the next new
# stream closes it.
function forgotten_streams()
    before, open = stat("live_streams"), allocate(Int, 1, DX.CPU)
    forget_a_stream()
    ok = any(_ -> (collect_garbage(); !isempty(DX.FORGOTTEN_STREAMS)), 1:100) && stat("live_streams") == before + 1
    close(open)
    s = DeviceStream(GPU)
    ok &= isempty(DX.FORGOTTEN_STREAMS) && stat("live_streams") == before + 1
    close(s)
    return ok
end

function refusals()
    s = DeviceStream(GPU)
    t = copy_to([1.0 2.0; 3.0 4.0], GPU, s)
    ok = true
    for f in (t -> t[1], t -> t[1] = 2.0, sum, t -> unsafe_wrap(Array, t), collect, t -> t == t, copy,
              t -> Tensor(view(t, 1:1, :)), t -> Batch((x=view(t, :, 1),)), t -> write!(t, t, s))
        ok &= refused(() -> f(t), DX.DEVX_DEVICE)
    end
    ok &= sprint(show, MIME"text/plain"(), t) == repr(t) == "2×2 $(typeof(t)) on cuda:0"
    ok &= occursin("cuda:0", repr([t]))
    for x in (view(t, 1:1, :), t', reshape(t, 4))
        ok &= sprint(show, MIME"text/plain"(), x) == repr(x) == "$(summary(x)) on cuda:0"
    end
    ok &= refused(() -> write!(t, zeros(4, 1), s), DX.DEVX_INVALID_SHAPE, "(4, 1)")
    ok &= refused(() -> read!(zeros(4, 1), t, s), DX.DEVX_INVALID_SHAPE, "(2, 2)")
    for f in (() -> read!(zeros(2, 2), t, 0), () -> export_share(t; stream=0), () -> DeviceStream(GPU, 0),
              () -> wait_on(t, -1))
        ok &= refused(f, DX.DEVX_INVALID_STREAM, "stream is")
    end
    ok &= refused(() -> DeviceStream(DX.cuda(99)), DX.DEVX_DEVICE, "99")
    ok &= refused(() -> allocate(Float64, (1 << 50,), GPU; stream=s), DX.DEVX_OUT_OF_MEMORY)
    ok &= refused(() -> allocate(Float64, -1, GPU), DX.DEVX_INVALID_SHAPE)
    ok &= refused(() -> allocate(RawElement{0x01,0x04,UInt8}, 3, GPU), DX.DEVX_UNSUPPORTED, "packed")
    ok &= refused(() -> allocate(String, 3, GPU), DX.DEVX_UNSUPPORTED)
    # Arrays that must not be written.
    fixed, batch = Tensor(PermutedDimsArray(zeros(2, 2), (2, 1)); readonly=true), Batch((x=zeros(2),))
    v = copy_to([1.0, 2.0], GPU, s)
    ok &= refused(() -> read!(fixed, t, s), DX.DEVX_READ_ONLY) && all(iszero, fixed)
    for column in (batch[:x], view(batch[:x], 1:2))
        ok &= refused(() -> read!(column, v, s), DX.DEVX_READ_ONLY) && all(iszero, column)
    end
    foreach(close, (fixed, batch, v))
    # A column-major tensor becomes row-major by a copy.
    m = Tensor([1.0 2.0; 3.0 4.0])
    there = copy_to(m, GPU, s)
    ok &= strides(there) == (2, 1) && read!(zeros(2, 2), there, s) == m && refused(() -> used_on(m, s), DX.DEVX_DEVICE)
    part = slice(there, :, 2:2)
    back = copy_to(part, DX.CPU, s)
    ok &= strides(part) == (2, 1) && strides(back) == (1, 1) && vec(back) == [2.0, 4.0]
    foreach(close, (m, there, part, back))
    # The driver is asked where the memory is.
    ok &= check_pointers(t) === nothing
    other = share(t)
    ok &= refused(() -> produced_on(t, s), DX.DEVX_INVALID_ARGUMENT, "shared")
    close(other)
    # A column on the device has a length and buffers, but its values cannot be read.
    b = copy_to(Batch((x=[1.0, 2.0], s=["a", "b"])), GPU, s)
    ok &= check_pointers(b) === nothing
    schema, host = Schema(Field("x", "g")), [1.0, 2.0]
    elsewhere = Batch(schema, [Node(2, (nothing, pointer(host)); null_count=0)]; device=GPU)
    ok &= refused(() -> check_pointers(elsewhere), DX.DEVX_DEVICE, "array \"x\": buffers[1]: data 0x")
    foreach(close, (schema, elsewhere))
    c = b["x"]
    ok &= length(c) == 2 && DX.buffers(c)[2] != C_NULL && repr(c) == "Column of 2 rows on cuda:0" &&
        endswith(repr(view(c, 1:1)), " on cuda:0") &&
        repr(b) == repr("text/plain", b) == "Batch of 2 rows on cuda:0: x (float64), s (utf8)"
    for f in (() -> c[1], () -> b["s"][1], () -> values(c), () -> bytes(b["s"], 1))
        ok &= refused(f, DX.DEVX_DEVICE)
    end
    # The column becomes part of another batch without a copy, but only if a stream is named.
    ok &= refused(() -> Batch((y=c,)), DX.DEVX_NOT_READY)
    y = Batch((y=c,); stream=s)
    ok &= DX.device(y) == GPU && DX.buffers(y["y"])[2] == DX.buffers(c)[2]
    close(y)
    foreach(close, (b, t))
    for f in (() -> wait_on(t, s), () -> used_on(t, s), () -> copy_to(b, GPU, s), () -> read!(zeros(2, 2), t, s),
              () -> check_pointers(t), () -> check_pointers(b))
        ok &= refused(f, DX.DEVX_CLOSED)
    end
    close(s)
    close(s)
    for f in (() -> synchronize(s), () -> allocate(Int, 1, GPU; stream=s), () -> copy_to([1], GPU, s))
        ok &= refused(f, DX.DEVX_CLOSED, "stream")
    end
    foreign = DeviceStream(GPU, DX.PER_THREAD_STREAM)
    close(foreign)
    ok &= isopen(foreign) && synchronize(foreign) === nothing && occursin("closed", repr(s))
    return ok
end

# Several tasks at once, on as many threads as there are.
function tasks_at_once()
    tasks = [Threads.@spawn begin
        s = DeviceStream(GPU)
        t = copy_to([k k + 1; k + 2 k + 3], GPU, s)
        u = import_dlpack(export_move(t; stream=s); stream=s)
        good = read!(zeros(Int, 2, 2), u, s) == [k k + 1; k + 2 k + 3]
        used_on(u, s)
        close(u)
        close(s)
        good
    end for k in 1:8]
    return all(fetch, tasks)
end

suite = @testset Counting "on a device" begin
    include("on_device_memory.jl")
    include("on_two_devices.jl")
    info = device_info(GPU)
    @test device_count() == 2 && startswith(info.name, "Simulated") && info.uuid != Base.UUID(0)
    @test 0 < info.free_bytes <= info.total_bytes && info.driver_version >= 11000
    @test refusals()
    @test pinned_and_managed()
    @test all_back()
    on_every_schedule((tensors_there_and_back, on_the_legacy_stream, batches_there_and_back,
        every_type_there_and_back, memory_of_the_callers, released_after_the_work, tasks_at_once,
        MEMORY_SCENARIOS..., SCENARIOS_OF_TWO...))
    @test forgotten() && forgotten_streams()
    @test all_back() && streams_left(0)
end

println("on a device: ", suite.passed, " passed, ", suite.failed, " failed")
exit(suite.failed == 0 ? 0 : 1)
