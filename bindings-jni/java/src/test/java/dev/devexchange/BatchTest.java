package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.LocalDate;
import java.util.AbstractList;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Record batches: their descriptions, and what is refused. */
@ExtendWith(Check.class)
class BatchTest {
    @Test
    void whatIsSaidOfABatchIsSaidOfItsSliceAndItsCopy() {
        Map<String, String> said = Map.of("k", "v");
        try (Batch plain = ArrayBuilder.batch(0).build(Device.CPU);
                Batch batch = plain.share(said);
                Batch slice = batch.slice(0, 0);
                Batch copy = batch.copy();
                Batch root = batch.root().share()) {
            assertEquals(said, slice.metadata());
            assertEquals(said, copy.metadata());
            assertEquals(Map.of(), root.metadata());
            assertSame(batch.fields(), slice.fields());
            assertSame(batch.fields(), root.fields());
            for (Map<String, String> half : List.of(Map.of("k", "\ud800"), Map.of("\udc00", "v"))) {
                refused(Status.INVALID_TEXT, () -> plain.share(half), "metadata", "is not valid Unicode");
            }
        }
    }

    @Test
    void aLongNameLeavesRoomForWhatIsWrong() {
        String name = "x".repeat(127) + "\ud83d\ude00" + "y".repeat(1 << 20);
        String shown = '"' + "x".repeat(127) + "\"…";
        try (Batch batch = ArrayBuilder.batch(1)
                .child(ArrayBuilder.of(name.substring(0, 1 << 19), Format.INT8, 1).buffer(null).buffer(Direct.bytes(1)))
                .build(Device.CPU)) {
            refused(Status.OUT_OF_RANGE, () -> batch.column(name), "name is " + shown + ": the batch has no such");
            Column column = batch.column(0);
            refused(Status.OUT_OF_RANGE, () -> column.getInt(1), "column " + shown + ": row is 1");
            refused(Status.MISMATCH, () -> column.getString(0), "column " + shown + " have format");
        }
        refused(Status.INVALID_TEXT, () -> Schema.of(Field.of(name, "c\0")), "field " + shown + ": format");
    }

    private static final ByteBuffer NONE = null;

    private static Schema weather() {
        return Schema.batch(
                Field.of("date", Format.DATE32),
                Field.of("rain", Format.FLOAT64).nullable().withMetadata(Map.of("unit", "mm")),
                Field.of("kind", Format.INT8).withDictionary(Field.of("", Format.UTF8)));
    }

    private static List<Node> days() {
        return List.of(
                Node.of(2, NONE),
                Node.of(2, NONE, Direct.ints(15340, 15341)),
                Node.of(2, Direct.bits("10"), Direct.doubles(10.9, 0)),
                Node.of(2, NONE, Direct.bytes(0, 1)),
                Node.of(2, NONE, Direct.ints(0, 7, 11), Direct.text("drizzlerain")));
    }

    @Test
    void aRecordBatchHasNamedColumns() {
        try (Schema schema = weather();
                Batch batch = Batch.create(schema, Device.CPU, days(), null)) {
            assertEquals(2, batch.length());
            assertEquals(3, batch.columnCount());
            assertEquals(Device.CPU, batch.device());
            assertEquals(
                    "Batch (2 rows on cpu:0: date: date32, rain: float64, kind: int8 -> utf8)", batch.toString());
            assertEquals(LocalDate.of(2012, 1, 2), batch.column("date").getDate(1));
            assertEquals("rain", batch.column("kind").getString(1));
            assertEquals(Map.of("unit", "mm"), batch.column(1).field().metadata());
            assertEquals(3, batch.columns().size());
            assertEquals("Column (\"rain\": float64, 2 rows)", batch.columns().get(1).toString());
            Node node = Node.of(2, NONE).withOffset(1);
            assertEquals("Node (length 2, nulls unknown, offset 1, 1 buffers)", node.toString());
            refused(Status.OUT_OF_RANGE, () -> batch.column("snow"), "\"snow\"");
            assertThrows(NullPointerException.class, () -> batch.column(null), "name");
            refused(Status.OUT_OF_RANGE, () -> batch.column(3), "index is 3", "3 columns");
            refused(Status.OUT_OF_RANGE, () -> batch.column(-1), "index is -1");
            refused(Status.OUT_OF_RANGE, () -> batch.column(0).getInt(2), "row is 2", "has 2");
            refused(Status.OUT_OF_RANGE, () -> batch.column(0).isNull(-1), "row is -1");
            refused(Status.OUT_OF_RANGE, () -> batch.column(0).bufferAddress(2),
                    "column \"date\": index is 2: the column has 2 buffers");
            try (Schema same = batch.schema();
                    Batch share = batch.share()) {
                assertEquals(schema.root().toString(), same.root().toString());
                assertEquals(10.9, share.column("rain").getDouble(0));
            }
        }
    }

