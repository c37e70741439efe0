package dev.devexchange;

import static dev.devexchange.Check.refused;
import static dev.devexchange.Exchanged.through;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Every flat type: made here, exported as Arrow, imported again, and read. */
@ExtendWith(Check.class)
class ColumnTest {
    private static final ByteBuffer NONE = null;

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

    /** The buffers begin at the same address, and end where their rows end. */
    @Test
    void buffersOfPartsAreAsLongAsThePartsAre() {
        through(Format.INT32, Node.of(3, NONE, Direct.ints(1, 2, 3)), column -> {
            ByteBuffer all = column.valuesBuffer();
            ByteBuffer two = column.slice(0, 2).valuesBuffer();
            assertEquals(3 * Integer.BYTES, all.remaining());
            assertEquals(Direct.ints(1, 2), two);
            assertEquals(3 * Integer.BYTES, column.valuesBuffer().remaining());
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
                refused(Status.OUT_OF_RANGE, () -> column.getLong(0),
                        "column \"c\": the value is 18446744073709551615: more than a long can hold"));
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
            refused(Status.MISMATCH, () -> column.getLong(0), "\"c\"", "format g (float64): not a long");
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
            Column part = column.slice(1, 2);
            assertEquals(1, part.nullCount());
            assertEquals(1, part.nullCount(), "the nulls are counted already");
            assertEquals(0, column.slice(2, 1).nullCount());
            assertTrue(column.isNull(1));
            refused(Status.INVALID_ARGUMENT, () -> column.getInt(1), "row 1", "\"c\"", "null");
            assertEquals(3, column.getInt(2));
        });
    }

    @Test
    void buffersLargerThanAnyMemoryAreRefusedWhenTheyAreRead() {
        ByteBuffer memory = Direct.longs(0, 1, 1L << 48);
        long address = Direct.address(memory);
        for (Node node : List.of(
                Node.ofAddresses(1L << 48, 0, address), Node.ofAddresses(2, 0, address, address))) {
            String format = node.bufferCount() == 2 ? Format.INT8 : Format.LARGE_BINARY;
            try (Schema schema = Schema.of(Field.of("c", format));
                    Batch batch = Batch.create(schema, Device.CPU, List.of(node), () -> memory.get(0))) {
                refused(
                        Status.INVALID_BUFFERS,
                        () -> batch.root().getObject(0),
                        "column \"c\": a buffer would have 281474976710656 bytes");
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
        try (Schema schema = Schema.of(Field.of("c", Format.UTF8));
                Batch batch = Batch.create(
                        schema, Device.CPU, List.of(Node.of(2, NONE, Direct.ints(0, 7, 6), data)), null)) {
            refused(Status.INVALID_BUFFERS, () -> batch.root().getString(0), "0 and 7", "the column end at 6");
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
        long most = Long.MAX_VALUE;
        Field views = Field.of("c", Format.LARGE_LIST_VIEW).withChildren(Field.of("", Format.INT8));
        try (Schema schema = Schema.of(views);
                Batch batch = Batch.create(
                        schema,
                        Device.CPU,
                        List.of(
                                Node.of(1, NONE, Direct.longs(most), Direct.longs(most)),
                                Node.of(1, NONE, Direct.bytes(1))),
                        null)) {
            refused(Status.INVALID_BUFFERS, () -> batch.root().list(0), most + " values from " + most + " on");
        }
    }
}
