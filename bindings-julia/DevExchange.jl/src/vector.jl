# A column as a vector, and its properties. Code that does not depend on its type is compiled once (`@nospecialize`).

Base.size(c::Column) = (Int(c.record.length),)
Base.IndexStyle(::Type{<:Column}) = IndexLinear()

@inline function Base.getindex(c::Column{T}, i::Int) where {T}
    require_open(c.batch.handle)
    require_readable(c.batch)
    @boundscheck checkbounds(c, i)
    return GC.@preserve c at(c, Int(c.record.offset) + i - 1, i)::T
end

# Each run is looked up once. The state is the next row, the run of the previous row, the last row of that run and its
# value.
Base.iterate(c::Column{<:Any,<:Runs}) = isempty(c) ? nothing : enter_run(c, 1, run_of_row(c, 1))

function Base.iterate(c::Column{<:Any,<:Runs}, (i, run, last, x))
    i <= last && return x, (i + 1, run, last, x)
    return i > length(c) ? nothing : enter_run(c, i, run + 1)
end

Base.collect(c::Column{T,<:Runs}) where {T} = T[x for x in c]

function run_of_row(c::Column, i)
    require_open(c.batch.handle)
    require_readable(c.batch)
    return GC.@preserve c run_of(c.layout, Int(c.record.offset) + i - 1, i)
end

# Row `i`, which is the first of a run.
function enter_run(c::Column{T}, i, run) where {T}
    require_open(c.batch.handle)
    l, offset = c.layout, Int(c.record.offset)
    GC.@preserve c begin
        run <= l.count || throw(no_run(l, offset + i - 1, i))
        stop = run_end(l, run)
        stop >= offset + i || throw(bad_data(
            "run $run ends at $stop, and the ones before it at $(offset + i - 1): run ends have to grow"))
        last = min(stop - offset, length(c))
        x = value_of_run(l, run, i)::T
        return x, (i + 1, run, last, x)
    end
end

# Numbers are side by side in memory: a strided array.
const NumberColumn{S} = Column{S,<:Union{Plain{S,typeof(identity)},Indices{S}}}
const IndexColumn = Column{<:Any,<:Indices}

Base.strides(::NumberColumn) = (1,)
Base.elsize(::Type{<:NumberColumn{S}}) where {S} = sizeof(S)
function Base.unsafe_convert(::Type{Ptr{S}}, c::NumberColumn{S}) where {S}
    require_open(c.batch.handle)
    return c.layout.data + c.record.offset * sizeof(S)
end
is_memory(::NumberColumn{S}, ::Type{S}) where {S} = true
require_readable_memory(c::Column) = require_readable(c.batch)
require_readable_source(c::Column) = c.batch.readable ||
    throw(not_copied(c.batch.device, "a column is copied with its batch, or as the batch `share(column)`"))

# A column can be over memory that is written, as that of a tensor (see overlap.jl).
const PlainColumn{S} = Column{S,Plain{S,typeof(identity)}}
first_byte(c::PlainColumn{S}) where {S} = UInt(c.layout.data) + c.record.offset * sizeof(S)
bytes_of(c::PlainColumn{S}) where {S} = Int(first_byte(c)) .+ (0:length(c)*sizeof(S)-1)
Base.dataids(c::PlainColumn) = (first_byte(c),)
Base.unalias(dest, c::PlainColumn) = apart(dest, c)
Base.Broadcast.broadcast_unalias(dest, c::PlainColumn) = apart(dest, c)
Base.Broadcast.broadcast_unalias(::Nothing, c::PlainColumn) = c
# For what is wrapped around a column. The type is stated because `root` does not say it.
Base.unaliascopy(c::PlainColumn) = alone(own -> root(copy(own.batch)), c)::typeof(c)

references(b::Batch) = (share_handle(b.handle, Handle{TAG_BATCH | TAG_KEPT}),)
references(c::Column) = references(c.batch)
write_protected(::Column) = true

