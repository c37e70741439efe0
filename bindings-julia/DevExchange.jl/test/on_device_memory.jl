# Memory managers and the CUDA Array Interface, on the simulated driver. Included by `on_device.jl`.

# ---- managers ----

# Every manager: device memory with and without a stream, and pinned memory; exchanged, counted and given back.
function memory_of_managers()
    s = DeviceStream(GPU)
    a, ok = Float32[10i + j for i in 1:3, j in 1:4], true
    small_pool() = pool_manager(shareable=true, limit=1 << 20, keep=0)
    for make in (driver_manager, managed_manager, pool_manager, small_pool,
                 () -> limited_manager(driver_manager(), 1 << 20))
        m = make()
        DX.initialize(m)
        for stream in (s, nothing)
            t = allocate(m, Float32, (3, 4), GPU; stream=stream)
            ok &= DX.device(t) == (make === managed_manager ? DX.MANAGED : GPU) && strides(t) == (4, 1)
            check_pointers(t)
            write!(t, a, s)
            u = import_dlpack(export_move(t; stream=s); stream=s)
            ok &= read!(zeros(Float32, 3, 4), u, s) == a && DX.statistics(m).bytes == 48
            close(u)
        end
        none = allocate(m, 0, GPU; stream=s)
        raw = allocate(m, 1000, GPU; stream=s)
        ok &= none.address == C_NULL && raw.address != C_NULL && DX.statistics(m).peak_bytes == 1000
        foreach(close, (none, raw))
        pinned = allocate(m, Int, 3, DX.PINNED)
        pinned .= 1:3
        ok &= pinned == [1, 2, 3] && DX.device(pinned) == DX.PINNED
        raw = allocate(m, 64, DX.PINNED; host_flags=DX.DEVX_HOST_PORTABLE | DX.DEVX_HOST_WRITE_COMBINED)
        ok &= DX.device(raw) == DX.PINNED
        foreach(close, (pinned, raw))
        info = memory_info(m)
        ok &= 0 < info.free_bytes <= info.total_bytes
        ok &= releases_done() && DX.statistics(m).bytes == 0
        trim!(m)
        reset!(m)
        close(m)
    end
    close(s)
    return ok
end

# Memory that `defer_cleanup` holds back, and memory that a reset takes.
function deferred_memory()
    before = stat("live_device")
    m = driver_manager()
    a = allocate(m, 64, GPU)
    held_back = defer_cleanup(m) do
        close(a)
        releases_done()
        stat("live_device") - before
    end
    ok = held_back == 1 && releases_done() && stat("live_device") == before
    # A reset takes all memory of a device, also what is in use.
    t = allocate(m, Int, 8, GPU)
    reset!(m)
    ok &= releases_done() && stat("live_device") == before && DX.statistics(m).bytes == 0
    foreach(close, (t, m))
    return ok
end

function pinned_arrays()
    m, array = driver_manager(), collect(1.0:512.0)
    before = stat("live_host")
    p = pin(m, array; host_flags=DX.DEVX_HOST_PORTABLE | DX.DEVX_HOST_MAPPED)
    ok = stat("live_host") == before + 1 && p.address == pointer(array) && DX.device(p) == DX.PINNED
    ok &= refused(() -> pin(m, array), DX.DEVX_DRIVER)
    ok &= refused(() -> pin(m, [1.0]; device_id=99), DX.DEVX_DEVICE, "99")
    ok &= refused(() -> pin(m, array; host_flags=4), DX.DEVX_INVALID_ARGUMENT, "write_combined")
    close(p)
    close(m)
    return ok && releases_done() && stat("live_host") == before && array[512] == 512
end

function handles_for_others()
    m, pool = driver_manager(), pool_manager()
    t, of_pool = allocate(m, Float64, 100, GPU), allocate(pool, 64, GPU)
    found = ipc_handle(m, pointer(t) + 16)
    ok = found.offset == 16 && found.bytes >= 800 && found.device_id == 0 && any(!iszero, found.handle)
    ok &= ipc_handle(m, t).handle == found.handle && ipc_handle(m, t).offset == 0
    ok &= refused(() -> ipc_handle(pool, of_pool), DX.DEVX_UNSUPPORTED, "pool")
    foreach(close, (t, of_pool, m, pool))
    return ok && releases_done()
