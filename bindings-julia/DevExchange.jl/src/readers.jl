# How the values of a column are stored in its buffers, and how they are read. A layout is made from the record of a
# column. `value(layout, p, i)` is the value at index `p` of the buffers, counted from 0 (`record.offset` is row 1);
# errors call it row `i`.

# Levels of columns in the type of a column, and members in the type of a row. Values that are nested deeper, and rows
# with more members, are looked up when they are read: types that grow with the data would cost the compiler more time
# than the work itself.
const MOST_LEVELS = 4
const MOST_MEMBERS = 32

# The type under which a layout holds a column, and the type of the column's elements as the layout knows it.
held_type(c) = c.depth < MOST_LEVELS ? typeof(c) : Column
held_eltype(c) = c.depth < MOST_LEVELS ? eltype(c) : Any
levels_above(c) = c.depth < MOST_LEVELS ? c.depth + 1 : 1
most_levels(columns) = mapreduce(levels_above, max, columns; init=0)

# The type under which a layout holds several columns: a tuple, if there are few enough.
held_types(columns, most) = length(columns) > most ? Vector{Column} : Tuple{map(held_type, columns)...}

bad_data(what) = DevExchangeError(DEVX_INVALID_BUFFERS, what)

# ---- ranges: which values or bytes belong to a row ----

# From one offset to the next.
struct Offsets{O}
    starts::Ptr{O}
end

# From an offset, as many as the size says.
struct Spans{O}
    starts::Ptr{O}
    sizes::Ptr{O}
end

# Where the range of a row starts, and how long it is.
function range_of(r::Offsets, p, i)
    start, stop = Int(unsafe_load(r.starts, p + 1)), Int(unsafe_load(r.starts, p + 2))
    0 <= start <= stop || throw(bad_data("the offsets of row $i are $start and $stop: they must ascend from 0"))
    return start, stop - start
end

function range_of(r::Spans, p, i)
    start, size = Int(unsafe_load(r.starts, p + 1)), Int(unsafe_load(r.sizes, p + 1))
    0 <= start && 0 <= size || throw(bad_data("row $i has offset $start and size $size: neither may be negative"))
    return start, size
end

# ---- places: where the bytes of a row are ----

struct InData{O}
    ranges::Offsets{O}
    # Index of the last offset; only that offset says how many bytes there are.
    last::Int
    data::Ptr{UInt8}
end

# `width` bytes for each row.
struct Fixed
    width::Int
    data::Ptr{UInt8}
end

# Short values are in views of 16 bytes, long ones in one of several data buffers (Arrow columnar format, "Variable-size
# Binary View Layout").
struct InViews
    views::Ptr{UInt8}
    buffers::Ptr{Ptr{UInt8}}
    count::Int
    sizes::Ptr{Int64}
end

const VIEW_BYTES = 16
const IN_PLACE_BYTES = 12

InViews(record) = InViews(buffer(record, 2), Ptr{Ptr{UInt8}}(record.buffers) + 2 * sizeof(Ptr), record.n_buffers - 3,
    Ptr{Int64}(buffer(record, record.n_buffers)))

# The address of the bytes of a row, and their number.
function place_of(l::InData, p, i)
    start, n = range_of(l.ranges, p, i)
    bytes = Int(unsafe_load(l.ranges.starts, l.last + 1))
    start + n <= bytes || throw(bad_data(
        "the offsets of row $i are $start and $(start + n), those of the column end at $bytes"))
    l.data == C_NULL && n > 0 && throw(bad_data("buffers[2] is NULL, but row $i has $n bytes"))
    return l.data + start, n
end

place_of(l::Fixed, p, i) = l.data + p * l.width, l.width

function place_of(l::InViews, p, i)
    view = l.views + VIEW_BYTES * p
    word(at) = Int(unsafe_load(Ptr{Int32}(view + at)))
    n = word(0)
    n < 0 && throw(bad_data("the view of row $i has length $n"))
    n <= IN_PLACE_BYTES && return view + 4, n
    index, offset = word(8), word(12)
    0 <= index < l.count || throw(bad_data(
        "the view of row $i is in data buffer $index, counted from 0: there are $(l.count)"))
    # The library refuses an array with data buffers whose sizes are NULL.
    size = unsafe_load(l.sizes, index + 1)
    0 <= offset && offset + n <= size || throw(bad_data(
        "the view of row $i is $n bytes at offset $offset of data buffer $index, counted from 0, which has $size"))
    data = unsafe_load(l.buffers, index + 1)
    data == C_NULL && throw(bad_data("buffers[$(index + 2)] is NULL, but row $i has $n bytes"))
    return data + offset, n
