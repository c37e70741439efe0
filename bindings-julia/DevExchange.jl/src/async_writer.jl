# The producer of an asynchronous stream.

"""
    AsyncWriter(handler::Ptr{ArrowAsyncDeviceStreamHandler}, schema::Schema; device_type=DevExchange.kDLCPU,
                metadata=())
    AsyncWriter(f, handler, schema; ...)

Sends batches to a foreign consumer of an Arrow asynchronous stream (see [`AsyncReader`](@ref)): takes the consumer's
handler and passes it the schema. Then [`put!`](@ref) sends a batch as soon as the consumer has requested one, and
`close` ends the stream:

```julia
AsyncWriter(handler, schema) do writer
    for part in parts
        put!(writer, Batch(part))
    end
end
```

The second form calls `f(writer)`, and closes the writer; if `f` throws, the consumer gets an error with the text of the
exception. `metadata` are pairs of texts for the whole stream.

**Ownership, threads.** The writer owns the handler after a call that succeeds, or whose schema was refused. It releases
the handler once: at the end, or soon after the consumer cancelled. All callbacks of the handler are called on Julia
threads. What follows a cancel or an impossible request (`on_error`, `release`) is called by the task that also delivers
releases; it does nothing else until the callback returns. Any task may use a writer; the calls take turns. A call from
within a callback of the handler is refused (`DEVX_BUSY`). A writer that was not closed sends the consumer an error when
it is finalized.

Throws `DEVX_NULL_ARGUMENT`, `DEVX_RELEASED`, `DEVX_INVALID_ARGUMENT` if a callback is missing, `DEVX_DEVICE` for a type
of device that this library has no runtime for, `DEVX_CLOSED` if the schema is closed; in these cases the handler is
untouched. Throws `DEVX_CALLBACK` if the consumer refuses the schema, `DEVX_CLOSED` if it cancelled.
"""
struct AsyncWriter
    handle::Handle{TAG_ASYNC_WRITER}
    bell::Bell
    # Held during calls of the consumer, so that tasks take turns.
    turn::ReentrantLock
end

# A schema that is closed is refused before the handler is taken.
AsyncWriter(handler::Ptr{ArrowAsyncDeviceStreamHandler}, schema::Schema; keywords...) =
    held(address -> started_writer(handler, address; keywords...), schema.handle)

function started_writer(handler, schema; device_type::Integer=kDLCPU, metadata=())
    bell, turn = Bell(), ReentrantLock()
    handle = made(Handle{TAG_ASYNC_WRITER}) do out
        with_metadata(metadata) do block
            ringing(bell) do wake
                @checked devx_async_writer_create(handler::Ptr{ArrowAsyncDeviceStreamHandler}, device_type::Int32,
                    block::Ptr{UInt8}, wake::Ptr{DevxWake}, out::Ptr{Ptr{Cvoid}})
            end
        end
    end
    w = AsyncWriter(handle, bell, turn)
    try
        in_turn(w) do writer
            @checked devx_async_writer_start(writer::Ptr{Cvoid}, schema::Ptr{Cvoid})
        end
    catch
        close(handle)
        rethrow()
    end
    bell.answer = handle -> settle(handle, turn)
    bell.of = WeakRef(handle)
    # Handles wakes that came before `answer` was set.
    ring(bell)
    return w
end

function AsyncWriter(f, handler::Ptr{ArrowAsyncDeviceStreamHandler}, schema::Schema; keywords...)
    w = AsyncWriter(handler, schema; keywords...)
    try
        f(w)
    catch e
        try
            close(w, failure(e))
        catch
            # The first error is the one to report.
        end
        rethrow()
    end
    close(w)
    return nothing
end

in_turn(f, w::AsyncWriter) = lock(() -> held(f, w.handle), w.turn)

