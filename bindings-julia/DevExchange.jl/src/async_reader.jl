# The consumer of an asynchronous stream.

"""
    AsyncReader(; limit=4, abi_h_metadata=false)

Receives the batches of a foreign producer of an Arrow asynchronous stream (Arrow C device data interface, "Async Device
Stream Interface"), which is experimental in Arrow. Give [`DevExchange.handler`](@ref) to the producer. Then go through
the reader with a loop, [`next!`](@ref), [`receive`](@ref) or `take!`, or make a `Channel` of it:

```julia
reader = AsyncReader()
start_the_producer(DevExchange.handler(reader))
for batch in Channel(reader)
    println(size(batch, 1))
    close(batch)
end
```

**Back-pressure.** `limit` batches are requested once the producer has provided the schema, and one more for each batch
that is taken. With 0, batches come only after [`DevExchange.request`](@ref).

A task that takes a batch waits until one has come; no thread is blocked. An error comes after the batches before it,
once: `DEVX_CALLBACK` if the producer failed, with its text, or broke the contract, the error of an import if an array
or its metadata is invalid, `DEVX_MISMATCH` or `DEVX_DEVICE` if a batch does not have the stream's schema or device
type.

`abi_h_metadata` says that the producer's struct is that of Arrow's `abi.h` (40 bytes), so that its metadata can be
read. Leave it false if that is not known, because the text of the specification has another struct.

**Ownership, threads.** `close(reader)` cancels: the producer is told to stop, batches on their way are given up, and
the stream ends without an error, also for tasks that wait. Any task may close it, any number of times; otherwise the
finalizer does. Batches outlive their reader. Any task may take batches; each batch goes to one of them.

Throws `DEVX_INVALID_ARGUMENT` for a negative limit.
"""
struct AsyncReader
    handle::Handle{TAG_ASYNC_READER}
    bell::Bell
end

function AsyncReader(; limit::Integer=4, abi_h_metadata::Bool=false)
    bell = Bell()
    handle = made(Handle{TAG_ASYNC_READER}) do out
        ringing(bell) do wake
            @checked devx_async_reader_create(
                limit::Int64, abi_h_metadata::Int32, wake::Ptr{DevxWake}, out::Ptr{Ptr{Cvoid}})
        end
    end
    return AsyncReader(handle, bell)
end

"""
    handler(r::AsyncReader) -> Ptr{ArrowAsyncDeviceStreamHandler}

Returns the handler for a producer; only one call can have it. Its `release` must be called exactly once: by the
producer that took it, or by the caller ([`arrow_release`](@ref)) if no producer did. It is valid until then, even after
the reader was closed. The producer must not hold a lock during the release that its `request` or `cancel` takes,
because the release waits for such a call on another thread.

Throws `DEVX_INVALID_ARGUMENT` the second time, `DEVX_CLOSED`.
"""
function handler(r::AsyncReader)
    out = Ref{Ptr{ArrowAsyncDeviceStreamHandler}}(C_NULL)
    @checked devx_async_reader_handler(r.handle::Handle, out::Ptr{Ptr{ArrowAsyncDeviceStreamHandler}})
    return out[]
end

"""
    arrow_release(handler::Ptr{ArrowAsyncDeviceStreamHandler})

Releases a handler that no producer took.
"""
function arrow_release(x::Ptr{ArrowAsyncDeviceStreamHandler})
    release = x == C_NULL ? C_NULL : unsafe_load(x).release
    release == C_NULL || ccall(release, Cvoid, (Ptr{ArrowAsyncDeviceStreamHandler},), x)
    return nothing
end

"""
    request(r::AsyncReader, n)

Requests `n` more batches from the producer, besides those that the limit keeps requested. After the end this does
nothing. Throws `DEVX_INVALID_ARGUMENT` unless `n` > 0, `DEVX_OUT_OF_RANGE` if the total of requests is too large to
count, `DEVX_CLOSED`.
"""
function request(r::AsyncReader, n::Integer)
    @checked devx_async_reader_request(r.handle::Handle, n::Int64)
    return nothing
end

"""
    schema(r::AsyncReader) -> Schema

Returns the schema of all batches of a stream, as a new reference. The task waits until the producer has provided it.
Throws the error that ended the stream before that; `DEVX_CLOSED` if the reader was closed.
"""
function schema(r::AsyncReader)
    return Schema(made(Handle{TAG_SCHEMA}) do out
        wait_until(r.bell) do
            held(r.handle) do reader
                is_ready() do
                    @checked devx_async_reader_schema(reader::Ptr{Cvoid}, 0::Int64, out::Ptr{Ptr{Cvoid}})
                end
            end
        end
    end)
