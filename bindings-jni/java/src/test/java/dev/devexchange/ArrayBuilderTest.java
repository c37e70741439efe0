package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Arrays that producers make from their own buffers and from existing columns. */
@ExtendWith(Check.class)
class ArrayBuilderTest {
    @Test
    void aBufferIsTakenAsItIsWhenItIsGiven() {
        ByteBuffer values = Direct.ints(1, 2, 3);
        ArrayBuilder builder = ArrayBuilder.of("c", Format.INT32, 3).buffer(null).buffer(values);
        values.position(8).order(ByteOrder.BIG_ENDIAN);
        try (Batch batch = builder.build(Device.CPU)) {
            assertEquals(1, batch.root().getInt(0));
        }
    }

    @Test
    void hostMemoryIsNotThatOfADevice() {
        Device cuda = new Device(DeviceType.CUDA, 0);
        refused(
                Status.DEVICE,
                () -> ArrayBuilder.of("c", Format.INT32, 1).buffer(null).buffer(Direct.ints(1)).build(cuda),
                "array \"c\".buffers[1] is a ByteBuffer", "cuda:0");
    }

    private static ArrayBuilder numbers(String name, int... values) {
        return ArrayBuilder.of(name, Format.INT32, values.length).buffer(null).buffer(Direct.ints(values));
    }

    @Test
    void aTreeIsBuiltAsItWasDescribed() {
        ByteBuffer memory = Direct.doubles(0.5, 1.5, 2.5, 3.5);
        ByteBuffer valid = Direct.bits("1101");
        ArrayBuilder coded = ArrayBuilder.of("coded", Format.INT8, 3)
                .flags(Field.ORDERED)
                .buffer(null)
                .buffer(Direct.bytes(1, 0, 1))
                .dictionary(ArrayBuilder.of("", Format.UTF8, 2)
                        .buffer(null)
                        .buffer(Direct.ints(0, 1, 2))
                        .buffer(Direct.text("ab")));
        ArrayBuilder values = ArrayBuilder.of("x", Format.FLOAT64, 3)
                .metadata("unit", "m")
                .metadata("unit", "mm")
                .nullCount(1)
                .offset(1)
                .address(Direct.address(valid))
                .address(Direct.address(memory));
        Field uuid = Field.of("id", Format.fixedSizeBinary(2)).notNull().withExtension("arrow.uuid", "");
        try (Batch batch = ArrayBuilder.batch(3)
                        .child(coded)
                        .child(values)
                        .child(ArrayBuilder.of(uuid, 3).buffer(null).buffer(Direct.bytes(1, 2, 3, 4, 5, 6)))
                        .build(Device.CPU);
                Schema schema = batch.schema()) {
            assertEquals(3, batch.length());
            assertEquals("b", batch.column("coded").getString(2));
            assertTrue(batch.column("coded").field().isOrdered());
            assertEquals(0, batch.root().nullCount());
            Column x = batch.column("x");
            assertEquals(Map.of("unit", "mm"), x.field().metadata());
            assertEquals(1.5, x.getDouble(0));
            assertTrue(x.isNull(1));
            assertEquals(1, x.nullCount());
            // This also keeps both reachable until here.
            assertEquals(Direct.address(valid), x.bufferAddress(0));
            assertEquals(Direct.address(memory), x.bufferAddress(1));
            assertEquals("arrow.uuid", batch.column("id").field().extensionName());
            assertEquals("", batch.column("id").field().extensionMetadata());
            assertEquals(0, batch.column("id").field().flags());
            assertNull(x.field().extensionName());
            assertEquals(4, batch.column("id").getBytes(1)[1]);
            assertEquals(List.of("coded", "x", "id"), schema.columns().stream().map(Field::name).toList());
            assertEquals(Field.NULLABLE, x.field().flags());
            assertEquals(0, schema.root().flags());
        }
    }

