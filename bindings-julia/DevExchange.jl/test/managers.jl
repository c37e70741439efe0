# Memory managers over host memory: those of the library, those written in Julia, and their foreign callers.

# The calls of a manager of the tests, and how often its memory was allocated and freed.
struct Log
    said::Vector{Any}
    given::Threads.Atomic{Int}
    freed::Threads.Atomic{Int}
    lock::ReentrantLock
end
Log() = Log([], Threads.Atomic{Int}(0), Threads.Atomic{Int}(0), ReentrantLock())
note(log::Log, x) = lock(() -> push!(log.said, x), log.lock)
taken!(log::Log) = lock(() -> splice!(log.said, eachindex(log.said)), log.lock)
live(log::Log) = log.given[] - log.freed[]

# Counted memory of malloc.
function counted(log::Log, bytes)
    address = Libc.malloc(max(bytes, 1))
    Threads.atomic_add!(log.given, 1)
    return address, DX.CPU, () -> (Libc.free(address); Threads.atomic_add!(log.freed, 1))
end

const HANDLE = ntuple(UInt8, 64)

# A manager with every function, which notes all calls.
whole_manager(log; keywords...) = MemoryManager(request -> (note(log, request); counted(log, request.bytes));
    initialize=id -> note(log, (:initialize, id)),
    pin=(id, address, bytes, flags) -> (note(log, (:pin, id, address, bytes, flags)); () -> note(log, :unpinned)),
    memory_info=id -> (note(log, (:memory_info, id)); (free_bytes=5, total_bytes=6)),
    ipc_handle=address -> (note(log, (:ipc_handle, address)); (HANDLE, 3, 9, 2)),
    reset=id -> note(log, (:reset, id)), trim=(id, keep) -> note(log, (:trim, id, keep)),
    defer_cleanup=begins -> note(log, (:defer_cleanup, begins)), release=() -> note(log, :release), keywords...)

@testset "managers: the library's, on the host" begin
    m = host_only_manager()
    a = allocate(m, 64, DX.CPU)
    @test a.bytes == 64 && a.address == pointer(a) != C_NULL && DX.device(a) == DX.CPU && isopen(a)
    @test repr(a) == "Allocation of 64 bytes on cpu:0" && repr(m) == "MemoryManager"
    unsafe_store!(Ptr{Int}(pointer(a)), 4711, 8)
    @test unsafe_load(Ptr{Int}(pointer(a)), 8) == 4711
    t = allocate(m, Float32, (2, 3), DX.CPU)
    t .= 1:2
    @test t == [1 1 1; 2 2 2] && strides(t) == (3, 1)
    none, single = allocate(m, 0, DX.CPU), allocate(m, Int, 3, DX.CPU)
    @test none.address == C_NULL && size(single) == (3,)
    @test DX.statistics(m) ==
        (bytes=112, peak_bytes=112, allocations=4, total_allocations=4, total_bytes=112, refused=0)
    # Memory outlives its manager, and is given back once.
    close(m)
    close(m)
    @test t[2, 3] == 2 && unsafe_load(Ptr{Int}(pointer(a)), 8) == 4711
    foreach(close, (a, a, t, none, single))
    @test repr(a) == "Allocation of 64 bytes (closed)" && repr(m) == "MemoryManager (closed)"
    @test refused(() -> pointer(a), DX.DEVX_CLOSED, "allocation") && nothing_left()
    # A limit around another manager, to which the limited manager has a reference of its own.
    inner = host_only_manager()
    m, counting = limited_manager(inner, 100), limited_manager(inner)
    a = allocate(m, 60, DX.CPU)
    @test refused(() -> allocate(m, 41, DX.CPU), DX.DEVX_OUT_OF_MEMORY, "41 bytes", "60 in use", "100")
    @test refused(() -> allocate(m, UInt8, 41, DX.CPU), DX.DEVX_OUT_OF_MEMORY, "41 bytes")
    b, c = allocate(m, 40, DX.CPU), allocate(counting, 1000, DX.CPU)
    close(inner)
    close(a)
    d = allocate(m, 60, DX.CPU)
    @test DX.statistics(m).refused == 2 && DX.statistics(m).peak_bytes == 100 && DX.statistics(counting).bytes == 1000
    # `defer_cleanup` holds memory back, until the outermost one ends.
    log = Log()
    own = MemoryManager(request -> counted(log, request.bytes))
    e = allocate(own, 8, DX.CPU)
    @test defer_cleanup(() -> (close(e); defer_cleanup(drain, own); drain(); live(log)), own) == 1
    drain()
    @test live(log) == 0
    e = allocate(own, 8, DX.CPU)
    @test_throws ErrorException defer_cleanup(() -> (close(e); error("no")), own)
    drain()
    @test live(log) == 0
    # The manager is closed within `defer_cleanup`, which still ends.
    e = allocate(own, 8, DX.CPU)
    defer_cleanup(() -> (close(own); close(e)), own)
    @test refused(() -> allocate(own, 8, DX.CPU), DX.DEVX_CLOSED)
    foreach(close, (b, c, d, m, counting))
    @test nothing_left() && live(log) == 0
