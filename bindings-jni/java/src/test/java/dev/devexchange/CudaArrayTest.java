package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** The CUDA Array Interface: tests without a driver here, everything else in {@link CudaArrayScenario}. */
@ExtendWith(Check.class)
class CudaArrayTest {
    private static final CudaArrayRequest REQUEST = CudaArrayRequest.DEFAULT;

    // ---- without a driver ----

    /** An array without elements, for which no driver is asked. Its release is an address that is never called. */
    private static final class Empty implements AutoCloseable {
        final CStruct struct = CStruct.cudaArray();
        final ByteBuffer memory = struct.memory();
        private final ByteBuffer shape = Direct.longs(0, 3);
        private final ByteBuffer strides = Direct.longs(12, 4);
        private ByteBuffer typestr;

        Empty() {
            put("version", 3);
            putLong("ndim", 2);
            putLong("shape", Direct.address(shape));
            typestr("<f4");
            putLong("stream", CudaArray.NO_STREAM);
            putLong("release", 8);
        }

        Empty put(String member, int value) {
            memory.putInt(Records.CUDA_ARRAY.at(member), value);
            return this;
        }

        Empty putLong(String member, long value) {
            memory.putLong(Records.CUDA_ARRAY.at(member), value);
            return this;
        }

        Empty typestr(String text) {
            typestr = Direct.text(text + "\0");
            return putLong("typestr", Direct.address(typestr));
        }

        Empty shape(long first, long second) {
            shape.putLong(0, first).putLong(8, second);
            return this;
        }

        Empty strides(long first, long second) {
            strides.putLong(0, first).putLong(8, second);
            return putLong("strides", Direct.address(strides));
        }

        /** Checks that the array is refused and untouched. */
        void isRefused(int status, String... texts) {
            byte[] before = new byte[memory.capacity()];
            memory.get(0, before);
            refused(status, () -> Tensor.importCudaArray(struct.address(), REQUEST), texts);
            refused(status, () -> CudaArray.importCudaArray(struct.address(), REQUEST), texts);
            byte[] after = new byte[memory.capacity()];
            memory.get(0, after);
            assertEquals(ByteBuffer.wrap(before), ByteBuffer.wrap(after));
            close();
        }

        @Override
        public void close() {
            putLong("release", 0);
            struct.close();
        }
    }

    @Test
    void everyFieldThatIsWrongIsNamed() {
        new Empty().put("version", 4).isRefused(Status.VERSION, "version is 4", "0 to 3");
        new Empty().put("version", -1).isRefused(Status.VERSION, "version is -1");
        new Empty().putLong("typestr", 0).isRefused(Status.INVALID_DTYPE, "typestr is NULL");
        new Empty().typestr("f4").isRefused(Status.INVALID_DTYPE, "typestr is \"f4\"");
        new Empty().typestr("<q4").isRefused(Status.INVALID_DTYPE, "'q'");
        new Empty().typestr("|f4").isRefused(Status.INVALID_DTYPE, "4 bytes have an order");
        new Empty().typestr("<f3").isRefused(Status.INVALID_DTYPE, "typestr is \"<f3\"");
        new Empty().typestr(">f4").isRefused(Status.UNSUPPORTED, "order");
        new Empty().typestr("<M8").isRefused(Status.UNSUPPORTED, "typestr is \"<M8\"");
        new Empty().typestr("<".repeat(100)).isRefused(Status.INVALID_DTYPE, "no end within 64 bytes");
        new Empty().putLong("ndim", -1).isRefused(Status.INVALID_SHAPE, "ndim is -1");
        new Empty().putLong("ndim", 65).isRefused(Status.INVALID_SHAPE, "ndim is 65");
        new Empty().putLong("shape", 0).isRefused(Status.INVALID_SHAPE, "shape is NULL with ndim 2");
        new Empty().shape(-1, 0).isRefused(Status.INVALID_SHAPE, "shape[0]", "-1");
        new Empty().shape(2, 3).strides(12, 3).isRefused(Status.INVALID_SHAPE, "strides[1] is 3 bytes");
        new Empty().shape(2, 3).isRefused(Status.INVALID_ARGUMENT, "data is NULL with shape [2, 3]");
        new Empty().putLong("release", 0).isRefused(Status.RELEASED, "array.release is NULL");
    }

