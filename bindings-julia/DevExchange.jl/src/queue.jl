# Julia's side of keeping memory alive: objects that are rooted until the native side has released them, and the queue
# that brings those releases, and what finalizers leave behind, to a Julia task. Wakes, and requests of foreign threads,
# come through the same queue.
#
# A token is a number with a tag in its lowest six bits. Tag 0 is a rooted object that was released; the token itself is
# its number. `TAG_WAKE` is added to that number if someone is to be woken. Every other tag says what the rest of the
# token is the address of, divided by eight (all are aligned to at least 8 bytes): a handle of the tag's kind, with
# `TAG_KEPT` added for references that nobody could have closed, or a request. For the stream of a device, its number in
# `STREAMS` takes the place of an address.

const TAG_ROOT = UInt64(0)
const TAG_TENSOR = UInt64(1)
const TAG_BATCH = UInt64(2)
const TAG_SCHEMA = UInt64(3)
const TAG_STREAM = UInt64(4)
const TAG_BATCH_STREAM = UInt64(5)
const TAG_ASYNC_READER = UInt64(6)
const TAG_ASYNC_WRITER = UInt64(7)
const TAG_WAKE = UInt64(8)
const TAG_REQUEST = UInt64(9)
const TAG_MANAGER = UInt64(10)
const TAG_ALLOCATION = UInt64(11)
const TAG_IPC_SERVER = UInt64(12)
const TAG_IPC_CLIENT = UInt64(13)
const TAG_METADATA = UInt64(14)
const TAG_KEPT = UInt64(32)
const TAG_MASK = UInt64(63)

address_token(address::UInt, tag) = UInt64(address) << 3 | tag
token_address(token) = Ptr{Cvoid}(UInt(token >> 3 & ~UInt64(7)))

# An object that is kept alive for the native side, the references to close when it is released, and the function to
# call then.
struct Root
    object::Any
    references::Any
    release::Any
end

# The roots by token. Changed by tasks only, never by a finalizer or a foreign thread.
const ROOTS = Dict{UInt64,Root}()
const ROOTS_LOCK = ReentrantLock()
const NEXT_TOKEN = Threads.Atomic{UInt64}(TAG_MASK + 1)

# Streams that were made here, by token: device and value. Then the tokens of those that were given up only by a
# finalizer and are not closed yet.
const STREAMS = Dict{UInt64,Tuple{DLDevice,Int64}}()
const FORGOTTEN_STREAMS = UInt64[]
const STREAMS_LOCK = ReentrantLock()

# Tokens that were taken out of the queue and are still to be released, oldest first. Requests and wakes are not put
# here: someone waits for them, even during a slow `release` function.
const DUE = UInt64[]
const DUE_CHANGED = Threads.Condition()

# Notified when a task ends on the first thread; see `idle_on_first_thread`.
const IDLER_CALLED = Threads.Condition()

# Held during releases, so that `drain()` returns only when everything that was due before is done.
const DRAINING = ReentrantLock()
const RELEASE_FAILURES = Threads.Atomic{Int}(0)
const DELIVERY_TURNS = Threads.Atomic{Int}(0)

# Keeps the condition for ever, because foreign threads know its handle.
const WAKE = Ref{Base.AsyncCondition}()
const EXITING = Threads.Atomic{Bool}(false)

"""
    drain() -> Int

Delivers, on the calling task, all that has been released until now: drops roots, calls `release` functions, and
releases handles that only a finalizer gave up. Returns how many there were. You need not call this: a task of this
module is woken for each release. Call it to wait for releases, for example before you look at [`outstanding`](@ref).

Any task may call it. It waits for another task that is delivering, so a `release` function must not wait for a task
that calls `drain`. Nor may it wait for a task that goes through a [`BatchStream`](@ref), or whose calls run a source or
a manager written in Julia: so that loops that never wait release something, too, these calls now and then deliver what
is due, on the calling task. It may wait for other things: requests of foreign threads and batches of asynchronous
streams are delivered meanwhile; other releases are not. Called by a `release` function itself, `drain` does nothing and
returns 0: release functions are called one after the other.

When Julia ends, everything that is due is delivered. A `release` function that waits for something then has a second,
or less if there are several; it does not keep others from being called.
"""
function drain()
    is_delivering() && return 0
    while true
        count = deliver_if_free()
        count === nothing || return count
        lock(() -> nothing, DRAINING) # waits for the task that is delivering
    end
end

"""
    rooted() -> Int

Returns how many Julia objects are kept alive because the native side still uses their memory, or because an array of
another package still uses memory of the native side.
"""
rooted() = lock(() -> length(ROOTS), ROOTS_LOCK)

