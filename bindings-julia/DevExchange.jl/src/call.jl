# Calls from outside that wait for an answer of Julia: the next batch of a source, memory of a manager. The answer is
# found by `reply(object, call)`: on a Julia thread directly, for a foreign thread in a task.

# A call and its answer, with the fields of bindings-julia/src/call.rs. Only ever used behind a pointer. `number` is that of
# the object. The answer counts once the status in `error` is `DEVX_OK`.
struct Call
    operation::Int32
    begins::Int32
    number::UInt64
    address::Ptr{Cvoid}
    request::DevxMemoryRequest
    batch::Ptr{Cvoid}
    memory::DevxMemory
    info::DevxMemoryInfo
    handle::DevxIpcHandle
    error::DevxError
end

const CALL_NEXT = Int32(0)
const CALL_INITIALIZE = Int32(1)
const CALL_ALLOCATE = Int32(2)
const CALL_PIN = Int32(3)
const CALL_MEMORY_INFO = Int32(4)
const CALL_IPC_HANDLE = Int32(5)
const CALL_RESET = Int32(6)
const CALL_TRIM = Int32(7)
const CALL_DEFER_CLEANUP = Int32(8)

# The address of a field; one method for each, so that its type is known at the call.
for (k, field) in enumerate(fieldnames(Call))
    @eval field_pointer(call::Ptr{Call}, ::Val{$(QuoteNode(field))}) =
        Ptr{$(fieldtype(Call, k))}(Ptr{UInt8}(call) + $(fieldoffset(Call, k)))
end
@inline field_pointer(call::Ptr{Call}, field::Symbol) = field_pointer(call, Val(field))
@inline argument(call::Ptr{Call}, field::Symbol) = unsafe_load(field_pointer(call, field))
@inline answer!(call::Ptr{Call}, field::Symbol, value) = unsafe_store!(field_pointer(call, field), value)

# Roots `object` and makes it callable through a record of the C API: `make(number, limit, owner, record)` writes the
# record, `hand_over(record)` gives it to the library. If either throws, nothing was taken.
function asked_through(hand_over, make, record::Ref, @nospecialize(object), @nospecialize(release), patience::Real)
    mark_thread()
    limit = nanoseconds(patience, "patience")
    owned_by_token(object, (), release) do owner, number
        status = make(number, limit, owner, record)
        status == DEVX_OK || throw(DevExchangeError(status, "the callbacks could not be made"))
        try
            hand_over(record)
        catch
            ccall(devx_julia_discard[], Cvoid, (Ptr{Cvoid},), record[].context)
            rethrow()
        end
    end
    return nothing
end

# The functions that answer the calls of Julia threads, with the fields of bindings-julia/src/server.rs.
struct Server
    call::Ptr{Cvoid}
    thread::Ptr{Cvoid}
    wait::Ptr{Cvoid}
    end_wait::Ptr{Cvoid}
    go_on::Ptr{Cvoid}
    end_go_on::Ptr{Cvoid}
    answer::Ptr{Cvoid}
    refuse::Ptr{Cvoid}
end

server() = Server(cglobal(:jl_call0), cglobal(:jl_get_ptls_states), cglobal(:jl_gc_unsafe_enter),
    cglobal(:jl_gc_unsafe_leave), cglobal(:jl_gc_safe_enter), cglobal(:jl_gc_safe_leave),
    function_address(answer_call), function_address(refuse_call))
function_address(f) = ccall(:jl_value_ptr, Ptr{Cvoid}, (Any,), f)

called() = ccall(devx_julia_called[], Ptr{Call}, ())

# Answers the call that was made on this thread. Whatever throws in here, `refuse_call` comes next. From Julia 1.10 on, an
# interrupt can come wherever a function is entered, so each place that must not be interrupted defers them first.
function answer_call()
    call = called()
    # The caller is C code, which has to go on on its thread: it may hold a lock of that thread, or use thread-local memory.
    # From Julia 1.7 on, a task that has waited goes on on any thread, unless it is sticky. It stays sticky, as after
    # `@async`, whose tasks rely on it.
    current_task().sticky = true
    deliver_now_and_then()
    Base.sigatomic_begin()
    respond(note_interrupt, call)
    Base.sigatomic_end()
    return nothing
end

# The caller gets the exception that `answer_call` threw.
function refuse_call()
    call, e = called(), ccall(:jl_exception_occurred, Any, ())
    Base.sigatomic_begin()
    refuse(note_interrupt, e, Ptr{Cvoid}[], call)
    Base.sigatomic_end()
    return nothing
end

# An interrupt (Ctrl-C) cannot be thrown through C, so it is noted here and thrown by the Julia call of this task that
# led to it (see `error_of`). If the caller was someone else, such as a foreign consumer on this thread, a later failure
# has another text and is not taken for the interrupt.
const INTERRUPTED = :devexchange_interrupted
note_interrupt(e) = task_local_storage(INTERRUPTED, failure(e).message)
function was_interrupted(message)
    text = pop!(task_local_storage(), INTERRUPTED, nothing)
    return text !== nothing && occursin(text, message)
end

