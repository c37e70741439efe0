package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(Check.class)
class DTypeTest {
    /** Every element type of DLPack 1.3, by name. */
    private static Map<String, DType> all() {
        Map<String, DType> all = new LinkedHashMap<>();
        for (int bits : new int[] {1, 2, 4, 8, 16, 32, 64, 128}) {
            all.put("int" + bits, new DType(DType.CODE_INT, bits, 1));
            all.put("uint" + bits, new DType(DType.CODE_UINT, bits, 1));
        }
        for (int bits : new int[] {16, 32, 64, 128}) {
            all.put("float" + bits, new DType(DType.CODE_FLOAT, bits, 1));
        }
        for (int bits : new int[] {32, 64, 128}) {
            all.put("complex" + bits, new DType(DType.CODE_COMPLEX, bits, 1));
        }
        all.put("bool", DType.BOOL);
        all.put("bfloat16", DType.BFLOAT16);
        String[] eights = {
            "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
            "float8_e5m2fnuz", "float8_e8m0fnu"
        };
        for (int i = 0; i < eights.length; i++) {
            all.put(eights[i], new DType(7 + i, 8, 1));
        }
        all.put("float6_e2m3fn", new DType(15, 6, 1));
        all.put("float6_e3m2fn", new DType(16, 6, 1));
        all.put("float4_e2m1fn", new DType(17, 4, 1));
        all.put("float32x4", new DType(DType.CODE_FLOAT, 32, 4));
        all.put("uint8x3", new DType(DType.CODE_UINT, 8, 3));
        return all;
    }

    @Test
    void everyTypeComesBackFromARoundTrip() {
        all().forEach((name, dtype) -> {
            assertEquals(name, dtype.toString());
            assertEquals(dtype.bits() * dtype.lanes(), dtype.elementBits(), name);
            assertEquals((dtype.bits() * dtype.lanes() + 7) / 8, dtype.elementBytes(), name);
            ByteBuffer memory = Direct.room(256);
            for (int i = 0; i < memory.capacity(); i++) {
                memory.put(i, (byte) i);
            }
            try (Tensor tensor = Tensor.create(memory, dtype, new long[] {3, 2}, null)) {
                for (boolean legacy : new boolean[] {false, true}) {
                    long exported = legacy ? tensor.exportShareLegacy(DlpackRequest.DEFAULT) : tensor.exportShare();
                    try (Tensor back = legacy ? Tensor.importDlpackLegacy(exported) : Tensor.importDlpack(exported)) {
                        assertEquals(dtype, back.dtype());
                        assertEquals(tensor.address(), back.address());
                        assertEquals((6L * dtype.bits() * dtype.lanes() + 7) / 8, back.bytes(), name);
                        assertEquals(memory.slice(0, (int) back.bytes()), back.byteBuffer(), name);
                    }
                }
            }
        });
    }

    @Test
    void numbersAreReadAsTheyAre() {
        read(DType.INT8, Direct.bytes(-5, 7), -5, 7);
        read(DType.INT16, Direct.shorts(-500, 7), -500, 7);
        read(DType.INT32, Direct.ints(Integer.MIN_VALUE, 7), Integer.MIN_VALUE, 7);
        read(DType.UINT8, Direct.bytes(255, 7), 255, 7);
        read(DType.UINT16, Direct.shorts(65535, 7), 65535, 7);
        read(DType.UINT32, Direct.ints(-1, 7), 4294967295L, 7);
        read(DType.BOOL, Direct.bytes(2, 0), 1, 0);
        readDouble(DType.FLOAT32, Direct.floats(1.5f, -0.25f), 1.5, -0.25);
        readDouble(DType.FLOAT64, Direct.doubles(Math.PI, -1e300), Math.PI, -1e300);
        readDouble(DType.BFLOAT16, Direct.shorts(0x3fc0, 0xff80), 1.5, Double.NEGATIVE_INFINITY);
        try (Tensor large = Tensor.create(Direct.longs(Long.MIN_VALUE, 7), DType.INT64, new long[] {2}, null)) {
            assertEquals(Long.MIN_VALUE, large.getLong(0));
            refused(Status.MISMATCH, () -> large.getDouble(0), "int64", "double");
        }
        try (Tensor large = Tensor.create(Direct.longs(-1, 7), DType.UINT64, new long[] {2}, null)) {
            assertEquals(7, large.getLong(1));
            refused(Status.OUT_OF_RANGE, () -> large.getLong(0),
                    "the value is 18446744073709551615: more than a long can hold");
        }
        try (Tensor floating = Tensor.create(Direct.floats(1), DType.FLOAT32, new long[] {1}, null)) {
            refused(Status.MISMATCH, () -> floating.getLong(0), "float32", "long");
        }
        try (Tensor complex = Tensor.create(Direct.floats(1, 2), DType.COMPLEX64, new long[] {1}, null)) {
            refused(Status.MISMATCH, () -> complex.getDouble(0), "complex64");
        }
        try (Tensor lanes = Tensor.create(Direct.floats(1, 2), new DType(2, 32, 2), new long[] {1}, null)) {
            refused(Status.MISMATCH, () -> lanes.getDouble(0), "float32x2");
        }
    }