"""
    release_failures() -> Int

Returns how many `release` functions have thrown. Each exception was logged (`@error`), unless it was an interrupt. The
function counts as called and is not called again.
"""
release_failures() = RELEASE_FAILURES[]

function start_queue()
    condition = Base.AsyncCondition()
    WAKE[] = condition
    status = ccall(devx_julia_queue_start[], DevxStatus, (Ptr{Cvoid}, Ptr{Cvoid}),
        cglobal(:uv_async_send), Base.unsafe_convert(Ptr{Cvoid}, condition))
    status == DEVX_OK || throw(DevExchangeError(status, "the release queue could not be started"))
    idle_on_first_thread(condition)
    mark_threads()
    # Not sticky: any free Julia thread can deliver.
    Threads.@spawn again_and_again(() -> (wait(condition); sort_out(); tell_of_due()), condition)
    Threads.@spawn again_and_again(() -> (wait_for_due(); drain()), condition)
    atexit(stop_queue)
    return nothing
end

# Marks each Julia thread as one. On these threads sources and managers are called directly. A thread that is not marked
# yet is treated as a foreign one, so the maker or caller of a source or manager marks its own thread first.
mark_thread() = ccall(devx_julia_thread[], Cvoid, ())
function mark_threads()
    mark_thread()
    threads = isdefined(Threads, :maxthreadid) ? Threads.maxthreadid() : Threads.nthreads()
    foreach(k -> run_on(() -> (mark_thread(); leave_to_idler()), k), setdiff(1:threads, Threads.threadid()))
    return nothing
end

# Runs `f` in a task of its own, on the thread of this number.
function run_on(f, thread)
    task = Task(f)
    task.sticky = true
    ccall(:jl_set_task_tid, Cvoid, (Any, Cint), task, thread - 1)
    schedule(task)
    return nothing
end

# When nothing is left to run on a thread, Julia waits in the task that ran there last, even if that task has ended. An
# interrupt (Ctrl-C) comes to the first thread, and nothing catches it in a task that has ended: it ends the process. So
# each task of this module that may end there has this one run behind it.
idle_on_first_thread(condition) =
    run_on(() -> again_and_again(() -> lock(() -> wait(IDLER_CALLED), IDLER_CALLED), condition), 1)
leave_to_idler() = Threads.threadid() == 1 && lock(() -> notify(IDLER_CALLED), IDLER_CALLED)

# Calls `step` in a task that has to go on even if `step` throws, as long as the queue's condition is open. Only `step` can
# be interrupted.
again_and_again(step, condition) = disable_sigint() do
    while isopen(condition)
        undisturbed(() -> Base.reenable_sigint(step))
    end
end

# Calls `step` in a task that has to go on even if `step` throws.
function undisturbed(step)
    try
        step()
    catch e
        pass_on(e)
    end
    return nothing
end

# Not called by tasks that release what is due themselves: the woken task would only be in their way.
tell_of_due() = lock(() -> notify(DUE_CHANGED), DUE_CHANGED)
wait_for_due() = lock(DUE_CHANGED) do
    while isempty(DUE)
        wait(DUE_CHANGED)
    end
end

# Passes on an interrupt (Ctrl-C), which arrives at the task that ran last, to the task it is meant for: the one that
# evaluates what the user typed, or the program's.
function pass_on(@nospecialize(e))
    e isa InterruptException || return nothing
    repl = isdefined(Base, :active_repl_backend) ? Base.active_repl_backend : nothing
    repl === nothing || repl.in_eval || return nothing
    task = repl === nothing ? Base.roottask : repl.backend_task
    istaskdone(task) || schedule(task, e; error=true)
    return nothing
end

# Runs before Julia closes its event loop and before the finalizers of what is still alive. All that is due is tried: if
# a task does not finish because a `release` function waits for something, another task continues behind it. The first
# task also waits for one that is delivering already.
function stop_queue()
    EXITING[] = true
    ccall(devx_julia_silence[], Cvoid, ())
    ended_within(drain, 1.0) && return nothing
    any(k -> ended_within(deliver_all, max(0.5^k, 0.01)), 1:100)
    return nothing
end

# Whether a task that calls `f` ends within this many seconds.
function ended_within(f, seconds)
    task = @async f()
    yield()
    return timedwait(() -> istaskdone(task), seconds; pollint=0.01) === :ok && !istaskfailed(task)
end

# Like `drain`, but only every few calls and only if no task is delivering: for loops over batches that never yield, in
# which nothing else would be released.
function deliver_now_and_then()
    Threads.atomic_add!(DELIVERY_TURNS, 1) % 16 == 0 && deliver_if_idle()
    return nothing
end

function deliver_if_idle()
    is_delivering() || deliver_if_free()
    return nothing
end

