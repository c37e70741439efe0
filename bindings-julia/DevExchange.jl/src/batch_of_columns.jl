# Record batches of named columns: Julia vectors, laid out as Arrow has them, and columns of other batches.

"""
    Batch(columns; release=nothing, metadata=(), stream=nothing)
    Batch(name => column, ...; release=nothing, metadata=(), stream=nothing)

Makes a record batch of columns of the same length: from a named tuple of vectors, or from any iterable of pairs
`name => vector` (a dictionary, a vector, a generator, `pairs(x)`, `zip(names, vectors)`), in the order of iteration.
Names are texts or symbols.

A [`Column`](@ref) or a batch (any array, as one column) goes in as it is, whatever its type, under the new name. It is
shared, not copied, and stays valid even after its batch is closed. All of these must be on one device; with vectors
beside them, on the CPU. If one of them is not ready yet, the result is in the order of `stream`, which waits for all of
them on the device, and may be closed before the result if it is a [`DeviceStream`](@ref). All other columns are laid
out from their elements; this includes a `view` of a column (but a [`slice`](@ref) is a column).

| elements | Arrow type | memory |
|---|---|---|
| integers of 8 to 64 bits, floats | the same | the vector's own |
| `Time`; `Second`, `Millisecond`, `Microsecond`, `Nanosecond` | time (ns); durations | the vector's own |
| [`Decimal`](@ref); [`DayTime`](@ref), [`MonthDayNano`](@ref) | decimal; intervals | the vector's own |
| `Bool` | bool | of a `BitVector` its own, else laid out |
| `AbstractString`; vectors of `UInt8` | utf8; binary (large from 2 GiB on) | laid out |
| `Date`; `DateTime`; `Month` | date32; timestamp (ms, no zone); interval (months) | laid out |
| [`DictionaryVector`](@ref) | dictionary | the indices' own, values as above |
| [`RunEndVector`](@ref) | run-end encoded | the ends' own, values as above |
| vectors | list | laid out |
| `NTuple`s | fixed-size list | of plain elements the vector's own |
| `NamedTuple`s | struct | laid out |
| dictionaries (`AbstractDict`) | map | laid out |
| a `Union` of several of these | dense union | laid out |
| `Missing` only | null | none |

With `Union{T,Missing}` a column is laid out, with a validity bitmap if anything is missing. "Laid out" means one copy,
into buffers that Julia owns. "Its own" means no copy, for `Vector`s and views without gaps whose alignment is that of
their elements. Such vectors must not be resized or written as long as the batch is used, and are kept alive that long.
Then `release()`, if given, is called once, on a task of this module; it needs at least one column that is a vector.
`release` is not called if this constructor throws, nor if the batch or an export of it still exists when Julia ends.

Throws, with the name of the column:

- `DEVX_UNSUPPORTED` for elements without an Arrow type, and for maps with a missing key;
- `DEVX_INVALID_ARGUMENT` for an invalid vector, name or metadata, `DEVX_INVALID_TEXT`;
- `DEVX_OUT_OF_RANGE` for dates and months that their type has no room for, and for decimals with more digits than their
  type;
- `DEVX_INVALID_LENGTH` for columns of different length;
- `DEVX_CLOSED` for a tensor, column or batch that was closed;
- `DEVX_DEVICE` or `DEVX_NOT_READY` for elements that cannot be read here;
- `DEVX_MISMATCH` for batches on different devices;
- `DEVX_NOT_READY` if a stream is needed and none is given, `DEVX_INVALID_STREAM`, `DEVX_DRIVER`.
"""
Batch(@nospecialize(columns); release=nothing, metadata=(), stream=nothing) =
    batch_of(listed(columns), release, metadata, stream)
Batch(@nospecialize(columns::Pair...); release=nothing, metadata=(), stream=nothing) =
    batch_of(Any[columns...], release, metadata, stream)

# From here on the compiler does not know the types of columns; otherwise it would compile all of this for each table.
function listed(@nospecialize(columns::NamedTuple))
    list = Any[]
    # `keys` would be compiled for each table, and `fieldname` goes through all names each time.
    names = typeof(columns).parameters[1]
    for k in 1:nfields(columns)
        push!(list, Pair{Any,Any}(getfield(names, k), getfield(columns, k)))
    end
    return list
end
function listed(@nospecialize(columns))
    applicable(iterate, columns) || throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
        "the columns are given as a $(typeof(columns)): pairs `name => vector` are needed"))
    return append!(Any[], columns)
end

column_name(name::Union{AbstractString,Symbol}) = String(name)
column_name(name) = throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
    "a column has the name $(repr(name)): a text or a symbol is needed"))

function batch_of(columns::Vector{Any}, @nospecialize(release), @nospecialize(metadata), @nospecialize(stream))
    named = named_columns(columns)
    any(is_of_batch, named) && return joined(named, release, metadata, stream)
    return laid_out(named, release, metadata)
end

