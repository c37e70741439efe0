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

**Device memory.** A tensor may lie on a CUDA device ([`allocate`](@ref), [`copy_to`](@ref), imports): then it has size,
strides and a `pointer` as any other, but its elements are not touched, also not by `show`. Element access throws
`DEVX_DEVICE`, or `DEVX_NOT_READY` for pinned and managed memory that work on a stream may still be writing (see
[`synchronize`](@ref)). Take them over with [`copy_to`](@ref) or [`read!`](@ref Base.read!).

**Threads.** Any task may use a tensor and close it.
"""
struct Tensor{T,N} <: AbstractArray{T,N}
    handle::Handle{TAG_TENSOR}
    data::Ptr{T}
    size::Dims{N}
    strides::Dims{N}
    flags::UInt64
    device::DLDevice
    # Whether the elements may be read here: host memory that no work on a stream may still be writing.
    readable::Bool

    Tensor{T,N}(handle, data, size, strides, flags, device, readable=device.device_type == kDLCPU) where {T,N} =
        new{T,N}(handle, data, size, strides, flags, device, readable)
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
([`release_failures`](@ref)). If this throws, `release` is not called, and neither is it if the tensor, or what was
exported of it, is still there when Julia ends.

Throws `DEVX_UNSUPPORTED` for an array without memory of its own and for an element type that DLPack does not have,
`DEVX_INVALID_ARGUMENT` for a `release` that cannot be called.
"""
function Tensor(array::AbstractArray{T,N}; release=nothing, readonly::Bool=false) where {T,N}
    # First, as it says best what is wrong with the array.
    element_dtype(T)
    data, steps = memory_of(array)
    readonly |= write_protected(array)
    return GC.@preserve array Tensor(data, size(array); strides=steps, root=array, release=release, readonly=readonly)
end

