package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(Check.class)
class ReleaseQueueTest {
    private static Tensor tensor(Runnable release) {
        return Tensor.create(Direct.bytes(1), DType.INT8, new long[] {1}, release);
    }

    @Test
    void callbacksRunInTheOrderOfTheReleases() throws InterruptedException {
        List<Integer> order = Collections.synchronizedList(new ArrayList<>());
        List<Integer> expected = new ArrayList<>();
        for (int i = 0; i < 1000; i++) {
            int number = i;
            expected.add(i);
            tensor(() -> order.add(number)).close();
        }
        Check.flush();
        assertEquals(expected, order);
    }

    /** The thread looks for a while after each release, then sleeps. */
    @Test
    void aReleaseArrivesWhateverTheThreadIsDoing() throws InterruptedException {
        for (int i = 0; i < 3000; i++) {
            CountDownLatch released = new CountDownLatch(1);
            tensor(released::countDown).close();
            assertTrue(released.await(30, TimeUnit.SECONDS), "release " + i);
            long later = System.nanoTime() + i % 300 * 500;
            while (System.nanoTime() < later) {
                Thread.onSpinWait();
            }
        }
    }

    @Test
    void aCallbackThatThrowsIsCountedAndTheNextOneRuns() throws InterruptedException {
        IllegalStateException exception = new IllegalStateException("an exception of a callback");
        AssertionError error = new AssertionError("an error of a callback");
        List<Throwable> logged = Collections.synchronizedList(new ArrayList<>());
        Logger logger = Logger.getLogger("dev.devexchange");
        logger.setFilter(record -> {
            logged.add(record.getThrown());
            return false;
        });
        long before = ReleaseQueue.failures();
        Release after = new Release();
        tensor(() -> {
            throw exception;
        })
                .close();
        tensor(() -> {
            throw error;
        })
                .close();
        tensor(after).close();
        after.assertOnce();
        assertEquals(before + 2, ReleaseQueue.failures());
        assertEquals(List.of(exception, error), logged);
        logger.setFilter(null);
    }

    @Test
    void aLoggerThatFailsStopsNothing() throws InterruptedException {
        Logger logger = Logger.getLogger("dev.devexchange");
        logger.setFilter(record -> {
            throw new IllegalStateException("a logger that fails");
        });
        Release after = new Release();
        tensor(() -> {
            throw new IllegalStateException();
        })
                .close();
        tensor(after).close();
        after.assertOnce();
        logger.setFilter(null);
    }

    @Test
    void aCallbackMayUseTheLibrary() throws InterruptedException {
        Release inner = new Release();
        AtomicReference<Throwable> refusal = new AtomicReference<>();
        tensor(() -> {
            try {
                ReleaseQueue.flush(Check.PATIENCE);
            } catch (IllegalStateException | InterruptedException e) {
                refusal.set(e);
            }
            try (Tensor other = tensor(inner)) {
                Dlpack.release(other.exportShare());
            }
        })
                .close();
        Check.flush();
        inner.assertOnce();
        assertInstanceOf(IllegalStateException.class, refusal.get());
    }

    @Test
    void aFlushThatTakesTooLongSaysSo() throws InterruptedException {
        CountDownLatch gate = new CountDownLatch(1);
        tensor(() -> {
            try {
                gate.await();
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        })
                .close();
        assertFalse(ReleaseQueue.flush(Duration.ofMillis(20)));
        gate.countDown();
        assertTrue(ReleaseQueue.flush(ChronoUnit.FOREVER.getDuration()));
    }

    @Test
    void theThreadSurvivesInterrupts() throws InterruptedException {
        Release first = new Release();
        tensor(first).close();
        first.assertOnce();
        first.thread().interrupt();
        Release second = new Release();
        tensor(second).close();
        second.assertOnce();
        assertTrue(second.thread() == first.thread());
    }
}