end

# ---- values without others below them ----

# Fixed-width values: `S` is the stored type, `decode` converts to a value.
struct Plain{S,F}
    data::Ptr{S}
    decode::F
end

# Times of day and points in time. Not every number that can be stored is one; for others `decode` returns `nothing`.
# The texts are for errors.
struct Times{S,F}
    data::Ptr{S}
    decode::F
    name::Ptr{UInt8}
    format::Ptr{UInt8}
end

# One bit for each value.
struct Bits
    data::Ptr{UInt8}
end

# The indices of a dictionary column alone. To the C API such a column is still the dictionary column.
struct Indices{I}
    data::Ptr{I}
end

struct Text{P}
    place::P
end

struct Binary{P}
    place::P
    batch::Batch
end

struct Nothings end

value_type(::Plain{S,typeof(identity)}) where {S} = S
value_type(::Plain{<:Any,Type{T}}) where {T} = T
value_type(::Bits) = Bool
value_type(::Indices{I}) where {I} = I
value_type(::Text) = String
value_type(::Binary) = Bytes
value_type(::Nothings) = Missing

@inline value(l::Plain, p, i) = l.decode(unsafe_load(l.data, p + 1))
@inline function value(l::Times, p, i)
    stored = unsafe_load(l.data, p + 1)
    t = l.decode(stored)
    t === nothing && throw(no_time(l, stored, i))
    return t
end

@noinline function no_time(l::Times, stored, i)
    name, format = repr(unsafe_string(l.name)), repr(unsafe_string(l.format))
    return DevExchangeError(DEVX_OUT_OF_RANGE,
        "row $i of column $name is $stored, of format $format: no $(called(l))")
end

@inline value(l::Bits, p, i) = bit(l.data, p)
@inline value(l::Indices, p, i) = unsafe_load(l.data, p + 1)
value(::Nothings, p, i) = missing

function value(l::Text, p, i)
    data, n = place_of(l.place, p, i)
    return n == 0 ? "" : unsafe_string(data, n)
end

value(l::Binary, p, i) = Bytes(l.batch, place_of(l.place, p, i)...)

@inline bit(data::Ptr{UInt8}, p) = (unsafe_load(data, (p >> 3) + 1) >> (p & 7)) & 0x01 == 0x01

# ---- values out of other columns ----

levels(_) = 0

# Indices of type `I` into a column of values.
struct Encoded{I,C}
    indices::Ptr{I}
    values::C
end

encoded(indices::Ptr{I}, values) where {I} = Encoded{I,held_type(values)}(indices, values)

value_type(l::Encoded) = held_eltype(l.values)
levels(l::Encoded) = levels_above(l.values)

function value(l::Encoded, p, i)
    index = unsafe_load(l.indices, p + 1)
    values = l.values
    0 <= index < length(values) || throw(DevExchangeError(DEVX_OUT_OF_RANGE,
        "row $i is index $index of a dictionary of $(length(values)) values, counted from 0"))
    return at(values, values.record.offset + Int(index), i)
end

# Row `p` is a range of the child, which is seen as a whole.
struct Lists{R,C}
    ranges::R
    child::C
end

lists(ranges::R, child) where {R} = Lists{R,held_type(child)}(ranges, child)

value_type(::Lists{R,C}) where {R,C} = C
levels(l::Lists) = levels_above(l.child)

# The rows of a child, seen as a whole, that make up a row: where they begin in the child's buffers, and how many there
# are.
function rows_of(ranges, p, i, child)
    start, n = range_of(ranges, p, i)
    start <= length(child) - n || throw(bad_data(
        "row $i is $n values from $start on, counted from 0, of a child with length $(length(child))"))
    return child.record.offset + start, n
end

part_of(child, ranges, p, i) = stored(child, rows_of(ranges, p, i, child)...)

value(l::Lists, p, i) = part_of(l.child, l.ranges, p, i)

# Row `p` is `size` rows of the child, beginning at `start + p * size` in its buffers.
struct FixedLists{C}
    size::Int
    start::Int
    child::C
end

# The library slices children like the record; here they are addressed by their index in the buffers.
fixed_lists(size, record::DevxColumn, child) =
    FixedLists{held_type(child)}(size, child.record.offset - record.offset * size, child)

