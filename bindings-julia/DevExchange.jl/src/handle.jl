# Handles of the C API: one reference each, given up exactly once.

# Bits of `users`: the handle must not be used any more, because a move has claimed it; and it was closed.
const GONE = typemin(Int)
const CLOSED = GONE | GONE >>> 1

# A tensor, batch, schema, stream, manager and so on holds one of these; `TAG` says which kind, and whether it is an
# error not to close it. For the stream of a device, the address is a number (see `STREAMS`).
#
# `users` counts the calls that are using the handle, in the bits below `CLOSED` and `GONE`. Once one of these bits is
# set, the count can only fall (a move that fails takes `GONE` back). The address is released by the task that closes
# the handle while no call uses it, or by the last call that leaves it after that. So one task may close a handle that
# another one is using, and it is released once.
mutable struct Handle{TAG}
    address::Ptr{Cvoid}
    users::Threads.Atomic{Int}

    # Takes over a reference of the C API. If it is NULL, there is nothing to give up and nothing to use.
    function Handle{TAG}(address::Ptr{Cvoid}) where {TAG}
        refuse_in_cache()
        handle = new{TAG}(address, Threads.Atomic{Int}(0))
        finalizer(give_up, handle)
        return handle
    end
end

# A handle that is made while a package is precompiled would end up in the package's cache, with NULL as its address.
# Code that takes something over before there is a handle for it calls this first.
refuse_in_cache() = ccall(:jl_generating_output, Cint, ()) == 0 || throw(in_cache())

@noinline in_cache() = DevExchangeError(DEVX_UNSUPPORTED, "nothing of this library is made while a package is " *
    "precompiled, as its cache cannot keep it: make it in the function `__init__` of the package, not at its top level")

# Makes a handle for a reference that `f` makes: `f` gets the place where C writes its address. The handle exists
# before: an interrupt that comes during the call of C is thrown when it returns, and the finalizer then has the
# reference.
function made(f, ::Type{H}) where {H<:Handle}
    handle = H(C_NULL)
    GC.@preserve handle f(place_in(handle))
    return handle
end

# The place where C writes the address.
place_in(handle::Handle) = Ptr{Ptr{Cvoid}}(pointer_from_objref(handle))

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
    kind == TAG_METADATA && return "metadata block"
    return "stream"
end

# Releases a handle that counts as closed, and that nobody else will release: nothing here is interrupted. So nothing is
# allocated; C writes NULL where the address was.
@inline function release_handle(handle::Handle{TAG}) where {TAG}
    if kind_of(TAG) in (TAG_ALLOCATION, TAG_STREAM)
        disable_sigint(() -> release_handle(TAG, handle.address))
    else
        GC.@preserve handle ccall(release_function(kind_of(TAG)), Cvoid, (Ptr{Ptr{Cvoid}},), place_in(handle))
    end
    return nothing
end

# Inlined, because the kind is mostly a constant at the call. Interrupts are deferred by whoever calls this.
@inline function release_handle(tag, address::Ptr{Cvoid})
    kind = kind_of(tag)
    if kind == TAG_ALLOCATION
        ccall(devx_julia_let_go[], Cvoid, (Ptr{Cvoid},), address)
    elseif kind == TAG_STREAM
        # When Julia ends, a finalizer may get here, which must not take a lock. The driver ends its streams itself.
        EXITING[] || close_stream(UInt64(UInt(address)))
    else
        ccall(release_function(kind), Cvoid, (Ptr{Ptr{Cvoid}},), Ref(address))
    end
    return nothing
end

@inline function release_function(kind)
    kind == TAG_TENSOR && return devx_tensor_release[]
    kind == TAG_BATCH && return devx_batch_release[]
    kind == TAG_SCHEMA && return devx_schema_release[]
    kind == TAG_BATCH_STREAM && return devx_batch_stream_release[]
    kind == TAG_ASYNC_READER && return devx_async_reader_release[]
    kind == TAG_ASYNC_WRITER && return devx_async_writer_release[]
    kind == TAG_MANAGER && return devx_manager_release[]
    kind == TAG_IPC_SERVER && return devx_ipc_server_release[]
    kind == TAG_IPC_CLIENT && return devx_ipc_client_release[]
    return devx_metadata_release[]
end

# Makes another reference to the same thing.
share_handle(handle::Handle{TAG_TENSOR}, ::Type{H}=typeof(handle)) where {H<:Handle} = made(H) do out
    @checked devx_tensor_share(handle::Handle, out::Ptr{Ptr{Cvoid}})
end
share_handle(handle::Handle{TAG_BATCH}, ::Type{H}=typeof(handle)) where {H<:Handle} = made(H) do out
    @checked devx_batch_share(handle::Handle, out::Ptr{Ptr{Cvoid}})
end
share_handle(handle::Handle{TAG_SCHEMA}, ::Type{H}=typeof(handle)) where {H<:Handle} = made(H) do out
    @checked devx_schema_share(handle::Handle, out::Ptr{Ptr{Cvoid}})
end

# `deepcopy`: a second handle with the same address would release the one reference again. Batches and schemas never
# change, so another reference serves as a copy; `Tensor` copies its own elements.
function Base.deepcopy_internal(handle::Handle{TAG}, seen::IdDict) where {TAG}
    haskey(seen, handle) && return seen[handle]
    TAG in (TAG_BATCH, TAG_SCHEMA) ||
        throw(DevExchangeError(DEVX_UNSUPPORTED, "the $(kind_name(TAG)) cannot be copied: there is one of it"))
    return seen[handle] = share_handle(handle)
end

