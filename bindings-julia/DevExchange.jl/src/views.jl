# The rows of a column as views of the memory of its batch.

"""
    Bytes <: AbstractVector{UInt8}

Bytes in the memory of a [`Batch`](@ref): a view, with a `pointer`, that keeps the batch from being finalized. Use it
before the batch is closed. `String(bytes)` makes a text as a copy.
"""
struct Bytes <: AbstractVector{UInt8}
    batch::Batch
    data::Ptr{UInt8}
    length::Int
end

Base.size(b::Bytes) = (b.length,)
Base.IndexStyle(::Type{Bytes}) = IndexLinear()
Base.strides(::Bytes) = (1,)
Base.elsize(::Type{Bytes}) = 1

function Base.unsafe_convert(::Type{Ptr{UInt8}}, b::Bytes)
    require_open(b.batch.handle)
    return b.data
end

@inline function Base.getindex(b::Bytes, i::Int)
    require_open(b.batch.handle)
    require_readable(b.batch)
    @boundscheck checkbounds(b, i)
    return GC.@preserve b unsafe_load(b.data, i)
end

references(b::Bytes) = references(b.batch)
require_readable_memory(b::Bytes) = require_readable(b.batch)
write_protected(::Bytes) = true

function Base.show(io::IO, mime::MIME"text/plain", b::Bytes)
    isopen(b.batch) || return show(io, b)
    invoke(show, Tuple{IO,MIME"text/plain",AbstractArray}, io, mime, b)
end

function Base.show(io::IO, b::Bytes)
    isopen(b.batch) && return invoke(show, Tuple{IO,AbstractArray}, io, b)
    print(io, summary(b), " (closed)")
end

Base.String(b::Bytes) = GC.@preserve b isempty(b) ? "" : unsafe_string(pointer(b), b.length)

"""
    Entries{K,V} <: AbstractDict{K,V}

A row of a map: keys and values in the memory of a [`Batch`](@ref), as a read-only dictionary that keeps the batch from
being finalized. Entries are in the producer's order. Arrow does not forbid repeated keys: the last value of a key
counts. `entries[key]` searches one entry after the other; use `Dict(entries)` for many look-ups. Use it before the
batch is closed.
"""
struct Entries{K,V,KC,VC} <: AbstractDict{K,V}
    keys::KC
    values::VC
end

Base.length(e::Entries) = length(getfield(e, :keys))

function Base.iterate(e::Entries{K,V}, i=1) where {K,V}
    return i > length(e) ? nothing : (Pair{K,V}(e.keys[i], e.values[i]), i + 1)
end

Base.get(e::Entries, key, default) = get(() -> default, e, key)
function Base.get(default::Base.Callable, e::Entries, key)
    i = findlast(isequal(key), e.keys)
    return i === nothing ? default() : e.values[i]
end

function Base.show(io::IO, mime::MIME"text/plain", e::Entries)
    isopen(e.keys.batch) || return show(io, e)
    invoke(show, Tuple{IO,MIME"text/plain",AbstractDict}, io, mime, e)
end

function Base.show(io::IO, e::Entries)
    isopen(e.keys.batch) || return print(io, "Entries of ", length(e), " keys (closed)")
    print(io, "Entries(")
    join(io, (sprint(show, k; context=io) * " => " * sprint(show, v; context=io) for (k, v) in e), ", ")
    print(io, ')')
end

"""
    Row

A row of a struct with more members than a `NamedTuple` should have, which would keep the compiler busy: `row.name`,
`row[:name]`, `row[k]`, `keys(row)`, `length(row)`; it iterates over the values, which are read on access.
`NamedTuple(row)` makes a named tuple all the same. The row is a view of the memory of a [`Batch`](@ref), which it keeps
from being finalized.
"""
struct Row
    names::Vector{Symbol}
    columns::Vector{Column}
    # The index of the row in the buffers of each column, and the number of the row for errors.
    places::Vector{Int}
    row::Int
end

Base.keys(r::Row) = copy(getfield(r, :names))
Base.propertynames(r::Row) = Tuple(getfield(r, :names))
Base.length(r::Row) = length(getfield(r, :names))
Base.eltype(::Type{Row}) = Any
Base.iterate(r::Row, k=1) = k > length(r) ? nothing : (r[k], k + 1)
Base.values(r::Row) = collect(Any, r)
Base.getproperty(r::Row, name::Symbol) = r[name]
Base.NamedTuple(r::Row) = NamedTuple{propertynames(r)}(Tuple(r))

function Base.getindex(r::Row, name::Symbol)
    k = findfirst(isequal(name), getfield(r, :names))
    k === nothing && throw(KeyError(name))
    return r[k]
end

function Base.getindex(r::Row, k::Integer)
    1 <= k <= length(r) || throw(BoundsError(r, k))
    column = getfield(r, :columns)[k]
    require_open(column.batch.handle)
    require_readable(column.batch)
    return GC.@preserve column at(column, getfield(r, :places)[k], getfield(r, :row))
end

Base.:(==)(a::Row, b::Row) = getfield(a, :names) == getfield(b, :names) && all(((x, y),) -> x == y, zip(a, b))
Base.isequal(a::Row, b::Row) =
    getfield(a, :names) == getfield(b, :names) && all(((x, y),) -> isequal(x, y), zip(a, b))
# One value after the other: the hash of a vector compares values, and not all values of a row can be compared.
Base.hash(r::Row, seed::UInt) = foldl((h, x) -> hash(x, h), r; init=hash(getfield(r, :names), seed))

function Base.show(io::IO, r::Row)
    columns = getfield(r, :columns)
    all(c -> isopen(c.batch), columns) || return print(io, "Row of ", length(r), " members (closed)")
    print(io, "Row(")
    join(io, (string(name, " = ", sprint(show, x; context=io)) for (name, x) in zip(keys(r), r)), ", ")
    print(io, ')')
end
