package dev.devexchange;

import java.nio.ByteBuffer;

/**
 * Memory allocated by a {@link MemoryManager}, or host memory that the manager pinned. It outlives the manager. Closing
 * it gives the memory back, or unpins it. For a tensor over it, pass it on: {@code Tensor.create(memory.address(),
 * memory.device(), dtype, shape, null, Flags.NONE, memory::close)}. Any thread may use it.
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

    /** Takes the reference that Java was just given; {@code packed} is the device. */
    Memory of(long raw, long begin, long packed) {
        address = begin;
        device = packed;
        return of(raw);
    }

    /**
     * The address where the memory begins.
     *
     * @return an address that is valid until this is closed. For 0 bytes it has no meaning: it is 0, or whatever an
     *     {@link Allocator} gave
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long address() {
        check("Memory.address");
        return address;
    }

    /**
     * The device that the memory is on.
     *
     * @return the device, as reported by the manager
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Device device() {
        check("Memory.device");
        return Device.unpack(device);
    }

    /**
     * The size of the memory.
     *
     * @return the number of bytes that was asked for
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long bytes() {
        check("Memory.bytes");
        return bytes;
    }

    /**
     * Returns memory that the host can read and write as a buffer. The caller must wait for what is queued on a stream,
     * for example an allocation in its order.
     *
     * @return a buffer in native byte order over all of it. It must not be used after this memory is closed, which
     *     nothing checks; while it is reachable, the garbage collector does not close this memory
     * @throws DevExchangeException {@link Status#DEVICE} for memory that the host cannot read, {@link
     *     Status#UNSUPPORTED} for more than a buffer can hold (2 GiB), {@link Status#CLOSED}
     */
    public ByteBuffer byteBuffer() {
        enter("Memory.byteBuffer");
        try {
            Device.unpack(device).requireHost();
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

    /** Gives the memory back, or unpins it. Closing twice is fine. */
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
