package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** What crosses the boundary as DLPack, member by member, and what can be wrong with a foreign struct. */
@ExtendWith(Check.class)
class DlpackTest {
    private static final Records.Struct VERSIONED = Records.DL_MANAGED_VERSIONED;
    private static final int TENSOR = VERSIONED.at("dl_tensor");

    private static Tensor sample(long flags, Runnable release) {
        return Tensor.create(Direct.ints(1, 2, 3, 4, 5, 6), DType.INT32, new long[] {2, 3}, null, flags, release);
    }

    @Test
    void anExportIsFilledInAsTheStandardSays() {
        try (Tensor tensor = sample(Flags.READ_ONLY, null)) {
            long address = tensor.exportShare();
            ByteBuffer out = HostMemory.view(address, VERSIONED.size());
            assertEquals(1, out.getInt(VERSIONED.at("version")));
            assertEquals(3, out.getInt(VERSIONED.at("version") + Records.DL_VERSION.at("minor")));
            assertNotEquals(0, out.getLong(VERSIONED.at("deleter")));
            assertEquals(Flags.READ_ONLY, out.getLong(VERSIONED.at("flags")));
            assertEquals(tensor.address(), out.getLong(TENSOR + Records.DL_TENSOR.at("data")));
            assertEquals(0, out.getLong(TENSOR + Records.DL_TENSOR.at("byte_offset")));
            assertEquals(2, out.getInt(TENSOR + Records.DL_TENSOR.at("ndim")));
            long strides = out.getLong(TENSOR + Records.DL_TENSOR.at("strides"));
            assertEquals(3, HostMemory.view(strides, 16).getLong(0));
            assertEquals(1, HostMemory.view(strides, 16).getLong(8));
            Dlpack.release(address);
        }
    }

    @Test
    void versionsAreNegotiated() {
        try (Tensor tensor = sample(0, null)) {
            assertEquals(3, minorFor(tensor, 1, 7));
            assertEquals(2, minorFor(tensor, 1, 2));
            assertEquals(0, minorFor(tensor, 1, 0));
            assertEquals(3, minorFor(tensor, 2, 0));
            refused(
                    Status.VERSION,
                    () -> tensor.exportShare(DlpackRequest.DEFAULT.withMaxVersion(0, 8)),
                    "max_version is 0.8");
            refused(
                    Status.OUT_OF_RANGE,
                    () -> tensor.exportShare(DlpackRequest.DEFAULT.withMaxVersion(-1, 0)),
                    "max_version is -1.0: neither number may be negative");
            assertThrows(NullPointerException.class, () -> DlpackRequest.DEFAULT.withCopy(null), "copy");
            assertFalse(tensor.isClosed());
        }
    }

    private static int minorFor(Tensor tensor, int major, int minor) {
        long address = tensor.exportShare(DlpackRequest.DEFAULT.withMaxVersion(major, minor));
        int written = HostMemory.view(address, VERSIONED.size()).getInt(4);
        Dlpack.release(address);
        return written;
    }

    @Test
    void streamsOfTheCpuAreNone() {
        try (Tensor tensor = sample(0, null)) {
            for (long stream : new long[] {0, 1, 2, -2, Long.MIN_VALUE}) {
                refused(
                        Status.INVALID_STREAM,
                        () -> tensor.exportShare(DlpackRequest.DEFAULT.withStream(stream)),
                        "stream is " + stream);
            }
        }
    }

    @Test
    void theLegacyStructCannotSayReadOnly() throws InterruptedException {
        Release release = new Release();
        Tensor tensor = sample(Flags.READ_ONLY, release);
        refused(Status.READ_ONLY, () -> tensor.exportShareLegacy(DlpackRequest.DEFAULT), "READ_ONLY");
        refused(Status.READ_ONLY, () -> tensor.exportMoveLegacy(DlpackRequest.DEFAULT), "READ_ONLY");
        assertFalse(tensor.isClosed());
        long copied = tensor.exportMoveLegacy(DlpackRequest.DEFAULT.withCopy(Copy.IF_NEEDED));
        assertTrue(tensor.isClosed());
        release.assertOnce();
        try (Tensor copy = Tensor.importDlpackLegacy(copied)) {
            assertEquals(6, copy.getLong(1, 2));
            assertEquals(Flags.NONE, copy.flags());
        }
        DType int4 = new DType(DType.CODE_INT, 4, 1);
        try (Tensor padded = Tensor.create(Direct.room(3), int4, new long[] {3}, null, Flags.SUBBYTE_PADDED, null)) {
            refused(Status.UNSUPPORTED, () -> padded.exportShareLegacy(DlpackRequest.DEFAULT), "SUBBYTE_PADDED");
        }
    }

