# A tensor: memory with a shape and an element type, whoever made it.

"""
    Tensor{T,N} <: AbstractArray{T,N}

An n-dimensional array over memory that somebody else owns, or that was made of a Julia array to be handed out. Elements
are read and written in place: nothing is copied. It is a strided array (`strides`, in elements, and `pointer`); the
strides are whatever the producer's are, row-major for most, and dimensions are in the producer's order.

Get one with [`import_dlpack`](@ref), with `Tensor(array)`, or out of a column with `Tensor(column)`; hand it on with
[`export_share`](@ref) and [`export_move`](@ref).

**Ownership.** A tensor holds one reference. `close(tensor)` gives it up, at once and once, however often and from how
many tasks it is called; so does [`export_move`](@ref). The memory is released when the last reference and the last
export are gone. A tensor that is never closed is given up by its finalizer, some time after it became unreachable (the
trace says so if `DEVEXCHANGE_TRACE` is set).

**After `close`** every use throws a [`DevExchangeError`](@ref) with `DEVX_CLOSED`, element access included, in
`@inbounds` code, too (loops that shall run at full speed want [`unsafe_wrap`](@ref Base.unsafe_wrap)). Do not close a
tensor while another task works on its elements.

**Read-only** tensors (`isreadonly`) refuse `setindex!` with `DEVX_READ_ONLY`.

**Threads.** Any task may use a tensor and close it.
"""
struct Tensor{T,N} <: AbstractArray{T,N}
    handle::Handle{TAG_TENSOR}
    data::Ptr{T}
    size::Dims{N}
    strides::Dims{N}
    flags::UInt64
    device::DLDevice
end

# ---- making one ----

"""
    Tensor(array::AbstractArray; release=nothing, readonly=false)

Makes a tensor over the memory of a Julia array, without a copy: an `Array`, or anything else with `strides` and a
`pointer` (views with ranges, `reinterpret`, `PermutedDimsArray`, ...). A Julia array is column-major, and so the
strides are: `size` stays the size, dimensions are not reversed.

The array is kept alive until the last user of the tensor, in whatever runtime, has released it. It must not be resized
(`push!`, ...) before that. A view of another tensor or of a column holds on to its memory, and is read-only if that is.
Then `release()`, if given, is called once, on a task of this module; what it throws is logged and counted
([`release_failures`](@ref)). If this throws, `release` is not called.

Throws `DEVX_UNSUPPORTED` for an array without memory of its own and for an element type that DLPack does not have.
"""
function Tensor(array::AbstractArray{T,N}; release=nothing, readonly::Bool=false) where {T,N}
    # First, as it says best what is wrong with the array.
    dtype(T)
    data, steps = memory_of(array)
    readonly |= write_protected(array)
    return GC.@preserve array Tensor(data, size(array); strides=steps, root=array, release=release, readonly=readonly)
end

"""
    Tensor(data::Ptr{T}, size::Dims; strides=nothing, root=nothing, release=nothing, readonly=false)

Makes a tensor over host memory that the caller owns. `strides` are in elements, by default those of a Julia array
(column-major). `root` is kept alive as long as the memory is used, and then `release()` is called, as for
`Tensor(array)`. The memory has to be valid until then.

Throws `DEVX_INVALID_SHAPE`, `DEVX_INVALID_ARGUMENT` (alignment), `DEVX_NULL_ARGUMENT` with the field and its value.
"""
function Tensor(data::Ptr{T}, size::NTuple{N,Integer}; strides=nothing, root=nothing, release=nothing,
                readonly::Bool=false) where {T,N}
    d = dtype(T)
    flags = element_flags(d) | (readonly ? DLPACK_FLAG_BITMASK_READ_ONLY : UInt64(0))
    extents = NTuple{N,Int64}(size)
    steps = NTuple{N,Int64}(strides === nothing ? column_major(extents) : strides)
    shape, step = Ref(extents), Ref(steps)
    out = Ref{Ptr{Cvoid}}(C_NULL)
    GC.@preserve shape step begin
        description = Ref(DLTensor(data, CPU, N, d, address_of(shape), address_of(step), 0))
        owned(root, references(root), release) do owner
            @checked devx_tensor_create(
                description::Ptr{DLTensor}, flags::UInt64, owner::Ptr{DevxOwner}, out::Ptr{Ptr{Cvoid}})
        end
    end
    first = any(iszero, extents) ? Ptr{T}(C_NULL) : data
    return Tensor{T,N}(Handle{TAG_TENSOR}(out[]), first, extents, steps, flags, CPU)
