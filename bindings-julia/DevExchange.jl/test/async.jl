# Asynchronous streams: the reader and the writer in Julia, connected to each other through the C structs, and each connected to
# a peer in C with threads of its own.

# Calls `act` with a writer for a foreign consumer. Returns the consumer with its counters, and what was thrown, or `nothing`.
function with_consumer(act; at_a_time=3, cancels_at=-1, refuses_at=-1, keywords...)
    bytes = ccall(foreign(:foreign_async_consumer_bytes), Int64, ())
    c = Words(ASYNC_CONSUMER; bytes=bytes, at_a_time=at_a_time, cancels_at=cancels_at, refuses_at=refuses_at)
    handler = ccall(foreign(:foreign_consumer), Ptr{ArrowAsyncDeviceStreamHandler}, (Ptr{Cvoid},), pointer(c))
    thrown = nothing
    try
        w = AsyncWriter(handler, NUMBERED; keywords...)
        ccall(foreign(:foreign_consume), Cint, (Ptr{Cvoid},), pointer(c)) == 0 || error("no thread")
        try
            act(w)
        catch e
            thrown = e
        end
        @test comes(() -> c[:releases] == 1)
        ccall(foreign(:foreign_consumer_join), Cint, (Ptr{Cvoid},), pointer(c))
        close(w.handle)
    catch e
        thrown = e
    end
    return c, thrown
end

put_all(w, numbers) = foreach(k -> put!(w, numbered(k); metadata=iseven(k) ? ("k" => string(k),) : ()), numbers)

@testset "async: a foreign producer" begin
    for limit in (1, 2, 7)
        p, r = foreign_producer(batches=100), AsyncReader(limit=limit)
        @test produce(p, r) && DX.device_type(r) == DX.kDLCPU && DX.metadata(r) == []
        own = schema(r)
        @test DX.fields(own)[1].format == "l" && eltype(r) == Batch
        close(own)
        @test taken(take!(r)) == 1 && taken(next!(r)) == 2
        received = receive(r)
        @test taken(received.batch) == 3 && received.metadata == ["n" => "3"]
        @test [taken(batch) for batch in r] == 4:100
        # The end is final.
        @test next!(r) === nothing && receive(r) === nothing && refused(() -> take!(r), DX.DEVX_CLOSED, "ended")
        @test comes(() -> p[:done] == 1) && p[:extracted] == 100 && p[:most_ahead] <= limit
        @test DX.producer_error(r) == (code=0, metadata=[])
        close(r)
        close(r)
        @test !isopen(r) && next!(r) === nothing && refused(() -> schema(r), DX.DEVX_CLOSED)
    end
    # With limit 0, the producer sends only what is requested.
    p, r = foreign_producer(batches=10), AsyncReader(limit=0)
    @test produce(p, r)
    close(schema(r))
    sleep(0.02)
    @test p[:sent] == 0
    DX.request(r, 2)
    @test taken(take!(r)) == 1 && taken(take!(r)) == 2
    sleep(0.02)
    @test p[:sent] == 2 && refused(() -> DX.request(r, 0), DX.DEVX_INVALID_ARGUMENT)
    close(r)
    @test comes(() -> p[:done] == 1)
    # An error of the producer comes once, after the batches before it, with its text, code and metadata.
    p, r = foreign_producer(batches=3, fails=101), AsyncReader()
    @test produce(p, r)
    numbers, e = all_of(r)
    @test numbers == [1, 2, 3] && e.status == DX.DEVX_CALLBACK && occursin("the network is down", e.message)
    @test DX.producer_error(r) == (code=101, metadata=["n" => "7"]) && next!(r) === nothing
    close(r)
    # An error before the schema.
    p, r = foreign_producer(schema_first=0, fails=101), AsyncReader()
    @test produce(p, r) && refused(() -> schema(r), DX.DEVX_CALLBACK, "the network is down")
    close(r)
    # Wrong calls: a negative limit, a second handler, a handler of a closed reader.
    @test refused(() -> AsyncReader(limit=-1), DX.DEVX_INVALID_ARGUMENT, "limit is -1")
    r = AsyncReader()
    h = DX.handler(r)
    @test refused(() -> DX.handler(r), DX.DEVX_INVALID_ARGUMENT) && sprint(show, r) == "AsyncReader"
    close(r)
    arrow_release(h)
    @test refused(() -> DX.handler(r), DX.DEVX_CLOSED) && sprint(show, r) == "AsyncReader (closed)"
    @test nothing_left() && foreign_live() == 0
