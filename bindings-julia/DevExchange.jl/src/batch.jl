# A record batch, or any other Arrow array, with its schema: over buffers, through Arrow in and out, and as a table.

"""
    Batch

An Arrow array with its schema, normally a record batch: columns of the same length, each with a name. Nothing is copied
when a batch is imported, looked at or exported.

- `batch[:name]`, `batch["name"]` and `batch[k]` are its [`Column`](@ref)s.
- `keys(batch)` are their names, `pairs(batch)` names and columns.
- `length(batch)` is the number of columns, `size(batch)` the number of rows and of columns.
- `schema(batch)` is its [`Schema`](@ref).
- `root(batch)` is the whole array as one column, whose elements are the rows.

`NamedTuple(batch)` is a named tuple of the columns, which packages for tables such as DataFrames accept; keep the batch
open as long as they use the columns. Two such tuples compare as the columns do (`==`, `isequal`). A batch itself is
only equal to itself, and it does not iterate, because some packages would take its elements for rows.
`Batch(name => batch[name] for name in (:a, :b))` is a batch of some of the columns, without a copy.

Get one with [`import_arrow`](@ref), from Julia columns, or from a tensor with `Batch(tensor)`; hand it on with
[`export_share`](@ref) and [`export_move`](@ref).

**Ownership, threads.** As for [`Tensor`](@ref): one reference, given up once by `close`, by [`export_move`](@ref) or,
if forgotten, by the finalizer. The columns of a batch keep it from being finalized, but not from being closed: then
they throw `DEVX_CLOSED`, too.

**Device memory.** As for [`Tensor`](@ref): columns of a batch on a device have a name, a length and buffers, but their
elements can be read only after [`copy_to`](@ref), in pinned and managed memory also after [`synchronize`](@ref). Nulls
can be counted on the device ([`null_count`](@ref)).
"""
struct Batch
    handle::Handle{TAG_BATCH}
    rows::Int
    columns::Int
    device::DLDevice
    # As in `Tensor`.
    readable::Bool
end

# Takes over a reference of the C API.
adopt_batch(address::Ptr{Cvoid}; ready::Bool=false) = adopt_batch(Handle{TAG_BATCH}(address); ready=ready)
function adopt_batch(handle::Handle{TAG_BATCH}; ready::Bool=false)
    info = Ref{DevxBatchInfo}()
    @checked devx_batch_get_info(handle::Handle, info::Ptr{DevxBatchInfo})
    i = info[]
    device = DLDevice(i.device_type, i.device_id)
    return Batch(handle, i.length, i.n_columns, device, is_host(device) && (ready || device.device_type == kDLCPU))
end

"""
    Batch(schema::Schema, nodes::AbstractVector{Node}; device=DevExchange.CPU, release=nothing)

Makes a batch over buffers that are described by hand. There is one [`Node`](@ref) for each field of the schema, depth
first: a node, its children each with all nodes below it, the values of its dictionary. The schema is shared. For a
device other than the CPU, buffers are given as `Ptr`s, and are taken to be filled by work that is queued on the legacy
default stream (see [`produced_on`](@ref)). Arrays among the buffers are kept alive as long as the memory is used; then
`release()` is called once, on a task of this module. If this constructor throws, `release` is not called.

Throws `DEVX_INVALID_LENGTH`, `DEVX_INVALID_NULL_COUNT`, `DEVX_INVALID_BUFFERS` (also for an array that is too short for
its node), `DEVX_MISMATCH`, `DEVX_DEVICE`, `DEVX_INVALID_ARGUMENT` for a `release` that cannot be called, with the field
and its value. Not checked are how many bytes a `Ptr` leads to, and how many bytes the offsets in a buffer require.
"""
function Batch(schema::Schema, nodes::AbstractVector{Node}; device::DLDevice=CPU, release=nothing)
    nodes = collect(Node, nodes)
    return batch_over(schema, nodes, device, release, Int64[buffer_size(b) for node in nodes for b in node.buffers])
end