end

@testset "managers: refusals" begin
    log = Log()
    m = whole_manager(log)
    @test refused(() -> allocate(m, -1, DX.CPU), DX.DEVX_INVALID_ARGUMENT, "bytes is -1")
    @test refused(() -> allocate(m, typemax(UInt64), DX.CPU), DX.DEVX_INVALID_ARGUMENT, "bytes is $(typemax(UInt64))")
    @test refused(() -> allocate(m, 8, DX.CPU; host_flags=8), DX.DEVX_INVALID_ARGUMENT, "host_flags is 0x8")
    @test refused(() -> allocate(m, 8, DX.CPU; stream=0), DX.DEVX_INVALID_STREAM, "stream is 0")
    @test refused(() -> allocate(m, Int, 8, DX.CPU; stream=1), DX.DEVX_DEVICE, "streams")
    @test refused(() -> allocate(m, Int, (2, -1), DX.CPU), DX.DEVX_INVALID_SHAPE, "size[2] is -1")
    @test refused(() -> allocate(m, Int, (1 << 40, 1 << 40), DX.CPU), DX.DEVX_INVALID_SHAPE)
    @test refused(() -> allocate(m, String, 1, DX.CPU), DX.DEVX_UNSUPPORTED, "String")
    @test refused(() -> allocate(m, RawElement{0x01,0x04,UInt8}, 3, DX.CPU), DX.DEVX_UNSUPPORTED, "packed")
    @test refused(() -> allocate(m, Int, 1, DLDevice(99, 0)), DX.DEVX_DEVICE, "99")
    @test refused(() -> pin(m, C_NULL, -1), DX.DEVX_INVALID_ARGUMENT, "bytes is -1")
    @test refused(() -> pin(m, [1]; host_flags=16), DX.DEVX_INVALID_ARGUMENT, "0x10")
    @test refused(() -> pin(m, ["a"]), DX.DEVX_UNSUPPORTED, "String")
    @test refused(() -> trim!(m; keep=-5), DX.DEVX_INVALID_ARGUMENT, "keep is -5")
    @test refused(() -> limited_manager(m, -2), DX.DEVX_INVALID_ARGUMENT, "limit is -2")
    @test refused(() -> pool_manager(limit=-2), DX.DEVX_INVALID_ARGUMENT, "limit is -2")
    @test refused(() -> pool_manager(keep=-3, shareable=true), DX.DEVX_INVALID_ARGUMENT, "keep is -3")
    @test refused(() -> MemoryManager(identity; patience=-1), DX.DEVX_INVALID_ARGUMENT, "patience is -1")
    @test isempty(taken!(log)) && live(log) == 0
    # The host-only manager has no memory of devices. The other managers do not find a driver here.
    host = host_only_manager()
    @test refused(() -> allocate(host, 8, DX.cuda()), DX.DEVX_UNSUPPORTED, "device_type is cuda", "host-only")
    @test refused(() -> allocate(host, 8, DX.MANAGED), DX.DEVX_UNSUPPORTED, "device_type is cuda_managed")
    close(host)
    if Libdl.dlopen_e("libcuda.so.1") == C_NULL
        for make in (driver_manager, managed_manager, pool_manager, () -> pool_manager(shareable=true, limit=9, keep=1))
            other = make()
            @test refused(() -> allocate(other, 8, DX.cuda()), DX.DEVX_DEVICE, "no CUDA driver")
            @test refused(() -> pin(other, [1]), DX.DEVX_DEVICE, "no CUDA driver")
            @test refused(() -> memory_info(other), DX.DEVX_DEVICE, "no CUDA driver")
            close(other)
        end
        @test refused(() -> ipc_handle(MemoryManager(identity), C_NULL), DX.DEVX_DEVICE, "no CUDA driver")
    end
    close(m)
    for f in (m -> allocate(m, 8, DX.CPU), m -> allocate(m, Int, 1, DX.CPU), m -> pin(m, [1]), memory_info, reset!,
              trim!, DX.initialize, DX.statistics, m -> ipc_handle(m, C_NULL), limited_manager,
              m -> defer_cleanup(() -> error("not called"), m))
        @test refused(() -> f(m), DX.DEVX_CLOSED, "manager")
    end
    @test nothing_left() && taken!(log) == [:release]
