# The description of one array of a batch, in Julia.

"""
    Field(name, format; nullable=true, ordered=false, keys_sorted=false, flags=0, metadata=(), children=Field[],
          dictionary=nothing)
    Field(name, T::Type; ...)

One field of a schema: a name, an Arrow format string (C data interface, "Data type description"; `"g"` is float64) and
the fields below it. `metadata` are pairs of texts. `dictionary` is the field of the values if those of this field are
indices (then `format` is that of an integer). The flags of the standard are `nullable` (there may be nulls), `ordered`
(the order of the dictionary has a meaning) and `keys_sorted` (within each row of a map); `flags` are further bits.

`T` is any element type that [`Batch`](@ref) takes; the fields below it are made, too: `Field("x", Union{Missing,Int})`
may be null, `Field("x", Vector{Int})` is a list, `Field("x", Dict{String,Int})` a map. For types that Julia cannot
express there are [`list_field`](@ref), [`struct_field`](@ref), [`map_field`](@ref), [`union_field`](@ref),
[`run_end_field`](@ref) and [`extension`](@ref).

A field is plain Julia data and owns nothing. Two fields are equal if all of this is equal; the order of the metadata
keys does not matter. If a key repeats, its last value counts.
"""
struct Field
    name::String
    format::String
    flags::Int64
    metadata::Vector{Pair{String,String}}
    children::Vector{Field}
    dictionary::Union{Nothing,Field}
end

function Field(name::AbstractString, format::AbstractString; nullable::Bool=true, ordered::Bool=false,
               keys_sorted::Bool=false, flags::Integer=0, metadata=(), children=Field[],
               dictionary::Union{Nothing,Field}=nothing)
    bits = number(Int64, flags, "flags") | DEVX_FIELD_NULLABLE * nullable | DEVX_FIELD_ORDERED * ordered |
        DEVX_FIELD_KEYS_SORTED * keys_sorted
    return Field(String(name), String(format), bits, texts(metadata), collect(Field, children), dictionary)
end

# Converts metadata to the form in which it is kept: pairs of texts. A single pair is refused.
function texts(metadata)
    listed = !(metadata isa Union{Pair,AbstractString}) && applicable(iterate, metadata)
    listed || throw(no_texts(metadata))
    return Pair{String,String}[text_pair(pair) for pair in metadata]
end
text_pair(pair::Union{Pair,Tuple{Any,Any}}) = all(text -> text isa Union{AbstractString,Symbol}, Tuple(pair)) ?
    String(pair[1]) => String(pair[2]) : throw(no_texts(pair))
text_pair(other) = throw(no_texts(other))

@noinline no_texts(@nospecialize(x)) =
    DevExchangeError(DEVX_INVALID_ARGUMENT, "metadata has $(repr(x)): it must be pairs of texts, `[\"key\" => \"value\"]`")

Field(name::AbstractString, ::Type{T}; keywords...) where {T} = typed_field(name, name, T; keywords...)

# `path` is the place of the field for errors.
function typed_field(name, path, ::Type{T}; keywords...) where {T}
    children = fields_below(nonmissing(T), path)
    # A union has no nulls of its own: missing values are in the first child.
    is_union(nonmissing(T)) && Missing <: T && (children[1] = with_nulls(children[1], true))
    return Field(name, format_of(nonmissing(T), path); nullable=Missing <: T, children=children, keywords...)
end

Base.:(==)(a::Field, b::Field) = all(f -> compared(a, f) == compared(b, f), fieldnames(Field))
# The values of one key keep their order.
compared(f::Field, part) = part === :metadata ? sort(f.metadata; by=first, alg=MergeSort) : getfield(f, part)
Base.hash(f::Field, seed::UInt) = hash(f.name, hash(f.format, seed))

function Base.show(io::IO, f::Field)
    print(io, "Field(", repr(f.name), ", ", repr(f.format))
    isempty(f.children) || print(io, ", children=", f.children)
    f.dictionary === nothing || print(io, ", dictionary=", f.dictionary)
    print(io, ')')
end

# Documented with the methods for columns.
type_name(f::Field) =
    f.dictionary === nothing ? type_name(f.format) : string(type_name(f.format), " -> ", type_name(f.dictionary))
