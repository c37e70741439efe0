# Memory managers, and their memory.

"""
    MemoryManager

A memory manager: it allocates device, pinned and managed memory, and decides when the memory is really given back. The
interface is that of Numba's external memory management plugin (version 1), with streams added. There are
[`driver_manager`](@ref), [`managed_manager`](@ref), [`host_only_manager`](@ref), [`pool_manager`](@ref),
[`limited_manager`](@ref), and [`MemoryManager(allocate; ...)`](@ref MemoryManager(::Any)) over your own functions.

```julia
pool = pool_manager(limit=1 << 30)
t = allocate(pool, Float32, (1024, 1024), DevExchange.cuda(); stream=stream)
```

**Ownership, threads.** One reference, given up once by `close` or, if forgotten, by the finalizer. A function of your
own manager that refers to the manager keeps it reachable: it must be closed. Memory of a manager outlives the manager,
and is given back like any other: once, on any thread. Any task may use a manager.
"""
struct MemoryManager
    handle::Handle{TAG_MANAGER}

    MemoryManager(handle::Handle{TAG_MANAGER}) = new(handle)
end

"""
    Allocation

Memory of a [`MemoryManager`](@ref), not initialised (`allocate(manager, bytes, device)`), or memory that a manager has
pinned ([`pin`](@ref)): `address`, `bytes` and `device`. `pointer(a)` is the address, too, and throws `DEVX_CLOSED` if
the memory was given back.

`close(a)` gives the memory back (or unpins it), once, whether or not the manager still exists; otherwise the finalizer
does.
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

# ---- managers of the library ----

"""
    driver_manager() -> MemoryManager

Makes a manager that calls the driver for each allocation and has every kind of memory. With a stream, device memory
comes from the device's default pool. The driver is loaded when memory is first requested.
"""
function driver_manager()
    return MemoryManager(made(Handle{TAG_MANAGER}) do out
        @checked devx_manager_create_driver(out::Ptr{Ptr{Cvoid}})
    end)
end

"""
    managed_manager() -> MemoryManager

Like [`driver_manager`](@ref), but gives managed memory for every request of device memory.
"""
function managed_manager()
    return MemoryManager(made(Handle{TAG_MANAGER}) do out
        @checked devx_manager_create_managed(out::Ptr{Ptr{Cvoid}})
    end)
end

"""
    host_only_manager() -> MemoryManager

Makes a manager of plain and pinned host memory only; other requests throw `DEVX_UNSUPPORTED`.
"""
function host_only_manager()
    return MemoryManager(made(Handle{TAG_MANAGER}) do out
        @checked devx_manager_create_host_only(out::Ptr{Ptr{Cvoid}})
    end)
end

"""
    pool_manager(; limit=nothing, keep=nothing, shareable=false) -> MemoryManager

Makes a manager with its own stream-ordered pool on each device: at most `limit` bytes in use over all devices, and up
to `keep` unused bytes kept on each; `nothing` for no limit. It has device and pinned memory only; other requests throw
`DEVX_UNSUPPORTED`. If memory runs out, it waits for the stream, trims and tries once more. With `shareable`, its device
memory can be offered to other processes ([`offer`](@ref)).

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

Makes a manager that lets `inner` have at most `limit` bytes in use, over all devices; with `nothing` it only counts.
`inner` is shared and may be closed. Memory ceases to count when it is given up; a `release` function of a manager in
Julia may run later ([`drain`](@ref)).

Throws `DEVX_INVALID_ARGUMENT` for a negative limit, `DEVX_TOO_DEEP` for more than 64 managers on top of each other,
`DEVX_CLOSED`.
"""
function limited_manager(inner::MemoryManager, limit=nothing)
    most = byte_limit("limit", limit)
    handle = made(Handle{TAG_MANAGER}) do out
        @checked devx_manager_create_limited(inner.handle::Handle, most::Int64, out::Ptr{Ptr{Cvoid}})
    end
    return MemoryManager(handle)
end

# In the C API a negative number means no limit.
byte_limit(_, ::Nothing) = Int64(-1)
byte_limit(name, bytes::Integer) = byte_count(name, bytes)

function byte_count(name, bytes::Integer)
    0 <= bytes <= typemax(Int64) || throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
        "$name is $bytes: it must be between 0 and $(typemax(Int64))"))
    return Int64(bytes)
end

# Calls `f` with the address of a manager. The manager may be written in Julia and then calls back on this thread.
function at(f, m::MemoryManager)
    mark_thread()
    return held(f, m.handle)
end

# ---- memory ----

"""
    allocate(m::MemoryManager, bytes, device::DLDevice; stream=nothing, host_flags=0) -> Allocation

Allocates memory of a manager, not initialised. `device` also says the kind of memory: `DevExchange.cuda(id)`,
`DevExchange.PINNED`, `DevExchange.MANAGED`, `DevExchange.CPU`. With a `stream`, device memory is allocated and given
back in the order of that stream, if the manager supports this; the stream may be closed meanwhile
([`DeviceStream`](@ref)). Without a stream the memory is ready when this returns: for memory of a pool, the calling
thread waits for that. `host_flags` are those of pinned memory (`DevExchange.DEVX_HOST_...`).

