# The memory of Julia columns as Arrow arrays (Arrow columnar format). A vector whose memory is an Arrow buffer already
# is used as it is. Any other vector is laid out once, into buffers that are Julia arrays, too.

"""
    Node(length, buffers; null_count=-1, offset=0)

One array of a batch that is described by hand, for [`Batch(schema, nodes)`](@ref Batch): its number of elements, and
its buffers in the order of the Arrow columnar format, validity first. A buffer is one of these:

- an array of bits types (or a `BitVector`), which is then kept alive as long as the batch's memory is used;
- a `Ptr` to memory that the caller keeps alive;
- `nothing` for a buffer that does not exist (validity without nulls).

Give the buffers as a tuple, or as `Any[...]`: in `[...]`, Julia converts arrays of different number types to one type.
`null_count` -1 means not counted; `offset` elements of every buffer are skipped.
"""
struct Node
    length::Int64
    null_count::Int64
    offset::Int64
    buffers::Vector{Any}
end

Node(length::Integer, buffers; null_count::Integer=-1, offset::Integer=0) = Node(number(Int64, length, "length"),
    number(Int64, null_count, "null_count"), number(Int64, offset, "offset"), collect(Any, buffers))

buffer_address(::Nothing) = Ptr{Cvoid}(C_NULL)
buffer_address(p::Ptr) = Ptr{Cvoid}(p)
# The words of a `BitVector` are an Arrow bitmap: they have its bit order, least significant first, on a little-endian
# machine.
buffer_address(bits::BitVector) = Ptr{Cvoid}(pointer(bits.chunks))
function buffer_address(array::AbstractArray{T}) where {T}
    isbitstype(T) || throw(bad_buffer("is a $(typeof(array)): its elements are not bits"))
    data, steps = memory_of(array)
    compact = length(array) <= 1 || steps == column_major(NTuple{ndims(array),Int64}(size(array)))
    compact || throw(bad_buffer("has strides $steps: its elements are not side by side"))
    return Ptr{Cvoid}(data)
end
buffer_address(x) = throw(bad_buffer("is a $(typeof(x)): neither array, pointer nor nothing"))

# The number of bytes of a buffer; -1 if it is not known, or if this cannot be a buffer.
buffer_size(_) = -1
buffer_size(bits::BitVector) = cld(length(bits), 8)
buffer_size(array::AbstractArray{T}) where {T} = isbitstype(T) ? length(array) * sizeof(T) : -1

bad_buffer(what) = DevExchangeError(DEVX_INVALID_BUFFERS, "a buffer $what")

"""
    DictionaryVector(indices, values)
    DictionaryVector(vector)

A vector that is stored as indices into values: `d[i] == values[indices[i] + 1]`, missing where the index is missing.
Indices count from 0, as in Arrow, and are integers of any width. The second form finds the distinct values, in the
order of their first use, and takes the narrowest signed indices. [`Batch`](@ref) makes a dictionary column of it; the
indices are not copied if nothing is missing.

The given vectors are kept, not copied. Throws `DEVX_OUT_OF_RANGE` for an index without a value, and an `ArgumentError`
for vectors whose first index is not 1.
"""
struct DictionaryVector{T,X<:AbstractVector,V<:AbstractVector} <: AbstractVector{T}
    indices::X
    values::V
end

function DictionaryVector(indices::AbstractVector, values::AbstractVector)
    Base.require_one_based_indexing(indices, values)
    T = Missing <: eltype(indices) ? Union{eltype(values),Missing} : eltype(values)
    for index in indices
        ismissing(index) || 0 <= index < length(values) || throw(DevExchangeError(DEVX_OUT_OF_RANGE,
            "an index is $index: the dictionary has $(length(values)) values, counted from 0"))
    end
    return DictionaryVector{T,typeof(indices),typeof(values)}(indices, values)
end