# For calls that never fail. What a foreign consumer left behind is no concern of theirs, so it is forgotten before the call.
forget_interrupt() = delete!(task_local_storage(), INTERRUPTED)
throw_interrupt() = pop!(task_local_storage(), INTERRUPTED, nothing) === nothing || throw(InterruptException())

# Answers a call. `interrupted` gets an interrupt, which is a failure to the caller. Interrupts are deferred by whoever
# calls this, except while a function of the user runs: what that returns is not lost then.
function respond(interrupted, call::Ptr{Call})
    try
        reply(lock(() -> ROOTS[argument(call, :number)].object, ROOTS_LOCK), call)
        status!(call, DEVX_OK)
    catch e
        refuse(interrupted, e, catch_backtrace(), call)
    end
    return nothing
end

# Calls a function of the user, which can be interrupted. The task may be older than the function, hence `invokelatest`.
asked(@nospecialize(f), @nospecialize(arguments...)) = Base.reenable_sigint(() -> Base.invokelatest(f, arguments...))

status!(call::Ptr{Call}, status) = unsafe_store!(Ptr{DevxStatus}(field_pointer(call, :error)), status)

function refuse(interrupted, @nospecialize(e), backtrace, call::Ptr{Call})
    # An interrupt can come when the answer is there already, which nobody will look at now.
    status!(call, DEVX_CALLBACK)
    take_back(call)
    tracing() && Base.invokelatest(log_failure, e, backtrace)
    write_failure(field_pointer(call, :error), failure(e))
    e isa InterruptException && interrupted(e)
    return nothing
end

# The caller gets no more than the text. An exception of the logger must not get into C.
function log_failure(@nospecialize(e), backtrace)
    try
        @info "devexchange: a callback failed" exception = (e, backtrace)
    catch
    end
end

# The error that a caller gets for an exception. `DEVX_OK` would be an answer, and `DEVX_BUSY` would be another call's.
function failure(@nospecialize(e))
    e isa DevExchangeError && e.status != DEVX_OK && e.status != DEVX_BUSY && return e
    # Not shown by its method, which may have to be compiled first: another interrupt would come in the middle of that.
    e isa InterruptException && return DevExchangeError(DEVX_CALLBACK, "InterruptException:")
    text = try
        Base.invokelatest(sprint, showerror, e)
    catch
        string("an exception that cannot be shown: ", typeof(e))
    end
    return DevExchangeError(e isa OutOfMemoryError ? DEVX_OUT_OF_MEMORY : DEVX_CALLBACK, text)
end

function write_failure(target::Ptr{DevxError}, e::DevExchangeError)
    text = visible(e.message)
    most = DEVX_ERROR_MESSAGE_BYTES - 1
    bytes = ncodeunits(text) <= most ? ncodeunits(text) : thisind(text, most + 1) - 1
    unsafe_store!(Ptr{DevxStatus}(field_address(target, :status)), e.status)
    unsafe_store!(Ptr{Int32}(field_address(target, :driver_code)), e.driver_code)
    message = field_address(target, :message)
    GC.@preserve text unsafe_copyto!(message, pointer(text), bytes)
    unsafe_store!(message, 0x00, bytes + 1)
    return e.status
end

# For C, where a text is UTF-8 and ends at its first NUL.
visible(text::String) = replace(text, (c -> c == '\0' || !isvalid(c)) => '?')

# A request of a foreign thread that was taken. The thread waits for its call as long as it takes.
mutable struct Taken
    call::Call
    # NULL once it has its answer.
    request::Ptr{Cvoid}

    function Taken()
        taken = new()
        taken.request = C_NULL
        return finalizer(give_answer, taken)
    end
end

call_of(taken::Taken) = Ptr{Call}(pointer_from_objref(taken))

# Takes a request. Its answer can take long, so another task gives it. If that is interrupted before it begins, or waits for
# what is gone and is collected as garbage, the thread gets its call back as it was, which is a failure.
function take_request(request::Ptr{Cvoid})
    taken = Taken()
    GC.@preserve taken begin
        ccall(devx_julia_take[], Bool, (Ptr{Cvoid}, Ptr{Call}), request, call_of(taken)) || return nothing
    end
    taken.request = request
    Threads.@spawn begin
        undisturbed(() -> disable_sigint(() -> answer_request(taken)))
        give_answer(taken)
        leave_to_idler()
    end
    return nothing
end

function answer_request(taken::Taken)
    # Does not deliver releases that are due, as other answers do: a release may wait for the caller.
    GC.@preserve taken respond(pass_on, call_of(taken))
    give_answer(taken) || GC.@preserve taken take_back(call_of(taken))
    return nothing
end

# Returns whether the thread was still waiting for it.
function give_answer(taken::Taken)
    request, taken.request = taken.request, C_NULL
    request == C_NULL && return false
    return GC.@preserve taken ccall(devx_julia_answer[], DevxStatus, (Ptr{Cvoid}, Ptr{Call}), request, call_of(taken)) ==
        DEVX_OK
end

# Releases the contents of an answer that nobody takes.
function take_back(call::Ptr{Call})
    batch, owner = argument(call, :batch), argument(call, :memory).owner
    answer!(call, :batch, C_NULL)
    answer!(call, :memory, NO_MEMORY)
    batch == C_NULL || release_handle(TAG_BATCH, batch)
    release(owner)
    return nothing
end
