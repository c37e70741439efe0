package dev.devexchange;

import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/** Runs a step at least once after each request, and never twice at the same time. */
final class Serial {
    private final Executor executor;
    private final Runnable step;

    /** The number of requests since the last step began. */
    private final AtomicLong asked = new AtomicLong();

    private final Consumer<Throwable> refused;

    /**
     * {@code refused} gets the exception if the executor rejects a step, or if a step throws, for example for lack of
     * memory: whoever depends on the step would otherwise wait for ever.
     */
    Serial(Executor executor, Runnable step, Consumer<Throwable> refused) {
        this.executor = executor;
        this.step = step;
        this.refused = refused;
    }

    /** Requests a step, which runs on a thread of the executor. */
    void schedule() {
        if (asked.getAndIncrement() == 0) {
            try {
                executor.execute(this::run);
            } catch (Throwable thrown) {
                // Requests that came meanwhile depended on this step; {@code refused} answers for them, too.
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
