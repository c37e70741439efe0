# A column: one array of a batch, seen as a vector.

"""
    Column{T,L} <: AbstractVector{T}

One array of a [`Batch`](@ref) as a vector, without a copy: elements are read from the buffers on access. `T` is
`Union{S,Missing}` if the rows have nulls, and `S` if they have none. To find that out, nulls are counted if the
producer has not done so and the memory can be read here; in other memory nulls are assumed to be possible. `L` says how
the values are stored.

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

Values nested in more than four levels have an abstract type there (`Column`, `Any`), so that types do not grow with the
data; the values are the same.

A time that is not within a day, and a point in time that `DateTime` cannot represent, throw `DEVX_OUT_OF_RANGE` on
access.

`values(column)` of integers and floats without nulls is a `Vector` over the same memory, and so is
`unsafe_wrap(Array, column)`, which throws for any other column.

**Ownership.** A column keeps its batch from being finalized. After `close(batch)` it throws `DEVX_CLOSED`, even in
`@inbounds` code. Any task may read, but not while another task closes the batch.

The type of a column depends on the data: pass the column to a function that works on it, or state the type
(`Column{Int32}(batch, k)`).
"""
struct Column{T,L} <: AbstractVector{T}
    batch::Batch
    record::DevxColumn
    validity::Ptr{UInt8}
    layout::L
    # Levels of columns nested in `L`.
    depth::Int
end

# ---- making one ----

# Index `p` below is an index into the buffers, where `record.offset` is row 1. So a slice of a column only needs
# another record.

function Column(batch::Batch, record::DevxColumn)
    numbers = number_column(batch, record)
    numbers === nothing || return numbers
    format = GC.@preserve batch unsafe_string(record.format)
    layout = layout_of(batch, record, format)
    T = value_type(layout)
    if !(Missing <: T) && may_have_nulls(batch, record)
        T = Union{T,Missing}
    end
    # A union's first buffer holds type ids, not validity.
    validity = record.n_buffers == 0 || startswith(format, "+u") ? C_NULL : buffer(record, 1)
    return Column{T,typeof(layout)}(batch, record, validity, layout, levels(layout))
end

"""
    Column{T}(b::Batch, k) -> Column{T}

Returns the column `b[k]` of a batch (`k` is its number or name) if its elements are of type `T`: integers or floats of
8 to 64 bits. `Union{S,Missing}` accepts a column of `S` with or without nulls. Unlike the type of `b[k]`, the type of
the result is known to the compiler: nothing is allocated, and nothing is looked up at run time.

Throws the errors of `b[k]`, and `DEVX_MISMATCH` for a column of another type, or a column that may have nulls when `T`
does not allow them.
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

# The `length` rows from index `first` of the buffers on.
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

# The child at `k`, counted from 1: for structs, sparse unions and fixed-size lists the rows that the column covers, for
# other types all rows.
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

# The element at index `p` of the buffers, which errors call row `i`.
@inline function at(c::Column{T}, p::Int, i::Int) where {T}
    if Missing <: T && c.validity != C_NULL && !bit(c.validity, p)
        return missing
    end
    return value(c.layout, p, i)
end
