# Everything is released once, in every order.

@testset "ownership: tensors" begin
    # A tensor of Julia, an export, an import of another export, and a share: the release comes with the last of them.
    for order in orders(4)
        called = Ref(0)
        memory = [1, 2, 3]
        t = Tensor(memory; release=() -> called[] += 1)
        p, u, s = export_share(t), import_dlpack(Tensor{Int,1}, export_share(t)), share(t)
        ends = (() -> close(t), () -> dlpack_release(p), () -> close(u), () -> close(s))
        early = false
        for k in order[1:3]
            ends[k]()
            drain()
            early |= called[] != 0 || DX.rooted() != 1
        end
        ends[order[4]]()
        drain()
        @test !early && called[] == 1 && DX.rooted() == 0 && outstanding() == 0
    end
    # A moved tensor has nothing to release.
    called = Ref(0)
    t = Tensor([1.0]; release=() -> called[] += 1)
    u = import_dlpack(export_move(t))
    close(t)
    @test called[] == 0 && u[1] == 1.0
    close(u)
    drain()
    @test called[] == 1
    # The deleter of a foreign tensor that is shared and exported again is called once, at the end.
    p, calls = foreign_tensor([1.0, 2.0])
    t = import_dlpack(p)
    q = export_share(t)
    s = share(t)
    close(t)
    close(s)
    @test calls[] == 0 && import_dlpack(q) |> (x -> (ok = x == [1.0, 2.0]; close(x); ok))
    @test calls[] == 1
    # Closed again, and then finalized.
    close(t)
    finalize(t.handle)
    drain()
    @test calls[] == 1
    # A tensor over a part of another one keeps that one.
    p, calls = foreign_tensor(collect(1.0:6.0))
    t = import_dlpack(p)
    part = Tensor(view(t, 2:2:6))
    close(t)
    @test calls[] == 0 && part == [2, 4, 6] && strides(part) == (2,)
    close(part)
    drain()
    @test calls[] == 1 && nothing_left()
    # A borrowed view is valid until the end of the call, even if the tensor is closed in it.
    p, calls = foreign_tensor([7.0])
    t = import_dlpack(p)
    seen = borrow(t) do view
        close(t)
        (calls[], unsafe_load(Ptr{Float64}(view.data)))
    end
    @test seen == (0, 7.0) && calls[] == 1 && nothing_left()
    t = Tensor([8.0])
    p = borrow(view -> export_move(t), t)
    @test !isopen(t)
    dlpack_release(p)
    @test nothing_left()
end

@testset "ownership: null handles" begin
    # A null handle behaves like a closed one.
    s = Schema(DX.Handle{DX.TAG_SCHEMA}(C_NULL))
    t = Tensor{Int,1}(DX.Handle{DX.TAG_TENSOR}(C_NULL), C_NULL, (1,), (1,), 0, DX.CPU)
    @test !isopen(s) && sprint(show, s) == "Schema (closed)" && refused(() -> root(s), DX.DEVX_CLOSED, "schema")
    for f in (t -> t[1], t -> t[1] = 2, pointer, share, export_share, export_move, copy)
        @test refused(() -> f(t), DX.DEVX_CLOSED, "tensor")
    end
    foreach(close, (s, t))
    @test nothing_left()
end

# Starts a task that moves a tensor away, and lets it run until it ends or waits.
function moving(t)
    mover = @async try
        export_move(t)
    catch e
        e
    end
    yield()
    return mover
end

