# Streams of batches, exported and imported: with peers in Julia, in C, and on threads that C started.

@noinline function forgotten_stream()
    stream, producer = foreign_stream(ArrowArrayStream; batches=3)
    close(next!(import_arrow(stream)))
    return producer
end

@testset "batch streams: foreign producers" begin
    for T in (ArrowArrayStream, ArrowDeviceArrayStream)
        stream, producer = foreign_stream(T; batches=5)
        s = import_any(stream)
        @test stream[].release == C_NULL && isopen(s) && DX.device_type(s) == DX.kDLCPU
        @test sprint(show, s) == "BatchStream of a (int64)"
        own = schema(s)
        @test DX.fields(own) == [Field("a", "l"; nullable=false)] && eltype(s) == Batch
        close(own)
        @test all_of(s) == ([1, 2, 3, 4, 5], nothing)
        # The end is final.
        @test next!(s) === nothing && iterate(s) === nothing && producer[:releases] == 0
        close(s)
        close(s)
        @test producer[:releases] == 1 && !isopen(s) && sprint(show, s) == "BatchStream (closed)"
        for f in (next!, schema, DX.device_type, iterate, s -> export_move(s, Ref(T())))
            @test refused(() -> f(s), DX.DEVX_CLOSED, "stream")
        end
        # An error of the producer is thrown, not taken for the end, and later calls throw it again.
        stream, producer = foreign_stream(T; batches=2, fails=5)
        s = import_any(stream)
        numbers, e = all_of(s)
        @test numbers == [1, 2] && e.status == DX.DEVX_CALLBACK && occursin("is on fire", e.message)
        @test refused(() -> next!(s), DX.DEVX_CALLBACK, "is on fire") && producer[:given] == 2
        close(s)
        @test producer[:releases] == 1
        # The stream is closed in the middle; the batches that were taken stay valid.
        stream, producer = foreign_stream(T; batches=5)
        s = import_any(stream)
        first, second = next!(s), next!(s)
        close(s)
        @test producer[:releases] == 1 && producer[:given] == 2
        GC.gc()
        @test taken(first) == 1 && taken(second) == 2
        # A struct that cannot be imported stays its owner's.
        @test refused(() -> import_any(stream), DX.DEVX_RELEASED)
        @test refused(() -> import_any(Ptr{T}(C_NULL)), DX.DEVX_NULL_ARGUMENT)
        stream, producer = foreign_stream(T)
        set!(Base.unsafe_convert(Ptr{T}, stream); get_next=C_NULL)
        @test refused(() -> import_any(stream), DX.DEVX_NULL_ARGUMENT, "get_next") && producer[:releases] == 0
        arrow_release(stream)
        @test producer[:releases] == 1
        arrow_release(stream)
        @test producer[:releases] == 1
    end
    stream, producer = foreign_stream(ArrowDeviceArrayStream; batches=1)
    set!(Base.unsafe_convert(Ptr{ArrowDeviceArrayStream}, stream); device_type=99)
    @test refused(() -> import_arrow_device(stream), DX.DEVX_DEVICE, "99")
    arrow_release(stream)
    # The finalizer of a forgotten stream leaves the release to a task.
    producer = forgotten_stream()
    @test nothing_left() && producer[:releases] == 1 && foreign_live() == 0
end