# `sizes` are the bytes of all buffers, if the sizes are to be checked.
function batch_over(schema::Schema, nodes::Vector{Node}, device::DLDevice, @nospecialize(release), sizes=C_NULL)
    tables, records, held_on = Vector{Ptr{Cvoid}}[], DevxNode[], Any[]
    handle = GC.@preserve nodes tables begin
        for node in nodes
            table = Ptr{Cvoid}[]
            for buffer in node.buffers
                push!(table, buffer_address(buffer))
            end
            push!(tables, table)
            push!(records, DevxNode(node.length, node.null_count, node.offset, pointer(table), length(table)))
        end
        # Only after all buffers were accepted.
        for node in nodes, buffer in node.buffers, reference in references(buffer)
            push!(held_on, reference)
        end
        made(Handle{TAG_BATCH}) do out
            owned(nodes, held_on, release) do owner
                @checked devx_batch_create_sized(
                    schema.handle::Handle, device::DLDevice, records::Ptr{DevxNode}, length(records)::Csize_t,
                    sizes::Ptr{Int64}, owner::Ptr{DevxOwner}, out::Ptr{Ptr{Cvoid}})
            end
        end
    end
    return adopt_batch(handle)
end

# ---- Arrow in and out ----

"""
    import_arrow(array, schema) -> Batch

Imports an Arrow array in host memory from its producer. `array` is a `Ref` or `Ptr` of [`ArrowArray`](@ref); `schema`
is one of [`ArrowSchema`](@ref), which is imported, too, or a [`Schema`](@ref), which is shared. A `Ptr{Cvoid}` is
accepted for either: `Ptr{Cvoid}(n)` of an address that Java or Python gives as a number `n`. No buffer is read or
copied.

On success each imported struct is moved from (its `release` is NULL) and released once, when the last user is gone. On
failure both structs are untouched, and the caller still has to release them.

Throws `DEVX_NULL_ARGUMENT`, `DEVX_RELEASED`, `DEVX_INVALID_FORMAT`, `DEVX_INVALID_LENGTH`, `DEVX_INVALID_NULL_COUNT`,
`DEVX_INVALID_BUFFERS`, `DEVX_INVALID_CHILDREN`, `DEVX_INVALID_METADATA`, `DEVX_MISMATCH`, `DEVX_TOO_DEEP`,
`DEVX_UNSUPPORTED` with the field and its value.
"""
function import_arrow(array::Ref{ArrowArray}, schema::Schema)
    handle = made(Handle{TAG_BATCH}) do out
        @checked devx_batch_import(array::Ptr{ArrowArray}, schema.handle::Handle, out::Ptr{Ptr{Cvoid}})
    end
    return adopt_batch(handle)
end
function import_arrow(array::Ref{ArrowArray}, schema::Ref{ArrowSchema})
    handle = made(Handle{TAG_BATCH}) do out
        @checked devx_batch_import_pair(array::Ptr{ArrowArray}, schema::Ptr{ArrowSchema}, out::Ptr{Ptr{Cvoid}})
    end
    return adopt_batch(handle)
end

"""
    import_arrow_device(array, schema) -> Batch

Like [`import_arrow`](@ref), but for an [`ArrowDeviceArray`](@ref), which says where the data is and when it may be
touched. Non-zero `reserved` bytes are ignored. Nothing waits during the call: a stream is made to wait for `sync_event`
when the data is used ([`wait_on`](@ref), [`copy_to`](@ref)) or exported, and the event is handed on. Also throws
`DEVX_DEVICE` for a device that the library has no runtime for, for an impossible id, and for an event on the CPU.
"""
function import_arrow_device(array::Ref{ArrowDeviceArray}, schema::Schema)
    ready = without_event(array)
    handle = made(Handle{TAG_BATCH}) do out
        @checked devx_batch_import_device(array::Ptr{ArrowDeviceArray}, schema.handle::Handle, out::Ptr{Ptr{Cvoid}})
    end
    return adopt_batch(handle; ready=ready)
end
function import_arrow_device(array::Ref{ArrowDeviceArray}, schema::Ref{ArrowSchema})
    ready = without_event(array)
    handle = made(Handle{TAG_BATCH}) do out
        @checked devx_batch_import_pair_device(
            array::Ptr{ArrowDeviceArray}, schema::Ptr{ArrowSchema}, out::Ptr{Ptr{Cvoid}})
    end
    return adopt_batch(handle; ready=ready)
