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

Waits until the data of a tensor in pinned or managed memory may be touched, in the order of a stream, and for the work
queued on that stream. Returns another reference to the tensor, whose elements can be read here. Nothing is copied.

Throws `DEVX_DEVICE` for memory that the host cannot read, and the errors of [`wait_on`](@ref).
"""
function synchronize(t::Tensor{T,N}, stream::AnyStream) where {T,N}
    is_host(t.device) || throw(not_readable(t.device))
    in_order(t.handle, stream) do tensor, stream
        named = Ref{Int64}(0)
        @checked devx_tensor_wait(tensor::Ptr{Cvoid}, stream::Int64)
        # The memory determines which device a default stream belongs to.
        @checked devx_tensor_stream(tensor::Ptr{Cvoid}, stream::Int64, named::Ptr{Int64})
        @checked devx_stream_synchronize(t.device::DLDevice, named[]::Int64)
    end
    return Tensor{T,N}(share_handle(t.handle), t.data, t.size, t.strides, t.flags, t.device, true)
end