@testset "batch streams: Julia's own" begin
    # The source is a function, a vector or a channel. Its batches are moved, and the release comes when the stream is closed.
    called, left = Ref(0), Ref(3)
    s = BatchStream(NUMBERED; release=() -> called[] += 1) do
        left[] == 0 ? nothing : numbered(10 + (left[] -= 1))
    end
    @test all_of(s) == ([12, 11, 10], nothing) && next!(s) === nothing
    drain()
    @test called[] == 0
    close(s)
    drain()
    @test called[] == 1
    batches = [numbered(k) for k in 1:3]
    s = BatchStream(NUMBERED, batches)
    @test taken(next!(s)) == 1 && !isopen(batches[1]) && isopen(batches[2])
    close(s)
    foreach(close, batches)
    channel = Channel{Batch}(c -> foreach(k -> put!(c, numbered(k)), 1:5))
    s = BatchStream(NUMBERED, channel)
    @test all_of(s) == ([1, 2, 3, 4, 5], nothing)
    close(s)
    # It fails, and batches are left in it.
    channel = Channel{Batch}(2)
    put!(channel, numbered(1))
    close(channel, ErrorException("a broken channel"))
    s = BatchStream(NUMBERED, channel)
    @test taken(next!(s)) == 1 && refused(() -> next!(s), DX.DEVX_CALLBACK, "a broken channel")
    close(s)
    # The source is another stream. The caller may close its own reference to the schema.
    batch = numbered(1)
    copied = schema(batch)
    close(batch)
    inner = BatchStream(NUMBERED, (numbered(k) for k in 1:3))
    s = BatchStream(copied, inner; release=() -> close(inner))
    close(copied)
    @test all_of(s)[1] == [1, 2, 3]
    close(s)
    drain()
    @test !isopen(inner)
    # What a source throws becomes the error of the stream, with its text.
    s = BatchStream(NUMBERED, (k < 3 ? numbered(k) : error("no such file") for k in 1:5))
    numbers, e = all_of(s)
    @test numbers == [1, 2] && e.status == DX.DEVX_CALLBACK && occursin("no such file", e.message)
    @test refused(() -> next!(s), DX.DEVX_CALLBACK, "no such file")
    close(s)
    thrown(source) = (s = BatchStream(NUMBERED, source); e = all_of(s)[2]; close(s); e)
    e = thrown(() -> throw(DevExchangeError(DX.DEVX_DRIVER, 700, "lost")))
    @test (e.status, e.driver_code, e.message) == (DX.DEVX_DRIVER, 700, "lost")
    # A thrown error with the status OK is not taken for the end, nor one with the status BUSY for a busy stream.
    @test thrown(() -> throw(DevExchangeError(DX.DEVX_OK, "fine"))).status == DX.DEVX_CALLBACK
    @test thrown(() -> throw(DevExchangeError(DX.DEVX_BUSY, "not now"))).status == DX.DEVX_CALLBACK
    @test thrown(() -> 7).status == DX.DEVX_INVALID_ARGUMENT
    @test thrown(() -> (b = numbered(1); close(b); b)).status == DX.DEVX_CLOSED
    @test thrown(() -> Batch((a=["x"],))).status == DX.DEVX_MISMATCH
    @test thrown(() -> error("ü"^400)).message == "ü"^247
    @test occursin("a?b", thrown(() -> error("a\0b")).message)
    @test thrown(() -> throw(Unshown())).message == "an exception that cannot be shown: Unshown"
    # An interrupt within the source is thrown as such to the caller, also through another stream. Later calls throw an error.
    interrupted() = BatchStream(() -> throw(InterruptException()), NUMBERED)
    s = interrupted()
    @test_throws InterruptException next!(s)
    @test refused(() -> next!(s), DX.DEVX_CALLBACK, "InterruptException")
    inner = interrupted()
    outer = BatchStream(() -> next!(inner), NUMBERED)
    @test_throws InterruptException next!(outer)
    foreach(close, (s, inner, outer))
    # An interrupt that a foreign consumer on this thread got as an error is not thrown again by the next call that fails.
    for T in (ArrowArrayStream, ArrowDeviceArrayStream)
        out, array = Ref(T()), zeros(UInt64, 16)
        export_move(interrupted(), out)
        @test GC.@preserve out array ccall(out[].get_next, Cint, (Ptr{Cvoid}, Ptr{Cvoid}),
            Base.unsafe_convert(Ptr{T}, out), array) != 0
        @test occursin("no such file", thrown(() -> error("no such file")).message)
        arrow_release(out)
    end
    # A call within the source of the same stream is refused.
    busy, s = Ref(false), Ref{BatchStream}()
    s[] = BatchStream(() -> (busy[] = refused(() -> next!(s[]), DX.DEVX_BUSY); numbered(4)), NUMBERED)
    @test taken(next!(s[])) == 4 && busy[]
    close(s[])
    # A stream is not moved while its source runs, on this task or on another one, and works afterwards as before.
    for T in (ArrowArrayStream, ArrowDeviceArrayStream)
        out = Ref(T())
        s[] = BatchStream(() -> (busy[] = refused(() -> export_move(s[], out), DX.DEVX_BUSY); numbered(4)), NUMBERED)
        @test taken(next!(s[])) == 4 && busy[] && out[].release == C_NULL
        export_move(s[], out)
        @test !isopen(s[])
        arrow_release(out)
        begun, go_on = Channel{Nothing}(1), Channel{Nothing}(1)
        s[] = BatchStream(() -> (put!(begun, nothing); take!(go_on); numbered(5)), NUMBERED)
        asking = @async next!(s[])
        take!(begun)
        @test refused(() -> export_move(s[], out), DX.DEVX_BUSY) && isopen(s[])
        put!(go_on, nothing)
        @test taken(fetch(asking)) == 5
        close(s[])
        # The source closes its own stream.
        s[] = BatchStream(() -> (close(s[]); busy[] = refused(() -> export_move(s[], out), DX.DEVX_CLOSED); numbered(6)),
            NUMBERED)
        @test taken(next!(s[])) == 6 && busy[] && !isopen(s[])
    end
    # A construction that fails takes nothing, and calls no release.
    called[] = 0
    release() = called[] += 1
    @test refused(() -> BatchStream(NUMBERED, []; device_type=99, release=release), DX.DEVX_DEVICE, "99")
    @test refused(() -> BatchStream(NUMBERED, []; patience=-1, release=release), DX.DEVX_INVALID_ARGUMENT, "-1")
    close(copied)
    @test refused(() -> BatchStream(copied, []; release=release), DX.DEVX_CLOSED)
    @test nothing_left() && called[] == 0
