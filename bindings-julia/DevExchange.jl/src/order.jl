# Tensors and batches in the order of streams.

"""
    wait_on(x, stream)

Makes a stream wait, on the device, until the data of a [`Tensor`](@ref) or [`Batch`](@ref) may be touched: for work of
your own that is queued there afterwards. The host does not wait.

Throws `DEVX_DEVICE` if the data is not on a device with streams, `DEVX_INVALID_STREAM`, `DEVX_DRIVER`,
`DEVX_UNSUPPORTED` if the stream is being captured, `DEVX_CLOSED`.
"""
wait_on(t::Tensor, stream::AnyStream) = in_order(t.handle, stream) do tensor, stream
    @checked devx_tensor_wait(tensor::Ptr{Cvoid}, stream::Int64)
end
wait_on(b::Batch, stream::AnyStream) = in_order(b.handle, stream) do batch, stream
    @checked devx_batch_wait(batch::Ptr{Cvoid}, stream::Int64)
end

"""
    used_on(x, stream)

Says that work which is queued on a stream until now uses the data of a [`Tensor`](@ref) or [`Batch`](@ref): its memory
is released only when that work is done, however early `close` is called. Nobody waits for it: the release comes later,
from a thread of the library's ([`releases_waiting`](@ref)). From any task, for as many streams as there are. Copies of
this module (`copy_to`, `read!`, `write!`) see to it themselves.

Throws as [`wait_on`](@ref).
"""
used_on(t::Tensor, stream::AnyStream) = in_order(t.handle, stream) do tensor, stream
    @checked devx_tensor_used_on(tensor::Ptr{Cvoid}, stream::Int64)
end
used_on(b::Batch, stream::AnyStream) = in_order(b.handle, stream) do batch, stream
    @checked devx_batch_used_on(batch::Ptr{Cvoid}, stream::Int64)
end

"""
    produced_on(x, stream)

Says that the data of a [`Tensor`](@ref) or [`Batch`](@ref) is there when what is queued on a stream is done: for work
of your own that fills it on another stream than the one that it was allocated on. To be called before it is shared or
exported. Memory that is given back in the order of another stream is so only after that work, too. A
[`DeviceStream`](@ref) may be closed before `x`. No other task uses `x` meanwhile.

Throws as [`wait_on`](@ref), and `DEVX_INVALID_ARGUMENT` if it is shared already.
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

Waits until the data of a tensor in pinned or managed memory may be touched, in the order of a stream, and for what is
queued there. The result is another reference to it whose elements can be read here. Nothing is copied.

Throws `DEVX_DEVICE` for memory that the host cannot read, and as [`wait_on`](@ref).
"""
function synchronize(t::Tensor{T,N}, stream::AnyStream) where {T,N}
    is_host(t.device) || throw(not_readable(t.device))
    in_order(t.handle, stream) do tensor, stream
        named = Ref{Int64}(0)
        @checked devx_tensor_wait(tensor::Ptr{Cvoid}, stream::Int64)
        # The memory says of which device a default stream is.
        @checked devx_tensor_stream(tensor::Ptr{Cvoid}, stream::Int64, named::Ptr{Int64})
        @checked devx_stream_synchronize(t.device::DLDevice, named[]::Int64)
    end
    return Tensor{T,N}(share_handle(t.handle), t.data, t.size, t.strides, t.flags, t.device, true)
end