end

@testset "managers: Julia's own" begin
    log = Log()
    m = whole_manager(log)
    t = allocate(m, Int32, (2, 2), DX.CPU)
    t .= [1 2; 3 4]
    @test t == [1 2; 3 4] && taken!(log) == [MemoryRequest(DX.CPU, 16, nothing, 0)]
    a = allocate(m, 24, DLDevice(DX.kDLCUDAHost, 0); host_flags=DX.DEVX_HOST_PORTABLE | DX.DEVX_HOST_MAPPED)
    # The manager itself says where the memory is.
    @test DX.device(a) == DX.CPU && taken!(log) == [MemoryRequest(DX.PINNED, 24, nothing, 3)]
    @test memory_info(m, 3) == (free_bytes=5, total_bytes=6) && DX.initialize(m, 4) === nothing
    for memory in (a, t, pointer(a))
        @test ipc_handle(m, memory) == (handle=HANDLE, offset=3, bytes=9, device_id=2)
    end
    array = [1.0, 2.0]
    p = pin(m, array; device_id=5, host_flags=1)
    @test p.address == pointer(array) && p.bytes == 16 && DX.device(p) == DX.PINNED && DX.rooted() == 5
    @test taken!(log) == [(:memory_info, 3), (:initialize, 4), (:ipc_handle, pointer(a)), (:ipc_handle, pointer(t)),
        (:ipc_handle, pointer(a)), (:pin, 5, pointer(array), 16, 1)]
    close(p)
    drain()
    @test taken!(log) == [:unpinned] && DX.rooted() == 3
    # Plain host memory belongs to no device, so it stays.
    reset!(m, 0)
    @test live(log) == 2 && taken!(log) == [(:reset, 0)] && DX.statistics(m).allocations == 2
    foreach(close, (t, a))
    drain()
    @test live(log) == 0 && DX.statistics(m).bytes == 0
    trim!(m, 6; keep=77)
    defer_cleanup(() -> note(log, :between), m)
    @test taken!(log) == [(:trim, 6, 77), (:defer_cleanup, true), :between, (:defer_cleanup, false)]
    # The manager's release comes after the release of its last memory.
    a = allocate(m, 8, DX.CPU)
    close(m)
    drain()
    @test taken!(log) == [MemoryRequest(DX.CPU, 8, nothing, 0)] && live(log) == 1
    close(a)
    drain()
    @test taken!(log) == [:release] && live(log) == 0 && nothing_left()

    # What is due is released before a function runs that gives memory back or needs some. Before `allocate` another task may
    # be releasing it.
    lived = Pair{Symbol,Int}[]
    m = MemoryManager(request -> (push!(lived, :allocate => live(log)); counted(log, request.bytes));
        reset=_ -> push!(lived, :reset => live(log)), trim=(_, _) -> push!(lived, :trim => live(log)))
    for call in (m -> nothing, reset!, trim!)
        a = allocate(m, 8, DX.CPU)
        close(a)
        call(m)
    end
    @test lived[[3, 5]] == [:reset => 0, :trim => 0]
    @test Threads.nthreads() > 1 || lived[[1, 2, 4]] == fill(:allocate => 0, 3)
    close(m)
    @test nothing_left() && live(log) == 0

    # Without a function for it, a call does nothing or is not supported.
    m = MemoryManager(request -> (C_NULL, DX.CPU, nothing))
    @test DX.initialize(m) === nothing && reset!(m) === nothing && trim!(m) === nothing
    @test defer_cleanup(() -> 7, m) == 7
    @test refused(() -> pin(m, [1]), DX.DEVX_UNSUPPORTED, "no pin")
    @test refused(() -> memory_info(m), DX.DEVX_UNSUPPORTED, "no memory_info")
    a = allocate(m, 0, DX.CPU)
    @test a.address == C_NULL && a.bytes == 0
    @test refused(() -> allocate(m, 8, DX.CPU), DX.DEVX_CALLBACK, "no address for 8 bytes")
    foreach(close, (a, m))
    # Memory may have no release.
    place = zeros(UInt8, 8)
    m = MemoryManager(request -> (pointer(place), DX.CPU, nothing))
    GC.@preserve place begin
        t = allocate(m, Int64, 1, DX.CPU)
        t[1] = 258
        @test place[1:3] == [2, 1, 0]
        close(t)
    end
    close(m)
    @test nothing_left()
