# Tensors in and out as the CUDA Array Interface, a C struct.

"""
    import_cuda_array(array; stream=nothing, no_stream=:legacy_default) -> Tensor
    import_cuda_array(array; mask=true, ...) -> (tensor, mask)

Imports an array of the CUDA Array Interface, versions 0 to 3, without a copy. `array` is a `Ref` or `Ptr` of
[`DevxCudaArray`](@ref). Element type and number of dimensions are those of the array, known only at run time.
Dimensions stay in the producer's order; strides are converted to elements. The driver says where the memory is.

- `stream`: the stream that the consumer works on, a [`DeviceStream`](@ref) or a number. It is made to wait, on the
  device, for the work that the producer has queued until now. Without a stream nothing waits yet: see
  [`wait_on`](@ref).
- `no_stream`: what takes the place of the producer's stream in versions before 3, which have none: `:legacy_default`,
  `:host_sync` (the host waits until the device is idle) or `:trust` (nothing waits).
- `mask`: whether to import a mask, too: a tensor that says which elements are valid (true, or not 0), or `nothing` if
  all are. With `false`, an array that has a mask is refused.

On success the array is moved from (its `release` is NULL) and released once, when the last user of both results is
gone: at the latest by `close`. The producer's stream then waits for the work that was named with [`used_on`](@ref), so
that stream must exist until then. On failure the array is untouched, and the caller has to give it back
([`cuda_array_release`](@ref)).

Throws `DEVX_NULL_ARGUMENT`, `DEVX_RELEASED`, `DEVX_VERSION`, `DEVX_INVALID_DTYPE`, `DEVX_INVALID_SHAPE`,
`DEVX_INVALID_ARGUMENT`, `DEVX_INVALID_STREAM` with the field and its value; `DEVX_UNSUPPORTED` for another byte order,
for elements that are not numbers, and for a mask without `mask=true`; `DEVX_MISMATCH` for a mask of another shape;
`DEVX_DEVICE` for memory that no CUDA device can access, or without a driver; `DEVX_DRIVER`.
"""
function import_cuda_array(array::Union{Ref{DevxCudaArray},Ptr{Cvoid}}; stream=nothing, no_stream=:legacy_default,
                           mask::Bool=false)
    policy = no_stream_code(no_stream)
    values = Ref{Handle{TAG_TENSOR}}()
    valid = made(Handle{TAG_TENSOR}) do place
        mask || (place = Ptr{Ptr{Cvoid}}(C_NULL))
        values[] = made(Handle{TAG_TENSOR}) do out
            on_stream(stream) do stream
                request = Ref(DevxCudaArrayRequest(DEVX_CUDA_ARRAY_VERSION, policy, stream))
                @checked devx_cuda_array_import(array::Ptr{DevxCudaArray}, request::Ptr{DevxCudaArrayRequest},
                    out::Ptr{Ptr{Cvoid}}, place::Ptr{Ptr{Cvoid}})
            end
        end
    end
    tensor = adopt_tensor(values[])
    return mask ? (tensor, valid.address == C_NULL ? nothing : adopt_tensor(valid)) : tensor
end

"""
    export_share_cuda_array(t::Tensor, target; max_version=3, stream=nothing, no_stream=:legacy_default)

Exports a tensor to a consumer as an array of the CUDA Array Interface; you keep the tensor. `target` is a `Ref` or
`Ptr` of [`DevxCudaArray`](@ref). The consumer owns the written struct, and releases it once, from any thread. If no
consumer takes it, the caller does so with [`cuda_array_release`](@ref). What `target` held before is overwritten, not
released.

- `max_version`: the highest version that the consumer reads; the lower of this and 3 is written.
- `stream`: the stream to order the data on. Without it, data that is ready and unused has no stream; other data keeps
  the stream that it is queued on, or else gets the legacy default stream. The `stream` of the struct is the one behind
  which the data is ready, and also the work that was noted with [`used_on`](@ref).
- `no_stream`: for consumers of versions before 3, which do not wait: `:legacy_default` puts the data behind the legacy
  default stream, `:host_sync` also waits for it, `:trust` does nothing.

Throws `DEVX_DEVICE` for memory that no CUDA device can access (that of the CPU), `DEVX_UNSUPPORTED` for elements that
NumPy has no name for, `DEVX_VERSION`, `DEVX_INVALID_ARGUMENT`, `DEVX_INVALID_STREAM`, `DEVX_NULL_ARGUMENT`,
`DEVX_DRIVER`, `DEVX_CLOSED`.
"""
function export_share_cuda_array(t::Tensor, target::Union{Ref{DevxCudaArray},Ptr{Cvoid}}; keywords...)
    cuda_array_requested(; keywords...) do request
        @checked devx_tensor_export_share_cuda_array(
            t.handle::Handle, request::Ptr{DevxCudaArrayRequest}, target::Ptr{DevxCudaArray})
    end
    return nothing
end

"""
    export_move_cuda_array(t::Tensor, target; max_version=3, stream=nothing, no_stream=:legacy_default)

Like [`export_share_cuda_array`](@ref), but gives the tensor up: it is closed when this returns. If this throws, the
tensor is as before.
"""
function export_move_cuda_array(t::Tensor, target::Union{Ref{DevxCudaArray},Ptr{Cvoid}}; keywords...)
    cuda_array_requested(; keywords...) do request
        moved(t.handle) do slot
            @checked devx_tensor_export_move_cuda_array(
                slot::Ptr{Ptr{Cvoid}}, request::Ptr{DevxCudaArrayRequest}, target::Ptr{DevxCudaArray})
        end
    end
    return nothing
end

function cuda_array_requested(f; max_version::Integer=DEVX_CUDA_ARRAY_VERSION, stream=nothing,
                              no_stream=:legacy_default)
    version, policy = number(Int32, max_version, "max_version"), no_stream_code(no_stream)
    return on_stream(value -> f(Ref(DevxCudaArrayRequest(version, policy, value))), stream)
end

# One of our symbols, or a number for the library to check.
no_stream_code(policy::Integer) = number(Int32, policy, "no_stream")
function no_stream_code(policy::Symbol)
    policy === :legacy_default && return DEVX_NO_STREAM_LEGACY_DEFAULT
    policy === :host_sync && return DEVX_NO_STREAM_HOST_SYNC
    policy === :trust && return DEVX_NO_STREAM_TRUST
    throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
        "no_stream is $(repr(policy)): neither :legacy_default, :host_sync nor :trust"))
end

"""
    cuda_array_release(array)

Releases an array of the CUDA Array Interface that the caller owns: calls its `release`, unless that is NULL already.
For an export that no consumer took, or an array whose import failed. NULL is accepted.
"""
function cuda_array_release(array::Union{Ref{DevxCudaArray},Ptr{Cvoid}})
    ccall(devx_cuda_array_release[], Cvoid, (Ptr{DevxCudaArray},), array)
    return nothing
end