@testset "ownership: moves that fail" begin
    # If a move fails and somebody closed the tensor meanwhile, it is closed.
    called = Ref(0)
    t = Tensor([1.0]; release=() -> called[] += 1)
    @test_throws ErrorException DX.moved(_ -> (close(t); error("refused")), t.handle)
    drain()
    @test !isopen(t) && called[] == 1 && nothing_left()
    # If nobody closed it, it is open again, also for calls that were at work all the time.
    t = Tensor([1.0])
    @test_throws ErrorException DX.moved(_ -> error("refused"), t.handle)
    @test isopen(t) && t[1] == 1
    DX.enter(t.handle)
    mover = moving(t)
    @test !isopen(t)
    schedule(mover, InterruptException(); error=true)
    @test fetch(mover) isa InterruptException && isopen(t) && t[1] == 1
    DX.leave(t.handle)
    @test isopen(t)
    # If somebody closed it while a call was at work, the last call to leave releases it.
    DX.enter(t.handle)
    mover = moving(t)
    close(t)
    schedule(mover, InterruptException(); error=true)
    @test fetch(mover) isa InterruptException && !isopen(t) && outstanding() > 0
    DX.leave(t.handle)
    @test nothing_left()
    # Of two tasks that have both begun, one moves, and the other is refused and not waited for.
    t = Tensor([1.0])
    DX.enter(t.handle)
    mover = moving(t)
    @test refused(() -> DX.claim(t.handle), DX.DEVX_CLOSED, "tensor")
    dlpack_release(fetch(mover))
    @test nothing_left()
    # After an interrupt that comes when the move is done, the reference belongs to the consumer.
    t = Tensor([1.0])
    taken = Ref(C_NULL)
    @test_throws InterruptException DX.moved(t.handle) do slot
        taken[], slot[] = slot[], C_NULL
        throw(InterruptException())
    end
    @test !isopen(t) && outstanding() > 0
    close(t)
    DX.release_handle(DX.TAG_TENSOR, taken[])
    @test nothing_left()
end

@testset "ownership: batches" begin
    for order in orders(4)
        called = Ref(0)
        b = Batch((a=[1, 2, 3], s=["x", "y", "z"]); release=() -> called[] += 1)
        array, schema = Ref(ArrowArray()), Ref(ArrowSchema())
        export_share(b, array, schema)
        s = share(b)
        # A child that was moved out outlives its parent.
        child = Ref(unsafe_load(unsafe_load(array[].children)))
        set!(unsafe_load(array[].children); release=C_NULL)
        ends = (() -> close(b), () -> arrow_release(array), () -> close(s), () -> arrow_release(child))
        early = false
        for k in order[1:3]
            ends[k]()
            drain()
            early |= called[] != 0
        end
        alive = unsafe_load(Ptr{Int}(unsafe_load(child[].buffers, 2)), 2) == 2 || order[4] != 4
        ends[order[4]]()
        drain()
        arrow_release(schema)
        @test !early && alive && called[] == 1 && DX.rooted() == 0 && outstanding() == 0
    end
    # The schema and the array of an import are released once each, by their last user.
    array, schema, calls, column = foreign_batch()
    b = import_arrow(array, schema)
    s, t = DX.schema(b), Tensor(b["x"])
    close(b)
    @test calls[] == 0 && t == [1, 2, 3] && DX.fields(s)[1].name == "x"
    close(t)
    @test calls[] == 1
    close(s)
    @test calls[] == 2 && nothing_left()
    # A schema that several batches share.
    called = Ref(0)
    s = Schema([Field("x", Float64)])
    nodes(k) = [Node(1, (nothing,)), Node(1, (nothing, [Float64(k)]))]
    batches = [Batch(s, nodes(k); release=() -> called[] += 1) for k in 1:3]
    @test [b["x"][1] for b in batches] == [1, 2, 3]
    # An array alone is imported with it.
    array = Ref(ArrowArray())
    export_move(batches[1], array)
    batches[1] = import_arrow(array, s)
    @test batches[1]["x"] == [1.0] && array[].release == C_NULL
    close(s)
    foreach(close, batches)
    drain()
    @test called[] == 3 && nothing_left()
end

@testset "ownership: release functions" begin
    # A release that throws is logged and counted, and the others are called.
    before = DX.release_failures()
    called = Ref(0)
    a, c = Tensor([1]; release=() -> called[] += 1), Tensor([3]; release=() -> called[] += 1)
    b = Tensor([2]; release=() -> error("on purpose"))
    logged = Test.TestLogger()
    # This task holds the lock, so that it delivers and not the background task.
    lock(DX.DRAINING) do
        foreach(close, (a, b, c))
        Base.CoreLogging.with_logger(drain, logged)
    end
    @test called[] == 2 && DX.release_failures() == before + 1
    @test length(logged.logs) == 1 && logged.logs[1].level == Base.CoreLogging.Error
    @test occursin("release function", logged.logs[1].message)
    @test occursin("on purpose", sprint(showerror, logged.logs[1].kwargs[:exception][1]))
    # A logger that throws keeps no other release from being called, and no call that delivers releases from its own work.
    s = Schema([Field("x", Float64)])
    stream = BatchStream(() -> nothing, s)
    for deliver in (drain, () -> next!(stream))
        called[] = 0
        lock(DX.DRAINING) do
            for fails in (false, true, false)
                close(Tensor([1]; release=fails ? () -> error("on purpose") : () -> called[] += 1))
            end
            # The next batch is taken by a call that also delivers.
            DX.DELIVERY_TURNS[] = 0
            Base.CoreLogging.with_logger(deliver, BrokenLogger())
        end
        @test called[] == 2
    end
    foreach(close, (stream, s))
    @test DX.release_failures() == before + 3
    # Without a call of `drain` the background task delivers, though it is older than this release function.
    done = Threads.Atomic{Bool}(false)
    t = Tensor([1]; release=() -> done[] = true)
    close(t)
    @test comes(() -> done[])
    # A release function may use the library.
    inner = Ref(0)
    t = Tensor([1]; release=() -> (u = Tensor([2]; release=() -> inner[] += 1); close(u)))
    close(t)
    drain()
    @test inner[] == 1 && nothing_left()
