package dev.devexchange;

import static dev.devexchange.Check.refused;
import static dev.devexchange.Streams.NEVER;
import static dev.devexchange.Streams.batch;
import static dev.devexchange.Streams.number;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

/** Streams of batches from Java and from C, to Java and to C threads that are unknown to the JVM. */
@ExtendWith(Check.class)
class BatchStreamTest {
    @Test
    void aSourceThatIsBusyIsNoStreamThatIs() {
        DevExchangeException busy = new DevExchangeException(Status.BUSY, "of the source");
        try (Schema schema = Streams.schema();
                BatchStream stream = BatchStream.of(schema, DeviceType.CPU, () -> {
                    throw busy;
                }, null)) {
            DevExchangeException refusal = refused(Status.CALLBACK, stream::next, "of the source");
            assertSame(busy, refusal.getCause());
        }
    }

    @Test
    void theCodeOfTheDriverIsTold() {
        try (Schema schema = Streams.schema();
                BatchStream stream = BatchStream.of(schema, DeviceType.CPU, () -> {
                    throw new DevExchangeException(Status.DRIVER, 700, "of the driver");
                }, null)) {
            DevExchangeException refusal = assertThrows(DevExchangeException.class, stream::next);
            assertEquals(Status.DRIVER, refusal.status());
            assertEquals(700, refusal.driverCode());
        }
    }

    private static final int EIO = 5;

    @TempDir
    static Path directory;

    @BeforeAll
    static void compile() throws IOException, InterruptedException {
        Streams.compile(directory);
    }

    @AfterEach
    void nothingLives() throws InterruptedException {
        Streams.nothingLives();
        // A release may close another stream, whose release comes after it.
        for (int i = 0; i < 10; i++) {
            Check.flush();
        }
    }

    private static CStruct room(boolean device) {
        return device ? CStruct.arrowDeviceStream() : CStruct.arrowStream();
    }

    private static BatchStream take(CStruct struct, boolean device) {
        return device ? BatchStream.importArrowDevice(struct.address()) : BatchStream.importArrow(struct.address());
    }

    /** A stream of a producer in C. */
    private static BatchStream foreign(boolean device, int batches, int failAt) {
        try (CStruct struct = room(device)) {
            Streams.produce(struct.address(), device, batches, failAt);
            BatchStream stream = take(struct, device);
            assertTrue(struct.isReleased());
            return stream;
        }
    }

    /** The result of a consumer in C, on its own thread: a sum, or minus an error code. */
    private static long consume(BatchStream stream, boolean device, int most) {
        try (CStruct struct = room(device)) {
            if (device) {
                stream.exportArrowDevice(struct.address());
            } else {
                stream.exportArrow(struct.address());
            }
            assertTrue(stream.isClosed());
            return Streams.consume(struct.address(), device, most);
        }
    }

    private static BatchStream stream(BatchStream.Source source, Runnable release) {
        try (Schema schema = Streams.schema()) {
            return BatchStream.of(schema, DeviceType.CPU, source, release);
        }
    }

    @Test
    void aForeignStreamIsPulledToItsEnd() {
        for (boolean device : new boolean[] {false, true}) {
            Ledger.Count before = DevExchange.ledger().streamImports();
            try (BatchStream stream = foreign(device, 3, NEVER);
                    Schema schema = stream.schema()) {
                assertEquals(Format.INT32, schema.root().format());
                assertEquals(DeviceType.CPU, stream.deviceType());
                assertEquals("BatchStream (on cpu: int32)", stream.toString());
                assertEquals(before.live() + 1, DevExchange.ledger().streamImports().live());
                for (int i = 0; i < 3; i++) {
                    assertEquals(i, number(stream.next()));
                }
                assertNull(stream.next());
                assertNull(stream.next());
            }
            assertEquals(before.total() + 1, DevExchange.ledger().streamImports().total());
            assertEquals(before.live(), DevExchange.ledger().streamImports().live());
        }
    }

