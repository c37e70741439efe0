# Streams of batches, in and out as Arrow streams.

"""
    BatchStream

A stream of batches: of one schema, on one kind of device, pulled one after the other. Get one with
[`import_arrow`](@ref) or [`import_arrow_device`](@ref), or make one of batches of your own; go through it with a loop
or with [`next!`](@ref), or hand it on with [`export_move`](@ref).

```julia
for batch in stream
    println(size(batch, 1))
    close(batch)
end
```

`schema(stream)` is what all batches are, `DevExchange.device_type(stream)` the kind of device that they lie on. The end
stays the end; an error is thrown, never taken for the end, and stays that error. Batches outlive their stream.

**Ownership, threads.** One reference, given up once by `close`, at any time, by [`export_move`](@ref) or, if need be,
by the finalizer. Any thread may use it, but one call at a time: a second one meanwhile throws `DEVX_BUSY`, and nothing
is lost.
"""
struct BatchStream
    handle::Handle{TAG_BATCH_STREAM}

    BatchStream(handle::Handle{TAG_BATCH_STREAM}) = new(handle)
end

const AnyStreamStruct = Union{ArrowArrayStream,ArrowDeviceArrayStream}

"""
    BatchStream(schema::Schema, source; device_type=DevExchange.kDLCPU, release=nothing, patience=60)
    BatchStream(source, schema::Schema; ...)

A stream of batches that Julia makes. `source` is a function without arguments that gives the next [`Batch`](@ref), or
`nothing` at the end; or it is anything that can be iterated, a `Channel` too. Each batch is *moved* into the stream: it
is closed afterwards. It has to be of this schema, on a device of this type. The schema is shared. What `source` throws
is the error of the stream, with its text (`DEVX_CALLBACK`, `DEVX_OUT_OF_MEMORY` for an `OutOfMemoryError`, or the
status of a [`DevExchangeError`](@ref)); after that, or after the end, it is not asked again. If it is interrupted
(Ctrl-C) on a thread of Julia's, the call that asked throws the `InterruptException`. Where it was thrown is logged if
`DEVEXCHANGE_TRACE` is set. `release()`, if given, is called once, on a task of this module, when the stream was
released; if this throws, it is not.

**Who runs the source.** On a thread of Julia's, a consumer that asks for a batch calls `source` right there. On any
other thread no Julia code may run: the consumer waits while a task of Julia's does it. So a Julia thread has to be free
to run tasks as long as foreign threads consume: the program yields now and then (`wait`, `fetch`, `sleep`, input and
output), and does not block its threads in foreign calls that wait for such a consumer. Make such a call with
`@threadcall`, which leaves Julia's threads free. A foreign thread's call that no task took up for `patience` seconds
(`Inf` for no limit) fails, and with it the stream (`DEVX_NOT_READY`). When Julia ends, whoever waits is told so
(`DEVX_CLOSED`).

Throws `DEVX_DEVICE` for a type of device that this library has no runtime for, `DEVX_INVALID_ARGUMENT` for a `source`
or `release` that is neither and for a negative `patience`, `DEVX_CLOSED`.
"""
function BatchStream(schema::Schema, @nospecialize(source); device_type::Integer=kDLCPU, release=nothing, patience::Real=60)
    next = source isa Function ? source : Pulled(source, nothing, false)
    if next === source
        check_callable(source, "source")
    elseif !Base.invokelatest(applicable, iterate, source)
        throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
            "source is $(repr(source)): it must be a function without arguments, or what can be iterated"))
    end
    make(number, limit, owner, record) = ccall(devx_julia_source[], DevxStatus,
        (UInt64, UInt64, Ptr{Cvoid}, Int64, Ptr{DevxOwner}, Ptr{DevxBatchSource}),
        number, TAG_REQUEST, serve_address(), limit, owner, record)
    return BatchStream(made(Handle{TAG_BATCH_STREAM}) do out
        asked_through(make, Ref(DevxBatchSource(C_NULL, C_NULL, C_NULL)), next, release, patience) do record
            @checked devx_batch_stream_create(
                schema.handle::Handle, device_type::Int32, record::Ptr{DevxBatchSource}, out::Ptr{Ptr{Cvoid}})
        end
    end)
