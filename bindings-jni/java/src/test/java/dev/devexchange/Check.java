package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.function.Executable;

/** Checks that the tests share; as an extension, it checks that each test gives everything back. */
final class Check implements AfterEachCallback {
    /** Long enough for a busy machine. */
    static final Duration PATIENCE = Duration.ofMinutes(2);

    // What failed tests have left behind must not count against the tests after them.
    private static long leftOutstanding;
    private static int leftPending;

    /** What the test has not given back. */
    static long outstanding() {
        return DevExchange.outstanding() - leftOutstanding;
    }

    /** Releases of the test that have not come yet. */
    static int pending() {
        return ReleaseQueue.pending() - leftPending;
    }

    /** Not at once: a thread of the exporter gives back what is shared between processes. */
    @Override
    public void afterEach(ExtensionContext context) throws InterruptedException {
        try {
            eventually(() -> outstanding() <= 0 && pending() <= 0);
            // The last callback may still be running.
            flush();
        } catch (AssertionError failed) {
            leftOutstanding = DevExchange.outstanding();
            leftPending = ReleaseQueue.pending();
            throw failed;
        }
    }

    /** A condition that must come true. */
    interface Condition {
        boolean holds() throws InterruptedException;
    }

    /** Waits for a condition. If it does not come true, fails with what can be seen. */
    static void eventually(Condition condition) throws InterruptedException {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.holds()) {
            assertTrue(System.nanoTime() < end, () -> "it does not come; " + seen());
            Thread.sleep(1);
        }
    }

    /** Same as {@link #eventually}, for a condition that needs the garbage collector. */
    static void collected(Condition condition) throws InterruptedException {
        eventually(() -> {
            System.gc();
            return condition.holds();
        });
    }

    /** Collects garbage often enough to find whatever is unreachable. */
    static void collect() throws InterruptedException {
        for (int i = 0; i < 5; i++) {
            System.gc();
            Thread.sleep(10);
        }
    }

    /** Describes what is not given back, and what every thread is doing. */
    static String seen() {
        StringBuilder seen = new StringBuilder();
        seen.append(DevExchange.ledger()).append(", releases pending: ").append(ReleaseQueue.pending());
        for (Map.Entry<Thread, StackTraceElement[]> thread : Thread.getAllStackTraces().entrySet()) {
            seen.append('\n').append(thread.getKey()).append(' ').append(thread.getKey().getState());
            for (StackTraceElement frame : thread.getValue()) {
                seen.append("\n\tat ").append(frame);
            }
        }
        return seen.toString();
    }

    static void flush() throws InterruptedException {
        assertTrue(ReleaseQueue.flush(PATIENCE), () -> "the release queue does not move; " + seen());
    }

    /** Checks that the call is refused, with a text that contains all of these: the field and the value. */
    static DevExchangeException refused(int status, Executable call, String... texts) {
        DevExchangeException refusal = assertThrows(DevExchangeException.class, call);
        assertEquals(Status.name(status), refusal.statusName(), refusal.getMessage());
        assertEquals(status, refusal.status());
        assertEquals(0, refusal.driverCode());
        for (String text : texts) {
            assertTrue(refusal.getMessage().contains(text), () -> refusal.getMessage() + "\nhas no: " + text);
        }
        return refusal;
    }
}
