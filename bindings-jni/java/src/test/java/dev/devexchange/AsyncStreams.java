package dev.devexchange;

import static dev.devexchange.Check.PATIENCE;
import static dev.devexchange.Streams.batch;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.logging.Logger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

/** What the tests of asynchronous streams share: subscribers, publishers, and the check that nothing is left. */
@ExtendWith(Check.class)
abstract class AsyncStreams {
    static final int EIO = 5;
    static final int ENOSPC = 28;
    static final int EPIPE = 32;

    /** Kept reachable, because otherwise it might be another logger when something is logged. */
    private static final Logger LOGGER = Logger.getLogger("dev.devexchange");

    @TempDir
    static Path directory;

    final List<Throwable> logged = Collections.synchronizedList(new ArrayList<>());

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

    /** Long enough to see what must not happen. */
    static void pause() throws InterruptedException {
        Thread.sleep(30);
    }

    /** Records every signal, and checks that the signals follow the rules. */
    static class Collector implements Flow.Subscriber<Batch> {
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

        /** As long as signals come, the stream is only slow. */
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

    /** Requests a number of batches, and one more for each that it gets. */
    static final class Window extends Collector {
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

    /** A publisher of numbered batches, on its own thread, which records what is requested. */
    static final class Numbers implements Flow.Publisher<Batch>, Flow.Subscription, AutoCloseable {
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

    static AsyncWriter writer(AsyncReader reader) {
        try (Schema schema = Streams.schema()) {
            return AsyncWriter.create(reader.handlerAddress(), schema, DeviceType.CPU);
        }
    }

    static AsyncWriter writer(long handler) {
        try (Schema schema = Streams.schema()) {
            return AsyncWriter.create(handler, schema, DeviceType.CPU);
        }
    }

    static void completes(AsyncWriter writer) throws Exception {
        try {
            writer.completion().toCompletableFuture().get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
        } catch (TimeoutException e) {
            throw new AssertionError("no end, closed: " + writer.isClosed() + "; " + Check.seen(), e);
        }
    }

    static void ends(AsyncWriter writer, int status, String text) throws Exception {
        ExecutionException thrown = assertThrows(ExecutionException.class, () -> completes(writer));
        DevExchangeException why = assertInstanceOf(DevExchangeException.class, thrown.getCause());
        assertEquals(Status.name(status), why.statusName());
        assertTrue(why.getMessage().contains(text), why.getMessage());
    }

    /** Takes everything that comes. */
    static final class Greedy extends Collector {
        @Override
        void subscribed() {
            request(Long.MAX_VALUE);
        }
    }
}
