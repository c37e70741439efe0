package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Every type, made here, handed over as Arrow, taken in again, and read. */
@ExtendWith(Check.class)
class BatchTest {
    private static final ByteBuffer NONE = null;

    /** One column as a batch, through both structs and back; each time the same addresses. */
    private static void through(Field field, List<Node> nodes, Consumer<Column> check) {
        try (Schema schema = Schema.of(field);
                Batch made = Batch.create(schema, Device.CPU, nodes, null);
                CStruct array = CStruct.arrowArray();
                CStruct fields = CStruct.arrowSchema();
                CStruct deviceArray = CStruct.arrowDeviceArray()) {
            check.accept(made.root());
            made.exportShare(array.address());
            schema.exportArrow(fields.address());
            try (Batch host = Batch.importArrow(array.address(), fields.address())) {
                check.accept(host.root());
                host.exportShareDevice(deviceArray.address());
                assertEquals(1, deviceArray.memory().getInt(Records.ARROW_DEVICE_ARRAY.at("device_type")));
                assertEquals(-1, deviceArray.memory().getLong(Records.ARROW_DEVICE_ARRAY.at("device_id")));
                assertEquals(0, deviceArray.memory().getLong(Records.ARROW_DEVICE_ARRAY.at("sync_event")));
                try (Batch device = Batch.importArrowDevice(deviceArray.address(), schema)) {
                    check.accept(device.root());
                    for (int i = 0; i < made.root().bufferCount(); i++) {
                        assertEquals(made.root().bufferAddress(i), device.root().bufferAddress(i));
                    }
                }
            }
        }
    }

    private static void through(String format, Node node, Consumer<Column> check) {
        through(Field.of("c", format).nullable(), List.of(node), check);
    }

    private static void longs(String format, ByteBuffer memory, long... expected) {
        through(format, Node.of(expected.length, NONE, memory), column -> {
            for (int row = 0; row < expected.length; row++) {
                assertEquals(expected[row], column.getLong(row), format);
                assertFalse(column.isNull(row));
            }
            assertEquals(0, column.nullCount());
            ByteBuffer values = column.valuesBuffer();
            assertEquals(memory, values, format);
            assertEquals(ByteOrder.nativeOrder(), values.order());
            assertTrue(values.isReadOnly());
        });
    }

    @Test
    void integers() {
        longs(Format.INT8, Direct.bytes(-128, 127), -128, 127);
        longs(Format.UINT8, Direct.bytes(0, 255), 0, 255);
        longs(Format.INT16, Direct.shorts(-32768, 7), -32768, 7);
        longs(Format.UINT16, Direct.shorts(0, 65535), 0, 65535);
        longs(Format.INT32, Direct.ints(Integer.MIN_VALUE, 7), Integer.MIN_VALUE, 7);
        longs(Format.UINT32, Direct.ints(0, -1), 0, 0xffff_ffffL);
        longs(Format.INT64, Direct.longs(Long.MIN_VALUE, 7), Long.MIN_VALUE, 7);
        longs(Format.UINT64, Direct.longs(0, Long.MAX_VALUE), 0, Long.MAX_VALUE);
        through(Format.UINT64, Node.of(1, NONE, Direct.longs(-1)), column ->
                refused(Status.OUT_OF_RANGE, () -> column.getLong(0), "18446744073709551615"));
    }

    @Test
    void floatingPointNumbers() {
        through(Format.FLOAT16, Node.of(2, NONE, Direct.shorts(0x3c00, 0xc000)), column -> {
            assertEquals(1, column.getDouble(0));
            assertEquals(-2, column.getDouble(1));
        });
        through(Format.FLOAT32, Node.of(1, NONE, Direct.floats(0.1f)), column -> assertEquals(0.1f,
                column.getDouble(0)));
        through(Format.FLOAT64, Node.of(1, NONE, Direct.doubles(0.1)), column -> {
            assertEquals(0.1, column.getDouble(0));
            refused(Status.MISMATCH, () -> column.getLong(0), "\"c\"", "format g", "long");
        });
    }