end

# Addresses, in the form that other runtimes have them.
for (take, A) in ((:import_arrow, ArrowArray), (:import_arrow_device, ArrowDeviceArray))
    @eval $take(array::Ptr{Cvoid}, schema) = $take(Ptr{$A}(array), schema)
    @eval $take(array::Ref{$A}, schema::Ptr{Cvoid}) = $take(array, Ptr{ArrowSchema}(schema))
end

# Whether a producer says that its data may be touched now.
function without_event(array::Ref{ArrowDeviceArray})
    GC.@preserve array begin
        p = Base.unsafe_convert(Ptr{ArrowDeviceArray}, array)
        return p != C_NULL && unsafe_load(Ptr{Ptr{Cvoid}}(field_address(p, :sync_event))) == C_NULL
    end
end

"""
    copy(b::Batch) -> Batch

Returns a copy of a whole batch in one block of host memory of the library. For a copy from or to a device, use
[`copy_to`](@ref). Of a slice, the copy has the rows, with their texts and elements of lists; what views, list views,
dense unions, run-end encoded columns and indices of dictionaries refer to is copied whole. It has no offsets, except in
run-end encoded columns. Throws `DEVX_DEVICE`, `DEVX_NOT_READY`, `DEVX_INVALID_BUFFERS`, `DEVX_CLOSED`.
"""
function Base.copy(b::Batch)
    return adopt_batch(made(Handle{TAG_BATCH}) do out
        @checked devx_batch_copy(b.handle::Handle, out::Ptr{Ptr{Cvoid}})
    end)
end

"""
    copy_to(b::Batch, device::DLDevice, stream) -> Batch

Returns a copy of a whole batch on another device (or the same): one allocation, and one copy for each buffer, queued on
a stream of either device. For texts and binary in device memory, offsets (or the sizes that belong to views) are read
first, and the host waits for them. Otherwise as for tensors; within host memory `copy` needs no stream. Also throws
`DEVX_INVALID_BUFFERS`.

A copy in host memory that is not pinned has of a slice what `copy` has. Any other copy also has the texts and elements
of lists in front of those of the slice (in device memory, all elements of the lists), and up to seven rows in front of a
slice that has bits, with an offset.
"""
function copy_to(b::Batch, device::DLDevice, stream::AnyStream)
    return adopt_batch(made(Handle{TAG_BATCH}) do out
        in_order(b.handle, stream) do batch, stream
            @checked devx_batch_copy_to(batch::Ptr{Cvoid}, device::DLDevice, stream::Int64, out::Ptr{Ptr{Cvoid}})
        end
    end)
end

function check_pointers(b::Batch)
    @checked devx_batch_check_pointers(b.handle::Handle)
    return nothing
end

"""
    export_share(b::Batch, array)
    export_share(b::Batch, array, schema)

Exports a batch to a consumer; you keep the batch. `array` is a `Ref` or `Ptr` of [`ArrowArray`](@ref), or of
[`ArrowDeviceArray`](@ref), which also has the device and an event that says when the data may be touched. `schema`, if
given, is one of [`ArrowSchema`](@ref). The consumer owns the written structs, and releases each once, from any thread
([`arrow_release`](@ref)). What they held before is overwritten, not released. On failure neither is written.

Throws `DEVX_DEVICE` for an `ArrowArray` if the batch is not on the CPU, `DEVX_NULL_ARGUMENT`, `DEVX_CLOSED` after
`close`.
"""
function export_share(b::Batch, array::Ref{ArrowArray})
    @checked devx_batch_export_share(b.handle::Handle, array::Ptr{ArrowArray})
    return nothing
end

function export_share(b::Batch, array::Ref{ArrowDeviceArray})
    @checked devx_batch_export_share_device(b.handle::Handle, array::Ptr{ArrowDeviceArray})
    return nothing
end

"""
    export_move(b::Batch, array)
    export_move(b::Batch, array, schema)

Like [`export_share`](@ref), but gives the batch up: it is closed when this returns. If this throws, the batch is as
before.
"""
function export_move(b::Batch, array::Ref{ArrowArray})
    moved(b.handle) do slot
        @checked devx_batch_export_move(slot::Ptr{Ptr{Cvoid}}, array::Ptr{ArrowArray})
    end
    return nothing