function DictionaryVector(vector::AbstractVector)
    Base.require_one_based_indexing(vector)
    values = unique(skipmissing(vector))
    I = length(values) <= 128 ? Int8 : length(values) <= 32768 ? Int16 : Int32
    return DictionaryVector(places(I, vector, values), values)
end

# A function of its own, in which the compiler knows the type of the indices.
function places(::Type{I}, vector, values) where {I}
    place = Dict(value => I(k - 1) for (k, value) in enumerate(values))
    Missing <: eltype(vector) || return I[place[x] for x in vector]
    return Union{I,Missing}[ismissing(x) ? missing : place[x] for x in vector]
end

Base.size(d::DictionaryVector) = size(d.indices)
Base.@propagate_inbounds function Base.getindex(d::DictionaryVector{T}, i::Int) where {T}
    index = d.indices[i]
    return ismissing(index) ? missing : d.values[index + 1]
end

"""
    RunEndVector(ends, values)
    RunEndVector(vector)

A vector that is stored as runs of equal values: `values[k]` from the index after the previous run up to index
`ends[k]`. Ends are `Int16`, `Int32` or `Int64`, and increasing. The second form finds the runs. [`Batch`](@ref) makes a
run-end encoded column of it; the ends are not copied.

The given vectors are kept, not copied. Throws `DEVX_MISMATCH` if they differ in length, `DEVX_OUT_OF_RANGE` for ends
that do not increase, and an `ArgumentError` for vectors whose first index is not 1.
"""
struct RunEndVector{T,X<:AbstractVector{<:Union{Int16,Int32,Int64}},V<:AbstractVector{T}} <: AbstractVector{T}
    ends::X
    values::V

    function RunEndVector(ends::X, values::V) where {X<:AbstractVector,T,V<:AbstractVector{T}}
        Base.require_one_based_indexing(ends, values)
        length(ends) == length(values) || throw(DevExchangeError(DEVX_MISMATCH,
            "there are $(length(ends)) ends of runs for $(length(values)) values"))
        last = 0
        for x in ends
            x > last || throw(DevExchangeError(DEVX_OUT_OF_RANGE, "a run ends at $x, the one before at $last"))
            last = x
        end
        return new{T,X,V}(ends, values)
    end
end

function RunEndVector(vector::AbstractVector)
    Base.require_one_based_indexing(vector)
    n = length(vector)
    I = n <= typemax(Int32) ? Int32 : Int64
    ends = I[k for k in 1:n if k == n || !isequal(vector[k], vector[k+1])]
    return RunEndVector(ends, vector[ends])
end

Base.size(r::RunEndVector) = (isempty(r.ends) ? 0 : Int(last(r.ends)),)
Base.@propagate_inbounds function Base.getindex(r::RunEndVector, i::Int)
    @boundscheck checkbounds(r, i)
    return r.values[searchsortedfirst(r.ends, i)]
end

# ---- the types ----

nonmissing(::Type{T}) where {T} = Base.nonmissingtype(T)

# Julia's dates count from the first day of year 1, Arrow's from this one.
const UNIX_DAY = Dates.value(Date(1970))

const PlainNumber = Union{Int8,Int16,Int32,Int64,UInt8,UInt16,UInt32,UInt64,Float16,Float32,Float64}
# Julia types with the same memory as an Arrow type.
const Plainly = Union{PlainNumber,Decimal,Time,Second,Millisecond,Microsecond,Nanosecond,DayTime,MonthDayNano}