# Releases the handler of a consumer that cancelled, after the turn of the task that has it now.
function settle(handle::Handle{TAG_ASYNC_WRITER}, turn)
    isopen(handle) || return nothing
    if !trylock(turn)
        @async (lock(() -> nothing, turn); settle(handle, turn); leave_to_idler())
        return nothing
    end
    try
        @checked devx_async_writer_ready(handle::Handle, 0::Int64)
    catch e
        # `put!` reports why no batch can be sent.
        e isa InterruptException && rethrow()
    finally
        unlock(turn)
    end
    return nothing
end

"""
    put!(w::AsyncWriter, b::Batch; metadata=()) -> AsyncWriter

Sends a batch to the consumer, with pairs of texts. The task waits until the consumer requests a batch. The batch is
*moved*: it is closed afterwards. If this throws, the batch is as before.

Throws `DEVX_CLOSED` if the consumer cancelled or the writer was closed, `DEVX_CALLBACK` if the consumer refused
something, `DEVX_INVALID_ARGUMENT` if it made an impossible request, `DEVX_MISMATCH` or `DEVX_DEVICE` if the batch does
not have the stream's schema or device type.
"""
function Base.put!(w::AsyncWriter, b::Batch; metadata=())
    with_metadata(metadata) do block
        wait_until(w.bell) do
            # Not before a batch is requested: to others the handle would be closed during an attempt that fails.
            in_turn(w) do writer
                is_ready() do
                    @checked devx_async_writer_ready(writer::Ptr{Cvoid}, 0::Int64)
                    moved(b.handle) do slot
                        @checked devx_async_writer_send_move(
                            writer::Ptr{Cvoid}, slot::Ptr{Ptr{Cvoid}}, block::Ptr{UInt8})
                    end
                end
            end
        end
    end
    return w
end

"""
    demand(w::AsyncWriter) -> Int

Returns how many batches the consumer has requested and were not sent yet; 0 when none can be sent any more. Throws
`DEVX_CLOSED`.
"""
function demand(w::AsyncWriter)
    out = Ref{Int64}(0)
    @checked devx_async_writer_demand(w.handle::Handle, out::Ptr{Int64})
    return Int(out[])
end

"""
    is_cancelled(w::AsyncWriter) -> Bool

Whether the consumer cancelled. Throws `DEVX_CLOSED`.
"""
function is_cancelled(w::AsyncWriter)
    out = Ref{Int32}(0)
    @checked devx_async_writer_is_cancelled(w.handle::Handle, out::Ptr{Int32})
    return out[] != 0
end

"""
    close(w::AsyncWriter)
    close(w::AsyncWriter, error::Exception; code=Libc.EIO, metadata=())

Ends a stream, or ends it with an error: the consumer gets the text of the exception, an `errno` code and pairs of
texts. If it cancelled, it gets nothing. Tasks that wait in [`put!`](@ref) get `DEVX_CLOSED`. Closing it again does
nothing.

Throws `DEVX_CALLBACK` if the consumer refused something, `DEVX_INVALID_ARGUMENT` for the code 0. Even then the writer
is closed.
"""
function Base.close(w::AsyncWriter)
    end_with(w) do writer
        @checked devx_async_writer_finish(writer::Ptr{Cvoid})
    end
end

function Base.close(w::AsyncWriter, error::Exception; code::Integer=Libc.EIO, metadata=())
    message = visible(failure(error).message)
    with_metadata(metadata) do block
        end_with(w) do writer
            @checked devx_async_writer_fail(writer::Ptr{Cvoid}, code::Int32, message::Cstring, block::Ptr{UInt8})
        end
    end
end

function end_with(f, w::AsyncWriter)
    try
        lock(() -> isopen(w) && held(f, w.handle), w.turn)
    finally
        close(w.handle)
        # Wakes the tasks that wait.
        ring(w.bell)
    end
    return nothing
end

Base.isopen(w::AsyncWriter) = isopen(w.handle)

Base.show(io::IO, w::AsyncWriter) = print(io, "AsyncWriter", isopen(w) ? "" : " (closed)")
