# Tensors and batches in the order of streams.

"""
    wait_on(x, stream)

Makes a stream wait, on the device, until the data of a [`Tensor`](@ref) or [`Batch`](@ref) may be touched. Then queue
your own work on the data there. The host does not wait.

Throws `DEVX_DEVICE` if the data is not on a device with streams, `DEVX_INVALID_STREAM`, `DEVX_DRIVER`,
`DEVX_UNSUPPORTED` if the stream is being captured and would have to wait for work outside the capture, `DEVX_CLOSED`.
"""
wait_on(t::Tensor, stream::AnyStream) = in_order(t.handle, stream) do tensor, stream
    @checked devx_tensor_wait(tensor::Ptr{Cvoid}, stream::Int64)
end
wait_on(b::Batch, stream::AnyStream) = in_order(b.handle, stream) do batch, stream
    @checked devx_batch_wait(batch::Ptr{Cvoid}, stream::Int64)
end

"""
    used_on(x, stream)

Says that the work queued on a stream until now uses the data of a [`Tensor`](@ref) or [`Batch`](@ref): its memory is
released only when that work is done, however early `close` is called. Nothing waits for the work: the release comes
later, from a thread of the library ([`releases_waiting`](@ref)). Any task may call this, for any number of streams. The
copies of this module (`copy_to`, `read!`, `write!`) do this themselves.

Throws the errors of [`wait_on`](@ref); `DEVX_UNSUPPORTED` whenever the stream is being captured.
"""
used_on(t::Tensor, stream::AnyStream) = in_order(t.handle, stream) do tensor, stream
    @checked devx_tensor_used_on(tensor::Ptr{Cvoid}, stream::Int64)
end
used_on(b::Batch, stream::AnyStream) = in_order(b.handle, stream) do batch, stream
    @checked devx_batch_used_on(batch::Ptr{Cvoid}, stream::Int64)
end

"""
    produced_on(x, stream)

Says that the data of a [`Tensor`](@ref) or [`Batch`](@ref) is ready when the work queued on a stream is done: for your
own work that fills the data on a stream other than the one that `x` was made on, which is the legacy default stream if
no other was named, and on any stream for pinned or managed memory that was allocated here, which counts as ready at
once. Call it before the data is shared or exported, while no other task uses `x`. Memory that is given back in the
order of another stream then goes back only after this work, too. A [`DeviceStream`](@ref) may be closed before `x`.

Throws `DEVX_INVALID_ARGUMENT` if the data is shared already, `DEVX_DEVICE` if it is not on a device with streams; for
memory that is given back in the order of another stream, `DEVX_UNSUPPORTED` if the stream is being captured;
`DEVX_INVALID_STREAM`, `DEVX_DRIVER`, `DEVX_CLOSED`.
"""
produced_on(t::Tensor, stream::AnyStream) = in_order(t.handle, stream) do tensor, stream
    @checked devx_tensor_produced_on(tensor::Ptr{Cvoid}, stream::Int64)
end
produced_on(b::Batch, stream::AnyStream) = in_order(b.handle, stream) do batch, stream
    @checked devx_batch_produced_on(batch::Ptr{Cvoid}, stream::Int64)
end

function in_order(f, handle::Handle, stream::AnyStream)
    on_stream(value -> held(address -> f(address, value), handle), stream)
    return nothing
end

"""
    synchronize(t::Tensor, stream) -> Tensor
    synchronize(b::Batch, stream) -> Batch

Waits until the data of a tensor or a batch in pinned or managed memory may be touched, in the order of a stream, and for
the work queued on that stream. Returns another reference to the data, whose elements can be read here. Nothing is copied.

Throws `DEVX_DEVICE` for memory that the host cannot read, and the errors of [`wait_on`](@ref).
"""
function synchronize(t::Tensor{T,N}, stream::AnyStream) where {T,N}
    is_host(t.device) || throw(not_readable(t.device))
    in_order(t.handle, stream) do tensor, stream
        @checked devx_tensor_wait(tensor::Ptr{Cvoid}, stream::Int64)
        wait_here(tensor, t.device, stream)
    end
    return Tensor{T,N}(share_handle(t.handle), t.data, t.size, t.strides, t.flags, t.device, true)
end

function synchronize(b::Batch, stream::AnyStream)
    is_host(b.device) || throw(not_readable(b.device))
    address = any_address(b, root_record(b))
    # Without a buffer there is nothing to wait for.
    address == C_NULL || in_order(b.handle, stream) do batch, stream
        @checked devx_batch_wait(batch::Ptr{Cvoid}, stream::Int64)
        memory = Tensor(address, (1,); device=b.device)
        try
            held(tensor -> wait_here(tensor, b.device, stream), memory.handle)
        finally
            close(memory)
        end
    end
    return Batch(share_handle(b.handle), b.rows, b.columns, b.device, true)
end

# Waits for the work on a stream. The memory of the tensor determines which device a default stream belongs to.
function wait_here(tensor::Ptr{Cvoid}, device::DLDevice, stream::Int64)
    named = Ref{Int64}(0)
    @checked devx_tensor_stream(tensor::Ptr{Cvoid}, stream::Int64, named::Ptr{Int64})
    @checked devx_stream_synchronize(device::DLDevice, named[]::Int64)
end

# The first buffer of an array or of what is below it; NULL if there is none.
function any_address(b::Batch, record::DevxColumn)
    for k in 1:record.n_buffers
        address = GC.@preserve b buffer(record, k)
        address == C_NULL || return address
    end
    for k in 1:record.n_children
        address = any_address(b, child_record(b, record, k))
        address == C_NULL || return address
    end
    return Ptr{UInt8}(C_NULL)
end