"""
    Tensor(data::Ptr{T}, size::Dims; strides=nothing, root=nothing, release=nothing, readonly=false,
           device=DevExchange.CPU)

Makes a tensor over memory that the caller owns, on a device. `strides` are in elements, by default those of a Julia
array (column-major). `root` is kept alive as long as the memory is used, and then `release()` is called, as for
`Tensor(array)`. The memory has to be valid until then. If work on a stream fills it, say [`produced_on`](@ref).

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
    # The library knows the numbers of devices in more than one form.
    device === CPU || return adopt_tensor(Tensor{T,N}, handle)
    first = any(iszero, extents) ? Ptr{T}(C_NULL) : data
    return Tensor{T,N}(handle, first, extents, steps, flags, CPU)
end

# Sizes and strides that are given here count from 1, in the library's own texts from 0.
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

# What an overflow makes of the strides does not matter: the shape is refused.
column_major(size::NTuple{N,Int64}) where {N} = ntuple(k -> prod(ntuple(i -> i < k ? max(size[i], 1) : 1, N)), N)

# Address and strides of an array in memory that the host can read.
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

# Whether an array is of memory that can be read here, whatever it is a view of.
require_readable_memory(t::Tensor) = require_readable(t)
require_readable_memory(array::AbstractArray) = (p = parent(array); p === array || require_readable_memory(p))

# Takes over a reference of the C API, for a tensor whose type it has to say.
adopt_tensor(address::Ptr{Cvoid}; ready::Bool=false) = adopt_tensor(Handle{TAG_TENSOR}(address); ready=ready)
function adopt_tensor(handle::Handle{TAG_TENSOR}; ready::Bool=false)
    # Nobody else has the handle yet, so nobody closes it; and so below.
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

# As above, for a tensor whose type is known.
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

# `ready` says that no work on a stream may still be writing it, as none ever is with memory of the CPU.
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

# Julia compares where arrays begin. A tensor may be of any part of another array, so it is compared by all of its bytes;
# and so is what Julia and LinearAlgebra wrap around one, up to three levels deep.
Wrapped(P) = Union{SubArray{<:Any,<:Any,<:P},Base.ReshapedArray{<:Any,<:Any,<:P},
    Base.ReinterpretArray{<:Any,<:Any,<:Any,<:P},PermutedDimsArray{<:Any,<:Any,<:Any,<:Any,<:P},Transpose{<:Any,<:P},
    Adjoint{<:Any,<:P}}
const WrappedOnce = Union{Tensor,Wrapped(Tensor)}
const WrappedTwice = Union{WrappedOnce,Wrapped(WrappedOnce)}
const OfTensor = Union{WrappedTwice,Wrapped(WrappedTwice)}
Base.mightalias(a::OfTensor, b::AbstractArray) = may_meet(a, b)
Base.mightalias(a::AbstractArray, b::OfTensor) = may_meet(a, b)
Base.mightalias(a::OfTensor, b::OfTensor) = may_meet(a, b)
# Of views of arrays of the same type Julia has a method of its own.
Base.mightalias(a::SubArray{T,<:Any,P}, b::SubArray{T,<:Any,P}) where {T,P<:WrappedTwice} = may_meet(a, b)

# What is read while it is written is copied first: into an array, not as Julia does it into one of the same type, which
# would be a tensor that nobody can close, and which not every version of Julia can make of what is permuted.
const OfPermuted = PermutedDimsArray{<:Any,<:Any,<:Any,<:Any,<:WrappedTwice}
Base.unalias(dest, a::OfTensor) = apart(dest, a)
Base.unalias(dest::OfTensor, a::PermutedDimsArray) = apart(dest, a)
Base.unalias(dest::OfTensor, a::OfPermuted) = apart(dest, a)
apart(dest, a) = Base.mightalias(dest, a) ? copy(a) : a
# What is wrapped deeper wants its own type all the same.
Base.unaliascopy(t::Tensor) = Tensor(copy(t))
Base.unaliascopy(a::OfPermuted) = typeof(a)(Base.unaliascopy(parent(a)))
# To fill what is permuted Julia has methods that do not look for this; other packages have some of their own, for sources
# that are not of these types.
const OfMemory{T,N} = Union{Array{T,N},Tensor{T,N},SubArray{T,N},Base.ReshapedArray{T,N},Base.ReinterpretArray{T,N},
    PermutedDimsArray{T,N}}
const Flipped{T} = Union{Transpose{T},Adjoint{T}}
Base.copyto!(dest::OfPermuted, source::Union{OfMemory,Flipped}) =
    invoke(copyto!, Tuple{PermutedDimsArray,AbstractArray}, dest, Base.unalias(dest, source))
Base.copyto!(dest::PermutedDimsArray{T,N,<:Any,<:Any,<:WrappedTwice}, source::OfMemory{T,N}) where {T,N} =
    invoke(copyto!, Tuple{PermutedDimsArray{T,N},AbstractArray{T,N}}, dest, Base.unalias(dest, source))
Base.copyto!(dest::PermutedDimsArray{T,2,<:Any,<:Any,<:WrappedTwice}, source::Flipped{T}) where {T} =
    invoke(copyto!, Tuple{PermutedDimsArray{T,2},AbstractArray{T,2}}, dest, Base.unalias(dest, source))
# So is a part of one that goes to another place in it, which not every version of Julia looks for.
for (D, S) in ((OfTensor, AbstractArray), (AbstractArray, OfTensor), (OfTensor, OfTensor))
    @eval function Base.copyto!(dest::$D, d::Integer, source::$S, s::Integer, n::Integer)
        meets = Base.mightalias(dest, source)
        part, first = meets ? (source[s:s+n-1], 1) : (source, s)
        return invoke(copyto!, Tuple{AbstractArray,Integer,AbstractArray,Integer,Integer}, dest, d, part, first, n)
    end
end

function may_meet(a::AbstractArray, b::AbstractArray)
    x, y = bytes_of(a), bytes_of(b)
    (x === nothing || y === nothing) && return !isdisjoint_ids(Base.dataids(a), Base.dataids(b))
    return !isempty(intersect(x, y))
end

isdisjoint_ids(a::Tuple, b::Tuple) = !any(id -> id in b, a)

# The addresses of an array's memory, as far as it has some; of a view, those of the whole.
bytes_of(a::Array) = Int(pointer(a)) .+ (0:sizeof(a)-1)
function bytes_of(t::Tensor{T}) where {T}
    isempty(t) && return 0:-1
    reach = (size(t) .- 1) .* strides(t)
    below, above = reduce(+, min.(reach, 0); init=0), reduce(+, max.(reach, 0); init=0) + 1
    return Int(t.data) .+ (below*sizeof(T):above*sizeof(T)-1)
end
bytes_of(a::AbstractArray) = (p = parent(a); p === a ? nothing : bytes_of(p))

# What older versions of Julia do with matrices of their own only; `inv` wants `factorize`, and `pinv` wants `svd`.
for f in (:(Base.exp), :(Base.log), :(Base.sqrt), :(LinearAlgebra.factorize), :(LinearAlgebra.svd))
    @eval $f(t::Tensor{<:Any,2}; keywords...) = $f(copy(t); keywords...)
end

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
    # First, as it may run code of anybody's, which may close the tensor.
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
# A byte of somebody else's may be true without being 1, which a `Bool` must not be.
@inline load_element(data::Ptr{Bool}, offset::Int) = unsafe_load(Ptr{UInt8}(data), offset + 1) != 0x00
@inline load_element(data::Ptr{NTuple{L,Bool}}, offset::Int) where {L} =
    map(byte -> byte != 0x00, unsafe_load(Ptr{NTuple{L,UInt8}}(data), offset + 1))
const Bools = Union{Bool,NTuple{L,Bool} where L}

@inline require_readable(t::Tensor) = t.readable || throw(not_readable(t.device))

@noinline read_only() =
    DevExchangeError(DEVX_READ_ONLY, "the tensor has READ_ONLY in its flags: it must not be written")

"""
    unsafe_wrap(Array, t::Tensor{T,N}) -> Array{T,N}