    @Test
    void loopsAndStreamsOfJava() {
        int next = 0;
        try (BatchStream stream = foreign(false, 4, NEVER)) {
            for (Batch batch : stream) {
                assertEquals(next++, number(batch));
            }
            assertNull(stream.spliterator().trySplit(), "it would pull ahead");
            assertFalse(stream.iterator().hasNext());
            assertThrows(NoSuchElementException.class, () -> stream.iterator().next());
        }
        assertEquals(4, next);
        BatchStream stream = foreign(true, 4, NEVER);
        try (Stream<Batch> batches = stream.stream()) {
            assertEquals(List.of(0, 1), batches.limit(2).map(Streams::number).toList());
        }
        assertTrue(stream.isClosed());
        assertEquals("BatchStream (closed)", stream.toString());
    }

    @Test
    void nothingIsPulledAhead() {
        List<Integer> asked = new ArrayList<>();
        BatchStream.Source source = () -> {
            asked.add(asked.size());
            return batch(asked.size(), null);
        };
        try (Stream<Batch> batches = stream(source, null).stream()) {
            assertEquals(List.of(1, 2), batches.limit(2).map(Streams::number).toList());
        }
        assertEquals(List.of(0, 1), asked);
    }

    @Test
    void batchesOutliveTheirStream() throws InterruptedException {
        Batch kept;
        try (BatchStream stream = foreign(false, 3, NEVER)) {
            stream.next().close();
            kept = stream.next();
        }
        // The array and the schema.
        assertEquals(2, Streams.live());
        assertEquals(1, number(kept));
        Release release = new Release();
        Batch own;
        try (Schema schema = Streams.schema();
                BatchStream stream = BatchStream.of(schema, DeviceType.CPU, Streams.batches(2, release))) {
            own = stream.next();
        }
        release.assertNotYet();
        assertEquals(0, number(own));
        release.assertOnce();
    }

    @Test
    void anErrorInTheMiddleIsNoEnd() {
        for (boolean device : new boolean[] {false, true}) {
            try (BatchStream stream = foreign(device, 5, 2)) {
                Iterator<Batch> batches = stream.iterator();
                assertEquals(0, number(batches.next()));
                assertEquals(1, number(batches.next()));
                for (int i = 0; i < 2; i++) {
                    refused(Status.CALLBACK, batches::hasNext, "no room for batch 2");
                    refused(Status.CALLBACK, stream::next, "no room for batch 2");
                }
            }
        }
    }

    @Test
    void aRefusedImportTakesNothing() {
        refused(Status.NULL_ARGUMENT, () -> BatchStream.importArrow(0), "stream is NULL");
        refused(Status.INVALID_ARGUMENT, () -> BatchStream.importArrow(12), "not aligned");
        try (CStruct struct = CStruct.arrowDeviceStream()) {
            refused(Status.RELEASED, () -> BatchStream.importArrowDevice(struct.address()), "release is NULL");
            Streams.produce(struct.address(), true, 1, NEVER);
            struct.memory().putInt(Records.ARROW_DEVICE_STREAM.at("device_type"), 99);
            refused(Status.DEVICE, () -> BatchStream.importArrowDevice(struct.address()), "99");
            assertFalse(struct.isReleased());
            struct.memory().putInt(Records.ARROW_DEVICE_STREAM.at("device_type"), 1);
            try (BatchStream stream = BatchStream.importArrowDevice(struct.address())) {
                assertEquals(0, number(stream.next()));
            }
        }
    }

    @Test
    void threadsThatTheJvmDoesNotKnowPullAStreamOfJava() throws InterruptedException {
        for (boolean device : new boolean[] {false, true}) {
            Release release = new Release();
            Release released = new Release();
            Ledger.Count before = DevExchange.ledger().streamExports();
            Iterator<Batch> batches = Streams.batches(10, release);
            BatchStream stream = stream(() -> batches.hasNext() ? batches.next() : null, released);
            released.assertNotYet();
            assertEquals(Streams.sum(10), consume(stream, device, NEVER));
            released.assertOnce();
            assertEquals(10, release.count());
            assertEquals(before.total() + 1, DevExchange.ledger().streamExports().total());
            assertEquals(before.live(), DevExchange.ledger().streamExports().live());
        }
    }

    @Test
    void aConsumerMayReleaseInTheMiddle() throws InterruptedException {
        Release release = new Release();
        Release released = new Release();
        Iterator<Batch> batches = Streams.batches(10, release);
        assertEquals(Streams.sum(3), consume(stream(batches::next, released), false, 3));
        released.assertOnce();
        assertEquals(3, release.count());
        Release never = new Release();
        stream(() -> null, never).close();
        never.assertOnce();
    }

