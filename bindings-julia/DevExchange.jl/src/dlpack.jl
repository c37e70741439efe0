# Tensors in and out as DLPack 1.3: the versioned struct and the one before 1.0.

"""
    export_share(t::Tensor; max_version=(1, 3), stream=nothing, copy=:never) -> Ptr{DLManagedTensorVersioned}

Hands a tensor to a consumer and keeps it. The consumer owns what it is given: it calls the deleter once, from any
thread, or the caller does so with [`dlpack_release`](@ref) if nobody takes it. Data, shape, strides and flags are those
of the tensor, but for `DLPACK_FLAG_BITMASK_IS_COPIED`: that is told only to who has a copy alone. Nothing is copied unless
`copy` says so.

The keywords are the arguments of `__dlpack__` (Python array API standard):
- `max_version`: the highest version that the consumer reads. A major version of 0 is refused (`DEVX_VERSION`); use
  [`export_share_legacy`](@ref). The minor version written is the lower of this and 3.
- `stream`: the consumer's stream, a [`DeviceStream`](@ref) or a number, which is made to wait until the data may be
  touched; -1 for no synchronisation. `nothing` is the legacy default stream on CUDA (as in the array API), and nothing
  to wait for on the CPU, which takes no stream (`DEVX_INVALID_STREAM`).
- `copy`: `:never`, `:if_needed` or `:always`.

Throws `DEVX_CLOSED` after `close`.
"""
function export_share(t::Tensor; max_version=DLPACK_VERSION, stream=nothing, copy=:never)
    return requested(t, max_version, stream, copy) do request
        out = Ref{Ptr{DLManagedTensorVersioned}}(C_NULL)
        @checked devx_tensor_export_share(t.handle::Handle, Ref(request)::Ptr{DevxDlpackRequest},
            out::Ptr{Ptr{DLManagedTensorVersioned}})
        return out[]
    end
end

"""
    export_move(t::Tensor; max_version=(1, 3), stream=nothing, copy=:never) -> Ptr{DLManagedTensorVersioned}

As [`export_share`](@ref), and gives the tensor up: it is closed when this returns. If this throws, it is as before.
"""
function export_move(t::Tensor; max_version=DLPACK_VERSION, stream=nothing, copy=:never)
    return requested(t, max_version, stream, copy) do request
        out = Ref{Ptr{DLManagedTensorVersioned}}(C_NULL)
        moved(t.handle) do slot
            @checked devx_tensor_export_move(
                slot::Ptr{Ptr{Cvoid}}, Ref(request)::Ptr{DevxDlpackRequest}, out::Ptr{Ptr{DLManagedTensorVersioned}})
        end
        return out[]
    end
end

"""
    export_share_legacy(t::Tensor; stream=nothing, copy=:never) -> Ptr{DLManagedTensor}

As [`export_share`](@ref), as the struct of DLPack before 1.0. It has no flags: read-only tensors are refused
(`DEVX_READ_ONLY`) or copied, if `copy` allows it; padded sub-byte elements are refused (`DEVX_UNSUPPORTED`).
"""
function export_share_legacy(t::Tensor; stream=nothing, copy=:never)
    return requested(t, (0, 0), stream, copy) do request
        out = Ref{Ptr{DLManagedTensor}}(C_NULL)
        @checked devx_tensor_export_share_legacy(t.handle::Handle, Ref(request)::Ptr{DevxDlpackRequest},
            out::Ptr{Ptr{DLManagedTensor}})
        return out[]
    end
end

"""
    export_move_legacy(t::Tensor; stream=nothing, copy=:never) -> Ptr{DLManagedTensor}

As [`export_share_legacy`](@ref), and gives the tensor up. If this throws, it is as before.
"""
function export_move_legacy(t::Tensor; stream=nothing, copy=:never)
    return requested(t, (0, 0), stream, copy) do request
        out = Ref{Ptr{DLManagedTensor}}(C_NULL)
        moved(t.handle) do slot
            @checked devx_tensor_export_move_legacy(
                slot::Ptr{Ptr{Cvoid}}, Ref(request)::Ptr{DevxDlpackRequest}, out::Ptr{Ptr{DLManagedTensor}})
        end
        return out[]
    end
end

# The latest one.
const DLPACK_VERSION = (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION)

