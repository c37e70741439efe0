package dev.devexchange;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;

/** Threads of a test. The test rethrows what one of them throws, which would otherwise only be printed. */
final class Threads {
    private final List<Thread> all = new ArrayList<>();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    /** Starts a number of threads that do the same. */
    static Threads start(int count, Runnable run) {
        Threads threads = new Threads();
        for (int i = 0; i < count; i++) {
            threads.start(run);
        }
        return threads;
    }

    /** Starts one more thread. */
    void start(Runnable run) {
        Thread thread = new Thread(run);
        thread.setUncaughtExceptionHandler((which, thrown) -> failure.compareAndSet(null, thrown));
        all.add(thread);
        thread.start();
    }

    /** Whether at least one thread is still running. */
    boolean areAlive() {
        return all.stream().anyMatch(Thread::isAlive);
    }

    /** Waits for all of them. */
    void join() throws InterruptedException {
        for (Thread thread : all) {
            thread.join();
        }
        if (failure.get() != null) {
            throw new AssertionError("a thread failed", failure.get());
        }
    }
}