end

# Closes nothing: the finalizers release everything through the queue.
@noinline function forget(n, calls)
    for k in 1:n
        p, c = foreign_tensor([Float64(k)])
        push!(calls, c)
        t = import_dlpack(Tensor{Float64,1}, p)
        t[1] == k || error("wrong")
        b = Batch((a=[k], s=["x"]))
        b["s"][1] == "x" || error("wrong")
        DX.schema(b)
        Tensor(b["a"])
        Tensor([k])
    end
end

# The same while the garbage collector runs all the time.
@noinline function forget_under_pressure(calls)
    forget(2, calls)
    GC.gc(false)
    t = Tensor(collect(1:1000))
    u = import_dlpack(Tensor{Int,1}, export_move(t))
    GC.gc()
    sum(u) == 500500 || error("wrong")
    b = Batch((a=[string(k) for k in 1:100],))
    c = b[1]
    GC.gc(false)
    c[100] == "100" || error("wrong")
end

@testset "ownership: finalizers" begin
    calls = Ref{Int}[]
    forget(50, calls)
    @test nothing_left()
    @test all(c -> c[] == 1, calls)
    foreach(_ -> forget_under_pressure(calls), 1:20)
    @test nothing_left()
    @test all(c -> c[] == 1, calls)
    empty!(KEPT)
end

function tensor_rounds(n)
    memory = [1.0 2; 3 4]
    total = 0.0
    for _ in 1:n
        t = Tensor(memory)
        u = import_dlpack(Tensor{Float64,2}, export_share(t))
        total += u[2, 2]
        close(u)
        close(t)
    end
    return total
end

function batch_rounds(n)
    numbers = [1.0, 2.0, 3.0]
    schema = Schema([Field("x", Float64)])
    array, exported = Ref(ArrowArray()), Ref(ArrowSchema())
    total = 0.0
    for _ in 1:n
        b = Batch(schema, [Node(3, (nothing,)), Node(3, (nothing, numbers))])
        export_move(b, array, exported)
        c = import_arrow(array, exported)
        total += c["x"]::Column{Float64,DX.Plain{Float64,typeof(identity)}} |> last
        close(c)
    end
    close(schema)
    return total
end

@noinline die_with_an_object(f) = (finalizer(f, Ref(0)); nothing)

@testset "ownership: finalizers of other packages" begin
    called = Ref(0)
    l = DX.later(() -> called[] += 1)
    @test DX.rooted() == 1 && called[] == 0
    die_with_an_object(l)
    for _ in 1:10
        GC.gc()
        drain()
        called[] == 0 || break
    end
    @test called[] == 1 && DX.rooted() == 0
    # The function is called once, even if it is queued again.
    l(nothing)
    drain()
    @test called[] == 1 && nothing_left()
end

# Takes the place of the function that closes a stream. An interrupt comes with the first stream, and an error with the second.
const STREAMS_CLOSED = Int64[]
function close_badly(_, stream, error)
    push!(STREAMS_CLOSED, stream)
    stream == 1 && throw(InterruptException())
    return stream == 2 ? DX.write_failure(error, DevExchangeError(DX.DEVX_DRIVER, "lost")) : DX.DEVX_OK
end

