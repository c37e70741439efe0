package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.concurrent.atomic.AtomicInteger;

/** A release callback that counts how often it runs. */
final class Release implements Runnable {
    private final AtomicInteger count = new AtomicInteger();
    private volatile Thread thread;

    @Override
    public void run() {
        thread = Thread.currentThread();
        count.incrementAndGet();
    }

    /** The count after everything that is due has run. */
    int count() throws InterruptedException {
        Check.flush();
        return count.get();
    }

    void assertNotYet() throws InterruptedException {
        assertEquals(0, count(), "released too early");
    }

    void assertOnce() throws InterruptedException {
        assertEquals(1, count(), "released not exactly once");
    }

    Thread thread() {
        return thread;
    }
}
