# A column: one array of a batch, seen as a vector.

"""
    Column{T,L} <: AbstractVector{T}

One array of a [`Batch`](@ref) as a vector, without a copy: elements are read out of the buffers when they are asked
for. `T` is `Union{S,Missing}` if there are nulls among the rows and `S` if there are none (which counts them, if the
producer has not); `L` is how the values lie.

| Arrow type | `S` |
|---|---|
| integers, floats | `Int8` to `UInt64`, `Float16` to `Float64` |
| bool | `Bool` |
| utf8, large utf8 | `String`, made for each access; [`bytes`](@ref)`(column, i)` is the text without a copy |
| binary, large and fixed-size binary | [`Bytes`](@ref), a view |
| date32, date64 | `Date` |
| time (s, ms, us, ns) | `Time` |
| timestamp (s, ms) | `DateTime`: in UTC if the type has a time zone (see [`timezone`](@ref)), else as the clock said |
| timestamp (us, ns) | `Int64`, the number of units since 1970-01-01: `DateTime` is exact to milliseconds only |
| duration (s, ms, us, ns) | `Second`, `Millisecond`, `Microsecond`, `Nanosecond` |
| interval (months; day-time; month-day-nano) | `Month`; named tuples of what is stored |
| decimal (32 to 256 bits) | the unscaled integer: `Int32`, `Int64`, `Int128`, `NTuple{4,UInt64}` (lowest first) |
| dictionary | the values'; see [`indices`](@ref) and [`dictionary`](@ref) |
| list, large list, fixed-size list | a `Column` of the row's values, a view |
| struct | a `NamedTuple` (a `Tuple` if names repeat); see [`children`](@ref) |
| null | `Missing` only |

`values(column)` of null-free integers and floats is a `Vector` over the same memory.

**Ownership.** A column keeps its batch from being finalized. After `close(batch)` it throws `DEVX_CLOSED`, in
`@inbounds` code, too. Any task may read; none while another one closes the batch.

The type of a column depends on the data: work on it in a function that it is passed to.
"""
struct Column{T,L} <: AbstractVector{T}
    batch::Batch
    record::DevxColumn
    validity::Ptr{UInt8}
    layout::L
end

# ---- making one ----

# Index `p` below is one into the buffers, `record.offset` being that of row 1, so that a slice of a column needs
# another record only.

function Column(batch::Batch, record::DevxColumn)
    layout = layout_of(batch, record, GC.@preserve batch unsafe_string(record.format))
    T = value_type(layout)
    T !== Missing && null_count(batch, record) > 0 && (T = Union{T,Missing})
    validity = record.n_buffers == 0 ? C_NULL : buffer(record, 1)
    return Column{T,typeof(layout)}(batch, record, validity, layout)
end

# The rows that start at index `first` of the buffers.
function slice(c::Column{T,L}, first::Integer, length::Integer) where {T,L}
    r = c.record
    record = DevxColumn(r.format, r.name, r.metadata, r.flags, length, -1, first, r.buffers, r.n_buffers, r.n_children,
        r.has_dictionary, r.node)
    return Column{T,L}(c.batch, record, c.validity, c.layout)
end

buffer(record::DevxColumn, k) = Ptr{UInt8}(unsafe_load(record.buffers, k))

function null_count(batch::Batch, record::DevxColumn)
    record.null_count >= 0 && return record.null_count
    count = Ref{Int64}(0)
    held(batch.handle) do address
        @checked devx_column_null_count(address::Ptr{Cvoid}, Ref(record)::Ptr{DevxColumn}, count::Ptr{Int64})
    end
    return count[]
end

function child(batch::Batch, record::DevxColumn, k::Integer)
    out = Ref{DevxColumn}()
    held(batch.handle) do address
        @checked devx_column_child(
            address::Ptr{Cvoid}, Ref(record)::Ptr{DevxColumn}, (k - 1)::Int64, out::Ptr{DevxColumn})
    end
    return Column(batch, out[])
end

# ---- layouts: how the values lie ----

# Fixed-width values: `S` is what is stored, `decode` makes a value of it.
struct Plain{S,F}
    data::Ptr{S}
    decode::F
end