value_type(::FixedLists{C}) where {C} = C
levels(l::FixedLists) = levels_above(l.child)

value(l::FixedLists, p, i) = stored(l.child, l.start + p * l.size, l.size)

# Row `p` is a range of entries; the columns of keys and values are seen as a whole.
struct Maps{K,V}
    ranges::Offsets{Int32}
    keys::K
    values::V
end

maps(ranges, keys, values) = Maps{held_type(keys),held_type(values)}(ranges, keys, values)

value_type(::Maps{K,V}) where {K,V} = Entries{eltype(K),eltype(V),K,V}
levels(l::Maps) = max(levels_above(l.keys), levels_above(l.values))

@inline value(l::Maps, p, i) = value_type(l)(part_of(l.keys, l.ranges, p, i), part_of(l.values, l.ranges, p, i))

# Row `p` is an `R` of the values at index `starts[k] + p` in the buffers of each child `k`.
struct Structs{R,C}
    names::Vector{Symbol}
    starts::Vector{Int}
    children::C
end

function structs(record::DevxColumn, columns::Vector{Column})
    names = Symbol[Symbol(name(c)) for c in columns]
    starts = Int[c.record.offset - record.offset for c in columns]
    C = held_types(columns, MOST_MEMBERS)
    C <: Tuple || return Structs{Row,C}(names, starts, columns)
    values = Tuple{map(held_eltype, columns)...}
    R = allunique(names) ? NamedTuple{Tuple(names),values} : values
    return Structs{R,C}(names, starts, Tuple(columns))
end

value_type(::Structs{R}) where {R} = R
levels(l::Structs) = most_levels(l.children)

value(l::Structs{R}, p, i) where {R} = R(values_of_members(l, p, i))
# Written out for each member, so that the compiler knows the type of each.
@generated values_of_members(l::Structs{R,C}, p, i) where {R,C} =
    Expr(:tuple, (:(at(l.children[$k], l.starts[$k] + p, i)) for k in 1:fieldcount(C))...)
value(l::Structs{Row}, p, i) = Row(l.names, l.children, l.starts .+ p, i)

# Row `p` is in the child that its type id stands for (`numbers[id + 1]`, 0 for none). In a sparse union it is at index
# `starts[k] + p` of the child's buffers, in a dense union at `starts[k]` plus the row's own offset.
struct Unions{T,O,C}
    ids::Ptr{Int8}
    offsets::O
    numbers::Vector{Int}
    starts::Vector{Int}
    lengths::Vector{Int}
    children::C
end

# With more members a tuple is no faster than a vector.
const MOST_UNION_MEMBERS = 8

function unions(record::DevxColumn, format, columns::Vector{Column})
    dense = startswith(format, "+ud")
    numbers = zeros(Int, 128)
    foreach(pair -> numbers[pair[2]+1] = pair[1], enumerate(type_ids(format)))
    starts = Int[c.record.offset - (dense ? 0 : record.offset) for c in columns]
    offsets = dense ? Ptr{Int32}(buffer(record, 2)) : nothing
    C = held_types(columns, MOST_UNION_MEMBERS)
    T = length(columns) > MOST_MEMBERS ? Any : Union{map(held_eltype, columns)...}
    return Unions{T,typeof(offsets),C}(Ptr{Int8}(buffer(record, 1)), offsets, numbers, starts, length.(columns),
        C <: Tuple ? Tuple(columns) : columns)
end

value_type(::Unions{T}) where {T} = T
levels(l::Unions) = most_levels(l.children)

# Which child holds the value of a row, and its index in the child's buffers.
function member_of(l::Unions, p, i)
    id = Int(unsafe_load(l.ids, p + 1))
    k = id < 0 ? 0 : l.numbers[id+1]
    k == 0 && throw(bad_data("row $i has type id $id: no child of the union has"))
    return k, l.starts[k] + index_in_child(l, l.offsets, k, p, i)
end

index_in_child(l, ::Nothing, k, p, i) = p
function index_in_child(l, offsets::Ptr, k, p, i)
    offset = Int(unsafe_load(offsets, p + 1))
    0 <= offset < l.lengths[k] || throw(bad_data(
        "row $i is offset $offset of child $(k - 1), counted from 0, whose length is $(l.lengths[k])"))
    return offset
end

value(l::Unions{T}, p, i) where {T} = at_member(l.children, member_of(l, p, i)..., i)::T

