# The extension for CUDA.jl, in a process of its own with the simulated driver, which `cuda_jl.jl` starts. A stand-in
# (`stand_in/CUDA.jl`) plays CUDA.jl. So this tests the extension by the rules in CUDA.jl's source, and nothing of CUDA.jl
# itself.
using DevExchange
using Libdl
using Test

const DX = DevExchange

include("counting.jl")
include("driver.jl")
include("stand_in/load.jl")

const OTHER_GPU = DX.cuda(1)
calls(name) = ccall(driver(:simcuda_calls), UInt64, (Cstring,), name)
task_stream() = DeviceStream(CUDA.stream())

# Delivers what arrays left behind, and waits until it is released.
given_back() = drain() >= 0 && releases_done()

# A foreign tensor on a device in Julia's layout, which is written late on the producer's stream; the counter of its release;
# and that stream, which the caller closes at the end.
function lent(values::Array{T,N}; device=GPU, readonly=false) where {T,N}
    s = DeviceStream(device)
    source = copy_to(vec(values), device, s)
    memory = copy_to(source, device, s)
    close(source)
    called = Ref(0)
    theirs = Tensor(Ptr{T}(pointer(memory)), size(values); device=device, readonly=readonly,
        release=() -> (called[] += 1; close(memory)))
    produced_on(theirs, s)
    return import_dlpack(Tensor{T,N}, export_move(theirs; stream=s); stream=s), called, s
end

# What a foreign consumer on a stream of its own sees of a row-major tensor.
function seen(t::Tensor{T,N}) where {T,N}
    s = DeviceStream(GPU)
    u = import_dlpack(Tensor{T,N}, export_share(t; stream=s); stream=s)
    values = read!(zeros(T, size(u)), u, s)
    close(u)
    close(s)
    return values
end

const VALUES = Float32[1 2 3; 4 5 6]

function arrays_as_tensors()
    a = CuArray(VALUES)
    b = copy(a)
    t = Tensor(b)
    ok = t isa Tensor{Float32,2} && size(t) == (2, 3) && strides(t) == (1, 2) && DX.device(t) == GPU && !isreadonly(t)
    ok &= UInt(pointer(t)) == UInt(pointer(b)) && check_pointers(t) === nothing
    # Row-major with its dimensions reversed; a view with steps; and a row of a view that is an array of its own.
    r = Tensor(PermutedDimsArray(b, (2, 1)); readonly=true)
    ok &= seen(r) == permutedims(VALUES) && strides(r) == (2, 1) && isreadonly(r)
    v = Tensor(view(b, 2:2, 1:2:3))
    ok &= size(v) == (1, 2) && strides(v) == (1, 4) && UInt(pointer(v)) == UInt(pointer(b)) + 4
    e = Tensor(view(view(b, :, 2:3), 2, :))
    ok &= size(e) == (2,) && strides(e) == (2,) && UInt(pointer(e)) == UInt(pointer(b)) + 12
    # This is queued after the tensor was made, but before it is exported.
    flat = Tensor(reshape(b, (6,)))
    fill!(b, 7)
    ok &= seen(flat) == fill(7f0, 6)
    foreach(close, (t, r, v, e, flat))
    foreach(CUDA.unsafe_free!, (a, b))
    return ok & given_back()
end

# What consumers have stays until they release it, whatever becomes of the array. Then the array's memory is given back, and the
# release is called.
@noinline function hand_out(change, called, s)
    a = CuArray(Float32[1, 2, 3, 4])
    b = copy(a)
    t = Tensor(b; release=() -> called[] += 1)
    change(b)
    CUDA.unsafe_free!(a)
    return export_move(t; stream=s)
end

function memory_outlives_arrays()
    GC.gc()
    drain()
    s, called, before = DeviceStream(GPU), Ref(0), stat("live_device")
    handed = [hand_out(change, called, s) for change in (CUDA.unsafe_free!, b -> resize!(b, 8), identity)]
    GC.gc()
    drain()
    ok = called[] == 0
    for p in handed
        u = import_dlpack(Tensor{Float32,1}, p; stream=s)
        ok &= read!(zeros(Float32, 4), u, s) == [1, 2, 3, 4]
        close(u)
    end
    ok &= given_back() && called[] == 3
    GC.gc()
    close(s)
    return ok && stat("live_device") == before