# One bit each.
struct Bits
    data::Ptr{UInt8}
end

# Texts: offsets of type `O` into data.
struct Text{O}
    offsets::Ptr{O}
    data::Ptr{UInt8}
end

struct Binary{O}
    offsets::Ptr{O}
    data::Ptr{UInt8}
    batch::Batch
end

struct FixedBinary
    width::Int
    data::Ptr{UInt8}
    batch::Batch
end

# Indices of type `I` into a column of values.
struct Encoded{I,C}
    indices::Ptr{I}
    values::C
end

# Row `p` is the rows from one offset to the next of the child, which is seen whole.
struct Lists{O,C}
    offsets::Ptr{O}
    child::C
end

# Row `p` is `size` rows of the child, from `start + p * size` of its buffers on.
struct FixedLists{C}
    size::Int
    start::Int
    child::C
end

# Row `p` is an `R` of what is at index `starts[k] + p` of the buffers of child `k`.
struct Structs{R,C}
    starts::Vector{Int}
    children::C
end

struct Nothings end

const DayTime = NamedTuple{(:days, :milliseconds),Tuple{Int32,Int32}}
const MonthDayNano = NamedTuple{(:months, :days, :nanoseconds),Tuple{Int32,Int32,Int64}}

date_of_day(day) = Date(Dates.UTD(UNIX_DAY + day))
date_of_millisecond(ms) = date_of_day(fld(ms, 86_400_000))
datetime_of_second(s) = datetime_of_millisecond(Base.checked_mul(s, 1000))
datetime_of_millisecond(ms) = DateTime(Dates.UTM(Dates.UNIXEPOCH + ms))
time_of_second(n) = Time(Nanosecond(n * 1_000_000_000))
time_of_millisecond(n) = Time(Nanosecond(n * 1_000_000))
time_of_microsecond(n) = Time(Nanosecond(n * 1_000))
time_of_nanosecond(n) = Time(Nanosecond(n))

# What is stored and how it becomes a value, by format string.
const PLAIN_FORMATS = Dict{String,Tuple{DataType,Any}}(
    "c" => (Int8, identity), "C" => (UInt8, identity), "s" => (Int16, identity), "S" => (UInt16, identity),
    "i" => (Int32, identity), "I" => (UInt32, identity), "l" => (Int64, identity), "L" => (UInt64, identity),
    "e" => (Float16, identity), "f" => (Float32, identity), "g" => (Float64, identity),
    "tdD" => (Int32, date_of_day), "tdm" => (Int64, date_of_millisecond),
    "tts" => (Int32, time_of_second), "ttm" => (Int32, time_of_millisecond),
    "ttu" => (Int64, time_of_microsecond), "ttn" => (Int64, time_of_nanosecond),
    "tDs" => (Int64, Second), "tDm" => (Int64, Millisecond), "tDu" => (Int64, Microsecond),
    "tDn" => (Int64, Nanosecond), "tiM" => (Int32, Month), "tiD" => (DayTime, identity),
    "tin" => (MonthDayNano, identity),
    # Of these the format goes on with a time zone.
    "tss" => (Int64, datetime_of_second), "tsm" => (Int64, datetime_of_millisecond),
    "tsu" => (Int64, identity), "tsn" => (Int64, identity),
)

function layout_of(batch::Batch, record::DevxColumn, format::String)
    if record.has_dictionary != 0
        return Encoded(Ptr{PLAIN_FORMATS[format][1]}(buffer(record, 2)), dictionary(batch, record))
    end
    name = startswith(format, "ts") ? SubString(format, 1, 3) : format
    stored, decode = get(PLAIN_FORMATS, name, (Nothing, nothing))
    decode === nothing || return Plain{stored,Core.Typeof(decode)}(Ptr{stored}(buffer(record, 2)), decode)
    format == "n" && return Nothings()
    format == "b" && return Bits(buffer(record, 2))
    format == "u" && return Text(Ptr{Int32}(buffer(record, 2)), buffer(record, 3))
    format == "U" && return Text(Ptr{Int64}(buffer(record, 2)), buffer(record, 3))
    format == "z" && return Binary(Ptr{Int32}(buffer(record, 2)), buffer(record, 3), batch)
    format == "Z" && return Binary(Ptr{Int64}(buffer(record, 2)), buffer(record, 3), batch)
    format == "+l" && return Lists(Ptr{Int32}(buffer(record, 2)), child(batch, record, 1))
    format == "+L" && return Lists(Ptr{Int64}(buffer(record, 2)), child(batch, record, 1))
    format == "+s" && return structs(batch, record)
    startswith(format, "w:") && return FixedBinary(number(format, 3), buffer(record, 2), batch)
    startswith(format, "+w:") && return fixed_lists(batch, record, number(format, 4))
    startswith(format, "d:") && return decimals(record, split(SubString(format, 3), ','))
    throw(DevExchangeError(DEVX_UNSUPPORTED, "format is $(repr(format)): this package cannot read it yet"))