end

@noinline function forgotten_reader(p)
    r = AsyncReader()
    produce(p, r)
    close(take!(r))
    return nothing
end

@testset "async: cancelling" begin
    # The reader is closed after k batches; those that were taken stay valid.
    for k in 0:5
        p, r = foreign_producer(batches=1000), AsyncReader(limit=3)
        @test produce(p, r)
        batches = [take!(r) for _ in 1:k]
        close(r)
        @test comes(() -> p[:done] == 1) && p[:cancels] == 1 && p[:sent] < 1000 && p[:extracted] == p[:sent]
        @test taken.(batches) == 1:k
    end
    # It is closed before the producer has the handler.
    p, r = foreign_producer(batches=10), AsyncReader()
    h = DX.handler(r)
    close(r)
    ccall(foreign(:foreign_produce), Cint, (Ptr{Cvoid}, Ptr{ArrowAsyncDeviceStreamHandler}), pointer(p), h)
    @test comes(() -> p[:done] == 1) && p[:extracted] == p[:sent]
    # It is closed while tasks wait.
    p, r = foreign_producer(batches=10), AsyncReader(limit=0)
    @test produce(p, r)
    waiting = [@async(next!(r)), @async(collect(r)), @async(refused(() -> take!(r), DX.DEVX_CLOSED))]
    sleep(0.02)
    @test !any(istaskdone, waiting)
    close(r)
    @test fetch.(waiting) == [nothing, Batch[], true] && comes(() -> p[:done] == 1)
    r = AsyncReader()
    waiting = @async refused(() -> schema(r), DX.DEVX_CLOSED)
    yield()
    close(r)
    @test fetch(waiting)
    # An interrupt that arrives after the close, but before the task notices the close, is thrown. It is not the end of the
    # stream.
    r = AsyncReader()
    waiting = @async try next!(r) catch e; e end
    yield()
    # The ring that tells the task needs the lock.
    lock(r.bell.changed) do
        close(r.handle)
        schedule(waiting, InterruptException(); error=true)
    end
    @test fetch(waiting) isa InterruptException
    # A forgotten reader is cancelled by its finalizer.
    p = foreign_producer(batches=1000)
    forgotten_reader(p)
    @test comes(() -> (GC.gc(); p[:done] == 1)) && p[:cancels] == 1 && p[:extracted] == p[:sent]
    @test nothing_left() && foreign_live() == 0
end

@testset "async: channels" begin
    p, r = foreign_producer(batches=50), AsyncReader(limit=2)
    @test produce(p, r)
    channel = Channel(r)
    @test channel isa Channel{Batch} && taken(take!(channel)) == 1
    # Back-pressure: the producer sends only the batches that are requested (2), held by the channel's task (1) and taken (1).
    sleep(0.02)
    @test p[:sent] <= 4
    @test [taken(batch) for batch in channel] == 2:50 && !isopen(channel)
    close(r)
    # The channel throws an error to its taker, after the batches.
    p, r = foreign_producer(batches=3, fails=101), AsyncReader()
    @test produce(p, r)
    channel = Channel(r; size=10)
    @test [taken(take!(channel)) for _ in 1:3] == 1:3
    @test refused(() -> take!(channel), DX.DEVX_CALLBACK, "the network is down")
    close(r)
    # The taker closes the channel, which closes the reader.
    p, r = foreign_producer(batches=1000), AsyncReader()
    @test produce(p, r)
    channel = Channel(r)
    close(take!(channel))
    close(channel)
    @test comes(() -> p[:done] == 1) && p[:cancels] == 1 && p[:extracted] == p[:sent] && !isopen(r)
    @test nothing_left() && foreign_live() == 0
    # The batch for which there was no room is closed at once, not by a finalizer, and so is a schema that was only waited for.
    GC.enable(false)
    p, r = foreign_producer(batches=1), AsyncReader(limit=1)
    @test produce(p, r) && DX.device_type(r) == DX.kDLCPU
    channel = Channel(r)
    @test comes(() -> p[:extracted] == 1)
    close(channel)
    @test comes(() -> foreign_live() == 0)
    GC.enable(true)
    close(r)
    @test nothing_left()
