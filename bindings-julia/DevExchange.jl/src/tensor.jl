# A tensor: memory with a shape and an element type, from any producer.

"""
    Tensor{T,N} <: AbstractArray{T,N}

An n-dimensional array over foreign memory, or over the memory of a Julia array that is to be handed on. Elements are
read and written in place: nothing is copied. It is a strided array (`strides`, in elements, and `pointer`). The strides
are the producer's, most often row-major, and dimensions are in the producer's order.

Get one with [`import_dlpack`](@ref), with `Tensor(array)`, or from a column with `Tensor(column)`; hand it on with
[`export_share`](@ref) and [`export_move`](@ref).

**Ownership.** A tensor holds one reference. `close(tensor)` gives it up at once, and only once even if several tasks
call it; so does [`export_move`](@ref). The memory is released when the last reference and the last export are gone. A
tensor that is never closed is given up by its finalizer, some time after it became unreachable (the trace reports this
if `DEVEXCHANGE_TRACE` is set). A `release` function that refers to its own tensor keeps it reachable: that tensor must be
closed.

**After `close`** every use of the memory throws a [`DevExchangeError`](@ref) with `DEVX_CLOSED`, including element access,
even in `@inbounds` code (for loops at full speed, see [`unsafe_wrap`](@ref Base.unsafe_wrap)); `size`, `strides` and the like
stay. Do not close a tensor while another task works on its elements.

**Read-only** tensors (`isreadonly`) refuse `setindex!` and `mul!` with `DEVX_READ_ONLY`. What writes through `pointer`,
such as C functions and those of `LinearAlgebra.BLAS`, writes their memory all the same, without an error.

**Linear algebra.** Products (`*`, `mul!`) of matrices and vectors of floats reach the BLAS, whatever the strides, and so do
factorizations, on a copy. For functions that change their argument, or want an `Array`, see
[`unsafe_wrap`](@ref Base.unsafe_wrap).

**Device memory.** A tensor may be on a CUDA device ([`allocate`](@ref), [`copy_to`](@ref), imports). It then has size,
strides and a `pointer` like any other, but its elements are never touched here, not even by `show`. Element access
throws `DEVX_DEVICE`, or `DEVX_NOT_READY` for pinned and managed memory that work on a stream may still be writing (see
[`synchronize`](@ref)). Copy the elements with [`copy_to`](@ref) or [`read!`](@ref Base.read!).

**Threads.** Any task may use a tensor and close it.
"""
struct Tensor{T,N} <: AbstractArray{T,N}
    handle::Handle{TAG_TENSOR}
    data::Ptr{T}
    size::Dims{N}
    strides::Dims{N}
    flags::UInt64
    device::DLDevice
    # Whether the elements can be read here: host memory that no work on a stream may still be writing.
    readable::Bool

    Tensor{T,N}(handle, data, size, strides, flags, device, readable=device.device_type == kDLCPU) where {T,N} =
        new{T,N}(handle, data, size, strides, flags, device, readable)
end

# ---- making one ----

"""
    Tensor(array::AbstractArray; release=nothing, readonly=false)

Makes a tensor over the memory of a Julia array, without a copy: an `Array`, or any other array with `strides` and a
`pointer` (views with ranges, `reinterpret`, `PermutedDimsArray`, ...). A Julia array is column-major, and so are the
strides; `size` stays the same, dimensions are not reversed. Axes that begin elsewhere begin at 1 in the tensor.
`convert(Tensor{T,N}, array)` is the same.

The array is kept alive until the last user of the tensor, in whatever runtime, has released it. It must not be resized
(`push!`, ...) before that. A view of another tensor or of a column keeps that memory alive, and is read-only if that
is. At the end `release()`, if given, is called once, on a task of this module; an exception in it is logged and counted
([`release_failures`](@ref)). `release` is not called if this constructor throws, nor if the tensor or an export of it
still exists when Julia ends.

Throws `DEVX_UNSUPPORTED` for an array without memory of its own and for an element type that DLPack does not have,
`DEVX_INVALID_ARGUMENT` for a `release` that cannot be called.
"""
function Tensor(array::AbstractArray{T,N}; release=nothing, readonly::Bool=false) where {T,N}
    # First, because its error describes best what is wrong with the array.
    element_dtype(T)
    data, steps = memory_of(array)
    readonly |= write_protected(array)
    return GC.@preserve array Tensor(data, size(array); strides=steps, root=array, release=release, readonly=readonly)
end
Tensor{T}(array::AbstractArray{T}; keywords...) where {T} = Tensor(array; keywords...)
Tensor{T,N}(array::AbstractArray{T,N}; keywords...) where {T,N} = Tensor(array; keywords...)
Base.convert(::Type{W}, array::AbstractArray) where {W<:Tensor} = W(array)
Base.convert(::Type{W}, t::W) where {W<:Tensor} = t

