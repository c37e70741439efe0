package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.ReadOnlyBufferException;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(Check.class)
class TensorTest {
    private static final long[] TWO_BY_THREE = {2, 3};

    @Test
    void aTensorSaysWhatItIs() {
        ByteBuffer memory = Direct.doubles(1, 2, 3, 4, 5, 6);
        try (Tensor tensor = Tensor.create(memory, DType.FLOAT64, TWO_BY_THREE, null)) {
            assertEquals(DType.FLOAT64, tensor.dtype());
            assertEquals(Device.CPU, tensor.device());
            assertArrayEquals(TWO_BY_THREE, tensor.shape());
            assertArrayEquals(new long[] {3, 1}, tensor.strides());
            assertEquals(Flags.NONE, tensor.flags());
            assertEquals(6, tensor.elements());
            assertEquals(48, tensor.bytes());
            assertTrue(tensor.isRowMajor());
            assertEquals(Direct.address(memory), tensor.address());
            assertEquals(6, tensor.getDouble(1, 2));
            assertEquals("Tensor (float64, [2, 3], cpu:0)", tensor.toString());
            ByteBuffer buffer = tensor.byteBuffer();
            assertEquals(3, buffer.asDoubleBuffer().get(2));
            buffer.position(8).limit(16).order(Direct.otherOrder());
            assertEquals(3, tensor.byteBuffer().asDoubleBuffer().get(2));
        }
    }

    @Test
    void whatIsGivenOutIsACopy() {
        try (Tensor tensor = Tensor.create(Direct.ints(1, 2, 3, 4, 5, 6), DType.INT32, TWO_BY_THREE, null)) {
            tensor.shape()[0] = 7;
            tensor.strides()[0] = 7;
            assertArrayEquals(TWO_BY_THREE, tensor.shape());
            assertArrayEquals(new long[] {3, 1}, tensor.strides());
        }
    }

    @Test
    void writesAreSeenOnTheOtherSide() {
        ByteBuffer memory = Direct.doubles(1, 2, 3);
        try (Tensor tensor = Tensor.create(memory, DType.FLOAT64, new long[] {3}, null);
                Tensor back = Tensor.importDlpack(tensor.exportShare())) {
            back.byteBuffer().putDouble(8, 20);
            assertEquals(20, memory.getDouble(8));
            memory.putDouble(16, 30);
            assertEquals(30, back.getDouble(2));
        }
    }

    @Test
    void theBufferCountsFromItsPosition() {
        ByteBuffer memory = Direct.ints(1, 2, 3, 4).position(4).limit(12);
        try (Tensor tensor = Tensor.create(memory, DType.INT32, new long[] {2}, null)) {
            assertEquals(2, tensor.getLong(0));
            assertEquals(3, tensor.getLong(1));
        }
        refused(
                Status.INVALID_SHAPE,
                () -> Tensor.create(memory, DType.INT32, new long[] {3}, null),
                "shape [3] of int32 takes 12 bytes", "has 8");
    }

    @Test
    void stridesAreHonoured() {
        ByteBuffer memory = Direct.ints(1, 2, 3, 4, 5, 6);
        try (Tensor columns = Tensor.create(memory, DType.INT32, new long[] {3, 2}, new long[] {1, 3}, 0, null)) {
            assertFalse(columns.isRowMajor());
            assertEquals(24, columns.bytes());
            assertEquals(6, columns.getLong(2, 1));
            assertEquals(4, columns.getLong(0, 1));
            refused(Status.COPY_REQUIRED, columns::byteBuffer, "[1, 3]", "[3, 2]");
            try (Tensor copy = columns.copy()) {
                assertTrue(copy.isRowMajor());
                assertEquals(Flags.IS_COPIED, copy.flags());
                assertNotEquals(columns.address(), copy.address());
                assertEquals(Direct.ints(1, 4, 2, 5, 3, 6), copy.byteBuffer());
            }
            try (Tensor back = Tensor.importDlpack(columns.exportShare())) {
                assertArrayEquals(new long[] {1, 3}, back.strides());
                assertEquals(6, back.getLong(2, 1));
            }
        }
    }

    @Test
    void negativeStridesReachBackwards() {
        ByteBuffer memory = Direct.ints(1, 2, 3, 4);
        long last = Direct.address(memory) + 12;
        long[] four = {4};
        try (Tensor reversed =
                Tensor.create(last, Device.CPU, DType.INT32, four, new long[] {-1}, 0, () -> memory.get(0))) {
            assertEquals(last, reversed.address());
            assertEquals(4, reversed.getLong(0));
            assertEquals(1, reversed.getLong(3));
            try (Tensor copy = reversed.copy()) {
                assertEquals(Direct.ints(4, 3, 2, 1), copy.byteBuffer());
            }
        }
        refused(
                Status.INVALID_SHAPE,
                () -> Tensor.create(memory, DType.INT32, four, new long[] {-1}, 0, null),
                "strides [-1]", "from -12", "the buffer has 16 from its position on and 0 in front of it");
    }