    @Test
    void datesTimesAndSpans() {
        longs(Format.DATE32, Direct.ints(-1, 19000), -1, 19000);
        longs(Format.DATE64, Direct.longs(-1, 86_400_000), -1, 86_400_000);
        longs(Format.time(TimeUnit.SECONDS), Direct.ints(1, 86399), 1, 86399);
        longs(Format.time(TimeUnit.MILLISECONDS), Direct.ints(1), 1);
        longs(Format.time(TimeUnit.MICROSECONDS), Direct.longs(1), 1);
        longs(Format.time(TimeUnit.NANOSECONDS), Direct.longs(1), 1);
        for (TimeUnit unit : List.of(
                TimeUnit.SECONDS, TimeUnit.MILLISECONDS, TimeUnit.MICROSECONDS, TimeUnit.NANOSECONDS)) {
            longs(Format.timestamp(unit, ""), Direct.longs(-5, 5), -5, 5);
            longs(Format.timestamp(unit, "Europe/Berlin"), Direct.longs(-5, 5), -5, 5);
            longs(Format.duration(unit), Direct.longs(-5, 5), -5, 5);
        }
        longs("tiM", Direct.ints(14), 14);
        through(Format.DATE32, Node.of(2, NONE, Direct.ints(0, 15340)), column -> {
            assertEquals(LocalDate.EPOCH, column.getDate(0));
            assertEquals(LocalDate.of(2012, 1, 1), column.getDate(1));
            assertEquals(15340, column.getInt(1));
        });
        through(Format.DATE64, Node.of(2, NONE, Direct.longs(-1, 86_400_001)), column -> {
            assertEquals(LocalDate.of(1969, 12, 31), column.getDate(0));
            assertEquals(LocalDate.of(1970, 1, 2), column.getDate(1));
        });
        through(Format.INT32, Node.of(1, NONE, Direct.ints(1)), column ->
                refused(Status.MISMATCH, () -> column.getDate(0), "format i", "date"));
    }

    @Test
    void bools() {
        through(Format.BOOL, Node.of(10, Direct.bits("1111111101"), Direct.bits("1010101011")), column -> {
            String seen = "";
            for (int row = 0; row < 10; row++) {
                seen += column.isNull(row) ? "-" : column.getBoolean(row) ? "1" : "0";
            }
            assertEquals("10101010-1", seen);
            assertEquals(1, column.nullCount());
            refused(Status.INVALID_ARGUMENT, () -> column.getBoolean(8), "row 8", "\"c\"", "null");
            refused(Status.MISMATCH, column::valuesBuffer, "format b");
        });
    }

    @Test
    void textAndBinary() {
        String[] words = {"", "Köln", "🌧"};
        ByteBuffer data = Direct.text("Köln🌧");
        Consumer<Column> text = column -> {
            for (int row = 0; row < 3; row++) {
                assertEquals(words[row], column.getString(row));
                assertArrayEquals(words[row].getBytes(StandardCharsets.UTF_8), column.getBytes(row));
            }
            assertNull(column.getString(3));
            assertNull(column.getBytes(3));
            assertTrue(column.isNull(3));
            refused(Status.MISMATCH, () -> column.getDouble(0), "format");
        };
        ByteBuffer validity = Direct.bits("1110");
        through(Format.UTF8, Node.of(4, validity, Direct.ints(0, 0, 5, 9, 9), data), text);
        through(Format.LARGE_UTF8, Node.of(4, validity, Direct.longs(0, 0, 5, 9, 9), data), text);
        Consumer<Column> binary = column -> {
            assertArrayEquals(new byte[] {(byte) 0xff, 0}, column.getBytes(0));
            refused(Status.MISMATCH, () -> column.getString(0), "text");
        };
        ByteBuffer bytes = Direct.bytes(0xff, 0);
        through(Format.BINARY, Node.of(1, NONE, Direct.ints(0, 2), bytes), binary);
        through(Format.LARGE_BINARY, Node.of(1, NONE, Direct.longs(0, 2), bytes), binary);
        through(Format.fixedSizeBinary(3), Node.of(2, NONE, Direct.bytes(1, 2, 3, 4, 5, 6)), column ->
                assertArrayEquals(new byte[] {4, 5, 6}, column.getBytes(1)));
        through(Format.UTF8, Node.of(2, NONE, Direct.ints(0, 0, 0), NONE), column -> assertEquals("",
                column.getString(1)));
        through(Format.UTF8, Node.of(0, NONE, NONE, NONE), column -> assertEquals(0, column.length()));
    }

    @Test
    void brokenTextIsNotRepaired() {
        through(Format.UTF8, Node.of(1, NONE, Direct.ints(0, 2), Direct.bytes('a', 0xff)), column -> {
            refused(Status.INVALID_TEXT, () -> column.getString(0), "row 0", "UTF-8");
            assertEquals(2, column.getBytes(0).length);
        });
        through(Format.UTF8, Node.of(1, NONE, Direct.ints(0, 3), Direct.text("\ufffd")), column ->
                assertEquals("\ufffd", column.getString(0)));
    }