    @Test
    void whatASourceThrowsIsWhatItsConsumerIsTold() throws InterruptedException {
        Throwable[] all = {
            new IllegalStateException("no more tea"),
            new IOException("no more milk"),
            new StackOverflowError("too deep"),
            new DevExchangeException(Status.NOT_READY, "not yet"),
            new RuntimeException() {
                private static final long serialVersionUID = 1L;

                @Override
                public String toString() {
                    throw new AssertionError("no text");
                }
            },
            new IOException() {
                private static final long serialVersionUID = 1L;

                @Override
                public String toString() {
                    return getMessage();
                }
            }
        };
        String[] texts = {
            "java.lang.IllegalStateException: no more tea", "java.io.IOException: no more milk", "too deep", "not yet",
            "BatchStreamTest$", "BatchStreamTest$"
        };
        int[] codes = {-EIO, -EIO, -EIO, -22, -EIO, -EIO};
        for (int i = 0; i < all.length; i++) {
            Throwable thrown = all[i];
            Release released = new Release();
            int[] asked = {0};
            BatchStream.Source source = () -> {
                if (asked[0]++ == 0) {
                    return batch(0, null);
                }
                if (thrown instanceof Exception exception) {
                    throw exception;
                }
                throw (Error) thrown;
            };
            assertEquals(codes[i], consume(stream(source, released), i % 2 == 0, NEVER), texts[i]);
            assertTrue(Streams.text().contains(texts[i]), Streams.text());
            assertEquals(2, asked[0]);
            released.assertOnce();
            asked[0] = 0;
            try (BatchStream stream = stream(source, null)) {
                stream.next().close();
                int status = thrown instanceof DevExchangeException ? Status.NOT_READY : Status.CALLBACK;
                assertSame(thrown, refused(status, stream::next, texts[i]).getCause());
                assertSame(thrown, refused(status, stream::next, texts[i]).getCause());
            }
        }
    }

    @Test
    void batchesThatDoNotFitAreRefusedAndClosed() throws InterruptedException {
        Release release = new Release();
        Batch other;
        try (Schema schema = Schema.of(Field.of("x", Format.FLOAT32))) {
            other = Batch.create(schema, Device.CPU, List.of(Node.of(1, null, Direct.floats(1))), release);
        }
        try (BatchStream stream = stream(() -> other, null)) {
            refused(Status.MISMATCH, stream::next, "\"i\"", "\"f\"");
        }
        release.assertOnce();
        Batch closed = batch(0, null);
        closed.close();
        try (BatchStream stream = stream(() -> closed, null)) {
            refused(Status.CLOSED, stream::next, "the batch is closed");
        }
        try (Schema schema = Streams.schema();
                BatchStream stream =
                        BatchStream.of(schema, DeviceType.CPU, Arrays.asList((Batch) null).iterator())) {
            refused(Status.CALLBACK, stream::next, "a batch is null");
        }
    }

    @Test
    void aBatchOfASourceKeepsItsOwnFields() {
        Batch named = ArrayBuilder.of("own", Format.INT32, 1).buffer(null).buffer(Direct.ints(1)).build(Device.CPU);
        try (BatchStream stream = stream(() -> named, null);
                Schema schema = stream.schema()) {
            assertEquals("n", schema.root().name());
            try (Batch batch = stream.next()) {
                assertEquals("own", batch.root().field().name());
            }
        }
    }

    @Test
    void aStreamThatCannotBeMadeTakesNothing() throws InterruptedException {
        Release release = new Release();
        try (Schema schema = Streams.schema()) {
            refused(
                    Status.DEVICE,
                    () -> BatchStream.of(schema, new DeviceType(99), () -> null, release),
                    "99");
            assertThrows(
                    NullPointerException.class,
                    () -> BatchStream.of(schema, DeviceType.CPU, (BatchStream.Source) null, release));
        }
        Schema closed = Streams.schema();
        closed.close();
        refused(
                Status.CLOSED,
                () -> BatchStream.of(closed, DeviceType.CPU, () -> null, release),
                "the schema is closed");
        release.assertNotYet();
        try (BatchStream stream = Streams.stream(1)) {
            refused(Status.NULL_ARGUMENT, () -> stream.exportArrow(0), "out is NULL");
            refused(Status.INVALID_ARGUMENT, () -> stream.exportArrowDevice(12), "not aligned");
            assertEquals(0, number(stream.next()));
        }
    }