end

# A manager in Julia that allocates from a manager of the library, in the order of the stream in the request.
function managers_in_julia()
    s, inner, given, freed = DeviceStream(GPU), pool_manager(), Ref(0), Ref(0)
    m = MemoryManager() do request
        memory = allocate(inner, request.bytes, request.device; stream=request.stream)
        given[] += 1
        (memory.address, memory.device, () -> (freed[] += 1; close(memory)))
    end
    t = allocate(m, Int, (2, 2), GPU; stream=s)
    write!(t, [1 2; 3 4], s)
    u = import_dlpack(export_move(t; stream=s); stream=s)
    gate = hold_up(s)
    used_on(u, s)
    close(u)
    drain()
    # The memory is not given back before the work that uses it.
    ok = (given[], freed[]) == (1, 0) && DX.statistics(inner).bytes == 32
    let_go(gate)
    ok &= releases_done() && (given[], freed[]) == (1, 1)
    back = copy_to([5 6; 7 8], GPU, s)
    ok &= read!(zeros(Int, 2, 2), back, s) == [5 6; 7 8]
    foreach(close, (back, m, inner))
    ok &= releases_done()
    close(s)
    return ok
end

# Memory goes back in the order of the stream in its request, also if that stream is closed meanwhile or the release throws.
function memory_of_closed_streams()
    user, ok = DeviceStream(GPU), true
    # Memory of a pool holds the stream by itself.
    for fails in (false, true), pooled in (true, false)
        inner = pooled ? pool_manager() : driver_manager()
        s, there, failures = DeviceStream(GPU), Ref(0), DX.release_failures()
        streams = stat("live_streams")
        m = MemoryManager() do request
            memory = allocate(inner, request.bytes, request.device; stream=pooled ? request.stream : nothing)
            release() = begin
                # Gives another thread time to destroy the stream, which must not happen before the release returns.
                any(_ -> stat("live_streams") < streams || (sleep(0.001); false), 1:20)
                there[] = stat("live_streams")
                close(memory)
                fails && error("as it should")
            end
            (memory.address, memory.device, release)
        end
        t = allocate(m, Int, (2, 2), GPU; stream=s)
        write!(t, [1 2; 3 4], s)
        wait_on(t, user)
        gate = hold_up(user)
        used_on(t, user)
        close(t)
        close(m)
        close(s)
        let_go(gate)
        ok &= releases_done()
        ok &= there[] == streams && streams_left(streams - 1) && DX.release_failures() - failures == fails
        close(inner)
    end
    close(user)
    return ok
end

function managers_refuse()
    s, ok = DeviceStream(GPU), true
    small, host, all = pool_manager(limit=100), host_only_manager(), driver_manager()
    ok &= refused(() -> allocate(small, 101, GPU; stream=s), DX.DEVX_OUT_OF_MEMORY, "limit of 100")
    ok &= refused(() -> allocate(small, 8, DX.MANAGED), DX.DEVX_UNSUPPORTED, "pool manager")
    ok &= refused(() -> allocate(host, 8, GPU), DX.DEVX_UNSUPPORTED, "host-only")
    ok &= refused(() -> allocate(all, 1 << 50, GPU), DX.DEVX_OUT_OF_MEMORY)
    ok &= refused(() -> allocate(all, 8, DX.cuda(99)), DX.DEVX_DEVICE, "99")
    ok &= refused(() -> allocate(all, 8, GPU; stream=0), DX.DEVX_INVALID_STREAM, "stream is 0")
    ok &= refused(() -> DX.initialize(all, 99), DX.DEVX_DEVICE, "99")
    ok &= refused(() -> memory_info(all, -1), DX.DEVX_DEVICE, "-1")
    array = [1.0]
    ok &= refused(() -> ipc_handle(all, Ptr{Cvoid}(pointer(array))), DX.DEVX_UNSUPPORTED, "cannot share")
    closed = DeviceStream(GPU)
    close(closed)
    ok &= refused(() -> allocate(all, 8, GPU; stream=closed), DX.DEVX_CLOSED, "stream")
    ok &= memory_info(small).total_bytes == 100 && DX.statistics(small).refused == 1
    # The driver has no memory: once, so that the pool trims itself and tries again; then always, which is an error.
    pool = pool_manager()
    ccall(driver(:simcuda_fail), Cint, (Cstring, UInt64, UInt32, Cint), "cuMemAllocFromPoolAsync", 1, 2, 0)
    a = allocate(pool, 8, GPU; stream=s)
    ok &= a.address != C_NULL
    ccall(driver(:simcuda_fail), Cint, (Cstring, UInt64, UInt32, Cint), "cuMemAllocFromPoolAsync", 1, 2, 1)
    ok &= refused(() -> allocate(pool, 8, GPU; stream=s), DX.DEVX_OUT_OF_MEMORY)
    ccall(driver(:simcuda_fail_clear), Cvoid, ())
    foreach(close, (a, pool, small, host, all))
    ok &= releases_done()
    close(s)
    return ok