end

@testset "batch streams: exports" begin
    # Exported through the structs, and imported again.
    for T in (ArrowArrayStream, ArrowDeviceArrayStream)
        s = BatchStream(NUMBERED, (numbered(k) for k in 1:4))
        stream = Ref(T())
        export_move(s, stream)
        @test !isopen(s) && stream[].release != C_NULL
        back = import_any(stream)
        @test all_of(back) == ([1, 2, 3, 4], nothing)
        close(back)
        s = BatchStream(NUMBERED, (numbered(k) for k in 1:4))
        export_move(s, stream)
        arrow_release(stream)
        @test nothing_left()
        s = BatchStream(NUMBERED, [])
        @test refused(() -> export_move(s, Ptr{T}(C_NULL)), DX.DEVX_NULL_ARGUMENT) && isopen(s)
        close(s)
    end
    # A consumer in C on a Julia thread calls the source on this thread.
    caller = Threads.threadid()
    seen = Int[]
    p = puller(BatchStream(NUMBERED, ((push!(seen, Threads.threadid()); numbered(k)) for k in 1:10)))
    pull(p)
    @test (p[:batches], p[:sum], p[:code], p[:done]) == (10, 55, 0, 1) && all(==(caller), seen)
    p = puller(BatchStream(NUMBERED, (k < 4 ? numbered(k) : error("the cable is cut") for k in 1:10)))
    pull(p)
    @test p[:batches] == 3 && p[:code] == Libc.EIO && said(p) == "the cable is cut"
    p = puller(BatchStream(NUMBERED, (numbered(k) for k in 1:10)); most=4)
    pull(p)
    @test p[:batches] == 4 && p[:code] == 0
    @test nothing_left()
end