end

# A tensor is ready after the stream that used its array last, here the stream of a task that has ended. No host thread waits.
@noinline function made_by_another_task(b, a)
    return fetch(@async begin
        stream!(CuStream(; flags=CUDA.STREAM_NON_BLOCKING))
        copyto!(b, a)
        waits = calls("cuStreamSynchronize")
        Tensor(PermutedDimsArray(b, (2, 1))), waits
    end)
end

function behind_another_task()
    a, b = CuArray(VALUES), CuArray{Float32}(undef, 2, 3)
    t, waits = made_by_another_task(b, a)
    u = Tensor(PermutedDimsArray(b, (2, 1)))
    ok = calls("cuStreamSynchronize") == waits
    ok &= seen(u) == permutedims(VALUES)
    # After this, only the tensors know the stream that they wait for, because the arrays know that of this task.
    foreach(pointer, (a, b))
    # Julia keeps the task that ended last, so a few more end here.
    foreach(_ -> (wait(@async nothing); GC.gc()), 1:3)
    ok &= seen(t) == permutedims(VALUES)
    foreach(close, (t, u))
    foreach(CUDA.unsafe_free!, (a, b))
    return ok & given_back()
end

function tensors_as_arrays()
    t, called, s = lent(VALUES)
    waits = calls("cuStreamSynchronize")
    a = unsafe_wrap(CuArray, t)
    ok = calls("cuStreamSynchronize") == waits
    ok &= a isa CuArray{Float32,2,CUDA.DeviceMemory} && size(a) == (2, 3) && UInt(pointer(a)) == UInt(pointer(t))
    close(t)
    # The data is ready on the stream of this task, and on that of another one.
    b = copy(a)
    ok &= Array(b) == VALUES
    ok &= fetch(@async Array(copy(a))) == VALUES
    # Arrays that share the memory keep it.
    flat = reshape(a, (6,))
    part = view(flat, 2:3)
    foreach(CUDA.unsafe_free!, (a, a, flat))
    drain()
    ok &= called[] == 0 && Array(copy(part)) == [4, 2]
    CUDA.unsafe_free!(part)
    ok &= given_back() && called[] == 1
    CUDA.unsafe_free!(b)
    close(s)
    return ok
end

# A row-major tensor becomes an array with reversed dimensions.
function row_major_tensors()
    s = DeviceStream(GPU)
    t = copy_to(PermutedDimsArray(permutedims(VALUES), (2, 1)), GPU, s)
    ok = strides(t) == (3, 1)
    ok &= refused(() -> unsafe_wrap(CuArray, t), DX.DEVX_COPY_REQUIRED, "strides (3, 1) of size (2, 3)")
    a = unsafe_wrap(CuArray{Float32,2}, PermutedDimsArray(t, (2, 1)))
    ok &= size(a) == (3, 2) && Array(a) == permutedims(VALUES)
    # The array becomes a tensor over the same memory.
    back = Tensor(PermutedDimsArray(a, (2, 1)))
    ok &= strides(back) == (3, 1) && pointer(back) == pointer(t)
    close(t)
    CUDA.unsafe_free!(a)
    ok &= seen(back) == VALUES
    close(back)
    ok &= given_back()
    close(s)
    return ok
end

# A copy on the task's stream, after work that waits. CUDA.jl waits for the streams that used the arrays before, which `pointer`
# does here while nothing holds them up.
function held_copy(to, from)
    foreach(pointer, (to, from))
    gate = hold_up(task_stream())
    copyto!(to, from)
    return gate
end

# The release comes after the work that was queued with the array: on the stream of this task, or on that of a task that has
# ended and whose stream nobody else holds.
function released_after_the_work()
    ok = true
    for in_another_task in (false, true)
        t, called, s = lent(VALUES)
        a, b = unsafe_wrap(CuArray{Float32}, t), CuArray{Float32}(undef, 2, 3)
        close(t)
        gate = in_another_task ? fetch(@async held_copy(b, a)) : held_copy(b, a)
        CUDA.unsafe_free!(a)
        GC.gc()
        drain()
        ok &= called[] == 0 && releases_waiting() >= 1
        let_go(gate)
        ok &= given_back() && called[] == 1 && Array(b) == VALUES
        CUDA.unsafe_free!(b)
        close(s)
    end
    return ok
