# Each allocation of the library fails, and each callback of Julia throws. Each time there is an error, nothing is taken, and
# everything is released once. faults.jl starts this program.
using DevExchange
using Libdl
using Test

const DX = DevExchange

include("counting.jl")
include("corpus.jl")

ccall(corpus(:corpus_fault_install), Cint, (Cstring,), "libdevexchange.so") > 0 || error("the library was not found")

# ---- allocations ----

# Calls act(nth, from_then_on), which returns how many allocations failed, with nth = 1, 2, ... until none fails. Returns the
# sum.
function each_fault(act)
    total = 0
    for from_then_on in (false, true)
        for nth in Iterators.countfrom(1)
            failed = act(nth, from_then_on)
            total += failed
            failed == 0 && break
        end
    end
    return total
end

function case_without_memory(i)
    # This call makes what is made only once, such as the list of drivers.
    corpus_case(i)
    return each_fault() do nth, from_then_on
        right, failed = corpus_case(i, MemoryFault(nth, from_then_on))
        right || error(corpus_text(i, "name"))
        failed
    end
end

# Makes and closes an object while an allocation fails.
function scene_without_memory(make)
    close(make())
    return each_fault() do nth, from_then_on
        arm(nth, from_then_on)
        made = try
            make()
        catch e
            e isa DevExchangeError && e.status == DX.DEVX_OUT_OF_MEMORY || rethrow()
            nothing
        end
        failed = disarm()
        failed > 0 || made !== nothing || error("there was memory")
        made === nothing || close(made)
        failed
    end
end

# Only makes the objects that call functions of Julia, because those functions need memory themselves. What a finalizer queues
# needs memory, too, so the garbage collector is off.
function asked_objects()
    ccall(corpus(:corpus_fault_install), Cint, (Cstring,), "libdevexchange_julia.so") > 0 ||
        error("the queue was not found")
    of, host = Schema(Field[]), host_only_manager()
    memory(_) = (Ptr{Cvoid}(64), DX.CPU, nothing)
    scenes = (() -> BatchStream(() -> nothing, of), () -> MemoryManager(memory), () -> Tensor([1.0]),
        () -> allocate(host, 8, DX.CPU), () -> AsyncReader())
    GC.enable(false)
    total = sum(scene_without_memory, scenes)
    GC.enable(true)
    foreach(close, (of, host))
    nothing_left() || error("something is left")
    return total
end

function exports()
    matrix = Tensor([1.0 2.0; 3.0 4.0])
    table = record_batch(matrix)
    scenes = (() -> copy_to(matrix, DX.CPU), () -> Batch(matrix; name="x", copy=:if_needed), () -> record_batch(matrix),
        () -> DX.matrix(table))
    total = sum(scene_without_memory, scenes)
    close(table)
    close(matrix)
    return total
end

# ---- callbacks ----

# Counts the calls of callbacks. The call with the number `throws` throws after it did its work.
mutable struct Callbacks
    throws::Int
    calls::Int
    live::Int
end

function ask(callbacks)
    callbacks.calls += 1
    callbacks.calls == callbacks.throws && error("as asked")
    return nothing
end

function let_go(callbacks)
    callbacks.live -= 1
    ask(callbacks)
end

function attempt(act, told)
    try
        return act()
    catch e
        e isa DevExchangeError && occursin("as asked", e.message) || rethrow()
        told[] += 1
        return nothing
    end
end

function a_manager(callbacks, told)
    function get(request)
        ask(callbacks)
        callbacks.live += 1
        return (Ptr{Cvoid}(64), DX.CPU, () -> let_go(callbacks))
    end
    callbacks.live += 1
    manager = MemoryManager(get; initialize=_ -> ask(callbacks), memory_info=_ -> (ask(callbacks); (1, 2)),
        reset=_ -> ask(callbacks), trim=(_, _) -> ask(callbacks), release=() -> let_go(callbacks))
    attempt(() -> DX.initialize(manager), told)
    for _ in 1:2
        memory = attempt(() -> allocate(manager, 8, DX.CPU), told)
        memory === nothing || close(memory)
    end
    attempt(() -> memory_info(manager), told)
    attempt(() -> trim!(manager), told)
    attempt(() -> reset!(manager), told)
    close(manager)
