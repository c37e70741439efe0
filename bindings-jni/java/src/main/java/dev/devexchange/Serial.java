package dev.devexchange;

import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/** A step that is taken again and again, once at least after each time that somebody asks, and never twice at once. */
final class Serial {
    private final Executor executor;
    private final Runnable step;

    /** How often somebody asked since the last step began. */
    private final AtomicLong asked = new AtomicLong();

    private final Consumer<Throwable> refused;

    /**
     * {@code refused} is told that the executor cannot take a step, and what a step throws that has no memory: whoever
     * counts on it would wait for ever.
     */
    Serial(Executor executor, Runnable step, Consumer<Throwable> refused) {
        this.executor = executor;
        this.step = step;
        this.refused = refused;
    }

    /** Has a step taken, on a thread of the executor. */
    void schedule() {
        if (asked.getAndIncrement() == 0) {
            try {
                executor.execute(this::run);
            } catch (Throwable thrown) {
                // Others who asked meanwhile count on this step.
                asked.set(0);
                refused.accept(thrown);
            }
        }
    }

    private void run() {
        long seen;
        do {
            seen = asked.get();
            try {
                step.run();
            } catch (Throwable thrown) {
                refused.accept(thrown);
            }
        } while (asked.addAndGet(-seen) != 0);
    }
}
