package dev.devexchange;

import static dev.devexchange.Check.PATIENCE;
import static dev.devexchange.Check.eventually;
import static dev.devexchange.Check.refused;
import static dev.devexchange.Streams.NEVER;
import static dev.devexchange.Streams.batch;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Readers of asynchronous streams, and what their subscribers may and may not do. */
class AsyncReaderTest extends AsyncStreams {
    @Test
    void aSubscriberMayWaitForTheSchemaBeforeAnythingElse() throws Exception {
        try (Numbers numbers = new Numbers(1);
                AsyncReader reader = AsyncReader.create();
                AsyncWriter writer = writer(reader)) {
            CountDownLatch waits = new CountDownLatch(1);
            Collector window = new Collector() {
                @Override
                void subscribed() {
                    waits.countDown();
                    try (Schema schema = reader.schema(PATIENCE)) {
                        assertEquals("n", schema.root().name());
                        request(2);
                    } catch (InterruptedException e) {
                        throw new AssertionError(e);
                    }
                }
            };
            reader.subscribe(window);
            waits.await();
            numbers.subscribe(writer);
            window.awaitEnd();
            assertEquals("complete", window.signals.get(window.signals.size() - 1));
        }
    }

    @Test
    void requestsThatCannotBeAreErrors() throws Exception {
        for (long n : new long[] {0, -1, Long.MIN_VALUE}) {
            try (Numbers numbers = new Numbers(100);
                    AsyncReader reader = AsyncReader.create();
                    AsyncWriter writer = writer(reader)) {
                Collector collector = new Collector() {
                    @Override
                    void subscribed() {
                        request(1);
                    }

                    @Override
                    void next(int number) {
                        subscription.request(n);
                    }
                };
                reader.subscribe(collector);
                numbers.subscribe(writer);
                collector.awaitEnd();
                assertEquals(List.of("subscribed", "0", "error"), collector.signals);
                assertInstanceOf(IllegalArgumentException.class, collector.error);
                assertTrue(collector.error.getMessage().contains("n is " + n));
                completes(writer);
                assertEquals(1, numbers.cancelled.get());
            }
        }
    }

    /** The error is not that the stream was cancelled, which is only the consequence. */
    @Test
    void whoWaitsForTheSchemaIsToldWhatFailedBeforeIt() throws Exception {
        try (Numbers numbers = new Numbers(1);
                AsyncReader reader = AsyncReader.create();
                AsyncWriter writer = writer(reader)) {
            Collector collector = new Collector() {
                @Override
                void subscribed() {
                    subscription.request(-1);
                }
            };
            reader.subscribe(collector);
            collector.awaitEnd();
            DevExchangeException told =
                    assertThrows(DevExchangeException.class, () -> reader.schema(Duration.ofSeconds(60)));
            assertTrue(told.getMessage().contains("n is -1"), told.getMessage());
            numbers.subscribe(writer);
            completes(writer);
        }
    }

    @Test
    void oneSubscriberIsServed() throws Exception {
        try (Numbers numbers = new Numbers(2);
                AsyncReader reader = AsyncReader.create();
                AsyncWriter writer = writer(reader)) {
            assertThrows(NullPointerException.class, () -> reader.subscribe(null));
            Window first = new Window(1);
            reader.subscribe(first);
            Window second = new Window(1);
            reader.subscribe(second);
            second.awaitEnd();
            assertEquals(List.of("subscribed", "error"), second.signals);
            assertInstanceOf(IllegalStateException.class, second.error);
            numbers.subscribe(writer);
            first.awaitEnd();
            assertEquals(List.of("subscribed", "0", "1 {number=1}", "complete"), first.signals);
            Window late = new Window(1);
            reader.subscribe(late);
            assertInstanceOf(IllegalStateException.class, late.awaitEnd().error);
            refused(Status.CLOSED, reader::handlerAddress, "AsyncReader.handlerAddress");
        }
        try (AsyncReader reader = AsyncReader.create()) {
            AsyncWriter writer = writer(reader);
            refused(Status.INVALID_ARGUMENT, reader::handlerAddress, "handed out already");
            writer.close();
        }
    }

    @Test
    void aSubscriberThatThrowsCancels() throws Exception {
        for (int at = -1; at < 2; at++) {
            int fails = at;
            RuntimeException failure = new RuntimeException("a subscriber fails");
            try (Numbers numbers = new Numbers(100);
                    AsyncReader reader = AsyncReader.create();
                    AsyncWriter writer = writer(reader)) {
                Collector collector = new Collector() {
                    @Override
                    void subscribed() {
                        request(5);
                        next(-1);
                    }

                    @Override
                    void next(int number) {
                        if (number == fails) {
                            throw failure;
                        }
                    }
                };
                reader.subscribe(collector);
                eventually(() -> collector.subscription != null);
                numbers.subscribe(writer);
                eventually(() -> numbers.cancelled.get() == 1);
                assertEquals(fails + 1, collector.taken);
                assertEquals(1, collector.ended.getCount());
                assertTrue(logged.contains(failure));
            }
        }
    }