end

# Whether a call of a manager is refused as expected if its function `name` is `f`.
function manager_fails(f, ask, status, parts...; name)
    functions = Dict{Symbol,Any}(name => f)
    allocate = pop!(functions, :allocate, request -> counted(Log(), request.bytes))
    m = MemoryManager(allocate; functions...)
    ok = refused(() -> ask(m), status, parts...)
    ok &= DX.statistics(m).bytes == 0
    close(m)
    return ok
end

# As a foreign consumer on this thread: asks a stream for a batch whose source is interrupted, and returns the error code.
function consume_interrupted()
    out, array, s = Ref(ArrowArrayStream()), Ref(ArrowArray()), Schema([Field("n", Int64)])
    export_move(BatchStream(() -> throw(InterruptException()), s), out)
    code = ccall(out[].get_next, Cint, (Ptr{ArrowArrayStream}, Ptr{ArrowArray}), out, array)
    arrow_release(out)
    close(s)
    return code
end

@testset "managers: exceptions" begin
    asks = (allocate=m -> allocate(m, 8, DX.CPU), initialize=DX.initialize, pin=m -> pin(m, [1]),
        memory_info=memory_info, ipc_handle=m -> ipc_handle(m, C_NULL), reset=reset!, trim=trim!)
    for (name, ask) in pairs(asks)
        fails(f, status, parts...) = manager_fails(f, ask, status, parts...; name=name)
        @test fails((_...) -> error("the cable is cut"), DX.DEVX_CALLBACK, "$name: the cable is cut")
        @test fails((_...) -> throw(DevExchangeError(DX.DEVX_DRIVER, 700, "lost")), DX.DEVX_DRIVER, "$name: lost")
        @test fails((_...) -> throw(OutOfMemoryError()), DX.DEVX_OUT_OF_MEMORY, string(name))
        @test fails((_...) -> throw(DevExchangeError(DX.DEVX_OK, "fine")), DX.DEVX_CALLBACK, "fine")
        @test fails((_...) -> error("a\0b"), DX.DEVX_CALLBACK, "a?b")
        @test fails((_...) -> throw(Unshown()), DX.DEVX_CALLBACK, "cannot be shown: Unshown")
        @test fails((_...) -> sqrt("a"), DX.DEVX_CALLBACK, "MethodError")
    end
    m = MemoryManager(_ -> throw(InterruptException()))
    @test_throws InterruptException allocate(m, 8, DX.CPU)
    close(m)
    m = MemoryManager(_ -> throw(DevExchangeError(DX.DEVX_DRIVER, 700, "lost")))
    @test try allocate(m, 8, DX.CPU); false catch e; e.driver_code == 700 end
    close(m)
    # Wrong results of `allocate`. A release that came with one is called, unless the result as a whole has the wrong form.
    freed = Ref(0)
    free() = freed[] += 1
    for (given, part) in ((nothing, "Nothing, not (address, device, release)"), ((C_NULL, DX.CPU), "not (address"),
                          (("x", DX.CPU, free), "String"), ((C_NULL, 1, free), "DLDevice"),
                          ((Ptr{Cvoid}(64), DLDevice(99, 0), free), "99"), ((C_NULL, DX.CPU, free), "no address"))
        before = freed[]
        m = MemoryManager(_ -> given)
        text = try allocate(m, 8, DX.CPU); "" catch e; e.message end
        @test occursin(part, text) && (drain(); freed[] - before == (occursin("not (", part) ? 0 : 1))
        close(m)
    end
    # The memory is given back, too, if its stream cannot be held.
    before = freed[]
    hold() = disable_sigint(() -> DX.on_held_stream(free, 0))
    @test refused(hold, DX.DEVX_INVALID_STREAM, "stream is 0") && freed[] == before + 1
    wrong(name, given, status, parts...) = manager_fails(_ -> given, asks[name], status, parts...; name=name)
    @test wrong(:memory_info, 7, DX.DEVX_INVALID_ARGUMENT, "Int64, not (free_bytes, total_bytes)")
    @test wrong(:memory_info, (-1, 2), DX.DEVX_CALLBACK, "-1")
    @test wrong(:ipc_handle, (1, 2, 3), DX.DEVX_INVALID_ARGUMENT, "not (handle, offset, bytes, device_id)")
    @test wrong(:ipc_handle, ([1, 2], 0, 8, 0), DX.DEVX_INVALID_ARGUMENT, "handle has 2 bytes: it must have 64")
    @test wrong(:ipc_handle, (HANDLE, 9, 8, 0), DX.DEVX_CALLBACK, "offset 9 of 8")
    # An exception of `defer_cleanup` has no caller to go to, so it is logged, and so is that of a release.
    m = MemoryManager(request -> (Libc.malloc(8), DX.CPU, () -> error("no")); defer_cleanup=_ -> error("not now"))
    @test_logs (:error, r"defer_cleanup of a manager failed") (:error, r"defer_cleanup") defer_cleanup(() -> 1, m)
    m = (close(m); MemoryManager(request -> (Libc.malloc(8), DX.CPU, () -> error("no"))))
    for (when, called) in ((true, 0), (false, 1))
        own = MemoryManager(identity; defer_cleanup=begins -> begins == when && throw(InterruptException()))
        calls = Ref(0)
        @test_throws InterruptException defer_cleanup(() -> calls[] += 1, own)
        # A later call does not throw it again.
        @test calls[] == called && defer_cleanup(() -> 7, m) == 7
        close(own)
    end
    # An interrupt that a foreign consumer on this thread got as an error, before or within the deferral, is not thrown by it.
    @test consume_interrupted() != 0 && defer_cleanup(() -> 7, m) == 7 && defer_cleanup(consume_interrupted, m) != 0
    before = DX.release_failures()
    a = allocate(m, 8, DX.CPU)
    close(m)
    # This task holds the lock, so that it delivers and logs, and not the background task.
    lock(DX.DRAINING) do
        @test_logs (:error, r"release function failed") (close(a); drain())
    end
    @test DX.release_failures() == before + 1 && nothing_left()
