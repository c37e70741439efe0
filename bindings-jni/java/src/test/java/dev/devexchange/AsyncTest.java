package dev.devexchange;

import static dev.devexchange.Check.PATIENCE;
import static dev.devexchange.Check.eventually;
import static dev.devexchange.Check.refused;
import static dev.devexchange.Streams.NEVER;
import static dev.devexchange.Streams.batch;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** Asynchronous streams between Java and Java, Java and C: order, demand, ends. */
class AsyncTest extends AsyncStreams {
    @Test
    void fromJavaToJava() throws Exception {
        for (int window : new int[] {1, 3, 100}) {
            try (Numbers numbers = new Numbers(5);
                    AsyncReader reader = AsyncReader.create(true, null);
                    Schema schema = Streams.schema();
                    AsyncWriter writer = AsyncWriter.create(
                            reader.handlerAddress(), schema, DeviceType.CPU, Map.of("city", "Köln"), null)) {
                Window window1 = new Window(window);
                reader.subscribe(window1);
                numbers.subscribe(writer);
                window1.awaitEnd();
                assertEquals(
                        List.of("subscribed", "0", "1 {number=1}", "2", "3 {number=3}", "4", "complete"),
                        window1.signals);
                assertTrue(
                        window1.threads.stream().allMatch(name -> name.startsWith("devexchange-worker-")),
                        window1.threads.toString());
                assertEquals(Map.of("city", "Köln"), reader.metadata());
                assertEquals(DeviceType.CPU, reader.deviceType());
                assertNull(reader.producerError());
                try (Schema come = reader.schema(Duration.ZERO)) {
                    assertEquals(Format.INT32, come.root().format());
                }
                completes(writer);
                assertEquals(0, numbers.cancelled.get());
                assertTrue(writer.isClosed() && reader.isClosed());
            }
        }
    }

    /** The text of the specification has no such member. */
    @Test
    void theMetadataOfAProducerIsOnlyReadIfItFollowsAbiH() throws Exception {
        try (AsyncReader reader = AsyncReader.create(false, null);
                Numbers numbers = new Numbers(1);
                Schema schema = Streams.schema();
                AsyncWriter writer = AsyncWriter.create(
                        reader.handlerAddress(), schema, DeviceType.CPU, Map.of("city", "Köln"), null)) {
            numbers.subscribe(writer);
            reader.schema(PATIENCE).close();
            assertEquals(Map.of(), reader.metadata());
        }
    }

    @Test
    void theSchemaComesBeforeAnyRequest() throws Exception {
        try (AsyncReader reader = AsyncReader.create();
                Numbers numbers = new Numbers(1);
                AsyncWriter writer = writer(reader)) {
            assertNull(reader.deviceType());
            refused(Status.NOT_READY, () -> reader.schema(Duration.ofMillis(1)), "timeout is PT0.001S: the schema has not");
            numbers.subscribe(writer);
            try (Schema come = reader.schema(PATIENCE)) {
                assertEquals("n", come.root().name());
            }
            assertEquals(0, numbers.requested.get());
        }
    }

    @Test
    void whatIsRequestedIsWhatIsAskedFor() throws Exception {
        try (Numbers numbers = new Numbers(100);
                AsyncReader reader = AsyncReader.create();
                AsyncWriter writer = writer(reader)) {
            numbers.subscribe(writer);
            Collector collector = new Collector();
            reader.subscribe(collector);
            eventually(() -> collector.subscription != null);
            pause();
            assertEquals(0, numbers.requested.get());
            int sum = 0;
            for (int n : new int[] {2, 1, 5}) {
                sum += n;
                collector.request(n);
                int expected = sum;
                eventually(() -> collector.taken == expected);
                pause();
                assertEquals(sum, numbers.requested.get());
                assertEquals(sum, numbers.sent.get());
                assertEquals(sum, collector.taken);
            }
            collector.subscription.cancel();
            eventually(() -> numbers.cancelled.get() == 1);
            completes(writer);
        }
    }

