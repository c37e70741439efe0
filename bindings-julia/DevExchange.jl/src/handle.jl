# Handles of the C API: one reference each, given up exactly once.

const CLOSED = typemin(Int)

# Tensor, batch, schema, streams, managers and so on hold one of these; `TAG` says which, and whether it is an error not
# to close it. The address of a device's stream is a number (see `STREAMS`).
#
# `users` counts the calls that are at work with the handle; its sign bit says that it was closed. Whoever closes it, or
# leaves it last after it was closed, takes the address and releases it, so that one task may close what another one is
# using. The address is swapped for 0 by whoever releases it, and so released once.
mutable struct Handle{TAG}
    address::Threads.Atomic{UInt}
    users::Threads.Atomic{Int}

    # Takes over a reference of the C API.
    function Handle{TAG}(address::Ptr{Cvoid}) where {TAG}
        handle = new{TAG}(Threads.Atomic{UInt}(UInt(address)), Threads.Atomic{Int}(0))
        finalizer(give_up, handle)
        return handle
    end
end

is_kept(tag) = tag & TAG_KEPT != 0
kind_of(tag) = tag & ~TAG_KEPT
function kind_name(tag)
    kind = kind_of(tag)
    kind == TAG_TENSOR && return "tensor"
    kind == TAG_BATCH && return "batch"
    kind == TAG_SCHEMA && return "schema"
    kind == TAG_ASYNC_READER && return "reader"
    kind == TAG_ASYNC_WRITER && return "writer"
    kind == TAG_MANAGER && return "manager"
    kind == TAG_ALLOCATION && return "memory allocation"
    kind == TAG_IPC_SERVER && return "server"
    kind == TAG_IPC_CLIENT && return "client"
    return "stream"
end

function release_handle(tag, address::Ptr{Cvoid})
    slot = Ref(address)
    kind = kind_of(tag)
    kind == TAG_TENSOR && ccall(devx_tensor_release[], Cvoid, (Ptr{Ptr{Cvoid}},), slot)
    kind == TAG_BATCH && ccall(devx_batch_release[], Cvoid, (Ptr{Ptr{Cvoid}},), slot)
    kind == TAG_SCHEMA && ccall(devx_schema_release[], Cvoid, (Ptr{Ptr{Cvoid}},), slot)
    kind == TAG_BATCH_STREAM && ccall(devx_batch_stream_release[], Cvoid, (Ptr{Ptr{Cvoid}},), slot)
    kind == TAG_ASYNC_READER && ccall(devx_async_reader_release[], Cvoid, (Ptr{Ptr{Cvoid}},), slot)
    kind == TAG_ASYNC_WRITER && ccall(devx_async_writer_release[], Cvoid, (Ptr{Ptr{Cvoid}},), slot)
    kind == TAG_MANAGER && ccall(devx_manager_release[], Cvoid, (Ptr{Ptr{Cvoid}},), slot)
    kind == TAG_ALLOCATION && ccall(devx_julia_let_go[], Cvoid, (Ptr{Cvoid},), address)
    kind == TAG_IPC_SERVER && ccall(devx_ipc_server_release[], Cvoid, (Ptr{Ptr{Cvoid}},), slot)
    kind == TAG_IPC_CLIENT && ccall(devx_ipc_client_release[], Cvoid, (Ptr{Ptr{Cvoid}},), slot)
    # When Julia ends a finalizer may get here, which must not take a lock; the driver ends its streams.
    kind == TAG_STREAM && !EXITING[] && close_stream(UInt64(UInt(address)))
    return nothing
end

# Another reference to the same thing.
function share_address(handle::Handle{TAG_TENSOR})
    out = Ref{Ptr{Cvoid}}(C_NULL)
    held(handle) do address
        @checked devx_tensor_share(address::Ptr{Cvoid}, out::Ptr{Ptr{Cvoid}})
    end
    return out[]
end