    @Test
    void negativeStridesMayReachToTheBeginningOfABuffer() {
        ByteBuffer memory = Direct.ints(1, 2, 3, 4).position(12);
        long[] back = {-1};
        try (Tensor reversed = Tensor.create(memory, DType.INT32, new long[] {4}, back, 0, null)) {
            assertEquals(4, reversed.getLong(0));
            assertEquals(1, reversed.getLong(3));
        }
        refused(
                Status.INVALID_SHAPE,
                () -> Tensor.create(memory, DType.INT32, new long[] {5}, back, 0, null),
                "from -16", "the buffer has 4 from its position on and 12 in front of it");
        ByteBuffer second = memory.duplicate().order(memory.order()).position(4).limit(8);
        ByteBuffer part = second.slice().order(memory.order());
        refused(
                Status.INVALID_SHAPE,
                () -> Tensor.create(part, DType.INT32, new long[] {2}, back, 0, null),
                "the buffer has 4 from its position on and 0 in front of it");
        // Nothing beyond the limit.
        refused(
                Status.INVALID_SHAPE,
                () -> Tensor.create(second, DType.INT32, new long[] {2}, new long[] {1}, 0, null),
                "the buffer has 4 from its position on and 4 in front of it");
        try (Tensor both = Tensor.create(second, DType.INT32, new long[] {2}, back, 0, null)) {
            assertEquals(1, both.getLong(1));
        }
    }

    @Test
    void stridesThatReachOverMoreThanThereCanBeAreRefused() {
        ByteBuffer memory = Direct.bytes(7);
        try (Tensor one = far(memory, 1, 1L << 61)) {
            assertEquals(7, one.getLong(0));
        }
        for (long stride : new long[] {1L << 61, 1L << 52, 1L << 47}) {
            try (Tensor two = far(memory, 2, stride)) {
                refused(Status.INVALID_SHAPE, () -> two.getLong(0), "strides are [" + stride + "] of shape [2]");
                refused(Status.INVALID_SHAPE, () -> two.getDouble(1), "strides are [" + stride + "]");
            }
        }
    }

    private static Tensor far(ByteBuffer memory, long extent, long stride) {
        return Tensor.create(Direct.address(memory), Device.CPU, DType.INT8, new long[] {extent}, new long[] {stride},
                Flags.NONE, () -> memory.get(0));
    }

    @Test
    void broadcastAndEmptyAndScalarTensorsAreFine() {
        try (Tensor broadcast =
                Tensor.create(Direct.ints(7), DType.INT32, new long[] {1000, 1000}, new long[] {0, 0}, 0, null)) {
            assertEquals(7, broadcast.getLong(999, 999));
            assertEquals(1_000_000, broadcast.elements());
        }
        try (Tensor empty = Tensor.create(Direct.room(0), DType.FLOAT64, new long[] {5, 0, 3}, null)) {
            assertEquals(0, empty.elements());
            assertEquals(0, empty.bytes());
            assertEquals(0, empty.address());
            assertEquals(0, empty.byteBuffer().remaining());
            assertArrayEquals(new long[] {5, 0, 3}, empty.shape());
            refused(Status.OUT_OF_RANGE, () -> empty.getDouble(0, 0, 0), "index[1] is 0", "extent is 0");
            Tensor.importDlpack(empty.exportShare()).close();
        }
        try (Tensor empty = Tensor.create(0, Device.CPU, DType.INT8, new long[] {0}, null, 0, null)) {
            assertEquals(0, empty.elements());
        }
        try (Tensor scalar = Tensor.create(Direct.doubles(2.5), DType.FLOAT64, new long[0], null)) {
            assertEquals(1, scalar.elements());
            assertEquals(2.5, scalar.getDouble());
            try (Tensor back = Tensor.importDlpack(scalar.exportShare())) {
                assertArrayEquals(new long[0], back.shape());
                assertEquals(2.5, back.getDouble());
            }
        }
    }