    @Test
    void eachOwnerIsToldOnce() throws InterruptedException {
        List<String> told = Collections.synchronizedList(new ArrayList<>());
        long failures = ReleaseQueue.failures();
        ArrayBuilder words = ArrayBuilder.of("w", Format.INT8, 1)
                .buffer(null)
                .buffer(Direct.bytes(0))
                .dictionary(numbers("d", 5).onRelease(() -> told.add("dictionary")));
        Batch batch = ArrayBuilder.batch(1)
                .onRelease(() -> told.add("root"))
                .child(numbers("n", 1).onRelease(() -> {
                    throw new IllegalStateException("on purpose");
                }))
                .child(numbers("m", 1).onRelease(null))
                .child(words)
                .build(Device.CPU);
        Batch share = batch.share();
        batch.close();
        try (CStruct array = CStruct.arrowArray()) {
            share.exportMove(array.address());
            Check.flush();
            assertEquals(List.of(), told);
        }
        Check.flush();
        assertEquals(List.of("root", "dictionary"), told);
        assertEquals(failures + 1, ReleaseQueue.failures());
    }

    @Test
    void whatIsRefusedCanBeCorrectedAndIsNotReleased() throws InterruptedException {
        Release release = new Release();
        ArrayBuilder array = numbers("n", 1, 2, 3).onRelease(release).nullCount(9);
        ArrayBuilder root = ArrayBuilder.batch(3).child(array).onRelease(release);
        for (int i = 0; i < 3; i++) {
            refused(Status.INVALID_NULL_COUNT, () -> root.build(Device.CPU), "array \"n\"", "null_count is 9");
        }
        release.assertNotYet();
        assertEquals(0, Check.pending());
        array.nullCount(0);
        root.build(Device.CPU).close();
        assertEquals(2, release.count());
        refused(Status.INVALID_ARGUMENT, () -> root.build(Device.CPU), "array \"\" was built already");
        refused(Status.INVALID_ARGUMENT, () -> ArrayBuilder.batch(3).child(array).build(Device.CPU),
                "array \"n\" was built already");
        assertEquals(2, release.count());
    }

    @Test
    void treesThatCannotBeAreRefused() {
        ArrayBuilder twice = numbers("twice", 1);
        refused(Status.INVALID_ARGUMENT, () -> ArrayBuilder.batch(1).child(twice).child(twice).build(Device.CPU),
                "array \"twice\" is in the tree twice");
        ArrayBuilder circle = ArrayBuilder.of("circle", "+s", 1).buffer(null);
        refused(Status.INVALID_ARGUMENT, () -> circle.child(circle).build(Device.CPU), "\"circle\"", "twice");
        refused(
                Status.INVALID_ARGUMENT,
                () -> ArrayBuilder.of("h", Format.INT8, 1).buffer(null).buffer(ByteBuffer.allocate(1))
                        .build(Device.CPU),
                "array \"h\".buffers[1]", "heap");
        refused(
                Status.INVALID_ARGUMENT,
                () -> ArrayBuilder.of("o", Format.INT8, 1)
                        .buffer(null)
                        .buffer(ByteBuffer.allocateDirect(1).order(Direct.otherOrder()))
                        .build(Device.CPU),
                "array \"o\".buffers[1]", "byte order");
        refused(Status.INVALID_FORMAT, () -> ArrayBuilder.of("f", "?", 1).build(Device.CPU), "\"f\"", "\"?\"");
        refused(Status.INVALID_TEXT, () -> ArrayBuilder.of("a\0b", "c", 1).build(Device.CPU), "name", "NUL");
        refused(Status.INVALID_LENGTH, () -> ArrayBuilder.of("x", "c", -1).buffer(null).buffer(null).build(Device.CPU),
                "\"x\"", "length is -1");
        refused(Status.INVALID_CHILDREN, () -> ArrayBuilder.of("x", "+l", 0).buffer(null).buffer(null)
                .build(Device.CPU), "\"x\"", "n_children is 0");
        refused(Status.DEVICE, () -> numbers("n", 1).build(new Device(DeviceType.ROCM, 0)), "rocm (10)");
        assertThrows(NullPointerException.class, () -> ArrayBuilder.of(null, "c", 1));
        assertThrows(NullPointerException.class, () -> ArrayBuilder.of("x", null, 1));
        assertThrows(NullPointerException.class, () -> numbers("x").child(null));
        assertThrows(NullPointerException.class, () -> numbers("x").dictionary(null));
        assertThrows(NullPointerException.class, () -> numbers("x").metadata("key", null));
        assertThrows(NullPointerException.class, () -> numbers("x").build(null));
        assertEquals("ArrayBuilder (\"n\": i)", numbers("n").toString());
    }