end

# Closes nothing: the finalizers leave the releases to a task.
@noinline function forgotten_memory(log)
    m = whole_manager(log)
    allocate(m, 8, DX.CPU)
    allocate(m, Int, 4, DX.CPU)
    pin(m, [1, 2])
    return nothing
end

@testset "managers: ownership" begin
    log = Log()
    forgotten_memory(log)
    @test nothing_left() && live(log) == 0
    said = taken!(log)
    @test count(==(:unpinned), said) == 1 && said[end] == :release
    # In every order, the memory is freed once, and the manager's release comes last.
    for order in orders(4)
        m = whole_manager(log)
        a, t = allocate(m, 8, DX.CPU), allocate(m, Int, 4, DX.CPU)
        p = export_share(t)
        ends = (() -> close(m), () -> close(a), () -> close(t), () -> dlpack_release(p))
        foreach(k -> (ends[k](); drain()), order)
        taken!(log)[end] == :release && live(log) == 0 || (@test false)
    end
    @test nothing_left()
    # The garbage collector does not free a pinned array.
    array = Ref{Any}([3.0])
    m = whole_manager(log)
    p = pin(m, array[])
    weak = WeakRef(array[])
    array[] = nothing
    GC.gc()
    @test weak.value == [3.0] && unsafe_load(Ptr{Float64}(pointer(p))) == 3.0
    foreach(close, (p, m))
    @test nothing_left()
    # Release functions whose calls would deliver releases are called one after the other, however many there are.
    m = MemoryManager(request -> counted(log, request.bytes))
    delivered, depth, deepest, called = Any[], Ref(0), Ref(0), Ref(0)
    function released(k)
        depth[] += 1
        deepest[] = max(deepest[], depth[])
        isodd(k) ? close(allocate(m, 8, DX.CPU)) : push!(delivered, drain())
        depth[] -= 1
        called[] += 1
    end
    foreach(k -> close(Tensor([1.0]; release=() -> released(k))), 1:10_000)
    drain()
    @test called[] == 10_000 && deepest[] == 1 && all(iszero, delivered)
    close(m)
    @test nothing_left() && live(log) == 0
