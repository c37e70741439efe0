package dev.devexchange;

import static dev.devexchange.Check.PATIENCE;
import static dev.devexchange.Check.eventually;
import static dev.devexchange.Check.refused;
import static dev.devexchange.Streams.NEVER;
import static dev.devexchange.Streams.batch;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

/** Writers of asynchronous streams, and what their publishers may and may not do. */
class AsyncWriterTest extends AsyncStreams {
    @Test
    void aWriterThatIsClosedTellsItsConsumer() throws Exception {
        long sink = Streams.sink(NEVER, NEVER);
        AsyncWriter unused = writer(sink);
        unused.close();
        unused.close();
        ends(unused, Status.CLOSED, "closed");
        assertEquals(-EPIPE, Streams.awaitSink(sink));
        try (Numbers numbers = new Numbers(1 << 30)) {
            long other = Streams.sink(NEVER, NEVER);
            AsyncWriter writer = writer(other);
            numbers.subscribe(writer);
            eventually(() -> numbers.sent.get() > 3);
            writer.close();
            ends(writer, Status.CLOSED, "closed");
            assertEquals(-EPIPE, Streams.awaitSink(other));
            eventually(() -> numbers.cancelled.get() == 1);
            // A late batch is closed.
            writer.onNext(batch(0, null));
            writer.onComplete();
        }
        // A writer that is closed without a publisher.
        try (AsyncReader reader = AsyncReader.create()) {
            writer(reader).close();
            Collector collector = new Collector();
            reader.subscribe(collector);
            collector.awaitEnd();
            assertEquals(List.of("subscribed", "error"), collector.signals);
            assertEquals(EPIPE, reader.producerError().code());
            refused(Status.CALLBACK, () -> reader.schema(PATIENCE), "went away");
        }
        // Who waits for the schema need not be a subscriber.
        try (AsyncReader reader = AsyncReader.create()) {
            writer(reader).close();
            refused(Status.CALLBACK, () -> reader.schema(PATIENCE), "went away");
        }
    }

    /** Only the last call of the handler, which comes from {@code close}, is on the thread of the program. */
    @Test
    void whoClosesAWriterTellsItsConsumer() throws Exception {
        long sink = Streams.sink(NEVER, NEVER);
        AsyncWriter writer = writer(sink);
        Thread closes = new Thread(writer::close, "it closes");
        closes.start();
        closes.join();
        assertEquals(-EPIPE, Streams.awaitSink(sink));
        assertEquals("it closes", Streams.caller());
        ends(writer, Status.CLOSED, "closed");
    }

    @Test
    void aWriterThatIsCollectedCompletes() throws Exception {
        long sink = Streams.sink(NEVER, NEVER);
        CompletableFuture<Void> completion = writer(sink).completion().toCompletableFuture();
        Check.collected(completion::isDone);
        ExecutionException thrown = assertThrows(ExecutionException.class, completion::get);
        DevExchangeException why = assertInstanceOf(DevExchangeException.class, thrown.getCause());
        assertEquals(Status.CLOSED, why.status());
        assertEquals(-EPIPE, Streams.awaitSink(sink));
    }

    /** Such a consumer is on the thread of the writer, and so are its calls of this library. */
    @Test
    void aConsumerInJavaCanUseTheLibraryBeforeItReadsTheMetadata() throws Exception {
        try (Numbers numbers = new Numbers(2)) {
            long sink = Streams.sinkInJava();
            AsyncWriter writer = writer(sink);
            numbers.subscribe(writer);
            completes(writer);
            assertEquals(Streams.sum(2), Streams.awaitSink(sink));
            assertEquals("number", Streams.text());
        }
    }

    /** Gives what is requested, and the second time one batch more, within the call, before it can be requested. */
    private static final class Generous implements Flow.Subscription {
        final AtomicInteger requests = new AtomicInteger();
        final AtomicInteger cancelled = new AtomicInteger();
        private final Flow.Subscriber<Batch> subscriber;

        Generous(Flow.Subscriber<Batch> subscriber) {
            this.subscriber = subscriber;
        }

        @Override
        public void request(long n) {
            long more = requests.incrementAndGet() == 2 ? 1 : 0;
            for (long i = 0; i < n + more; i++) {
                subscriber.onNext(batch(0, null));
            }
        }

        @Override
        public void cancel() {
            cancelled.incrementAndGet();
        }
    }

    @Test
    void whatAPublisherMayNotDoIsToldToBoth() throws Exception {
        long sink = Streams.sink(NEVER, NEVER);
        try (AsyncWriter writer = writer(sink);
                Numbers second = new Numbers(0)) {
            assertThrows(NullPointerException.class, () -> writer.onSubscribe(null));
            assertThrows(NullPointerException.class, () -> writer.onNext(null));
            assertThrows(NullPointerException.class, () -> writer.onError(null));
            Generous generous = new Generous(writer);
            writer.onSubscribe(generous);
            second.subscribe(writer);
            assertEquals(1, second.cancelled.get());
            ends(writer, Status.NOT_READY, "not requested");
            assertEquals(-EIO, Streams.awaitSink(sink));
            assertTrue(Streams.text().contains("not requested"), Streams.text());
            assertEquals(2, generous.requests.get());
            assertEquals(1, generous.cancelled.get());
        }
        Release release = new Release();
        long other = Streams.sink(NEVER, NEVER);
        try (AsyncWriter strict = writer(other);
                Numbers numbers = new Numbers(0);
                Schema schema = Schema.of(Field.of("x", Format.FLOAT32))) {
            numbers.subscribe(strict);
            eventually(() -> numbers.requested.get() == 1);
            strict.onNext(Batch.create(schema, Device.CPU, List.of(Node.of(1, null, Direct.floats(1))), release));
            ends(strict, Status.MISMATCH, "\"f\"");
            assertEquals(-EIO, Streams.awaitSink(other));
            assertEquals(1, numbers.cancelled.get());
        }
        release.assertOnce();
    }

