# Calls from outside that wait for an answer of Julia: the next batch of a source, memory of a manager. The answer is
# found by `reply(object, call)`: on a Julia thread directly, for a foreign thread in a task.

# A call and its answer, with the fields of bindings-julia/src/call.rs. Only ever used behind a pointer.
struct Call
    operation::Int32
    begins::Int32
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

# Answers a call to the object with this number, on a Julia thread.
function serve(number::UInt64, call::Ptr{Call})
    # The caller is C code, which has to go on on its thread: it may hold a lock of that thread, or use thread-local memory.
    # From Julia 1.7 on, a task that has waited goes on on any thread, unless it is sticky. It stays sticky, as after
    # `@async`, whose tasks rely on it.
    current_task().sticky = true
    return respond(deliver_now_and_then, note_interrupt, number, call)
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

# Answers a call. `interrupted` gets an interrupt, which is a failure to the caller.
function respond(before, interrupted, number::UInt64, call::Ptr{Call})
    try
        before()
        reply(lock(() -> ROOTS[number].object, ROOTS_LOCK), call)
        return DEVX_OK
    catch e
        return refused(interrupted, e, catch_backtrace(), call)
    end
end

# The status for an exception. An interrupt that comes meanwhile is thrown at the end of this, and takes the place of the
# exception; but a second interrupt changes nothing.
function refused(interrupted, @nospecialize(e), backtrace, call::Ptr{Call})
    status = Ref(DEVX_CALLBACK)
    try
        disable_sigint(() -> status[] = refuse(interrupted, e, backtrace, call))
    catch later
        is_first = later isa InterruptException && !(e isa InterruptException)
        is_first && return refused(interrupted, later, catch_backtrace(), call)
    end
    return status[]
end

function refuse(interrupted, @nospecialize(e), backtrace, call::Ptr{Call})
    # An interrupt can come when the answer is there already, which nobody will look at now.
    take_back(call)
    tracing() && Base.invokelatest(log_failure, e, backtrace)
    status = write_failure(field_pointer(call, :error), failure(e))
    e isa InterruptException && interrupted(e)
    return status
end

# The caller gets no more than the text. An exception of the logger must not get into C.
function log_failure(@nospecialize(e), backtrace)
    try
        @info "devexchange: a callback failed" exception = (e, backtrace)
    catch
    end
end

serve_address() = @cfunction(serve, DevxStatus, (UInt64, Ptr{Call}))

# The error that a caller gets for an exception. `DEVX_OK` would be an answer, and `DEVX_BUSY` would be another call's.
function failure(@nospecialize(e))
    e isa DevExchangeError && e.status != DEVX_OK && e.status != DEVX_BUSY && return e
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

# Takes a request of a foreign thread. Its answer can take long, so another task gives it.
function take_request(request::Ptr{Cvoid})
    call = Ref{Call}()
    number = ccall(devx_julia_take[], UInt64, (Ptr{Cvoid}, Ptr{Call}), request, call)
    number == 0 || Threads.@spawn undisturbed(() -> answer_request(request, number, call))
    return nothing
end

function answer_request(request, number, call)
    GC.@preserve call begin
        asked = Base.unsafe_convert(Ptr{Call}, call)
        status = DEVX_CALLBACK
        try
            # Does not deliver releases that are due, as other answers do: a release may wait for the caller.
            status = respond(() -> nothing, pass_on, number, asked)
        finally
            # Even after an interrupt: a thread waits for this as long as it takes, and then takes no answer.
            status == DEVX_OK || take_back(asked)
            waited_for =
                ccall(devx_julia_answer[], DevxStatus, (Ptr{Cvoid}, DevxStatus, Ptr{Call}), request, status, asked)
            waited_for == DEVX_OK || status != DEVX_OK || take_back(asked)
        end
    end
    return nothing
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