    @Test
    void moreThanCanBeCountedMayBeRequested() throws Exception {
        try (Numbers numbers = new Numbers(20);
                AsyncReader reader = AsyncReader.create();
                AsyncWriter writer = writer(reader)) {
            Collector greedy = new Collector() {
                @Override
                void subscribed() {
                    requested.set(Long.MAX_VALUE / 2);
                    subscription.request(Long.MAX_VALUE);
                    subscription.request(Long.MAX_VALUE);
                }

                @Override
                void next(int number) {
                    subscription.request(Long.MAX_VALUE);
                }
            };
            reader.subscribe(greedy);
            numbers.subscribe(writer);
            greedy.awaitEnd();
            assertEquals(22, greedy.signals.size(), greedy.signals.toString());
            assertEquals("complete", greedy.signals.get(21));
            completes(writer);
        }
    }

    @Test
    void cancelAtEveryStep() throws Exception {
        for (int step = -2; step < 6; step++) {
            int at = step;
            try (Numbers numbers = new Numbers(100);
                    AsyncReader reader = AsyncReader.create();
                    AsyncWriter writer = writer(reader)) {
                Collector collector = new Collector() {
                    @Override
                    void subscribed() {
                        if (at == -2) {
                            subscription.cancel();
                        }
                        request(3);
                        if (at == -1) {
                            subscription.cancel();
                        }
                    }

                    @Override
                    void next(int number) {
                        request(1);
                        if (number == at) {
                            subscription.cancel();
                            subscription.cancel();
                            subscription.request(1);
                        }
                    }
                };
                reader.subscribe(collector);
                if (at < 0) {
                    eventually(reader::isClosed);
                }
                numbers.subscribe(writer);
                completes(writer);
                assertEquals(1, numbers.cancelled.get());
                assertEquals(Math.max(0, at + 1), collector.taken, collector.signals.toString());
                assertEquals(1 + collector.taken, collector.signals.size(), collector.signals.toString());
                collector.subscription.cancel();
                collector.subscription.request(-1);
                pause();
                assertEquals(1, collector.ended.getCount());
            }
        }
    }

    @Test
    void cancelOnAnotherThread() throws Exception {
        for (int round = 0; round < 50; round++) {
            try (Numbers numbers = new Numbers(1 << 30);
                    AsyncReader reader = AsyncReader.create();
                    AsyncWriter writer = writer(reader)) {
                Window window = new Window(4);
                reader.subscribe(window);
                numbers.subscribe(writer);
                int enough = 1 + round % 5;
                eventually(() -> window.subscription != null && window.taken >= enough);
                Threads one = Threads.start(1, window.subscription::cancel);
                window.subscription.cancel();
                one.join();
                completes(writer);
                assertEquals(1, numbers.cancelled.get());
                assertEquals(1, window.ended.getCount());
            }
        }
    }

    @Test
    void anErrorComesAfterTheBatchesBeforeIt() throws Exception {
        try (Numbers numbers = new Numbers(3, new IllegalStateException("no more tea"));
                AsyncReader reader = AsyncReader.create();
                AsyncWriter writer = writer(reader)) {
            Window window = new Window(10);
            reader.subscribe(window);
            numbers.subscribe(writer);
            window.awaitEnd();
            assertEquals(List.of("subscribed", "0", "1 {number=1}", "2", "error"), window.signals);
            DevExchangeException error = assertInstanceOf(DevExchangeException.class, window.error);
            assertEquals(Status.CALLBACK, error.status());
            assertTrue(error.getMessage().contains("java.lang.IllegalStateException: no more tea"));
            assertEquals(new AsyncReader.ProducerError(EIO, Map.of()), reader.producerError());
            completes(writer);
        }
    }