end

# ---- CUDA Array Interface ----

# A foreign CUDA array over memory at an address, and the counter of its release. The keywords can make the array invalid.
function foreign_cuda_array(data, shape; typestr="<f4", strides=nothing, version=3, read_only=0, ndim=length(shape),
                            mask=C_NULL, stream=-1, released=false)
    calls = kept(Ref(0))
    steps = strides === nothing ? Ptr{Int64}(C_NULL) : at(collect(Int64, strides))
    extents = shape === nothing ? Ptr{Int64}(C_NULL) : at(collect(Int64, shape))
    release = released ? C_NULL : foreign(:foreign_release_cuda_array)
    return at(Ref(DevxCudaArray(version, read_only, data, ndim, extents, steps, text(typestr), C_NULL, mask, stream,
        release, at(calls)))), calls
end

function cuda_arrays_there_and_back()
    s, other = DeviceStream(GPU), DeviceStream(GPU)
    a = Float32[10i + j for i in 1:3, j in 1:4]
    t, target = copy_to(a, GPU, s), Ref(DevxCudaArray())
    # Shared: the struct names the stream that the data was made on.
    export_share_cuda_array(t, target)
    out = target[]
    ok = out.version == 3 && out.data == t.data && out.ndim == 2 && out.mask == C_NULL && out.read_only == 0
    ok &= unsafe_string(out.typestr) == "<f4" && [unsafe_load(out.shape, k) for k in 1:2] == [3, 4]
    ok &= out.strides == C_NULL && out.stream == s.value && out.release != C_NULL
    # Imported on another stream, which waits.
    u = import_cuda_array(target; stream=other)
    ok &= target[].release == C_NULL && u isa Tensor{Float32,2} && strides(u) == (4, 1) && pointer(u) == pointer(t)
    ok &= read!(zeros(Float32, 3, 4), u, other) == a
    close(u)
    # Moved, for a stream of the consumer.
    export_move_cuda_array(t, target; stream=other)
    ok &= !isopen(t) && target[].stream == other.value
    cuda_array_release(target)
    cuda_array_release(target)
    ok &= target[].release == C_NULL
    # A column-major array. Its strides count elements in Julia, and bytes in the struct.
    t = allocate(Float32, (4, 3), GPU; stream=s)
    write!(t, permutedims(a), s)
    p, calls = foreign_cuda_array(t.data, (3, 4); strides=(4, 12), stream=s.value)
    u = import_cuda_array(p; stream=other)
    ok &= size(u) == (3, 4) && strides(u) == (1, 3)
    export_share_cuda_array(u, target)
    ok &= [unsafe_load(target[].strides, k) for k in 1:2] == [4, 12]
    cuda_array_release(target)
    close(u)
    ok &= releases_done() && calls[] == 1
    # A read-only array stays read-only. An array without elements has no address.
    p, calls = foreign_cuda_array(t.data, (12,); read_only=1)
    u = import_cuda_array(p)
    ok &= isreadonly(u) && refused(() -> write!(u, zeros(Float32, 12), s), DX.DEVX_READ_ONLY)
    export_share_cuda_array(u, target)
    ok &= target[].read_only == 1
    cuda_array_release(target)
    close(u)
    p, empty_calls = foreign_cuda_array(C_NULL, (0, 3))
    u = import_cuda_array(p)
    ok &= size(u) == (0, 3) && u.data == C_NULL
    close(u)
    ok &= releases_done() && calls[] == 1 && empty_calls[] == 1
    close(t)
    ok &= releases_done()
    foreach(close, (s, other))
    return ok