end

address_of(numbers::Ref{NTuple{N,Int64}}) where {N} =
    N == 0 ? Ptr{Int64}(C_NULL) : Ptr{Int64}(Base.unsafe_convert(Ptr{NTuple{N,Int64}}, numbers))

# What an overflow makes of the strides does not matter: the shape is refused.
column_major(size::NTuple{N,Int64}) where {N} = ntuple(k -> prod(ntuple(i -> i < k ? max(size[i], 1) : 1, N)), N)

# Address and strides of an array in memory.
memory_of(array::StridedArray) = (pointer(array), strides(array))
function memory_of(array::AbstractArray)
    try
        return (pointer(array), strides(array))
    catch e
        e isa DevExchangeError && rethrow()
        throw(DevExchangeError(DEVX_UNSUPPORTED,
            "the array is a $(typeof(array)): it has no memory with strides; make an Array of it (`collect`)"))
    end
end

# Takes over a reference of the C API, for a tensor whose type it has to say.
function adopt_tensor(address::Ptr{Cvoid})
    handle = Handle{TAG_TENSOR}(address)
    held(handle) do address
        view, flags = look_at(address)
        T = element_type(view.dtype, flags)
        T === nothing && throw(no_element_type(view.dtype))
        return Tensor(handle, T, Val(Int(view.ndim)), view, flags)
    end
end

# As above, for a tensor whose type is known.
function adopt_tensor(::Type{Tensor{T,N}}, address::Ptr{Cvoid}) where {T,N}
    handle = Handle{TAG_TENSOR}(address)
    held(address -> Tensor(handle, T, Val(N), look_at(address)...), handle)::Tensor{T,N}
end

function look_at(address::Ptr{Cvoid})
    view = Ref{DLTensor}()
    flags = Ref{UInt64}(0)
    @checked devx_tensor_borrow(address::Ptr{Cvoid}, view::Ptr{DLTensor}, flags::Ptr{UInt64})
    return view[], flags[]
end

function Tensor(handle::Handle{TAG_TENSOR}, ::Type{T}, ::Val{N}, view::DLTensor, flags::UInt64) where {T,N}
    extents = ntuple(k -> Int(unsafe_load(view.shape, k)), Val(N))
    steps = ntuple(k -> Int(unsafe_load(view.strides, k)), Val(N))
    return Tensor{T,N}(handle, Ptr{T}(view.data), extents, steps, flags, view.device)
end

no_element_type(d::DLDataType) = DevExchangeError(DEVX_UNSUPPORTED,
    "dtype has code $(d.code), bits $(d.bits), lanes $(d.lanes): a Julia array has no elements of this layout")

# ---- as an array ----

Base.size(t::Tensor) = t.size
Base.strides(t::Tensor) = t.strides
Base.elsize(::Type{<:Tensor{T}}) where {T} = sizeof(T)
Base.dataids(t::Tensor) = (UInt(t.data),)

function Base.unsafe_convert(::Type{Ptr{T}}, t::Tensor{T}) where {T}
    require_open(t.handle)
    return t.data
end

@inline function Base.getindex(t::Tensor{T,N}, index::Vararg{Int,N}) where {T,N}
    require_open(t.handle)
    require_host(t.device)
    @boundscheck checkbounds(t, index...)
    GC.@preserve t load_element(t.data, offset(t.strides, index))
end

@inline function Base.setindex!(t::Tensor{T,N}, value, index::Vararg{Int,N}) where {T,N}
    isreadonly(t) && throw(read_only())
    require_open(t.handle)
    require_host(t.device)
    @boundscheck checkbounds(t, index...)
    element = convert(T, value)
    GC.@preserve t unsafe_store!(t.data, element, offset(t.strides, index) + 1)
    return t
end

offset(::Tuple{}, ::Tuple{}) = 0
@inline offset(strides::Tuple, index::Tuple) =
    (index[1] - 1) * strides[1] + offset(Base.tail(strides), Base.tail(index))

@inline load_element(data::Ptr{T}, offset::Int) where {T} = unsafe_load(data, offset + 1)
# A byte of somebody else's may be true without being 1, which a `Bool` must not be.
@inline load_element(data::Ptr{Bool}, offset::Int) = unsafe_load(Ptr{UInt8}(data), offset + 1) != 0x00

@noinline read_only() =
    DevExchangeError(DEVX_READ_ONLY, "the tensor has READ_ONLY in its flags: it must not be written")