    @Test
    void everyHalfIsRead() {
        float[] expected = {
            0f, 0x1p-24f, 0x1.ffp-15f + 0x1p-24f, 0x1p-14f, 1f, 65504f, Float.POSITIVE_INFINITY, -2f, 0x1.554p-2f
        };
        int[] bits = {0, 1, 0x3ff, 0x400, 0x3c00, 0x7bff, 0x7c00, 0xc000, 0x3555};
        expected[2] = 0x3ff * 0x1p-24f;
        try (Tensor halves = Tensor.create(Direct.shorts(bits), DType.FLOAT16, new long[] {bits.length}, null)) {
            for (int i = 0; i < bits.length; i++) {
                assertEquals(expected[i], halves.getDouble(i), Integer.toHexString(bits[i]));
            }
        }
        try (Tensor nan = Tensor.create(Direct.shorts(0x7e00), DType.FLOAT16, new long[0], null)) {
            assertEquals(Double.NaN, nan.getDouble());
        }
    }

    private static void read(DType dtype, ByteBuffer memory, long first, long second) {
        try (Tensor tensor = Tensor.create(memory, dtype, new long[] {2}, null)) {
            assertEquals(first, tensor.getLong(0), dtype.toString());
            assertEquals(second, tensor.getLong(1), dtype.toString());
            assertEquals(first, tensor.getDouble(0), dtype.toString());
        }
    }

    private static void readDouble(DType dtype, ByteBuffer memory, double first, double second) {
        try (Tensor tensor = Tensor.create(memory, dtype, new long[] {2}, null)) {
            assertEquals(first, tensor.getDouble(0), dtype.toString());
            assertEquals(second, tensor.getDouble(1), dtype.toString());
        }
    }

    @Test
    void typesThatAreNoneAreRefusedByNumber() {
        ByteBuffer memory = Direct.room(64);
        long[] shape = {1};
        refused(Status.INVALID_DTYPE, () -> Tensor.create(memory, new DType(99, 8, 1), shape, null), "code", "99");
        refused(Status.INVALID_DTYPE, () -> Tensor.create(memory, new DType(0, 7, 1), shape, null), "bits", "7");
        refused(Status.INVALID_DTYPE, () -> Tensor.create(memory, new DType(0, 8, 0), shape, null), "lanes", "0");
        refused(Status.UNSUPPORTED, () -> Tensor.create(memory, new DType(3, 64, 1), shape, null), "code", "3");
        refused(Status.INVALID_DTYPE, () -> new DType(256, 8, 1), "code", "256");
        refused(Status.INVALID_DTYPE, () -> new DType(0, -8, 1), "bits", "-8");
        refused(Status.INVALID_DTYPE, () -> new DType(0, 8, 65536), "lanes", "65536");
        assertEquals("dtype(code 99, 8 bits, 1 lanes)", new DType(99, 8, 1).toString());
    }
}