end

# Every element type that has a typestr of NumPy.
function cuda_array_types()
    t, ok, target = allocate(UInt8, 256, GPU), true, Ref(DevxCudaArray())
    for (typestr, T) in ("|b1" => Bool, "|i1" => Int8, "|u1" => UInt8, "<i2" => Int16, "<u2" => UInt16, "<i4" => Int32,
                         "<u4" => UInt32, "<i8" => Int64, "<u8" => UInt64, "<f2" => Float16, "<f4" => Float32,
                         "<f8" => Float64, "<c8" => ComplexF32, "<c16" => ComplexF64)
        p, calls = foreign_cuda_array(t.data, (2,); typestr=typestr)
        u = import_cuda_array(p)
        ok &= eltype(u) == T && size(u) == (2,)
        export_move_cuda_array(u, target)
        ok &= unsafe_string(target[].typestr) == typestr && calls[] == 0
        cuda_array_release(target)
        ok &= releases_done() && calls[] == 1
    end
    close(t)
    return ok && releases_done()
end

# Versions before 3 have no stream; `no_stream` says what takes its place.
function cuda_arrays_without_streams()
    ok, target = true, Ref(DevxCudaArray())
    for version in 0:2, policy in (:legacy_default, :host_sync, :trust)
        t = copy_to(Float32[1, 2], GPU, DX.LEGACY_STREAM)
        policy === :trust && synchronize(DeviceStream(GPU, DX.LEGACY_STREAM))
        # `stream` means nothing in these versions.
        p, calls = foreign_cuda_array(t.data, (2,); version=version, stream=0)
        s = DeviceStream(GPU)
        u = import_cuda_array(p; stream=s, no_stream=policy)
        ok &= read!(zeros(Float32, 2), u, s) == [1, 2]
        export_share_cuda_array(u, target; max_version=version, no_stream=policy)
        ok &= target[].version == version
        cuda_array_release(target)
        foreach(close, (u, t))
        ok &= releases_done() && calls[] == 1
        close(s)
    end
    return ok
end

function cuda_array_masks()
    s = DeviceStream(GPU)
    t, m = copy_to(Float32[1, 2, 3], GPU, s), copy_to([true, false, true], GPU, s)
    inner, _ = foreign_cuda_array(m.data, (3,); typestr="|b1", released=true)
    p, calls = foreign_cuda_array(t.data, (3,); mask=inner, stream=s.value)
    ok = refused(() -> import_cuda_array(p), DX.DEVX_UNSUPPORTED, "mask") && calls[] == 0
    u, mask = import_cuda_array(p; mask=true, stream=s)
    ok &= read!(zeros(Float32, 3), u, s) == [1, 2, 3] && read!(zeros(Bool, 3), mask, s) == [true, false, true]
    close(u)
    ok &= releases_done() && calls[] == 0
    close(mask)
    ok &= releases_done() && calls[] == 1
    p, calls = foreign_cuda_array(t.data, (3,))
    u, mask = import_cuda_array(p; mask=true)
    ok &= mask === nothing
    close(u)
    wrong, _ = foreign_cuda_array(m.data, (2,); typestr="|b1", released=true)
    p, calls = foreign_cuda_array(t.data, (3,); mask=wrong)
    ok &= refused(() -> import_cuda_array(p; mask=true), DX.DEVX_MISMATCH, "mask has shape [2]", "[3]") && calls[] == 0
    wrong, _ = foreign_cuda_array(m.data, (3,); typestr="|b9", released=true)
    p, calls = foreign_cuda_array(t.data, (3,); mask=wrong)
    ok &= refused(() -> import_cuda_array(p; mask=true), DX.DEVX_INVALID_DTYPE, "mask: ", "|b9") && calls[] == 0
    foreach(close, (t, m))
    ok &= releases_done()
    close(s)
    return ok
