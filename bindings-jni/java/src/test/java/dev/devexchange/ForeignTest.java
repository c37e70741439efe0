package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

/**
 * A producer and consumers in C, on threads that are unknown to the JVM. Needs a C compiler, which building the library
 * needs, too.
 */
@ExtendWith(Check.class)
class ForeignTest {
    private static final String PROPERTY = "devexchange.test.foreign";

    @TempDir
    static Path directory;

    static native long produce();

    static native long produceCudaArray();

    static native int deleted();

    static native boolean deleteElsewhere(long address);

    static native boolean deleteAtExit(long address);

    static native boolean deleteOnAThreadThatStays(long address);

    static native ByteBuffer nothing();

    @BeforeAll
    static void compile() throws IOException, InterruptedException {
        Path library = Cc.shared("foreign.c", directory);
        System.setProperty(PROPERTY, library.toString());
        System.load(library.toString());
    }

    @Test
    void theDeleterOfAForeignTensorIsCalledOnce() {
        int before = deleted();
        Tensor tensor = Tensor.importDlpack(produce());
        assertEquals(2.5, tensor.getDouble(2));
        Tensor share = tensor.share();
        long exported = tensor.exportShare();
        tensor.close();
        share.close();
        assertEquals(before, deleted());
        Dlpack.release(exported);
        assertEquals(before + 1, deleted());
    }

    @Test
    void aRefusedImportDoesNotCallIt() {
        int before = deleted();
        long produced = produce();
        HostMemory.view(produced, 8).putInt(0, 2);
        refused(Status.VERSION, () -> Tensor.importDlpack(produced));
        assertEquals(before, deleted());
        Dlpack.release(produced);
        assertEquals(before + 1, deleted());
    }

    /** An array without elements, so that no driver is asked. */
    @Test
    void theReleaseOfAForeignCudaArrayIsCalledOnce() {
        int before = deleted();
        long produced = produceCudaArray();
        HostMemory.view(produced, 8).putInt(0, 4);
        refused(Status.VERSION, () -> Tensor.importCudaArray(produced, CudaArrayRequest.DEFAULT), "version is 4");
        assertEquals(before, deleted());
        HostMemory.view(produced, 8).putInt(0, CudaArray.VERSION);
        try (CudaArray array = CudaArray.importCudaArray(produced, CudaArrayRequest.DEFAULT);
                Tensor share = array.tensor().share()) {
            assertEquals(0, array.tensor().elements());
            refused(Status.RELEASED, () -> Tensor.importCudaArray(produced, CudaArrayRequest.DEFAULT));
            CudaArray.release(produced);
            assertEquals(DType.FLOAT32, share.dtype());
            assertEquals(before, deleted());
        }
        assertEquals(before + 1, deleted());
        CudaArray.release(produced);
        assertEquals(before + 1, deleted());
        CudaArray.release(produceCudaArray());
        assertEquals(before + 2, deleted());
    }

    @Test
    void aBufferOfNoBytesMayBeAtNoAddress() {
        ByteBuffer nothing = nothing().order(ByteOrder.nativeOrder());
        assertEquals(0, Direct.address(nothing));
        try (Tensor tensor = Tensor.create(nothing, DType.INT32, new long[] {0}, null);
                Batch batch = ArrayBuilder.of("s", Format.UTF8, 0)
                        .buffer(nothing)
                        .buffer(nothing)
                        .buffer(nothing)
                        .build(Device.CPU)) {
            assertEquals(0, tensor.address());
            assertEquals(0, batch.length());
        }
        refused(
                Status.INVALID_SHAPE,
                () -> Tensor.create(nothing, DType.INT32, new long[] {1}, null),
                "takes 4 bytes: the buffer has 0");
    }

    @Test
    void threadsThatTheJvmDoesNotKnowMayRelease() throws InterruptedException {
        for (int i = 0; i < 100; i++) {
            Release release = new Release();
            Tensor tensor = Tensor.create(Direct.bytes(1), DType.INT8, new long[] {1}, release);
            assertTrue(deleteElsewhere(tensor.exportMove()));
            release.assertOnce();
            assertEquals("devexchange-releases", release.thread().getName());
        }
    }

    @Test
    void theGarbageCollectorMayBeTheLastUser() throws InterruptedException {
        int before = deleted();
        Tensor.importDlpack(produce());
        Check.collected(() -> deleted() > before);
        assertEquals(before + 1, deleted());
    }

    @Test
    void releasesAfterTheEndOfTheJvmAreHarmless() throws IOException, InterruptedException {
        List<String> options = List.of("-Xcheck:jni", "-D" + PROPERTY + "=" + System.getProperty(PROPERTY));
        Jvm.End end = Jvm.run(options, Map.of(), AtExit.class);
        assertEquals(0, end.status(), end.output());
        assertEquals("main is done", end.output().strip());
    }

    /** Leaves one export to a thread that never ends, and one to the end of the process. */
    static final class AtExit {
        private AtExit() {}

        public static void main(String[] arguments) {
            System.load(System.getProperty(PROPERTY));
            Tensor first = Tensor.create(Direct.bytes(1), DType.INT8, new long[] {1}, () -> {});
            Tensor second = Tensor.create(Direct.bytes(2), DType.INT8, new long[] {1}, () -> {});
            if (!deleteOnAThreadThatStays(first.exportMove()) || !deleteAtExit(second.exportMove())) {
                throw new AssertionError();
            }
            System.out.println("main is done");
        }
    }
}
