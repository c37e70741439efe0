# Streams of batches, imported from and exported as Arrow streams.

"""
    BatchStream

A stream of batches of one schema, on one type of device, pulled one after the other. Get one with
[`import_arrow`](@ref) or [`import_arrow_device`](@ref), or make one from your own batches. Go through it with a loop or
with [`next!`](@ref), or hand it on with [`export_move`](@ref).

```julia
for batch in stream
    println(size(batch, 1))
    close(batch)
end
```

`schema(stream)` is the schema of all batches, `DevExchange.device_type(stream)` the type of device that they are on.
The end stays the end. An error is thrown, never taken for the end, and stays that error. Batches outlive their stream.

**Ownership, threads.** One reference, given up once by `close`, at any time, by [`export_move`](@ref) or, if forgotten,
by the finalizer. A source that refers to its own stream keeps it reachable: that stream must be closed or moved. Any
thread may use it, but one call at a time: a second call meanwhile throws `DEVX_BUSY`, and nothing is lost.
"""
struct BatchStream
    handle::Handle{TAG_BATCH_STREAM}

    BatchStream(handle::Handle{TAG_BATCH_STREAM}) = new(handle)
end

const AnyStreamStruct = Union{ArrowArrayStream,ArrowDeviceArrayStream}

"""
    BatchStream(schema::Schema, source; device_type=DevExchange.kDLCPU, release=nothing, patience=60)
    BatchStream(source, schema::Schema; ...)

Makes a stream of batches from Julia. `source` is a function without arguments that returns the next [`Batch`](@ref), or
`nothing` at the end; or it is any iterable, such as a `Channel`. Each batch is *moved* into the stream: it is closed
afterwards. It must have this schema, and be on a device of this type. The schema is shared. An exception in `source`
becomes the error of the stream, with its text (`DEVX_CALLBACK`, `DEVX_OUT_OF_MEMORY` for an `OutOfMemoryError`, or the
status of a [`DevExchangeError`](@ref) other than `DEVX_BUSY`). After that, or after the end, `source` is not called
again. If it is interrupted (Ctrl-C) on a Julia thread, the call that led to it throws the `InterruptException`. Where it
was thrown is logged if `DEVEXCHANGE_TRACE` is set. `release()`, if given, is called once, on a task of this module, when
the stream was released; not if this constructor throws.

**Who runs the source.** On a Julia thread, a consumer's call for a batch calls `source` directly; the task that made
the call stays on that thread from then on, as after `@async`. On any other thread no Julia code can run: the consumer
waits while a Julia task runs `source`. So a Julia thread must be free to run tasks as long as foreign threads consume:
the program yields now and then (`wait`, `fetch`, `sleep`, input and output), and does not block its threads in foreign
calls that wait for such a consumer. Make such a call with `@threadcall`, which leaves Julia's threads free. If no task
takes up a foreign thread's call for `patience` seconds (`Inf` for no limit), the call and the stream fail
(`DEVX_NOT_READY`). When Julia ends, calls that still wait fail (`DEVX_CLOSED`).

Throws `DEVX_DEVICE` for a type of device that this library has no runtime for, `DEVX_INVALID_ARGUMENT` for an invalid
`source` or `release` and for a negative `patience`, `DEVX_CLOSED`.
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
        (UInt64, UInt64, Ptr{Server}, Int64, Ptr{DevxOwner}, Ptr{DevxBatchSource}),
        number, TAG_REQUEST, Ref(server()), limit, owner, record)
    return BatchStream(made(Handle{TAG_BATCH_STREAM}) do out
        asked_through(make, Ref(DevxBatchSource(C_NULL, C_NULL, C_NULL)), next, release, patience) do record
            @checked devx_batch_stream_create(
                schema.handle::Handle, device_type::Int32, record::Ptr{DevxBatchSource}, out::Ptr{Ptr{Cvoid}})
        end
    end)
end

BatchStream(@nospecialize(source), schema::Schema; keywords...) = BatchStream(schema, source; keywords...)
# A schema cannot be the source.
BatchStream(schema::Schema, source::Schema; keywords...) =
    invoke(BatchStream, Tuple{Schema,Any}, schema, source; keywords...)

# An iteration as a function that returns the next value.
mutable struct Pulled
    values::Any
    state::Any
    begun::Bool
end

function (p::Pulled)()
    next = p.begun ? iterate(p.values, p.state) : iterate(p.values)
    if next === nothing
        check_end(p.values)
        return nothing
    end
    p.begun, p.state = true, next[2]
    return next[1]
end

# In Julia 1.8 to 1.10, an iteration just ends if its channel was closed with an exception. `take!` throws that.
check_end(_) = nothing
function check_end(channel::Channel)
    try
        take!(channel)
    catch e
        e isa InvalidStateException && e.state === :closed || rethrow()
    end
    return nothing
end

# Answers with the next batch of a source.
function reply(source, call::Ptr{Call})
    batch = asked(source)
    batch === nothing && return nothing
    batch isa Batch || throw(DevExchangeError(DEVX_INVALID_ARGUMENT,
        "the source gave a $(typeof(batch)), not a Batch, or nothing at the end"))
    moved(slot -> give_batch(call, slot), batch.handle)
    return nothing
end

# From here on the answer owns the batch, whatever happens.
function give_batch(call, slot)
    answer!(call, :batch, slot[])
    slot[] = C_NULL
    return nothing
end

# ---- Arrow in and out ----

"""
    import_arrow(stream) -> BatchStream

