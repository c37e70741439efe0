package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.function.Executable;

/** What the tests ask again and again; as an extension, that each of them gives everything back. */
final class Check implements AfterEachCallback {
    /** Long enough for a busy machine. */
    static final Duration PATIENCE = Duration.ofSeconds(30);

    @Override
    public void afterEach(ExtensionContext context) throws InterruptedException {
        nothingOutstanding();
    }

    /** Soon: what is shared between processes is given back by a thread of the exporter's. */
    static void nothingOutstanding() throws InterruptedException {
        flush();
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (DevExchange.outstanding() != 0 && System.nanoTime() < end) {
            Thread.sleep(1);
        }
        assertEquals(0, DevExchange.outstanding(), () -> DevExchange.ledger().toString());
        assertEquals(0, ReleaseQueue.pending(), "releases that did not come");
    }

    static void flush() throws InterruptedException {
        assertTrue(ReleaseQueue.flush(PATIENCE), "the release queue does not move");
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