    @Test
    void aProducerInC() throws Exception {
        try (AsyncReader reader = AsyncReader.create()) {
            Streams.produceAsync(reader.handlerAddress(), 4, NEVER);
            Window window = new Window(2);
            reader.subscribe(window);
            window.awaitEnd();
            assertEquals(List.of("subscribed", "0 {k=0}", "1 {k=1}", "2 {k=2}", "3 {k=3}", "complete"), window.signals);
        }
        try (AsyncReader reader = AsyncReader.create()) {
            Streams.produceAsync(reader.handlerAddress(), 4, 2);
            Window window = new Window(10);
            reader.subscribe(window);
            window.awaitEnd();
            assertEquals(List.of("subscribed", "0 {k=0}", "1 {k=1}", "error"), window.signals);
            assertTrue(window.error.getMessage().contains("no room"), window.error.getMessage());
            assertEquals(new AsyncReader.ProducerError(ENOSPC, Map.of("k", "2")), reader.producerError());
        }
        try (AsyncReader reader = AsyncReader.create()) {
            Streams.produceAsync(reader.handlerAddress(), 4, 0);
            Window window = new Window(10);
            reader.subscribe(window);
            window.awaitEnd();
            assertEquals(List.of("subscribed", "error"), window.signals);
            assertEquals(new AsyncReader.ProducerError(0, Map.of("k", "0")), reader.producerError());
        }
        for (int taken = 0; taken < 3; taken++) {
            try (AsyncReader reader = AsyncReader.create()) {
                Streams.produceAsync(reader.handlerAddress(), NEVER, NEVER);
                int last = taken;
                Collector collector = new Collector() {
                    @Override
                    void subscribed() {
                        request(10);
                    }

                    @Override
                    void next(int number) {
                        if (number == last) {
                            subscription.cancel();
                        }
                    }
                };
                reader.subscribe(collector);
                eventually(() -> collector.taken == last + 1);
            }
            Streams.nothingLives();
        }
    }

    @Test
    void aConsumerInC() throws Exception {
        try (Numbers numbers = new Numbers(100)) {
            long sink = Streams.sink(NEVER, NEVER);
            AsyncWriter writer = writer(sink);
            numbers.subscribe(writer);
            completes(writer);
            assertEquals(Streams.sum(100), Streams.awaitSink(sink));
            // One more than it got: the next signal may be the end.
            assertTrue(numbers.requested.get() <= 101);
        }
        try (Numbers numbers = new Numbers(100)) {
            long sink = Streams.sink(NEVER, 4);
            AsyncWriter writer = writer(sink);
            numbers.subscribe(writer);
            completes(writer);
            assertEquals(Streams.sum(5), Streams.awaitSink(sink));
            assertEquals(1, numbers.cancelled.get());
        }
        for (int refused : new int[] {-1, 0, 3}) {
            try (Numbers numbers = new Numbers(100)) {
                long sink = Streams.sink(refused, NEVER);
                AsyncWriter writer = writer(sink);
                numbers.subscribe(writer);
                ends(writer, Status.CALLBACK, refused < 0 ? "on_schema returned 1" : "on_next_task returned 1");
                assertEquals(Streams.sum(Math.max(0, refused)), Streams.awaitSink(sink));
                assertEquals(1, numbers.cancelled.get());
            }
        }
        try (Numbers numbers = new Numbers(1, new IOException("no more milk"))) {
            long sink = Streams.sink(NEVER, NEVER);
            AsyncWriter writer = writer(sink);
            numbers.subscribe(writer);
            completes(writer);
            assertEquals(-EIO, Streams.awaitSink(sink));
            assertEquals("java.io.IOException: no more milk", Streams.text());
        }
    }