Throws `DEVX_OUT_OF_MEMORY`, `DEVX_UNSUPPORTED` for a kind that this manager does not have, `DEVX_INVALID_ARGUMENT` for
a negative number of bytes and for other flags, `DEVX_INVALID_STREAM`, `DEVX_DEVICE`, `DEVX_DRIVER`, `DEVX_CLOSED`, and
what your own manager throws.
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
        # An interrupt can come when the memory is allocated and nobody has it.
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

Like `allocate(T, dims, device)`, but over memory of a manager: not initialised, compact and **row-major**. Pinned and
managed memory is requested for the device of the stream, without a stream for device 0. Without a stream, memory of a
pool is in the order of the legacy default stream.
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

Pins existing host memory for a CUDA device, until the result is closed. The memory must be valid until then; an array
and `root` are kept alive. An array must not be resized meanwhile. `host_flags` are `DevExchange.DEVX_HOST_...` bits;
the managers of this library refuse `DEVX_HOST_WRITE_COMBINED`, which existing memory cannot become.

Throws the errors of [`allocate`](@ref), and `DEVX_UNSUPPORTED` for an array whose elements are not plain values.
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

# Keeps an owner of the C API, and one that is released after it. If this throws, `owner` is released and `after` is
# not.
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

# ---- other functions of a manager ----

"""
    initialize(m::MemoryManager, device_id=0)

Prepares a manager for allocations on a CUDA device. It may be called any number of times, and need not be called.
Throws what prevents the manager from working there, `DEVX_CLOSED`.
"""
initialize(m::MemoryManager, device_id::Integer=0) = at(m) do manager
    @checked devx_manager_initialize(manager::Ptr{Cvoid}, device_id::Int32)
end

"""
    memory_info(m::MemoryManager, device_id=0) -> (free_bytes, total_bytes)

Returns how much memory a manager has on a CUDA device, as a named tuple. Throws `DEVX_UNSUPPORTED` if the manager
cannot tell (one of host memory only never can), `DEVX_DEVICE`, `DEVX_CLOSED`.
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

Returns the driver's handle for the allocation that contains an address of a manager's memory, as a named tuple: 64
bytes, the offset of the address in the allocation, the size of the allocation, and its device. `memory` is an
[`Allocation`](@ref), a [`Tensor`](@ref) or a `Ptr`. This is for programs that send handles themselves
(`cuIpcOpenMemHandle`): the memory must live until the other process has closed it. [`offer`](@ref) does all that by
itself, and also shares memory of pools, which has no such handle.

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

Gives back all memory of a CUDA device, **including memory that is still in use**: its owners have nothing to do any
more. Nobody may use that memory after this, and no other thread may give it up during the call. If cleanup was
deferred, no other thread may resume it, trim or allocate during the call either, because that may give back what was
kept. Plain host memory belongs to no device, and stays. A limited manager also resets the manager under it, and with it
the memory that others have from that one.

Call this before a reset of the device itself (`cudaDeviceReset`, `cuDevicePrimaryCtxReset`), which takes the device's
memory. Memory that is given up only after such a reset is unknown to the driver and counts as lost
([`releases_lost`](@ref)), or the driver has given it to someone else since.

Throws what your own manager throws, `DEVX_CLOSED`.
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

Calls `f()` and returns its result. Memory that is given up meanwhile is held back until the end, so that expensive
cleanup does not happen in between. Memory in the order of a stream still goes back to its pool at once, and memory of
[`pin`](@ref) is unpinned at once. [`trim!`](@ref) gives back what is held back, and so does a manager of this library
that runs out of memory. Such calls may be nested, and several tasks may make them.

```julia
defer_cleanup(manager) do
    launch_and_record()
end
```

Throws what `f` throws, `DEVX_CLOSED`.
"""
function defer_cleanup(f, m::MemoryManager)
    # Held throughout, so that closing the manager meanwhile does not prevent the resume.
    return at(m) do manager
        forget_interrupt()
        @checked devx_manager_defer_cleanup(manager::Ptr{Cvoid})
        try
            throw_interrupt()
            f()
        finally
            forget_interrupt()
            @checked devx_manager_resume_cleanup(manager::Ptr{Cvoid})
            throw_interrupt()
        end
    end
end

"""
    statistics(m::MemoryManager) -> NamedTuple

Returns what a manager allocated and got back: `bytes` and `allocations` in use now, `peak_bytes` as the maximum,
`total_bytes` and `total_allocations` since the beginning, and how many requests were `refused` for lack of memory.
Throws `DEVX_CLOSED`.
"""
function statistics(m::MemoryManager)
    out = Ref{DevxManagerStatistics}()
    @checked devx_manager_get_statistics(m.handle::Handle, out::Ptr{DevxManagerStatistics})
    return as_named_tuple(out[])
end

# Converts a record of numbers.
as_named_tuple(r::R) where {R} = NamedTuple{fieldnames(R)}(ntuple(k -> Int(getfield(r, k)), fieldcount(R)))