end

# Whether an invalid array is refused and unchanged, and its producer can release it once.
function bad_cuda_array(memory, status, parts...; data=memory, shape=(4,), stream=nothing, no_stream=:legacy_default,
                        keywords...)
    p, calls = foreign_cuda_array(data, shape; keywords...)
    before, count = unsafe_load(p), outstanding()
    ok = refused(() -> import_cuda_array(p; stream=stream, no_stream=no_stream), status, parts...)
    ok &= unsafe_load(p) === before && calls[] == 0 && outstanding() == count
    cuda_array_release(p)
    cuda_array_release(p)
    return ok && calls[] == 1
end

function cuda_arrays_refused()
    t, target = allocate(Float32, 4, GPU), Ref(DevxCudaArray())
    bad(status, parts...; keywords...) = bad_cuda_array(t.data, status, parts...; keywords...)
    host = kept(zeros(Float32, 4))
    ok = bad(DX.DEVX_VERSION, "version is 4"; version=4) && bad(DX.DEVX_VERSION, "version is -1"; version=-1)
    ok &= bad(DX.DEVX_INVALID_DTYPE, "typestr is NULL"; typestr=nothing)
    ok &= bad(DX.DEVX_INVALID_DTYPE, "typestr is \"\""; typestr="")
    ok &= bad(DX.DEVX_INVALID_DTYPE, "typestr is \"f4\""; typestr="f4")
    ok &= bad(DX.DEVX_INVALID_DTYPE, "\"<x4\""; typestr="<x4") && bad(DX.DEVX_INVALID_DTYPE, "\"<f3\""; typestr="<f3")
    ok &= bad(DX.DEVX_INVALID_DTYPE, "no end"; typestr="<f4"^40)
    ok &= bad(DX.DEVX_UNSUPPORTED, "\">f4\""; typestr=">f4") && bad(DX.DEVX_UNSUPPORTED, "\"|V8\""; typestr="|V8")
    ok &= bad(DX.DEVX_INVALID_SHAPE, "ndim is -1"; ndim=-1) && bad(DX.DEVX_INVALID_SHAPE, "ndim is 65"; ndim=65)
    ok &= bad(DX.DEVX_INVALID_SHAPE, "shape is NULL"; shape=nothing, ndim=1)
    ok &= bad(DX.DEVX_INVALID_SHAPE, "shape[1] is -2"; shape=(2, -2))
    ok &= bad(DX.DEVX_INVALID_SHAPE, "shape"; shape=(1 << 40, 1 << 40))
    ok &= bad(DX.DEVX_INVALID_SHAPE, "strides[0] is 6 bytes"; strides=(6,))
    ok &= bad(DX.DEVX_INVALID_SHAPE, "strides"; shape=(2, 2), strides=(typemax(Int64) - 3, 4))
    ok &= bad(DX.DEVX_INVALID_ARGUMENT, "data is NULL"; data=C_NULL)
    ok &= bad(DX.DEVX_INVALID_ARGUMENT, "aligned"; data=t.data + 1, shape=(1,))
    ok &= bad(DX.DEVX_DEVICE, "host memory"; data=Ptr{Cvoid}(pointer(host)))
    # More elements than the memory has.
    ok &= bad(DX.DEVX_DEVICE; shape=(1 << 30,))
    ok &= bad(DX.DEVX_INVALID_STREAM, "stream is 0"; stream=0) && bad(DX.DEVX_INVALID_STREAM, "-7"; stream=-7)
    p, calls = foreign_cuda_array(t.data, (4,); stream=0)
    ok &= refused(() -> import_cuda_array(p), DX.DEVX_INVALID_STREAM, "array: stream is 0") && calls[] == 0
    ok &= bad(DX.DEVX_INVALID_ARGUMENT, "no_stream is 7"; no_stream=7)
    ok &= bad(DX.DEVX_INVALID_ARGUMENT, "no_stream is :never"; no_stream=:never)
    p, calls = foreign_cuda_array(t.data, (4,); released=true)
    ok &= refused(() -> import_cuda_array(p), DX.DEVX_RELEASED, "array.release is NULL")
    # Exports that are refused.
    for export_ in (export_share_cuda_array, export_move_cuda_array)
        ok &= refused(() -> export_(t, Ptr{DevxCudaArray}(C_NULL)), DX.DEVX_NULL_ARGUMENT, "out is NULL")
        ok &= refused(() -> export_(t, target; max_version=-1), DX.DEVX_VERSION, "max_version is -1")
        ok &= refused(() -> export_(t, target; no_stream=3), DX.DEVX_INVALID_ARGUMENT, "no_stream is 3")
        ok &= refused(() -> export_(t, target; stream=0), DX.DEVX_INVALID_STREAM, "stream is 0")
        ok &= isopen(t) && target[] === DevxCudaArray()
    end
    raw = allocate(RawElement{0x04,0x10,UInt16}, 4, GPU)
    ok &= refused(() -> export_move_cuda_array(raw, target), DX.DEVX_UNSUPPORTED, "bfloat16") && isopen(raw)
    foreach(close, (raw, t))
    ok &= refused(() -> export_share_cuda_array(t, target), DX.DEVX_CLOSED)
    ok &= refused(() -> export_move_cuda_array(t, target), DX.DEVX_CLOSED)
    return ok && releases_done()