"""
    values(c::Column)

For integers and floats without nulls, returns the elements as a `Vector` over the same memory, for loops at full speed.
The vector holds its own reference: the memory stays as long as anything refers to it, even after the batch is closed.
Arrow data must not be changed: do not write or resize the vector; nothing prevents you from doing so.

For any other column, returns the column itself. Throws `DEVX_INVALID_BUFFERS` if the memory is not aligned for the
type.
"""
function Base.values(c::NumberColumn{S}) where {S<:PlainNumber}
    data = Ref{Ptr{Cvoid}}(C_NULL)
    @checked devx_column_values(
        c.batch.handle::Handle, Ref(c.record)::Ptr{DevxColumn}, dtype(S)::DLDataType, data::Ptr{Ptr{Cvoid}})
    return wrap_memory(Ptr{S}(data[]), size(c), c.batch.handle)
end

"""
    unsafe_wrap(Array, c::Column) -> Vector

Returns the elements of a column of integers or floats without nulls as a `Vector` over the same memory, as `values(c)`
does. Throws `DEVX_COPY_REQUIRED` for any other column; `collect(c)` copies it.
"""
Base.unsafe_wrap(::Type{Array}, c::NumberColumn{<:PlainNumber}) = values(c)
Base.unsafe_wrap(::Type{Array}, c::Column) = throw(DevExchangeError(DEVX_COPY_REQUIRED,
    "eltype is $(eltype(c)): only numbers without nulls are in memory as in a Julia array; `collect(column)` copies others"))

"""
    name(c::Column) -> String

The name of a column; empty if it has none.
"""
name(@nospecialize(c::Column)) = text_of(c, c.record.name)

"""
    format(c::Column) -> String

The Arrow format string of a column's type, for example `"g"` for float64; for a dictionary column that of the indices.
"""
format(@nospecialize(c::Column)) = text_of(c, c.record.format)

"""
    type_name(c::Column) -> String
    type_name(f::Field) -> String
    type_name(format::AbstractString) -> String

Returns the name of a type, for people to read, the same in every language: `"float64"`,
`"timestamp(microsecond, Europe/Berlin)"`; for a dictionary the names of the indices' and the values' types,
`"int32 -> utf8"`. Throws `DEVX_INVALID_FORMAT` for an invalid Arrow format string, `DEVX_INVALID_TEXT`, and
`DEVX_CLOSED` for a column whose batch is closed.
"""
type_name(@nospecialize(c::Column)) = (require_open(c.batch.handle); type_name(c.batch, c.record))
function type_name(batch::Batch, record::DevxColumn)
    own = type_name(unsafe_string(record.format))
    return record.has_dictionary == 0 ? own : string(own, " -> ", type_name(batch, dictionary_record(batch, record)))
end

"""
    timezone(c::Column) -> String

Returns the time zone of a timestamp column; empty if it has none, and for other types.
"""
timezone(@nospecialize(c::Column)) = (f = format(c); startswith(f, "ts") ? f[5:end] : "")

"""
    metadata(c::Column) -> Vector{Pair{String,String}}
    metadata(b::Batch) -> Vector{Pair{String,String}}
    metadata(s::Schema) -> Vector{Pair{String,String}}

Returns the metadata of a column's field, of a whole batch, or of a whole schema.
"""
metadata(x::Union{Batch,Schema}) = metadata(root(x))
function metadata(@nospecialize(c::Column))
    require_open(c.batch.handle)
    return GC.@preserve c read_metadata(c.record.metadata)
end

"""
    flags(c::Column) -> Int64

The `DevExchange.DEVX_FIELD_...` bits of a column's field: see [`nullable`](@ref DevExchange.nullable),
[`ordered`](@ref DevExchange.ordered), [`keys_sorted`](@ref DevExchange.keys_sorted).
"""
flags(@nospecialize(c::Column)) = c.record.flags

function text_of(@nospecialize(c::Column), text::Ptr{UInt8})
    require_open(c.batch.handle)
    return GC.@preserve c unsafe_string(text)
end

"""
    buffers(c::Column) -> Vector{Ptr{Cvoid}}

Returns the addresses of a column's buffers, in the order of the Arrow columnar format, validity first; NULL for a
buffer that does not exist. They are the producer's addresses: if the column is a slice, row 1 is `offset` elements
after them.
"""
function buffers(@nospecialize(c::Column))
    require_open(c.batch.handle)
    return GC.@preserve c [Ptr{Cvoid}(buffer(c.record, k)) for k in 1:c.record.n_buffers]
