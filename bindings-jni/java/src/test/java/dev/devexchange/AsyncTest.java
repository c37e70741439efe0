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
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Flow;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.logging.Logger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

/** Asynchronous streams between Java and Java, Java and C: order, demand, ends. */
@ExtendWith(Check.class)
class AsyncTest {
    private static final int EIO = 5;
    private static final int ENOSPC = 28;
    private static final int EPIPE = 32;

    /** Held, as otherwise it may be another one when something is logged. */
    private static final Logger LOGGER = Logger.getLogger("dev.devexchange");

    @TempDir
    static Path directory;

    private final List<Throwable> logged = Collections.synchronizedList(new ArrayList<>());

    @BeforeAll
    static void compile() throws IOException, InterruptedException {
        Streams.compile(directory);
    }

    @BeforeEach
    void listen() {
        LOGGER.setFilter(record -> {
            logged.add(record.getThrown());
            return false;
        });
    }

    @AfterEach
    void nothingLives() throws InterruptedException {
        LOGGER.setFilter(null);
        Streams.nothingLives();
    }

    /** Long enough for what must not happen. */
    private static void pause() throws InterruptedException {
        Thread.sleep(30);
    }

    /** Notes every signal, and checks that they come as they should. */
    private static class Collector implements Flow.Subscriber<Batch> {
        final List<String> signals = Collections.synchronizedList(new ArrayList<>());
        final List<String> threads = Collections.synchronizedList(new ArrayList<>());
        final AtomicInteger inside = new AtomicInteger();
        final AtomicLong requested = new AtomicLong();
        final CountDownLatch ended = new CountDownLatch(1);
        volatile Flow.Subscription subscription;
        volatile Throwable error;
        volatile int taken;

        private void enter(String signal) {
            if (inside.getAndIncrement() != 0) {
                signals.add("two at once");
            }
            if (ended.getCount() == 0) {
                signals.add("after the end");
            }
            signals.add(signal);
            threads.add(Thread.currentThread().getName());
        }

        @Override
        public void onSubscribe(Flow.Subscription given) {
            enter("subscribed");
            subscription = given;
            subscribed();
            inside.decrementAndGet();
        }

        @Override
        public void onNext(Batch batch) {
            Map<String, String> metadata = batch.metadata();
            int number = Streams.number(batch);
            enter(number + (metadata.isEmpty() ? "" : " " + metadata));
            if (requested.decrementAndGet() < 0) {
                signals.add("not requested");
            }
            taken++;
            inside.decrementAndGet();
            next(number);
        }

        @Override
        public void onError(Throwable thrown) {
            enter("error");
            error = thrown;
            inside.decrementAndGet();
            ended.countDown();
        }

        @Override
        public void onComplete() {
            enter("complete");
            inside.decrementAndGet();
            ended.countDown();
        }

        void subscribed() {}

        void next(int number) {}

        void request(long n) {
            requested.addAndGet(n);
            subscription.request(n);
        }

        /** As long as signals come, it is only slow. */
        Collector awaitEnd() throws InterruptedException {
            int before = signals.size();
            while (!ended.await(PATIENCE.toSeconds(), TimeUnit.SECONDS)) {
                int come = signals.size();
                assertTrue(come > before, () -> "no end after " + come + " signals: " + last() + "; " + Check.seen());
                before = come;
            }
            return this;
        }

        private List<String> last() {
            return signals.subList(Math.max(0, signals.size() - 10), signals.size());
        }
    }

    /** Requests so many, and one for each that it gets. */
    private static final class Window extends Collector {
        private final int size;

        Window(int size) {
            this.size = size;
        }

        @Override
        void subscribed() {
            request(size);
        }

        @Override
        void next(int number) {
            request(1);
        }
    }

    /** A publisher of numbered batches, on a thread of its own, which notes what is asked of it. */
    private static final class Numbers implements Flow.Publisher<Batch>, Flow.Subscription, AutoCloseable {
        final AtomicLong requested = new AtomicLong();
        final AtomicInteger cancelled = new AtomicInteger();
        final AtomicInteger sent = new AtomicInteger();
        private final ExecutorService thread = Executors.newSingleThreadExecutor();
        private final int count;
        private final Throwable error;
        private Flow.Subscriber<? super Batch> subscriber;

        Numbers(int count) {
            this(count, null);
        }

        Numbers(int count, Throwable error) {
            this.count = count;
            this.error = error;
        }

        @Override
        public void subscribe(Flow.Subscriber<? super Batch> wanted) {
            subscriber = wanted;
            subscriber.onSubscribe(this);
        }

        @Override
        public void request(long n) {
            requested.addAndGet(n);
            thread.execute(() -> {
                for (long i = 0; i < n && sent.get() < count && cancelled.get() == 0; i++) {
                    int number = sent.getAndIncrement();
                    try (Batch made = batch(number, null)) {
                        subscriber.onNext(number % 2 == 0 ? made.share() : made.share(Map.of("number", "" + number)));
                    }
                    if (sent.get() == count && error == null) {
                        subscriber.onComplete();
                    } else if (sent.get() == count) {
                        subscriber.onError(error);
                    }
                }
            });
        }