    @Test
    void aSecondSubscriberThatThrowsIsLogged() throws Exception {
        RuntimeException failure = new RuntimeException("a second subscriber fails");
        try (AsyncReader reader = AsyncReader.create()) {
            writer(reader).close();
            reader.subscribe(new Window(1));
            reader.subscribe(new Collector() {
                @Override
                void subscribed() {
                    throw failure;
                }
            });
            eventually(() -> logged.contains(failure));
        }
    }

    @Test
    void aReaderThatIsClosedTellsItsSubscriber() throws Exception {
        try (Numbers numbers = new Numbers(1 << 30)) {
            AsyncReader reader = AsyncReader.create();
            AsyncWriter writer = writer(reader);
            Window window = new Window(2);
            reader.subscribe(window);
            numbers.subscribe(writer);
            eventually(() -> window.taken > 3);
            reader.close();
            reader.close();
            window.awaitEnd();
            assertEquals(Status.CLOSED, ((DevExchangeException) window.error).status());
            completes(writer);
            assertEquals(1, numbers.cancelled.get());
            refused(Status.CLOSED, () -> reader.schema(Duration.ZERO), "closed");
        }
        AsyncReader closed = AsyncReader.create();
        closed.close();
        Window window = new Window(1);
        closed.subscribe(window);
        window.awaitEnd();
        assertEquals(List.of("subscribed", "error"), window.signals);
        refused(Status.CLOSED, () -> closed.schema(PATIENCE), "the reader is closed");
    }

    @Test
    void aReaderThatIsClosedAfterItsEndHasNoSchema() throws Exception {
        try (Numbers numbers = new Numbers(1)) {
            AsyncReader reader = AsyncReader.create();
            AsyncWriter writer = writer(reader);
            Window window = new Window(2);
            reader.subscribe(window);
            numbers.subscribe(writer);
            window.awaitEnd();
            completes(writer);
            reader.schema(PATIENCE).close();
            reader.close();
            refused(Status.CLOSED, () -> reader.schema(PATIENCE), "AsyncReader: the reader is closed");
        }
    }

    /**
     * Closes the reader while a producer gives the data of the first batch, after a schema that nobody has read yet.
     */
    @Test
    void aReaderThatIsClosedWhileABatchComesGivesAllOfIt() throws Exception {
        AsyncReader reader = AsyncReader.create();
        Streams.setGate(true);
        Collector collector = new Collector() {
            @Override
            void subscribed() {
                request(1);
                Streams.produceAsync(reader.handlerAddress(), NEVER, NEVER);
                try {
                    // The producer, its schema and a task.
                    eventually(() -> Streams.live() == 3);
                    pause();
                } catch (InterruptedException e) {
                    throw new AssertionError(e);
                }
            }
        };
        reader.subscribe(collector);
        eventually(Streams::isAtGate);
        reader.close();
        Streams.setGate(false);
        collector.awaitEnd();
        assertEquals(List.of("subscribed", "0 {k=0}", "error"), collector.signals);
        assertEquals(Status.CLOSED, ((DevExchangeException) collector.error).status());
        assertEquals(List.of(), logged);
    }

    @Test
    void aBatchThatComesAfterItsSubscriberCancelledIsClosed() throws Exception {
        try (AsyncReader reader = AsyncReader.create()) {
            Streams.setGate(true);
            Collector collector = new Collector() {
                @Override
                void subscribed() {
                    request(1);
                }
            };
            reader.subscribe(collector);
            Streams.produceAsync(reader.handlerAddress(), NEVER, NEVER);
            eventually(Streams::isAtGate);
            collector.subscription.cancel();
            Streams.setGate(false);
            eventually(reader::isClosed);
            assertEquals(List.of("subscribed"), collector.signals);
        }
    }

