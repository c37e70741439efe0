# A column: one array of a batch, seen as a vector.

"""
    Column{T,L} <: AbstractVector{T}

One array of a [`Batch`](@ref) as a vector, without a copy: elements are read out of the buffers when they are asked
for. `T` is `Union{S,Missing}` if there are nulls among the rows and `S` if there are none (which counts them, if the
producer has not, in memory that can be read here; in any other there may be some). `L` is how the values lie.

| Arrow type | `S` |
|---|---|
| integers, floats | `Int8` to `UInt64`, `Float16` to `Float64` |
| bool | `Bool` |
| utf8, large utf8, utf8 view | `String`, made for each access; [`bytes`](@ref)`(column, i)` is it without a copy |
| binary, large binary, binary view, fixed-size binary | [`Bytes`](@ref), a view |
| date32, date64 | `Date` |
| time (s, ms, us, ns) | `Time` |
| timestamp (s, ms) | `DateTime`: in UTC if the type has a time zone (see [`timezone`](@ref)), else as the clock said |
| timestamp (us, ns) | `Int64`, the number of units since 1970-01-01: `DateTime` is exact to milliseconds only |
| duration (s, ms, us, ns) | `Second`, `Millisecond`, `Microsecond`, `Nanosecond` |
| interval (months; day-time; month-day-nano) | `Month`; [`DayTime`](@ref); [`MonthDayNano`](@ref) |
| decimal (32 to 256 bits) | [`Decimal`](@ref) |
| dictionary | the values'; see [`indices`](@ref) and [`dictionary`](@ref) |
| list, large list, list views, fixed-size list | a `Column` of the row's values, a view |
| map | [`Entries`](@ref), a dictionary over the row's keys and values |
| struct | a `NamedTuple` (a `Tuple` if names repeat); see [`children`](@ref). A [`Row`](@ref) of more than 32 members |
| sparse and dense union | the `Union` of the children's; see [`type_id`](@ref). `Any` of more than 32 children |
| run-end encoded | the values'; a loop over the column looks each run up once, an index finds its run by halving |
| null | `Missing` only |

What is nested in more than four levels has an abstract type there (`Column`, `Any`), so that types do not grow with the
data; its values are the same.

A time that is none of a day, and a point in time that no `DateTime` can be, is `DEVX_OUT_OF_RANGE` when it is looked at.

`values(column)` of null-free integers and floats is a `Vector` over the same memory.

**Ownership.** A column keeps its batch from being finalized. After `close(batch)` it throws `DEVX_CLOSED`, in
`@inbounds` code, too. Any task may read; none while another one closes the batch.

The type of a column depends on the data: work on it in a function that it is passed to, or say what it is
(`Column{Int32}(batch, k)`).
"""
struct Column{T,L} <: AbstractVector{T}
    batch::Batch
    record::DevxColumn
    validity::Ptr{UInt8}
    layout::L
    # Levels of columns within `L`.
    depth::Int
end

# ---- making one ----

# Index `p` below is one into the buffers, `record.offset` being that of row 1, so that a slice of a column needs
# another record only.

function Column(batch::Batch, record::DevxColumn)
    numbers = number_column(batch, record)
    numbers === nothing || return numbers
    format = GC.@preserve batch unsafe_string(record.format)
    layout = layout_of(batch, record, format)
    T = value_type(layout)
    if !(Missing <: T) && may_have_nulls(batch, record)
        T = Union{T,Missing}
    end
    # The first buffer of a union holds type ids.
    validity = record.n_buffers == 0 || startswith(format, "+u") ? C_NULL : buffer(record, 1)
    return Column{T,typeof(layout)}(batch, record, validity, layout, levels(layout))
end

"""
    Column{T}(b::Batch, k) -> Column{T}

The column `b[k]` of a batch, `k` being its number or its name, of which it is known that it has elements of type `T`:
integers or floats of 8 to 64 bits; `Union{S,Missing}` is one of `S` whether there are nulls or not. Other than that of
`b[k]` its type is known to the compiler: nothing is allocated, and nothing looked up where it is used.

Throws as `b[k]`, and `DEVX_MISMATCH` for a column of another type, or one that may have nulls which `T` does not allow.
"""
@inline function Column{T}(b::Batch, k) where {T<:Union{PlainNumber,Missing}}
    record = column_record(b, k)
    fits = stores(nonmissing(T), record) && (Missing <: T || !may_have_nulls(b, record))
    fits || throw(other_column(T, b, k, record))
    return column_of_numbers(T, b, record)
end

@noinline function other_column(::Type{T}, b::Batch, k, record::DevxColumn) where {T}
    format = GC.@preserve b unsafe_string(record.format)
    nulls = may_have_nulls(b, record) ? ", and it may have nulls" : ""
    return DevExchangeError(DEVX_MISMATCH,
        "column is $(repr(k)): its format is $(repr(format))$nulls: not a Column{$T}")
end

# The rows that start at index `first` of the buffers.
function stored(c::Column{T,L}, first::Integer, length::Integer) where {T,L}
    r = c.record
    record = DevxColumn(r.format, r.name, r.metadata, r.flags, length, -1, first, r.buffers, r.n_buffers, r.n_children,
        r.has_dictionary, r.node)
    return Column{T,L}(c.batch, record, c.validity, c.layout, c.depth)
end

buffer(record::DevxColumn, k) = Ptr{UInt8}(unsafe_load(record.buffers, k))

may_have_nulls(batch::Batch, record::DevxColumn) =
    record.null_count >= 0 ? record.null_count > 0 : !batch.readable || null_count(batch, record) > 0

function null_count(batch::Batch, record::DevxColumn)
    count = Ref{Int64}(0)
    @checked devx_column_null_count(batch.handle::Handle, Ref(record)::Ptr{DevxColumn}, count::Ptr{Int64})
    return Int(count[])
end

# The child at `k`, counted from 1: of structs, sparse unions and fixed-size lists the rows that the column sees, of
# other types all.
function child_record(batch::Batch, record::DevxColumn, k::Integer)
    out = Ref{DevxColumn}()
    @checked devx_column_child(batch.handle::Handle, Ref(record)::Ptr{DevxColumn}, (k - 1)::Int64, out::Ptr{DevxColumn})
    return out[]
end

child(batch::Batch, record::DevxColumn, k::Integer) = Column(batch, child_record(batch, record, k))
children(batch::Batch, record::DevxColumn) = Column[child(batch, record, k) for k in 1:record.n_children]

function dictionary_record(batch::Batch, record::DevxColumn)
    out = Ref{DevxColumn}()
    @checked devx_column_dictionary(batch.handle::Handle, Ref(record)::Ptr{DevxColumn}, out::Ptr{DevxColumn})
    return out[]
end

dictionary(batch::Batch, record::DevxColumn) = Column(batch, dictionary_record(batch, record))

# The element at index `p` of the buffers, for who asked for row `i`.
@inline function at(c::Column{T}, p::Int, i::Int) where {T}
    if Missing <: T && c.validity != C_NULL && !bit(c.validity, p)
        return missing
    end
    return value(c.layout, p, i)
end
