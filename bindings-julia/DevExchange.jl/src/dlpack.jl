# Tensors in and out through DLPack 1.3: the versioned struct, and the one before 1.0.

"""
    export_share(t::Tensor; max_version=(1, 3), stream=nothing, copy=:never) -> Ptr{DLManagedTensorVersioned}

Exports a tensor to a consumer; you keep the tensor. The consumer owns the struct and calls its deleter once, from any
thread. If no consumer takes it, the caller does so with [`dlpack_release`](@ref). Data, shape, strides and flags are
those of the tensor, except that `DLPACK_FLAG_BITMASK_IS_COPIED` is only passed on if the consumer is the only one to
have the copy. Nothing is copied unless `copy` says so; a copy is in plain host memory.

The keywords are the arguments of `__dlpack__` (Python array API standard):
- `max_version`: the highest version that the consumer reads. A major version of 0 is refused (`DEVX_VERSION`); use
  [`export_share_legacy`](@ref). The minor version that is written is the lower of this and 3.
- `stream`: the consumer's stream, a [`DeviceStream`](@ref) or a number, which is made to wait until the data may be
  touched; -1 for no synchronisation. `nothing` is the legacy default stream on CUDA (as in the array API). On the CPU
  it means that there is nothing to wait for; a stream is refused there (`DEVX_INVALID_STREAM`).
- `copy`: `:never`, `:if_needed` or `:always`.

Throws, for a copy, `DEVX_DEVICE` if the memory is not host memory and `DEVX_NOT_READY` if the data is not ready;
`DEVX_CLOSED` after `close`.
"""
function export_share(t::Tensor; max_version=DLPACK_VERSION, stream=nothing, copy=:never)
    return requested(DLManagedTensorVersioned, t, max_version, stream, copy) do request
        out = Ref{Ptr{DLManagedTensorVersioned}}(C_NULL)
        @checked devx_tensor_export_share(t.handle::Handle, Ref(request)::Ptr{DevxDlpackRequest},
            out::Ptr{Ptr{DLManagedTensorVersioned}})
        return out[]
    end
end

"""
    export_move(t::Tensor; max_version=(1, 3), stream=nothing, copy=:never) -> Ptr{DLManagedTensorVersioned}

Like [`export_share`](@ref), but gives the tensor up: it is closed when this returns. If this throws, the tensor is as
before, unless an interrupt comes while it is copied: then it can be closed already, and the copy is released.
"""
function export_move(t::Tensor; max_version=DLPACK_VERSION, stream=nothing, copy=:never)
    return requested(DLManagedTensorVersioned, t, max_version, stream, copy) do request
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

Like [`export_share`](@ref), but with the struct of DLPack before 1.0. It has no flags: read-only tensors are refused
(`DEVX_READ_ONLY`), or copied if `copy` allows it; padded sub-byte elements are refused (`DEVX_UNSUPPORTED`).
"""
function export_share_legacy(t::Tensor; stream=nothing, copy=:never)
    return requested(DLManagedTensor, t, (0, 0), stream, copy) do request
        out = Ref{Ptr{DLManagedTensor}}(C_NULL)
        @checked devx_tensor_export_share_legacy(t.handle::Handle, Ref(request)::Ptr{DevxDlpackRequest},
            out::Ptr{Ptr{DLManagedTensor}})
        return out[]
    end
end

"""
    export_move_legacy(t::Tensor; stream=nothing, copy=:never) -> Ptr{DLManagedTensor}