end

"""
    children(c::Column) -> Vector{Column}

Returns the child columns, which do not contain nulls of the column itself:

- of structs and sparse unions: for each member, the rows that the column covers;
- of fixed-size lists: their values, in one column;
- of other types: all values of the child, even those that no row refers to. These are the values of lists, the entries
  of maps (as structs), the children of dense unions, and the ends and the values of runs.
"""
children(@nospecialize(c::Column)) = children(c.batch, c.record)

"""
    type_id(c::Column, i) -> Int

Returns which child of a union the value of row `i` comes from: one of [`type_ids`](@ref)`(c)`, which are in the order
of [`children`](@ref)`(c)`. Throws `DEVX_MISMATCH` for another type of column.
"""
function type_id(c::Column, i::Integer)
    require_open(c.batch.handle)
    require_readable(c.batch)
    checkbounds(c, i)
    return type_id_at(c, c.layout, Int(c.record.offset) + Int(i) - 1)
end

type_id_at(c, l::Unions, p) = GC.@preserve c Int(unsafe_load(l.ids, p + 1))
type_id_at(c, l, p) = throw(no_union(format(c)))

function slice(c::Column, rows::AbstractUnitRange{<:Integer})
    require_open(c.batch.handle)
    checkbounds(c, rows)
    return stored(c, c.record.offset + rows_before(rows), length(rows))
end

function share(@nospecialize(c::Column))
    handle = made(Handle{TAG_BATCH}) do out
        @checked devx_column_share(c.batch.handle::Handle, Ref(c.record)::Ptr{DevxColumn}, out::Ptr{Ptr{Cvoid}})
    end
    return adopt_batch(handle; ready=c.batch.readable)
end

# Like `share`, but for the indices of a dictionary: with the array of the dictionary column, without its dictionary.
function share(@nospecialize(c::IndexColumn))
    array, schema = Ref(ArrowDeviceArray()), Ref(ArrowSchema())
    whole = invoke(share, Tuple{Column}, c)
    try
        export_move(whole, array, schema)
        GC.@preserve array schema begin
            data, type = Base.unsafe_convert.((Ptr{ArrowDeviceArray}, Ptr{ArrowSchema}), (array, schema))
            drop_dictionary(Ptr{ArrowArray}(data))
            drop_dictionary(type)
            unsafe_store!(Ptr{Ptr{UInt8}}(field_address(type, :metadata)), C_NULL)
            unsafe_store!(Ptr{Int64}(field_address(type, :flags)), c.record.flags)
        end
        batch = import_arrow_device(array, schema)
        return Batch(batch.handle, batch.rows, batch.columns, batch.device, c.batch.readable)
    finally
        close(whole)
        arrow_release(array)
        arrow_release(schema)
    end
end

function drop_dictionary(x::Ptr{T}) where {T<:Union{ArrowArray,ArrowSchema}}
    place = Ptr{Ptr{T}}(field_address(x, :dictionary))
    arrow_release(unsafe_load(place))
    unsafe_store!(place, C_NULL)
    return nothing
end

# Calls `f` with the column in a batch of its own.
function alone(f, @nospecialize(c::Column))
    batch = share(c)
    try
        return f(root(batch))
    finally
        close(batch)
    end
end

"""
    null_count(c::Column) -> Int
    null_count(c::Column, stream) -> Int

Returns the number of nulls. If the producer has not counted them, they are counted here: in memory that the host can
read or, with a stream, in memory of any device but the CPU. Then the validity buffer is copied on the stream, and the
host waits for the copy. For unions and runs the number is 0: nulls are in their children.

Throws `DEVX_DEVICE` or `DEVX_NOT_READY` if a stream is needed and none is given, `DEVX_DEVICE` for a stream and a column
on the CPU, `DEVX_INVALID_STREAM`, `DEVX_UNSUPPORTED` if the stream is being captured, `DEVX_DRIVER`, `DEVX_CLOSED`.
"""
null_count(c::Column) = null_count(c.batch, c.record)
function null_count(c::Column, stream::AnyStream)
    count = Ref{Int64}(0)
    in_order(c.batch.handle, stream) do address, value
        @checked devx_column_null_count_on(
            address::Ptr{Cvoid}, Ref(c.record)::Ptr{DevxColumn}, value::Int64, count::Ptr{Int64})
    end
    return Int(count[])