end

BatchStream(@nospecialize(source), schema::Schema; keywords...) = BatchStream(schema, source; keywords...)
# Which is no source.
BatchStream(schema::Schema, source::Schema; keywords...) =
    invoke(BatchStream, Tuple{Schema,Any}, schema, source; keywords...)

# An iteration, as a function that gives the next value.
mutable struct Pulled
    values::Any
    state::Any
    begun::Bool
end

function (p::Pulled)()
    next = p.begun ? iterate(p.values, p.state) : iterate(p.values)
    next === nothing && return nothing
    p.begun, p.state = true, next[2]
    return next[1]
end

# The next batch of a source.
function reply(source, call::Ptr{Call})
    # The task may be older than the source.
    batch = Base.invokelatest(source)
    batch === nothing && return nothing
    batch isa Batch || throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
        "the source gave a $(typeof(batch)), not a Batch, or nothing at the end"))
    moved(slot -> give_batch(call, slot), batch.handle)
    return nothing
end

# From here on the answer has it, whatever comes.
function give_batch(call, slot)
    answer!(call, :batch, slot[])
    slot[] = C_NULL
    return nothing
end

# ---- Arrow in and out ----

"""
    import_arrow(stream) -> BatchStream

Takes an Arrow stream of host arrays from its producer and asks it for its schema. `stream` is a `Ref` or `Ptr` of
[`ArrowArrayStream`](@ref), or a `Ptr{Cvoid}`. On success it is moved from (its `release` is NULL) and released once,
when the result is; on failure it is untouched, and still the caller's to release.

Throws `DEVX_NULL_ARGUMENT` (for a missing callback, too), `DEVX_RELEASED`, `DEVX_CALLBACK` with the producer's text if
it failed, and what [`import_schema`](@ref) says of its schema.
"""
function import_arrow(stream::Ref{ArrowArrayStream})
    return BatchStream(made(Handle{TAG_BATCH_STREAM}) do out
        @checked devx_batch_stream_import(stream::Ptr{ArrowArrayStream}, out::Ptr{Ptr{Cvoid}})
    end)
end

"""
    import_arrow_device(stream) -> BatchStream

As [`import_arrow`](@ref), for an [`ArrowDeviceArrayStream`](@ref). Also throws `DEVX_DEVICE` for a type of device that
is not known or that this library has no runtime for.
"""
function import_arrow_device(stream::Ref{ArrowDeviceArrayStream})
    return BatchStream(made(Handle{TAG_BATCH_STREAM}) do out
        @checked devx_batch_stream_import_device(stream::Ptr{ArrowDeviceArrayStream}, out::Ptr{Ptr{Cvoid}})
    end)
end

import_arrow(stream::Ptr{Cvoid}) = import_arrow(Ptr{ArrowArrayStream}(stream))
import_arrow_device(stream::Ptr{Cvoid}) = import_arrow_device(Ptr{ArrowDeviceArrayStream}(stream))

"""
    export_move(s::BatchStream, target)

Hands a stream to a consumer, and closes it. `target` is a `Ref` or `Ptr` of [`ArrowArrayStream`](@ref) or, with the
type of the device, of [`ArrowDeviceArrayStream`](@ref). The consumer owns what is written, and releases it once, from
any thread, also in the middle ([`arrow_release`](@ref)). What `target` held before is overwritten, not released. If
this throws, the stream is as before.

Throws `DEVX_DEVICE` if batches on a device were to go into an `ArrowArrayStream`, `DEVX_BUSY` while another call runs on
the stream (within its `source`, too), `DEVX_NULL_ARGUMENT`, `DEVX_CLOSED`.
"""
function export_move(s::BatchStream, target::Ref{ArrowArrayStream})
    moved(s.handle) do slot
        @checked devx_batch_stream_export(slot::Ptr{Ptr{Cvoid}}, target::Ptr{ArrowArrayStream})
    end
    return nothing
end