at_member(children::Vector{Column}, k, p, i) = at(children[k], p, i)
at_member(children::Tuple, k, p, i) = k == 1 ? at(children[1], p, i) : at_member(Base.tail(children), k - 1, p, i)
at_member(::Tuple{}, k, p, i) = throw(BoundsError())

# Row `p` is the value of the first run that ends after it.
struct Runs{I,C}
    ends::Ptr{I}
    count::Int
    values::C
end

function runs(ends::DevxColumn, values)
    I = PLAIN_FORMATS[unsafe_string(ends.format)][1]
    return Runs{I,held_type(values)}(Ptr{I}(buffer(ends, 2)) + ends.offset * sizeof(I), ends.length, values)
end

value_type(l::Runs) = held_eltype(l.values)
levels(l::Runs) = levels_above(l.values)

run_end(l::Runs, run) = Int(unsafe_load(l.ends, run))

# The run that contains a row, counted from 1; found by binary search, because run ends increase.
function run_of(l::Runs, p, i)
    low, high = 1, l.count + 1
    while low < high
        middle = low + (high - low) >> 1
        if run_end(l, middle) <= p
            low = middle + 1
        else
            high = middle
        end
    end
    low > l.count && throw(no_run(l, p, i))
    return low
end

no_run(l, p, i) = bad_data("row $i has index $p, counted from 0: it is behind the end of all $(l.count) runs")

value_of_run(l::Runs, run, i) = at(l.values, Int(l.values.record.offset) + run - 1, i)
value(l::Runs, p, i) = value_of_run(l, run_of(l, p, i), i)

# ---- from a format string ----

date_of_day(day) = Date(Dates.UTD(UNIX_DAY + day))
date_of_millisecond(ms) = date_of_day(fld(ms, 86_400_000))

const LAST_MILLISECOND = typemax(Int64) - Dates.UNIXEPOCH
datetime_of_millisecond(ms) = ms <= LAST_MILLISECOND ? DateTime(Dates.UTM(Dates.UNIXEPOCH + ms)) : nothing
datetime_of_second(s) =
    typemin(Int64) ÷ 1000 <= s <= LAST_MILLISECOND ÷ 1000 ? datetime_of_millisecond(1000 * s) : nothing

const NANOSECONDS_OF_DAY = 86_400_000_000_000
time_of(n, unit) = 0 <= n < NANOSECONDS_OF_DAY ÷ unit ? Time(Nanosecond(n * unit)) : nothing
time_of_second(n) = time_of(n, 1_000_000_000)
time_of_millisecond(n) = time_of(n, 1_000_000)
time_of_microsecond(n) = time_of(n, 1_000)
time_of_nanosecond(n) = time_of(n, 1)

const Moments = Times{Int64,<:Union{typeof.((datetime_of_second, datetime_of_millisecond))...}}

value_type(::Plain{<:Any,<:Union{typeof.((date_of_day, date_of_millisecond))...}}) = Date
value_type(::Moments) = DateTime
value_type(::Times) = Time
called(::Moments) = "DateTime"
called(::Times) = "time of day"

# The stored type and the conversion to a value, by format string.
const PLAIN_FORMATS = Dict{String,Tuple{DataType,Any}}(
    "c" => (Int8, identity), "C" => (UInt8, identity), "s" => (Int16, identity), "S" => (UInt16, identity),
    "i" => (Int32, identity), "I" => (UInt32, identity), "l" => (Int64, identity), "L" => (UInt64, identity),
    "e" => (Float16, identity), "f" => (Float32, identity), "g" => (Float64, identity),
    "tdD" => (Int32, date_of_day), "tdm" => (Int64, date_of_millisecond),
    "tDs" => (Int64, Second), "tDm" => (Int64, Millisecond), "tDu" => (Int64, Microsecond),
    "tDn" => (Int64, Nanosecond), "tiM" => (Int32, Month), "tiD" => (DayTime, identity),
    "tin" => (MonthDayNano, identity),
    # A time zone follows in the format. `DateTime` cannot represent fractions of a millisecond.
    "tsu" => (Int64, identity), "tsn" => (Int64, identity),
)

const TIME_FORMATS = Dict{String,Tuple{DataType,Any}}(
    "tts" => (Int32, time_of_second), "ttm" => (Int32, time_of_millisecond),
    "ttu" => (Int64, time_of_microsecond), "ttn" => (Int64, time_of_nanosecond),
    "tss" => (Int64, datetime_of_second), "tsm" => (Int64, datetime_of_millisecond),
)

