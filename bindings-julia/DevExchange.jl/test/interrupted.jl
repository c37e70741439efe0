# Interrupts (Ctrl-C) at random moments of loops that exchange something, in a process of its own: `interrupts.jl` starts it and
# says how many come in each loop. Whatever an interrupt cuts off, nothing is lost, and nothing is released twice.
using DevExchange
using Dates
using Libdl

const DX = DevExchange

include("producers.jl")
include("foreign.jl")

Base.exit_on_sigint(false)

# What was given to others, and what came back.
const given, released = Ref(0), Ref(0)
came_back() = (released[] += 1; nothing)

interrupt_in(ns) = ccall(foreign(:foreign_interrupt_in), Cint, (Int64,), ns) == 0 || error("no thread")

# Repeats `step` until an interrupt comes in about so many nanoseconds. Returns whether one came: Julia may throw it within a
# finalizer, and there it ends.
function cut_off(step, ns)
    begun = time()
    try
        interrupt_in(rand(ns:(2 * ns)))
        while time() < begun + 2
            step()
        end
        return false
    catch e
        e isa InterruptException || rethrow()
        return true
    end
end

# Memory of a manager that is written in Julia. Between the count and the answer no function is called and nothing is allocated,
# so no interrupt comes there.
const ANSWER = Any[(Ptr{Cvoid}(64), DX.CPU, came_back)]
memory(_) = (given[] += 1; ANSWER[1])
function managers()
    m = MemoryManager(memory)
    return () -> close(allocate(m, 8, DX.CPU)), () -> close(m)
end

# A source that is written in Julia.
function sources()
    function step()
        s = BatchStream(() -> numbered(1), NUMBERED)
        foreach(_ -> close(next!(s)), 1:20)
        close(s)
    end
    return step, () -> nothing
end

# The same for a foreign consumer on this thread, which gets an interrupt as an error of the stream.
function foreign_consumers()
    function consume(stream)
        p = Words(PULLER; most=20)
        p.memory[PULLER[:stream]] = UInt(Base.unsafe_convert(Ptr{ArrowArrayStream}, stream))
        export_move(BatchStream(() -> numbered(1), NUMBERED), stream)
        pull(p)
        occursin("nterrupt", said(p)) && throw(InterruptException())
    end
    step() = disable_sigint() do
        stream = Ref(ArrowArrayStream())
        try
            Base.reenable_sigint(() -> consume(stream))
        finally
            arrow_release(stream)
        end
    end
    return step, () -> nothing
end

# Objects that only a finalizer releases if an interrupt comes.
function batches()
    function step()
        b = Batch((n=[1, 2, 3], text=["a", missing, "c"]))
        for part in (share(b), slice(b, 2:3), copy(b))
            sum(part[:n])
            close(part)
        end
        close(schema(b))
        close(b)
    end
    return step, () -> nothing
end

# Releases that are delivered.
function deliveries()
    give_up() = disable_sigint() do
        close(Tensor([1.0]; release=came_back))
        given[] += 1
    end
    step() = (foreach(_ -> give_up(), 1:20); drain())
    return step, () -> nothing
end

function play(scene, times)
    step, finish = scene()
    # Compiles everything. An interrupt in the middle of that can leave Julia's compiler in a state in which no finalizer runs
    # any more.
    foreach(_ -> (step(); drain()), 1:40)
    foreach(_ -> cut_off(step, 10^8), 1:3)
    came = count(_ -> cut_off(step, 20_000), 1:times)
    finish()
    # Newer versions of Julia find some objects only in a later collection.
    is_over() = (GC.gc(); drain(); outstanding() == 0 && DX.rooted() == 0)
    timedwait(is_over, 60.0)
    # A release function that was interrupted has counted as a failure, or came back.
    lost = max(given[] - released[] - DX.release_failures(), released[] - given[], 0)
    println(scene, ": ", came > 0 ? "interrupted" : "never interrupted", ", ", lost, " lost, ", outstanding(),
        " outstanding, ", DX.rooted(), " rooted")
end

foreach(scene -> play(scene, parse(Int, ARGS[1])), (managers, sources, foreign_consumers, batches, deliveries))