@testset "batch streams: foreign threads" begin
    # For calls on foreign threads the source runs in Julia tasks; here for several streams at a time.
    pullers = [puller(BatchStream(NUMBERED, (numbered(k) for k in 1:n))) for n in (0, 1, 10, 200, 200, 200)]
    @test all(pull_on_thread, pullers) && comes(() -> all(p -> p[:done] == 1, pullers))
    @test [p[:sum] for p in pullers] == [n * (n + 1) ÷ 2 for n in (0, 1, 10, 200, 200, 200)]
    # A source that itself waits, for a task that sleeps.
    numbers = Channel{Int}(0)
    feeder = @async (foreach(k -> (sleep(0.001); put!(numbers, k)), 1:20); close(numbers))
    p = puller(BatchStream(NUMBERED, (numbered(k) for k in numbers)))
    @test pull_on_thread(p) && comes(() -> p[:done] == 1) && p[:sum] == 210
    wait(feeder)
    # Errors, and a consumer that stops in the middle.
    p = puller(BatchStream(NUMBERED, (k < 4 ? numbered(k) : error("the cable is cut") for k in 1:10)))
    @test pull_on_thread(p) && comes(() -> p[:done] == 1)
    @test p[:batches] == 3 && p[:code] == Libc.EIO && said(p) == "the cable is cut"
    p = puller(BatchStream(NUMBERED, (numbered(k) for k in 1:10)); most=4)
    @test pull_on_thread(p) && comes(() -> p[:done] == 1) && (p[:batches], p[:code]) == (4, 0)
    # A release function that waits delays other releases, but neither the calls of sources nor the wakes of tasks, even if it
    # waits for one of these.
    gate, released = Channel{Int}(1), Int[]
    # At this turn, the next call of a source on a Julia thread would deliver releases first.
    DX.DELIVERY_TURNS[] = 0
    close(Tensor([1.0]; release=() -> push!(released, take!(gate))))
    close(Tensor([2.0]; release=() -> push!(released, 2)))
    p = puller(BatchStream(NUMBERED, (numbered(k) for k in 1:10); patience=300))
    @test pull_on_thread(p) && comes(() -> p[:done] == 1) && p[:sum] == 55
    r = AsyncReader(limit=2)
    w = @async AsyncWriter(w -> foreach(k -> put!(w, numbered(k)), 1:10), DX.handler(r), NUMBERED)
    @test sum(taken, r) == 55 && isempty(released)
    close(r)
    put!(gate, 1)
    wait(w)
    drain()
    @test released == [1, 2]
    # `@threadcall` leaves the Julia threads free while it waits for the foreign thread.
    p = puller(BatchStream(NUMBERED, (numbered(k) for k in 1:10)))
    @test (@threadcall((:foreign_pull_and_join, FOREIGN_LIBRARY), Cint, (Ptr{Cvoid},), pointer(p))) == 0
    @test p[:sum] == 55
    # A plain call blocks the only Julia thread. The source cannot run, and the foreign thread gets an error.
    if Threads.nthreads() == 1
        p = puller(BatchStream(NUMBERED, (numbered(k) for k in 1:10); patience=0.2))
        @test pull_and_join(p) && p[:batches] == 0 && p[:code] != 0
        @test occursin("no Julia task took the call up within 0.2 s", said(p))
    end
    @test nothing_left()
end

@testset "batch streams: releases in loops that never wait" begin
    # Every 16th call delivers what is due, if no other task does. The first stream is foreign, the second is read by C code.
    s = import_arrow(foreign_stream(ArrowArrayStream; batches=1)[1])
    p = puller(BatchStream(NUMBERED, []))
    for read in (() -> close(next!(s)), () -> pull(p))
        called = Ref(0)
        close(Tensor([1.0]; release=() -> called[] += 1))
        DX.DELIVERY_TURNS[] = 0
        read()
        @test Threads.nthreads() > 1 || called[] == 1
    end
    close(s)
    @test nothing_left()
end