"""
    unsafe_wrap(Array, t::Tensor{T,N}) -> Array{T,N}

The elements of a compact column-major tensor as an `Array` over the same memory, for code that wants nothing else. The
array holds a reference of its own: the memory stays as long as anything refers to the array, also after `close(t)`.
It must not be resized, and not be written if `isreadonly(t)`; nothing keeps you from it.

Throws `DEVX_COPY_REQUIRED` for other strides, and for `Bool` tensors, whose bytes need not be those of Julia. A
row-major matrix can be had transposed: `unsafe_wrap(Array, Tensor(PermutedDimsArray(t, (2, 1))))`.
"""
function Base.unsafe_wrap(::Type{Array}, t::Tensor{T,N}) where {T,N}
    require_host(t.device)
    T === Bool && throw(DevExchangeError(DEVX_COPY_REQUIRED, "eltype is Bool: its bytes need not be 0 or 1"))
    if !is_column_major(t)
        throw(DevExchangeError(DEVX_COPY_REQUIRED,
            "strides $(strides(t)) of size $(size(t)) are not those of a Julia array"))
    end
    return wrap_memory(t.data, size(t), t.handle)
end

function is_column_major(t::Tensor{T,N}) where {T,N}
    isempty(t) && return true
    compact = column_major(size(t))
    return all(k -> size(t, k) == 1 || t.strides[k] == compact[k], 1:N)
end

"""
    isreadonly(t::Tensor) -> Bool

Whether the memory must not be written (`DLPACK_FLAG_BITMASK_READ_ONLY`).
"""
Base.isreadonly(t::Tensor) = t.flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0

"""
    flags(t::Tensor) -> UInt64

The properties that DLPack carries as bits (`DevExchange.DLPACK_FLAG_BITMASK_...`), unknown ones included.
"""
flags(t::Tensor) = t.flags

device(t::Tensor) = t.device
dtype(::Tensor{T}) where {T} = dtype(T)

function Base.show(io::IO, mime::MIME"text/plain", t::Tensor)
    if isopen(t)
        invoke(show, Tuple{IO,MIME"text/plain",AbstractArray}, io, mime, t)
    else
        print(io, summary(t), " (closed)")
    end
end

# ---- ownership ----

Base.isopen(t::Tensor) = isopen(t.handle)

"""
    close(x)

Gives up a [`Tensor`](@ref), [`Batch`](@ref) or [`Schema`](@ref) now. Closing it again does nothing. If another task is
just handing it on, that call still succeeds. See the types for what follows.
"""
Base.close(t::Tensor) = close(t.handle)

"""
    share(x)

Another reference to the same tensor or batch: both have to be closed (or moved away), and the memory stays until both
are. Throws `DEVX_CLOSED`.
"""
share(t::Tensor{T,N}) where {T,N} =
    Tensor{T,N}(Handle{TAG_TENSOR}(share_address(t.handle)), t.data, t.size, t.strides, t.flags, t.device)

Tensor(t::Tensor) = share(t)

write_protected(t::Tensor) = isreadonly(t)
references(t::Tensor) = (Handle{TAG_TENSOR | TAG_KEPT}(share_address(t.handle)),)

"""
    copy(t::Tensor{T,N}) -> Tensor{T,N}

A compact row-major copy in host memory of the library's, writable, with `DLPACK_FLAG_BITMASK_IS_COPIED`. For a Julia
array, use `Array(t)`. Throws `DEVX_CLOSED`.
"""
function Base.copy(t::Tensor{T,N}) where {T,N}
    out = Ref{Ptr{Cvoid}}(C_NULL)
    held(t.handle) do address
        @checked devx_tensor_copy(address::Ptr{Cvoid}, out::Ptr{Ptr{Cvoid}})
    end
    return adopt_tensor(Tensor{T,N}, out[])
end

"""
    borrow(f, t::Tensor)

Calls `f(view::DLTensor)` and returns what it returns. The view is valid for the length of this call and owns nothing;
the memory is not released meanwhile, even if the tensor is closed or moved away. Strides are always there,
`byte_offset` is 0. Throws `DEVX_CLOSED`.
"""
function borrow(f, t::Tensor)
    # A reference for the length of the call, and not `held`: whoever moves the tensor would wait for `f` then.
    reference = Handle{TAG_TENSOR | TAG_KEPT}(share_address(t.handle))
    try
        return f(held(look_at, reference)[1])
    finally
        close(reference)
    end
end