    @Test
    void aProducerIsCancelledWhileTheSubscriberIsBusy() throws Exception {
        for (boolean invalid : new boolean[] {false, true}) {
            try (Numbers numbers = new Numbers(100);
                    AsyncReader reader = AsyncReader.create();
                    AsyncWriter writer = writer(reader)) {
                CountDownLatch told = new CountDownLatch(1);
                Collector collector = new Collector() {
                    @Override
                    void subscribed() {
                        request(2);
                    }

                    @Override
                    void next(int number) {
                        if (invalid) {
                            subscription.request(0);
                        } else {
                            subscription.cancel();
                        }
                        try {
                            eventually(() -> numbers.cancelled.get() == 1);
                            told.countDown();
                        } catch (InterruptedException e) {
                            throw new AssertionError(e);
                        }
                    }
                };
                reader.subscribe(collector);
                numbers.subscribe(writer);
                completes(writer);
                assertTrue(told.await(PATIENCE.toSeconds(), TimeUnit.SECONDS), "the producer was told afterwards");
            }
        }
    }

    @Test
    void theSchemaIsThereWithTheFirstBatch() throws Exception {
        for (int round = 0; round < 200; round++) {
            try (AsyncReader reader = AsyncReader.create()) {
                Collector collector = new Collector() {
                    @Override
                    void subscribed() {
                        request(2);
                        Streams.produceAsync(reader.handlerAddress(), 1, NEVER);
                    }

                    @Override
                    void next(int number) {
                        try {
                            reader.schema(Duration.ZERO).close();
                        } catch (InterruptedException e) {
                            throw new AssertionError(e);
                        }
                    }
                };
                reader.subscribe(collector);
                collector.awaitEnd();
                assertEquals(List.of("subscribed", "0 {k=0}", "complete"), collector.signals);
            }
        }
    }

    /** Reactive streams, rule 3.13. */
    @Test
    void aReaderKeepsNoSubscriberThatCancelled() throws Exception {
        try (AsyncReader reader = AsyncReader.create()) {
            writer(reader).close();
            WeakReference<Object> subscriber = cancelled(reader);
            Check.collected(() -> subscriber.refersTo(null));
            assertTrue(reader.isClosed());
        }
    }

    private static WeakReference<Object> cancelled(AsyncReader reader) {
        Collector collector = new Collector() {
            @Override
            void subscribed() {
                subscription.cancel();
            }
        };
        reader.subscribe(collector);
        return new WeakReference<>(collector);
    }

    /** A producer whose {@code cancel} waits must not keep events from others. */
    @Test
    void theThreadOfTheEventsCancelsNoProducer() throws Exception {
        for (int round = 0; round < 4000; round++) {
            AsyncReader reader = AsyncReader.create();
            Streams.produceAsync(reader.handlerAddress(), NEVER, NEVER);
            // About as long as it takes until the event of the schema is there.
            long end = System.nanoTime() + round % 200 * 500;
            while (System.nanoTime() < end) {
                Thread.onSpinWait();
            }
            reader.close();
            Streams.nothingLives();
            assertFalse(Streams.caller().startsWith("devexchange-eve"), "round " + round);
        }
    }

    @Test
    void waitingForTheSchemaMayTakeForEver() throws Exception {
        try (AsyncReader reader = AsyncReader.create();
                Numbers numbers = new Numbers(0);
                AsyncWriter writer = writer(reader)) {
            numbers.subscribe(writer);
            reader.schema(ChronoUnit.FOREVER.getDuration()).close();
        }
    }

    /** A JVM without memory for what each of its threads needs. */
    @Test
    void aSubscriberIsToldThatThereIsNoMemory() throws Exception {
        Jvm.End end = Jvm.run(List.of("-XX:MaxDirectMemorySize=1m"), Map.of(), NoMemory.class);
        assertEquals("java.lang.OutOfMemoryError", end.output().strip());
        assertEquals(0, end.status());
    }

    /** Prints what the subscriber is told. */
    static final class NoMemory implements Flow.Subscriber<Batch> {
        private final CountDownLatch over = new CountDownLatch(1);

        public static void main(String[] arguments) throws InterruptedException {
            AsyncReader reader = AsyncReader.create();
            ReleaseQueue.flush(Duration.ofMinutes(2));
            List<ByteBuffer> all = new ArrayList<>();
            NoMemory subscriber = new NoMemory();
            try {
                while (all.size() < 1 << 20) {
                    all.add(ByteBuffer.allocateDirect(1024));
                }
            } catch (OutOfMemoryError full) {
                reader.subscribe(subscriber);
            }
            System.exit(subscriber.over.await(2, TimeUnit.MINUTES) ? 0 : 1);
        }

        @Override
        public void onSubscribe(Flow.Subscription subscription) {}

        @Override
        public void onNext(Batch batch) {}

        @Override
        public void onError(Throwable thrown) {
            System.out.println(thrown.getClass().getName());
            over.countDown();
        }

        @Override
        public void onComplete() {}
    }
}