format_of(::Type{Int8}, name) = "c"
format_of(::Type{UInt8}, name) = "C"
format_of(::Type{Int16}, name) = "s"
format_of(::Type{UInt16}, name) = "S"
format_of(::Type{Int32}, name) = "i"
format_of(::Type{UInt32}, name) = "I"
format_of(::Type{Int64}, name) = "l"
format_of(::Type{UInt64}, name) = "L"
format_of(::Type{Float16}, name) = "e"
format_of(::Type{Float32}, name) = "f"
format_of(::Type{Float64}, name) = "g"
format_of(::Type{Bool}, name) = "b"
format_of(::Type{Date}, name) = "tdD"
format_of(::Type{DateTime}, name) = "tsm:"
format_of(::Type{Time}, name) = "ttn"
format_of(::Type{Second}, name) = "tDs"
format_of(::Type{Millisecond}, name) = "tDm"
format_of(::Type{Microsecond}, name) = "tDu"
format_of(::Type{Nanosecond}, name) = "tDn"
format_of(::Type{Month}, name) = "tiM"
format_of(::Type{DayTime}, name) = "tiD"
format_of(::Type{MonthDayNano}, name) = "tin"
format_of(::Type{Decimal{P,S,Int128}}, name) where {P,S} = "d:$P,$S"
format_of(::Type{Decimal{P,S,I}}, name) where {P,S,I} = "d:$P,$S,$(8 * sizeof(I))"
format_of(::Type{Union{}}, name) = "n"
format_of(::Type{<:AbstractString}, name) = "u"
format_of(::Type{<:AbstractVector{UInt8}}, name) = "z"
format_of(::Type{<:AbstractVector{E}}, name) where {E} = "+l"
format_of(::Type{<:AbstractDict{K,V}}, name) where {K,V} = "+m"
format_of(::Type{<:NamedTuple{names}}, name) where {names} = "+s"
format_of(::Type{Tuple{}}, name) = throw(no_format(Tuple{}, name))
format_of(::Type{NTuple{L,E}}, name) where {L,E} = "+w:$L"
format_of(::Type{T}, name) where {T} = T isa Union ? "+ud:" * join(0:length(Base.uniontypes(T))-1, ',') :
    throw(no_format(T, name))

no_format(T, name) = DevExchangeError(DEVX_UNSUPPORTED, "column $(repr(name)): eltype $T has no type in Arrow; " *
    (isconcretetype(T) ? instead_of(T) : "make it a column of one concrete type, as `identity.(column)` does if there is one"))

# What to use instead.
instead_of(::Type{Nothing}) = "what is not there is `missing`: `replace(column, nothing => missing)`"
instead_of(::Type{<:Integer}) = "convert it to `Int64`, or to a decimal: `Decimal{38,0,Int128}.(column)`"
instead_of(::Type{<:Union{AbstractFloat,AbstractIrrational}}) = "convert it to `Float64`"
instead_of(::Type{<:Union{AbstractChar,Symbol,Base.UUID,VersionNumber}}) = "convert it to texts: `string.(column)`"
instead_of(::Type{<:Enum}) = "convert it to numbers or texts: `Int.(column)`, `string.(column)`"
instead_of(::Type{<:Union{Week,Day,Hour,Minute}}) = "convert it to `Second`"
instead_of(::Type{<:DatePeriod}) = "convert it to `Month`"
instead_of(::Type{<:AbstractArray}) = "convert it to vectors: `vec.(column)`"
instead_of(::Type{<:AbstractSet}) = "convert it to vectors: `collect.(column)`"
instead_of(::Type{T}) where {T} = isstructtype(T) && fieldcount(T) > 0 ?
    "give it as `NamedTuple`s, or as a column for each field" : "convert it"

# The stored value where a value is missing; Arrow does not define it.
placeholder(::Type{S}) where {S<:Union{Number,Decimal}} = zero(S)
placeholder(::Type{DayTime}) = DayTime(0, 0)
placeholder(::Type{MonthDayNano}) = MonthDayNano(0, 0, 0)
placeholder(::Type{Time}) = Time(0)
placeholder(::Type{S}) where {S<:Period} = S(0)

# ---- laying out ----
#
# `lay!(nodes, name, path, v, S)` appends the arrays that make up the values `v` of type `S`, some of them perhaps
# missing, depth first, and returns their field. `path` is the place of the values for errors, beginning with the name
# of the column. Nodes are made field by field, because the form with keywords would be compiled for each set of
# buffers.