Like [`export_share_legacy`](@ref), but gives the tensor up. If this throws, the tensor is as after a failed
[`export_move`](@ref).
"""
function export_move_legacy(t::Tensor; stream=nothing, copy=:never)
    return requested(DLManagedTensor, t, (0, 0), stream, copy) do request
        out = Ref{Ptr{DLManagedTensor}}(C_NULL)
        moved(t.handle) do slot
            @checked devx_tensor_export_move_legacy(
                slot::Ptr{Ptr{Cvoid}}, Ref(request)::Ptr{DevxDlpackRequest}, out::Ptr{Ptr{DLManagedTensor}})
        end
        return out[]
    end
end

# The newest version.
const DLPACK_VERSION = (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION)

# Calls `f` with a consumer's request, whose stream is not destroyed meanwhile.
@inline function requested(f, ::Type{M}, t::Tensor, max_version, stream, copy) where {M}
    first, second = version_parts(max_version)
    major, minor = number(UInt32, first, "max_version[1]"), number(UInt32, second, "max_version[2]")
    code = copy_code(copy)
    stream === nothing && is_cuda(t.device) && (stream = LEGACY_STREAM)
    code == DEVX_COPY_NEVER || return copied(value -> f(DevxDlpackRequest(major, minor, value, code)), M, stream)
    return on_stream(value -> f(DevxDlpackRequest(major, minor, value, code)), stream)
end

# Calls `f`, which may copy, with the number of a stream. An interrupt that comes during the copy is thrown at the end of
# this: nobody gets the struct then, so it is released.
@noinline function copied(f, ::Type{M}, stream) where {M}
    out = Ref(Ptr{M}(C_NULL))
    try
        disable_sigint(() -> out[] = on_stream(f, stream))
    catch
        dlpack_release(out[])
        rethrow()
    end
    return out[]
end

version_parts(version::Tuple{Integer,Integer}) = version
version_parts(version::VersionNumber) = (version.major, version.minor)
version_parts(version) = throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
    "max_version is $(repr(version)): a pair of integers is needed, such as (1, 0), or v\"1.0\""))

# One of our symbols, or a number for the library to check. `true` is not taken as a number: elsewhere it means always
# copy, but as a number it would mean "if needed".
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

Imports a DLPack tensor from its producer, without a copy. Element type and number of dimensions are those of the
tensor, known only at run time: pass the result to a function that works on it, or state the type. `Ptr{Cvoid}` is
accepted, too, but no other pointer (`DEVX_INVALID_ARGUMENT`). An address that Java or Python gives as a number `n` is
`Ptr{Cvoid}(n)`, and `UInt(pointer)` is the number for them.

`stream` is the stream that the producer was given in the request, a [`DeviceStream`](@ref) or a number: the data is
ready for work that is queued on it from now on. With `nothing`, data on CUDA is taken to be in the order of the legacy
default stream. A [`DeviceStream`](@ref) may be closed before the tensor is.

On success the deleter of `source` is called once, when the last user of the tensor is gone: at the latest by `close`,
on the thread that calls it, or after the work that [`used_on`](@ref) named. On failure the source is untouched and
still belongs to the caller, who gives it back with [`dlpack_release`](@ref). This includes an unknown major version, of
which nothing but the version is read (DLPack 1.3, `DLPackVersion`).

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
    # A struct of another major version can contain anything; the library refuses it.
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

Like [`import_dlpack`](@ref), but for the struct of DLPack before 1.0.
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

# A typed pointer is taken at its word.
pointer_to(::Type{M}, source::Union{Ptr{M},Ptr{Cvoid}}) where {M} = Ptr{M}(source)
pointer_to(::Type{DLManagedTensorVersioned}, source::Ptr{DLManagedTensor}) =
    throw(other_pointer(source, "`import_dlpack_legacy` takes that"))
pointer_to(::Type{DLManagedTensor}, source::Ptr{DLManagedTensorVersioned}) =
    throw(other_pointer(source, "`import_dlpack` takes that"))
pointer_to(::Type{M}, source::Ptr) where {M} = throw(other_pointer(source, "a Ptr{$(nameof(M))} is needed"))

@noinline other_pointer(@nospecialize(source), instead) = DevExchangeError(DEVX_INVALID_ARGUMENT,
    "source is a Ptr{$(eltype(source))}: $instead")

# Refuses, before anything is taken, a tensor that could not be shown as the requested array. An invalid element type
# has no name; the library says what is wrong with it.
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

Releases a DLPack tensor that the caller owns: calls its deleter, if it has one. The pointer is not valid any more. For
an export that no consumer took, or a tensor whose import failed, of any major version. NULL is accepted. `Ptr{Cvoid}`
is taken for the versioned struct, as by [`import_dlpack`](@ref).
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