# Delivers what is due and returns how many, or `nothing` if another task is delivering. An interrupt can come while
# something is delivered, but not so that the lock stays locked.
deliver_if_free() = disable_sigint() do
    trylock(DRAINING) || return nothing
    try
        return Base.reenable_sigint(deliver_all)
    finally
        unlock(DRAINING)
    end
end

# Takes all tokens out of the queue: handles requests and wakes, and leaves the others to the task that releases.
# Returns the number of requests and wakes. A token that was taken out is nowhere else until it is stored or handled, so an
# interrupt is deferred until then.
sort_out() = disable_sigint() do
    events = UInt64[]
    # Locked throughout, because another task may take out what comes next.
    lock(() -> take_out(events), DUE_CHANGED)
    for_each_of_all(deliver, events)
    return length(events)
end

function take_out(events)
    tokens = Vector{UInt64}(undef, 64)
    while true
        taken = Int(ccall(devx_julia_drain[], Csize_t, (Ptr{UInt64}, Csize_t), tokens, length(tokens)))
        taken == 0 && break
        foreach(token -> push!(is_event(token) ? events : DUE, token), view(tokens, 1:taken))
    end
end

# Like `foreach`, but always to the end: an interrupt that one call throws is thrown after the last.
function for_each_of_all(f, things)
    interrupt = nothing
    for thing in things
        try
            f(thing)
        catch e
            interrupt = e
        end
    end
    interrupt === nothing || throw(interrupt)
    return nothing
end

is_event(token) = token & TAG_MASK in (TAG_WAKE, TAG_REQUEST)

# As with the lock, an interrupt cannot leave the mark behind.
function deliver_all()
    storage = task_local_storage()
    return disable_sigint() do
        storage[DELIVERING] = true
        try
            return Base.reenable_sigint(deliver_what_is_due)
        finally
            delete!(storage, DELIVERING)
        end
    end
end

# Whether this task is within a `release` function. Then the call that runs the function delivers the rest: nested releases
# would overflow the stack if there are many.
is_delivering() = haskey(task_local_storage(), DELIVERING)
const DELIVERING = :devexchange_delivering

function deliver_what_is_due()
    total = 0
    while true
        # Repeated, because what was delivered may have released more.
        total += sort_out()
        deliver_next() || break
        total += 1
        while deliver_next()
            total += 1
        end
    end
    close_forgotten_streams()
    return total
end

# Does nothing while anything is outstanding, because there may still be tensors of a stream that was never closed, also
# elsewhere.
function close_forgotten_streams()
    isempty(FORGOTTEN_STREAMS) && return nothing
    outstanding() == 0 || return nothing
    # An interrupt is deferred until all are closed, because they are noted nowhere else.
    disable_sigint() do
        tokens = lock(() -> splice!(FORGOTTEN_STREAMS, eachindex(FORGOTTEN_STREAMS)), STREAMS_LOCK)
        for_each_of_all(close_forgotten, tokens)
    end
    return nothing
end

function close_forgotten(token::UInt64)
    try
        close_stream(token)
    catch e
        # Errors are ignored as in `deliver`; other calls report what the driver says, too.
        e isa InterruptException && rethrow()
    end
    return nothing
end

function close_stream(token::UInt64)
    found = lock(() -> pop!(STREAMS, token, nothing), STREAMS_LOCK)
    found === nothing && return nothing
    device, stream = found
    @checked devx_stream_close(device::DLDevice, stream::Int64)
    return nothing
end

# Delivers the oldest token that is due, and returns whether there was one. Throws nothing but an interrupt, and only after
# the token is delivered.
deliver_next() = disable_sigint() do
    token = lock(() -> isempty(DUE) ? nothing : popfirst!(DUE), DUE_CHANGED)
    token === nothing && return false
    deliver(token)
    return true
end

# Does what a token stands for. Interrupts are deferred by whoever calls this, except while a function of the user runs.
function deliver(token::UInt64)
    tag = token & TAG_MASK
    try
        if tag == TAG_ROOT
            unroot(token)
        elseif tag == TAG_WAKE
            wake_up(token & ~TAG_MASK)
        elseif tag == TAG_REQUEST
            take_request(token_address(token))
        else
            give_back(tag, token_address(token))
        end
    catch e
        # An exception of a logger or a closed stderr must not keep other tokens from being delivered.
        e isa InterruptException && rethrow()
    end
    return nothing
end

function unroot(token)
    root = lock(() -> pop!(ROOTS, token, nothing), ROOTS_LOCK)
    root === nothing && return nothing
    try
        foreach(close, root.references)
    finally
        root.release === nothing || call_release(root.release)
    end
    return nothing
end

