package dev.devexchange;

/**
 * A queue of work on a device: made here ({@link #create}), or foreign ({@link #of}).
 *
 * <p>No call of this library waits on the host for queued work, except those that say so, such as {@link #synchronize},
 * {@code read} and {@code write} of a tensor, and copies from or into host memory that is not pinned. The device does
 * what a method "queues" after everything that was queued before.
 *
 * <p>Close a stream when nobody queues work on it any more. A closed stream that was made here is destroyed once all
 * tensors, batches and {@link Memory} that were allocated, copied, imported, produced or made of columns on it are
 * released, with everything exported from them and all CUDA arrays exported for the stream, and after the releases that
 * wait for queued work at that time ({@link DevExchange#releasesWaiting}). A foreign stream must outlive all that. A
 * stream that was only waited on, or named with {@code usedOn}, is not needed after that call. A stream that was made
 * here and is never closed is not destroyed, because others may have its number; {@code DEVEXCHANGE_TRACE=1} reports
 * this on stderr. Any thread may use a stream.
 */
public final class DeviceStream extends Owned<DeviceStream> implements AutoCloseable {
    /** The number of the legacy default stream, which every stream waits for unless it was made not to. */
    public static final long LEGACY_DEFAULT = 1;
    /**
     * The number of the per-thread default stream, which is that of the thread that makes a call. A virtual thread may
     * continue on another carrier, and so with another stream, after anything that waits: prefer {@link #create} there.
     */
    public static final long PER_THREAD_DEFAULT = 2;

    private final Device device;

    private DeviceStream(Device device) {
        super(Handle.Kind.STREAM);
        this.device = device;
    }

    /**
     * Makes a stream that does not wait for the legacy default stream. Work that is queued on it when it is closed is
     * still done.
     *
     * @param device a CUDA device
     * @return the stream, which the caller closes
     * @throws DevExchangeException {@link Status#DEVICE} for a device that does not exist or has no streams, {@link
     *     Status#DRIVER}
     */
    public static DeviceStream create(Device device) {
        return new DeviceStream(device).of(Native.streamCreate(device.packed()));
    }

    /**
     * Names a foreign stream, which its owner destroys. A default stream is that of {@code device}, wherever the data
     * is that the stream is used with.
     *
     * @param device the device of the stream. If it is that of pinned or managed memory, which names no GPU, a default
     *     stream is that of the data's device; for pinned or managed data, that of the device that the data was made
     *     for
     * @param value {@link #LEGACY_DEFAULT}, {@link #PER_THREAD_DEFAULT}, or a handle ({@code CUstream}, {@code
     *     cudaStream_t}), which is not checked
     * @return the stream; closing it only ends its use here
     * @throws DevExchangeException {@link Status#DEVICE} for a device that does not exist and for the CPU, {@link
     *     Status#INVALID_STREAM} for 0, which is ambiguous, and for negative numbers
     */
    public static DeviceStream of(Device device, long value) {
        return new DeviceStream(device).of(Native.streamOf(device.packed(), value));
    }

    /**
     * The number of the stream in the protocols, for other libraries. The number of a default stream does not name its
     * device.
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

    /** The number of the stream in records of this library, which includes the device of a default stream. */
    long number() {
        long stream = enter("DeviceStream.number");
        try {
            return Native.streamNumber(stream);
        } finally {
            exit();
        }
    }

    /**
     * The device that the stream is on.
     *
     * @return the device
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Device device() {
        check("DeviceStream.device");
        return device;
    }

    /**
     * Blocks until all work that is queued on the stream is done; a virtual thread holds its carrier meanwhile. No
     * exchange needs it.
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
     * Ends the use of the stream. A stream that was made here is destroyed as soon as nothing needs it any more.
     * Closing twice is fine.
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

    /** Enters {@code stream}, or returns 0 if it is null. */
    static long enterIfAny(DeviceStream stream, String method) {
        return stream == null ? 0 : stream.enter(method);
    }

    static void exitIfAny(DeviceStream stream) {
        if (stream != null) {
            stream.exit();
        }
    }
}