    @Test
    void aCopyKeepsNothingOfItsSource() {
        try (Schema schema = weather()) {
            Batch batch = Batch.create(schema, Device.CPU, days(), null);
            try (Batch copy = batch.copy()) {
                long source = batch.column("rain").bufferAddress(1);
                batch.close();
                assertNotEquals(source, copy.column("rain").bufferAddress(1));
                assertEquals(10.9, copy.column("rain").getDouble(0));
                assertEquals("rain", copy.column("kind").getString(1));
                refused(Status.CLOSED, batch::copy, "Batch.copy");
            }
        }
    }

    @Test
    void anArrayThatIsNoStructHasARoot() {
        try (Schema schema = Schema.of(Field.of("x", Format.INT8));
                Batch batch = Batch.create(schema, Device.CPU, List.of(Node.of(1, NONE, Direct.bytes(5))), null)) {
            assertEquals(0, batch.columnCount());
            assertEquals(5, batch.root().getInt(0));
            refused(Status.OUT_OF_RANGE, () -> batch.column(0), "0 columns");
            assertEquals(List.of(), batch.columns());
        }
    }

    @Test
    void nodesOverAddressesAreTheSame() {
        ByteBuffer memory = Direct.ints(1, 2, 3);
        Node node = Node.ofAddresses(3, 0, Direct.address(memory)).withNullCount(0);
        try (Schema schema = Schema.of(Field.of("x", Format.INT32));
                Batch batch = Batch.create(schema, Device.CPU, List.of(node), () -> memory.get(0))) {
            assertEquals(Direct.address(memory), batch.root().bufferAddress(1));
            assertEquals(3, batch.root().getInt(2));
        }
    }

    @Test
    void nodesThatCannotBeAreRefused() {
        String i32 = Format.INT32;
        ByteBuffer three = Direct.ints(1, 2, 3);
        refuse(Status.INVALID_LENGTH, i32, Node.of(-1, NONE, three), "\"c\"", "length is -1");
        refuse(Status.INVALID_LENGTH, i32, Node.of(1, NONE, three).withOffset(-2), "offset is -2");
        refuse(Status.INVALID_LENGTH, i32, Node.ofAddresses(Long.MAX_VALUE, 0, 64).withOffset(1),
                "9223372036854775807");
        refuse(Status.INVALID_LENGTH, i32, Node.ofAddresses(Long.MAX_VALUE, 0, 64), "buffers[1]", "addressed");
        refuse(Status.INVALID_NULL_COUNT, i32, Node.of(3, NONE, three).withNullCount(4), "null_count is 4");
        refuse(Status.INVALID_NULL_COUNT, i32, Node.of(3, NONE, three).withNullCount(-2), "null_count is -2");
        refuse(Status.INVALID_NULL_COUNT, i32, Node.of(3, NONE, three).withNullCount(1), "validity buffer is NULL");
        refuse(Status.INVALID_BUFFERS, i32, Node.of(3, three), "n_buffers is 1", "int32 has 2");
        refuse(Status.INVALID_BUFFERS, i32, Node.of(3, NONE, three, three), "n_buffers is 3");
        refuse(Status.INVALID_BUFFERS, i32, Node.of(3, NONE, NONE), "buffers[1] is NULL");
        refuse(Status.INVALID_BUFFERS, i32, Node.of(4, NONE, three), "buffers[1] has 12 bytes", "take 16");
        refuse(Status.INVALID_BUFFERS, i32, Node.of(2, NONE, three).withOffset(2), "buffers[1] has 12 bytes",
                "take 16");
        refuse(Status.INVALID_BUFFERS, i32, Node.of(9, Direct.bits("1"), Direct.room(36)), "buffers[0] has 1 bytes");
        refuse(Status.INVALID_BUFFERS, Format.BOOL, Node.of(9, NONE, Direct.bits("1")), "buffers[1] has 1 bytes",
                "take 2");
        refuse(Status.INVALID_BUFFERS, Format.UTF8, Node.of(3, NONE, three, NONE), "buffers[1] has 12 bytes",
                "take 16");
        refuse(
                Status.INVALID_ARGUMENT,
                i32,
                Node.of(3, NONE, ByteBuffer.allocate(12).order(ByteOrder.nativeOrder())),
                "nodes[0].buffers[1]", "heap");
        refuse(
                Status.INVALID_ARGUMENT,
                i32,
                Node.of(3, NONE, Direct.ints(1, 2, 3).order(Direct.otherOrder())),
                "nodes[0].buffers[1]", "byte order " + Direct.otherOrder());
        try (Schema schema = weather()) {
            List<Node> tooMany = new ArrayList<>(days());
            tooMany.add(Node.of(0));
            refused(Status.MISMATCH, () -> Batch.create(schema, Device.CPU, tooMany, null), "6 nodes", "5 fields");
            refused(Status.MISMATCH, () -> Batch.create(schema, Device.CPU, List.of(), null), "0 nodes");
            List<Node> tooLong = new ArrayList<>(days());
            tooLong.set(0, Node.of(3, NONE));
            refused(
                    Status.INVALID_LENGTH,
                    () -> Batch.create(schema, Device.CPU, tooLong, null),
                    "children[0].length is 2", "length 3");
            refused(
                    Status.DEVICE,
                    () -> Batch.create(schema, new Device(DeviceType.ROCM, 1), days(), null),
                    "device_type is rocm (10)");
            assertThrows(NullPointerException.class, () -> Batch.create(schema, null, days(), null));
        }
    }

