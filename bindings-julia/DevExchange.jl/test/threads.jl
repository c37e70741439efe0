# Foreign threads that release, and Julia threads that exchange at the same time. With one Julia thread the exchanges run one
# after the other, which has to work, too.

@testset "threads: foreign releases" begin
    # Foreign threads call the deleters, and Julia delivers the releases.
    called = Threads.Atomic{Int}(0)
    release() = (Threads.atomic_add!(called, 1); nothing)
    for round in 1:4
        tensors = [export_move(Tensor(fill(k, 10); release=release)) for k in 1:50]
        GC.gc(false)
        delete_on_foreign_threads(tensors)
    end
    @test comes(() -> called[] == 200)
    @test nothing_left()
    # Arrow's release, on a foreign thread for each array.
    called[] = 0
    arrays = [Ref(ArrowArray()) for _ in 1:50]
    threads = zeros(Culong, length(arrays))
    for (k, array) in enumerate(arrays)
        export_move(Batch((a=[k], s=[string(k)]); release=release), array)
    end
    GC.@preserve arrays for (k, array) in enumerate(arrays)
        ccall(:uv_thread_create, Cint, (Ptr{Culong}, Ptr{Cvoid}, Ptr{ArrowArray}),
            Ref(threads, k), array[].release, array)
    end
    join_foreign_threads(threads)
    @test all(a -> a[].release == C_NULL, arrays)
    @test comes(() -> called[] == 50)
    @test nothing_left()
end

@testset "threads: exchanges" begin
    ok = on_all_threads() do k
        for i in 1:300
            memory = [k * 1000.0 + i, 2.0]
            t = Tensor(memory)
            u = import_dlpack(Tensor{Float64,1}, export_share(t))
            u[1] == k * 1000.0 + i || return false
            # Some are closed, some moved, some forgotten.
            i % 3 == 0 && close(u)
            i % 3 == 1 && dlpack_release(export_move(u))
            i % 5 == 0 || close(t)
            b = Batch((a=memory, s=["x", string(i)]))
            (b["s"]::Column{String,DX.Text{DX.InData{Int32}}})[2] == string(i) || return false
            i % 2 == 0 && close(b)
            i % 100 == 0 && GC.gc(false)
        end
        return true
    end
    @test ok
    @test nothing_left()
end

# The tensor of a round, which the first caller makes.
const SLOTS = Dict{Int,Tensor{Int,1}}()
const SLOTS_LOCK = ReentrantLock()
slot(round, called) = lock(SLOTS_LOCK) do
    get!(() -> Tensor([round]; release=() -> Threads.atomic_add!(called, 1)), SLOTS, round)
end

@testset "threads: closing" begin
    # All threads close the same objects, and each is released once.
    counters = Ref{Int}[]
    called = Threads.Atomic{Int}(0)
    tensors, batches = Tensor{Float64,1}[], Batch[]
    for k in 1:200
        p, calls = foreign_tensor([Float64(k)])
        push!(counters, calls)
        push!(tensors, import_dlpack(Tensor{Float64,1}, p))
        push!(batches, Batch((a=[k],); release=() -> Threads.atomic_add!(called, 1)))
    end
    @test on_all_threads(k -> (foreach(close, tensors); foreach(close, batches); true))
    drain()
    @test all(c -> c[] == 1, counters) && called[] == 200
    @test nothing_left()
    # One thread closes or moves what the others use. The others succeed, or get the error that it is closed.
    called[] = 0
    told = Threads.Atomic{Int}(0)
    ok = on_all_threads() do k
        for round in 1:100
            shared = slot(round, called)
            try
                if k == 1 + round % WORKERS
                    isodd(round) ? close(shared) : dlpack_release(export_move(shared))
                else
                    s = share(shared)
                    s[1] == round || return false
                    close(s)
                    dlpack_release(export_share(shared))
                    plan_column(shared).kind === :view || return false
                end
            catch e
                e isa DevExchangeError && e.status == DX.DEVX_CLOSED || rethrow()
                Threads.atomic_add!(told, 1)
            end
        end
        return true
    end
    @test ok
    foreach(close, values(SLOTS))
    empty!(SLOTS)
    drain()
    @test called[] == 100
    # Only one move succeeds.
    t = Tensor([1])
    moved = Threads.Atomic{Int}(0)
    @test on_all_threads() do k
        try
            dlpack_release(export_move(t))
            Threads.atomic_add!(moved, 1)
        catch e
            e isa DevExchangeError && e.status == DX.DEVX_CLOSED || rethrow()
        end
        true
    end
    @test moved[] == 1
    @test nothing_left()
end

# The same step by step, in a fixed order.
@testset "threads: one at work, one closing" begin
    p, calls = foreign_tensor([7.0])
    t = import_dlpack(Tensor{Float64,1}, p)
    seen = DX.held(t.handle) do address
        close(t)
        (isopen(t), calls[], refused(() -> share(t), DX.DEVX_CLOSED), calls[])
    end
    @test seen == (false, 0, true, 0) && calls[] == 1
    # A move waits for the calls that use the tensor.
    t = Tensor([1.0])
    entered, leave = Channel{Bool}(1), Channel{Bool}(1)
    user = @async DX.held(t.handle) do address
        put!(entered, true)
        take!(leave)
    end
    take!(entered)
    mover = @async export_move(t)
    sleep(0.02)
    @test !istaskdone(mover) && !isopen(t)
    put!(leave, true)
    p = fetch(mover)
    @test fetch(user) && unsafe_load(p).dl_tensor.ndim == 1
    dlpack_release(p)
    @test nothing_left()
end

@testset "threads: tasks" begin
    # Tasks that yield between the steps while other tasks deliver.
    tasks = [Threads.@spawn begin
        good = 0
        for i in 1:50
            t = Tensor([k, i])
            yield()
            p = export_move(t)
            yield()
            u = import_dlpack(Tensor{Int,1}, p)
            drain()
            good += u == [k, i]
            close(u)
        end
        good
    end for k in 1:8]
    @test all(t -> fetch(t) == 50, tasks)
    @test nothing_left()
end