end

number(text, from) = parse(Int, SubString(text, from))

function decimals(record, parameters)
    bits = length(parameters) == 3 ? parameters[3] : "128"
    stored = bits == "32" ? Int32 : bits == "64" ? Int64 : bits == "128" ? Int128 : NTuple{4,UInt64}
    return Plain(Ptr{stored}(buffer(record, 2)), identity)
end

# The library gives children sliced as the record is; they are looked at by index into the buffers.
function fixed_lists(batch, record, size)
    values = child(batch, record, 1)
    return FixedLists(size, values.record.offset - record.offset * size, values)
end

function structs(batch, record)
    columns = [child(batch, record, k) for k in 1:record.n_children]
    names = Tuple(Symbol(name(c)) for c in columns)
    values = Tuple{map(eltype, columns)...}
    starts = Int[c.record.offset - record.offset for c in columns]
    children = Tuple(columns)
    return Structs{allunique(names) ? NamedTuple{names,values} : values,typeof(children)}(starts, children)
end

function dictionary(batch::Batch, record::DevxColumn)
    out = Ref{DevxColumn}()
    held(batch.handle) do address
        @checked devx_column_dictionary(address::Ptr{Cvoid}, Ref(record)::Ptr{DevxColumn}, out::Ptr{DevxColumn})
    end
    return Column(batch, out[])
end

value_type(::Plain{S,typeof(identity)}) where {S} = S
value_type(::Plain{<:Any,Type{T}}) where {T} = T
value_type(::Plain{<:Any,<:Union{typeof.((date_of_day, date_of_millisecond))...}}) = Date
value_type(::Plain{<:Any,<:Union{typeof.((datetime_of_second, datetime_of_millisecond))...}}) = DateTime
value_type(::Plain) = Time
value_type(::Bits) = Bool
value_type(::Text) = String
value_type(::Union{Binary,FixedBinary}) = Bytes
value_type(e::Encoded) = eltype(e.values)
value_type(l::Union{Lists,FixedLists}) = typeof(l.child)
value_type(::Structs{R}) where {R} = R
value_type(::Nothings) = Missing

@inline value(l::Plain, p) = l.decode(unsafe_load(l.data, p + 1))
@inline value(l::Bits, p) = bit(l.data, p)

function value(l::Text, p)
    start, n = range_at(l, p)
    return n == 0 ? "" : unsafe_string(l.data + start, n)
end

function value(l::Binary, p)
    start, n = range_at(l, p)
    return Bytes(l.batch, l.data + start, n)
end

value(l::FixedBinary, p) = Bytes(l.batch, l.data + p * l.width, l.width)

function value(l::Encoded, p)
    index = unsafe_load(l.indices, p + 1)
    values = l.values
    0 <= index < length(values) || throw(DevExchangeError(DEVX_OUT_OF_RANGE,
        "an index is $index: the dictionary has $(length(values)) values, counted from 0"))
    return at(values, values.record.offset + Int(index))
end

function value(l::Lists, p)
    start, stop = offsets_at(l.offsets, p)
    stop <= length(l.child) || throw(DevExchangeError(DEVX_INVALID_BUFFERS,
        "a list is $start..$stop of a child with length $(length(l.child))"))
    return slice(l.child, l.child.record.offset + start, stop - start)
end

value(l::FixedLists, p) = slice(l.child, l.start + p * l.size, l.size)