# A column of numbers, whose format is a single letter, or `nothing` for any other format. The types are written out, so
# that nothing is looked up for the most common columns.
@eval function number_column(batch::Batch, record::DevxColumn)
    letter = unsafe_load(record.format)
    record.has_dictionary == 0 && letter != 0x00 && unsafe_load(record.format, 2) == 0x00 || return nothing
    $((:(letter == $(UInt8(only(format))) && return number_column($stored, batch, record))
       for (format, (stored, _)) in PLAIN_FORMATS if length(format) == 1)...)
    return nothing
end

function number_column(::Type{S}, batch::Batch, record::DevxColumn) where {S}
    may_have_nulls(batch, record) && return column_of_numbers(Union{S,Missing}, batch, record)
    return column_of_numbers(S, batch, record)
end

@inline function column_of_numbers(::Type{T}, batch::Batch, record::DevxColumn) where {T}
    layout = Plain(Ptr{nonmissing(T)}(buffer(record, 2)), identity)
    return Column{T,typeof(layout)}(batch, record, buffer(record, 1), layout, 0)
end

# Whether a column holds numbers of this type.
stores(::Type, ::DevxColumn) = false
for (format, (stored, _)) in PLAIN_FORMATS
    length(format) == 1 || continue
    @eval @inline stores(::Type{$stored}, record::DevxColumn) =
        unsafe_load(record.format) == $(UInt8(only(format))) && unsafe_load(record.format, 2) == 0x00 &&
        record.has_dictionary == 0
end

function layout_of(batch::Batch, record::DevxColumn, format::String)
    plain(S, decode) = Plain{S,Core.Typeof(decode)}(Ptr{S}(buffer(record, 2)), decode)
    times(S, decode) = Times(Ptr{S}(buffer(record, 2)), decode, record.name, record.format)
    data(O) = InData(Offsets(Ptr{O}(buffer(record, 2))), Int(record.offset + record.length), buffer(record, 3))
    spans(O) = Spans(Ptr{O}(buffer(record, 2)), Ptr{O}(buffer(record, 3)))
    offsets(O) = Offsets(Ptr{O}(buffer(record, 2)))
    if record.has_dictionary != 0
        return encoded(Ptr{PLAIN_FORMATS[format][1]}(buffer(record, 2)), dictionary(batch, record))
    end
    kind = startswith(format, "ts") ? SubString(format, 1, 3) : format
    haskey(PLAIN_FORMATS, kind) && return plain(PLAIN_FORMATS[kind]...)
    haskey(TIME_FORMATS, kind) && return times(TIME_FORMATS[kind]...)
    format == "n" && return Nothings()
    format == "b" && return Bits(buffer(record, 2))
    format == "u" && return Text(data(Int32))
    format == "U" && return Text(data(Int64))
    format == "vu" && return Text(InViews(record))
    format == "z" && return Binary(data(Int32), batch)
    format == "Z" && return Binary(data(Int64), batch)
    format == "vz" && return Binary(InViews(record), batch)
    format == "+l" && return lists(offsets(Int32), child(batch, record, 1))
    format == "+L" && return lists(offsets(Int64), child(batch, record, 1))
    format == "+vl" && return lists(spans(Int32), child(batch, record, 1))
    format == "+vL" && return lists(spans(Int64), child(batch, record, 1))
    format == "+s" && return structs(record, children(batch, record))
    format == "+r" && return runs(child_record(batch, record, 1), child(batch, record, 2))
    startswith(format, "+u") && return unions(record, format, children(batch, record))
    startswith(format, "w:") && return Binary(Fixed(number(format, 3), buffer(record, 2)), batch)
    startswith(format, "+w:") && return fixed_lists(number(format, 4), record, child(batch, record, 1))
    startswith(format, "d:") && return plain(decimal_type(format), identity)
    if format == "+m"
        entries = child_record(batch, record, 1)
        return maps(offsets(Int32), child(batch, entries, 1), child(batch, entries, 2))
    end
    throw(DevExchangeError(DEVX_UNSUPPORTED, "format is $(repr(format)): this package cannot read it yet"))
end

number(text, from) = parse(Int, SubString(text, from))

function decimal_type(format)
    numbers = parse.(Int, split(SubString(format, 3), ','))
    bits = length(numbers) == 3 ? numbers[3] : 128
    return Decimal{numbers[1],numbers[2],bits == 32 ? Int32 : bits == 64 ? Int64 : bits == 128 ? Int128 : Int256}
end
