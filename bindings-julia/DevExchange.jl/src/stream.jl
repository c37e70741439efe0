# Queues of work on a device.

"The legacy default stream of a CUDA device, as the protocols number it. Most libraries use it unless told otherwise."
const LEGACY_STREAM = 1

"""
The default stream of the calling thread, as the protocols number it. After any call that waits, a Julia task may
continue on another thread: prefer a [`DeviceStream`](@ref).
"""
const PER_THREAD_STREAM = 2

"""
    DeviceStream(device::DLDevice)
    DeviceStream(device::DLDevice, value::Integer)

A queue of work on a device. Work on one stream is done in order, after anything that the stream was made to wait for;
the host goes on meanwhile.

The first form makes a stream that does not wait for the legacy default stream. The second form refers to a stream that
belongs to someone else, by its handle (`CUstream`, `cudaStream_t`), or to a default stream
(`DevExchange.LEGACY_STREAM`, `DevExchange.PER_THREAD_STREAM`). That stream must exist as long as this object is used,
and is never destroyed from here.

A default stream belongs to the given device, wherever the data is that it is used with. With `DevExchange.PINNED` or
`DevExchange.MANAGED`, which are not devices, it belongs to the data's device. The same holds where a function takes a
`stream` and gets such a number: for pinned and managed memory, it is a default stream of the device that the memory was
made for. `stream.value` is the number for other libraries; it does not name the device of a default stream.

**Ownership.** Call `close(stream)` on a stream that was made here when nobody queues work on it any more; closing it
again does nothing. The stream is destroyed when all tensors and batches that were allocated, copied, imported, produced
or made of columns in its order are released, including those that were handed on, with all CUDA arrays that were
exported for it, and after the releases that then wait for work ([`releases_waiting`](@ref)). Work that is queued on it
is still done. A call that only waits on the stream, or names it with [`used_on`](@ref), needs it for that call only. A
stream that is never closed is closed some time after it became unreachable, when nothing of this library is outstanding
any more ([`outstanding`](@ref)). At the end of the process streams are left to the driver.

Throws `DEVX_DEVICE` if there is no driver or no such device, or if the device has no streams (the CPU), `DEVX_DRIVER`,
`DEVX_INVALID_STREAM`; `DEVX_CLOSED` for every use after `close`.
"""
struct DeviceStream
    # `nothing` for a stream that belongs to someone else.
    handle::Union{Nothing,Handle{TAG_STREAM}}
    device::DLDevice
    value::Int64
    # The number for C, which also names the device of a default stream.
    number::Int64
end

function DeviceStream(device::DLDevice)
    refuse_in_cache()
    close_forgotten_streams()
    # An interrupt is deferred until the stream has a handle.
    return disable_sigint() do
        value = Ref{Int64}(0)
        @checked devx_stream_create(device::DLDevice, value::Ptr{Int64})
        token = Threads.atomic_add!(NEXT_TOKEN, TAG_MASK + 1)
        lock(() -> STREAMS[token] = (device, value[]), STREAMS_LOCK)
        DeviceStream(Handle{TAG_STREAM}(Ptr{Cvoid}(UInt(token))), device, value[], value[])
    end
end

function DeviceStream(device::DLDevice, value::Integer)
    stream, named = number(Int64, value, "stream"), Ref{Int64}(0)
    @checked devx_stream_of_device(device::DLDevice, stream::Int64, named::Ptr{Int64})
    return DeviceStream(nothing, device, stream, named[])
end

# Converts a handle as the driver's functions take it, where 0 is the legacy default stream, to the value of a stream.
function stream_value(handle::UInt)
    handle == PER_THREAD_STREAM && throw(DevExchangeError(DEVX_INVALID_STREAM, "stream is $PER_THREAD_STREAM, the " *
        "default stream of the calling thread: a task may go on on another one; work on a stream of its own"))
    return handle == 0 ? Int64(LEGACY_STREAM) : handle % Int64
end

device(s::DeviceStream) = s.device
Base.isopen(s::DeviceStream) = s.handle === nothing || isopen(s.handle)
Base.close(s::DeviceStream) = s.handle === nothing ? nothing : close(s.handle)

function Base.show(io::IO, s::DeviceStream)
    print(io, "DeviceStream(", repr(s.value), " on ", device_name(s.device), isopen(s) ? ")" : ", closed)")
end

# Calls `f` with the number of a stream, which is not destroyed meanwhile.
on_stream(f, s::DeviceStream) = s.handle === nothing ? f(s.number) : held(_ -> f(s.number), s.handle)
on_stream(f, value::Integer) = f(number(Int64, value, "stream"))
# No stream.
on_stream(f, ::Nothing) = f(Int64(-1))

const AnyStream = Union{DeviceStream,Integer}

"""
    synchronize(stream::DeviceStream)

Waits until all work that is queued on a stream is done. The calling thread blocks, and with it the garbage collector of
all threads. No exchange needs this: `wait_on` orders work without the host.

Throws `DEVX_DRIVER` with what the driver reports, which can be the failure of earlier work; `DEVX_UNSUPPORTED` if the
stream is being captured; `DEVX_CLOSED`.
"""
function synchronize(s::DeviceStream)
    on_stream(s) do stream
        @checked devx_stream_synchronize(s.device::DLDevice, stream::Int64)
    end
    return nothing
end