value(l::Structs{R}, p) where {R} = R(ntuple(k -> at(l.children[k], l.starts[k] + p), length(l.children)))

value(::Nothings, p) = missing

@inline bit(data::Ptr{UInt8}, p) = (unsafe_load(data, (p >> 3) + 1) >> (p & 7)) & 0x01 == 0x01

function offsets_at(offsets::Ptr, p)
    start, stop = Int(unsafe_load(offsets, p + 1)), Int(unsafe_load(offsets, p + 2))
    0 <= start <= stop || throw(DevExchangeError(DEVX_INVALID_BUFFERS, "the offsets of a row are $start and $stop"))
    return start, stop
end

# Where the bytes of a row start, and how many there are.
function range_at(l::Union{Text,Binary}, p)
    start, stop = offsets_at(l.offsets, p)
    if l.data == C_NULL && stop > start
        throw(DevExchangeError(DEVX_INVALID_BUFFERS, "the data buffer is NULL, but a row has $(stop - start) bytes"))
    end
    return start, stop - start
end

# The element at index `p` of the buffers.
@inline function at(c::Column{T}, p::Int) where {T}
    if Missing <: T && c.validity != C_NULL && !bit(c.validity, p)
        return missing
    end
    return value(c.layout, p)
end

# ---- as a vector ----

Base.size(c::Column) = (Int(c.record.length),)
Base.IndexStyle(::Type{<:Column}) = IndexLinear()

@inline function Base.getindex(c::Column{T}, i::Int) where {T}
    require_open(c.batch.handle)
    require_readable(c.batch)
    @boundscheck checkbounds(c, i)
    return GC.@preserve c at(c, Int(c.record.offset) + i - 1)::T
end

# Numbers lie side by side: a strided array.
const NumberColumn{S} = Column{S,Plain{S,typeof(identity)}}

Base.strides(::NumberColumn) = (1,)
Base.elsize(::Type{<:NumberColumn{S}}) where {S} = sizeof(S)
function Base.unsafe_convert(::Type{Ptr{S}}, c::NumberColumn{S}) where {S}
    require_open(c.batch.handle)
    return c.layout.data + c.record.offset * sizeof(S)
end
is_memory(::NumberColumn{S}, ::Type{S}) where {S} = true
require_readable_memory(c::Column) = require_readable(c.batch)

references(b::Batch) = (Handle{TAG_BATCH | TAG_KEPT}(share_address(b.handle)),)
references(c::Column) = references(c.batch)
write_protected(::Column) = true

"""
    values(c::Column)

Of integers and floats without nulls, the elements as a `Vector` over the same memory, for loops that shall run at full
speed. The vector holds a reference of its own: the memory stays as long as anything refers to it, also after the batch
is closed. Arrow data must not be changed: do not write or resize it, nothing keeps you from it.

Of any other column, the column itself. Throws `DEVX_INVALID_BUFFERS` if the memory is not aligned for the type.
"""
function Base.values(c::NumberColumn{S}) where {S<:PlainNumber}
    data = Ref{Ptr{Cvoid}}(C_NULL)
    held(c.batch.handle) do address
        @checked devx_column_values(
            address::Ptr{Cvoid}, Ref(c.record)::Ptr{DevxColumn}, dtype(S)::DLDataType, data::Ptr{Ptr{Cvoid}})
    end
    return wrap_memory(Ptr{S}(data[]), size(c), c.batch.handle)
end

"""
    name(c::Column) -> String

The name of a column; empty if it has none.
"""
name(c::Column) = text_of(c, c.record.name)

"""
    format(c::Column) -> String

The Arrow format string of a column's type, for example `"g"` for float64; of a dictionary column that of the indices.
"""
format(c::Column) = text_of(c, c.record.format)

"""
    timezone(c::Column) -> String

The time zone of a timestamp column; empty if it has none, and for other types.
"""
timezone(c::Column) = (f = format(c); startswith(f, "ts") ? f[5:end] : "")

"""
    metadata(c::Column) -> Vector{Pair{String,String}}

The metadata of a column's field.
"""
function metadata(c::Column)
    require_open(c.batch.handle)
    return GC.@preserve c read_metadata(c.record.metadata)