end

@testset "managers: foreign threads" begin
    log = Log()
    m = whole_manager(log)
    # On a Julia thread, the functions run on that thread.
    seen = Int[]
    here = MemoryManager(request -> (push!(seen, Threads.threadid()); counted(log, request.bytes)))
    a, caller = asker(here; rounds=10), Threads.threadid()
    ask(a)
    @test (a[:got], a[:code]) == (10, 0) && all(==(caller), seen)
    close(here)
    # For calls on a foreign thread they run in tasks. This caller uses every function.
    a = asker(m; rounds=3, bytes=100, all=1)
    @test ask_on_thread(a) && comes(() -> a[:done] == 1)
    @test (a[:got], a[:code], said(a)) == (3, 0, "")
    @test (a[:free_bytes], a[:total_bytes], a[:handle_bytes]) == (5, 6, 1 + 64 + 3 + 9 + 2)
    drain()
    requests = filter(x -> x isa MemoryRequest, log.said)
    @test requests == fill(MemoryRequest(DX.CPU, 100, nothing, 0), 3) && live(log) == 0
    others = filter(x -> !(x isa MemoryRequest), taken!(log))
    @test Set(first.(filter(x -> x isa Tuple, others))) ==
        Set([:initialize, :memory_info, :ipc_handle, :pin, :defer_cleanup, :trim, :reset])
    for x in ((:initialize, 3), (:memory_info, 4), (:trim, 6, 77), (:reset, 7), (:defer_cleanup, true),
              (:defer_cleanup, false), :unpinned)
        @test x in others
    end
    pinned = others[findfirst(x -> x isa Tuple && x[1] === :pin, others)]
    @test pinned[[2, 4, 5]] == (5, 64, 2)
    # Several callers at a time, and calls of a Julia task between.
    askers = [asker(m; rounds=n) for n in (0, 1, 10, 200, 200, 200)]
    @test all(ask_on_thread, askers)
    foreach(_ -> (close(allocate(m, 8, DX.CPU)); yield()), 1:100)
    @test comes(() -> all(a -> a[:done] == 1, askers))
    @test [a[:got] for a in askers] == [0, 1, 10, 200, 200, 200] && all(a -> a[:code] == 0, askers)
    # A function that itself waits.
    slow = MemoryManager(request -> (sleep(0.002); counted(log, request.bytes)))
    a = asker(slow; rounds=5)
    @test ask_on_thread(a) && comes(() -> a[:done] == 1) && a[:got] == 5
    close(slow)
    # A function that throws.
    left = Ref(2)
    failing = MemoryManager(request -> (left[] -= 1) < 0 ? error("the cable is cut") : counted(log, request.bytes))
    a = asker(failing; rounds=10)
    @test ask_on_thread(a) && comes(() -> a[:done] == 1)
    @test (a[:got], a[:code], said(a)) == (2, DX.DEVX_CALLBACK, "allocate: the cable is cut")
    close(failing)
    # `@threadcall` leaves the Julia threads free while it waits for the foreign thread.
    a = asker(m; rounds=10)
    @test (@threadcall((:foreign_ask_and_join, FOREIGN_LIBRARY), Cint, (Ptr{Cvoid},), pointer(a))) == 0
    @test a[:got] == 10
    # A plain call blocks the only Julia thread. The function cannot run, and the foreign thread gets an error.
    if Threads.nthreads() == 1
        deaf = whole_manager(Log(); patience=0.2)
        a = asker(deaf)
        @test ask_and_join(a) && (a[:got], a[:code]) == (0, DX.DEVX_NOT_READY)
        @test occursin("no Julia task took the call up within 0.2 s", said(a))
        close(deaf)
    end
    close(m)
    @test nothing_left() && live(log) == 0