    @Test
    void asManyDimensionsAsThereMayBe() {
        long[] shape = new long[64];
        Arrays.fill(shape, 1);
        try (Tensor tensor = Tensor.create(Direct.bytes(9), DType.INT8, shape, null)) {
            assertArrayEquals(shape, tensor.shape());
            assertEquals(9, tensor.getLong(new long[64]));
        }
        refused(Status.INVALID_SHAPE, () -> Tensor.create(Direct.bytes(9), DType.INT8, new long[65], null), "ndim",
                "65");
        refused(
                Status.INVALID_SHAPE,
                () -> Tensor.create(Direct.bytes(9), DType.INT8, new long[100_000], null),
                "ndim", "100000");
    }

    @Test
    void readOnlyBuffersMakeReadOnlyTensors() {
        ByteBuffer memory = Direct.ints(1, 2).asReadOnlyBuffer().order(ByteOrder.nativeOrder());
        try (Tensor tensor = Tensor.create(memory, DType.INT32, new long[] {2}, null)) {
            assertEquals(Flags.READ_ONLY, tensor.flags());
            ByteBuffer view = tensor.byteBuffer();
            assertTrue(view.isReadOnly());
            assertEquals(ByteOrder.nativeOrder(), view.order());
            assertEquals(2, view.getInt(4));
            assertThrows(ReadOnlyBufferException.class, () -> view.putInt(0, 3));
        }
    }

    @Test
    void flagsAreKept() {
        long unknown = 1L << 40;
        for (long flags : new long[] {Flags.READ_ONLY, Flags.IS_COPIED, Flags.READ_ONLY | Flags.IS_COPIED, unknown}) {
            Tensor tensor = Tensor.create(Direct.ints(1), DType.INT32, new long[] {1}, null, flags, null);
            // A shared copy has several holders, even if it was moved.
            long told = flags & ~Flags.IS_COPIED;
            try (Tensor shared = Tensor.importDlpack(tensor.exportShare());
                    Tensor moved = Tensor.importDlpack(tensor.exportMove())) {
                assertTrue(tensor.isClosed());
                assertEquals(told, shared.flags());
                assertEquals(told, moved.flags());
            }
        }
        assertTrue(Flags.has(3, Flags.IS_COPIED));
        assertFalse(Flags.has(1, 3));
    }

    @Test
    void partsShareTheMemory() throws InterruptedException {
        Release release = new Release();
        Tensor whole = Tensor.create(Direct.ints(10, 11, 12, 13, 14, 15), DType.INT32, new long[] {2, 3}, release);
        Tensor columns = whole.slice(1, 1, 2);
        Tensor last = columns.slice(0, 1, 1);
        refused(Status.OUT_OF_RANGE, () -> whole.slice(2, 0, 1), "dimension is 2: the tensor has 2");
        refused(Status.OUT_OF_RANGE, () -> whole.slice(-1, 0, 1), "dimension is -1");
        refused(Status.OUT_OF_RANGE, () -> whole.slice(0, 1, 2), "dimension 0 has an extent of 2");
        whole.close();
        refused(Status.CLOSED, () -> whole.slice(0, 0, 1), "Tensor.slice");
        try (columns;
                last;
                Tensor seen = Tensor.importDlpack(columns.exportShare())) {
            assertArrayEquals(new long[] {2, 2}, seen.shape());
            assertArrayEquals(new long[] {3, 1}, seen.strides());
            assertEquals(11, seen.getLong(0, 0));
            assertEquals(15, seen.getLong(1, 1));
            assertEquals(14, last.getLong(0, 0));
            assertEquals(0, release.count());
        }
        release.assertOnce();
    }

    @Test
    void subByteElementsAreRoundedUpOnce() {
        DType int4 = new DType(DType.CODE_INT, 4, 1);
        try (Tensor packed = Tensor.create(Direct.room(2), int4, new long[] {3}, null)) {
            assertEquals(2, packed.bytes());
            refused(Status.MISMATCH, () -> packed.getLong(0), "int4");
        }
        try (Tensor padded = Tensor.create(Direct.room(3), int4, new long[] {3}, null, Flags.SUBBYTE_PADDED, null);
                Tensor back = Tensor.importDlpack(padded.exportShare())) {
            assertEquals(3, back.bytes());
            assertEquals(Flags.SUBBYTE_PADDED, back.flags());
        }
        refused(
                Status.INVALID_SHAPE,
                () -> Tensor.create(Direct.room(2), int4, new long[] {3}, null, Flags.SUBBYTE_PADDED, null),
                "takes 3 bytes", "has 2");
    }

    @Test
    void indicesAreChecked() {
        try (Tensor tensor = Tensor.create(Direct.ints(1, 2, 3, 4, 5, 6), DType.INT32, TWO_BY_THREE, null)) {
            refused(Status.OUT_OF_RANGE, () -> tensor.getLong(2, 0), "index[0] is 2", "extent is 2");
            refused(Status.OUT_OF_RANGE, () -> tensor.getLong(0, -1), "index[1] is -1", "extent is 3");
            refused(Status.INVALID_ARGUMENT, () -> tensor.getLong(0), "1 indices", "2 dimensions");
            refused(Status.INVALID_ARGUMENT, () -> tensor.getDouble(0, 0, 0), "3 indices", "2 dimensions");
        }
    }