end

@noinline function forget(t)
    a = unsafe_wrap(CuArray, t)
    view(reshape(a, (6,)), 1:2)
    copy(a)
    close(t)
    return nothing
end

# Frees nothing explicitly: the finalizers only queue a number.
function forgotten()
    t, called, s = lent(VALUES)
    forget(t)
    ok = called[] == 0
    for _ in 1:100
        GC.gc()
        given_back() && called[] == 1 && break
    end
    ok &= called[] == 1 && DX.rooted() == 0
    close(s)
    return ok
end

# A copy may be written, also if the tensor is read-only. The tensor is released when the copy is made.
function copies()
    t, called, s = lent(VALUES; readonly=true)
    ok = refused(() -> unsafe_wrap(CuArray, t), DX.DEVX_READ_ONLY)
    a = CuArray(t)
    close(t)
    ok &= given_back() && called[] == 1
    ok &= Array(a) == VALUES
    fill!(a, 1)
    host = Tensor(VALUES)
    b = CuArray(host)
    ok &= Array(b) == VALUES && Array(a) == ones(2, 3)
    close(host)
    foreach(CUDA.unsafe_free!, (a, b))
    close(s)
    return ok & given_back()
end

# Pinned and managed memory, in both directions.
function pinned_and_managed()
    ok = true
    for (M, place) in ((CUDA.HostMemory, DX.PINNED), (CUDA.UnifiedMemory, DX.MANAGED))
        a = CuArray(VALUES)
        b = copyto!(CuArray{Float32,2,M}(undef, (2, 3)), a)
        t = Tensor(b)
        ok &= DX.device(t) == place && refused(() -> t[1], DX.DEVX_NOT_READY)
        s = DeviceStream(GPU)
        ready = DX.synchronize(t, s)
        ok &= ready == VALUES
        # The tensor comes back as an array of the same kind of memory.
        c = unsafe_wrap(CuArray, t)
        ok &= c isa CuArray{Float32,2,M} && UInt(pointer(c)) == UInt(pointer(b))
        foreach(close, (t, ready))
        ok &= Array(c) == VALUES
        foreach(CUDA.unsafe_free!, (a, b, c))
        ok &= given_back()
        close(s)
    end
    return ok
end

# Memory of the other device in a task of the first one, also used on a stream of the first device.
function another_device()
    t, called, s = lent(VALUES; device=OTHER_GPU)
    a = unsafe_wrap(CuArray, t)
    close(t)
    ok = deviceid(device(a)) == 1 && deviceid(device()) == 0
    b = context!(() -> copy(a), context(a))
    waits = calls("cuStreamSynchronize")
    u = Tensor(PermutedDimsArray(b, (2, 1)))
    ok &= calls("cuStreamSynchronize") == waits
    ok &= DX.device(u) == OTHER_GPU && seen(u) == permutedims(VALUES) && deviceid(device()) == 0
    c = copyto!(CuArray{Float32}(undef, 2, 3), a)
    gate = hold_up(task_stream())
    CUDA.unsafe_free!(a)
    drain()
    ok &= called[] == 0
    let_go(gate)
    ok &= given_back() && called[] == 1 && Array(c) == VALUES
    close(u)
    foreach(CUDA.unsafe_free!, (b, c))
    ok &= given_back()
    close(s)
    return ok
end

# CUDA.jl and the driver number the default stream 0. It is that of the array's device.
function on_default_streams()
    ok = true
    for place in (GPU, OTHER_GPU), default in (default_stream(), legacy_stream())
        t, called, s = lent(VALUES; device=place)
        context!(context(CuDevice(place.device_id))) do
            stream!(default) do
                ok &= DeviceStream(CUDA.stream()).value == DX.LEGACY_STREAM && DX.device(task_stream()) == place
                a = unsafe_wrap(CuArray, t)
                b = copy(a)
                u = Tensor(PermutedDimsArray(b, (2, 1)))
                ok &= seen(u) == permutedims(VALUES)
                close(u)
                foreach(CUDA.unsafe_free!, (a, b))
            end
        end
        close(t)
        ok &= given_back() && called[] == 1
        close(s)
    end
    return ok