The elements of a compact column-major tensor as an `Array` over the same memory, for code that wants nothing else. The
array holds a reference of its own: the memory stays as long as anything refers to the array, also after `close(t)`.
It must not be resized, and not be written if `isreadonly(t)`; nothing keeps you from it.

Throws `DEVX_COPY_REQUIRED` for other strides, and for tensors of `Bool` and of vectors of it, whose bytes need not be
those of Julia. A row-major matrix can be had transposed: `unsafe_wrap(Array, Tensor(PermutedDimsArray(t, (2, 1))))`.
"""
function Base.unsafe_wrap(::Type{Array}, t::Tensor{T,N}) where {T,N}
    require_readable(t)
    require_memory_of_julia(t)
    return wrap_memory(t.data, size(t), t.handle)
end

# That the elements lie in memory as those of an array of Julia's do.
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

The properties that DLPack carries as bits (`DevExchange.DLPACK_FLAG_BITMASK_...`), unknown ones included.
"""
flags(t::Tensor) = t.flags

device(t::Tensor) = t.device
dtype(::Tensor{T}) where {T} = dtype(T)

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
are. Of a [`Column`](@ref) it is a batch of its own, whose [`root`](@ref) is the column: a record batch if that is a struct.
Throws `DEVX_CLOSED`.
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

A compact row-major copy, within host memory, in memory of the library's: writable, with
`DLPACK_FLAG_BITMASK_IS_COPIED`. So is what `deepcopy` makes; `copy(t)` is an `Array`. From a device, and to one, a copy
needs a stream. Throws `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_CLOSED`.
"""
function copy_to(t::Tensor{T,N}, device::DLDevice) where {T,N}
    device.device_type == kDLCPU || throw(DevExchangeError(DEVX_DEVICE,
        "device is $(device_name(device)): a copy there needs a stream, `copy_to(tensor, device, stream)`"))
    return adopt_tensor(Tensor{T,N}, made(Handle{TAG_TENSOR}) do out
        @checked devx_tensor_copy(t.handle::Handle, out::Ptr{Ptr{Cvoid}})
    end)
end

# As of any array, one that nobody else writes.
function Base.deepcopy_internal(t::Tensor, seen::IdDict)
    haskey(seen, t.handle) && return seen[t.handle]
    return seen[t.handle] = copy_to(t, CPU)
end

"""
    borrow(f, t::Tensor)

Calls `f(view::DLTensor)` and returns what it returns. The view is valid for the length of this call and owns nothing;
the memory is not released meanwhile, even if the tensor is closed or moved away. Strides are always there,
`byte_offset` is 0. Throws `DEVX_CLOSED`.
"""
function borrow(f, t::Tensor)
    # A reference for the length of the call, and not `held`: whoever moves the tensor would wait for `f` then.
    reference = share_handle(t.handle, Handle{TAG_TENSOR | TAG_KEPT})
    try
        return f(held(look_at, reference)[1])
    finally
        close(reference)
    end
end

# ---- on devices ----
#
# Memory that is allocated here is compact and row-major, as all of DLPack's world expects it. A Julia array is
# column-major. What goes between the two is the same element at the same index, never the same bytes under another
# index: for two or more dimensions that is a reordering, which is done by the host.

"""
    allocate(T, dims, device::DLDevice; stream=nothing) -> Tensor{T}

A tensor over new memory of a device, not initialised, with elements of type `T` (one that [`dtype`](@ref
DevExchange.dtype) knows). It is compact and **row-major**: the last index is the fastest, `strides` says so.

With a `stream` memory of a CUDA device comes from the device's pool: it is ready for work on that stream, and given
back on it; the stream may be closed before that. Without one it is ready at once. For
`DevExchange.PINNED`, `DevExchange.MANAGED` and `DevExchange.CPU` elements can be written and read here at once.