    @Test
    void decimalsAndIntervalsAreBytes() {
        through(Format.decimal(38, 2, 128), Node.of(1, NONE, Direct.longs(12345, 0)), column -> {
            assertEquals(16, column.getBytes(0).length);
            assertEquals(12345, column.valuesBuffer().getLong(0));
            assertEquals(new BigDecimal("123.45"), column.getDecimal(0));
            refused(Status.MISMATCH, () -> column.getLong(0), "d:38,2");
        });
        through(Format.decimal(9, 2, 32), Node.of(2, NONE, Direct.ints(1, 2)), column ->
                assertArrayEquals(new byte[] {2, 0, 0, 0}, littleEndian(column.getBytes(1))));
        through("tiD", Node.of(1, NONE, Direct.ints(3, 4)), column -> assertEquals(8, column.getBytes(0).length));
        through("tin", Node.of(1, NONE, Direct.longs(3, 4)), column -> assertEquals(16, column.getBytes(0).length));
    }

    private static byte[] littleEndian(byte[] bytes) {
        if (ByteOrder.nativeOrder() == ByteOrder.BIG_ENDIAN) {
            for (int i = 0; i < bytes.length / 2; i++) {
                byte kept = bytes[i];
                bytes[i] = bytes[bytes.length - 1 - i];
                bytes[bytes.length - 1 - i] = kept;
            }
        }
        return bytes;
    }

    @Test
    void nulls() {
        through(Format.NULL, Node.of(5), column -> {
            assertEquals(5, column.nullCount());
            assertTrue(column.isNull(4));
            assertNull(column.getString(0));
            refused(Status.INVALID_ARGUMENT, () -> column.getLong(0), "row 0", "null");
            assertEquals(0, column.bufferCount());
        });
        Node known = Node.of(3, Direct.bits("101"), Direct.ints(1, 2, 3)).withNullCount(1);
        through(Format.INT32, known, column -> {
            assertEquals(1, column.nullCount());
            assertTrue(column.isNull(1));
            refused(Status.INVALID_ARGUMENT, () -> column.getInt(1), "row 1", "\"c\"", "null");
            assertEquals(3, column.getInt(2));
        });
    }

    @Test
    void dictionaries() {
        Field field = Field.of("kind", Format.UINT8)
                .nullable()
                .withDictionary(Field.of("", Format.UTF8).nullable());
        Node indices = Node.of(5, Direct.bits("11101"), Direct.bytes(1, 0, 2, 99, 1));
        Node words = Node.of(3, Direct.bits("110"), Direct.ints(0, 3, 7, 7), Direct.text("sunrain"));
        through(field, List.of(indices, words), column -> {
            assertEquals("rain", column.getString(0));
            assertEquals("sun", column.getString(1));
            assertNull(column.getString(2), "a null of the dictionary");
            assertNull(column.getString(3));
            assertEquals("rain", column.getString(4));
            assertEquals(1, column.dictionaryIndex(4));
            refused(Status.INVALID_ARGUMENT, () -> column.dictionaryIndex(3), "row 3", "null");
            assertEquals(3, column.dictionary().length());
            assertEquals("sun", column.dictionary().getString(0));
            assertEquals(2, column.valuesBuffer().get(2));
            refused(Status.MISMATCH, () -> column.getLong(0), "format u");
            refused(Status.MISMATCH, () -> column.dictionary().dictionary(), "no dictionary");
        });
        Field numbers = Field.of("n", Format.INT64).withDictionary(Field.of("", Format.FLOAT64));
        through(numbers, List.of(Node.of(2, NONE, Direct.longs(1, 5)), Node.of(2, NONE, Direct.doubles(0.5, 1.5))),
                column -> {
                    assertEquals(1.5, column.getDouble(0));
                    refused(Status.OUT_OF_RANGE, () -> column.getDouble(1), "row 1 is index 5", "dictionary of 2");
                });
        Field dates = Field.of("d", Format.INT8).withDictionary(Field.of("", Format.DATE32));
        through(dates, List.of(Node.of(1, NONE, Direct.bytes(0)), Node.of(1, NONE, Direct.ints(1))), column -> {
            assertEquals(LocalDate.of(1970, 1, 2), column.getDate(0));
            assertEquals(1, column.getInt(0));
            assertEquals(1, column.getLong(0));
        });
        Field bools = Field.of("b", Format.INT8).withDictionary(Field.of("", Format.BOOL));
        through(bools, List.of(Node.of(1, NONE, Direct.bytes(1)), Node.of(2, NONE, Direct.bits("01"))),
                column -> assertTrue(column.getBoolean(0)));
        Field blobs = Field.of("z", Format.INT8).withDictionary(Field.of("", Format.BINARY));
        through(blobs, List.of(Node.of(1, NONE, Direct.bytes(0)), Node.of(1, NONE, Direct.ints(0, 1), Direct.bytes(9))),
                column -> assertArrayEquals(new byte[] {9}, column.getBytes(0)));
        through(Format.INT8, Node.of(1, NONE, Direct.bytes(0)), column ->
                refused(Status.MISMATCH, column::dictionary, "no dictionary"));
    }

