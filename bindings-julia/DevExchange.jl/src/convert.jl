# Tensors as columns and columns as tensors: first the plan, then the conversion.

"""
    Plan

The answer to "can this be seen as that?", from functions such as [`plan_tensor`](@ref) or [`plan_column`](@ref), before
anything is taken: `kind` is `:view`, `:copy` or `:impossible`, `copy_bytes` is what a copy would write, `reason` is why
a view is not possible.
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

# Returns the plan that a call writes for the object of a handle.
function planned(ask, handle)
    record = Ref{DevxPlan}()
    held(address -> ask(address, record), handle)
    return Plan(record)
end

"""
    plan_tensor(c::Column) -> Plan

Says how a column can become a [`Tensor`](@ref): as a view (numbers without nulls, also in fixed-size lists), with a
copy (bools, which are bits in Arrow and bytes in DLPack, and values that are not aligned to their size), or not at all,
and why. Throws `DEVX_CLOSED`, `DEVX_DEVICE` or `DEVX_NOT_READY` if nulls would have to be counted and the host cannot read
the data.
"""
plan_tensor(c::Column) = planned(c.batch.handle) do address, record
    @checked devx_column_plan_tensor(address::Ptr{Cvoid}, Ref(c.record)::Ptr{DevxColumn}, record::Ptr{DevxPlan})
end
plan_tensor(c::IndexColumn) = alone(plan_tensor, c)

"""
    Tensor(c::Column; copy=:never) -> Tensor

Makes a tensor of a column: one dimension, and one more for each level of fixed-size lists; row-major, like Arrow's
memory. A view is read-only and keeps the batch's memory, even after the batch was closed. `copy` is `:never`,
`:if_needed` or `:always`; see [`plan_tensor`](@ref).

Throws `DEVX_COPY_REQUIRED` or `DEVX_IMPOSSIBLE` with the reason, `DEVX_DEVICE` or `DEVX_NOT_READY` if data would have to be
read and the host cannot read it, `DEVX_CLOSED`.
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

Says how a tensor can become a [`Column`](@ref): as a view (compact row-major numbers), with a copy (other strides, such
as those of a Julia matrix; bools), or not at all, and why. Throws `DEVX_CLOSED`.
"""
plan_column(t::Tensor) = planned(t.handle) do address, record
    @checked devx_tensor_plan_column(address::Ptr{Cvoid}, record::Ptr{DevxPlan})
end

"""
    Batch(t::Tensor; name="", copy=:never) -> Batch

Makes an Arrow array of a tensor: its first dimension becomes the rows, the others become fixed-size lists. The result
is not a record batch but the column itself: see [`root`](@ref). A view keeps the tensor's memory, even after the tensor
was closed. `copy` is `:never`, `:if_needed` or `:always`; see [`plan_column`](@ref).

Throws `DEVX_COPY_REQUIRED` or `DEVX_IMPOSSIBLE` with the reason, `DEVX_INVALID_TEXT`; for a copy `DEVX_DEVICE` or
`DEVX_NOT_READY` if the host cannot read the data; `DEVX_CLOSED`.
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

Says how a tensor can become a column of tensors ([`fixed_shape_column`](@ref)). Throws `DEVX_CLOSED`.
"""
plan_fixed_shape_column(t::Tensor) = planned(t.handle) do address, record
    @checked devx_tensor_plan_fixed_shape_column(address::Ptr{Cvoid}, record::Ptr{DevxPlan})
end

"""
    fixed_shape_column(t::Tensor; name="", copy=:never) -> Batch

Makes an Arrow array of the extension type `arrow.fixed_shape_tensor`: the first dimension of the tensor becomes the
rows, and each row is a tensor of the other dimensions, whatever their order in memory. `Tensor(column)` turns a column
of that type into a tensor of the same shape again. Otherwise like [`Batch(::Tensor)`](@ref).

Throws `DEVX_COPY_REQUIRED` or `DEVX_IMPOSSIBLE` with the reason, `DEVX_INVALID_TEXT`; for a copy `DEVX_DEVICE` or
`DEVX_NOT_READY` if the host cannot read the data; `DEVX_CLOSED`.
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

Says how a record batch whose columns have one number type can become a matrix ([`matrix`](@ref)). Throws `DEVX_CLOSED`,
`DEVX_DEVICE` or `DEVX_NOT_READY` if nulls would have to be counted and the host cannot read the data.
"""
plan_matrix(b::Batch) = planned(b.handle) do address, record
    @checked devx_batch_plan_matrix(address::Ptr{Cvoid}, record::Ptr{DevxPlan})
end

"""
    matrix(b::Batch; copy=:never, stream=nothing) -> Tensor

Makes a matrix of a record batch, with a row for each row and a column for each column: column-major, like Julia's. A
view is read-only and keeps the memory; it needs columns that follow each other in memory at equal distances, with
nothing between them, or in one block, as in a batch that was copied as a whole or made of a matrix. A copy of memory that
the host cannot read is queued on `stream`.

Throws `DEVX_COPY_REQUIRED` or `DEVX_IMPOSSIBLE` with the reason, `DEVX_NOT_READY` if a stream is needed and none is
given, `DEVX_INVALID_STREAM`, `DEVX_DEVICE`, `DEVX_DRIVER`, `DEVX_CLOSED`.
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

Says how a matrix can become a record batch ([`record_batch`](@ref)). Throws `DEVX_CLOSED`.
"""
plan_batch(t::Tensor) = planned(t.handle) do address, record
    @checked devx_tensor_plan_batch(address::Ptr{Cvoid}, record::Ptr{DevxPlan})
end

"""
    record_batch(t::Tensor; names=(), copy=:never) -> Batch

Makes a record batch of a matrix, with a column for each column, named by `names`, or by default "0", "1" and so on. A
view keeps the tensor's memory; a Julia matrix gives a view, because each of its columns is contiguous.

Throws `DEVX_COPY_REQUIRED` or `DEVX_IMPOSSIBLE` with the reason, `DEVX_MISMATCH` if the number of names is not that of
the columns, `DEVX_INVALID_TEXT`, `DEVX_INVALID_ARGUMENT` for an invalid name; for a copy `DEVX_DEVICE` or `DEVX_NOT_READY` if
the host cannot read the data; `DEVX_CLOSED`.
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
