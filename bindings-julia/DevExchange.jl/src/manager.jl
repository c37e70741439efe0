# Who allocates: memory managers, and memory of theirs.

"""
    MemoryManager

A memory manager: it allocates device, pinned and managed memory, and decides when that is really given back. The
interface is that of Numba's external memory management plugin (version 1), with streams added. There are
[`driver_manager`](@ref), [`managed_manager`](@ref), [`host_only_manager`](@ref), [`pool_manager`](@ref),
[`limited_manager`](@ref), and [`MemoryManager(allocate; ...)`](@ref MemoryManager(::Any)) over functions of one's own.

```julia
pool = pool_manager(limit=1 << 30)
t = allocate(pool, Float32, (1024, 1024), DevExchange.cuda(); stream=stream)
```

**Ownership, threads.** One reference, given up once by `close` or, if need be, by the finalizer. Memory that a manager
gave outlives it, and is given back as any other: once, on any thread. Any task may use a manager.
"""
struct MemoryManager
    handle::Handle{TAG_MANAGER}

    MemoryManager(handle::Handle{TAG_MANAGER}) = new(handle)
end

"""
    Allocation

Memory of a [`MemoryManager`](@ref), not initialised (`allocate(manager, bytes, device)`), or memory that one has
pinned ([`pin`](@ref)): `address`, `bytes` and `device`. `pointer(a)` is the address, too, and throws `DEVX_CLOSED` if
the memory is not there any more.

`close(a)` gives it back (or unpins it), once, whether or not the manager is still there; the finalizer is the net.
"""
struct Allocation
    handle::Handle{TAG_ALLOCATION}
    address::Ptr{Cvoid}
    bytes::Int
    device::DLDevice
end

Base.isopen(x::Union{MemoryManager,Allocation}) = isopen(x.handle)
Base.close(x::Union{MemoryManager,Allocation}) = close(x.handle)
Base.show(io::IO, m::MemoryManager) = print(io, "MemoryManager", isopen(m) ? "" : " (closed)")
Base.show(io::IO, a::Allocation) =
    print(io, "Allocation of ", a.bytes, " bytes", isopen(a) ? " on $(device_name(a.device))" : " (closed)")

function Base.pointer(a::Allocation)
    require_open(a.handle)
    return a.address
end

device(a::Allocation) = a.device

# ---- those that come with the library ----

"""
    driver_manager() -> MemoryManager

A manager that asks the driver for each allocation: every kind of memory. With a stream, device memory comes from the
device's default pool. The driver is looked for when memory is asked for.
"""
function driver_manager()
    return MemoryManager(made(Handle{TAG_MANAGER}) do out
        @checked devx_manager_create_driver(out::Ptr{Ptr{Cvoid}})
    end)
end

"""
    managed_manager() -> MemoryManager

As [`driver_manager`](@ref), with managed memory for every request of device memory.
"""
function managed_manager()
    return MemoryManager(made(Handle{TAG_MANAGER}) do out
        @checked devx_manager_create_managed(out::Ptr{Ptr{Cvoid}})
    end)
end

"""
    host_only_manager() -> MemoryManager

A manager of plain and pinned host memory only; other requests throw `DEVX_UNSUPPORTED`.
"""
function host_only_manager()
    return MemoryManager(made(Handle{TAG_MANAGER}) do out
        @checked devx_manager_create_host_only(out::Ptr{Ptr{Cvoid}})
    end)
end

"""
    pool_manager(; limit=nothing, keep=nothing, shareable=false) -> MemoryManager

A manager with a stream-ordered pool of its own on each device: at most `limit` bytes in use over all devices, and up to
`keep` unused bytes kept on each; `nothing` for no limit. Out of memory, it trims, waits for the stream and tries once
more. The memory of a `shareable` one can be offered to other processes ([`offer`](@ref)).

Throws `DEVX_INVALID_ARGUMENT` for negative numbers.
"""
function pool_manager(; limit=nothing, keep=nothing, shareable::Bool=false)
    most, kept = byte_limit("limit", limit), byte_limit("keep", keep)
    return MemoryManager(made(Handle{TAG_MANAGER}) do out
        if shareable
            @checked devx_manager_create_shareable_pool(most::Int64, kept::Int64, out::Ptr{Ptr{Cvoid}})
        else
            @checked devx_manager_create_pool(most::Int64, kept::Int64, out::Ptr{Ptr{Cvoid}})
        end
    end)