    @Test
    void lists() {
        Field item = Field.of("item", Format.INT32);
        Node values = Node.of(5, NONE, Direct.ints(10, 11, 12, 13, 14));
        Consumer<Column> check = column -> {
            assertEquals(2, column.list(0).length());
            assertEquals(11, column.list(0).getInt(1));
            assertEquals(0, column.list(1).length());
            assertEquals(3, column.list(2).length());
            assertEquals(12, column.list(2).getInt(0));
            assertEquals(14, column.list(2).getInt(2));
            assertEquals(5, column.child(0).length());
            assertEquals("item", column.list(0).field().name());
            refused(Status.OUT_OF_RANGE, () -> column.list(0).getInt(2), "row is 2", "has 2");
            refused(Status.OUT_OF_RANGE, () -> column.list(3), "row is 3");
            refused(Status.OUT_OF_RANGE, () -> column.child(1), "index is 1", "1 children");
        };
        through(
                Field.of("c", Format.LIST).withChildren(item),
                List.of(Node.of(3, NONE, Direct.ints(0, 2, 2, 5)), values),
                check);
        through(
                Field.of("c", Format.LARGE_LIST).withChildren(item),
                List.of(Node.of(3, NONE, Direct.longs(0, 2, 2, 5)), values),
                check);
        through(
                Field.of("c", Format.fixedSizeList(2)).withChildren(item),
                List.of(Node.of(2, Direct.bits("10")), values),
                column -> {
                    assertEquals(11, column.list(0).getInt(1));
                    assertTrue(column.isNull(1));
                    assertEquals(4, column.child(0).length());
                });
        through(Format.INT8, Node.of(1, NONE, Direct.bytes(0)), column ->
                refused(Status.MISMATCH, () -> column.list(0), "not a list"));
    }

    @Test
    void structsInStructsInLists() {
        Field field = Field.of("c", Format.LIST)
                .withChildren(Field.of("point", Format.STRUCT)
                        .withChildren(
                                Field.of("x", Format.FLOAT64),
                                Field.of("name", Format.STRUCT).withChildren(Field.of("first", Format.UTF8))));
        List<Node> nodes = List.of(
                Node.of(2, NONE, Direct.ints(0, 1, 3)),
                Node.of(3, NONE),
                Node.of(3, NONE, Direct.doubles(1, 2, 3)),
                Node.of(3, NONE),
                Node.of(3, NONE, Direct.ints(0, 1, 2, 3), Direct.text("abc")));
        through(field, nodes, column -> {
            Column points = column.list(1);
            assertEquals(2, points.length());
            assertEquals(3, points.child(0).getDouble(1));
            assertEquals("c", points.child(1).child(0).getString(1));
        });
    }