    @Test
    void addressesAreLookedAt() {
        refused(Status.NULL_ARGUMENT, () -> Tensor.importCudaArray(0, REQUEST), "array is NULL");
        refused(Status.INVALID_ARGUMENT, () -> Tensor.importCudaArray(9, REQUEST), "array is 0x9", "aligned");
        assertThrows(NullPointerException.class, () -> Tensor.importCudaArray(0, null));
        CudaArray.release(0);
        refused(Status.INVALID_ARGUMENT, () -> CudaArray.release(9), "array is 0x9", "not aligned to 8");
        try (Empty array = new Empty()) {
            long address = array.struct.address();
            CudaArrayRequest negative = REQUEST.withMaxVersion(-1);
            refused(Status.VERSION, () -> Tensor.importCudaArray(address, negative), "max_version is -1");
        }
    }

    @Test
    void structsAreReleasedByWhoeverHasThem() {
        try (CStruct struct = CStruct.cudaArray()) {
            assertTrue(struct.isReleased());
            struct.release();
            CudaArray.release(struct.address());
            assertEquals(Records.CUDA_ARRAY.size(), struct.memory().capacity());
        }
    }

    @Test
    void hostMemoryIsNotForCuda() throws InterruptedException {
        Release release = new Release();
        try (CStruct struct = CStruct.cudaArray()) {
            Tensor tensor = Tensor.create(Direct.ints(1), DType.INT32, new long[] {1}, release);
            refused(
                    Status.DEVICE,
                    () -> tensor.exportShareCudaArray(REQUEST, struct.address()),
                    "device is cpu:0",
                    "CUDA device");
            refused(Status.DEVICE, () -> tensor.exportMoveCudaArray(REQUEST, struct.address()), "device is cpu:0");
            refused(Status.NULL_ARGUMENT, () -> tensor.exportMoveCudaArray(REQUEST, 0), "out is NULL");
            refused(Status.INVALID_ARGUMENT, () -> tensor.exportShareCudaArray(REQUEST, 12), "out is 0xc");
            assertFalse(tensor.isClosed());
            assertTrue(struct.isReleased());
            tensor.close();
            refused(Status.CLOSED, () -> tensor.exportShareCudaArray(REQUEST, 0), "Tensor.exportShareCudaArray");
            refused(Status.CLOSED, () -> tensor.exportMoveCudaArray(REQUEST, 0), "Tensor.exportMoveCudaArray");
        }
        release.assertOnce();
    }

    @Test
    void aRequestIsWhatItWasMadeWith() {
        assertEquals(3, REQUEST.maxVersion());
        assertEquals(CudaArrayRequest.NoStream.LEGACY_DEFAULT, REQUEST.noStream());
        assertEquals(CudaArray.NO_STREAM, REQUEST.stream());
        CudaArrayRequest.NoStream trust = CudaArrayRequest.NoStream.TRUST;
        assertEquals(
                new CudaArrayRequest(2, trust, 7), REQUEST.withMaxVersion(2).withNoStream(trust).withStream(7));
    }

    // ---- with the simulated driver ----

    @Test
    void arraysAreRightInEveryOrder() throws IOException, InterruptedException {
        Simulated.endsWellInEveryOrder(CudaArrayScenario.class, "everything");
    }

    @Test
    void tenThousandRoundsEndWhereTheyBegan() throws IOException, InterruptedException {
        Simulated.endsWell(CudaArrayScenario.class, "rounds", "lazy", 1);
    }

    /** Otherwise the tests above would say nothing about order. */
    @Test
    void aMissingWaitIsFound() throws IOException, InterruptedException {
        Jvm.End end = Simulated.run(CudaArrayScenario.class, "race", "lazy", 1);
        assertTrue(end.output().contains("Race: read after write"), end.output());
    }
}
