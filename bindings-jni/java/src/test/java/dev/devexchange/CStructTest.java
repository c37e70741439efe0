package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

@ExtendWith(Check.class)
class CStructTest {
    @BeforeAll
    static void compile(@TempDir Path directory) throws IOException, InterruptedException {
        Streams.compile(directory);
    }

    @Test
    void aNewStructIsZeroAndHoldsNothing() {
        for (CStruct struct : List.of(CStruct.arrowArray(), CStruct.arrowSchema(), CStruct.arrowDeviceArray())) {
            assertTrue(struct.isReleased());
            assertEquals(0, struct.address() % 16);
            for (int i = 0; i < struct.memory().capacity(); i++) {
                assertEquals(0, struct.memory().get(i));
            }
            struct.release();
            assertFalse(struct.isClosed());
            struct.close();
            assertTrue(struct.isClosed());
        }
    }

    @Test
    void closingReleasesWhatIsStillThere() throws InterruptedException {
        Release release = new Release();
        try (Schema schema = Schema.of(Field.of("x", Format.INT8));
                CStruct array = CStruct.arrowArray();
                CStruct fields = CStruct.arrowSchema()) {
            schema.exportArrow(fields.address());
            Batch.create(schema, Device.CPU, List.of(Node.of(1, null, Direct.bytes(1))), release)
                    .exportMove(array.address());
            assertFalse(array.isReleased());
            release.assertNotYet();
        }
        release.assertOnce();
    }

    @Test
    void aReleasedStructCanBeFilledAgain() throws InterruptedException {
        try (Schema schema = Schema.of(Field.of("x", Format.INT8));
                CStruct array = CStruct.arrowDeviceArray()) {
            for (int i = 0; i < 3; i++) {
                Release release = new Release();
                ByteBuffer memory = Direct.bytes(i);
                Batch.create(schema, Device.CPU, List.of(Node.of(1, null, memory)), release)
                        .exportMoveDevice(array.address());
                array.release();
                assertTrue(array.isReleased());
                release.assertOnce();
            }
        }
    }

    /** The second release finds nothing to release, whenever it comes. */
    @Test
    void twoThreadsReleaseOnce() throws Exception {
        try (CStruct array = CStruct.arrowArray()) {
            releaseTwice(array, false);
            releaseTwice(array, true);
        }
    }

    private static void releaseTwice(CStruct array, boolean closes) throws Exception {
        Streams.setGate(true);
        Streams.holdArray(array.address());
        ExecutorService threads = Executors.newFixedThreadPool(2);
        Future<?> first = threads.submit(array::release);
        Check.eventually(Streams::isAtGate);
        Future<?> second = threads.submit(array::release);
        Thread.sleep(30);
        assertFalse(second.isDone());
        if (closes) {
            array.close();
            ExecutionException refusal = assertThrows(ExecutionException.class, second::get);
            assertTrue(refusal.getMessage().contains("CStruct.release: the struct is closed"), refusal.getMessage());
        }
        Streams.setGate(false);
        first.get();
        if (!closes) {
            second.get();
            assertTrue(array.isReleased());
        }
        threads.shutdown();
        assertEquals(0, Streams.live());
    }

    @Test
    void manyReleasesAtOnceAreOne() throws Exception {
        ExecutorService thread = Executors.newSingleThreadExecutor();
        try (Batch batch = Streams.batch(1, null);
                CStruct array = CStruct.arrowArray()) {
            long before = DevExchange.ledger().batchExports().live();
            for (int i = 0; i < 2000; i++) {
                batch.exportShare(array.address());
                Future<?> other = thread.submit(array::release);
                array.release();
                other.get();
                assertEquals(before, DevExchange.ledger().batchExports().live());
            }
        } finally {
            thread.shutdown();
        }
    }
}