end

function a_stream(callbacks, told)
    matrix = Tensor([1.0 2.0; 3.0 4.0])
    batch = record_batch(matrix)
    left = Ref(3)
    function next()
        ask(callbacks)
        left[] -= 1
        return left[] < 0 ? nothing : share(batch)
    end
    stream = BatchStream(next, schema(batch))
    while true
        given = attempt(() -> DX.next!(stream), told)
        given === nothing && break
        close(given)
    end
    foreach(close, (stream, batch, matrix))
end

# Runs a scene once for each of its callbacks, which throws in that run. Returns their number. If a release throws, the queue
# counts it.
function each_callback(scene)
    for nth in Iterators.countfrom(1)
        callbacks, told, before = Callbacks(nth, 0, 0), Ref(0), DX.release_failures()
        scene(callbacks, told)
        nothing_left() || error("$scene, callback $nth: something is left")
        callbacks.live == 0 || error("$scene, callback $nth: $(callbacks.live) are not released")
        threw = told[] + DX.release_failures() - before
        threw == (callbacks.calls >= nth) || error("$scene, callback $nth: $threw were told")
        callbacks.calls < nth && return nth - 1
    end
end

# ---- foreign callbacks ----

# Calls act(nth) with nth = 1, 2, ... as long as it says that so many callbacks came. Returns their number.
count_while(act) = first(Iterators.filter(nth -> !act(nth), Iterators.countfrom(1))) - 1

# Each callback of the producer of a good case fails: with a code, with a text, too, or by giving something wrong.
function case_without_callback(i)
    kind = corpus_text(i, "kind")
    (kind in ("stream", "device_stream", "async") && isempty(corpus_text(i, "status"))) || return 0
    return sum(0:2) do how
        count_while() do nth
            right, failed = corpus_case(i, CallbackFault(nth, how))
            right || error(corpus_text(i, "name"))
            failed > 0
        end
    end
end

# Sends three batches to a consumer whose nth callback fails, requests something wrong, or cancels.
function give(table, nth, how)
    consumer = ccall(corpus(:corpus_consumer_make), Ptr{Cvoid}, ())
    handler = ccall(corpus(:corpus_consumer_handler), Ptr{ArrowAsyncDeviceStreamHandler}, (Ptr{Cvoid},), consumer)
    fault, failed = CallbackFault(nth, how), nothing
    of = schema(table)
    arm(fault)
    try
        writer = AsyncWriter(handler, of)
        try
            foreach(_ -> put!(writer, share(table)), 1:3)
        finally
            close(writer)
        end
    catch e
        e isa DevExchangeError || rethrow()
        failed = e
    end
    faults = disarm(fault)
    # A task on this thread releases the handler of a consumer that cancelled.
    yield()
    wrong = corpus_string(ccall(corpus(:corpus_consumer_end), Ptr{UInt8}, (Ptr{Cvoid},), consumer))
    if wrong === nothing && faults > 0 && !(how == 3 && failed === nothing)
        wrong = judge_callback(failed)
    elseif wrong === nothing && faults == 0 && failed !== nothing
        wrong = sprint(showerror, failed)
    end
    close(of)
    wrong === nothing || error("callback $nth, $how: $wrong")
    return faults > 0
end

function consumers()
    matrix = Tensor([1.0 2.0; 3.0 4.0])
    table = record_batch(matrix)
    failed = sum(how -> count_while(nth -> give(table, nth, how)), 0:3)
    foreach(close, (table, matrix))
    nothing_left() || error("something is left")
    return failed
end

allocations = sum(case_without_memory, corpus_cases()) + exports() + asked_objects()
callbacks = sum(each_callback, (a_manager, a_stream)) + sum(case_without_callback, corpus_cases()) + consumers()
println("faults: ", allocations, " allocations, ", callbacks, " callbacks")
