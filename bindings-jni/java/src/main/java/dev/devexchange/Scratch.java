package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;

/** Off-heap memory for the arguments and results of one native call. Each thread has its own memory. */
final class Scratch {
    /** Enough for a description of a tensor with the most dimensions. */
    private static final int LEAST = 4096;

    /** The most bytes that a thread keeps. */
    private static final int MOST = 1 << 18;

    private static final ThreadLocal<Scratch> OF_THREAD = ThreadLocal.withInitial(() -> new Scratch(LEAST));

    /** The memory, in native order; all of it may be used. */
    final ByteBuffer buffer;

    /** The memory as longs. */
    final LongBuffer longs;

    /** The address of index 0. */
    final long address;

    private Scratch(int bytes) {
        buffer = ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
        longs = buffer.asLongBuffer();
        address = Calls.bufferAddress(buffer);
    }

    /** The calling thread's memory, with the content that the last call left. */
    static Scratch get() {
        return OF_THREAD.get();
    }

    /** The size in bytes. */
    int room() {
        return buffer.capacity();
    }

    /**
     * Memory for a number of bytes, which the caller must keep reachable during the call. The calling thread keeps it
     * for its next calls, unless it is larger than {@link #MOST}.
     */
    static Scratch of(long bytes) {
        Scratch kept = get();
        if (bytes <= kept.room()) {
            return kept;
        }
        if (bytes > Integer.MAX_VALUE) {
            throw new DevExchangeException(Status.OUT_OF_MEMORY, "a description of " + bytes + " bytes is too large");
        }
        Scratch larger = new Scratch(bytes > MOST ? (int) bytes : (int) Math.min(MOST, 2 * bytes));
        if (larger.room() <= MOST) {
            OF_THREAD.set(larger);
        }
        return larger;
    }
}
