# Which arrays share memory with a tensor, and what is therefore copied before it is written.

# Julia compares where arrays begin. A tensor can be over any part of another array, so all of its bytes are compared.
# The same goes for what Julia and LinearAlgebra wrap around a tensor, up to three levels deep.
Wrapped(P) = Union{SubArray{<:Any,<:Any,<:P},Base.ReshapedArray{<:Any,<:Any,<:P},
    Base.ReinterpretArray{<:Any,<:Any,<:Any,<:P},PermutedDimsArray{<:Any,<:Any,<:Any,<:Any,<:P},Transpose{<:Any,<:P},
    Adjoint{<:Any,<:P}}
const WrappedOnce = Union{Tensor,Wrapped(Tensor)}
const WrappedTwice = Union{WrappedOnce,Wrapped(WrappedOnce)}
const OfTensor = Union{WrappedTwice,Wrapped(WrappedTwice)}
Base.mightalias(a::OfTensor, b::AbstractArray) = may_meet(a, b)
Base.mightalias(a::AbstractArray, b::OfTensor) = may_meet(a, b)
Base.mightalias(a::OfTensor, b::OfTensor) = may_meet(a, b)
# Julia has methods of its own for two views, or for a view and a reshaped array; which ones depends on its version.
for A in (:SubArray, :(Base.ReshapedArray)), B in (:SubArray, :(Base.ReshapedArray))
    a, b = :($A{<:Any,<:Any,<:WrappedTwice}), :($B{<:Any,<:Any,<:WrappedTwice})
    for (x, y) in ((a, b), (a, B), (A, b))
        @eval Base.mightalias(a::$x, b::$y) = may_meet(a, b)
    end
end
Base.mightalias(a::SubArray{T,<:Any,P}, b::SubArray{T,<:Any,P}) where {T,P<:WrappedTwice} = may_meet(a, b)

# A source that is written while it is read is copied first: into an `Array`. Julia would copy into an array of the same
# type; that would be a tensor that nobody can close, and not every version of Julia can make one from a permuted array.
# Whether there is a copy is known only at run time, so the answer has one type for both: of an answer of several types
# the compiler would look up each element at run time.
struct Apart{T,N,A<:AbstractArray{T,N}} <: AbstractArray{T,N}
    source::A
    copied::Union{Nothing,Array{T,N}}
end

Base.size(a::Apart) = size(a.source)
Base.axes(a::Apart) = axes(a.source)
Base.IndexStyle(::Type{<:Apart{<:Any,<:Any,A}}) where {A} = IndexStyle(A)
@inline Base.getindex(a::Apart{<:Any,N}, index::Vararg{Int,N}) where {N} = element(a, index)
# A number for an array of several dimensions is in the order of its elements, which the copy keeps.
@inline Base.getindex(a::Apart{<:Any,1}, i::Int) = element(a, (i,))
@inline function Base.getindex(a::Apart, i::Int)
    a.copied === nothing && return a.source[i]
    return a.copied[i]
end
@inline function element(a::Apart, index)
    copied = a.copied
    copied === nothing && return a.source[index...]
    @boundscheck checkbounds(a.source, index...)
    # The copy counts from 1, whatever the axes of the source.
    return @inbounds copied[map((i, axis) -> i - first(axis) + 1, index, axes(a.source))...]
end

apart(dest, a) = Apart(a, Base.mightalias(dest, a) ? copied(a) : nothing)
@noinline copied(a::AbstractArray{T,N}) where {T,N} = copyto!(Array{T,N}(undef, size(a)), a)

const OfPermuted = PermutedDimsArray{<:Any,<:Any,<:Any,<:Any,<:WrappedTwice}
Base.unalias(dest, a::OfTensor) = apart(dest, a)
Base.unalias(dest::OfTensor, a::PermutedDimsArray) = apart(dest, a)
Base.unalias(dest::OfTensor, a::OfPermuted) = apart(dest, a)
# Julia's broadcasting leaves an array as it is if it is the target itself, which again is known only at run time.
Base.Broadcast.broadcast_unalias(dest, a::OfTensor) = apart_unless_same(dest, a)
Base.Broadcast.broadcast_unalias(::Nothing, a::OfTensor) = a
apart_unless_same(dest, a) = dest === a ? Apart(a, nothing) : apart(dest, a)
# Arrays that are wrapped deeper need their own type all the same.
Base.unaliascopy(t::Tensor) = Tensor(copy(t))
Base.unaliascopy(a::OfPermuted) = typeof(a)(Base.unaliascopy(parent(a)))
# Julia has methods to fill permuted arrays that do not check for overlaps. Other packages have some of their own, for
# sources that are not of these types.
const OfMemory{T,N} = Union{Array{T,N},Tensor{T,N},SubArray{T,N},Base.ReshapedArray{T,N},Base.ReinterpretArray{T,N},
    PermutedDimsArray{T,N}}
const Flipped{T} = Union{Transpose{T},Adjoint{T}}
Base.copyto!(dest::OfPermuted, source::Union{OfMemory,Flipped}) =
    invoke(copyto!, Tuple{PermutedDimsArray,AbstractArray}, dest, Base.unalias(dest, source))
Base.copyto!(dest::PermutedDimsArray{T,N,<:Any,<:Any,<:WrappedTwice}, source::OfMemory{T,N}) where {T,N} =
    invoke(copyto!, Tuple{PermutedDimsArray{T,N},AbstractArray{T,N}}, dest, Base.unalias(dest, source))
Base.copyto!(dest::PermutedDimsArray{T,2,<:Any,<:Any,<:WrappedTwice}, source::Flipped{T}) where {T} =
    invoke(copyto!, Tuple{PermutedDimsArray{T,2},AbstractArray{T,2}}, dest, Base.unalias(dest, source))
# Copying a part of an array to another place in it is handled here, too: not every version of Julia checks for that.
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

# The addresses of an array's memory, as far as they are known; for a view, those of the whole array.
bytes_of(a::Array) = Int(pointer(a)) .+ (0:sizeof(a)-1)
function bytes_of(t::Tensor{T}) where {T}
    isempty(t) && return 0:-1
    reach = (size(t) .- 1) .* strides(t)
    below, above = reduce(+, min.(reach, 0); init=0), reduce(+, max.(reach, 0); init=0) + 1
    return Int(t.data) .+ (below*sizeof(T):above*sizeof(T)-1)
end
bytes_of(a::AbstractArray) = (p = parent(a); p === a ? nothing : bytes_of(p))