"""
    Tensor(data::Ptr{T}, size::Dims; strides=nothing, root=nothing, release=nothing, readonly=false,
           device=DevExchange.CPU)

Makes a tensor over memory that the caller owns, on a device. `strides` are in elements, by default those of a Julia
array (column-major). `root` is kept alive as long as the memory is used, and then `release()` is called, as for
`Tensor(array)`. The memory must be valid until then. If work on a stream fills it, call [`produced_on`](@ref).

Throws `DEVX_INVALID_SHAPE`, `DEVX_INVALID_ARGUMENT` (alignment), `DEVX_NULL_ARGUMENT`, `DEVX_DEVICE` (no such type or
number) with the field and its value.
"""
function Tensor(data::Ptr{T}, size::NTuple{N,Integer}; strides=nothing, root=nothing, release=nothing,
                readonly::Bool=false, device::DLDevice=CPU) where {T,N}
    d = element_dtype(T)
    flags = element_flags(d) | (readonly ? DLPACK_FLAG_BITMASK_READ_ONLY : UInt64(0))
    extents = extents_of(size)
    strides === nothing || length(strides) == N || throw(DevExchangeError(DEVX_INVALID_SHAPE,
        "strides are $(length(strides)) numbers for $N dimensions"))
    steps = strides === nothing ? column_major(extents) : ntuple(k -> number_at(strides[k], "strides", k), Val(N))
    shape, step = Ref(extents), Ref(steps)
    handle = made(Handle{TAG_TENSOR}) do out
        GC.@preserve shape step begin
            description = Ref(DLTensor(data, device, N, d, address_of(shape), address_of(step), 0))
            owned(root, references(root), release) do owner
                @checked devx_tensor_create(
                    description::Ptr{DLTensor}, flags::UInt64, owner::Ptr{DevxOwner}, out::Ptr{Ptr{Cvoid}})
            end
        end
    end
    # The library accepts device numbers in more than one form, so it has the last word on them.
    device === CPU || return adopt_tensor(Tensor{T,N}, handle)
    first = any(iszero, extents) ? Ptr{T}(C_NULL) : data
    return Tensor{T,N}(handle, first, extents, steps, flags, CPU)
end

# Errors about sizes and strides from here count dimensions from 1; the library's own errors count from 0.
function extents_of(dims::NTuple{N,Integer}) where {N}
    return ntuple(Val(N)) do k
        extent = number_at(dims[k], "size", k)
        extent < 0 ? throw(negative_extent(extent, k)) : extent
    end
end

@noinline negative_extent(extent, k) =
    DevExchangeError(DEVX_INVALID_SHAPE, "size[$k] is $extent: an extent cannot be negative")

@inline number_at(x::Int64, name, k) = x
@inline number_at(x::Integer, name, k) =
    typemin(Int64) <= x <= typemax(Int64) ? Int64(x) : throw(out_of_range(Int64, x, string(name, '[', k, ']')))

address_of(numbers::Ref{NTuple{N,Int64}}) where {N} =
    N == 0 ? Ptr{Int64}(C_NULL) : Ptr{Int64}(Base.unsafe_convert(Ptr{NTuple{N,Int64}}, numbers))

# Strides may overflow here: such a shape is refused anyway.
column_major(size::NTuple{N,Int64}) where {N} = ntuple(k -> prod(ntuple(i -> i < k ? max(size[i], 1) : 1, N)), N)

# The address and strides of an array in memory that the host can read.
memory_of(array::Array) = (pointer(array), strides(array))
function memory_of(array::AbstractArray)
    require_readable_memory(array)
    try
        return (pointer(array), strides(array))
    catch e
        e isa DevExchangeError && rethrow()
        throw(DevExchangeError(DEVX_UNSUPPORTED,
            "the array is a $(typeof(array)): it has no memory with strides; make an Array of it (`collect`)"))
    end
end

# Checks that an array's memory can be read here, whatever it is a view of.
require_readable_memory(t::Tensor) = require_readable(t)
require_readable_memory(array::AbstractArray) = (p = parent(array); p === array || require_readable_memory(p))

# Takes over a reference of the C API, for a tensor whose type is not known.
adopt_tensor(address::Ptr{Cvoid}; ready::Bool=false) = adopt_tensor(Handle{TAG_TENSOR}(address); ready=ready)
function adopt_tensor(handle::Handle{TAG_TENSOR}; ready::Bool=false)
    # Nobody else has the handle yet, so nobody closes it; the same holds below.
    GC.@preserve handle begin
        view, flags = look_at(handle.address)
        T = element_type(view.dtype, flags)
        if T === nothing
            close(handle)
            throw(no_element_type(view.dtype))
        end
        return Tensor(handle, T, Val(Int(view.ndim)), view, flags, ready)
    end