    @Test
    void buffersThatCannotBeAreRefused() {
        refused(
                Status.INVALID_ARGUMENT,
                () -> Tensor.create(ByteBuffer.allocate(8).order(ByteOrder.nativeOrder()), DType.INT8, new long[] {8},
                        null),
                "data", "heap");
        refused(
                Status.INVALID_ARGUMENT,
                () -> Tensor.create(Direct.room(8).order(Direct.otherOrder()), DType.INT8, new long[] {8}, null),
                "data", "byte order " + Direct.otherOrder());
        for (ByteBuffer derived : List.of(Direct.room(8).slice(), Direct.room(8).asReadOnlyBuffer())) {
            refused(
                    Status.INVALID_ARGUMENT,
                    () -> Tensor.create(derived, DType.INT8, new long[] {8}, null),
                    "order(ByteOrder.nativeOrder()) sets it, also on what slice,");
            Tensor.create(derived.order(ByteOrder.nativeOrder()), DType.INT8, new long[] {8}, null).close();
        }
        ByteBuffer odd = Direct.room(17).position(1);
        refused(
                Status.INVALID_ARGUMENT,
                () -> Tensor.create(odd, DType.FLOAT64, new long[] {1}, null),
                "not aligned to 8 bytes", "float64");
    }

    @Test
    void shapesThatCannotBeAreRefused() {
        ByteBuffer memory = Direct.room(64);
        refused(Status.INVALID_SHAPE, () -> Tensor.create(memory, DType.INT8, new long[] {2, -3}, null), "shape[1]",
                "-3");
        refused(
                Status.INVALID_SHAPE,
                () -> Tensor.create(memory, DType.INT8, new long[] {Long.MAX_VALUE, 2}, null),
                "9223372036854775807");
        refused(
                Status.INVALID_SHAPE,
                () -> Tensor.create(memory, DType.FLOAT64, new long[] {Long.MAX_VALUE / 4}, null),
                "2305843009213693951", "float64");
        refused(
                Status.INVALID_SHAPE,
                () -> Tensor.create(memory, DType.INT8, TWO_BY_THREE, new long[] {1}, 0, null),
                "1 strides", "2 dimensions");
        refused(
                Status.INVALID_SHAPE,
                () -> Tensor.create(memory, DType.INT8, TWO_BY_THREE, new long[] {Long.MAX_VALUE, 1}, 0, null),
                "strides", "9223372036854775807");
        refused(
                Status.INVALID_SHAPE,
                () -> Tensor.create(memory, DType.INT8, TWO_BY_THREE, new long[] {62, 1}, 0, null),
                "strides [62, 1]", "65", "the buffer has 64");
    }

    @Test
    void addressesAndDevicesThatCannotBeAreRefused() {
        refused(
                Status.NULL_ARGUMENT,
                () -> Tensor.create(0, Device.CPU, DType.INT8, new long[] {1}, null, 0, null),
                "data is NULL", "[1]");
        refused(
                Status.INVALID_SHAPE,
                () -> Tensor.create(-8, Device.CPU, DType.FLOAT64, new long[] {2}, null, 0, null),
                "address space");
        for (DeviceType type : new DeviceType[] {DeviceType.ROCM, new DeviceType(99), new DeviceType(-1)}) {
            refused(
                    Status.DEVICE,
                    () -> Tensor.create(64, new Device(type, 0), DType.INT8, new long[] {1}, null, 0, null),
                    "device_type", String.valueOf(type.value()));
        }
        refused(
                Status.DEVICE,
                () -> Tensor.create(64, new Device(DeviceType.CPU, 3), DType.INT8, new long[] {1}, null, 0, null),
                "device_id", "3");
        assertEquals(new Device(DeviceType.CUDA, 1), Device.cuda(1));
        assertEquals("cuda:1", Device.cuda(1).toString());
        assertEquals("device type 99", new DeviceType(99).toString());
    }

    @Test
    void nullsAreTheCallersMistake() {
        assertThrows(NullPointerException.class, () -> Tensor.create(null, DType.INT8, new long[] {1}, null));
        assertThrows(NullPointerException.class, () -> Tensor.create(Direct.room(8), null, new long[] {1}, null));
        assertThrows(NullPointerException.class, () -> Tensor.create(Direct.room(8), DType.INT8, null, null));
    }
}
