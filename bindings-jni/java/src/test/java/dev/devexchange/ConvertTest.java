package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Tensors as columns and columns as tensors: the plan says what happens, and then it does. */
@ExtendWith(Check.class)
class ConvertTest {
    private static final ByteBuffer NONE = null;

    private static Batch column(Field field, Node... nodes) {
        try (Schema schema = Schema.of(field)) {
            return Batch.create(schema, Device.CPU, List.of(nodes), null);
        }
    }

    private static Plan plan(Plan.Kind kind, Plan plan, String... texts) {
        assertEquals(kind, plan.kind(), plan.toString());
        for (String text : texts) {
            assertTrue(plan.reason().contains(text), plan.toString());
        }
        return plan;
    }

    @Test
    void aColumnOfNumbersIsATensor() {
        try (Batch batch = column(Field.of("x", Format.FLOAT64), Node.of(3, NONE, Direct.doubles(0, 1, 2,
                3)).withOffset(1))) {
            Column column = batch.root();
            assertEquals("view", plan(Plan.Kind.VIEW, column.planTensor()).toString());
            try (Tensor tensor = column.toTensor(Copy.NEVER)) {
                assertEquals(column.bufferAddress(1) + 8, tensor.address());
                assertArrayEquals(new long[] {3}, tensor.shape());
                assertEquals(Flags.READ_ONLY, tensor.flags());
                assertEquals(3, tensor.getDouble(2));
                batch.share().close();
            }
            try (Tensor copy = column.toTensor(Copy.ALWAYS)) {
                assertNotEquals(column.bufferAddress(1) + 8, copy.address());
                assertEquals(Flags.IS_COPIED, copy.flags());
            }
        }
    }

    @Test
    void listsOfAFixedSizeAreDimensions() {
        Field field = Field.of("x", Format.fixedSizeList(2))
                .withChildren(Field.of("", Format.fixedSizeList(3)).withChildren(Field.of("", Format.INT16)));
        try (Batch batch = column(
                        field,
                        Node.of(2, NONE),
                        Node.of(4, NONE),
                        Node.of(12, NONE, Direct.shorts(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)));
                Tensor tensor = batch.root().toTensor(Copy.NEVER)) {
            assertArrayEquals(new long[] {2, 2, 3}, tensor.shape());
            assertEquals(11, tensor.getLong(1, 1, 2));
        }
    }

    @Test
    void boolsNeedACopy() {
        try (Batch batch = column(Field.of("x", Format.BOOL), Node.of(3, NONE, Direct.bits("101")))) {
            Plan plan = plan(Plan.Kind.COPY, batch.root().planTensor(), "bits in Arrow");
            assertEquals(3, plan.copyBytes());
            assertEquals("copy of 3 bytes: " + plan.reason(), plan.toString());
            refused(Status.COPY_REQUIRED, () -> batch.root().toTensor(Copy.NEVER), "3 bytes");
            try (Tensor tensor = batch.root().toTensor(Copy.IF_NEEDED)) {
                assertEquals(DType.BOOL, tensor.dtype());
                assertEquals(Direct.bytes(1, 0, 1), tensor.byteBuffer());
            }
        }
    }

    @Test
    void whatATensorCannotSayIsImpossible() {
        try (Batch nulls = column(Field.of("x", Format.INT8).nullable(), Node.of(2, Direct.bits("10"), Direct.bytes(1,
                2)));
                Batch text = column(Field.of("x", Format.UTF8), Node.of(1, NONE, Direct.ints(0, 1), Direct.text("a")));
                Batch dates = column(Field.of("x", Format.DATE32), Node.of(1, NONE, Direct.ints(0)));
                Batch dictionary = column(
                        Field.of("x", Format.INT8).withDictionary(Field.of("", Format.INT8)),
                        Node.of(1, NONE, Direct.bytes(0)),
                        Node.of(1, NONE, Direct.bytes(7)))) {
            plan(Plan.Kind.IMPOSSIBLE, nulls.root().planTensor(), "1 of 2", "null");
            plan(Plan.Kind.IMPOSSIBLE, text.root().planTensor(), "utf8");
            plan(Plan.Kind.IMPOSSIBLE, dates.root().planTensor(), "date32");
            Plan plan = plan(Plan.Kind.IMPOSSIBLE, dictionary.root().planTensor(), "dictionary");
            assertEquals("impossible: " + plan.reason(), plan.toString());
            refused(Status.IMPOSSIBLE, () -> nulls.root().toTensor(Copy.ALWAYS), "1 of 2");
        }
    }

    @Test
    void aTensorIsAColumn() throws InterruptedException {
        Release release = new Release();
        Tensor tensor = Tensor.create(Direct.ints(1, 2, 3, 4, 5, 6), DType.INT32, new long[] {3, 2}, release);
        plan(Plan.Kind.VIEW, tensor.planColumn());
        Batch batch = tensor.toColumn("pairs", Copy.NEVER);
        long address = tensor.address();
        tensor.close();
        release.assertNotYet();
        assertEquals("pairs", batch.root().field().name());
        assertEquals("+w:2", batch.root().field().format());
        assertEquals(address, batch.root().child(0).bufferAddress(1));
        assertEquals(6, batch.root().list(2).getInt(1));
        try (Tensor back = batch.root().toTensor(Copy.NEVER)) {
            batch.close();
            release.assertNotYet();
            assertEquals(address, back.address());
            assertArrayEquals(new long[] {3, 2}, back.shape());
        }
        release.assertOnce();
    }