    /** More than Java's memory for a call can hold, and more than an int can count. */
    @Test
    void moreNodesThanCanBeDescribedAreRefused() {
        Node wide = Node.ofAddresses(1, new long[1 << 16]);
        try (Schema schema = Schema.of(Field.of("x", Format.INT32))) {
            for (int nodes : new int[] {1 << 11, 1 << 14, 1 << 15, 1 << 16, 3 << 15}) {
                refused(
                        Status.OUT_OF_MEMORY,
                        () -> Batch.create(schema, Device.CPU, Collections.nCopies(nodes, wide), null),
                        "a description of ", " bytes is too large");
            }
        }
    }

    private static void refuse(int status, String format, Node node, String... texts) {
        try (Schema schema = Schema.of(Field.of("c", format).nullable())) {
            refused(status, () -> Batch.create(schema, Device.CPU, List.of(node), null), texts);
        }
    }

    @Test
    void structsThatCannotBeAreRefusedAndLeftAlone() {
        try (Schema schema = weather();
                CStruct empty = CStruct.arrowArray();
                CStruct emptyDevice = CStruct.arrowDeviceArray();
                CStruct emptySchema = CStruct.arrowSchema()) {
            refused(Status.NULL_ARGUMENT, () -> Batch.importArrow(0, schema), "array is NULL");
            refused(Status.NULL_ARGUMENT, () -> Batch.importArrowDevice(0, schema), "array is NULL");
            refused(Status.INVALID_ARGUMENT, () -> Batch.importArrow(9, schema), "array is 0x9", "not aligned to 8");
            refused(Status.RELEASED, () -> Batch.importArrow(empty.address(), schema), "array.release is NULL");
            refused(Status.RELEASED, () -> Batch.importArrowDevice(emptyDevice.address(), schema), "array.release");
            refused(Status.NULL_ARGUMENT, () -> Batch.importArrow(empty.address(), 0), "schema is NULL");
            refused(Status.RELEASED, () -> Batch.importArrow(empty.address(), emptySchema.address()), "schema.release");
            refused(Status.INVALID_ARGUMENT, () -> Batch.importArrow(empty.address(), 4), "schema is 0x4");
            schema.exportArrow(emptySchema.address());
            refused(Status.RELEASED, () -> Batch.importArrow(empty.address(), emptySchema.address()), "array.release");
            assertFalse(emptySchema.isReleased(), "the schema is still its owner's");
        }
        broken(Status.INVALID_LENGTH, "length", -1, "length is -1");
        broken(Status.INVALID_LENGTH, "offset", Long.MAX_VALUE, "offset 9223372036854775807");
        broken(Status.INVALID_NULL_COUNT, "null_count", 3, "null_count is 3");
        broken(Status.INVALID_BUFFERS, "n_buffers", 2, "n_buffers is 2", "struct has 1");
        broken(Status.INVALID_BUFFERS, "n_buffers", -1, "n_buffers is -1");
        broken(Status.INVALID_BUFFERS, "buffers", 0, "buffers is NULL");
        broken(Status.MISMATCH, "n_children", 2, "n_children is 2", "the schema has 3");
        broken(Status.INVALID_CHILDREN, "children", 0, "children is NULL");
        broken(Status.MISMATCH, "dictionary", 64, "dictionary");
    }