    @Test
    void signalsComeOnTheExecutorOfTheUser() throws Exception {
        ExecutorService executor = Executors.newSingleThreadExecutor(run -> new Thread(run, "of the user"));
        try (Numbers numbers = new Numbers(5);
                AsyncReader reader = AsyncReader.create(false, executor);
                AsyncWriter writer = writer(reader)) {
            Window window = new Window(2);
            reader.subscribe(window);
            numbers.subscribe(writer);
            window.awaitEnd();
            assertEquals(7, window.signals.size());
            assertTrue(window.threads.stream().allMatch("of the user"::equals), window.threads.toString());
            completes(writer);
            Window second = new Window(1);
            reader.subscribe(second);
            second.awaitEnd();
            assertEquals(List.of("subscribed", "error"), second.signals);
            assertEquals(List.of("of the user", "of the user"), second.threads);
        }
        executor.shutdown();
        // An executor that runs tasks at once is fine; one that rejects them ends the stream.
        try (Numbers numbers = new Numbers(5);
                AsyncReader reader = AsyncReader.create(false, Runnable::run);
                Schema schema = Streams.schema();
                AsyncWriter writer = AsyncWriter.create(
                        reader.handlerAddress(), schema, DeviceType.CPU, Map.of(), Runnable::run)) {
            Window window = new Window(2);
            reader.subscribe(window);
            numbers.subscribe(writer);
            window.awaitEnd();
            assertEquals("complete", window.signals.get(6));
            completes(writer);
        }
        try (AsyncReader reader = AsyncReader.create(false, executor)) {
            long handler = reader.handlerAddress();
            reader.subscribe(new Window(1));
            eventually(reader::isClosed);
            Streams.produceAsync(handler, NEVER, NEVER);
            assertInstanceOf(RejectedExecutionException.class, logged.get(0));
            refused(Status.CLOSED, () -> reader.schema(PATIENCE), "executor");
        }
        long sink = Streams.sink(NEVER, NEVER);
        try (Numbers numbers = new Numbers(5);
                Schema schema = Streams.schema()) {
            AsyncWriter writer = AsyncWriter.create(sink, schema, DeviceType.CPU, Map.of(), executor);
            numbers.subscribe(writer);
            assertEquals(-EPIPE, Streams.awaitSink(sink));
            CompletionException thrown = assertThrows(
                    CompletionException.class, () -> writer.completion().toCompletableFuture().join());
            assertInstanceOf(RejectedExecutionException.class, thrown.getCause());
            assertEquals(1, numbers.cancelled.get());
            Release late = new Release();
            writer.onNext(batch(0, late));
            late.assertOnce();
        }
    }

    @Test
    void manyBatchesInTheMemoryOfFew() throws Exception {
        int count = 20_000;
        try (Numbers numbers = new Numbers(count);
                AsyncReader reader = AsyncReader.create();
                AsyncWriter writer = writer(reader)) {
            long before = DevExchange.ledger().batchImports().live();
            long[] most = {0};
            Collector collector = new Collector() {
                @Override
                void subscribed() {
                    request(16);
                }

                @Override
                void next(int number) {
                    most[0] = Math.max(most[0], DevExchange.ledger().batchImports().live() - before);
                    request(1);
                }
            };
            reader.subscribe(collector);
            numbers.subscribe(writer);
            collector.awaitEnd();
            assertEquals(count + 2, collector.signals.size());
            assertTrue(most[0] <= 16, "live: " + most[0]);
            completes(writer);
        }
    }

    @Test
    void whatIsDroppedIsReleased() throws Exception {
        for (int i = 0; i < 20; i++) {
            writer(AsyncReader.create());
            AsyncReader.create();
        }
        collect();
    }

    @Test
    void nobodyDropsAStreamThatIsRunning() throws Exception {
        CountDownLatch end = new CountDownLatch(1);
        AtomicInteger count = new AtomicInteger();
        subscribeAndForget(end, count);
        assertTrue(end.await(PATIENCE.toSeconds(), TimeUnit.SECONDS));
        assertEquals(50, count.get());
        collect();
    }

    /** Waits until the garbage collector has found what nobody closed. */
    private static void collect() throws InterruptedException {
        Check.collected(() -> Check.outstanding() <= 0 && Check.pending() <= 0);
    }

    private static void subscribeAndForget(CountDownLatch end, AtomicInteger count) {
        AsyncReader reader = AsyncReader.create();
        Streams.produceAsync(reader.handlerAddress(), 50, NEVER);
        reader.subscribe(new Collector() {
            @Override
            void subscribed() {
                request(1);
            }

            @Override
            void next(int number) {
                count.incrementAndGet();
                if (number % 10 == 0) {
                    System.gc();
                }
                request(1);
            }

            @Override
            public void onComplete() {
                super.onComplete();
                end.countDown();
            }
        });
    }
}