end

# Like the method above, for a tensor whose type is known.
adopt_tensor(::Type{W}, address::Ptr{Cvoid}; ready::Bool=false) where {W<:Tensor} =
    adopt_tensor(W, Handle{TAG_TENSOR}(address); ready=ready)
adopt_tensor(::Type{Tensor{T,N}}, handle::Handle{TAG_TENSOR}; ready::Bool=false) where {T,N} =
    GC.@preserve handle Tensor(handle, T, Val(N), look_at(handle.address)..., ready)

function look_at(address::Ptr{Cvoid})
    view = Ref{DLTensor}()
    flags = Ref{UInt64}(0)
    @checked devx_tensor_borrow(address::Ptr{Cvoid}, view::Ptr{DLTensor}, flags::Ptr{UInt64})
    return view[], flags[]
end

# `ready` says that no work on a stream may still be writing the memory; for CPU memory that is always so.
function Tensor(handle::Handle{TAG_TENSOR}, ::Type{T}, ::Val{N}, view::DLTensor, flags::UInt64,
                ready::Bool) where {T,N}
    extents = ntuple(k -> Int(unsafe_load(view.shape, k)), Val(N))
    steps = ntuple(k -> Int(unsafe_load(view.strides, k)), Val(N))
    readable = is_host(view.device) && (ready || view.device.device_type == kDLCPU)
    return Tensor{T,N}(handle, Ptr{T}(view.data), extents, steps, flags, view.device, readable)
end

no_element_type(d::DLDataType) = DevExchangeError(DEVX_UNSUPPORTED, "dtype is $(dtype_name(d)): a Julia array has no " *
    "packed elements, no vectors of elements of less than a byte, and none of more than $MAX_LANES lanes")

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
    require_readable(t)
    @boundscheck checkbounds(t, index...)
    GC.@preserve t load_element(t.data, offset(t.strides, index))
end

@inline function Base.setindex!(t::Tensor{T,N}, value, index::Vararg{Int,N}) where {T,N}
    isreadonly(t) && throw(read_only())
    # First, because it can run any code, which may close the tensor.
    element = convert(T, value)::T
    require_open(t.handle)
    require_readable(t)
    @boundscheck checkbounds(t, index...)
    GC.@preserve t unsafe_store!(t.data, element, offset(t.strides, index) + 1)
    return t
end

offset(::Tuple{}, ::Tuple{}) = 0
@inline offset(strides::Tuple, index::Tuple) =
    (index[1] - 1) * strides[1] + offset(Base.tail(strides), Base.tail(index))

@inline load_element(data::Ptr{T}, offset::Int) where {T} = unsafe_load(data, offset + 1)
# A foreign byte can be true without being 1, which a `Bool` must not be.
@inline load_element(data::Ptr{Bool}, offset::Int) = unsafe_load(Ptr{UInt8}(data), offset + 1) != 0x00
@inline load_element(data::Ptr{NTuple{L,Bool}}, offset::Int) where {L} =
    map(byte -> byte != 0x00, unsafe_load(Ptr{NTuple{L,UInt8}}(data), offset + 1))
const Bools = Union{Bool,NTuple{L,Bool} where L}

@inline require_readable(t::Tensor) = t.readable || throw(not_readable(t.device))

@noinline read_only() =
    DevExchangeError(DEVX_READ_ONLY, "the tensor has READ_ONLY in its flags: it must not be written")

"""
    unsafe_wrap(Array, t::Tensor{T,N}) -> Array{T,N}

Returns the elements of a compact column-major tensor as an `Array` over the same memory, for code that accepts nothing
else. The array holds its own reference: the memory stays as long as anything refers to the array, even after
`close(t)`. The array must not be resized, nor written if `isreadonly(t)`; nothing prevents you from doing so.

Throws `DEVX_COPY_REQUIRED` for other strides, and for tensors of `Bool` and of vectors of it, whose bytes may not be
valid in Julia. To get a row-major matrix transposed: `unsafe_wrap(Array, Tensor(PermutedDimsArray(t, (2, 1))))`.
"""
function Base.unsafe_wrap(::Type{Array}, t::Tensor{T,N}) where {T,N}
    require_readable(t)
    require_memory_of_julia(t)
    return wrap_memory(t.data, size(t), t.handle)
end

