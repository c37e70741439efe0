package dev.devexchange;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Runs release callbacks on one daemon thread, {@code devexchange-releases}, in the order in which the memory was given
 * up. A callback that takes long delays all others of the process.
 *
 * <p>Giving up Java-owned memory, for example by a C consumer on its own thread, only queues a token; it never enters
 * the JVM. An exception of a callback is logged ({@code System.Logger} "dev.devexchange") and counted; it does not stop
 * the thread. The thread does not keep the JVM from exiting; callbacks that are not due by then do not run.
 */
public final class ReleaseQueue {
    /** The bits of a token that say what it is: 0 for an entry of the table, else a tag of {@link Handle.Kind}. */
    private static final int TAG_BITS = 4;

    /** What Java-owned memory needs until it is released. */
    private record Entry(Object kept, Runnable release) {}

    private static final Map<Long, Entry> TABLE = new ConcurrentHashMap<>();
    private static final AtomicLong NEXT = new AtomicLong();
    private static final AtomicLong FAILURES = new AtomicLong();
    private static final Thread THREAD = Background.taker("devexchange-releases", false, ReleaseQueue::deliver);

    static {
        THREAD.start();
    }

    private ReleaseQueue() {}

    /**
     * Waits until every release that has arrived before this call has run. Memory that a consumer still holds does not
     * count: its release arrives when the consumer gives it up.
     *
     * @param timeout the longest time to wait
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
        return reached.await(TimeUnit.NANOSECONDS.convert(timeout), TimeUnit.NANOSECONDS);
    }

    /**
     * The number of Java objects that the library still needs: memory that was given to tensors and batches or by an
     * {@link Allocator} and is not released yet, sources of streams, allocators of managers, asynchronous readers and
     * writers.
     *
     * @return 0 when every callback has run or is running
     */
    public static int pending() {
        return TABLE.size();
    }

    /**
     * The number of callbacks that have thrown an exception.
     *
     * @return the number since the library was loaded
     */
    public static long failures() {
        return FAILURES.get();
    }

    /**
     * Makes a token. Keeps {@code kept} reachable until the token comes back, and then runs {@code release}, which may
     * be null.
     */
    static Long register(Object kept, Runnable release) {
        Long token = NEXT.incrementAndGet() << TAG_BITS;
        TABLE.put(token, new Entry(kept, release));
        return token;
    }

    /** Combines several callbacks into one. Each runs even if others fail. Null if the list is empty. */
    static Runnable all(List<Runnable> releases) {
        return releases.isEmpty() ? null : () -> releases.forEach(ReleaseQueue::call);
    }

    /** Takes back a registration whose token will never be queued. Allocates nothing. */
    static void cancel(Long token) {
        TABLE.remove(token);
    }

    /** Queues the release of a handle that nobody closed. */
    static void giveUp(long token) {
        Native.queuePush(token);
    }

    /** Runs a release. Must not throw, because the next release is due whatever goes wrong with this one. */
    private static void deliver(long token) {
        try {
            if ((token & (1 << TAG_BITS) - 1) != 0) {
                Native.giveUp(token);
                return;
            }
            Entry entry = TABLE.remove(Background.key(token));
            if (entry != null && entry.release != null) {
                call(entry.release);
            }
        } catch (Throwable thrown) {
            failed(thrown);
        }
    }

    private static void call(Runnable release) {
        try {
            // An interrupt that came before was not meant for this callback.
            Thread.interrupted();
            release.run();
        } catch (Throwable thrown) {
            failed(thrown);
        }
    }

    private static void failed(Throwable thrown) {
        FAILURES.incrementAndGet();
        Background.log("a release callback failed; the memory counts as released", thrown);
    }
}