    /**
     * A good array with one bad member: it is refused; it and its schema are untouched and still have to be released.
     */
    private static void broken(int status, String member, long value, String... texts) {
        try (Schema schema = weather();
                Batch batch = Batch.create(schema, Device.CPU, days(), null);
                CStruct array = CStruct.arrowDeviceArray();
                CStruct fields = CStruct.arrowSchema()) {
            batch.exportShareDevice(array.address());
            schema.exportArrow(fields.address());
            int at = Records.ARROW_ARRAY.at(member);
            long good = array.memory().getLong(at);
            array.memory().putLong(at, value);
            if (member.equals("dictionary")) {
                // Any address will do: it is only compared with NULL before it is refused.
                array.memory().putLong(at, array.address());
            }
            byte[] before = bytes(array.memory());
            byte[] fieldsBefore = bytes(fields.memory());
            refused(status, () -> Batch.importArrow(array.address(), schema), texts);
            refused(status, () -> Batch.importArrowDevice(array.address(), schema), texts);
            refused(status, () -> Batch.importArrowDevice(array.address(), fields.address()), texts);
            assertArrayEquals(before, bytes(array.memory()), "the array was touched");
            assertArrayEquals(fieldsBefore, bytes(fields.memory()), "the schema was touched");
            array.memory().putLong(at, good);
            try (Batch taken = Batch.importArrowDevice(array.address(), fields.address())) {
                assertEquals(2, taken.length());
            }
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.capacity()];
        buffer.get(0, bytes);
        return bytes;
    }

    @Test
    void devicesAndEventsAreChecked() {
        try (Schema schema = weather();
                Batch batch = Batch.create(schema, Device.CPU, days(), null);
                CStruct array = CStruct.arrowDeviceArray()) {
            batch.exportShareDevice(array.address());
            ByteBuffer memory = array.memory();
            int type = Records.ARROW_DEVICE_ARRAY.at("device_type");
            int id = Records.ARROW_DEVICE_ARRAY.at("device_id");
            int event = Records.ARROW_DEVICE_ARRAY.at("sync_event");
            int reserved = Records.ARROW_DEVICE_ARRAY.at("reserved");
            assertEquals(0, memory.getLong(reserved) | memory.getLong(reserved + 8) | memory.getLong(reserved + 16));
            memory.putInt(type, 77);
            refused(Status.DEVICE, () -> Batch.importArrowDevice(array.address(), schema), "device_type is 77");
            memory.putInt(type, 10);
            refused(Status.DEVICE, () -> Batch.importArrowDevice(array.address(), schema), "rocm (10)");
            memory.putInt(type, 1).putLong(id, 5);
            refused(Status.DEVICE, () -> Batch.importArrowDevice(array.address(), schema), "device_id is 5");
            memory.putLong(id, 0).putLong(event, 64);
            refused(Status.DEVICE, () -> Batch.importArrowDevice(array.address(), schema), "sync_event is 0x40");
            // Some producers leave the reserved bytes as they were, and some count the CPU from 0.
            memory.putLong(event, 0).putLong(reserved, -1);
            try (Batch taken = Batch.importArrowDevice(array.address(), schema)) {
                assertEquals(Device.CPU, taken.device());
            }
        }
    }

    /** Tables other than those of columns that differ only in their values. */
    @Test
    void metadataStaysInItsOrder() {
        Map<String, String> pairs = new LinkedHashMap<>();
        for (int i = 20; i > 0; i--) {
            pairs.put("key " + i, "" + i);
        }
        List<String> keys = List.copyOf(pairs.keySet());
        try (Batch batch = ArrayBuilder.batch(0).build(Device.CPU);
                Batch said = batch.share(pairs)) {
            pairs.clear();
            assertEquals(keys, List.copyOf(said.metadata().keySet()));
            try (Batch again = said.share()) {
                assertEquals(keys, List.copyOf(again.metadata().keySet()));
            }
            pairs.put("key", null);
            assertThrows(NullPointerException.class, () -> batch.share(pairs));
            assertThrows(NullPointerException.class, () -> Field.of("x", Format.INT32).withMetadata(pairs));
        }
    }

