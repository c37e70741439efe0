package dev.devexchange;

import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicLong;

/** A step that is taken again and again, once at least after each time that somebody asks, and never twice at once. */
final class Serial {
    private final Executor executor;
    private final Runnable step;

    /** How often somebody asked since the last step began. */
    private final AtomicLong asked = new AtomicLong();

    /** {@code step} does not throw. */
    Serial(Executor executor, Runnable step) {
        this.executor = executor;
        this.step = step;
    }

    /** Has a step taken, on a thread of the executor. */
    void schedule() {
        if (asked.getAndIncrement() == 0) {
            try {
                executor.execute(this::run);
            } catch (Throwable thrown) {
                asked.set(0);
                throw thrown;
            }
        }
    }

    private void run() {
        long seen;
        do {
            seen = asked.get();
            step.run();
        } while (asked.addAndGet(-seen) != 0);
    }
}