Imports an Arrow stream of host arrays from its producer, and gets its schema. `stream` is a `Ref` or `Ptr` of
[`ArrowArrayStream`](@ref), or a `Ptr{Cvoid}`. On success it is moved from (its `release` is NULL) and released once,
together with the result. On failure it is untouched, and the caller still has to release it.

Throws `DEVX_NULL_ARGUMENT` (also for a missing callback), `DEVX_RELEASED`, `DEVX_CALLBACK` with the producer's text if
the producer failed, and the errors of [`import_schema`](@ref) for its schema.
"""
function import_arrow(stream::Ref{ArrowArrayStream})
    return BatchStream(made(Handle{TAG_BATCH_STREAM}) do out
        @checked devx_batch_stream_import(stream::Ptr{ArrowArrayStream}, out::Ptr{Ptr{Cvoid}})
    end)
end

"""
    import_arrow_device(stream) -> BatchStream

Like [`import_arrow`](@ref), but for an [`ArrowDeviceArrayStream`](@ref). Also throws `DEVX_DEVICE` for a type of device
that is unknown or that this library has no runtime for.
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

Exports a stream to a consumer, and closes it. `target` is a `Ref` or `Ptr` of [`ArrowArrayStream`](@ref), or of
[`ArrowDeviceArrayStream`](@ref), which also has the type of device. The consumer owns the written struct, and releases
it once, from any thread, at any point of the stream ([`arrow_release`](@ref)). What `target` held before is
overwritten, not released. If this throws, the stream is as before.

Throws `DEVX_DEVICE` for an `ArrowArrayStream` if the batches are on a device, `DEVX_BUSY` while another call runs on
the stream (also from within its `source`), `DEVX_NULL_ARGUMENT`, `DEVX_CLOSED`.
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

Releases an [`ArrowArrayStream`](@ref) or [`ArrowDeviceArrayStream`](@ref) that the caller owns, in the same way as the
structs of arrays.
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

Returns the next batch, or `nothing` at the end. While a foreign producer of a [`BatchStream`](@ref) works, the thread
blocks, and with it the garbage collector of all threads; for a batch of an [`AsyncReader`](@ref) only the task waits. A
producer may wait for its own threads, and those may call a Julia source or manager, which needs a free Julia thread. So
give such a producer an `AsyncReader`: otherwise each may wait for the other.

Throws the producer's error (`DEVX_CALLBACK` with its text if a foreign producer failed); `DEVX_MISMATCH` or
`DEVX_DEVICE` for a batch that does not have the stream's schema or device type, and the errors of
[`import_arrow_device`](@ref) for an array, which is then released; `DEVX_BUSY` while another call runs on the stream;
`DEVX_CLOSED` for a stream that was closed.
"""
function next!(s::BatchStream)
    deliver_now_and_then()
    # Needed for the source of a stream that was made in Julia.
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

# It could only find out by taking a batch, which would be lost.
Base.isempty(::BatchStream) = throw(unknown_whether_empty())
unknown_whether_empty() = ArgumentError(
    "a stream does not know whether it is empty: take a batch with next!, which gives nothing at the end")

Base.IteratorSize(::Type{BatchStream}) = Base.SizeUnknown()
Base.eltype(::Type{BatchStream}) = Batch

"""
    schema(s::BatchStream) -> Schema

Returns the schema of all batches of a stream: a new reference, to be closed like any other.
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

Returns the type of the devices that a stream's batches are on; each batch has the number of its device. For a reader,
the task waits as for its [`schema`](@ref).
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