    @Test
    void columnsMayDifferInNullsAndTexts() {
        ByteBuffer first = Direct.ints(1, 2, 3);
        ByteBuffer second = Direct.ints(4, 5, 6);
        ByteBuffer valid = Direct.bits("101");
        ByteBuffer text = Direct.text("abc");
        ByteBuffer offsets = Direct.ints(0, 1, 1, 3);
        Schema fields = Schema.batch(
                Field.of("a", Format.INT32), Field.of("b", Format.INT32).nullable(), Field.of("c", Format.UTF8));
        List<Node> nodes = List.of(
                Node.of(2, NONE).withOffset(1),
                Node.of(3, NONE, first),
                Node.of(3, valid, second),
                Node.of(3, NONE, offsets, text));
        try (fields;
                Batch batch = Batch.create(fields, Device.CPU, nodes, null)) {
            assertEquals(1, batch.root().bufferCount());
            assertEquals(6, batch.root().child(1).getInt(1));
            List<Column> columns = batch.columns();
            assertEquals(List.of(2L, 2L, 2L), columns.stream().map(Column::length).toList());
            assertEquals(List.of(1L, 1L, 1L), columns.stream().map(Column::offset).toList());
            assertEquals(List.of(2, 2, 3), columns.stream().map(Column::bufferCount).toList());
            assertEquals(List.of(0L, 1L, 0L), columns.stream().map(Column::nullCount).toList());
            assertEquals(0, columns.get(0).bufferAddress(0));
            assertEquals(Direct.address(first), columns.get(0).bufferAddress(1));
            assertEquals(Direct.address(valid), columns.get(1).bufferAddress(0));
            assertEquals(Direct.address(second), columns.get(1).bufferAddress(1));
            assertEquals(Direct.address(offsets), columns.get(2).bufferAddress(1));
            assertEquals(Direct.address(text), columns.get(2).bufferAddress(2));
            assertEquals("bc", columns.get(2).getString(1));
            assertTrue(columns.get(1).isNull(0));
        }
    }

    /** Batches of one schema share what Java has read of it, whichever asked first. */
    @Test
    void fieldsAreReadOnceForAllBatchesOfASchema() {
        try (Schema schema = weather();
                Batch one = Batch.create(schema, Device.CPU, days(), null);
                Batch other = Batch.create(schema, Device.CPU, days(), null);
                Batch share = one.share()) {
            Field field = other.column("rain").field();
            assertSame(field, one.column(1).field());
            assertSame(field, share.column(1).field());
            assertSame(field, schema.columns().get(1));
        }
    }

    /** The table and the texts of these columns take more memory than a thread keeps. */
    @Test
    void ofColumnsWithOneNameTheFirstIsFound() {
        for (int count : new int[] {2, 64, 65, 1000}) {
            ArrayBuilder many = ArrayBuilder.batch(1);
            for (int i = 0; i < count; i++) {
                many.child(ArrayBuilder.of("ä" + i / 2, Format.INT32, 1).buffer(NONE).buffer(Direct.ints(i)));
            }
            try (Batch batch = many.build(Device.CPU)) {
                for (int i = 0; i < count; i++) {
                    assertEquals(i / 2 * 2, batch.column("ä" + i / 2).getInt(0));
                }
                refused(Status.OUT_OF_RANGE, () -> batch.column("ä" + count), "\"ä" + count + "\"");
            }
        }
    }

    @Test
    void aWideBatchIsReadAtOnce() {
        int width = 5000;
        ByteBuffer values = Direct.ints(IntStream.range(0, width).toArray());
        ArrayBuilder builder = ArrayBuilder.batch(1);
        for (int i = 0; i < width; i++) {
            builder.child(ArrayBuilder.of("column " + i, Format.INT32, 1)
                    .buffer(null)
                    .buffer(values.slice(i * Integer.BYTES, Integer.BYTES).order(values.order())));
        }
        try (Batch batch = builder.build(Device.CPU);
                Batch narrow = ArrayBuilder.batch(1).build(Device.CPU);
                Schema schema = batch.schema()) {
            List<Column> columns = batch.columns();
            assertEquals(width, columns.size());
            assertEquals(0, narrow.columns().size());
            for (int i = 0; i < width; i += 97) {
                assertEquals(Calls.bufferAddress(values) + (long) i * Integer.BYTES, columns.get(i).bufferAddress(1));
                assertEquals("column " + i, columns.get(i).field().name());
                assertEquals(i, batch.column("column " + i).getInt(0));
            }
            assertEquals("column " + (width - 1), schema.columns().get(width - 1).name());
        }
    }