function type_name(format::AbstractString)
    text = ctext(format, "format")
    return written() do room, capacity, bytes
        @checked devx_type_name(text::Cstring, room::Ptr{UInt8}, capacity::Csize_t, bytes::Ptr{Csize_t})
    end
end

# The fields below a field of this element type.
fields_below(::Type{T}, path) where {T} =
    is_union(T) ? Field[field_below(k - 1, path, S) for (k, S) in enumerate(members(T, path))] : Field[]
fields_below(::Type{<:AbstractVector{UInt8}}, path) = Field[]
fields_below(::Type{<:AbstractVector{E}}, path) where {E} = [field_below("item", path, E)]
fields_below(::Type{NTuple{L,E}}, path) where {L,E} = [field_below("item", path, E)]
fields_below(::Type{Tuple{}}, path) = Field[]
fields_below(::Type{S}, path) where {names,S<:NamedTuple{names}} =
    [field_below(k, path, fieldtype(S, k)) for k in names]
fields_below(::Type{<:AbstractDict{K,V}}, path) where {K,V} =
    [entries_field(field_below("key", path, K), field_below("value", path, V))]
fields_below(::Type{Union{}}, path) = Field[]

field_below(name, path, T::Type) = typed_field(string(name), "$path.$name", T)

named(name, f::Field) = f
named(name, T::Type) = Field(name, T)

# The same field, made nullable or not.
with_nulls(f::Field, nullable::Bool) = Field(f.name, f.format, f.flags & ~DEVX_FIELD_NULLABLE | DEVX_FIELD_NULLABLE * nullable,
    f.metadata, f.children, f.dictionary)

# The field of values of type `T` whose parent may be missing: the values were laid out as missing there, but the field
# says the same for all data.
function as_said(f::Field, ::Type{T}) where {T}
    Missing <: T && return f
    is_union(T) && (f.children[1] = with_nulls(f.children[1], false))
    return with_nulls(f, false)
end

# Neither keys nor entries can be null.
entries_field(key::Field, value::Field) =
    Field("entries", "+s"; nullable=false, children=[with_nulls(key, false), value])

"""
    list_field(name, item; size=nothing, large=false, view=false, ...) -> Field

Makes a field of lists of `item`, a [`Field`](@ref) or an element type. With `size`, each list has that many values,
otherwise any number. With `large`, offsets have 64 bits. With `view`, each row has an offset and a size, so lists can
be in any order. Further keywords are those of `Field`.

Buffers: validity; offsets; for views, offsets and sizes; for a fixed size, validity only.
"""
function list_field(name::AbstractString, item::Union{Field,Type}; size::Union{Nothing,Integer}=nothing,
                    large::Bool=false, view::Bool=false, keywords...)
    format = size === nothing ? string('+', view ? "v" : "", large ? 'L' : 'l') : "+w:$size"
    return Field(name, format; children=[named("item", item)], keywords...)
end

"""
    struct_field(name, members; ...) -> Field

Makes a field of structs of `members`, which are [`Field`](@ref)s. Further keywords are those of `Field`. Buffers:
validity.
"""
struct_field(name::AbstractString, members; keywords...) = Field(name, "+s"; children=members, keywords...)

"""
    map_field(name, key, value; ...) -> Field

Makes a field of maps; `key` and `value` are [`Field`](@ref)s or element types. Further keywords are those of `Field`,
including `keys_sorted`. Buffers: validity, offsets of 32 bits into the one child, which is a struct of keys and values.
"""
map_field(name::AbstractString, key::Union{Field,Type}, value::Union{Field,Type}; keywords...) =
    Field(name, "+m"; children=[entries_field(named("key", key), named("value", value))], keywords...)

