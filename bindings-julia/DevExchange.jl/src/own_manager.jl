# Managers that are written in Julia.

"""
    MemoryRequest

A request to a manager: `device` (which one, and which kind of memory), `bytes` (can be 0), `stream` (the stream in
whose order device memory is allocated and given back, as a number, or `nothing` if the memory must be ready at once),
and `host_flags` of pinned memory (`DevExchange.DEVX_HOST_...`). The stream is never `DevExchange.PER_THREAD_STREAM`,
because the functions run on other threads than the caller; `DevExchange.LEGACY_STREAM` stands for it.
"""
struct MemoryRequest
    device::DLDevice
    bytes::Int
    stream::Union{Nothing,Int64}
    host_flags::UInt32
end

MemoryRequest(r::DevxMemoryRequest) = MemoryRequest(
    DLDevice(r.device_type, r.device_id), r.bytes, r.stream == -1 ? nothing : r.stream, r.host_flags)

# The functions of a manager; `nothing` for those that it does not have.
struct ManagerFunctions
    allocate::Any
    initialize::Any
    pin::Any
    memory_info::Any
    ipc_handle::Any
    reset::Any
    trim::Any
    defer_cleanup::Any
end

"""
    MemoryManager(allocate; initialize, pin, memory_info, ipc_handle, reset, trim, defer_cleanup, release, patience=60)

Makes a manager from Julia functions. `allocate(request::MemoryRequest)` returns `(address, device::DLDevice, release)`:
`release()` gives the memory back; it is `nothing` if there is nothing to do. The other functions are optional:

- `initialize(device_id)` prepares for a device; it is called any number of times.
- `pin(device_id, address, bytes, host_flags)` pins host memory and returns a function that unpins it, or `nothing`.
- `memory_info(device_id)` returns `(free_bytes, total_bytes)`.
- `ipc_handle(address)` returns `(handle, offset, bytes, device_id)` as [`ipc_handle`](@ref) does; without this function
  the driver provides the handle.
- `reset(device_id)`: all memory of a device has been given back; memory that was kept for it can go.
- `trim(device_id, keep)` gives unused memory back, except for `keep` bytes.
- `defer_cleanup(begins::Bool)`: cleanup is deferred from now on, or no longer. Its exceptions are logged (`@error`),
  except for an interrupt.
- `release()` is called once, when the manager and all its memory were given up, after the last of its memory; not if
  this constructor throws.

An exception in a function becomes the error of the caller, with its text (`DEVX_CALLBACK`, `DEVX_OUT_OF_MEMORY` for an
`OutOfMemoryError`, or the status of a [`DevExchangeError`](@ref) other than `DEVX_BUSY`); if the call came from Julia, an
`InterruptException` stays one. Where it was thrown is logged if `DEVEXCHANGE_TRACE` is set. A missing function is
`DEVX_UNSUPPORTED`, or has nothing to do.

**Who runs the functions.** They are called from any thread, also several at a time. On a Julia thread they run
directly. A foreign thread waits while a Julia task runs them, under the conditions and with the `patience` (in seconds)
that [`BatchStream`](@ref BatchStream(::Schema, ::Any)) describes. The `release` functions run in tasks of this module,
like all releases ([`drain`](@ref)). Before `reset` and `trim`, all releases that are due have run, unless a `release`
function makes the call; before `allocate`, too, unless any task is running them. So a `release` function must not wait
for a task that calls this manager. If the stream of a request is closed meanwhile, it is destroyed only after the
`release` function of that memory has run.

Throws `DEVX_INVALID_ARGUMENT` for a function that cannot be called in this way and for a negative `patience`.
"""
function MemoryManager(allocate; initialize=nothing, pin=nothing, memory_info=nothing, ipc_handle=nothing,
                       reset=nothing, trim=nothing, defer_cleanup=nothing, release=nothing, patience::Real=60)
    check_callable(allocate, "allocate", MemoryRequest)
    for (name, f, types) in (("initialize", initialize, (Int,)), ("pin", pin, (Int, Ptr{Cvoid}, Int, UInt32)),
                             ("memory_info", memory_info, (Int,)), ("ipc_handle", ipc_handle, (Ptr{Cvoid},)),
                             ("reset", reset, (Int,)), ("trim", trim, (Int, Int)),
                             ("defer_cleanup", defer_cleanup, (Bool,)))
        f === nothing || check_callable(f, name, types...)
    end
    functions = ManagerFunctions(allocate, initialize, pin, memory_info, ipc_handle, reset, trim, defer_cleanup)
    optional = (CALL_INITIALIZE => initialize, CALL_PIN => pin, CALL_MEMORY_INFO => memory_info,
        CALL_IPC_HANDLE => ipc_handle, CALL_RESET => reset, CALL_TRIM => trim, CALL_DEFER_CLEANUP => defer_cleanup)
    callbacks = reduce(|, (UInt32(1) << operation for (operation, f) in optional if f !== nothing); init=UInt32(0))
    make(number, limit, owner, table) = ccall(devx_julia_manager[], DevxStatus,
        (UInt64, UInt64, Ptr{Server}, Int64, UInt32, Ptr{DevxOwner}, Ptr{DevxManagerTable}),
        number, TAG_REQUEST, Ref(server()), limit, callbacks, owner, table)
    return MemoryManager(made(Handle{TAG_MANAGER}) do out
        asked_through(make, Ref{DevxManagerTable}(), functions, release, patience) do table
            @checked devx_manager_create(table::Ptr{DevxManagerTable}, out::Ptr{Ptr{Cvoid}})
        end
    end)
