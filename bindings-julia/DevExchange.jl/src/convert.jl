# Tensors as columns, columns as tensors: the plan first, then the thing.

"""
    Plan

The answer to "can this be seen as that?", asked with [`plan_tensor`](@ref) or [`plan_column`](@ref) before anything is
taken: `kind` is `:view`, `:copy` or `:impossible`, `copy_bytes` what a copy would write, `reason` why it is no view.
"""
struct Plan
    kind::Symbol
    copy_bytes::Int
    reason::String
end

function Plan(record::Ref{DevxPlan})
    GC.@preserve record begin
        p = Base.unsafe_convert(Ptr{DevxPlan}, record)
        kind = unsafe_load(Ptr{Int32}(field_address(p, :kind)))
        bytes = unsafe_load(Ptr{Int64}(field_address(p, :copy_bytes)))
        reason = unsafe_string(field_address(p, :reason))
    end
    kind == DEVX_PLAN_VIEW && return Plan(:view, bytes, reason)
    kind == DEVX_PLAN_COPY && return Plan(:copy, bytes, reason)
    kind == DEVX_PLAN_IMPOSSIBLE && return Plan(:impossible, bytes, reason)
    throw(DevExchangeError(DEVX_UNSUPPORTED, "plan.kind is $kind: a newer library's"))
end

function Base.show(io::IO, p::Plan)
    print(io, p.kind)
    p.kind === :copy && print(io, " of ", p.copy_bytes, " bytes")
    isempty(p.reason) || print(io, ": ", p.reason)
end

# The plan that a call writes for what a handle stands for.
function planned(ask, handle)
    record = Ref{DevxPlan}()
    held(address -> ask(address, record), handle)
    return Plan(record)
end

"""
    plan_tensor(c::Column) -> Plan

How a column can be had as a [`Tensor`](@ref): as a view (numbers without nulls, also in fixed-size lists), with a copy
(bools, which are bits in Arrow and bytes in DLPack, and values that are not aligned to their size), or not at all, and
why. Throws `DEVX_CLOSED`.
"""
plan_tensor(c::Column) = planned(c.batch.handle) do address, record
    @checked devx_column_plan_tensor(address::Ptr{Cvoid}, Ref(c.record)::Ptr{DevxColumn}, record::Ptr{DevxPlan})
end
plan_tensor(c::IndexColumn) = alone(plan_tensor, c)

"""
    Tensor(c::Column; copy=:never) -> Tensor

A column as a tensor: one dimension, and one more for each level of fixed-size lists; row-major, as Arrow's memory is.
A view is read-only and keeps the batch's memory, also after the batch was closed. `copy` is `:never`, `:if_needed` or
`:always`; see [`plan_tensor`](@ref).

Throws `DEVX_COPY_REQUIRED` or `DEVX_IMPOSSIBLE` with the reason, `DEVX_CLOSED`.
"""
function Tensor(c::Column; copy=:never)
    code = copy_code(copy)
    handle = made(Handle{TAG_TENSOR}) do out
        @checked devx_column_to_tensor(
            c.batch.handle::Handle, Ref(c.record)::Ptr{DevxColumn}, code::Int32, out::Ptr{Ptr{Cvoid}})
    end
    return adopt_tensor(handle; ready=c.batch.readable)
end
Tensor(c::IndexColumn; copy=:never) = alone(c -> Tensor(c; copy=copy), c)

"""
    plan_column(t::Tensor) -> Plan

How a tensor can be had as a [`Column`](@ref): as a view (compact row-major numbers), with a copy (other strides, such
as those of a Julia matrix; bools), or not at all, and why. Throws `DEVX_CLOSED`.
"""
plan_column(t::Tensor) = planned(t.handle) do address, record
    @checked devx_tensor_plan_column(address::Ptr{Cvoid}, record::Ptr{DevxPlan})
end

"""
    Batch(t::Tensor; name="", copy=:never) -> Batch

A tensor as an Arrow array: its first dimension are the rows, the others fixed-size lists. The result is not a record
batch but the column itself: see [`root`](@ref). A view keeps the tensor's memory, also after the tensor was closed.
`copy` is `:never`, `:if_needed` or `:always`; see [`plan_column`](@ref).

Throws `DEVX_COPY_REQUIRED` or `DEVX_IMPOSSIBLE` with the reason, `DEVX_INVALID_TEXT`, `DEVX_CLOSED`.
"""
function Batch(t::Tensor; name::AbstractString="", copy=:never)
    code = copy_code(copy)
    text = ctext(name, "name")
    handle = made(Handle{TAG_BATCH}) do out
        @checked devx_tensor_to_column(t.handle::Handle, text::Cstring, code::Int32, out::Ptr{Ptr{Cvoid}})
    end
    return adopt_batch(handle; ready=t.readable)