"""
    union_field(name, members; dense=true, type_ids=0:length(members)-1, ...) -> Field

Makes a field of a union, where each value is one of `members`, which are [`Field`](@ref)s or element types. `type_ids`
are the numbers from 0 to 127 that stand for the members, in their order. Further keywords are those of `Field`.

Buffers: the type id of each row, 8 bits; for a `dense` union also the offset of each row in its child, 32 bits. The
children of a union that is not dense (sparse) have as many rows as the union. There is no validity: nulls are in the
children.
"""
function union_field(name::AbstractString, members; dense::Bool=true, type_ids=0:length(members)-1, keywords...)
    children = Field[named(string(k - 1), member) for (k, member) in enumerate(members)]
    length(type_ids) == length(children) || throw(DevExchangeError(DEVX_MISMATCH,
        "union $(repr(name)) has $(length(type_ids)) type ids for $(length(children)) members"))
    return Field(name, string(dense ? "+ud:" : "+us:", join(type_ids, ',')); children=children, keywords...)
end

"""
    run_end_field(name, values; ends=Int32, ...) -> Field

Makes a field of runs of equal values; `values` is a [`Field`](@ref) or an element type, `ends` the type of the numbers
that say where runs end: `Int16`, `Int32` or `Int64`. Further keywords are those of `Field`. There are no buffers; the
first child holds the ends, the second the values.
"""
run_end_field(name::AbstractString, values::Union{Field,Type}; ends::Type=Int32, keywords...) =
    Field(name, "+r"; children=[Field("run_ends", ends), named("values", values)], keywords...)

const EXTENSION_NAME = "ARROW:extension:name"
const EXTENSION_METADATA = "ARROW:extension:metadata"

"""
    extension(f::Field, name, metadata="") -> Field

Returns the field as a field of an extension type with this name, with parameters in a form that the name defines (Arrow
columnar format, "Extension Types"). A reader that does not know the type reads the field as it was.
"""
function extension(f::Field, name::AbstractString, metadata::AbstractString="")
    others = filter(pair -> first(pair) != EXTENSION_NAME && first(pair) != EXTENSION_METADATA, f.metadata)
    pairs = Pair{String,String}[EXTENSION_NAME => name, EXTENSION_METADATA => metadata]
    return Field(f.name, f.format, f.flags, append!(pairs, others), f.children, f.dictionary)
end

"""
    extension_name(x) -> Union{String,Nothing}

The name of the extension type of a [`Field`](@ref) or [`Column`](@ref); `nothing` if there is none.
"""
extension_name(x) = metadata_value(x, EXTENSION_NAME)

"""
    extension_metadata(x) -> Union{String,Nothing}

The parameters of the extension type of a [`Field`](@ref) or [`Column`](@ref); `nothing` if there are none.
"""
extension_metadata(x) = metadata_value(x, EXTENSION_METADATA)

function metadata_value(x, key)
    pairs = metadata(x)
    k = findlast(pair -> first(pair) == key, pairs)
    return k === nothing ? nothing : last(pairs[k])
end

"""
    type_ids(x) -> Vector{Int}

Returns the numbers that stand for the children of a union, in their order; `x` is a [`Field`](@ref) or a
[`Column`](@ref). Throws `DEVX_MISMATCH` for another type.
"""
type_ids(x) = type_ids(format(x))

function type_ids(format::AbstractString)
    startswith(format, "+us:") || startswith(format, "+ud:") || throw(no_union(format))
    return Int[parse(Int, id) for id in split(SubString(format, 5), ','; keepempty=false)]
end

no_union(format) = DevExchangeError(DEVX_MISMATCH, "format is $(repr(format)): not a union's")

"""
    nullable(x) -> Bool

Whether a [`Field`](@ref) or [`Column`](@ref) says that there may be nulls.
"""
nullable(x) = flags(x) & DEVX_FIELD_NULLABLE != 0

"""
    ordered(x) -> Bool

Whether a [`Field`](@ref) or [`Column`](@ref) says that the order of its dictionary has a meaning.
"""
ordered(x) = flags(x) & DEVX_FIELD_ORDERED != 0

"""
    keys_sorted(x) -> Bool

Whether a [`Field`](@ref) or [`Column`](@ref) says that the keys of each row of its maps are sorted.
"""
keys_sorted(x) = flags(x) & DEVX_FIELD_KEYS_SORTED != 0

format(f::Field) = f.format
metadata(f::Field) = f.metadata
name(f::Field) = f.name
flags(f::Field) = f.flags