end

@testset "managers: threads" begin
    log = Log()
    inner = MemoryManager(request -> counted(log, request.bytes))
    m = limited_manager(inner)
    close(inner)
    @test on_all_threads() do k
        for i in 1:300
            t = allocate(m, Int, 4, DX.CPU)
            t .= k * 1000 + i
            a = allocate(m, 16, DX.CPU)
            t[4] == k * 1000 + i || return false
            # Some are closed, some moved, some forgotten.
            i % 3 == 0 && close(t)
            i % 3 == 1 && dlpack_release(export_move(t))
            i % 2 == 0 && close(a)
            i % 100 == 0 && GC.gc(false)
        end
        return true
    end
    @test comes(() -> (GC.gc(); drain(); live(log) == 0)) && DX.statistics(m).total_allocations == 600 * WORKERS
    # One thread closes the manager while the others allocate.
    @test on_all_threads() do k
        try
            for round in 1:100
                k == 1 && round == 50 && close(m)
                close(allocate(m, 8, DX.CPU))
            end
            k != 1
        catch e
            e isa DevExchangeError && e.status == DX.DEVX_CLOSED
        end
    end
    @test nothing_left() && live(log) == 0
end

# The number of live objects does not grow with the number of rounds.
@testset "managers: many rounds" begin
    log, most = Log(), Ref(0)
    look() = (most[] = max(most[], DX.rooted(), outstanding(), live(log)); nothing)
    m = MemoryManager(request -> counted(log, request.bytes))
    for i in 1:20_000
        t = allocate(m, Int, 4, DX.CPU)
        t[1] = i
        close(t)
        i % 100 == 0 && look()
        i % 5_000 == 0 && GC.gc()
    end
    @test most[] < 100 && DX.statistics(m).total_allocations == 20_000
    drain()
    most[] = 0
    a = asker(m; rounds=2_000)
    @test ask_on_thread(a) && comes(() -> (look(); a[:done] == 1))
    @test a[:got] == 2_000 && most[] < 500
    close(m)
    @test nothing_left() && live(log) == 0
end

@testset "managers: the end of the process" begin
    # When Julia exits, a foreign thread that waits for memory gets an error, and so does one that asks later. The exit
    # succeeds although memory is still allocated.
    output, ended = run_julia("""
        atexit() do
            comes(() -> waiting[:done] == 1)
            Core.println(waiting[:got], ", ", said(waiting))
            ask_and_join(late)
            Core.println(late[:got], ", ", said(late))
        end
        using DevExchange, Libdl
        const DX = DevExchange
        include($(repr(joinpath(@__DIR__, "producers.jl"))))
        include($(repr(joinpath(@__DIR__, "foreign.jl"))))
        count, never = Ref(0), Base.Event()
        manager = MemoryManager() do request
            (count[] += 1) > 2 && wait(never)
            (Libc.malloc(request.bytes), DX.CPU, nothing)
        end
        late, waiting = asker(manager), asker(manager; rounds=5)
        other = MemoryManager(r -> (Libc.malloc(r.bytes), DX.CPU, nothing); release=() -> error("never seen"))
        kept_to_the_end = (allocate(other, 8, DX.CPU), pin(MemoryManager(identity; pin=(_...) -> nothing), [1]))
        ask_on_thread(waiting)
        comes(() -> waiting[:got] == 2)
        sleep(0.05)
        """)
    ok = ended && occursin("2, allocate: Julia is shutting down", output) &&
        occursin("0, allocate: Julia is shutting down", output)
    ok || println(output)
    @test ok
end