    @Test
    void aSourceMayPullOtherStreams() {
        BatchStream inner = Streams.stream(20);
        for (int depth = 0; depth < 8; depth++) {
            BatchStream below = inner;
            inner = stream(below::next, below::close);
        }
        try (CStruct struct = CStruct.arrowStream()) {
            inner.exportArrow(struct.address());
            BatchStream again = BatchStream.importArrow(struct.address());
            assertEquals(Streams.sum(20), consume(stream(again::next, again::close), true, NEVER));
        }
    }

    @Test
    void oneCallAtATime() throws Exception {
        CountDownLatch asked = new CountDownLatch(1);
        CountDownLatch gate = new CountDownLatch(1);
        BatchStream stream = stream(
                () -> {
                    asked.countDown();
                    gate.await();
                    return batch(7, null);
                },
                null);
        FutureTask<Integer> first = new FutureTask<>(() -> number(stream.next()));
        new Thread(first).start();
        asked.await();
        refused(Status.BUSY, stream::next, "one at a time");
        // The call that is running ends first.
        stream.close();
        refused(Status.CLOSED, stream::next, "BatchStream.next");
        gate.countDown();
        assertEquals(7, first.get());
    }

    @Test
    void aHundredThousandBatchesInTheMemoryOfOne() throws InterruptedException {
        int count = 100_000;
        Release release = new Release();
        ByteBuffer values = Direct.ints(1, 2);
        long[] most = {0};
        int[] made = {0};
        try (Schema schema = Streams.schema()) {
            BatchStream stream = stream(
                    () -> {
                        most[0] = Math.max(most[0], Check.outstanding());
                        List<Node> nodes = List.of(Node.of(2, null, values));
                        return made[0]++ == count ? null : Batch.create(schema, Device.CPU, nodes, release);
                    },
                    null);
            assertEquals(3L * count, consume(stream, true, NEVER));
        }
        assertEquals(count, release.count());
        assertTrue(most[0] < 10, "outstanding: " + most[0]);
        int next = 0;
        try (BatchStream stream = foreign(false, count, NEVER)) {
            for (Batch batch : stream) {
                assertEquals(next++, number(batch));
            }
        }
        assertEquals(count, next);
    }

    @Test
    void whoWaitsForAJvmThatEndsIsToldSo() throws IOException, InterruptedException {
        List<String> options = List.of(
                "-Xcheck:jni", "-D" + Streams.PROPERTY + "=" + System.getProperty(Streams.PROPERTY));
        Jvm.End end = Jvm.run(options, Map.of(), AtExit.class);
        assertEquals(0, end.status(), end.output());
        assertTrue(end.output().startsWith("main is done\n"), end.output());
        assertTrue(end.output().endsWith("\n-5: the JVM that gives the batches is exiting\n"), end.output());
    }

    /** Leaves an open stream, and a thread that waits for one, to the end of the process. */
    static final class AtExit {
        private AtExit() {}

        public static void main(String[] arguments) throws InterruptedException {
            System.load(System.getProperty(Streams.PROPERTY));
            CStruct struct = CStruct.arrowStream();
            Field field = Field.of("n", Format.INT32);
            Schema schema = Schema.of(field);
            BatchStream.of(schema, DeviceType.CPU, () -> null, null).exportArrow(struct.address());
            if (!Streams.consumeAtExit(struct.address())) {
                throw new AssertionError();
            }
            CountDownLatch asked = new CountDownLatch(1);
            BatchStream stuck = BatchStream.of(
                    schema,
                    DeviceType.CPU,
                    () -> {
                        asked.countDown();
                        new CountDownLatch(1).await();
                        return null;
                    },
                    null);
            Thread waiting = new Thread(() -> {
                try {
                    stuck.next();
                } catch (DevExchangeException e) {
                    System.out.println(e.getMessage());
                }
            });
            waiting.setDaemon(true);
            waiting.start();
            asked.await();
            System.out.println("main is done");
        }
    }
}