# Calls `f` with what a consumer asks for, whose stream is not destroyed meanwhile.
@inline function requested(f, t::Tensor, max_version, stream, copy)
    first, second = version_parts(max_version)
    major, minor = number(UInt32, first, "max_version[1]"), number(UInt32, second, "max_version[2]")
    code = copy_code(copy)
    stream === nothing && is_cuda(t.device) && (stream = LEGACY_STREAM)
    return on_stream(value -> f(DevxDlpackRequest(major, minor, value, code)), stream)
end

version_parts(version::Tuple{Integer,Integer}) = version
version_parts(version::VersionNumber) = (version.major, version.minor)
version_parts(version) = throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
    "max_version is $(repr(version)): a pair of integers is needed, such as (1, 0), or v\"1.0\""))

# A symbol of ours, or a number for the library to judge. `true` is no number here: elsewhere it asks for a copy in any
# case, as a number it would be "if needed".
copy_code(copy::Integer) = number(Int32, copy, "copy")
copy_code(copy::Bool) = invoke(copy_code, Tuple{Any}, copy)
function copy_code(copy)
    copy === :never && return DEVX_COPY_NEVER
    copy === :if_needed && return DEVX_COPY_IF_NEEDED
    copy === :always && return DEVX_COPY_ALWAYS
    throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
        "copy is $(repr(copy)): neither :never, :if_needed nor :always"))
end

"""
    import_dlpack(source::Ptr{DLManagedTensorVersioned}; stream=nothing) -> Tensor
    import_dlpack(Tensor{T,N}, source; stream=nothing) -> Tensor{T,N}

Takes a DLPack tensor from its producer, without a copy. Element type and number of dimensions are those of the tensor,
known only at run time: work on the result in a function that it is passed to, or say what it is. `Ptr{Cvoid}` is taken,
too, and no other pointer (`DEVX_INVALID_ARGUMENT`).

`stream` is what the producer was asked for it with, a [`DeviceStream`](@ref) or a number: the data is ready for work
that is queued there from now on. With `nothing` data on CUDA is taken to be that of the legacy default stream. A
[`DeviceStream`](@ref) may be closed before the tensor is.

On success its deleter is called once, when the last user of the tensor is gone: at the latest by `close`, on the thread
that does so, or after the work that [`used_on`](@ref) named. On failure the source is untouched and still the caller's,
to be given back with [`dlpack_release`](@ref), also if its major version is unknown (then nothing but the version was
read; DLPack 1.3, `DLPackVersion`).

Throws `DEVX_NULL_ARGUMENT`, `DEVX_VERSION`, `DEVX_DEVICE`, `DEVX_INVALID_DTYPE`, `DEVX_INVALID_SHAPE`,
`DEVX_INVALID_ARGUMENT` with the field and its value; `DEVX_UNSUPPORTED` for elements that a Julia array cannot have
(packed, less than a byte each); `DEVX_MISMATCH` if it is not a `Tensor{T,N}`.
"""
import_dlpack(source::Ptr; stream=nothing) = adopt_tensor(take_versioned(Tensor, source, stream))
import_dlpack(::Type{Tensor{T,N}}, source::Ptr; stream=nothing) where {T,N} =
    adopt_tensor(Tensor{T,N}, take_versioned(Tensor{T,N}, source, stream))

function take_versioned(::Type{W}, source::Ptr, stream) where {W<:Tensor}
    refuse_in_cache()
    managed = pointer_to(DLManagedTensorVersioned, source)
    # Behind another major version there may be anything; the library refuses it.
    if managed != C_NULL && unsafe_load(Ptr{DLPackVersion}(managed)).major == DLPACK_MAJOR_VERSION
        m = unsafe_load(managed)
        require_array(W, m.dl_tensor, m.flags)
    end
    handle = made(Handle{TAG_TENSOR}) do out
        if stream === nothing
            @checked devx_tensor_import(managed::Ptr{DLManagedTensorVersioned}, out::Ptr{Ptr{Cvoid}})
        else
            on_stream(stream) do stream
                @checked devx_tensor_import_on(
                    managed::Ptr{DLManagedTensorVersioned}, stream::Int64, out::Ptr{Ptr{Cvoid}})
            end
        end
    end
    return handle
