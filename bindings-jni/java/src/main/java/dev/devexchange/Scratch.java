package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Off-heap memory for the arguments and results of one native call. Each thread has its own. */
final class Scratch {
    /** Enough for a description of a tensor with the most dimensions. */
    private static final int BYTES = 4096;

    private static final ThreadLocal<Scratch> OF_THREAD = ThreadLocal.withInitial(() -> new Scratch(BYTES));

    /** In native order; all of it may be used. */
    final ByteBuffer buffer;

    /** Of index 0. */
    final long address;

    private Scratch(int bytes) {
        buffer = ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
        address = Native.bufferAddress(buffer);
    }

    /** The calling thread's, with what the last call left in it. */
    static Scratch get() {
        return OF_THREAD.get();
    }

    /** Room for so many bytes; if that is much, memory of its own, which the caller keeps reachable over the call. */
    static Scratch of(long bytes) {
        if (bytes <= BYTES) {
            return get();
        }
        if (bytes > Integer.MAX_VALUE) {
            throw new DevExchangeException(Status.OUT_OF_MEMORY, "a description of " + bytes + " bytes is too large");
        }
        return new Scratch((int) bytes);
    }
}