# Releases what a finalizer left behind.
function give_back(tag, address)
    if tag == TAG_STREAM
        lock(() -> push!(FORGOTTEN_STREAMS, UInt64(UInt(address))), STREAMS_LOCK)
    else
        release_handle(tag, address)
    end
    if !is_kept(tag) && tracing()
        # In one piece: other tasks write, too, while this one waits for a pipe.
        print(stderr, "devexchange: a $(kind_name(tag)) was not closed; its finalizer gave it up\n")
    end
    return nothing
end

# Calls a `release` function. An interrupt can come meanwhile, and is deferred otherwise by whoever calls this. This task is
# older than most functions that it calls, hence `invokelatest`.
function call_release(@nospecialize(release))
    try
        Base.reenable_sigint(() -> Base.invokelatest(release))
    catch e
        Threads.atomic_add!(RELEASE_FAILURES, 1)
        e isa InterruptException && rethrow()
        log_error("a release function failed", e, catch_backtrace())
    end
    return nothing
end

# A logger that throws must not make whatever call delivers the release fail.
function log_error(what, @nospecialize(e), backtrace)
    try
        @error "DevExchange: $what" exception = (e, backtrace)
    catch later
        later isa InterruptException && rethrow()
    end
    return nothing
end

# Several functions that are one release: all are called, even if one of them throws.
struct Releases
    functions::Vector{Any}
end

(r::Releases)() = disable_sigint(() -> call_release(r))

call_release(r::Releases) = for_each_of_all(call_release, r.functions)

tracing() = ccall(devx_julia_trace[], Bool, ())

# Checks that a user's function can be called with arguments of these types, before anything is taken that would have to
# be given back. The function may be newer than the calling task, hence `invokelatest`.
function check_callable(@nospecialize(f), name, types...)
    ok = isempty(types) ? Base.invokelatest(applicable, f) : Base.invokelatest(hasmethod, f, Tuple{types...})
    ok && return nothing
    wanted = isempty(types) ? "without arguments" : string("of ", join(types, ", "))
    throw(DevExchangeError(DEVX_INVALID_ARGUMENT, "$name is $(repr(f)): it must be a function $wanted"))
end

# Roots `object` and gives `f` an owner. The owner's release, on whatever thread it is called, drops the root, closes
# `references` and has `release` called. If `f` throws, nothing took the owner: the root is dropped and `release` is not
# called.
owned(f, object, references, release) = owned_by_token((owner, _) -> f(owner), object, references, release)

# Like `owned`, but `f` also gets the number of the rooted object.
function owned_by_token(f, @nospecialize(object), @nospecialize(references), @nospecialize(release))
    token = Threads.atomic_add!(NEXT_TOKEN, TAG_MASK + 1)
    owner = Ref(DevxOwner(C_NULL, C_NULL))
    root = Root(object, references, release)
    # An interrupt must not take the owner back if it comes when someone has the owner already.
    Base.sigatomic_begin()
    lock(() -> ROOTS[token] = root, ROOTS_LOCK)
    result = try
        release === nothing || check_callable(release, "release")
        status = ccall(devx_julia_register[], DevxStatus, (UInt64, Ptr{DevxOwner}), token, owner)
        status == DEVX_OUT_OF_MEMORY && throw(DevExchangeError(status, "there is no memory for the release queue"))
        status == DEVX_OK || throw(DevExchangeError(status,
            "the release queue is not there: nothing is exchanged while a package is precompiled"))
        f(owner, token)
    catch
        lock(() -> delete!(ROOTS, token), ROOTS_LOCK)
        ccall(devx_julia_cancel[], Cvoid, (Ptr{Cvoid},), owner[].context)
        foreach(close, references)
        rethrow()
    end
    Base.sigatomic_end()
    return result
end

# Stands for a rooted function in a foreign finalizer, which can run anywhere and so only pushes the number.
struct Later
    token::UInt64
end

function (l::Later)(_...)
    EXITING[] || ccall(devx_julia_push[], DevxStatus, (UInt64,), l.token)
    return nothing
end

# Roots `release` and everything that it holds. The result can be called once; a task here then calls `release`.
function later(release)
    token = Threads.atomic_add!(NEXT_TOKEN, TAG_MASK + 1)
    lock(() -> ROOTS[token] = Root(nothing, (), release), ROOTS_LOCK)
    return Later(token)
end

# New references to the handles that the memory of an array belongs to: a user of the memory has to hold them, even if
# the tensor or batch that the memory came from is closed.
references(array::AbstractArray) = (p = parent(array); p === array ? () : references(p))
references(_) = ()

# Whether the memory of an array must not be written, even if its type would allow it.
write_protected(array::AbstractArray) = (p = parent(array); p === array ? false : write_protected(p))
write_protected(::Union{Base.CodeUnits,AbstractRange}) = true