function lay!(nodes, name, path, v::AbstractVector{T}) where {T}
    S = nonmissing(T)
    return is_union(S) ? lay_union!(nodes, name, path, v, members(S, path)) : lay!(nodes, name, path, v, S)
end

# The types of a union. `Nothing`, the most common mistake, is an error about the whole union.
members(S, path) = Nothing <: S ? throw(no_format(Nothing, path)) : Base.uniontypes(S)

# Several text types, or several vector types with the same elements, are one type in Arrow.
is_union(S) = S isa Union && !(S <: AbstractString) && !(S <: AbstractVector && eltype(S) !== Any)

function lay!(nodes, name, path, v, ::Type{S}) where {S<:Plainly}
    check_digits(path, v, S)
    return lay_flat!(nodes, name, v, format_of(S, path), is_memory(v, S) ? v : filled(identity, v, placeholder(S)))
end

# Checks that decimals have no more digits than their type says, which readers rely on.
check_digits(path, v, ::Type) = nothing
function check_digits(path, v, ::Type{Decimal{P,S,I}}) where {P,S,I}
    # A type with more digits than its integer can hold is refused with the format.
    1 <= P <= 76 && big(10)^P <= big(2)^(8 * sizeof(I) - 1) || return nothing
    least, most = I(1 - big(10)^P), I(big(10)^P - 1)
    for (row, x) in enumerate(v)
        ismissing(x) || least <= x.unscaled <= most || throw(DevExchangeError(DEVX_OUT_OF_RANGE,
            "column $(repr(path)): row $row is $x, which has more than the $P digits of its type"))
    end
    return nothing
end

function lay!(nodes, name, path, v, ::Type{Bool})
    return lay_flat!(nodes, name, v, "b", v isa BitVector ? v : bitmap(x -> x === true, v))
end

# Days since 1970-01-01, 32 bits.
lay!(nodes, name, path, v, ::Type{Date}) =
    lay_numbers!(d -> Dates.value(d) - UNIX_DAY, nodes, name, path, v, "tdD", Int32, "days since 1970")

# Milliseconds since 1970-01-01, 64 bits, in no time zone.
lay!(nodes, name, path, v, ::Type{DateTime}) = lay_numbers!(
    d -> Int128(Dates.value(d)) - Dates.UNIXEPOCH, nodes, name, path, v, "tsm:", Int64, "milliseconds since 1970")

# Months, 32 bits.
lay!(nodes, name, path, v, ::Type{Month}) = lay_numbers!(Dates.value, nodes, name, path, v, "tiM", Int32, "months")

# Lays out values as numbers that the type may have no room for.
function lay_numbers!(count, nodes, name, path, v, format, ::Type{I}, what) where {I}
    said = "column $(repr(path)): a number of $what"
    return lay_flat!(nodes, name, v, format, filled(x -> number(I, count(x), said), v, zero(I)))
end

# An array without values and therefore without buffers.
function lay!(nodes, name, path, v, ::Type{Union{}})
    push!(nodes, Node(length(v), length(v), 0, Any[]))
    return Field(name, "n")
end

function lay!(nodes, name, path, v, ::Type{S}) where {S<:AbstractString}
    broken = findfirst(x -> !ismissing(x) && !isvalid(x), v)
    broken === nothing || throw(DevExchangeError(DEVX_INVALID_TEXT,
        "column $(repr(path)): text $broken is not valid UTF-8; vectors of bytes may hold anything"))
    return lay_bytes!(nodes, name, v, ("u", "U"))
end
lay!(nodes, name, path, v, ::Type{S}) where {S<:AbstractVector{UInt8}} = lay_bytes!(nodes, name, v, ("z", "Z"))