    /** A list that makes its elements each time they are asked for. */
    private static <T> List<T> anew(int size, Supplier<T> make) {
        return new AbstractList<>() {
            @Override
            public T get(int index) {
                return make.get();
            }

            @Override
            public int size() {
                return size;
            }
        };
    }

    @Test
    void aColumnThatAListMakesAnewIsLeftAsOftenAsItIsEntered() throws InterruptedException {
        Release release = new Release();
        List<Batch> made = new ArrayList<>();
        List<Node> nodes = List.of(Node.of(1, NONE, Direct.ints(1)));
        try (Schema schema = Schema.of(Field.of("", Format.INT32));
                Batch column = Batch.create(schema, Device.CPU, nodes, release)) {
            List<Batch> columns = anew(2, () -> {
                made.add(column.share());
                return made.get(made.size() - 1);
            });
            Batch.ofColumns(List.of("a", "b"), columns, null).close();
        }
        made.forEach(Batch::close);
        release.assertOnce();
    }

    @Test
    void partsOfABatchShareItsMemory() throws InterruptedException {
        Release release = new Release();
        ArrayBuilder table = ArrayBuilder.batch(3)
                .child(ArrayBuilder.of("n", Format.INT32, 3).buffer(null).buffer(Direct.ints(10, 11, 12)))
                .child(ArrayBuilder.of("t", Format.UTF8, 3)
                        .buffer(Direct.bits("101"))
                        .buffer(Direct.ints(0, 1, 1, 3))
                        .buffer(Direct.text("abc")))
                .onRelease(release);
        Batch whole = table.build(Device.CPU);
        long numbers = whole.column(0).bufferAddress(1);
        Batch slice = whole.slice(1, 2);
        Batch text = whole.column("t").slice(2, 1).share();
        assertEquals(1, whole.column("t").nullCount());
        assertEquals(0, whole.column("t").slice(2, 1).nullCount());
        refused(Status.OUT_OF_RANGE, () -> whole.slice(2, 2), "offset is 2 and length is 2: there are 3 rows");
        refused(Status.OUT_OF_RANGE, () -> whole.slice(-1, 1), "offset is -1");
        refused(Status.OUT_OF_RANGE, () -> whole.column(0).slice(Long.MAX_VALUE, 1), "there are 3 rows");
        refused(Status.OUT_OF_RANGE, () -> whole.column(0).slice(1, Long.MAX_VALUE), "there are 3 rows");
        refused(Status.OUT_OF_RANGE, () -> whole.column(0).slice(0, -1), "length is -1");
        whole.close();
        refused(Status.CLOSED, () -> whole.slice(0, 1), "closed");
        try (slice; text) {
            assertEquals(numbers, slice.column(0).bufferAddress(1));
            assertEquals(0, slice.root().offset());
            assertEquals(List.of(11, 12), Exchanged.objects(slice.column("n")));
            assertEquals("t", text.root().field().name());
            assertEquals("bc", text.root().getString(0));
            try (Batch last = slice.slice(1, 1);
                    Batch pair = Batch.ofColumns(Map.of("last", last), null)) {
                assertEquals("{\"last\": {\"n\": 12, \"t\": \"bc\"}}", pair.root().asText(0));
            }
            assertEquals(0, release.count());
        }
        release.assertOnce();
    }

    @Test
    void theMemoryOfNodesThatAListMakesAnewIsKept() {
        Map<Long, WeakReference<ByteBuffer>> made = new HashMap<>();
        List<Node> nodes = anew(1, () -> {
            ByteBuffer values = Direct.ints(1, 2);
            made.put(Calls.bufferAddress(values), new WeakReference<>(values));
            return Node.of(2, NONE, values);
        });
        try (Schema schema = Schema.of(Field.of("", Format.INT32));
                Batch batch = Batch.create(schema, Device.CPU, nodes, null)) {
            for (int i = 0; i < 10; i++) {
                System.gc();
            }
            assertNotNull(made.get(batch.root().bufferAddress(1)).get(), "the buffer was collected");
        }
    }
}