end

"""
    plan_fixed_shape_column(t::Tensor) -> Plan

How a tensor can be had as a column of tensors ([`fixed_shape_column`](@ref)). Throws `DEVX_CLOSED`.
"""
plan_fixed_shape_column(t::Tensor) = planned(t.handle) do address, record
    @checked devx_tensor_plan_fixed_shape_column(address::Ptr{Cvoid}, record::Ptr{DevxPlan})
end

"""
    fixed_shape_column(t::Tensor; name="", copy=:never) -> Batch

A tensor as an Arrow array of the extension type `arrow.fixed_shape_tensor`: its first dimension are the rows, each of
which is a tensor of the others, in whatever order they lie. With `Tensor(column)`, a column of that type becomes a
tensor of the same shape again. Otherwise as [`Batch(::Tensor)`](@ref).

Throws `DEVX_COPY_REQUIRED` or `DEVX_IMPOSSIBLE` with the reason, `DEVX_INVALID_TEXT`, `DEVX_CLOSED`.
"""
function fixed_shape_column(t::Tensor; name::AbstractString="", copy=:never)
    code = copy_code(copy)
    text = ctext(name, "name")
    handle = made(Handle{TAG_BATCH}) do out
        @checked devx_tensor_to_fixed_shape_column(t.handle::Handle, text::Cstring, code::Int32, out::Ptr{Ptr{Cvoid}})
    end
    return adopt_batch(handle; ready=t.readable)
end

"""
    plan_matrix(b::Batch) -> Plan

How a record batch whose columns are of one number type can be had as a matrix ([`matrix`](@ref)). Throws `DEVX_CLOSED`,
`DEVX_DEVICE` if nulls would have to be counted there.
"""
plan_matrix(b::Batch) = planned(b.handle) do address, record
    @checked devx_batch_plan_matrix(address::Ptr{Cvoid}, record::Ptr{DevxPlan})
end

"""
    matrix(b::Batch; copy=:never, stream=nothing) -> Tensor

A record batch as a matrix with a row for each row and a column for each column: column-major, as Julia's are. A view is
read-only and keeps the memory; it needs columns that follow each other in memory at equal distances. A copy of memory
that the host cannot read is queued on `stream`.

Throws `DEVX_COPY_REQUIRED` or `DEVX_IMPOSSIBLE` with the reason, `DEVX_NOT_READY` without a stream that is needed,
`DEVX_INVALID_STREAM`, `DEVX_DEVICE`, `DEVX_DRIVER`, `DEVX_CLOSED`.
"""
function matrix(b::Batch; copy=:never, stream=nothing)
    code = copy_code(copy)
    handle = made(Handle{TAG_TENSOR}) do out
        on_stream(stream) do stream
            @checked devx_batch_to_matrix(b.handle::Handle, code::Int32, stream::Int64, out::Ptr{Ptr{Cvoid}})
        end
    end
    return adopt_tensor(handle; ready=b.readable)
end

"""
    plan_batch(t::Tensor) -> Plan

How a matrix can be had as a record batch ([`record_batch`](@ref)). Throws `DEVX_CLOSED`.
"""
plan_batch(t::Tensor) = planned(t.handle) do address, record
    @checked devx_tensor_plan_batch(address::Ptr{Cvoid}, record::Ptr{DevxPlan})
end

"""
    record_batch(t::Tensor; names=(), copy=:never) -> Batch

A matrix as a record batch with a column for each column, named by `names`, or "0", "1" and so on without any. A view
keeps the tensor's memory; a Julia matrix is one, as its columns lie in one piece.

Throws `DEVX_COPY_REQUIRED` or `DEVX_IMPOSSIBLE` with the reason, `DEVX_MISMATCH` for another number of names,
`DEVX_INVALID_TEXT`, `DEVX_INVALID_ARGUMENT` for what is no name, `DEVX_CLOSED`.
"""
function record_batch(t::Tensor; names=(), copy=:never)
    code = copy_code(copy)
    texts = [Base.cconvert(Cstring, ctext(column_name(name), "name")) for name in names]
    handle = made(Handle{TAG_BATCH}) do out
        GC.@preserve texts begin
            pointers = Ptr{UInt8}[Ptr{UInt8}(Base.unsafe_convert(Cstring, text)) for text in texts]
            @checked devx_tensor_to_batch(
                t.handle::Handle, pointers::Ptr{Ptr{UInt8}}, length(pointers)::Csize_t, code::Int32, out::Ptr{Ptr{Cvoid}})
        end
    end
    return adopt_batch(handle; ready=t.readable)
end
