# Tensors and batches shared with other processes of this machine.

"""
    IpcServer(address)
    IpcServer(f, address)

An exporter. Other processes of the same user can import what it offers under names ([`offer`](@ref)) with an
[`IpcClient`](@ref), without a copy. `address` is the path of a socket, or '@' and a name to which no file corresponds.
A thread of the library answers importers; it does not need Julia. If the process is killed, the file of a path stays,
and a server at this path is refused until the file is removed. The second form, for a `do` block, calls `f(server)`,
closes the server, and returns what `f` returned.

**Ownership, threads.** `close(server)` ends all offers, and waits until the address is free again, for a second at
most. What was given stays valid, and its memory is kept ([`leases`](@ref)), until it is released or its importer is
gone, whichever comes first. When this process ends, host memory that was given stays valid; device memory does not. Any
task may use a server.

Throws `DEVX_INVALID_ARGUMENT` for an invalid address, `DEVX_INVALID_TEXT`, `DEVX_SYSTEM` with the system's message, for
example if another server listens there.
"""
struct IpcServer
    handle::Handle{TAG_IPC_SERVER}

    IpcServer(handle::Handle{TAG_IPC_SERVER}) = new(handle)
end

"""
    IpcClient(address; timeout=10)
    IpcClient(f, address; timeout=10)

An importer's connection to the [`IpcServer`](@ref) at an address: [`import_tensor`](@ref), [`import_batch`](@ref). The
client waits up to `timeout` seconds for each answer (`Inf` for no limit). The calling thread blocks meanwhile, but the
garbage collector does not wait for it. The second form, for a `do` block, calls `f(client)`, closes the client, and
returns what `f` returned.

An exporter is trusted like a producer in this process: that the memory holds what the exporter says (the offsets of a
batch are followed as they are), and that nobody writes it while it is read here. No check can find that.

**Ownership, threads.** `close(client)` gives the connection up; what was imported stays valid. Any task may use a
client.

Throws `DEVX_INVALID_ARGUMENT` for an invalid address and for a negative `timeout`, `DEVX_INVALID_TEXT`, `DEVX_SYSTEM`
if nobody listens there or the peer is another user's process, `DEVX_NOT_READY` if there is no answer in time,
`DEVX_VERSION`, `DEVX_CLOSED` if the exporter ends meanwhile, `DEVX_BUSY` if it has 512 importers already.
"""
struct IpcClient
    handle::Handle{TAG_IPC_CLIENT}

    IpcClient(handle::Handle{TAG_IPC_CLIENT}) = new(handle)
end

function IpcServer(address::AbstractString)
    text = ctext(address, "address")
    return IpcServer(made(Handle{TAG_IPC_SERVER}) do out
        @checked devx_ipc_server_create(text::Ptr{UInt8}, out::Ptr{Ptr{Cvoid}})
    end)
end

function IpcClient(address::AbstractString; timeout::Real=DEVX_IPC_TIMEOUT_NS ÷ 10^9)
    text = ctext(address, "address")
    limit = nanoseconds(timeout, "timeout")
    return IpcClient(made(Handle{TAG_IPC_CLIENT}) do out
        @checked_while_waiting devx_ipc_client_create(text::Ptr{UInt8}, limit::Int64, out::Ptr{Ptr{Cvoid}})
    end)
end

IpcServer(f, address::AbstractString) = closing(f, IpcServer(address))
IpcClient(f, address::AbstractString; keywords...) = closing(f, IpcClient(address; keywords...))

function closing(f, x::Union{IpcServer,IpcClient})
    try
        return f(x)
    finally
        close(x)
    end
end

Base.isopen(x::Union{IpcServer,IpcClient}) = isopen(x.handle)
Base.close(x::Union{IpcServer,IpcClient}) = close(x.handle)
Base.show(io::IO, x::Union{IpcServer,IpcClient}) = print(io, nameof(typeof(x)), isopen(x) ? "" : " (closed)")

"""
    offer(server::IpcServer, name, x; copy=:never)

Offers a [`Tensor`](@ref) or [`Batch`](@ref) under a name, in place of any earlier offer of that name. It is shared:
importers get the same memory, which stays valid until the last of them has released it or is gone. `x` may be closed.
The importers' streams wait for the work that its producer has queued until now.

Device memory is shared as it is, unless it is from another process, or from a pool that was not made to be shared
([`pool_manager`](@ref) with `shareable=true`). Such memory, pinned and managed memory, and host memory that is neither
from [`allocate_shared`](@ref) nor from another process is copied, if `copy` (`:never`, `:if_needed` or `:always`)
allows it; [`plan_offer`](@ref) says in advance what will happen. Importers cannot write the host memory of a batch or
of a read-only tensor.

Throws `DEVX_COPY_REQUIRED` or `DEVX_IMPOSSIBLE` with the reason, `DEVX_INVALID_ARGUMENT` for a name that is empty or
too long, `DEVX_INVALID_TEXT`, `DEVX_SYSTEM`, `DEVX_DRIVER`, `DEVX_CLOSED`.
"""
offer(s::IpcServer, name::AbstractString, t::Tensor; copy=:never) =
    offered(s, name, t.handle, copy) do server, text, tensor, code
        @checked devx_ipc_server_offer_tensor(
            server::Ptr{Cvoid}, text::Ptr{UInt8}, tensor::Ptr{Cvoid}, code::Int32)
    end