function export_move(s::BatchStream, target::Ref{ArrowDeviceArrayStream})
    moved(s.handle) do slot
        @checked devx_batch_stream_export_device(slot::Ptr{Ptr{Cvoid}}, target::Ptr{ArrowDeviceArrayStream})
    end
    return nothing
end

"""
    arrow_release(stream)

Releases an [`ArrowArrayStream`](@ref) or [`ArrowDeviceArrayStream`](@ref) that the caller owns, as the structs of
arrays are released.
"""
arrow_release(x::Ref{T}) where {T<:AnyStreamStruct} =
    GC.@preserve x arrow_release(Base.unsafe_convert(Ptr{T}, x))

function arrow_release(x::Ptr{T}) where {T<:AnyStreamStruct}
    release = x == C_NULL ? C_NULL : unsafe_load(x).release
    release == C_NULL || ccall(release, Cvoid, (Ptr{T},), x)
    return nothing
end

# ---- one batch after the other ----

"""
    next!(s::BatchStream) -> Union{Batch,Nothing}
    next!(r::AsyncReader) -> Union{Batch,Nothing}

The next batch, or `nothing` at the end. The thread blocks while a foreign producer of a [`BatchStream`](@ref) works;
for a batch of an [`AsyncReader`](@ref) only the task waits. So a producer that waits for threads of its own, which ask a
source or a manager of Julia's, may wait for this thread as it does for them: give it an `AsyncReader`.

Throws what the producer says, `DEVX_CALLBACK` with its text if a foreign one failed; `DEVX_MISMATCH` or `DEVX_DEVICE`
for a batch that is not of the stream's schema or device type, and what [`import_arrow_device`](@ref) says of an array,
which is released then; `DEVX_BUSY` while another call runs on the stream; `DEVX_CLOSED` for a stream that was closed.
"""
function next!(s::BatchStream)
    deliver_now_and_then()
    # For the source of a stream that was made in Julia.
    mark_thread()
    batch = made(Handle{TAG_BATCH}) do out
        @checked devx_batch_stream_next(s.handle::Handle, out::Ptr{Ptr{Cvoid}})
    end
    return batch.address == C_NULL ? nothing : adopt_batch(batch)
end

function Base.iterate(s::BatchStream, _=nothing)
    batch = next!(s)
    return batch === nothing ? nothing : (batch, nothing)
end

# It would have to take a batch to know, which would be lost.
Base.isempty(::BatchStream) = throw(unknown_whether_empty())
unknown_whether_empty() = ArgumentError(
    "a stream does not know whether it is empty: take a batch with next!, which gives nothing at the end")

Base.IteratorSize(::Type{BatchStream}) = Base.SizeUnknown()
Base.eltype(::Type{BatchStream}) = Batch

"""
    schema(s::BatchStream) -> Schema

The schema that all batches of a stream have: a reference of its own, to be closed like any other.
"""
function schema(s::BatchStream)
    handle = made(Handle{TAG_SCHEMA}) do out
        @checked devx_batch_stream_schema(s.handle::Handle, out::Ptr{Ptr{Cvoid}})
    end
    return Schema(handle)
end

"""
    device_type(s::BatchStream) -> Int32
    device_type(r::AsyncReader) -> Int32

The type of the devices that the batches of a stream lie on; which one of that type, each batch says itself. A reader
waits for it, as for its [`schema`](@ref).
"""
function device_type(s::BatchStream)
    out = Ref{Int32}(0)
    @checked devx_batch_stream_device_type(s.handle::Handle, out::Ptr{Int32})
    return out[]
end

Base.isopen(s::BatchStream) = isopen(s.handle)
Base.close(s::BatchStream) = close(s.handle)

function Base.show(io::IO, s::BatchStream)
    isopen(s) || return print(io, "BatchStream (closed)")
    own = schema(s)
    try
        columns = fields(own)
        shown = [string(f.name, " (", type_name(f), ")") for f in columns[1:min(end, COLUMNS_SHOWN)]]
        more = length(columns) - length(shown)
        more > 0 && push!(shown, "… and $more more")
        print(io, "BatchStream of ", isempty(shown) ? type_name(root(own)) : join(shown, ", "))
    finally
        close(own)
    end
end