end

@testset "async: a foreign consumer" begin
    for at_a_time in (1, 3, 100)
        c, thrown = with_consumer(w -> (put_all(w, 1:50); close(w)); at_a_time=at_a_time)
        @test thrown === nothing && (c[:batches], c[:sum], c[:pairs], c[:ended], c[:code]) == (50, 1275, 25, 1, 0)
    end
    c, thrown = with_consumer(close)
    @test thrown === nothing && (c[:batches], c[:ended], c[:code]) == (0, 1, 0)
    # The writer's error reaches the consumer with its code and text.
    c, thrown = with_consumer() do w
        put_all(w, 1:5)
        close(w, ErrorException("no paper"); code=28, metadata=("k" => "v",))
    end
    @test thrown === nothing && (c[:batches], c[:ended], c[:code]) == (5, 0, 28) && said(c) == "no paper"
    # If the writer is never closed, its finalizer reports EPIPE to the consumer.
    c, thrown = with_consumer(w -> (put!(w, numbered(1)); finalize(w.handle); drain()))
    @test c[:batches] == 1 && c[:ended] == 0 && c[:code] == Libc.EPIPE
    # The consumer cancels after k batches. The next batch is refused and stays the caller's.
    for k in 0:5
        kept_batch = Ref{Batch}()
        c, thrown = with_consumer(; at_a_time=2, cancels_at=k) do w
            for n in 1:20
                kept_batch[] = numbered(n)
                put!(w, kept_batch[])
            end
        end
        @test thrown isa DevExchangeError && thrown.status == DX.DEVX_CLOSED && occursin("cancel", thrown.message)
        @test isopen(kept_batch[]) && c[:batches] >= k && (c[:ended], c[:code]) == (0, 0)
        close(kept_batch[])
    end
    # It cancels while the writer does nothing: the handler is released, and `close` succeeds.
    c, thrown = with_consumer(w -> (comes(() -> DX.is_cancelled(w))); cancels_at=0)
    @test thrown === nothing && c[:ended] == 0
    # It refuses a batch, or the schema.
    c, thrown = with_consumer(w -> put_all(w, 1:20); refuses_at=4)
    @test thrown.status == DX.DEVX_CALLBACK && occursin("28", thrown.message) && (c[:batches], c[:ended]) == (4, 0)
    # A writer that did not start is closed at once, not by a finalizer.
    collect_garbage()
    GC.enable(false)
    before = DX.rooted()
    c, thrown = with_consumer(close; refuses_at=-2)
    @test thrown.status == DX.DEVX_CALLBACK && occursin("on_schema", thrown.message) && c[:releases] == 1
    drain()
    @test DX.rooted() == before
    GC.enable(true)
    # If the construction fails, the handler is untouched.
    null = Ptr{ArrowAsyncDeviceStreamHandler}(C_NULL)
    @test refused(() -> AsyncWriter(null, NUMBERED), DX.DEVX_NULL_ARGUMENT)
    c, thrown = with_consumer(close; device_type=99)
    @test thrown.status == DX.DEVX_DEVICE && c[:releases] == 0
    r, gone = AsyncReader(), Schema(DX.fields(NUMBERED)...)
    close(gone)
    h = DX.handler(r)
    @test refused(() -> AsyncWriter(h, gone), DX.DEVX_CLOSED, "schema") && DX.producer_error(r).code == 0
    close(AsyncWriter(h, NUMBERED))
    @test next!(r) === nothing
    close(r)
    @test nothing_left()