end

"""
    text(c::Column, i) -> String

Returns the value of row `i`, of any type, as text for display, the same in every language: numbers plainly, dates and
times as in ISO 8601 (timestamps with a time zone in UTC), durations with their unit, text in quotes as in JSON, bytes
as `0x...`, lists as `[...]`, structs as `{"name": ...}`, maps as `{key: ...}`, a null as `null`.

Throws `BoundsError`, `DEVX_DEVICE`, `DEVX_INVALID_BUFFERS`, `DEVX_INVALID_TEXT`, `DEVX_CLOSED`.
"""
function text(c::Column, i::Integer)
    require_open(c.batch.handle)
    checkbounds(c, i)
    return text(c.batch, c.record, i)
end
text(c::IndexColumn, i::Integer) = alone(c -> text(c, i), c)

function text(batch::Batch, record::DevxColumn, i::Integer)
    try
        return written() do room, capacity, bytes
            @checked devx_column_text(
                batch.handle::Handle, Ref(record)::Ptr{DevxColumn}, (i - 1)::Int64, room::Ptr{UInt8}, capacity::Csize_t,
                bytes::Ptr{Csize_t})
        end
    catch e
        e isa DevExchangeError && occursin("row ", e.message) || rethrow()
        throw(DevExchangeError(e.status, e.driver_code, "row $i: $(e.message) (rows there are counted from 0)"))
    end
end

"""
    indices(c::Column) -> Column

Returns the indices of a dictionary column, counted from 0, as a column over the same memory: integers of the stored
width. It is a full column, which can be shared and handed on. It has the name of the dictionary column, but none of its
metadata. Throws `DEVX_MISMATCH` for another type of column, `DEVX_CLOSED`.
"""
function indices(c::Column{T,Encoded{I,C}}) where {T,I,C}
    require_open(c.batch.handle)
    S = may_have_nulls(c.batch, c.record) ? Union{I,Missing} : I
    r = c.record
    record = DevxColumn(r.format, r.name, C_NULL, r.flags & ~DEVX_FIELD_ORDERED, r.length, r.null_count, r.offset,
        r.buffers, r.n_buffers, r.n_children, 0, r.node)
    return Column{S,Indices{I}}(c.batch, record, c.validity, Indices(c.layout.indices), 0)
end
indices(c::Column) = throw(no_dictionary(c))

"""
    dictionary(c::Column) -> Column

Returns the values of a dictionary column: `c[i] == dictionary(c)[indices(c)[i] + 1]`. Throws `DEVX_MISMATCH` for
another type of column.
"""
dictionary(c::Column{<:Any,<:Encoded}) = c.layout.values
dictionary(c::Column) = throw(no_dictionary(c))

no_dictionary(c) = DevExchangeError(DEVX_MISMATCH, "the column has no dictionary: its format is $(repr(format(c)))")

"""
    bytes(c::Column, i) -> Bytes

Returns the bytes of row `i` of texts or binary, without a copy. The bytes of a null are undefined, usually none. Throws
`DEVX_MISMATCH` for another type of column.
"""
function bytes(c::Column, i::Integer)
    require_open(c.batch.handle)
    require_readable(c.batch)
    checkbounds(c, i)
    return GC.@preserve c bytes_at(c, c.layout, Int(c.record.offset) + Int(i) - 1, Int(i))
end

bytes_at(c, l::Union{Text,Binary}, p, i) = Bytes(c.batch, place_of(l.place, p, i)...)
bytes_at(c, l, p, i) = throw(DevExchangeError(DEVX_MISMATCH,
    "the column is neither text nor binary: its format is $(repr(format(c)))"))