end

"""
    limited_manager(inner::MemoryManager, limit=nothing) -> MemoryManager

A manager that lets another one have at most `limit` bytes in use, over all devices; `nothing` only counts. The other
one is shared: it may be closed.

Throws `DEVX_INVALID_ARGUMENT` for a negative limit, `DEVX_TOO_DEEP` over 64 managers that stand one over the other,
`DEVX_CLOSED`.
"""
function limited_manager(inner::MemoryManager, limit=nothing)
    most = byte_limit("limit", limit)
    handle = made(Handle{TAG_MANAGER}) do out
        @checked devx_manager_create_limited(inner.handle::Handle, most::Int64, out::Ptr{Ptr{Cvoid}})
    end
    return MemoryManager(handle)
end

# The C API has a negative number for no limit.
byte_limit(_, ::Nothing) = Int64(-1)
byte_limit(name, bytes::Integer) = byte_count(name, bytes)

function byte_count(name, bytes::Integer)
    0 <= bytes <= typemax(Int64) || throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
        "$name is $bytes: it must be between 0 and $(typemax(Int64))"))
    return Int64(bytes)
end

# Calls `f` with the address of a manager, which may be one of Julia's, and then asks this thread.
function at(f, m::MemoryManager)
    mark_thread()
    return held(f, m.handle)
end

# ---- memory ----

"""
    allocate(m::MemoryManager, bytes, device::DLDevice; stream=nothing, host_flags=0) -> Allocation

Memory of a manager, not initialised; `device` also says of which kind: `DevExchange.cuda(id)`, `DevExchange.PINNED`,
`DevExchange.MANAGED`, `DevExchange.CPU`. With a `stream` device memory is given and taken back in the order of that
stream, if the manager can do that; the stream may be closed meanwhile ([`DeviceStream`](@ref)). Without one it is ready
at once, or, if it is of a pool, in the order of the legacy default stream. `host_flags` are those of pinned memory
(`DevExchange.DEVX_HOST_...`).

Throws `DEVX_OUT_OF_MEMORY`, `DEVX_UNSUPPORTED` for a kind that this manager does not have, `DEVX_INVALID_ARGUMENT` for a
negative number of bytes and for other flags, `DEVX_INVALID_STREAM`, `DEVX_DEVICE`, `DEVX_DRIVER`,
`DEVX_CLOSED`, and what a manager of one's own throws.
"""
function allocate(m::MemoryManager, bytes::Integer, device::DLDevice; stream=nothing, host_flags::Integer=0)
    count, flags = byte_count("bytes", bytes), number(UInt32, host_flags, "host_flags")
    refuse_in_cache()
    out = Ref(NO_MEMORY)
    try
        on_stream(stream) do stream
            request = Ref(DevxMemoryRequest(device.device_type, device.device_id, count, stream, flags, 0))
            at(m) do manager
                @checked devx_manager_allocate(
                    manager::Ptr{Cvoid}, request::Ptr{DevxMemoryRequest}, out::Ptr{DevxMemory})
            end
        end
        return disable_sigint(() -> take_memory!(out, count))
    catch
        # An interrupt may come when the memory is there, and nobody has it.
        release(out[].owner)
        rethrow()
    end
end

const NO_MEMORY = DevxMemory(C_NULL, 0, 0, DevxOwner(C_NULL, C_NULL))

function take_memory!(out, count)
    memory, out[] = out[], NO_MEMORY
    return Allocation(keep(memory.owner), memory.address, count, DLDevice(memory.device_type, memory.device_id))
end

"""
    allocate(m::MemoryManager, T, dims, device::DLDevice; stream=nothing) -> Tensor{T}

As `allocate(T, dims, device)`, over memory of a manager: not initialised, compact and **row-major**.
"""
allocate(m::MemoryManager, ::Type{T}, dims::Integer, device::DLDevice; stream=nothing) where {T} =
    allocate(m, T, (dims,), device; stream=stream)