function lay!(nodes, name, path, v, ::Type{S}) where {S<:AbstractVector}
    nulls, bits = validity(v)
    values = eltype(S)[]
    ends = [(ismissing(x) || append!(values, x); length(values)) for x in v]
    offsets = offsets_of(ends)
    push!(nodes, Node(length(v), nulls, 0, Any[bits, offsets]))
    item = lay!(nodes, "item", "$path.item", values)
    return Field(name, eltype(offsets) === Int32 ? "+l" : "+L"; nullable=Missing <: eltype(v), children=[item])
end

function lay!(nodes, name, path, v, ::Type{S}) where {L,S<:NTuple{L,Any}}
    # Not a parameter of the method, which would match only a concrete type.
    E = fieldtype(S, 1)
    S === NTuple{L,E} || throw(no_format(S, path))
    nulls, bits = validity(v)
    push!(nodes, Node(length(v), nulls, 0, Any[bits]))
    item = if E <: Plainly && isconcretetype(E) && is_memory(v, S)
        check_digits("$path.item", Iterators.flatten(v), E)
        push!(nodes, Node(L * length(v), 0, 0, Any[nothing, v]))
        Field("item", format_of(E, path); nullable=false)
    else
        # A missing value has places for its elements, too.
        none = ntuple(_ -> missing, L)
        values = Union{E,(nulls == 0 ? Union{} : Missing)}[]
        foreach(x -> append!(values, coalesce(x, none)), v)
        as_said(lay!(nodes, "item", "$path.item", values), E)
    end
    return Field(name, "+w:$L"; nullable=Missing <: eltype(v), children=[item])
end

function lay!(nodes, name, path, v, ::Type{S}) where {names,S<:NamedTuple{names}}
    # Refuses a type that says nothing about one of its members.
    isconcretetype(S) || all(child -> fieldtype(S, child) !== Any, names) || throw(no_format(S, path))
    nulls, bits = validity(v)
    push!(nodes, Node(length(v), nulls, 0, Any[bits]))
    children = map(names) do child
        T = Union{fieldtype(S, child),(nulls == 0 ? Union{} : Missing)}
        as_said(lay!(nodes, string(child), "$path.$child", members_of(T, v, Val(child))), fieldtype(S, child))
    end
    return Field(name, "+s"; nullable=Missing <: eltype(v), children=collect(Field, children))
end

# A function of its own, in which the compiler knows the type of the member. It is compiled for each member, and a loop takes
# the compiler half as long as a comprehension.
function members_of(::Type{T}, v, ::Val{child}) where {T,child}
    values, row = Vector{T}(undef, length(v)), 0
    for x in v
        values[row+=1] = x === missing ? missing : getfield(x, child)
    end
    return values
end

function lay!(nodes, name, path, v, ::Type{S}) where {K,V,S<:AbstractDict{K,V}}
    nulls, bits = validity(v)
    keys, values = nonmissing(K)[], V[]
    entry((k, y)) = (push!(keys, ismissing(k) ? throw(no_key(path)) : k); push!(values, y))
    ends = [(ismissing(x) || foreach(entry, x); length(keys)) for x in v]
    offsets = offsets_of(ends)
    eltype(offsets) === Int32 || throw(DevExchangeError(DEVX_INVALID_LENGTH,
        "column $(repr(path)) has $(length(keys)) entries of maps: their offsets have 32 bits"))
    push!(nodes, Node(length(v), nulls, 0, Any[bits, offsets]), Node(length(keys), 0, 0, Any[nothing]))
    key = lay!(nodes, "key", "$path.key", keys)
    return map_field(name, key, lay!(nodes, "value", "$path.value", values); nullable=Missing <: eltype(v))
end

@noinline no_key(path) = DevExchangeError(DEVX_UNSUPPORTED,
    "column $(repr(path)) has a map with the key missing: the keys of maps are never null")

