package dev.devexchange;

/**
 * A queue of work on a device: made here ({@link #create}), or somebody else's ({@link #of}).
 *
 * <p>No call of this library waits on the host for what is queued, except those that say so: {@link #synchronize},
 * and copies from and to host memory. What a method "queues" is done by the device, after what was queued before.
 *
 * <p>Close a stream when nobody queues work on it any more. One that was made here is destroyed when all tensors and
 * batches are released that were allocated, imported, copied or produced on it, and what was exported of these; and
 * after the releases that wait for queued work then ({@link DevExchange#releasesWaiting}). A stream that is somebody
 * else's has to outlive all that. Where it was only waited on, or named with {@code usedOn}, nothing needs it after that
 * call. One that was made here and is never closed is not destroyed, as others may have its number;
 * {@code DEVEXCHANGE_TRACE=1} says so on stderr. Any thread may use a stream.
 */
public final class DeviceStream extends Owned<DeviceStream> implements AutoCloseable {
    /** The number of the legacy default stream, which all streams wait for that do not say otherwise. */
    public static final long LEGACY_DEFAULT = 1;
    /** The number of the default stream of whatever thread makes a call. */
    public static final long PER_THREAD_DEFAULT = 2;

    private final Device device;

    private DeviceStream(Device device) {
        super(Handle.Kind.STREAM);
        this.device = device;
    }

    /**
     * Makes a stream that does not wait for the legacy default stream. What is queued on it when it is closed is still
     * done.
     *
     * @param device a CUDA device
     * @return the stream, which the caller closes
     * @throws DevExchangeException {@link Status#DEVICE} for a device that is not there or has no streams,
     *     {@link Status#DRIVER}
     */
    public static DeviceStream create(Device device) {
        return new DeviceStream(device).of(Native.streamCreate(device.packed()));
    }

    /**
     * A stream of somebody else's, who also destroys it. A default stream is one of its device, wherever the data is that
     * it is used with.
     *
     * @param device the device that it is on; with that of pinned or managed memory, which is none, a default stream is
     *     one of the data's device, of such memory the one that it was made for
     * @param value {@link #LEGACY_DEFAULT}, {@link #PER_THREAD_DEFAULT}, or a handle ({@code CUstream},
     *     {@code cudaStream_t}); it is not checked that there is such a stream
     * @return the stream; closing it ends its use here, and nothing else
     * @throws DevExchangeException {@link Status#DEVICE} for a device that is not there or has no streams,
     *     {@link Status#INVALID_STREAM} for 0, which is ambiguous, and for negative numbers
     */
    public static DeviceStream of(Device device, long value) {
        return new DeviceStream(device).of(Native.streamOf(device.packed(), value));
    }

    /**
     * The stream as the protocols write it, for other libraries. The number of a default stream does not name its device.
     *
     * @return {@link #LEGACY_DEFAULT}, {@link #PER_THREAD_DEFAULT}, or a handle
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long value() {
        long stream = enter("DeviceStream.value");
        try {
            return Native.streamValue(stream);
        } finally {
            exit();
        }
    }

    /** The same as it stands in records of this library: with the device of a default stream. */
    long number() {
        long stream = enter("DeviceStream.number");
        try {
            return Native.streamNumber(stream);
        } finally {
            exit();
        }
    }

    /**
     * The device that it is on.
     *
     * @return the device
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Device device() {
        check("DeviceStream.device");
        return device;
    }

    /**
     * Blocks until all work that is queued on the stream is done. No exchange needs it.
     *
     * @throws DevExchangeException {@link Status#UNSUPPORTED} if the stream is being captured into a graph,
     *     {@link Status#DRIVER}, {@link Status#CLOSED}
     */
    public void synchronize() {
        long stream = enter("DeviceStream.synchronize");
        try {
            Native.streamSynchronize(stream);
        } finally {
            exit();
        }
    }

    /**
     * Ends its use. A stream that was made here is destroyed as soon as nothing needs it any more. Closing twice is fine.
     *
     * @throws DevExchangeException {@link Status#DRIVER}
     */
    @Override
    public void close() {
        super.close();
    }

    /** {@return number and device, or that it is closed} */
    @Override
    public String toString() {
        try {
            return "DeviceStream (0x" + Long.toHexString(value()) + ", " + device + ")";
        } catch (DevExchangeException closed) {
            return "DeviceStream (closed)";
        }
    }

    /** A call that puts a tensor or a batch into the order of a stream. */
    interface Order {
        void apply(long thing, long stream);
    }

    void order(String method, long thing, Order order) {
        long stream = enter(method);
        try {
            order.apply(thing, stream);
        } finally {
            exit();
        }
    }

    /** As {@link #enter}; 0 if there is none. */
    static long enterIfAny(DeviceStream stream, String method) {
        return stream == null ? 0 : stream.enter(method);
    }

    static void exitIfAny(DeviceStream stream) {
        if (stream != null) {
            stream.exit();
        }
    }
}
