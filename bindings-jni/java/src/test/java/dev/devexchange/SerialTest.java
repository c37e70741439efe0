package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** Steps that are taken one at a time. */
class SerialTest {
    private final Queue<Runnable> later = new ArrayDeque<>();
    private final AtomicInteger steps = new AtomicInteger();
    private final List<Throwable> refused = new ArrayList<>();

    @Test
    void oneStepIsForAllWhoAskedBefore() {
        AtomicReference<Serial> itself = new AtomicReference<>();
        Serial serial = new Serial(later::add, () -> {
            if (steps.incrementAndGet() == 1) {
                itself.get().schedule();
            }
        }, refused::add);
        itself.set(serial);
        serial.schedule();
        serial.schedule();
        assertEquals(1, later.size());
        later.remove().run();
        // The second step is for the request within the first one.
        assertEquals(2, steps.get());
        serial.schedule();
        assertEquals(1, later.size());
        assertEquals(List.of(), refused);
    }

    /**
     * Requests that come while a thread is being made depend on it, so a failure to make it is reported for all of
     * them.
     */
    @Test
    void ifThereIsNoThreadThatIsTold() {
        OutOfMemoryError none = new OutOfMemoryError("no thread");
        AtomicReference<Serial> itself = new AtomicReference<>();
        Executor once = new Executor() {
            private boolean failed;

            @Override
            public void execute(Runnable run) {
                if (!failed) {
                    failed = true;
                    itself.get().schedule();
                    throw none;
                }
                later.add(run);
            }
        };
        Serial serial = new Serial(once, steps::incrementAndGet, refused::add);
        itself.set(serial);
        serial.schedule();
        assertEquals(List.of(none), refused);
        serial.schedule();
        later.remove().run();
        assertEquals(1, steps.get());
    }

    /** An exception of a step is reported, and later requests still lead to a step. */
    @Test
    void aStepThatFailsIsTold() {
        OutOfMemoryError none = new OutOfMemoryError("no memory");
        Serial serial = new Serial(later::add, () -> {
            if (steps.incrementAndGet() == 1) {
                throw none;
            }
        }, refused::add);
        serial.schedule();
        later.remove().run();
        assertEquals(List.of(none), refused);
        serial.schedule();
        later.remove().run();
        assertEquals(2, steps.get());
    }
}