    @Test
    void tensorsThatAreNoColumnSayWhy() {
        try (Tensor strided =
                        Tensor.create(Direct.ints(1, 2, 3, 4), DType.INT32, new long[] {2, 2}, new long[] {1, 2}, 0,
                                null);
                Tensor bools = Tensor.create(Direct.bytes(1, 0, 2), DType.BOOL, new long[] {3}, null);
                Tensor scalar = Tensor.create(Direct.ints(1), DType.INT32, new long[0], null);
                Tensor complex = Tensor.create(Direct.floats(1, 2), DType.COMPLEX64, new long[] {1}, null)) {
            Plan plan = plan(Plan.Kind.COPY, strided.planColumn(), "strides [1, 2]", "row-major");
            assertEquals(16, plan.copyBytes());
            refused(Status.COPY_REQUIRED, () -> strided.toColumn("x", Copy.NEVER), "strides [1, 2]");
            try (Batch column = strided.toColumn("x", Copy.IF_NEEDED)) {
                assertEquals(3, column.root().list(0).getInt(1));
            }
            assertEquals(1, plan(Plan.Kind.COPY, bools.planColumn(), "bytes in DLPack").copyBytes());
            try (Batch column = bools.toColumn("x", Copy.IF_NEEDED)) {
                assertTrue(column.root().getBoolean(2));
                assertFalse(column.root().getBoolean(1));
            }
            plan(Plan.Kind.IMPOSSIBLE, scalar.planColumn(), "no dimensions");
            plan(Plan.Kind.IMPOSSIBLE, complex.planColumn(), "complex64");
            refused(Status.IMPOSSIBLE, () -> complex.toColumn("x", Copy.ALWAYS), "complex64");
            refused(Status.INVALID_TEXT, () -> bools.toColumn("a\0b", Copy.ALWAYS), "name", "NUL");
            refused(Status.INVALID_TEXT, () -> bools.toColumn("a\ud800", Copy.ALWAYS), "name", "not valid Unicode");
            refused(Status.INVALID_TEXT, () -> bools.toFixedShapeColumn("\ud800", Copy.ALWAYS), "name", "Unicode");
            assertThrows(NullPointerException.class, () -> bools.toColumn(null, Copy.ALWAYS));
            assertThrows(NullPointerException.class, () -> bools.toFixedShapeColumn(null, Copy.ALWAYS));
        }
    }

    @Test
    void oneEmptyNameIsAName() {
        long[] shape = {3, 1};
        try (Tensor matrix = Tensor.create(Direct.doubles(1, 2, 3), DType.FLOAT64, shape, null, Flags.NONE, null);
                Batch named = matrix.toBatch(List.of(""), Copy.NEVER);
                Batch numbered = matrix.toBatch(List.of(), Copy.NEVER)) {
            assertEquals("", named.column(0).field().name());
            assertEquals("0", numbered.column(0).field().name());
        }
    }

    @Test
    void aMatrixIsABatchAndABatchIsAMatrix() {
        ByteBuffer memory = Direct.doubles(1, 2, 3, 4, 5, 6);
        long[] shape = {3, 2};
        long[] columnMajor = {1, 3};
        try (Tensor matrix = Tensor.create(memory, DType.FLOAT64, shape, columnMajor, Flags.NONE, null)) {
            plan(Plan.Kind.VIEW, matrix.planBatch());
            try (Batch batch = matrix.toBatch(List.of("a", "b"), Copy.NEVER)) {
                assertEquals(6, batch.column("b").getDouble(2));
                assertEquals(matrix.address() + 3 * Double.BYTES, batch.column("b").bufferAddress(1));
                plan(Plan.Kind.VIEW, batch.planMatrix());
                try (Tensor back = batch.toMatrix(Copy.NEVER, null)) {
                    assertEquals(matrix.address(), back.address());
                    assertArrayEquals(new long[] {3, 2}, back.shape());
                    assertArrayEquals(new long[] {1, 3}, back.strides());
                }
                try (Tensor copy = batch.toMatrix(Copy.ALWAYS, null)) {
                    assertNotEquals(matrix.address(), copy.address());
                    assertEquals(6, copy.getDouble(2, 1));
                }
            }
            refused(Status.MISMATCH, () -> matrix.toBatch(List.of("a"), Copy.NEVER), "1 names for 2 columns");
            refused(Status.INVALID_TEXT, () -> matrix.toBatch(List.of("a\0", "b"), Copy.NEVER), "NUL");
            refused(Status.INVALID_TEXT, () -> matrix.toBatch(List.of("a", "\ud800"), Copy.NEVER), "Unicode");
        }
        try (Tensor rows = Tensor.create(memory, DType.FLOAT64, shape, null)) {
            plan(Plan.Kind.COPY, rows.planBatch(), "apart");
            refused(Status.COPY_REQUIRED, () -> rows.toBatch(List.of(), Copy.NEVER), "apart");
            try (Batch batch = rows.toBatch(List.of(), Copy.IF_NEEDED)) {
                assertEquals(6, batch.column("1").getDouble(2));
            }
        }
    }

    @Test
    void aTensorIsAColumnOfTensors() {
        ByteBuffer memory = Direct.doubles(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
        long[] shape = {2, 3, 2};
        long[] strides = {6, 1, 3};
        try (Tensor turned = Tensor.create(memory, DType.FLOAT64, shape, strides, Flags.NONE, null)) {
            plan(Plan.Kind.COPY, turned.planColumn());
            plan(Plan.Kind.VIEW, turned.planFixedShapeColumn());
            try (Batch column = turned.toFixedShapeColumn("t", Copy.NEVER)) {
                assertEquals("arrow.fixed_shape_tensor", column.root().field().metadata().get("ARROW:extension:name"));
                try (Tensor back = column.root().toTensor(Copy.NEVER)) {
                    assertEquals(turned.address(), back.address());
                    assertArrayEquals(turned.shape(), back.shape());
                    assertArrayEquals(turned.strides(), back.strides());
                }
            }
        }
    }
}
