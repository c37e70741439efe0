package dev.devexchange;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Where release callbacks run: one daemon thread, {@code devexchange-releases}, in the order in which the memory was
 * given up.
 *
 * <p>Whoever gives up memory of Java's, a consumer in C on a thread of its own for example, only queues a token and
 * never enters the JVM. What a callback throws is logged ({@code System.Logger} "dev.devexchange"), counted, and does
 * not stop the thread. The thread does not keep the JVM from exiting; callbacks that are not due by then do not run.
 */
public final class ReleaseQueue {
    private static final int BATCH = 256;

    /** Bits of a token that say what it is; 0 is an entry of the table, the others are those of {@link Handle.Kind}. */
    private static final int TAG_BITS = 4;

    /** What memory of Java's needs until it is released. */
    private record Entry(Object kept, Runnable release) {}

    private static final Map<Long, Entry> TABLE = new ConcurrentHashMap<>();
    private static final AtomicLong NEXT = new AtomicLong();
    private static final AtomicLong FAILURES = new AtomicLong();
    private static final Thread THREAD = new Thread(null, ReleaseQueue::run, "devexchange-releases", 0, false);

    static {
        THREAD.setDaemon(true);
        // What happens to be the context of whoever came first is not to be kept for good.
        THREAD.setContextClassLoader(ClassLoader.getSystemClassLoader());
        THREAD.start();
    }

    private ReleaseQueue() {}

    /**
     * Waits until every release that has arrived by now has run. Memory that a consumer still holds does not count: its
     * release arrives when the consumer gives it up.
     *
     * @param timeout how long to wait at most
     * @return false if it took longer
     * @throws InterruptedException if the calling thread is interrupted meanwhile
     * @throws IllegalStateException on the thread of the queue itself, which would wait for itself
     */
    public static boolean flush(Duration timeout) throws InterruptedException {
        if (Thread.currentThread() == THREAD) {
            throw new IllegalStateException("a release callback cannot wait for the release queue");
        }
        CountDownLatch reached = new CountDownLatch(1);
        Native.queuePush(register(null, reached::countDown));
        return reached.await(timeout.toNanos(), TimeUnit.NANOSECONDS);
    }

    /**
     * How many pieces of memory this side has given to tensors and batches and not got back yet.
     *
     * @return 0 when every callback has run, or is the one that runs now
     */
    public static int pending() {
        return TABLE.size();
    }

    /**
     * How many callbacks have thrown.
     *
     * @return the number since the library was loaded
     */
    public static long failures() {
        return FAILURES.get();
    }

    /** Keeps {@code kept} reachable until the token comes back, and then runs {@code release}, which may be null. */
    static long register(Object kept, Runnable release) {
        long token = NEXT.incrementAndGet() << TAG_BITS;
        TABLE.put(token, new Entry(kept, release));
        return token;
    }

    /** Takes a registration back whose token will not come. */
    static void cancel(long token) {
        TABLE.remove(token);
    }

    /** Has a handle released that nobody closed. */
    static void giveUp(long token) {
        Native.queuePush(token);
    }

    private static void run() {
        ByteBuffer tokens = ByteBuffer.allocateDirect(BATCH * Long.BYTES).order(ByteOrder.nativeOrder());
        long address = Native.bufferAddress(tokens);
        while (true) {
            int count = Native.queueWait(address, BATCH);
            for (int i = 0; i < count; i++) {
                deliver(tokens.getLong(i * Long.BYTES));
            }
        }
    }

    /** Whatever goes wrong with one release, the next one is due. */
    private static void deliver(long token) {
        try {
            if ((token & (1 << TAG_BITS) - 1) != 0) {
                Native.giveUp(token);
                return;
            }
            Entry entry = TABLE.remove(token);
            if (entry != null && entry.release != null) {
                // An interrupt that came before was not meant for this callback.
                Thread.interrupted();
                entry.release.run();
            }
        } catch (Throwable thrown) {
            FAILURES.incrementAndGet();
            log(thrown);
        }
    }

    private static void log(Throwable thrown) {
        try {
            Logger logger = System.getLogger("dev.devexchange");
            logger.log(Level.ERROR, "a release callback failed; the memory counts as released", thrown);
        } catch (Throwable ignored) {
            // A logger that fails is no reason to stop releasing; the failure is counted.
        }
    }
}