# The number of live objects does not grow with the length of a stream.
@testset "batch streams: long streams" begin
    most = Ref(0)
    look() = (most[] = max(most[], DX.rooted(), outstanding(), foreign_live()); nothing)
    source(n) = ((k % 100 == 0 && look(); numbered(k)) for k in 1:n)
    n = 100_000
    p = puller(BatchStream(NUMBERED, source(n)))
    pull(p)
    @test p[:sum] == n * (n + 1) ÷ 2 && most[] < 200
    most[] = 0
    s = import_arrow(foreign_stream(ArrowArrayStream; batches=n)[1])
    sum = 0
    for batch in s
        sum += taken(batch)
        sum % 100 == 0 && look()
    end
    close(s)
    @test sum == n * (n + 1) ÷ 2 && most[] < 200
    # The same on a foreign thread, with fewer batches, because each one takes a round through the event loop.
    most[] = 0
    p = puller(BatchStream(NUMBERED, source(2_000)))
    @test pull_on_thread(p) && comes(() -> p[:done] == 1) && p[:batches] == 2_000 && most[] < 500
    @test nothing_left() && foreign_live() == 0
end

@testset "batch streams: threads" begin
    # All threads pull from one stream: each batch goes to one of them, and a call during another one is refused.
    numbers, numbers_lock = Int64[], ReentrantLock()
    s = BatchStream(NUMBERED, (numbered(k) for k in 1:500))
    @test on_all_threads() do _
        while true
            batch = try
                next!(s)
            catch e
                e isa DevExchangeError && e.status == DX.DEVX_BUSY || rethrow()
                continue
            end
            batch === nothing && return true
            number = taken(batch)
            lock(() -> push!(numbers, number), numbers_lock)
        end
    end
    @test sort(numbers) == 1:500
    close(s)
    # One thread closes the stream while the others pull.
    s = BatchStream(NUMBERED, (numbered(k) for k in 1:1_000_000))
    @test on_all_threads() do k
        try
            for round in 1:100
                k == 1 && round == 50 && close(s)
                close(next!(s))
            end
            k != 1
        catch e
            e isa DevExchangeError && e.status in (DX.DEVX_BUSY, DX.DEVX_CLOSED)
        end
    end
    close(s)
    # The consumer is C code, which goes on on the thread that it called on, even if the source waits.
    seen = Any[]
    function watched()
        before = (current_task().sticky, Threads.threadid())
        sleep(0.001)
        push!(seen, (before, (current_task().sticky, Threads.threadid())))
        return nothing
    end
    fetch(Threads.@spawn pull(puller(BatchStream(NUMBERED, watched))))
    @test length(seen) == 1 && seen[1][1] == seen[1][2] && seen[1][1][1]
    @test nothing_left()
end

@testset "batch streams: the end of the process" begin
    # When Julia exits, a foreign thread that waits for a batch gets an error, and so does one that asks later. A batch that
    # comes too late is released.
    output, ended = run_julia("""
        atexit() do
            comes(() -> waiting[:done] == 1)
            Core.println(waiting[:batches], ", ", said(waiting))
            pull_and_join(late)
            Core.println(late[:batches], ", ", said(late))
            notify(go_on)
            comes(() -> (drain(); given_back[])) && Core.println("given back")
        end
        using DevExchange, Libdl
        const DX = DevExchange
        include($(repr(joinpath(@__DIR__, "producers.jl"))))
        include($(repr(joinpath(@__DIR__, "foreign.jl"))))
        late = puller(BatchStream(NUMBERED, (numbered(k) for k in 1:3)); most=1)
        go_on, given_back = Base.Event(), Ref(false)
        too_late() = (wait(go_on); Batch(NUMBERED, [Node(0, (nothing,)), Node(0, (nothing, Int64[]))];
            release=() -> given_back[] = true))
        waiting = puller(BatchStream(NUMBERED, (k < 3 ? numbered(k) : too_late() for k in 1:5)))
        pull_on_thread(waiting)
        comes(() -> waiting[:batches] == 2)
        sleep(0.05)
        """)
    @test ended && occursin("2, Julia is shutting down", output) && occursin("0, Julia is shutting down", output) &&
        occursin("given back", output)
end