end

# The work that a consumer noted comes before the release, and before what the producer queues afterwards.
function cuda_arrays_after_the_work()
    producer, consumer = DeviceStream(GPU), DeviceStream(GPU)
    t = copy_to(Float32[1, 2, 3, 4], GPU, producer)
    p, calls = foreign_cuda_array(t.data, (4,); stream=producer.value)
    u = import_cuda_array(p; stream=consumer)
    gate = hold_up(consumer)
    used_on(u, consumer)
    close(u)
    drain()
    ok = calls[] == 0 && releases_waiting() >= 1
    let_go(gate)
    write!(t, Float32[5, 6, 7, 8], producer)
    ok &= releases_done() && calls[] == 1
    ok &= read!(zeros(Float32, 4), t, producer) == [5, 6, 7, 8]
    close(t)
    ok &= releases_done()
    foreach(close, (producer, consumer))
    return ok
end

# The number of live objects does not grow.
function many_cuda_arrays()
    t, target, ok, before = allocate(Float32, 4, GPU), Ref(DevxCudaArray()), true, stat("live")
    m, s = pool_manager(), DeviceStream(GPU)
    for round in 1:10_000
        export_share_cuda_array(t, target)
        u = import_cuda_array(target; stream=s)
        close(u)
        close(allocate(m, 64, GPU; stream=s))
        round % 2_000 == 0 && (GC.gc(); ok &= outstanding() < 20 && stat("live") < before + 20)
    end
    ok &= releases_done() && DX.statistics(m).bytes == 0 && DX.statistics(m).total_allocations == 10_000
    foreach(close, (t, m))
    ok &= releases_done()
    close(s)
    return ok
end

const MEMORY_SCENARIOS = (memory_of_managers, deferred_memory, managers_in_julia, memory_of_closed_streams,
    cuda_arrays_there_and_back, cuda_arrays_without_streams, cuda_array_masks, cuda_arrays_after_the_work)

@testset "on a device: refusals of managers and arrays" begin
    @test managers_refuse()
    @test cuda_arrays_refused()
    @test cuda_array_types()
    @test pinned_arrays()
    @test handles_for_others()
    @test many_cuda_arrays()
    @test all_back()
end