@testset "ownership: streams that cannot be closed" begin
    close_well = DX.devx_stream_close[]
    DX.devx_stream_close[] = @cfunction(close_badly, DX.DevxStatus, (DLDevice, Int64, Ptr{DX.DevxError}))
    # All forgotten streams are closed, each once, and the interrupt is thrown. This task holds the lock, so that no other one
    # closes them.
    @test nothing_left()
    lock(DX.DRAINING) do
        for k in 1:3
            token = Threads.atomic_add!(DX.NEXT_TOKEN, DX.TAG_MASK + 1)
            DX.STREAMS[token] = (DX.cuda(), k)
            push!(DX.FORGOTTEN_STREAMS, token)
        end
        @test_throws InterruptException drain()
        @test drain() == 0
    end
    @test STREAMS_CLOSED == 1:3 && isempty(DX.STREAMS) && isempty(DX.FORGOTTEN_STREAMS)
    DX.devx_stream_close[] = close_well
end

# Takes the place of the function that releases a schema: an interrupt comes when that is done.
const RELEASE_SCHEMA = Ref(C_NULL)
function release_and_interrupt(schema)
    ccall(RELEASE_SCHEMA[], Cvoid, (Ptr{Ptr{Cvoid}},), schema)
    throw(InterruptException())
end

@testset "ownership: an interrupt behind an export" begin
    # No other task has a schema to release meanwhile.
    @test nothing_left()
    # The array is the consumer's by then, and so is its schema.
    for f in (export_share, export_move)
        b, array, schema = Batch((a=[1],)), Ref(ArrowArray()), Ref(ArrowSchema())
        RELEASE_SCHEMA[] = DX.devx_schema_release[]
        DX.devx_schema_release[] = @cfunction(release_and_interrupt, Cvoid, (Ptr{Ptr{Cvoid}},))
        try
            @test_throws InterruptException f(b, array, schema)
        finally
            DX.devx_schema_release[] = RELEASE_SCHEMA[]
        end
        c = import_arrow(array, schema)
        @test c["a"] == [1] && isopen(b) == (f === export_share)
        foreach(close, (b, c))
    end
    @test nothing_left()
end

@testset "ownership: 10,000 rounds" begin
    @test tensor_rounds(10_000) == 40_000.0
    @test batch_rounds(10_000) == 30_000.0
    @test nothing_left() && DX.rooted() == 0 && outstanding() == 0
    l = ledger()
    @test l.tensor_exports.total >= 10_000 && l.batch_imports.total >= 10_000 && l.owners.live == 0
end

@testset "ownership: deepcopy" begin
    # `deepcopy` makes another owner, and never a second owner of the same reference.
    values = [1.0 2.0; 3.0 4.0]
    t = Tensor(values)
    twice = deepcopy((t, [t]))
    u = twice[1]
    @test u isa Tensor{Float64,2} && u == values && u.handle === twice[2][1].handle
    u[1] = 10
    close(u)
    close(u)
    @test t == [1.0 2.0; 3.0 4.0] && isopen(t) && !isopen(u)
    close(t)
    b = Batch((n=[1, 2, 3], s=["a", "b", missing]))
    s = schema(b)
    copies = deepcopy((b, b["s"], s))
    close(b)
    close(s)
    @test copies[1]["n"] == [1, 2, 3] && isequal(copies[2], ["a", "b", missing]) && copies[2].batch === copies[1]
    @test root(copies[3]).children[1].name == "n"
    close(copies[1])
    close(copies[3])
    @test_throws DevExchangeError deepcopy(t)
    @test_throws DevExchangeError deepcopy(b)
    # A stream and a manager are not copied.
    stream = BatchStream(Schema([Field("n", "l")]), Batch[])
    for one in (stream, host_only_manager())
        err = try deepcopy(one); nothing catch e; e end
        @test err isa DevExchangeError && err.status == DX.DEVX_UNSUPPORTED && occursin("cannot be copied", err.message)
        close(one)
    end
    drain()
    @test nothing_left()
end

@testset "ownership: nothing is serialized" begin
    t, b = Tensor([1.0, 2.0]), Batch((n=[1, 2, 3],))
    s = schema(b)
    for one in (t, [t], b, b["n"], s)
        err = try serialize(IOBuffer(), one); nothing catch e; e end
        @test err isa DevExchangeError && err.status == DX.DEVX_UNSUPPORTED && occursin("cannot be serialized", err.message)
    end
    foreach(close, (t, b, s))
    drain()
    @test nothing_left()
end