end

# Answers a call to a manager.
function reply(m::ManagerFunctions, call::Ptr{Call})
    operation, request = argument(call, :operation), argument(call, :request)
    device_id = Int(request.device_id)
    if operation == CALL_ALLOCATE
        asked(deliver_if_idle)
        give_memory(call, asked(m.allocate, MemoryRequest(request)), request.stream)
    elseif operation == CALL_PIN
        address, bytes = argument(call, :address), Int(request.bytes)
        unpin = asked(m.pin, device_id, address, bytes, request.host_flags)
        # Not in the order of a stream.
        give_memory(call, (address, DLDevice(kDLCUDAHost, 0), unpin), Int64(-1))
    elseif operation == CALL_MEMORY_INFO
        info = parts_of(asked(m.memory_info, device_id), "(free_bytes, total_bytes)", 2)
        answer!(call, :info, DevxMemoryInfo(info...))
    elseif operation == CALL_IPC_HANDLE
        answer!(call, :handle, handle_record(asked(m.ipc_handle, argument(call, :address))))
    elseif operation == CALL_DEFER_CLEANUP
        announce(m.defer_cleanup, argument(call, :begins) != 0)
    elseif operation == CALL_INITIALIZE
        asked(m.initialize, device_id)
    elseif operation == CALL_RESET
        asked(drain)
        asked(m.reset, device_id)
    elseif operation == CALL_TRIM
        asked(drain)
        asked(m.trim, device_id, Int(request.bytes))
    else
        throw(DevExchangeError(DEVX_UNSUPPORTED, "operation is $operation: a newer library's"))
    end
    return nothing
end

# Passes on the memory that a function returned, or gives it back.
function give_memory(call::Ptr{Call}, @nospecialize(given), stream::Int64)
    address, device, release = parts_of(given, "(address, device, release)", 3)
    release === nothing || check_callable(release, "release")
    release = on_held_stream(release, stream)
    try
        place, on = Ptr{Cvoid}(address), device::DLDevice
        give(owner) = answer!(call, :memory, DevxMemory(place, on.device_type, on.device_id, owner))
        release === nothing ? give(DevxOwner(C_NULL, C_NULL)) : owned(owner -> give(owner[]), nothing, (), release)
    catch
        release === nothing || call_release(release)
        rethrow()
    end
    return nothing
end

# A function that gives memory back in the order of a stream. The stream is held until the function has run.
struct OnHeldStream
    release::Any
    hold::DevxOwner
end

(r::OnHeldStream)() = disable_sigint(() -> call_release(r))

function call_release(r::OnHeldStream)
    try
        call_release(r.release)
    finally
        release(r.hold)
    end
    return nothing
end

on_held_stream(::Nothing, stream) = nothing
function on_held_stream(f, stream)
    hold = Ref(DevxOwner(C_NULL, C_NULL))
    try
        @checked devx_stream_hold(stream::Int64, hold::Ptr{DevxOwner})
    catch
        call_release(f)
        rethrow()
    end
    return OnHeldStream(f, hold[])
end

function handle_record(given)
    handle, offset, bytes, device_id = parts_of(given, "(handle, offset, bytes, device_id)", 4)
    length(handle) == 64 ||
        throw(DevExchangeError(DEVX_INVALID_ARGUMENT, "handle has $(length(handle)) bytes: it must have 64"))
    return DevxIpcHandle(NTuple{64,UInt8}(handle), offset, bytes, device_id, 0)
end

# A tuple, named or not.
function parts_of(given, wanted, count)
    given isa Union{Tuple,NamedTuple} && length(given) == count && return Tuple(given)
    throw(DevExchangeError(DEVX_INVALID_ARGUMENT, "the manager gave a $(typeof(given)), not $wanted"))
end

# The caller could not be told of a failure. An interrupt is noted for the Julia call that led here.
function announce(defer_cleanup, begins)
    try
        asked(defer_cleanup, begins)
    catch e
        e isa InterruptException && rethrow()
        log_error("the defer_cleanup of a manager failed", e, catch_backtrace())
    end
    return nothing
end