function share_address(handle::Handle{TAG_BATCH})
    out = Ref{Ptr{Cvoid}}(C_NULL)
    held(handle) do address
        @checked devx_batch_share(address::Ptr{Cvoid}, out::Ptr{Ptr{Cvoid}})
    end
    return out[]
end

# The finalizer: it may run anywhere, so it only leaves a token. When Julia ends nobody takes tokens any more, and then
# it releases by itself: a foreign release is called at shutdown, too.
function give_up(handle::Handle{TAG}) where {TAG}
    address = Threads.atomic_xchg!(handle.address, UInt(0))
    address == 0 && return nothing
    if EXITING[]
        release_handle(TAG, Ptr{Cvoid}(address))
    else
        ccall(devx_julia_push[], DevxStatus, (UInt64,), address_token(address, TAG))
    end
    return nothing
end

function release_now(handle::Handle{TAG}) where {TAG}
    address = Threads.atomic_xchg!(handle.address, UInt(0))
    address == 0 || release_handle(TAG, Ptr{Cvoid}(address))
    return nothing
end

Base.isopen(handle::Handle) = handle.users[] >= 0

function Base.close(handle::Handle)
    Threads.atomic_or!(handle.users, CLOSED) == 0 && release_now(handle)
    return nothing
end

@noinline closed(::Handle{TAG}) where {TAG} =
    DevExchangeError(DEVX_CLOSED, "the $(kind_name(TAG)) is not there any more: it was closed or moved away")

@inline require_open(handle::Handle) = isopen(handle) || throw(closed(handle))

# The address for a `ccall`, which keeps the object that it is converted from alive; closing it meanwhile is up to the
# caller. The calls of this module use `held`.
function Base.unsafe_convert(::Type{Ptr{Cvoid}}, handle::Handle)
    address = handle.address[]
    address == 0 && throw(closed(handle))
    return Ptr{Cvoid}(address)
end

# Calls `f` with the address, which stays good meanwhile, whoever closes the handle.
function held(f, handle::Handle)
    try
        # Also for a closed handle, as counted in is counted out.
        Threads.atomic_add!(handle.users, 1) < 0 && throw(closed(handle))
        address = handle.address[]
        address == 0 && throw(closed(handle))
        return f(Ptr{Cvoid}(address))
    finally
        Threads.atomic_sub!(handle.users, 1) == CLOSED + 1 && release_now(handle)
    end
end

# Calls `f` with a reference to the address, for a function of the C API that takes it and sets it to NULL. If it
# throws, the handle is as before. Nobody else uses the handle meanwhile; to others it is closed from now on.
function moved(f, handle::Handle)
    Threads.atomic_or!(handle.users, CLOSED) < 0 && throw(closed(handle))
    slot = Ref(Ptr{Cvoid}(Threads.atomic_xchg!(handle.address, UInt(0))))
    # Calls that had begun: each is one call of the C API.
    while handle.users[] != CLOSED
        yield()
    end
    try
        return f(slot)
    catch
        # In this order: with the address back first, a call that finds the handle closed and leaves would release it.
        Threads.atomic_and!(handle.users, ~CLOSED)
        handle.address[] = UInt(slot[])
        rethrow()
    end
end

# Keeps something alive as the finalizer of something else.
struct Keep
    object::Any
end
(::Keep)(_) = nothing

# What arrays that are made of an array (`reshape`) refer to: from Julia 1.11 on its `Memory`, before that the array.
@static if VERSION >= v"1.11"
    memory_object(array::Array) = array.ref.mem
else
    memory_object(array::Array) = array
end

# An `Array` over memory that belongs to `handle`, with a reference of its own for as long as anything refers to that
# memory.
function wrap_memory(data::Ptr{T}, dims::Dims{N}, handle::Handle{TAG}) where {T,N,TAG}
    prod(dims) == 0 && return Array{T,N}(undef, dims)
    reference = Handle{TAG | TAG_KEPT}(share_address(handle))
    array = unsafe_wrap(Array{T,N}, data, dims)
    finalizer(Keep(reference), memory_object(array))
    return array
end