    @Test
    void slicesCountFromTheirOffset() {
        Node slice = Node.of(3, Direct.bits("00110101"), Direct.ints(0, 1, 2, 3, 4, 5, 6, 7)).withOffset(3);
        through(Format.INT32, slice, column -> {
            assertEquals(3, column.offset());
            assertEquals(3, column.getInt(0));
            assertTrue(column.isNull(1));
            assertEquals(5, column.getInt(2));
            assertEquals(1, column.nullCount());
            assertEquals(Direct.ints(3, 4, 5), column.valuesBuffer());
        });
        Node words = Node.of(2, NONE, Direct.ints(0, 1, 3, 6), Direct.text("abbccc")).withOffset(1);
        through(Format.UTF8, words, column -> {
            assertEquals("bb", column.getString(0));
            assertEquals("ccc", column.getString(1));
        });
        Node bits = Node.of(2, NONE, Direct.bits("0000000001")).withOffset(8);
        through(Format.BOOL, bits, column -> {
            assertFalse(column.getBoolean(0));
            assertTrue(column.getBoolean(1));
        });
        // The slice of the struct is in its columns; each has one of its own too.
        Field field = Field.of("", Format.STRUCT).withChildren(Field.of("x", Format.INT32), Field.of("y", Format.UTF8));
        List<Node> nodes = List.of(
                Node.of(2, NONE).withOffset(1),
                Node.of(3, NONE, Direct.ints(0, 1, 2, 3)).withOffset(1),
                Node.of(3, NONE, Direct.ints(0, 1, 2, 3), Direct.text("abc")));
        through(field, nodes, column -> {
            assertEquals(2, column.child(0).getInt(0));
            assertEquals(3, column.child(0).getInt(1));
            assertEquals("c", column.child(1).getString(1));
        });
        Field fixed = Field.of("c", Format.fixedSizeList(2)).withChildren(Field.of("", Format.INT8));
        List<Node> pairs = List.of(Node.of(1, NONE).withOffset(1), Node.of(4, NONE, Direct.bytes(1, 2, 3, 4)));
        through(fixed, pairs, column -> assertEquals(4, column.list(0).getInt(1)));
    }

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
            assertEquals("Batch (2 rows, 3 columns, cpu:0)", batch.toString());
            assertEquals(LocalDate.of(2012, 1, 2), batch.column("date").getDate(1));
            assertEquals("rain", batch.column("kind").getString(1));
            assertEquals(Map.of("unit", "mm"), batch.column(1).field().metadata());
            assertEquals(3, batch.columns().size());
            assertEquals("Column (\"rain\": g, 2 rows)", batch.columns().get(1).toString());
            refused(Status.OUT_OF_RANGE, () -> batch.column("snow"), "\"snow\"");
            refused(Status.OUT_OF_RANGE, () -> batch.column(3), "index is 3", "3 columns");
            refused(Status.OUT_OF_RANGE, () -> batch.column(-1), "index is -1");
            refused(Status.OUT_OF_RANGE, () -> batch.column(0).getInt(2), "row is 2", "has 2");
            refused(Status.OUT_OF_RANGE, () -> batch.column(0).isNull(-1), "row is -1");
            refused(Status.OUT_OF_RANGE, () -> batch.column(0).bufferAddress(2), "index is 2", "2 buffers");
            try (Schema same = batch.schema();
                    Batch share = batch.share()) {
                assertEquals(schema.root().toString(), same.root().toString());
                assertEquals(10.9, share.column("rain").getDouble(0));
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

    /** A good array with one member that is not: refused, untouched, its schema too, and still to be released. */
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
                // Any address will do: it is only compared with NULL before it is found not to belong there.
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

    @Test
    void offsetsThatCannotBeAreRefusedWhenTheyAreRead() {
        ByteBuffer data = Direct.text("abcdef");
        try (Schema schema = Schema.of(Field.of("c", Format.UTF8));
                Batch batch = Batch.create(
                        schema, Device.CPU, List.of(Node.of(3, NONE, Direct.ints(0, 4, 2, 6), data)), null)) {
            assertEquals("abcd", batch.root().getString(0));
            refused(Status.INVALID_BUFFERS, () -> batch.root().getString(1), "offsets of row 1 are 4 and 2");
        }
        try (Schema schema = Schema.of(Field.of("c", Format.UTF8));
                Batch batch = Batch.create(
                        schema, Device.CPU, List.of(Node.of(2, NONE, Direct.ints(-1, 9, 6), data)), null)) {
            refused(Status.INVALID_BUFFERS, () -> batch.root().getString(0), "row 0 are -1 and 9");
            refused(Status.INVALID_BUFFERS, () -> batch.root().getBytes(1), "row 1 are 9 and 6");
        }
        try (Schema schema = Schema.of(Field.of("c", Format.LARGE_UTF8));
                Batch batch = Batch.create(
                        schema, Device.CPU, List.of(Node.of(1, NONE, Direct.longs(0, 3), NONE)), null)) {
            refused(Status.INVALID_BUFFERS, () -> batch.root().getString(0), "buffers[2] is NULL", "3 bytes");
        }
        Field lists = Field.of("c", Format.LIST).withChildren(Field.of("", Format.INT8));
        try (Schema schema = Schema.of(lists);
                Batch batch = Batch.create(
                        schema,
                        Device.CPU,
                        List.of(Node.of(2, NONE, Direct.ints(0, 9, 3)), Node.of(3, NONE, Direct.bytes(1, 2, 3))),
                        null)) {
            refused(Status.INVALID_BUFFERS, () -> batch.root().list(0), "child with length 3");
            refused(Status.INVALID_BUFFERS, () -> batch.root().list(1), "row 1 are 9 and 3");
        }
    }

    /** The table and the texts of so many columns are more than a thread keeps room for. */
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
}