end

function export_move(b::Batch, array::Ref{ArrowDeviceArray})
    moved(b.handle) do slot
        @checked devx_batch_export_move_device(slot::Ptr{Ptr{Cvoid}}, array::Ptr{ArrowDeviceArray})
    end
    return nothing
end

const AnyArray = Union{ArrowArray,ArrowDeviceArray}
export_share(b::Batch, array::Ref{<:AnyArray}, schema::Ref{ArrowSchema}) = export_both(export_share, b, array, schema)
export_move(b::Batch, array::Ref{<:AnyArray}, schema::Ref{ArrowSchema}) = export_both(export_move, b, array, schema)

function export_both(export_array, b::Batch, array, target::Ref{ArrowSchema})
    GC.@preserve target begin
        place = Base.unsafe_convert(Ptr{ArrowSchema}, target)
        place == C_NULL && throw(DevExchangeError(DEVX_NULL_ARGUMENT, "schema is NULL"))
        own, written = schema(b), Ref(ArrowSchema())
        try
            # Written to a private place first: if the array fails, the target is not written.
            @checked devx_schema_export(own.handle::Handle, written::Ptr{ArrowSchema})
            export_array(b, array)
            # At once: an interrupt that comes later must not find the array without its schema.
            unsafe_store!(place, written[])
        catch
            arrow_release(written)
            rethrow()
        finally
            close(own)
        end
    end
    return nothing
end

"""
    schema(b::Batch) -> Schema

Returns the schema of a batch: a new reference, to be closed like any other.
"""
schema(b::Batch) = Schema(made(Handle{TAG_SCHEMA}) do out
    @checked devx_batch_schema(b.handle::Handle, out::Ptr{Ptr{Cvoid}})
end)

"""
    slice(b::Batch, rows) -> Batch
    slice(c::Column, rows) -> Column
    slice(t::Tensor{T,N}, indices...) -> Tensor{T,N}

Returns some rows, given as a range such as `2:4`, without a copy. The slice of a batch is a batch of its own that
shares the memory, to be closed like any other. When the slice of a record batch is exported, the batch has no offset,
as many consumers require: its columns have one. Only if rows of the record batch itself may be null, the batch has it.

For a tensor there is a range or `:` for each dimension, and the slice is a tensor of its own. On a GPU, the slice of a
batch or tensor is in the order of the whole, and work that is noted for the slice is noted for the whole; a
`Tensor(view(t, ...))` does not do that.

Throws `BoundsError`, `DEVX_CLOSED`, `DEVX_IMPOSSIBLE` for elements that begin within a byte.
"""
function slice(b::Batch, rows::AbstractUnitRange{<:Integer})
    checkbounds(Bool, Base.OneTo(b.rows), rows) || throw(BoundsError(b, (rows, :)))
    handle = made(Handle{TAG_BATCH}) do out
        @checked devx_batch_slice(
            b.handle::Handle, rows_before(rows)::Int64, length(rows)::Int64, out::Ptr{Ptr{Cvoid}})
    end
    return adopt_batch(handle; ready=b.readable)
end

# An empty range can begin anywhere.
rows_before(rows) = isempty(rows) ? 0 : first(rows) - 1

share(b::Batch) = Batch(share_handle(b.handle), b.rows, b.columns, b.device, b.readable)

Base.isopen(b::Batch) = isopen(b.handle)
Base.close(b::Batch) = close(b.handle)
device(b::Batch) = b.device

require_readable(b::Batch) = b.readable || throw(not_readable(b.device))

# ---- as a table ----

Base.size(b::Batch) = (b.rows, b.columns)
Base.size(b::Batch, dimension::Integer) = dimension <= 2 ? size(b)[dimension] : 1
# A collection of columns, by number and by name, like a named tuple of them.
Base.length(b::Batch) = b.columns
Base.isempty(b::Batch) = b.columns == 0
Base.firstindex(::Batch) = 1
Base.lastindex(b::Batch) = b.columns
Base.keys(b::Batch) = GC.@preserve b [Symbol(unsafe_string(record.name)) for record in column_records(b)]
Base.haskey(b::Batch, k) = found_record(b, k) !== nothing
Base.get(b::Batch, k, default) = get(() -> default, b, k)
function Base.get(default::Base.Callable, b::Batch, k)
    record = found_record(b, k)
    return record === nothing ? default() : Column(b, record)