end

# Arrays without elements, and without dimensions.
function small_ones()
    none = Tensor(CuArray(zeros(Float32, 0, 3)))
    ok = size(none) == (0, 3) && pointer(none) == Ptr{Float32}(C_NULL) && DX.device(none) == GPU
    a = unsafe_wrap(CuArray, none)
    ok &= a isa CuArray{Float32,2,CUDA.DeviceMemory} && size(a) == (0, 3)
    one = CuArray(fill(5.5))
    t = Tensor(one)
    ok &= t isa Tensor{Float64,0} && seen(t) == fill(5.5)
    b = unsafe_wrap(CuArray, t)
    ok &= b isa CuArray{Float64,0} && Array(b) == fill(5.5)
    foreach(close, (none, t))
    foreach(CUDA.unsafe_free!, (a, one, b))
    return ok & given_back()
end

# Several tasks at once, on as many threads as there are, with streams of CUDA.jl as arguments.
function tasks_at_once()
    tasks = [Threads.@spawn begin
        t, called, s = lent(VALUES .+ k)
        a = unsafe_wrap(CuArray, t)
        b = copy(a)
        u = Tensor(PermutedDimsArray(b, (2, 1)))
        mine = task_stream()
        v = import_dlpack(Tensor{Float32,2}, export_move(u; stream=mine); stream=mine)
        good = read!(zeros(Float32, 3, 2), v, mine) == permutedims(VALUES .+ k)
        foreach(close, (t, v))
        foreach(CUDA.unsafe_free!, (a, b))
        # The stream is closed only after the memory that was allocated in its order is back.
        good && timedwait(() -> called[] == 1, 300.0) === :ok && given_back()
        close(s)
        good && called[] == 1
    end for k in 1:8]
    return all(fetch, tasks)
end

# If a tensor cannot be made, or its order cannot be noted, its array keeps the memory, and the release is not called.
no_memory(arguments...) = DX.write_failure(last(arguments), DevExchangeError(DX.DEVX_OUT_OF_MEMORY, "full"))
function tensors_that_fail()
    GC.gc()
    drain()
    ok, called = true, Ref(0)
    for (f, failing) in (
            DX.devx_tensor_create => @cfunction(no_memory, DX.DevxStatus,
                (Ptr{DLTensor}, UInt64, Ptr{DX.DevxOwner}, Ptr{Ptr{Cvoid}}, Ptr{DX.DevxError})),
            DX.devx_tensor_produced_on => @cfunction(no_memory, DX.DevxStatus, (Ptr{Cvoid}, Int64, Ptr{DX.DevxError})))
        live, a, before = stat("live_device"), CuArray(VALUES), f[]
        f[] = failing
        ok &= refused(() -> Tensor(a; release=() -> called[] += 1), DX.DEVX_OUT_OF_MEMORY, "full")
        f[] = before
        ok &= given_back() && called[] == 0 && outstanding() == 0 && Array(a) == VALUES
        CUDA.unsafe_free!(a)
        CUDA.synchronize()
        ok &= stat("live_device") == live
    end
    return ok
end

# An array whose memory cannot be given back: what consumers have is released all the same.
function memory_that_stays()
    a, called, before = CuArray(VALUES), Ref(0), DX.release_failures()
    b = CuArray{Float32,2}(CUDA.DataRef(_ -> error("it stays"), a.data[]), size(a))
    t = Tensor(b; release=() -> called[] += 1)
    CUDA.unsafe_free!(b)
    close(t)
    # This task holds the lock, so that it delivers and logs, and not the background task.
    lock(DX.DRAINING) do
        @test_logs (:error, r"release function failed") drain()
    end
    CUDA.unsafe_free!(a)
    return called[] == 1 && DX.release_failures() == before + 1
end