# `Serialization` writes pointers as NULL, and another process could not use them anyway.
Serialization.serialize(::AbstractSerializer, ::Handle{TAG}) where {TAG} = throw(DevExchangeError(DEVX_UNSUPPORTED,
    "the $(kind_name(TAG)) is of this process and cannot be serialized: send an `Array` of the elements, or offer it to " *
    "the other process with an `IpcServer`"))

# The finalizer. It can run anywhere, so it only pushes a token. When Julia ends, nobody takes tokens any more, and it
# releases directly: a foreign release is called at shutdown, too.
function give_up(handle::Handle{TAG}) where {TAG}
    Threads.atomic_or!(handle.users, CLOSED) == 0 && handle.address != C_NULL && give_up(TAG, handle.address)
    return nothing
end

function give_up(tag, address::Ptr{Cvoid})
    if EXITING[]
        release_handle(tag, address)
    else
        ccall(devx_julia_push[], DevxStatus, (UInt64,), address_token(UInt(address), tag))
    end
    return nothing
end

# A handle with a NULL address counts as closed, whatever it was made for.
Base.isopen(handle::Handle) = handle.users[] >= 0 && handle.address != C_NULL

function Base.close(handle::Handle)
    Threads.atomic_or!(handle.users, CLOSED) == 0 && handle.address != C_NULL && release_handle(handle)
    return nothing
end

@noinline closed(::Handle{TAG}) where {TAG} =
    DevExchangeError(DEVX_CLOSED, "the $(kind_name(TAG)) is not there any more: it was closed or moved away")

@inline require_open(handle::Handle) = isopen(handle) || throw(closed(handle))

# The address for a `ccall`, which keeps alive the object that it is converted from. The caller has to prevent a close
# meanwhile. The calls of this module use `held`.
function Base.unsafe_convert(::Type{Ptr{Cvoid}}, handle::Handle)
    require_open(handle)
    return handle.address
end

# Returns the address, which stays valid even if the handle is closed, until `leave` is called: exactly once, whatever
# happens.
@inline function enter(handle::Handle)
    users = handle.users[]
    handle.address == C_NULL && throw(closed(handle))
    while true
        users < 0 && throw(closed(handle))
        found = Threads.atomic_cas!(handle.users, users, users + 1)
        found == users && return handle.address
        users = found
    end
end

@inline function leave(handle::Handle)
    Threads.atomic_sub!(handle.users, 1) == CLOSED + 1 && release_handle(handle)
    return nothing
end

# Calls `f` with the address, where `@checked` with a handle is not enough.
function held(f, handle::Handle)
    address = enter(handle)
    try
        return f(address)
    finally
        leave(handle)
    end
end

# Calls `f` with a reference to the address, for a function of the C API that takes it and sets it to NULL. If `f`
# throws, the handle is as before. Nobody else uses the handle meanwhile; for others it is closed from now on. An interrupt
# is deferred until the end: thrown before the `try`, it would leave the handle entered.
moved(f, handle::Handle) = disable_sigint() do
    address = enter(handle)
    claim(handle)
    slot = Ref(address)
    try
        # Waits for calls that had begun: each is one call of the C API.
        while handle.users[] & ~CLOSED != 1
            yield()
        end
        # The task that moved the handle never leaves it, so nobody releases it.
        return f(slot)
    catch
        # It can fail after the move.
        slot[] == C_NULL || reopen(handle)
        rethrow()
    end
end

# Keeps others from entering a handle that this task has entered. If it throws, the handle was left.
function claim(handle::Handle)
    if Threads.atomic_or!(handle.users, GONE) < 0
        leave(handle)
        throw(closed(handle))
    end
    return nothing
end

# A call that uses a stream may be waiting for its source, and the source may be what moves the stream.
function claim(handle::Handle{TAG_BATCH_STREAM})
    users = Threads.atomic_cas!(handle.users, 1, GONE | 1)
    users == 1 && return nothing
    leave(handle)
    throw(users < 0 ? closed(handle) : DevExchangeError(DEVX_BUSY, "another call runs on the stream"))
end

# Undoes a move that failed. Other calls may still use the handle, if the wait for them was what failed. If the handle
# was closed meanwhile, it stays closed.
function reopen(handle::Handle)
    users = handle.users[]
    while users & CLOSED == GONE
        found = Threads.atomic_cas!(handle.users, users, users & ~CLOSED)
        found == users && break
        users = found
    end
    leave(handle)
end

# A reference that the finalizer of an object gives up. It is not a `Handle`: what only the finalizer of another object
# refers to is finalized itself, while that object is still in use.
struct Reference{TAG}
    address::Ptr{Cvoid}
end
(r::Reference{TAG})(_) where {TAG} = give_up(TAG, r.address)

# The object that arrays made from an array (`reshape`) refer to: from Julia 1.11 on its `Memory`, before that the
# array.
@static if VERSION >= v"1.11"
    memory_object(array::Array) = array.ref.mem
else
    memory_object(array::Array) = array
end

# Makes an `Array` over memory that belongs to `handle`. It has its own reference for as long as anything refers to the
# memory.
function wrap_memory(data::Ptr{T}, dims::Dims{N}, handle::Handle{TAG}) where {T,N,TAG}
    require_open(handle)
    prod(dims) == 0 && return Array{T,N}(undef, dims)
    reference = share_handle(handle, Handle{TAG | TAG_KEPT})
    array = unsafe_wrap(Array{T,N}, data, dims)
    disable_sigint() do
        finalizer(Reference{TAG | TAG_KEPT}(reference.address), memory_object(array))
        reference.address = C_NULL
    end
    return array
end