end

# Starts a task that runs our writer for our reader. The task returns what the writer threw, or `nothing`.
writing(act, r; keywords...) = (h = DX.handler(r); @async try
    AsyncWriter(act, h, NUMBERED; keywords...)
    nothing
catch e
    e
end)

# What is thrown without being an exception, and cannot be printed.
struct Unprinted end
Base.show(::IO, ::Unprinted) = error("no")

# Takes the place of the function that ends a stream with an error.
untold(_, _, _, _, error) = DX.write_failure(error, DevExchangeError(DX.DEVX_CALLBACK, "not told"))

@testset "async: Julia's own" begin
    r = AsyncReader(abi_h_metadata=true, limit=3)
    seen = Int[]
    task = writing(r; metadata=("source" => "test",)) do w
        @test isopen(w) && sprint(show, w) == "AsyncWriter"
        put_all(w, 1:20)
        push!(seen, DX.demand(w))
    end
    @test DX.metadata(r) == ["source" => "test"]
    for k in 1:2
        received = receive(r)
        @test taken(received.batch) == k && received.metadata == (k == 1 ? [] : ["k" => "2"])
    end
    @test [taken(batch) for batch in r] == 3:20 && fetch(task) === nothing && 0 <= seen[1] <= 3
    close(r)
    # What the writer's function throws becomes the reader's error, after the batches.
    r = AsyncReader()
    task = writing(w -> (put_all(w, 1:3); error("out of ink")), r)
    numbers, e = all_of(Channel(r))
    @test numbers == [1, 2, 3] && e.status == DX.DEVX_CALLBACK && occursin("out of ink", e.message)
    @test fetch(task) isa ErrorException && DX.producer_error(r).code == Libc.EIO
    close(r)
    # A text for C ends at its first NUL.
    r = AsyncReader()
    close(AsyncWriter(DX.handler(r), NUMBERED), ErrorException("a\0b"))
    @test refused(() -> next!(r), DX.DEVX_CALLBACK, "a?b")
    close(r)
    # A text that is not UTF-8 is sent as far as it is.
    r = AsyncReader()
    close(AsyncWriter(DX.handler(r), NUMBERED), ErrorException("a\xffb"); code=28)
    @test refused(() -> next!(r), DX.DEVX_CALLBACK, "a?b") && DX.producer_error(r).code == 28
    close(r)
    # So is what the writer's function throws that is no exception, and what cannot be shown.
    for (thrown, said) in ("no ink" => "no ink", Unshown() => "cannot be shown: Unshown",
            Unprinted() => "cannot be shown: Unprinted")
        r = AsyncReader()
        task = writing(_ -> throw(thrown), r)
        @test refused(() -> next!(r), DX.DEVX_CALLBACK, said) && fetch(task) === thrown
        close(r)
    end
    # What the writer's function throws is also what the caller gets, even if the stream cannot be ended with it.
    tell = DX.devx_async_writer_fail[]
    DX.devx_async_writer_fail[] =
        @cfunction(untold, DX.DevxStatus, (Ptr{Cvoid}, Int32, Ptr{UInt8}, Ptr{UInt8}, Ptr{DX.DevxError}))
    r = AsyncReader()
    e = fetch(writing(_ -> error("out of ink"), r))
    DX.devx_async_writer_fail[] = tell
    @test e isa ErrorException && e.msg == "out of ink" && refused(() -> next!(r), DX.DEVX_CALLBACK, "went away")
    close(r)
    # The reader is closed after k batches. For k = 0 this can be before the schema comes, which is then refused.
    for k in 0:5
        r = AsyncReader(limit=2)
        task = writing(w -> put_all(w, 1:100), r)
        k == 0 || close(schema(r))
        @test [taken(take!(r)) for _ in 1:k] == 1:k
        close(r)
        e = fetch(task)
        @test e isa DevExchangeError && e.status in (DX.DEVX_CLOSED, k == 0 ? DX.DEVX_CALLBACK : DX.DEVX_CLOSED)
    end
    # The writer is closed while a task waits for demand. After that, several tasks use one writer.
    r = AsyncReader(limit=0)
    w = AsyncWriter(DX.handler(r), NUMBERED)
    batch = numbered(1)
    # To other calls the batch is open meanwhile.
    DX.enter(batch.handle)
    waiting = @async refused(() -> put!(w, batch), DX.DEVX_CLOSED)
    yield()
    @test isopen(batch)
    DX.leave(batch.handle)
    close(w)
    close(w)
    @test fetch(waiting) && isopen(batch) && !isopen(w) && sprint(show, w) == "AsyncWriter (closed)"
    @test next!(r) === nothing && refused(() -> put!(w, batch), DX.DEVX_CLOSED)
    @test refused(() -> DX.demand(w), DX.DEVX_CLOSED)
    close(batch)
    close(r)
    r = AsyncReader(limit=2)
    w = AsyncWriter(DX.handler(r), NUMBERED)
    writers = [Threads.@spawn(put_all(w, 100k:100k+9)) for k in 1:4]
    numbers = [taken(take!(r)) for _ in 1:40]
    foreach(wait, writers)
    close(w)
    @test sort(numbers) == [100k + i for k in 1:4 for i in 0:9] && next!(r) === nothing
    close(r)
    # The reader is closed while a task has the writer's turn. After that the handler is released, without another call.
    r = AsyncReader()
    w = AsyncWriter(DX.handler(r), NUMBERED)
    lock(w.turn) do
        rings = w.bell.rings[]
        close(r)
        # Every wake comes before the turn ends.
        fetch(@async drain())
        @test comes(() -> w.bell.rings[] > rings)
    end
    @test comes(() -> ledger().stream_exports.live == 0) && isopen(w)
    close(w)
    # A batch of another schema is refused and stays the caller's, and the stream goes on.
    r = AsyncReader()
    task = writing(r) do w
        other = Batch((a=["x"],))
        @test refused(() -> put!(w, other), DX.DEVX_MISMATCH) && isopen(other)
        close(other)
        gone = numbered(1)
        close(gone)
        @test refused(() -> put!(w, gone), DX.DEVX_CLOSED, "batch")
        put!(w, numbered(5))
    end
    @test [taken(batch) for batch in r] == [5] && fetch(task) === nothing
    close(r)
    @test nothing_left()
end

@testset "async: long streams" begin
    n, most = 20_000, Ref(0)
    p, r = foreign_producer(batches=n), AsyncReader(limit=16)
    @test produce(p, r)
    sum = 0
    for batch in r
        sum += taken(batch)
        sum % 100 == 0 && (most[] = max(most[], outstanding(), foreign_live()))
    end
    close(r)
    @test sum == n * (n + 1) ÷ 2 && most[] < 200
    r = AsyncReader(limit=16)
    task = writing(w -> foreach(k -> put!(w, numbered(k)), 1:n), r)
    sum = 0
    for batch in r
        sum += taken(batch)
        sum % 100 == 0 && (most[] = max(most[], outstanding(), DX.rooted()))
    end
    @test fetch(task) === nothing
    close(r)
    # While the system keeps the thread waiting that delivers releases, more of them pile up, but not as many as there are.
    @test sum == n * (n + 1) ÷ 2 && most[] < n ÷ 10
    @test nothing_left() && foreign_live() == 0
end