    // ---- batches of columns ----

    @Test
    void columnsBecomeABatch() throws InterruptedException {
        Release release = new Release();
        Map<String, Batch> columns = new LinkedHashMap<>();
        columns.put("ä", numbers("n", 1, 2).onRelease(release).build(Device.CPU));
        columns.put("", ArrayBuilder.of("", "+s", 2)
                .buffer(null)
                .child(numbers("inner", 3, 4).metadata("k", "v").onRelease(release))
                .build(Device.CPU));
        columns.put("runs", ArrayBuilder.of("c", "+r", 2)
                .child(numbers("run_ends", 2))
                .child(numbers("values", 9))
                .onRelease(release)
                .build(Device.CPU));
        long address = columns.get("ä").root().bufferAddress(1);
        try (Batch batch = Batch.ofColumns(columns, null)) {
            columns.values().forEach(Batch::close);
            release.assertNotYet();
            assertEquals(3, batch.columnCount());
            assertEquals(2, batch.length());
            assertEquals(address, batch.column("ä").bufferAddress(1));
            assertEquals(4, batch.column("").child(0).getInt(1));
            assertEquals(Map.of("k", "v"), batch.column(1).field().children().get(0).metadata());
            assertEquals(9, batch.column("runs").getInt(1));
            try (CStruct array = CStruct.arrowArray();
                    CStruct fields = CStruct.arrowSchema();
                    Schema schema = batch.schema()) {
                batch.exportShare(array.address());
                schema.exportArrow(fields.address());
                try (Batch again = Batch.importArrow(array.address(), fields.address())) {
                    assertEquals(2, again.column("ä").getInt(1));
                }
            }
        }
        assertEquals(3, release.count());
    }

    @Test
    void columnsThatCannotBeABatchAreRefused() {
        Batch closed = numbers("n", 1).build(Device.CPU);
        closed.close();
        try (Batch one = numbers("n", 1).build(Device.CPU);
                Batch two = numbers("n", 1, 2).build(Device.CPU)) {
            try (Batch batch = Batch.ofColumns(List.of("a", "a"), List.of(one, one), null)) {
                assertEquals(1, batch.column(1).getInt(0));
            }
            refused(Status.INVALID_ARGUMENT, () -> Batch.ofColumns(Map.of(), null), "no column");
            refused(Status.INVALID_LENGTH, () -> Batch.ofColumns(List.of("a", "b"), List.of(one, two), null),
                    "\"b\"", "length 2", "has 1");
            refused(Status.MISMATCH, () -> Batch.ofColumns(List.of("a"), List.of(), null), "1 names and 0 columns");
            refused(Status.INVALID_TEXT, () -> Batch.ofColumns(List.of("a\0"), List.of(one), null), "NUL");
            refused(Status.INVALID_TEXT, () -> Batch.ofColumns(List.of("\ud83d"), List.of(one), null), "Unicode");
            refused(Status.CLOSED, () -> Batch.ofColumns(List.of("a", "b"), List.of(one, closed), null),
                    "Batch.ofColumns");
        }
    }
}