# Checks that the elements are in memory as in a Julia array.
function require_memory_of_julia(array::AbstractArray{T}) where {T}
    T <: Bools && throw(DevExchangeError(DEVX_COPY_REQUIRED, "eltype is $T: its bytes need not be 0 or 1"))
    is_column_major(size(array), strides(array)) || throw(DevExchangeError(DEVX_COPY_REQUIRED,
        "strides $(strides(array)) of size $(size(array)) are not those of a Julia array"))
    return nothing
end

function is_column_major(size::NTuple{N,Int}, strides::NTuple{N,Int}) where {N}
    any(iszero, size) && return true
    compact = column_major(size)
    return all(k -> size[k] == 1 || strides[k] == compact[k], 1:N)
end

"""
    isreadonly(t::Tensor) -> Bool

Whether the memory must not be written (`DLPACK_FLAG_BITMASK_READ_ONLY`).
"""
Base.isreadonly(t::Tensor) = t.flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0

"""
    flags(t::Tensor) -> UInt64

Returns the properties that DLPack carries as bits (`DevExchange.DLPACK_FLAG_BITMASK_...`), including unknown ones.
"""
flags(t::Tensor) = t.flags

device(t::Tensor) = t.device
dtype(::Tensor{T}) where {T} = dtype(T)

# ---- ownership ----

Base.isopen(t::Tensor) = isopen(t.handle)

"""
    close(x)

Gives up a [`Tensor`](@ref), [`Batch`](@ref) or [`Schema`](@ref) now. Closing it again does nothing. If another task is
just handing it on, that call still succeeds. For the effects, see the types.
"""
Base.close(t::Tensor) = close(t.handle)

"""
    share(x)

Returns another reference to the same tensor or batch. Both have to be closed (or moved away), and the memory stays
until both are. For a [`Column`](@ref) the result is a batch of its own whose [`root`](@ref) is the column; it is a
record batch if the column is a struct. Throws `DEVX_CLOSED`.
"""
share(t::Tensor{T,N}) where {T,N} =
    Tensor{T,N}(share_handle(t.handle), t.data, t.size, t.strides, t.flags, t.device, t.readable)

Tensor(t::Tensor) = share(t)

function slice(t::Tensor{T,N}, indices::Vararg{Union{Colon,AbstractUnitRange{<:Integer}},N}) where {T,N}
    checkbounds(t, indices...)
    part = share(t)
    for k in 1:N
        indices[k] isa Colon && continue
        whole = part
        part = try
            cut(whole, k, indices[k])
        finally
            close(whole)
        end
    end
    return part
end

cut(t::Tensor{T,N}, dimension, indices) where {T,N} = adopt_tensor(Tensor{T,N}, made(Handle{TAG_TENSOR}) do out
    @checked devx_tensor_slice(t.handle::Handle, (dimension - 1)::Int64, rows_before(indices)::Int64,
        length(indices)::Int64, out::Ptr{Ptr{Cvoid}})
end; ready=t.readable)

write_protected(t::Tensor) = isreadonly(t)
references(t::Tensor) = (share_handle(t.handle, Handle{TAG_TENSOR | TAG_KEPT}),)

"""
    copy_to(t::Tensor{T,N}, DevExchange.CPU) -> Tensor{T,N}

Returns a compact row-major copy, within host memory, in memory of the library: writable, with
`DLPACK_FLAG_BITMASK_IS_COPIED`. `deepcopy` makes the same; `copy(t)` is an `Array`. A copy from or to a device needs a
stream. Throws `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_CLOSED`.
"""
function copy_to(t::Tensor{T,N}, device::DLDevice) where {T,N}
    device.device_type == kDLCPU || throw(DevExchangeError(DEVX_DEVICE,
        "device is $(device_name(device)): a copy there needs a stream, `copy_to(tensor, device, stream)`"))
    return adopt_tensor(Tensor{T,N}, made(Handle{TAG_TENSOR}) do out
        @checked devx_tensor_copy(t.handle::Handle, out::Ptr{Ptr{Cvoid}})
    end)
end

# Like for any array, a copy that nobody else writes.
function Base.deepcopy_internal(t::Tensor, seen::IdDict)
    haskey(seen, t.handle) && return seen[t.handle]
    return seen[t.handle] = copy_to(t, CPU)
end

"""
    borrow(f, t::Tensor)

Calls `f(view::DLTensor)` and returns its result. The view is valid for the length of this call and owns nothing. The
memory is not released meanwhile, even if the tensor is closed or moved away. Strides are always given, `byte_offset` is
0. Throws `DEVX_CLOSED`.
"""
function borrow(f, t::Tensor)
    # A reference for the length of the call, instead of `held`: otherwise moving the tensor would wait for `f`.
    reference = share_handle(t.handle, Handle{TAG_TENSOR | TAG_KEPT})
    try
        return f(held(look_at, reference)[1])
    finally
        close(reference)
    end
end