end

"""
    columns(b::Batch) -> Vector{Column}

All columns of a batch; `values(b)` is the same.
"""
columns(b::Batch) = Column[Column(b, record) for record in column_records(b)]
Base.values(b::Batch) = columns(b)

# Like any named tuple, it throws if names repeat.
Base.NamedTuple(b::Batch) = NamedTuple{Tuple(keys(b))}(Tuple(columns(b)))

Base.getindex(b::Batch, k::Union{Integer,Symbol,AbstractString}) = Column(b, column_record(b, k))

root(b::Batch) = Column(b, root_record(b))

function root_record(b::Batch)
    record = Ref{DevxColumn}()
    @checked devx_batch_root(b.handle::Handle, record::Ptr{DevxColumn})
    return record[]
end

# Columns count from 1 in Julia. Inlined, so that only the necessary fields of the record are read.
@inline function column_record(b::Batch, k::Integer)
    require_open(b.handle)
    1 <= k <= b.columns || throw(no_column(b, k))
    record = Ref{DevxColumn}()
    @checked devx_batch_column(b.handle::Handle, (k - 1)::Int64, record::Ptr{DevxColumn})
    return record[]
end

function column_records(b::Batch)
    records = Vector{DevxColumn}(undef, b.columns)
    @checked devx_batch_columns(b.handle::Handle, 0::Int64, b.columns::Csize_t, records::Ptr{DevxColumn})
    return records
end

@noinline no_column(b::Batch, k) =
    DevExchangeError(DEVX_OUT_OF_RANGE, "column is $k: the batch has $(b.columns), counted from 1")

column_record(b::Batch, name::Symbol) = column_record(b, String(name))
function column_record(b::Batch, name::AbstractString)
    record = Ref{DevxColumn}()
    text = ctext(name, "name")
    @checked devx_batch_column_named(b.handle::Handle, text::Cstring, record::Ptr{DevxColumn})
    return record[]
end

# The record of a column, or `nothing` if the batch has none of this number or name.
found_record(b::Batch, k) = nothing
found_record(b::Batch, k::Integer) = 1 <= k <= b.columns ? column_record(b, k) : nothing
function found_record(b::Batch, name::Union{Symbol,AbstractString})
    try
        return column_record(b, name)
    catch e
        # No column has a name that is no text.
        e isa DevExchangeError && e.status in (DEVX_OUT_OF_RANGE, DEVX_INVALID_TEXT) || rethrow()
        return nothing
    end
end

# How many rows of a batch are shown.
const ROWS_SHOWN = 10
const COLUMNS_SHOWN = 20

function Base.show(io::IO, ::MIME"text/plain", b::Batch)
    show(io, b)
    isopen(b) && b.readable || return nothing
    rows = root_record(b)
    shown = min(rows.length, ROWS_SHOWN)
    for i in 1:shown
        line = try
            text(b, rows, i)
        catch e
            e isa DevExchangeError || rethrow()
            "<$(e.message)>"
        end
        limit = get(io, :limit, false) ? displaysize(io)[2] - 2 : typemax(Int)
        print(io, "\n ", length(line) <= limit ? line : string(first(line, limit - 1), '…'))
    end
    shown < rows.length && print(io, "\n … and ", rows.length - shown, " more")
    return nothing
end

function Base.show(io::IO, b::Batch)
    isopen(b) || return print(io, "Batch (closed)")
    print(io, "Batch of ", b.rows, " rows", b.readable ? "" : " on $(device_name(b.device))")
    for k in 1:min(b.columns, COLUMNS_SHOWN)
        record = column_record(b, k)
        print(io, k == 1 ? ": " : ", ", unsafe_string(record.name), " (", type_name(b, record), ")")
    end
    b.columns > COLUMNS_SHOWN && print(io, ", … and ", b.columns - COLUMNS_SHOWN, " more")
    return nothing
end