function allocate(m::MemoryManager, ::Type{T}, dims::NTuple{N,Integer}, device::DLDevice; stream=nothing) where {T,N}
    d, extents = memory_dtype(T), Ref(extents_of(dims))
    handle = made(Handle{TAG_TENSOR}) do out
        on_stream(stream) do value
            GC.@preserve extents begin
                shape = address_of(extents)
                at(m) do manager
                    @checked devx_tensor_allocate_with(manager::Ptr{Cvoid}, device::DLDevice, d::DLDataType,
                        shape::Ptr{Int64}, N::Csize_t, value::Int64, out::Ptr{Ptr{Cvoid}})
                end
            end
        end
    end
    return adopt_tensor(Tensor{T,N}, handle; ready=stream === nothing)
end

"""
    pin(m::MemoryManager, array::Array; device_id=0, host_flags=0) -> Allocation
    pin(m::MemoryManager, address::Ptr, bytes; device_id=0, host_flags=0, root=nothing) -> Allocation

Pins host memory that is there already, for a CUDA device, until the result is closed. The memory outlives that: an
array and `root` are kept alive until then. An array must not be resized meanwhile. `host_flags` are
`DevExchange.DEVX_HOST_...` bits.

Throws as [`allocate`](@ref), and `DEVX_UNSUPPORTED` for an array whose elements are no plain values.
"""
function pin(m::MemoryManager, array::Array{T}; keywords...) where {T}
    isbitstype(T) || throw(DevExchangeError(DEVX_UNSUPPORTED, "eltype is $T: its values are not in the array"))
    return GC.@preserve array pin(m, pointer(array), sizeof(array); root=array, keywords...)
end

function pin(m::MemoryManager, address::Ptr, bytes::Integer; device_id::Integer=0, host_flags::Integer=0, root=nothing)
    count = byte_count("bytes", bytes)
    handle = owned(root, references(root), nothing) do after
        out = Ref(DevxOwner(C_NULL, C_NULL))
        at(m) do manager
            @checked devx_manager_pin(manager::Ptr{Cvoid}, device_id::Int32, address::Ptr{Cvoid}, count::Csize_t,
                host_flags::UInt32, out::Ptr{DevxOwner})
        end
        keep(out[], after[])
    end
    return Allocation(handle, Ptr{Cvoid}(address), count, DLDevice(kDLCUDAHost, 0))
end

# An owner of the C API, and one that is released after it. If this throws, `owner` is released, and `after` is not.
function keep(owner::DevxOwner, after=DevxOwner(C_NULL, C_NULL))
    kept = ccall(devx_julia_keep[], Ptr{Cvoid}, (Ptr{DevxOwner}, Ptr{DevxOwner}), Ref(owner), Ref(after))
    if kept == C_NULL
        release(owner)
        throw(DevExchangeError(DEVX_OUT_OF_MEMORY, "there is no memory to keep an allocation"))
    end
    return Handle{TAG_ALLOCATION}(kept)
end

release(owner::DevxOwner) =
    owner.release == C_NULL ? nothing : ccall(owner.release, Cvoid, (Ptr{Cvoid},), owner.context)

# ---- what else a manager does ----

"""
    initialize(m::MemoryManager, device_id=0)

Prepares a manager for allocations on a CUDA device. May be called any number of times, and need not be. Throws what
keeps the manager from working there, `DEVX_CLOSED`.
"""
initialize(m::MemoryManager, device_id::Integer=0) = at(m) do manager
    @checked devx_manager_initialize(manager::Ptr{Cvoid}, device_id::Int32)
end

"""
    memory_info(m::MemoryManager, device_id=0) -> (free_bytes, total_bytes)

How much memory there is for a manager on a CUDA device: a named tuple. Throws `DEVX_UNSUPPORTED` if it cannot say,
`DEVX_DEVICE`, `DEVX_CLOSED`.
"""
function memory_info(m::MemoryManager, device_id::Integer=0)
    out = Ref{DevxMemoryInfo}()
    at(m) do manager
        @checked devx_manager_memory_info(manager::Ptr{Cvoid}, device_id::Int32, out::Ptr{DevxMemoryInfo})
    end
    return as_named_tuple(out[])
end