Throws `DEVX_OUT_OF_MEMORY`, `DEVX_INVALID_SHAPE`, `DEVX_DEVICE` (no driver, no such device), `DEVX_INVALID_STREAM` (a
stream of another device), `DEVX_UNSUPPORTED`, `DEVX_DRIVER`.
"""
allocate(::Type{T}, dims::Integer, device::DLDevice; stream=nothing) where {T} =
    allocate(T, (dims,), device; stream=stream)
function allocate(::Type{T}, dims::NTuple{N,Integer}, device::DLDevice; stream=nothing) where {T,N}
    d, extents = memory_dtype(T), Ref(extents_of(dims))
    handle = made(Handle{TAG_TENSOR}) do out
        on_stream(stream) do stream
            GC.@preserve extents begin
                shape = address_of(extents)
                @checked devx_tensor_allocate(device::DLDevice, d::DLDataType, shape::Ptr{Int64}, N::Csize_t,
                    stream::Int64, out::Ptr{Ptr{Cvoid}})
            end
        end
    end
    return adopt_tensor(Tensor{T,N}, handle; ready=true)
end

# The element type of memory that is made here.
function memory_dtype(::Type{T}) where {T}
    d = element_dtype(T)
    d.bits < 8 && throw(DevExchangeError(DEVX_UNSUPPORTED, "eltype is $T: memory for $(dtype_name(d)) would be packed"))
    return d
end

"""
    copy_to(t::Tensor{T,N}, device::DLDevice, stream) -> Tensor{T,N}
    copy_to(array::AbstractArray{T,N}, device::DLDevice, stream) -> Tensor{T,N}

A copy on another device (or the same), queued on a stream of either, after which it is ready: it can be handed on at
once, and the source closed. A copy on the CPU is waited for, and can be read. One of the two devices has streams, or it
is `DEVX_DEVICE`: within host memory a copy needs no stream. Size and elements stay the same, index by index, in compact
**row-major** order; a tensor on a device whose elements lie otherwise has a copy with the same strides there.

Of a Julia array of two or more dimensions, which is column-major, this first makes a row-major copy in host memory;
`PermutedDimsArray(array, (2, 1))` and the like, whose memory is row-major, goes as it is.

Of a tensor on a device a part is copied as a [`slice`](@ref), and a column in device memory with its batch.

Throws `DEVX_OUT_OF_MEMORY`, `DEVX_DEVICE`, `DEVX_INVALID_STREAM`, `DEVX_DRIVER`, `DEVX_UNSUPPORTED` if the stream is
being captured, `DEVX_CLOSED`.
"""
function copy_to(t::Tensor{T,N}, device::DLDevice, stream::AnyStream) where {T,N}
    return adopt_tensor(Tensor{T,N}, made(Handle{TAG_TENSOR}) do out
        in_order(t.handle, stream) do tensor, stream
            @checked devx_tensor_copy_to(tensor::Ptr{Cvoid}, device::DLDevice, stream::Int64, out::Ptr{Ptr{Cvoid}})
        end
    end)
end

function copy_to(array::AbstractArray{T,N}, device::DLDevice, stream::AnyStream) where {T,N}
    require_readable_source(array)
    memory = row_major(array)
    source = Tensor(pointer(memory), size(array); strides=row_major_strides(size(array)), root=memory)
    try
        return copy_to(source, device, stream)
    finally
        close(source)
    end
end

# What else to copy where an array is of memory that cannot be read here.
require_readable_source(array::AbstractArray) = (p = parent(array); p === array || require_readable_source(p))
require_readable_source(t::Tensor) = t.readable ||
    throw(not_copied(t.device, "a part of a tensor is copied as a `slice(tensor, indices...)` of it"))

"""
    read!(array::AbstractArray{T,N}, t::Tensor{T,N}, stream) -> array

Copies all elements of a tensor on a device into a Julia array of the same size, index by index, in the order of a
stream, and waits for them. The tensor has to be compact and row-major. A column-major array of two or more dimensions
is filled through a copy in host memory; the memory of `PermutedDimsArray(matrix, (2, 1))` is row-major and filled
directly.