    /** Gives everything within {@code request}, and records how much is requested at once. */
    private static class AtOnce implements Flow.Subscription {
        final AtomicInteger cancelled = new AtomicInteger();
        final AtomicLong most = new AtomicLong();
        private final AsyncWriter writer;
        private final int count;
        private int given;

        AtOnce(AsyncWriter writer, int count) {
            this.writer = writer;
            this.count = count;
        }

        @Override
        public void request(long n) {
            most.accumulateAndGet(n, Math::max);
            for (long i = 0; i < n && given < count; i++) {
                writer.onNext(batch(given++, null));
            }
            if (given == count) {
                writer.onComplete();
            }
        }

        @Override
        public void cancel() {
            cancelled.incrementAndGet();
        }
    }

    @Test
    void aPublisherThatGivesAtOnceIsAskedInPortions() throws Exception {
        try (AsyncReader reader = AsyncReader.create();
                AsyncWriter writer = writer(reader)) {
            Greedy greedy = new Greedy();
            AtOnce publisher = new AtOnce(writer, 1000);
            reader.subscribe(greedy);
            writer.onSubscribe(publisher);
            greedy.awaitEnd();
            assertEquals(1002, greedy.signals.size());
            assertEquals("complete", greedy.signals.get(1001));
            assertTrue(publisher.most.get() <= 64, publisher.most + " at once");
            completes(writer);
        }
    }

    /** Stays in {@code request} until it is cancelled, and gives nothing. */
    private static final class Stuck extends AtOnce {
        final CountDownLatch inside = new CountDownLatch(1);
        final CountDownLatch told = new CountDownLatch(1);
        final CountDownLatch out = new CountDownLatch(1);

        Stuck(AsyncWriter writer) {
            super(writer, 1);
        }

        @Override
        public void request(long n) {
            inside.countDown();
            try {
                if (told.await(PATIENCE.toSeconds(), TimeUnit.SECONDS)) {
                    out.countDown();
                }
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        }

        @Override
        public void cancel() {
            super.cancel();
            told.countDown();
        }
    }

    @Test
    void cancellingReachesAPublisherThatIsBeingAsked() throws Exception {
        for (boolean byConsumer : new boolean[] {true, false}) {
            try (AsyncReader reader = AsyncReader.create()) {
                AsyncWriter writer = writer(reader);
                Greedy greedy = new Greedy();
                reader.subscribe(greedy);
                Stuck stuck = new Stuck(writer);
                writer.onSubscribe(stuck);
                assertTrue(stuck.inside.await(PATIENCE.toSeconds(), TimeUnit.SECONDS));
                if (byConsumer) {
                    greedy.subscription.cancel();
                } else {
                    writer.close();
                    // The publisher is cancelled before its {@code request} returns.
                    assertEquals(1, stuck.cancelled.get());
                }
                assertTrue(stuck.out.await(PATIENCE.toSeconds() / 2, TimeUnit.SECONDS), "it is not cancelled");
                if (byConsumer) {
                    completes(writer);
                } else {
                    ends(writer, Status.CLOSED, "closed");
                    assertEquals(EPIPE, errorCode(reader, greedy));
                }
                assertEquals(1, stuck.cancelled.get());
            }
        }
    }

    private static int errorCode(AsyncReader reader, Collector collector) throws InterruptedException {
        collector.awaitEnd();
        return reader.producerError().code();
    }

    @Test
    void aWriterThatCannotBeMadeTakesNothing() {
        // A counted schema: the writer's reference to it is given up, too.
        try (Schema schema = imported();
                AsyncReader reader = AsyncReader.create()) {
            refused(Status.NULL_ARGUMENT, () -> AsyncWriter.create(0, schema, DeviceType.CPU), "handler is NULL");
            refused(Status.INVALID_ARGUMENT, () -> AsyncWriter.create(12, schema, DeviceType.CPU), "not aligned");
            long handler = reader.handlerAddress();
            refused(Status.DEVICE, () -> AsyncWriter.create(handler, schema, new DeviceType(99)), "99");
            refused(
                    Status.INVALID_TEXT,
                    () -> AsyncWriter.create(handler, schema, DeviceType.CPU, Map.of("\ud800", ""), null),
                    "not valid Unicode");
            writer(handler).close();
        }
    }

    private static Schema imported() {
        try (Schema made = Streams.schema();
                CStruct struct = CStruct.arrowSchema()) {
            made.exportArrow(struct.address());
            return Schema.importArrow(struct.address());
        }
    }

    @Test
    void aPublisherThatComesTooLateIsCancelled() throws Exception {
        try (AsyncReader reader = AsyncReader.create();
                Numbers numbers = new Numbers(5)) {
            AsyncWriter writer = writer(reader);
            writer.close();
            ends(writer, Status.CLOSED, "closed");
            numbers.subscribe(writer);
            assertEquals(1, numbers.cancelled.get());
            assertEquals(0, numbers.requested.get());
        }
    }
}