# An interrupt (Ctrl-C) comes while the last use of an array is noted: it is thrown then, and the memory is given back.
const USED_ON = Ref(C_NULL)
function interrupted_use(tensor, stream, error)
    ccall(:kill, Cint, (Cint, Cint), getpid(), 2)
    while unsafe_load(cglobal(:jl_signal_pending, Cint)) == 0
        Libc.systemsleep(0.001)
    end
    # Here Julia may throw it.
    GC.safepoint()
    return ccall(USED_ON[], DX.DevxStatus, (Ptr{Cvoid}, Int64, Ptr{DX.DevxError}), tensor, stream, error)
end
function interrupt_at_the_end()
    t, called, s = lent(VALUES)
    a = unsafe_wrap(CuArray, t)
    close(t)
    ok, USED_ON[] = false, DX.devx_tensor_used_on[]
    Base.exit_on_sigint(false)
    # This task holds the lock, so that it delivers, and not the background task.
    lock(DX.DRAINING) do
        DX.devx_tensor_used_on[] = @cfunction(interrupted_use, DX.DevxStatus, (Ptr{Cvoid}, Int64, Ptr{DX.DevxError}))
        CUDA.unsafe_free!(a)
        try
            drain()
        catch e
            ok = e isa InterruptException
        end
        DX.devx_tensor_used_on[] = USED_ON[]
    end
    ok &= given_back() && called[] == 1
    close(s)
    return ok
end

function refusals()
    a, called = CuArray(VALUES), Ref(0)
    ok = refused(() -> Tensor(CuArray(['a'])), DX.DEVX_UNSUPPORTED, "eltype is Char")
    ok &= refused(() -> Tensor(a; release=5), DX.DEVX_INVALID_ARGUMENT, "release is 5")
    ok &= refused(() -> Tensor(view(PermutedDimsArray(a, (2, 1)), 1:2, :)), DX.DEVX_UNSUPPORTED, "strides")
    ok &= refused(() -> Tensor(view(a, [1, 2], :)), DX.DEVX_UNSUPPORTED, "strides")
    # The per-thread default stream is refused.
    b = copy(a)
    t = Tensor(a)
    stream!(per_thread_stream()) do
        pointer(b)
        ok &= refused(() -> DeviceStream(CUDA.stream()), DX.DEVX_INVALID_STREAM, "stream is 2")
        ok &= refused(() -> Tensor(b; release=() -> called[] += 1), DX.DEVX_INVALID_STREAM, "stream is 2")
        ok &= refused(() -> unsafe_wrap(CuArray, t), DX.DEVX_INVALID_STREAM, "stream is 2")
    end
    close(t)
    ok &= refused(() -> unsafe_wrap(CuArray, t), DX.DEVX_CLOSED, "tensor")
    host, flags = Tensor(VALUES), copy_to([true, false], GPU, DX.LEGACY_STREAM)
    ok &= refused(() -> unsafe_wrap(CuArray, host), DX.DEVX_DEVICE, "cpu")
    for f in (() -> unsafe_wrap(CuArray, flags), () -> CuArray(flags))
        ok &= refused(f, DX.DEVX_COPY_REQUIRED, "Bool")
    end
    foreach(close, (host, flags))
    none = Tensor(CuArray(Float32[]))
    close(none)
    ok &= refused(() -> unsafe_wrap(CuArray, none), DX.DEVX_CLOSED, "tensor")
    drain()
    foreach(CUDA.unsafe_free!, (a, b))
    return ok && called[] == 0
end

suite = @testset Counting "on CUDA.jl" begin
    @test refusals()
    @test tensors_that_fail()
    @test memory_that_stays()
    @test interrupt_at_the_end()
    @test all_back()
    on_every_schedule((arrays_as_tensors, memory_outlives_arrays, behind_another_task, tensors_as_arrays,
        row_major_tensors, released_after_the_work, forgotten, copies, pinned_and_managed, another_device,
        on_default_streams, small_ones, tasks_at_once))
end

println("on CUDA.jl: ", suite.passed, " passed, ", suite.failed, " failed")
exit(suite.failed == 0 ? 0 : 1)