        @Override
        public void cancel() {
            cancelled.incrementAndGet();
        }

        @Override
        public void close() {
            thread.shutdown();
        }
    }

    private static AsyncWriter writer(AsyncReader reader) {
        try (Schema schema = Streams.schema()) {
            return AsyncWriter.create(reader.handlerAddress(), schema, DeviceType.CPU);
        }
    }

    private static AsyncWriter writer(long handler) {
        try (Schema schema = Streams.schema()) {
            return AsyncWriter.create(handler, schema, DeviceType.CPU);
        }
    }

    private static void completes(AsyncWriter writer) throws Exception {
        try {
            writer.completion().toCompletableFuture().get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
        } catch (TimeoutException e) {
            throw new AssertionError("no end, closed: " + writer.isClosed() + "; " + Check.seen(), e);
        }
    }

    private static void ends(AsyncWriter writer, int status, String text) throws Exception {
        ExecutionException thrown = assertThrows(ExecutionException.class, () -> completes(writer));
        DevExchangeException why = assertInstanceOf(DevExchangeException.class, thrown.getCause());
        assertEquals(Status.name(status), why.statusName());
        assertTrue(why.getMessage().contains(text), why.getMessage());
    }

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

    @Test
    void theSchemaComesBeforeAnyRequest() throws Exception {
        try (AsyncReader reader = AsyncReader.create();
                Numbers numbers = new Numbers(1);
                AsyncWriter writer = writer(reader)) {
            assertNull(reader.deviceType());
            refused(Status.NOT_READY, () -> reader.schema(Duration.ofMillis(1)), "not come in time");
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
                    numbers.subscribe(writer);
                    // ECANCELED: nobody wants the schema any more.
                    ends(writer, Status.CALLBACK, "on_schema returned 125");
                } else {
                    numbers.subscribe(writer);
                    completes(writer);
                }
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
                Thread one = new Thread(window.subscription::cancel);
                one.start();
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
            // One more than it got: what follows may be the end.
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
            // What comes late is closed.
            writer.onNext(batch(0, null));
            writer.onComplete();
        }
        // A handler that nobody wants.
        try (AsyncReader reader = AsyncReader.create()) {
            writer(reader).close();
            Collector collector = new Collector();
            reader.subscribe(collector);
            collector.awaitEnd();
            assertEquals(List.of("subscribed", "error"), collector.signals);
            assertEquals(EPIPE, reader.producerError().code());
            refused(Status.CALLBACK, () -> reader.schema(PATIENCE), "went away");
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

    /** Gives what is requested, and the second time one batch more, within the call: before that can be requested. */
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

    /** Gives within {@code request} all that is asked for, and notes how much that is at once. */
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

    /** Takes all that comes. */
    private static final class Greedy extends Collector {
        @Override
        void subscribed() {
            request(Long.MAX_VALUE);
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
                    // Before the publisher is done with it.
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
        try (Schema schema = Streams.schema();
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

    /** While a producer gives the data of the first batch, behind a schema that nobody has looked at yet. */
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

    @Test
    void waitingForTheSchemaMayTakeForEver() throws Exception {
        try (AsyncReader reader = AsyncReader.create();
                Numbers numbers = new Numbers(0);
                AsyncWriter writer = writer(reader)) {
            numbers.subscribe(writer);
            reader.schema(ChronoUnit.FOREVER.getDuration()).close();
        }
    }

    /** In a JVM without memory for what each of its threads needs. */
    @Test
    void aSubscriberIsToldThatThereIsNoMemory() throws Exception {
        Jvm.End end = Jvm.run(List.of("-XX:MaxDirectMemorySize=1m"), Map.of(), NoMemory.class);
        assertEquals("java.lang.OutOfMemoryError", end.output().strip());
        assertEquals(0, end.status());
    }

    /** Says what the subscriber is told. */
    static final class NoMemory implements Flow.Subscriber<Batch> {
        private final CountDownLatch over = new CountDownLatch(1);

        public static void main(String[] arguments) throws InterruptedException {
            AsyncReader reader = AsyncReader.create();
            ReleaseQueue.flush(Duration.ofSeconds(30));
            List<ByteBuffer> all = new ArrayList<>();
            NoMemory subscriber = new NoMemory();
            try {
                while (all.size() < 1 << 20) {
                    all.add(ByteBuffer.allocateDirect(1024));
                }
            } catch (OutOfMemoryError full) {
                reader.subscribe(subscriber);
            }
            System.exit(subscriber.over.await(30, TimeUnit.SECONDS) ? 0 : 1);
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
        // One that calls at once is fine; one that refuses ends the stream.
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
            Streams.produceAsync(reader.handlerAddress(), NEVER, NEVER);
            reader.subscribe(new Window(1));
            eventually(reader::isClosed);
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

    /** Until the garbage collector has found what nobody closed. */
    private static void collect() throws InterruptedException {
        eventually(() -> {
            System.gc();
            return Check.outstanding() <= 0 && Check.pending() <= 0;
        });
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