end

device_type(r::AsyncReader) = about_producer(r)[1]

"""
    metadata(r::AsyncReader) -> Vector{Pair{String,String}}

Returns the producer's metadata for the whole stream; empty if it cannot be read (see [`AsyncReader`](@ref)). The task
waits as for the [`schema`](@ref), and the same errors are thrown.
"""
metadata(r::AsyncReader) = about_producer(r)[2]

function about_producer(r::AsyncReader)
    close(schema(r))
    type = Ref{Int32}(0)
    given = made(MetadataHandle) do block
        @checked devx_async_reader_producer(r.handle::Handle, type::Ptr{Int32}, block::Ptr{Ptr{Cvoid}})
    end
    return type[], take_metadata(given)
end

"""
    producer_error(r::AsyncReader) -> NamedTuple

Returns what the producer's error contained besides the text: `code`, an `errno` number, 0 if it gave none, and
`metadata`, pairs of texts. Throws `DEVX_CLOSED`.
"""
function producer_error(r::AsyncReader)
    code = Ref{Int32}(0)
    given = made(MetadataHandle) do block
        @checked devx_async_reader_producer_error(r.handle::Handle, code::Ptr{Int32}, block::Ptr{Ptr{Cvoid}})
    end
    return (code=code[], metadata=take_metadata(given))
end

"""
    receive(r::AsyncReader) -> Union{NamedTuple,Nothing}

Like [`next!`](@ref), but with the metadata of the batch: `(batch=..., metadata=...)`, pairs of texts; `nothing` at the
end.
"""
function receive(r::AsyncReader)
    batch, given = Handle{TAG_BATCH}(C_NULL), MetadataHandle(C_NULL)
    try
        GC.@preserve batch given take_next(r, place_in(batch), place_in(given))
    catch e
        # The reader was closed here: that is an end, not an error.
        (isopen(r) || e isa InterruptException) && rethrow()
        return nothing
    end
    batch.address == C_NULL && return nothing
    taken = adopt_batch(batch)
    return (batch=taken, metadata=take_metadata(given))
end

take_next(r::AsyncReader, batch, block) = wait_until(r.bell) do
    held(r.handle) do reader
        is_ready() do
            @checked devx_async_reader_next(
                reader::Ptr{Cvoid}, 0::Int64, batch::Ptr{Ptr{Cvoid}}, block::Ptr{Ptr{Cvoid}})
        end
    end
end

# Not inlined: when Julia 1.5 copies a batch from one tuple to another, the garbage collector may miss its handle.
@noinline function next!(r::AsyncReader)
    received = receive(r)
    return received === nothing ? nothing : received.batch
end

"""
    take!(r::AsyncReader) -> Batch

Like [`next!`](@ref), but at the end it throws `DEVX_CLOSED`.
"""
function Base.take!(r::AsyncReader)
    batch = next!(r)
    batch === nothing && throw(DevExchangeError(DEVX_CLOSED, "the stream has ended"))
    return batch
end

function Base.iterate(r::AsyncReader, _=nothing)
    batch = next!(r)
    return batch === nothing ? nothing : (batch, nothing)
end

Base.isempty(::AsyncReader) = throw(unknown_whether_empty())
Base.IteratorSize(::Type{AsyncReader}) = Base.SizeUnknown()
Base.eltype(::Type{AsyncReader}) = Batch

"""
    Channel(r::AsyncReader; size=0) -> Channel{Batch}

Returns a channel of the batches of a stream. It holds `size` batches, and its task one more. The channel is closed at
the end. An error is thrown to tasks that take from it, after the batches that came before; but in Julia 1.8 to 1.10 a
loop over a channel can end without the error, so call `take!` there. Closing the channel closes the reader, as soon as
the next batch has come.
"""
function Base.Channel(r::AsyncReader; size::Integer=0)
    channel = Channel{Batch}(size)
    @async try
        for batch in r
            try
                put!(channel, batch)
            catch
                # Nobody will take the batch.
                close(batch)
                close(r)
                rethrow()
            end
        end
        close(channel)
    catch e
        # For tasks that take from the channel; if it was closed, there are none.
        close(channel, e)
    finally
        leave_to_idler()
    end
    return channel
end

Base.isopen(r::AsyncReader) = isopen(r.handle)

function Base.close(r::AsyncReader)
    close(r.handle)
    # Wakes the tasks that wait.
    ring(r.bell)
    return nothing
end

Base.show(io::IO, r::AsyncReader) = print(io, "AsyncReader", isopen(r) ? "" : " (closed)")
