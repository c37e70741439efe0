package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;

/** Off-heap memory for the arguments and results of one native call. Each thread has its own. */
final class Scratch {
    /** Enough for a description of a tensor with the most dimensions. */
    private static final int LEAST = 4096;

    /** A thread keeps no more than this. */
    private static final int MOST = 1 << 18;

    private static final ThreadLocal<Scratch> OF_THREAD = ThreadLocal.withInitial(() -> new Scratch(LEAST));

    /** In native order; all of it may be used. */
    final ByteBuffer buffer;

    /** The same, as longs. */
    final LongBuffer longs;

    /** Of index 0. */
    final long address;

    private Scratch(int bytes) {
        buffer = ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
        longs = buffer.asLongBuffer();
        address = Calls.bufferAddress(buffer);
    }

    /** The calling thread's, with what the last call left in it. */
    static Scratch get() {
        return OF_THREAD.get();
    }

    /** How many bytes there are. */
    int room() {
        return buffer.capacity();
    }

    /**
     * Room for so many bytes, which the caller keeps reachable over the call. The calling thread keeps it for the next
     * time, unless it is much.
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