"""
    ipc_handle(m::MemoryManager, memory) -> (handle, offset, bytes, device_id)

The driver's handle for the allocation that an address of a manager's lies in, as a named tuple: 64 bytes, where the
address is in the allocation, how large that is, and its device. `memory` is an [`Allocation`](@ref), a [`Tensor`](@ref)
or a `Ptr`. It is for programs that send handles on their own (`cuIpcOpenMemHandle`): the memory must live until the
other process has closed it. [`offer`](@ref) sees to all of that by itself, and shares memory of pools, which has no
such handle.

Throws `DEVX_UNSUPPORTED` for memory without a handle, `DEVX_DRIVER`, `DEVX_CLOSED`.
"""
function ipc_handle(m::MemoryManager, memory::Union{Allocation,Tensor,Ptr})
    address = memory isa Ptr ? memory : pointer(memory)
    out = Ref{DevxIpcHandle}()
    GC.@preserve memory at(m) do manager
        @checked devx_manager_ipc_handle(manager::Ptr{Cvoid}, address::Ptr{Cvoid}, out::Ptr{DevxIpcHandle})
    end
    found = out[]
    return (handle=found.handle, offset=Int(found.offset), bytes=Int(found.bytes), device_id=Int(found.device_id))
end

"""
    reset!(m::MemoryManager, device_id=0)

Gives all memory of a CUDA device back, **also what is still in use**: its owners have nothing to do any more. Nobody uses
it after this, and no other thread gives it up meanwhile. Plain host memory belongs to no device, and stays. A limited
manager resets the one that it asks, too, and with it the memory that others have of that one.

This comes before a reset of the device itself (`cudaDeviceReset`, `cuDevicePrimaryCtxReset`), which takes its memory:
what is given up after that, the driver does not know any more, and it counts as lost ([`releases_lost`](@ref)), or the
driver has given it to somebody else since.

Throws what a manager of one's own says, `DEVX_CLOSED`.
"""
reset!(m::MemoryManager, device_id::Integer=0) = at(m) do manager
    @checked devx_manager_reset(manager::Ptr{Cvoid}, device_id::Int32)
end

"""
    trim!(m::MemoryManager, device_id=0; keep=0)

Gives unused memory of a CUDA device back to the driver, except for `keep` bytes. Throws `DEVX_INVALID_ARGUMENT` for a
negative number, `DEVX_DRIVER`, `DEVX_CLOSED`.
"""
function trim!(m::MemoryManager, device_id::Integer=0; keep::Integer=0)
    most = byte_count("keep", keep)
    at(m) do manager
        @checked devx_manager_trim(manager::Ptr{Cvoid}, device_id::Int32, most::Csize_t)
    end
    return nothing
end

"""
    defer_cleanup(f, m::MemoryManager)

Calls `f()` and returns what it returns. Memory that is given up meanwhile is held back until the end, so that what is
expensive about giving it back does not happen in between; memory in the order of a stream is given back to its pool at
once. These may be nested, and several tasks may do it.

```julia
defer_cleanup(manager) do
    launch_and_record()
end
```

Throws what `f` throws, `DEVX_CLOSED`.
"""
function defer_cleanup(f, m::MemoryManager)
    # All the time, so that whoever closes the manager meanwhile does not keep it from ending this.
    return at(m) do manager
        @checked devx_manager_defer_cleanup(manager::Ptr{Cvoid})
        try
            throw_interrupt()
            f()
        finally
            @checked devx_manager_resume_cleanup(manager::Ptr{Cvoid})
            throw_interrupt()
        end
    end
end

"""
    statistics(m::MemoryManager) -> NamedTuple

What a manager allocated and got back: `bytes` and `allocations` in use now, `peak_bytes` at the most, `total_bytes` and
`total_allocations` since the beginning, and how many requests were `refused` for want of memory. Throws `DEVX_CLOSED`.
"""
function statistics(m::MemoryManager)
    out = Ref{DevxManagerStatistics}()
    @checked devx_manager_get_statistics(m.handle::Handle, out::Ptr{DevxManagerStatistics})
    return as_named_tuple(out[])
end

# A record of numbers.
as_named_tuple(r::R) where {R} = NamedTuple{fieldnames(R)}(ntuple(k -> Int(getfield(r, k)), fieldcount(R)))