    @Test
    void aCopyIsMadeWhenItIsAskedFor() {
        try (Tensor tensor = sample(Flags.READ_ONLY, null);
                Tensor copy = Tensor.importDlpack(tensor.exportShare(DlpackRequest.DEFAULT.withCopy(Copy.ALWAYS)))) {
            assertNotEquals(tensor.address(), copy.address());
            assertEquals(Flags.IS_COPIED, copy.flags());
            assertEquals(tensor.byteBuffer(), copy.byteBuffer());
        }
    }

    @Test
    void whoGetsTheLastReferenceIsToldOfACopy() {
        try (Tensor tensor = sample(Flags.NONE, null)) {
            for (Copy policy : new Copy[] {Copy.NEVER, Copy.IF_NEEDED}) {
                DlpackRequest request = DlpackRequest.DEFAULT.withCopy(policy);
                Tensor copy = tensor.copy();
                refused(Status.VERSION, () -> copy.exportMove(request.withMaxVersion(0, 8)), "max_version is 0.8");
                refused(Status.INVALID_STREAM, () -> copy.exportMove(request.withStream(7)), "stream is 7");
                assertFalse(copy.isClosed());
                try (Tensor first = copy.share();
                        Tensor shared = Tensor.importDlpack(first.exportMove(request))) {
                    assertEquals(Flags.NONE, shared.flags());
                }
                try (Tensor moved = Tensor.importDlpack(copy.exportMove(request))) {
                    assertTrue(copy.isClosed());
                    assertEquals(Flags.IS_COPIED, moved.flags());
                    assertEquals(tensor.byteBuffer(), moved.byteBuffer());
                }
                refused(Status.CLOSED, () -> copy.exportMove(request), "Tensor.exportMove: the tensor is closed");
            }
        }
    }

    /** A versioned struct made by the test, without a deleter, over two ints. */
    private static final class Foreign {
        final ByteBuffer data = Direct.ints(5, 6);
        final ByteBuffer shape = Direct.longs(2);
        final ByteBuffer struct = Direct.room(VERSIONED.size());

        Foreign() {
            struct.putInt(0, 1);
            struct.putInt(4, 0);
            struct.putLong(TENSOR + Records.DL_TENSOR.at("data"), Direct.address(data));
            struct.putInt(TENSOR + Records.DL_TENSOR.at("device"), 1);
            struct.putInt(TENSOR + Records.DL_TENSOR.at("ndim"), 1);
            struct.put(TENSOR + Records.DL_TENSOR.at("dtype"), (byte) 0);
            struct.put(TENSOR + Records.DL_TENSOR.at("dtype") + 1, (byte) 32);
            struct.putShort(TENSOR + Records.DL_TENSOR.at("dtype") + 2, (short) 1);
            struct.putLong(TENSOR + Records.DL_TENSOR.at("shape"), Direct.address(shape));
        }

        Tensor take() {
            return Tensor.importDlpack(Direct.address(struct));
        }

        Foreign number(String member, int value) {
            struct.putInt(TENSOR + Records.DL_TENSOR.at(member), value);
            return this;
        }

        Foreign word(String member, long value) {
            struct.putLong(TENSOR + Records.DL_TENSOR.at(member), value);
            return this;
        }
    }

