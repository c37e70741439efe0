package dev.devexchange;

import static dev.devexchange.Check.refused;
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

    @Test
    void aStructIsPassedItself() {
        for (CStruct array : List.of(CStruct.arrowArray(), CStruct.arrowDeviceArray())) {
            try (array;
                    CStruct fields = CStruct.arrowSchema();
                    Batch batch = Streams.batch(4, null)) {
                batch.exportShare(array);
                try (Schema schema = batch.schema()) {
                    schema.exportArrow(fields);
                }
                try (Batch back = Batch.importArrow(array, fields)) {
                    assertEquals(4, back.root().getInt(0));
                    assertTrue(array.isReleased() && fields.isReleased());
                    back.share().exportMove(array);
                    try (Schema schema = back.schema();
                            Batch again = Batch.importArrow(array, schema)) {
                        assertEquals(5, again.root().getInt(1));
                        schema.exportArrow(fields);
                        Schema.importArrow(fields).close();
                    }
                }
            }
        }
        for (CStruct stream : List.of(CStruct.arrowStream(), CStruct.arrowDeviceStream())) {
            try (stream) {
                Streams.stream(2).exportArrow(stream);
                try (BatchStream back = BatchStream.importArrow(stream)) {
                    assertEquals(2, back.stream().peek(Batch::close).count());
                }
            }
        }
    }

    @Test
    void aStructOfAnotherKindIsRefused() {
        try (CStruct array = CStruct.arrowArray();
                CStruct fields = CStruct.arrowSchema();
                CStruct cuda = CStruct.cudaArray();
                CStruct device = CStruct.arrowDeviceStream();
                Batch batch = Streams.batch(4, null);
                Schema schema = batch.schema();
                BatchStream stream = Streams.stream(1);
                Tensor tensor = Tensor.create(Direct.bytes(1), DType.INT8, new long[] {1}, null)) {
            String arrays = "the struct is of kind ArrowSchema, not ArrowArray or ArrowDeviceArray";
            refused(Status.MISMATCH, () -> batch.exportShare(fields), "Batch.exportShare", arrays);
            refused(Status.MISMATCH, () -> batch.exportMove(fields), "Batch.exportMove", arrays);
            refused(Status.MISMATCH, () -> Batch.importArrow(fields, schema), "Batch.importArrow", arrays);
            refused(Status.MISMATCH, () -> Batch.importArrow(fields, fields), "Batch.importArrow", arrays);
            refused(Status.MISMATCH, () -> Batch.importArrow(array, cuda), "devx_cuda_array, not ArrowSchema");
            refused(Status.MISMATCH, () -> schema.exportArrow(array), "Schema.exportArrow", "not ArrowSchema");
            refused(Status.MISMATCH, () -> Schema.importArrow(device), "ArrowDeviceArrayStream, not ArrowSchema");
            refused(Status.MISMATCH, () -> stream.exportArrow(array), "not ArrowArrayStream or ArrowDeviceArrayStream");
            refused(Status.MISMATCH, () -> BatchStream.importArrow(array), "BatchStream.importArrow");
            CudaArrayRequest request = CudaArrayRequest.DEFAULT;
            refused(Status.MISMATCH, () -> tensor.exportShareCudaArray(request, array), "not devx_cuda_array");
            refused(Status.MISMATCH, () -> tensor.exportMoveCudaArray(request, array), "not devx_cuda_array");
            refused(Status.MISMATCH, () -> Tensor.importCudaArray(array, request), "not devx_cuda_array");
            refused(Status.MISMATCH, () -> CudaArray.importCudaArray(array, request), "not devx_cuda_array");
            refused(Status.RELEASED, () -> Batch.importArrow(array, schema));
            CStruct closed = CStruct.arrowArray();
            closed.close();
            refused(Status.CLOSED, () -> batch.exportShare(closed), "Batch.exportShare: the struct is closed");
            refused(Status.CLOSED, () -> Batch.importArrow(closed, fields), "Batch.importArrow: the struct is closed");
        }
    }

    @Test
    void anExportDoesNotOverwriteContent() throws InterruptedException {
        Release release = new Release();
        Batch second = Streams.batch(2, null);
        try (CStruct array = CStruct.arrowArray()) {
            Streams.batch(1, release).exportMove(array);
            refused(Status.INVALID_ARGUMENT, () -> second.exportMove(array), "Batch.exportMove", "has content");
            assertFalse(second.isClosed());
            release.assertNotYet();
            array.release();
            release.assertOnce();
            second.exportMove(array);
            assertTrue(second.isClosed());
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
