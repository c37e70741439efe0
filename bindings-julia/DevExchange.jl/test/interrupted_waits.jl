# Interrupts (Ctrl-C) while the program waits and nothing runs, in a process of its own: `interrupts.jl` starts it. Julia throws
# them into the task that ran last on the first thread; if that has ended, the process ends.
using DevExchange
using Libdl

const DX = DevExchange

include("producers.jl")
include("foreign.jl")

Base.exit_on_sigint(false)

interrupt_in(ns) = ccall(foreign(:foreign_interrupt_in), Cint, (Int64,), ns) == 0 || error("no thread")
# Others have done what they do by then.
interrupt_soon() = interrupt_in(10^9)

# The callers that wait are this program's task, so a function that they call waits in it.
function in_source()
    s = BatchStream(() -> (interrupt_soon(); wait(Condition())), NUMBERED)
    return () -> next!(s), () -> close(s)
end

function in_manager()
    m = MemoryManager(_ -> (interrupt_soon(); wait(Condition())))
    return () -> allocate(m, 8, DX.CPU), () -> close(m)
end

function in_put()
    r = AsyncReader(limit=0)
    w = AsyncWriter(DX.handler(r), NUMBERED)
    b = numbered(1)
    return () -> (interrupt_soon(); put!(w, b)), () -> foreach(close, (b, w, r))
end

# A foreign thread takes all there is from a source, so tasks for its calls have ended.
function behind_calls()
    left = Ref(20)
    p = puller(BatchStream(() -> (left[] -= 1) < 0 ? (interrupt_soon(); nothing) : numbered(1), NUMBERED))
    return () -> (pull_on_thread(p); wait(Condition())), () -> p[:batches] == 20 || error("not all came")
end

# The task of a channel has ended.
function behind_a_channel()
    r = AsyncReader()
    w = AsyncWriter(DX.handler(r), NUMBERED)
    channel = Channel(r; size=1)
    close(w)
    return () -> (interrupt_soon(); wait(Condition())), () -> (isopen(channel) && error("it is open"); close(r))
end

for scene in (in_source, in_manager, in_put, behind_calls, behind_a_channel)
    step, finish = scene()
    try
        step()
        println(scene, ": not interrupted")
    catch e
        println(scene, e isa InterruptException ? ": interrupted" : ": $e")
    end
    finish()
end
