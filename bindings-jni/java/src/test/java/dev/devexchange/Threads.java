package dev.devexchange;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;

/** Threads of a test. What one of them throws, the test throws: by itself it would only be printed. */
final class Threads {
    private final List<Thread> all = new ArrayList<>();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    /** So many that do the same. */
    static Threads start(int count, Runnable run) {
        Threads threads = new Threads();
        for (int i = 0; i < count; i++) {
            threads.start(run);
        }
        return threads;
    }

    /** One more. */
    void start(Runnable run) {
        Thread thread = new Thread(run);
        thread.setUncaughtExceptionHandler((which, thrown) -> failure.compareAndSet(null, thrown));
        all.add(thread);
        thread.start();
    }

    /** Whether one of them is not at its end. */
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