# Names and columns, checked to be of the same length.
function named_columns(columns::Vector{Any})
    named = Pair{String,Any}[]
    rows_of_first = nothing
    for pair in columns
        key, column = name_and_column(pair)
        name = column_name(key)
        rows = rows_in(name, column)
        push!(named, Pair{String,Any}(name, column))
        rows_of_first === nothing && (rows_of_first = rows)
        rows == rows_of_first || throw(DevExchangeError(DEVX_INVALID_LENGTH,
            "column $(repr(name)) has length $rows: column $(repr(named[1][1])) has $rows_of_first"))
    end
    return named
end

# These are methods, because Julia remembers which of them a type has. It does not for `isa AbstractVector`, which takes longer
# than everything else here.
name_and_column(@nospecialize(pair::Pair)) = (pair.first, pair.second)
name_and_column(@nospecialize(pair::Tuple{Any,Any})) = (pair[1], pair[2])
name_and_column(@nospecialize(pair)) = throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
    "a column is given as $(repr(pair)): a pair is needed, `name => vector`"))

rows_in(name, b::Batch) = b.rows
function rows_in(name, @nospecialize(column::AbstractVector))
    Base.has_offset_axes(column) && throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
        "column $(repr(name)) has indices $(axes(column, 1)): they must begin at 1"))
    return length(column)
end
rows_in(name, @nospecialize(column)) = throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
    "column $(repr(name)) is a $(typeof(column)): a vector is needed"))

is_of_batch(pair) = pair[2] isa Union{Batch,Column}

function laid_out(named, @nospecialize(release), @nospecialize(metadata))
    fields = Field[]
    nodes = Node[Node(isempty(named) ? 0 : rows_in(named[1]...), 0, 0, Any[nothing])]
    for (name, column) in named
        push!(fields, lay_column!(nodes, name, column))
    end
    schema = Schema(fields; metadata=metadata)
    try
        return batch_over(schema, nodes, CPU, release)
    finally
        close(schema)
    end
end

function lay_column!(nodes, name, @nospecialize(column))
    first = length(nodes) + 1
    try
        field = lay!(nodes, name, name, column)
        # Checked here, because a later failure could not say which column a buffer belongs to.
        for k in first:length(nodes), buffer in nodes[k].buffers
            buffer_address(buffer)
        end
        return field
    catch e
        rethrow(of_column(e, name))
    end
end

function share_column(name, @nospecialize(column))
    try
        return share(column)::Batch
    catch e
        rethrow(of_column(e, name))
    end
end

# Adds the name of the column to an error about it.
of_column(@nospecialize(e), name) = e isa DevExchangeError && !startswith(e.message, "column ") ?
    DevExchangeError(e.status, e.driver_code, "column $(repr(name)): $(e.message)") : e

# Joins columns of batches, as they are, with the columns of a batch of the vectors.
function joined(named, @nospecialize(release), @nospecialize(metadata), @nospecialize(stream))
    pairs, vectors = texts(metadata), filter(!is_of_batch, named)
    release === nothing || check_callable(release, "release")
    release === nothing || !isempty(vectors) || throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
        "release is $(repr(release)): all columns are of batches, which have their own"))
    own, at_last = Batch[], Ref{Any}(nothing)
    try
        # Not called if a later step fails.
        later = release === nothing ? nothing : () -> at_last[] === nothing || at_last[]()
        isempty(vectors) || push!(own, laid_out(vectors, later, ()))
        k = 0
        parts = Pair{String,Batch}[]
        for (name, column) in named
            column isa Batch || push!(own, share_column(name, column isa Column ? column : own[1][k+=1]))
            push!(parts, name => (column isa Batch ? column : last(own)))
        end
        whole = with_metadata(join_columns(parts, stream), pairs)
        at_last[] = release
        return whole
    finally
        foreach(close, own)
    end
end

# Makes a batch whose columns are batches.
function join_columns(columns, stream)
    names = [ctext(name, "name") for (name, _) in columns]
    # New references, which nobody else closes meanwhile.
    shared = Batch[]
    try
        foreach(((name, batch),) -> push!(shared, share_column(name, batch)), columns)
        addresses = Ptr{Cvoid}[Base.unsafe_convert(Ptr{Cvoid}, batch.handle) for batch in shared]
        handle = made(Handle{TAG_BATCH}) do out
            GC.@preserve names on_stream(stream) do value
                @checked devx_batch_of_columns(pointer.(names)::Ptr{Ptr{UInt8}}, addresses::Ptr{Ptr{Cvoid}},
                    length(addresses)::Csize_t, value::Int64, out::Ptr{Ptr{Cvoid}})
            end
        end
        return adopt_batch(handle; ready=all(batch -> batch.readable, shared))
    finally
        foreach(close, shared)
    end
end

# The same batch, under a schema with metadata.
function with_metadata(b::Batch, pairs)
    isempty(pairs) && return b
    old, array = schema(b), Ref(ArrowDeviceArray())
    try
        new = Schema(fields(old); metadata=pairs)
        try
            export_move(b, array)
            labelled = import_arrow_device(array, new)
            return Batch(labelled.handle, labelled.rows, labelled.columns, labelled.device, b.readable)
        finally
            close(new)
        end
    finally
        foreach(close, (old, b))
        arrow_release(array)
    end
end
