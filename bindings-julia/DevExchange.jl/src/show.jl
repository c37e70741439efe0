# How tensors, columns, and arrays over them are shown: without reading memory that cannot be read here.

const OfColumn = Wrapped(Column)

# Without the types of nested values. Closed columns are shown, too: errors often show their subject after it was
# closed.
Base.showarg(io::IO, c::Column, toplevel) =
    print(io, "Column ", isopen(c.batch) ? "of $(type_name(c))" : "(closed)")

function Base.show(io::IO, mime::MIME"text/plain", array::Union{OfTensor,Column,OfColumn})
    shows_elements(array) || return show(io, array)
    invoke(show, Tuple{IO,MIME"text/plain",AbstractArray}, io, mime, array)
end

Base.show(io::IO, array::Union{OfTensor,OfColumn}) = show_as(AbstractArray, io, array)

# Newer versions of LinearAlgebra show these in their own way.
const OurVector = typeintersect(Union{WrappedTwice,Column}, AbstractVector)
Base.show(io::IO, v::Adjoint{<:Real,<:OurVector}) = show_as(Adjoint{<:Real,<:AbstractVector}, io, v)
Base.show(io::IO, v::Transpose{<:Number,<:OurVector}) = show_as(Transpose{<:Number,<:AbstractVector}, io, v)

# Shows an array as Julia shows one of this type, if its elements can be read.
function show_as(type::Type, io::IO, array)
    shows_elements(array) && return invoke(show, Tuple{IO,type}, io, array)
    print(io, summary(array), whereabouts(array))
end

function Base.show(io::IO, c::Column)
    shows_elements(c) && return invoke(show, Tuple{IO,AbstractArray}, IOContext(io, :typeinfo => typeof(c)), c)
    print(io, "Column of ", length(c), " rows", isopen(c.batch) ? " on $(device_name(c.batch.device))" : " (closed)")
end

shows_elements(t::Tensor) = isopen(t) && t.readable
shows_elements(c::Column) = isopen(c.batch) && c.batch.readable
shows_elements(array::AbstractArray) = (p = parent(array); p === array || shows_elements(p))

whereabouts(t::Tensor) = isopen(t) ? " on $(device_name(t.device))" : " (closed)"
# A closed column says so in any case (`showarg`).
whereabouts(c::Column) = isopen(c.batch) ? " on $(device_name(c.batch.device))" : ""
whereabouts(array::AbstractArray) = whereabouts(parent(array))
