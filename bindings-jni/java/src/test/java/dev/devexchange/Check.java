package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.function.Executable;

/** What the tests ask again and again; as an extension, that each of them gives everything back. */
final class Check implements AfterEachCallback {
    /** Long enough for a busy machine. */
    static final Duration PATIENCE = Duration.ofSeconds(30);

    // What tests that failed have left behind is held against them, and not against those after them.
    private static long leftOutstanding;
    private static int leftPending;

    /** What the test has not given back. */
    static long outstanding() {
        return DevExchange.outstanding() - leftOutstanding;
    }

    /** Releases of the test's that did not come yet. */
    static int pending() {
        return ReleaseQueue.pending() - leftPending;
    }

    /** Soon: what is shared between processes is given back by a thread of the exporter's. */
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

    /** What is to come. */
    interface Condition {
        boolean holds() throws InterruptedException;
    }

    /** Waits for something that is to come. If it does not, says what there is to see. */
    static void eventually(Condition condition) throws InterruptedException {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.holds()) {
            assertTrue(System.nanoTime() < end, () -> "it does not come; " + seen());
            Thread.sleep(1);
        }
    }

    /** As {@link #eventually}, of what the garbage collector has to find first. */
    static void collected(Condition condition) throws InterruptedException {
        eventually(() -> {
            System.gc();
            return condition.holds();
        });
    }

    /** So often that what nobody holds would be found. */
    static void collect() throws InterruptedException {
        for (int i = 0; i < 5; i++) {
            System.gc();
            Thread.sleep(10);
        }
    }

    /** What is not given back, and what every thread is doing. */
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

    /** The call is refused, and the text has all of these in it: the field and the value. */
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
