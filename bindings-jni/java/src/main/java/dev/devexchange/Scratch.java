package dev.devexchange;

import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.util.concurrent.atomic.AtomicReferenceArray;

/** Off-heap memory for the arguments and results of one native call. Each thread has its own memory. */
final class Scratch {
    /** Enough for a description of a tensor with the most dimensions. */
    private static final int LEAST = 4096;

    /** The most bytes that a thread keeps. */
    private static final int MOST = 1 << 18;

    /** The number of bits of a place: as long as there are few threads, they share the first places. */
    private static final int FEWEST_BITS = 6;

    private static final int MOST_BITS = 12;

    /** Spreads the numbers of threads (the golden ratio, as a fraction of 2⁶⁴). */
    private static final long SPREAD = 0x9E3779B97F4A7C15L;

    private static final ThreadLocal<Scratch> OF_THREAD = ThreadLocal.withInitial(Scratch::first);

    /**
     * The memory of threads. It goes to another thread when its own has ended, and is found again by a thread whose
     * thread-local values were cleared, as those of {@code ForkJoinPool.commonPool} are between tasks. Otherwise a
     * program with many tasks or virtual threads would need new memory for each: only the garbage collector frees
     * direct memory, and it does not run because there is little of that left. At the limit the JVM collects all
     * garbage, or, if that is disabled, the call fails.
     */
    private static final AtomicReferenceArray<Lent> LENT = new AtomicReferenceArray<>(1 << MOST_BITS);

    /** Memory that a thread has, until it ends, or is collected because nothing can make it go on. */
    private static final class Lent extends WeakReference<Thread> {
        private final Scratch scratch;

        private Lent(Thread thread, Scratch scratch) {
            super(thread);
            this.scratch = scratch;
        }

        private boolean isFree() {
            Thread thread = get();
            return thread == null || !thread.isAlive();
        }
    }

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

    /** Memory for a thread that has none, as far as its thread-local values say. */
    private static Scratch first() {
        Thread thread = Thread.currentThread();
        int free = -1;
        Lent before = null;
        for (int bits = FEWEST_BITS; bits <= MOST_BITS; bits++) {
            int place = (int) (thread.getId() * SPREAD >>> Long.SIZE - bits);
            Lent lent = LENT.get(place);
            if (lent != null && lent.refersTo(thread)) {
                return lent.scratch;
            }
            if (free < 0 && (lent == null || lent.isFree())) {
                free = place;
                before = lent;
            }
        }
        Scratch scratch = before == null ? new Scratch(LEAST) : before.scratch;
        if (free < 0 || LENT.compareAndSet(free, before, new Lent(thread, scratch))) {
            return scratch;
        }
        return new Scratch(LEAST);
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