    @Test
    void missingStridesAndDeletersAreFine() {
        Foreign foreign = new Foreign();
        try (Tensor tensor = foreign.take()) {
            assertEquals(6, tensor.getLong(1));
            assertEquals(1, tensor.strides()[0]);
        }
        // The deleter is NULL, so there is nothing to call.
        Dlpack.release(Direct.address(foreign.struct));
    }

    @Test
    void aByteOffsetIsPartOfTheAddress() {
        Foreign foreign = new Foreign().word("byte_offset", 4);
        foreign.shape.putLong(0, 1);
        try (Tensor tensor = foreign.take()) {
            assertEquals(Direct.address(foreign.data) + 4, tensor.address());
            assertEquals(6, tensor.getLong(0));
        }
    }

    @Test
    void anotherMajorVersionIsRefusedAndNothingElseIsRead() {
        for (int major : new int[] {0, 2, 7, -1}) {
            Foreign foreign = new Foreign();
            foreign.struct.putInt(0, major).putInt(4, 9);
            for (int i = 24; i < VERSIONED.size(); i += 8) {
                foreign.struct.putLong(i, -1);
            }
            String shown = Integer.toUnsignedString(major) + ".9";
            refused(Status.VERSION, foreign::take, "version is " + shown, "deleter");
        }
    }

    @Test
    void aRefusedImportLeavesTheTensorWithItsOwner() throws InterruptedException {
        Release release = new Release();
        Tensor tensor = sample(0, release);
        long address = tensor.exportMove();
        ByteBuffer struct = HostMemory.view(address, VERSIONED.size());
        struct.putInt(0, 2);
        refused(Status.VERSION, () -> Tensor.importDlpack(address), "version is 2.3");
        release.assertNotYet();
        // The owner calls the deleter, which is at the same place in every version.
        Dlpack.release(address);
        release.assertOnce();
    }

    @Test
    void whatCannotBeIsRefusedByFieldAndValue() {
        refused(Status.NULL_ARGUMENT, () -> Tensor.importDlpack(0), "tensor is NULL");
        refused(Status.NULL_ARGUMENT, () -> Tensor.importDlpackLegacy(0), "tensor is NULL");
        refused(Status.INVALID_ARGUMENT, () -> Tensor.importDlpack(12), "tensor is 0xc", "not aligned to 8");
        refused(Status.INVALID_ARGUMENT, () -> Dlpack.release(12), "tensor is 0xc");
        refused(Status.INVALID_SHAPE, () -> new Foreign().number("ndim", -1).take(), "ndim is -1");
        refused(Status.INVALID_SHAPE, () -> new Foreign().number("ndim", 65).take(), "ndim is 65");
        refused(Status.INVALID_SHAPE, () -> new Foreign().number("ndim", Integer.MAX_VALUE).take(),
                "ndim is 2147483647");
        refused(Status.INVALID_SHAPE, () -> new Foreign().word("shape", 0).take(), "shape is NULL with ndim 1");
        refused(Status.NULL_ARGUMENT, () -> new Foreign().word("data", 0).take(), "data is NULL");
        refused(Status.DEVICE, () -> new Foreign().number("device", 99).take(), "device_type is 99");
        refused(Status.DEVICE, () -> new Foreign().number("device", 10).take(), "device_type is rocm (10)");
        refused(Status.INVALID_SHAPE, () -> new Foreign().word("byte_offset", -4).take(), "byte_offset");
        refused(Status.INVALID_ARGUMENT, () -> new Foreign().word("byte_offset", 2).take(), "byte_offset 2", "aligned");
        refused(
                Status.INVALID_SHAPE,
                () -> {
                    Foreign foreign = new Foreign();
                    foreign.shape.putLong(0, Long.MIN_VALUE);
                    foreign.take();
                },
                "shape[0] is -9223372036854775808");
        refused(
                Status.INVALID_DTYPE,
                () -> {
                    Foreign foreign = new Foreign();
                    foreign.struct.put(TENSOR + Records.DL_TENSOR.at("dtype"), (byte) 200);
                    foreign.take();
                },
                "dtype.code is 200");
    }

    @Test
    void givingBackNothingIsFine() {
        Dlpack.release(0);
        Dlpack.releaseLegacy(0);
    }
}