# Any other type has no Arrow type.
lay!(nodes, name, path, v, ::Type{S}) where {S} = throw(no_format(S, path))
lay!(nodes, name, path, v, ::Type{Tuple{}}) = throw(no_format(Tuple{}, path))

# A dense union. Missing values are in the first child.
function lay_union!(nodes, name, path, v, types)
    home(x) = ismissing(x) ? 1 : findfirst(T -> x isa T, types)::Int
    homes = Int[home(x) for x in v]
    offsets, counts = zeros(Int32, length(v)), zeros(Int32, length(types))
    for (row, k) in enumerate(homes)
        offsets[row] = counts[k]
        counts[k] += 1
    end
    push!(nodes, Node(length(v), 0, 0, Any[Int8.(homes .- 1), offsets]))
    children = map(enumerate(types)) do (k, T)
        E = k == 1 && Missing <: eltype(v) ? Union{T,Missing} : T
        lay!(nodes, string(k - 1), "$path.$(k - 1)", E[v[row] for row in eachindex(homes) if homes[row] == k])
    end
    return union_field(name, children; nullable=Missing <: eltype(v))
end

function lay!(nodes, name, path, d::DictionaryVector)
    indices = lay!(nodes, name, path, d.indices)
    values = lay!(nodes, "", path, d.values)
    return Field(name, indices.format; nullable=Missing <: eltype(d), dictionary=values)
end

function lay!(nodes, name, path, r::RunEndVector)
    push!(nodes, Node(length(r), 0, 0, Any[]))
    ends = lay!(nodes, "run_ends", "$path.run_ends", r.ends)
    values = lay!(nodes, "values", "$path.values", r.values)
    return Field(name, "+r"; nullable=Missing <: eltype(r), children=[ends, values])
end

function lay_flat!(nodes, name, v, format, values)
    nulls, bits = validity(v)
    push!(nodes, Node(length(v), nulls, 0, Any[bits, values]))
    return Field(name, format; nullable=Missing <: eltype(v))
end

function lay_bytes!(nodes, name, v, formats)
    nulls, bits = validity(v)
    io = IOBuffer()
    ends = [(ismissing(x) || write(io, x); position(io)) for x in v]
    offsets = offsets_of(ends)
    push!(nodes, Node(length(v), nulls, 0, Any[bits, offsets, take!(io)]))
    return Field(name, eltype(offsets) === Int32 ? formats[1] : formats[2]; nullable=Missing <: eltype(v))
end

# Whether the vector's memory is that of its values, compact and aligned as such values are: a consumer may be unable to
# read others.
is_memory(v, S) = false
is_memory(v::Union{StridedVector{S},Tensor{S,1}}, ::Type{S}) where {S} =
    (length(v) <= 1 || stride(v, 1) == 1) && UInt(pointer(v)) % Base.datatype_alignment(S) == 0

function filled(f, v, place::S) where {S}
    values = Vector{S}(undef, length(v))
    for (k, x) in enumerate(v)
        values[k] = ismissing(x) ? place : f(x)
    end
    return values
end

# The number of missing values and, if there are any, the bitmap of the values that exist.
function validity(v)
    nulls = Missing <: eltype(v) ? count(ismissing, v) : 0
    return nulls, nulls == 0 ? nothing : bitmap(!ismissing, v)
end

function bitmap(f, v)
    bits = falses(length(v))
    for (k, x) in enumerate(v)
        bits[k] = f(x)
    end
    return bits
end

# Offsets, one more than elements, of 32 bits if that is enough.
offsets_of(ends) = isempty(ends) || last(ends) <= typemax(Int32) ? offsets_of(Int32, ends) : offsets_of(Int64, ends)

# Allocated with its final length: a vector that grew at its front can begin anywhere in its memory.
function offsets_of(::Type{O}, ends) where {O}
    offsets = Vector{O}(undef, length(ends) + 1)
    offsets[1] = 0
    copyto!(offsets, 2, ends, 1, length(ends))
    return offsets
end
