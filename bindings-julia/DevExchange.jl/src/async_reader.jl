# The consumer of an asynchronous stream.

"""
    AsyncReader(; limit=4, abi_h_metadata=false)

Takes the batches of a foreign producer of an Arrow asynchronous stream (Arrow C device data interface, "Async Device
Stream Interface"), which is experimental in Arrow. Give [`DevExchange.handler`](@ref) to the producer; then go through
the reader with a loop, [`next!`](@ref), [`receive`](@ref) or `take!`, or make a `Channel` of it:

```julia
reader = AsyncReader()
start_the_producer(DevExchange.handler(reader))
for batch in Channel(reader)
    println(size(batch, 1))
    close(batch)
end
```

**Back-pressure.** `limit` batches are requested when the producer has told the schema, and one more for each that is
taken. With 0, batches come only after [`DevExchange.request`](@ref).

A task that asks for a batch waits until one has come; nothing blocks a thread. An error of the producer's comes after
the batches before it, once, as a [`DevExchangeError`](@ref) (`DEVX_CALLBACK`, with its text). A producer that breaks
the contract is such an error, too.

`abi_h_metadata` says that the producer's struct is that of Arrow's `abi.h` (40 bytes), so that its metadata can be
read.
It is false if that is not known, as the specification's text has another struct.

**Ownership, threads.** `close(reader)` cancels: the producer is asked to stop, what is on its way is given up, and the
stream ends without an error, for tasks that wait, too. From any task, any number of times; else the finalizer does it.
Batches outlive their reader. Any task may ask; a batch goes to one of them.

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

The handler for a producer, once. Whoever has it calls its `release` exactly once: the producer that took it, or the
caller ([`arrow_release`](@ref)) if none did. It is valid until then, also after the reader was closed.

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

Asks the producer for `n` more batches, besides those that the limit keeps requested. After the end it does nothing.
Throws `DEVX_INVALID_ARGUMENT` unless `n` > 0, `DEVX_OUT_OF_RANGE` if all that is requested cannot be counted,
`DEVX_CLOSED`.
"""
function request(r::AsyncReader, n::Integer)
    @checked devx_async_reader_request(r.handle::Handle, n::Int64)
    return nothing
end

"""
    schema(r::AsyncReader) -> Schema

The schema of all batches of a stream: a reference of its own. The task waits until the producer has told it. Throws
what ended the stream before that; `DEVX_CLOSED` if the reader was closed.
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

The producer's metadata for the whole stream; none if they may not be read (see [`AsyncReader`](@ref)). The task waits
for them as for the [`schema`](@ref), and this throws as that does.
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

What the producer said with its error besides the text: `code`, an `errno` number, 0 if it told of none, and `metadata`,
pairs of texts. Throws `DEVX_CLOSED`.
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

As [`next!`](@ref), with the metadata of the batch: `(batch=..., metadata=...)`, pairs of texts; `nothing` at the end.
"""
function receive(r::AsyncReader)
    batch, given = Handle{TAG_BATCH}(C_NULL), MetadataHandle(C_NULL)
    try
        GC.@preserve batch given take_next(r, place_in(batch), place_in(given))
    catch e
        # Closed here, which is an end and no error.
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

# Not inlined: where Julia 1.5 puts a batch from one tuple into another, the garbage collector may miss its handle.
@noinline function next!(r::AsyncReader)
    received = receive(r)
    return received === nothing ? nothing : received.batch
end

"""
    take!(r::AsyncReader) -> Batch

As [`next!`](@ref), but at the end it throws `DEVX_CLOSED`.
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

A channel of the batches of a stream, of which it holds `size`, and a task one more. It is closed at the end; an error
is thrown to whoever takes from it, after the batches that came before. Closing the channel closes the reader, when the
next batch has come.
"""
function Base.Channel(r::AsyncReader; size::Integer=0)
    channel = Channel{Batch}(size)
    @async try
        for batch in r
            try
                put!(channel, batch)
            catch
                # Nobody takes it any more.
                close(batch)
                close(r)
                rethrow()
            end
        end
        close(channel)
    catch e
        # For whoever takes from it; nobody does if it was closed.
        close(channel, e)
    end
    return channel
end

Base.isopen(r::AsyncReader) = isopen(r.handle)

function Base.close(r::AsyncReader)
    close(r.handle)
    # Those who wait.
    ring(r.bell)
    return nothing
end

Base.show(io::IO, r::AsyncReader) = print(io, "AsyncReader", isopen(r) ? "" : " (closed)")