end

function text_of(c::Column, text::Ptr{UInt8})
    require_open(c.batch.handle)
    return GC.@preserve c unsafe_string(text)
end

"""
    buffers(c::Column) -> Vector{Ptr{Cvoid}}

The addresses of a column's buffers, in the order of the Arrow columnar format, validity first; NULL for one that is not
there. They are those of the producer: row 1 lies `offset` elements behind them, if the column is a slice.
"""
function buffers(c::Column)
    require_open(c.batch.handle)
    return GC.@preserve c [Ptr{Cvoid}(buffer(c.record, k)) for k in 1:c.record.n_buffers]
end

"""
    children(c::Column)

The child columns: of structs, for each member the rows that the column sees; of fixed-size lists their values, in one
column; of lists all values of the child, also those that no row refers to. Nulls of the column itself are not in them.
"""
children(c::Column) = children(c, c.layout)
children(c::Column, l) = ()
children(c::Column, l::Lists) = (l.child,)
children(c::Column, l::FixedLists) =
    (slice(l.child, l.start + c.record.offset * l.size, c.record.length * l.size),)
children(c::Column, l::Structs) =
    ntuple(k -> slice(l.children[k], l.starts[k] + c.record.offset, c.record.length), length(l.children))

"""
    indices(c::Column) -> Column

The indices of a dictionary column, counted from 0, as integers of the stored width. Throws `DEVX_MISMATCH` for another
column.
"""
function indices(c::Column{T,Encoded{I,C}}) where {T,I,C}
    S = null_count(c.batch, c.record) > 0 ? Union{I,Missing} : I
    layout = Plain(c.layout.indices, identity)
    return Column{S,typeof(layout)}(c.batch, c.record, c.validity, layout)
end
indices(c::Column) = throw(no_dictionary(c))

"""
    dictionary(c::Column) -> Column

The values of a dictionary column: `c[i] == dictionary(c)[indices(c)[i] + 1]`. Throws `DEVX_MISMATCH` for another
column.
"""
dictionary(c::Column{<:Any,<:Encoded}) = c.layout.values
dictionary(c::Column) = throw(no_dictionary(c))

no_dictionary(c) = DevExchangeError(DEVX_MISMATCH, "the column has no dictionary: its format is $(repr(format(c)))")

"""
    Bytes <: AbstractVector{UInt8}

Bytes in the memory of a [`Batch`](@ref), which it keeps from being finalized: a view, with a `pointer`. Use it before
the batch is closed. `String(bytes)` is a copy as text.
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

Base.String(b::Bytes) = GC.@preserve b isempty(b) ? "" : unsafe_string(pointer(b), b.length)

"""
    bytes(c::Column, i) -> Bytes

The bytes of row `i` of texts or binary, without a copy. Those of a null are not defined, usually none. Throws
`DEVX_MISMATCH` for another column.
"""
function bytes(c::Column, i::Integer)
    require_open(c.batch.handle)
    require_readable(c.batch)
    checkbounds(c, i)
    return GC.@preserve c bytes_at(c, c.layout, Int(c.record.offset) + Int(i) - 1)
end

bytes_at(c, l::Union{Binary,FixedBinary}, p) = value(l, p)
function bytes_at(c, l::Text, p)
    start, n = range_at(l, p)
    return Bytes(c.batch, l.data + start, n)
end
bytes_at(c, l, p) = throw(DevExchangeError(DEVX_MISMATCH,
    "the column is neither text nor binary: its format is $(repr(format(c)))"))

function Base.show(io::IO, mime::MIME"text/plain", c::Column)
    shows_elements(c) || return show(io, c)
    invoke(show, Tuple{IO,MIME"text/plain",AbstractArray}, io, mime, c)
end

function Base.show(io::IO, c::Column)
    shows_elements(c) && return invoke(show, Tuple{IO,AbstractArray}, io, c)
    print(io, "Column of ", length(c), " rows", isopen(c.batch) ? " on $(place(c.batch.device))" : " (closed)")
end

# Without a look at memory that cannot be read here.
shows_elements(c::Column) = isopen(c.batch) && c.batch.readable