offer(s::IpcServer, name::AbstractString, b::Batch; copy=:never) =
    offered(s, name, b.handle, copy) do server, text, batch, code
        @checked devx_ipc_server_offer_batch(
            server::Ptr{Cvoid}, text::Ptr{UInt8}, batch::Ptr{Cvoid}, code::Int32)
    end

function offered(f, s::IpcServer, name, handle, copy)
    text, code = ctext(name, "name"), copy_code(copy)
    held(server -> held(x -> f(server, text, x, code), handle), s.handle)
    return nothing
end

"""
    withdraw(server::IpcServer, name) -> Bool

Ends an offer and returns whether there was one under this name. What was given of it stays valid. Throws
`DEVX_INVALID_TEXT`, `DEVX_UNSUPPORTED` in a child of a fork, `DEVX_CLOSED`.
"""
function withdraw(s::IpcServer, name::AbstractString)
    text, out = ctext(name, "name"), Ref{Int32}(0)
    @checked devx_ipc_server_withdraw(s.handle::Handle, text::Ptr{UInt8}, out::Ptr{Int32})
    return out[] != 0
end

"""
    leases(server::IpcServer) -> Int

Returns how many leases were given to importers and are not released yet. What an importer holds and imports again with
the same client counts once, unless an offer has changed. Throws `DEVX_CLOSED`.
"""
function leases(s::IpcServer)
    out = Ref{Int64}(0)
    @checked devx_ipc_server_leases(s.handle::Handle, out::Ptr{Int64})
    return Int(out[])
end

"""
    import_tensor(client::IpcClient, name) -> Tensor

Imports the tensor that is offered under a name, without a copy: the same memory, type, shape, strides and order.
Element type and number of dimensions are known only at run time. The tensor may outlive the client; `close` tells the
exporter that it is released, after the work that was named with [`used_on`](@ref).

Throws `DEVX_INVALID_ARGUMENT` if nothing is offered under this name, `DEVX_MISMATCH` if it is a batch, `DEVX_CLOSED` if
the exporter is gone, `DEVX_NOT_READY` if it does not answer in time, `DEVX_BUSY` if this client holds too much already,
`DEVX_UNSUPPORTED` for elements that a Julia array cannot have and in a child of a fork, `DEVX_DEVICE`, `DEVX_DRIVER`,
`DEVX_SYSTEM`, `DEVX_INVALID_TEXT`.
"""
function import_tensor(c::IpcClient, name::AbstractString)
    text = ctext(name, "name")
    return adopt_tensor(made(Handle{TAG_TENSOR}) do out
        @checked_while_waiting devx_ipc_client_import_tensor(c.handle::Handle, text::Ptr{UInt8}, out::Ptr{Ptr{Cvoid}})
    end)
end

"""
    import_batch(client::IpcClient, name) -> Batch

Like [`import_tensor`](@ref), but for a batch. A batch in host memory cannot be written.
"""
function import_batch(c::IpcClient, name::AbstractString)
    text = ctext(name, "name")
    return adopt_batch(made(Handle{TAG_BATCH}) do out
        @checked_while_waiting devx_ipc_client_import_batch(c.handle::Handle, text::Ptr{UInt8}, out::Ptr{Ptr{Cvoid}})
    end)
end

"""
    allocate_shared(T, dims) -> Tensor{T}
    allocate_shared(T, dims...) -> Tensor{T}

Makes a host tensor over memory that can be offered to other processes without a copy ([`offer`](@ref)): zeroed, compact
and **row-major**, like `allocate(T, dims, device)`. Throws `DEVX_OUT_OF_MEMORY`, `DEVX_INVALID_SHAPE`,
`DEVX_UNSUPPORTED`, `DEVX_SYSTEM`.
"""
allocate_shared(::Type{T}, dim::Integer, more::Integer...) where {T} = allocate_shared(T, (dim, more...))
function allocate_shared(::Type{T}, dims::NTuple{N,Integer}) where {T,N}
    d, extents = memory_dtype(T), Ref(extents_of(dims))
    handle = made(Handle{TAG_TENSOR}) do out
        GC.@preserve extents begin
            shape = address_of(extents)
            @checked devx_tensor_allocate_shared(d::DLDataType, shape::Ptr{Int64}, N::Csize_t, out::Ptr{Ptr{Cvoid}})
        end
    end
    return adopt_tensor(Tensor{T,N}, handle)
end

"""
    plan_offer(x) -> Plan

Says how a [`Tensor`](@ref) or [`Batch`](@ref) can be offered to other processes ([`offer`](@ref)): as a view, with a
copy, or not at all, and why. Nothing is taken. To tell the size of a copy of texts on a device, the host waits for
their last offsets. Throws `DEVX_CLOSED`.
"""
plan_offer(t::Tensor) = planned(t.handle) do tensor, record
    @checked devx_ipc_plan_tensor(tensor::Ptr{Cvoid}, record::Ptr{DevxPlan})
end
plan_offer(b::Batch) = planned(b.handle) do batch, record
    @checked devx_ipc_plan_batch(batch::Ptr{Cvoid}, record::Ptr{DevxPlan})
end