end

"""
    import_dlpack_legacy(source::Ptr{DLManagedTensor}; stream=nothing) -> Tensor
    import_dlpack_legacy(Tensor{T,N}, source; stream=nothing) -> Tensor{T,N}

As [`import_dlpack`](@ref), for the struct of DLPack before 1.0.
"""
import_dlpack_legacy(source::Ptr; stream=nothing) = adopt_tensor(take_legacy(Tensor, source, stream))
import_dlpack_legacy(::Type{Tensor{T,N}}, source::Ptr; stream=nothing) where {T,N} =
    adopt_tensor(Tensor{T,N}, take_legacy(Tensor{T,N}, source, stream))

function take_legacy(::Type{W}, source::Ptr, stream) where {W<:Tensor}
    refuse_in_cache()
    managed = pointer_to(DLManagedTensor, source)
    managed == C_NULL || require_array(W, unsafe_load(managed).dl_tensor, UInt64(0))
    handle = made(Handle{TAG_TENSOR}) do out
        if stream === nothing
            @checked devx_tensor_import_legacy(managed::Ptr{DLManagedTensor}, out::Ptr{Ptr{Cvoid}})
        else
            on_stream(stream) do stream
                @checked devx_tensor_import_on_legacy(managed::Ptr{DLManagedTensor}, stream::Int64, out::Ptr{Ptr{Cvoid}})
            end
        end
    end
    return handle
end

# A pointer that says what it points to is taken at its word.
pointer_to(::Type{M}, source::Union{Ptr{M},Ptr{Cvoid}}) where {M} = Ptr{M}(source)
pointer_to(::Type{DLManagedTensorVersioned}, source::Ptr{DLManagedTensor}) =
    throw(other_pointer(source, "`import_dlpack_legacy` takes that"))
pointer_to(::Type{DLManagedTensor}, source::Ptr{DLManagedTensorVersioned}) =
    throw(other_pointer(source, "`import_dlpack` takes that"))
pointer_to(::Type{M}, source::Ptr) where {M} = throw(other_pointer(source, "a Ptr{$(nameof(M))} is needed"))

@noinline other_pointer(@nospecialize(source), instead) = DevExchangeError(DEVX_INVALID_ARGUMENT,
    "source is a Ptr{$(eltype(source))}: $instead")

# Refuses, before anything is taken, what could not be shown as the array that is wanted. What is no element type at all
# has no name, and the library says why.
function require_array(::Type{Tensor}, view::DLTensor, flags::UInt64)
    element_type(view.dtype, flags) === nothing && throw(no_element_type(view.dtype))
    return nothing
end

@inline function require_array(::Type{Tensor{T,N}}, view::DLTensor, flags::UInt64) where {T,N}
    has_elements(T, view.dtype, flags) && view.ndim == N || refuse_array(Tensor{T,N}, view, flags)
    return nothing
end

@noinline function refuse_array(@nospecialize(wanted), view::DLTensor, flags::UInt64)
    require_array(Tensor, view, flags)
    throw(DevExchangeError(DEVX_MISMATCH,
        "the tensor has eltype $(element_type(view.dtype, flags)) and ndim $(view.ndim): not a $wanted"))
end

"""
    dlpack_release(managed::Ptr{DLManagedTensorVersioned})
    dlpack_release(managed::Ptr{DLManagedTensor})

Gives a DLPack tensor that the caller owns back to its producer: calls its deleter, if it has one. The pointer is not
valid any more. For an export that nobody took, or a tensor whose import failed; right for every major version. NULL is
fine. `Ptr{Cvoid}` is taken for the versioned struct, as by [`import_dlpack`](@ref).
"""
function dlpack_release(managed::Ptr{DLManagedTensorVersioned})
    ccall(devx_dlpack_release[], Cvoid, (Ptr{Ptr{DLManagedTensorVersioned}},), Ref(managed))
    return nothing
end
dlpack_release(managed::Ptr{Cvoid}) = dlpack_release(Ptr{DLManagedTensorVersioned}(managed))
function dlpack_release(managed::Ptr{DLManagedTensor})
    ccall(devx_dlpack_release_legacy[], Cvoid, (Ptr{Ptr{DLManagedTensor}},), Ref(managed))
    return nothing
end
