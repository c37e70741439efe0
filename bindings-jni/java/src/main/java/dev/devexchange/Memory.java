package dev.devexchange;

import java.nio.ByteBuffer;

/**
 * Memory that a {@link MemoryManager} gave, or host memory that it pinned. It outlives the manager; closing it gives it
 * back, or unpins it. For a tensor over it, hand it on:
 * {@code Tensor.create(memory.address(), memory.device(), dtype, shape, null, Flags.NONE, memory::close)}. Any thread
 * may use it.
 */
public final class Memory extends Owned<Memory> implements AutoCloseable {
    private final long bytes;

    // Written once, by `of`.
    private long address;
    private long device;

    Memory(long bytes) {
        super(Handle.Kind.MEMORY);
        this.bytes = bytes;
    }

    /** Of a reference that Java was just given; {@code packed} is the device. */
    Memory of(long raw, long begin, long packed) {
        address = begin;
        device = packed;
        return of(raw);
    }

    /**
     * Where it begins.
     *
     * @return an address that is valid until this is closed. That of no bytes means nothing: it is 0, or what an
     *     {@link Allocator} gave
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long address() {
        check("Memory.address");
        return address;
    }

    /**
     * Where it is.
     *
     * @return the device, as the manager says it
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Device device() {
        check("Memory.device");
        return Device.unpack(device);
    }

    /**
     * How much it is.
     *
     * @return the bytes that were asked for
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long bytes() {
        check("Memory.bytes");
        return bytes;
    }

    /**
     * Memory that the host can read and write, as a buffer. What is queued on a stream, for example an allocation in its
     * order, is waited for by the caller.
     *
     * @return a buffer in native byte order over all of it. It is not to be used after this is closed, and nothing
     *     checks that; while it is reachable, the garbage collector does not close this
     * @throws DevExchangeException {@link Status#DEVICE} for memory that the host cannot read,
     *     {@link Status#UNSUPPORTED} for more than a buffer can have (2 GiB), {@link Status#CLOSED}
     */
    public ByteBuffer byteBuffer() {
        enter("Memory.byteBuffer");
        try {
            Device.unpack(device).requireHost(true);
            if (bytes > Integer.MAX_VALUE) {
                throw new DevExchangeException(
                        Status.UNSUPPORTED,
                        "the memory has " + bytes + " bytes: a ByteBuffer has at most " + Integer.MAX_VALUE);
            }
            return view(address, bytes);
        } finally {
            exit();
        }
    }

    /** Gives it back. Closing twice is fine. */
    @Override
    public void close() {
        super.close();
    }

    /** {@return bytes and device, or that it is closed} */
    @Override
    public String toString() {
        return isClosed() ? "Memory (closed)" : "Memory (" + bytes + " bytes, " + Device.unpack(device) + ")";
    }
}