Throws `DEVX_READ_ONLY` for an array that must not be written (that of a read-only tensor or a column, a range),
`DEVX_MISMATCH` for other elements, which are not converted, `DEVX_INVALID_SHAPE` for another size, `DEVX_COPY_REQUIRED`
for other strides, `DEVX_DEVICE` for memory without streams (that of the CPU), `DEVX_INVALID_STREAM`, `DEVX_DRIVER`,
`DEVX_CLOSED`.
"""
function Base.read!(array::AbstractArray{T,N}, t::Tensor{T,N}, stream::AnyStream) where {T,N}
    write_protected(array) && throw(DevExchangeError(DEVX_READ_ONLY,
        "the array, a $(typeof(array)), must not be written: it is of a column or a read-only tensor, or has no memory"))
    require_same_size(array, t)
    # Bytes of somebody else's may be true without being 1.
    direct = !(T <: Bools) && is_row_major(array)
    memory = direct ? array : Array{T,N}(undef, reverse(size(t)))
    GC.@preserve memory begin
        bytes = pointer(memory)
        in_order(t.handle, stream) do tensor, stream
            @checked devx_tensor_read(
                tensor::Ptr{Cvoid}, bytes::Ptr{Cvoid}, (length(t) * sizeof(T))::Csize_t, stream::Int64)
        end
        T <: Bools && foreach(k -> memory[k] = load_element(pointer(memory), k - 1), eachindex(memory))
    end
    direct || reversed!(array, memory)
    return array
end
Base.read!(array::AbstractArray, t::Tensor, ::AnyStream) = refuse_other(array, t)

"""
    write!(t::Tensor{T,N}, array::AbstractArray{T,N}, stream) -> t

Copies a Julia array of the same size to a tensor on a device, index by index; work that is queued on the stream
afterwards sees the elements. The array may be used again when this returns. Nobody else may use the elements of the
tensor meanwhile, and if the stream is not the one that it was made on, say [`produced_on`](@ref). Order of elements as
for [`read!`](@ref Base.read!).

Throws as [`read!`](@ref Base.read!); `DEVX_READ_ONLY` is for the tensor.
"""
function write!(t::Tensor{T,N}, array::AbstractArray{T,N}, stream::AnyStream) where {T,N}
    require_same_size(array, t)
    memory = row_major(array)
    GC.@preserve memory begin
        bytes = pointer(memory)
        in_order(t.handle, stream) do tensor, stream
            @checked devx_tensor_write(
                tensor::Ptr{Cvoid}, bytes::Ptr{Cvoid}, (length(t) * sizeof(T))::Csize_t, stream::Int64)
        end
    end
    return t
end
write!(t::Tensor, array::AbstractArray, ::AnyStream) = refuse_other(array, t)

"""
    check_pointers(t::Tensor)
    check_pointers(b::Batch)

Asks the driver whether the memory is where a tensor or a batch says, all of it: what no description can prove. The
buffers of a batch are not read, so the bytes that offsets and views point into are left out: only those tell how many
they are. Nothing is asked for memory of the CPU. Throws `DEVX_DEVICE` with what the driver says, of a batch with the
array and the buffer; `DEVX_DRIVER`, `DEVX_CLOSED`.
"""
function check_pointers(t::Tensor)
    @checked devx_tensor_check_pointers(t.handle::Handle)
    return nothing
end

# An array of other elements, or of another number of dimensions.
function refuse_other(array, t::Tensor)
    eltype(array) === eltype(t) || throw(DevExchangeError(DEVX_MISMATCH,
        "the array has eltype $(eltype(array)), the tensor has eltype $(eltype(t)): elements are not converted"))
    require_same_size(array, t)
end

function require_same_size(array, t::Tensor)
    size(array) == size(t) || throw(DevExchangeError(DEVX_INVALID_SHAPE,
        "the array has size $(size(array)), the tensor has size $(size(t))"))
    return nothing
end

row_major_strides(size::NTuple{N,Integer}) where {N} = reverse(column_major(NTuple{N,Int64}(reverse(size))))

# Whether an array has memory in which its elements lie side by side in row-major order.
function is_row_major(array::AbstractArray{T,N}) where {T,N}
    steps = try
        memory_of(array)[2]
    catch e
        e isa DevExchangeError && e.status == DEVX_UNSUPPORTED || rethrow()
        # No memory with strides.
        return false
    end
    compact = row_major_strides(size(array))
    return all(k -> size(array, k) == 1 || steps[k] == compact[k], 1:N)
end

# Memory with the elements of an array in row-major order: its own, or new memory.
function row_major(array::AbstractArray{T,N}) where {T,N}
    element_dtype(T)
    return is_row_major(array) ? array : reversed!(Array{T,N}(undef, reverse(size(array))), array)
end

# With the dimensions the other way round; `permutedims!` takes no arrays without dimensions.
reversed!(target::AbstractArray{T,N}, source::AbstractArray{T,N}) where {T,N} =
    N <= 1 ? copyto!(target, source) : permutedims!(target, source, N:-1:1)
