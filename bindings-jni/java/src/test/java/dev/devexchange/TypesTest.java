package dev.devexchange;

import static dev.devexchange.Check.refused;
import static dev.devexchange.Exchanged.objects;
import static dev.devexchange.Exchanged.through;
import static dev.devexchange.Exchanged.values;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Values of every type as Java objects: made here, exported, imported again; whole and as slices of slices. */
@ExtendWith(Check.class)
class TypesTest {
    private static ArrayBuilder fixed(String format, int rows, String validity, ByteBuffer memory) {
        return ArrayBuilder.of("c", format, rows)
                .buffer(validity == null ? null : Direct.bits(validity))
                .buffer(memory);
    }

    @Test
    void numbersHaveTheirOwnClasses() {
        values(() -> fixed("b", 3, "101", Direct.bits("100")), true, null, false);
        values(() -> fixed("c", 3, "101", Direct.bytes(-1, 0, 127)), (byte) -1, null, (byte) 127);
        values(() -> fixed("C", 3, "101", Direct.bytes(255, 0, 1)), 255, null, 1);
        values(() -> fixed("s", 2, null, Direct.shorts(-2, 3)), (short) -2, (short) 3);
        values(() -> fixed("S", 2, null, Direct.shorts(65535, 3)), 65535, 3);
        values(() -> fixed("i", 2, null, Direct.ints(Integer.MIN_VALUE, 3)), Integer.MIN_VALUE, 3);
        values(() -> fixed("I", 2, null, Direct.ints(-1, 3)), 0xffff_ffffL, 3L);
        values(() -> fixed("l", 2, null, Direct.longs(Long.MIN_VALUE, 3)), Long.MIN_VALUE, 3L);
        BigInteger large = BigInteger.TWO.pow(64).subtract(BigInteger.ONE);
        values(() -> fixed("L", 3, null, Direct.longs(-1, Long.MAX_VALUE, 0)), large, Long.MAX_VALUE, 0L);
        values(() -> fixed("e", 3, null, Direct.shorts(0x3c00, 0x7c00, 0x0001)), 1f, Float.POSITIVE_INFINITY,
                0x1p-24f);
        values(() -> fixed("f", 2, null, Direct.floats(0.1f, -0f)), 0.1f, -0f);
        values(() -> fixed("g", 2, "01", Direct.doubles(0.1, Double.NaN)), null, Double.NaN);
        values(() -> ArrayBuilder.of("c", Format.NULL, 2), null, null);
    }

    @Test
    void floatsOfHalfPrecision() {
        through(fixed("e", 4, "1101", Direct.shorts(0x3555, 0xfc00, 0, 0x7e00)), column -> {
            assertEquals(0x1.554p-2f, column.getFloat(0));
            assertEquals(Float.NEGATIVE_INFINITY, column.getFloat(1));
            assertTrue(Float.isNaN(column.getFloat(3)));
            refused(Status.INVALID_ARGUMENT, () -> column.getFloat(2), "row 2", "null");
            refused(Status.OUT_OF_RANGE, () -> column.getFloat(4), "row is 4");
            assertEquals(2, column.getBytes(0).length);
        });
        through(fixed("s", 1, null, Direct.shorts(-7)), column -> assertEquals(-7f, column.getFloat(0)));
        through(
                fixed("c", 2, null, Direct.bytes(1, 0)).dictionary(fixed("f", 2, null, Direct.floats(0.5f, -1.5f))),
                column -> assertEquals(-1.5f, column.getFloat(0)));
        for (String format : List.of("i", "g")) {
            through(fixed(format, 1, null, Direct.longs(1)), column ->
                    refused(Status.MISMATCH, () -> column.getFloat(0), "format " + format, "a float"));
        }
    }

    @Test
    void decimalsOfEveryWidth() {
        values(() -> fixed(Format.decimal(9, 2, 32), 3, "101", Direct.ints(-12345, 0, 5)), new BigDecimal("-123.45"),
                null, new BigDecimal("0.05"));
        values(() -> fixed(Format.decimal(18, 0, 64), 2, null, Direct.longs(Long.MIN_VALUE, 7)),
                new BigDecimal(Long.MIN_VALUE), new BigDecimal(7));
        BigDecimal wide = new BigDecimal(BigInteger.TWO.pow(100).negate(), 10);
        values(() -> fixed(Format.decimal(38, 10, 128), 2, null, wide(wide, BigDecimal.ZERO.setScale(10), 16)), wide,
                BigDecimal.ZERO.setScale(10));
        BigDecimal wider = new BigDecimal(BigInteger.TEN.pow(75).negate(), -3);
        values(() -> fixed(Format.decimal(76, -3, 256), 2, null, wide(wider, new BigDecimal(BigInteger.ONE, -3), 32)),
                wider, new BigDecimal(BigInteger.ONE, -3));
        // The first numbers that 64 bits cannot hold, and the last that they can.
        BigDecimal above = new BigDecimal(BigInteger.TWO.pow(63));
        BigDecimal below = new BigDecimal(BigInteger.TWO.pow(63).negate()).subtract(BigDecimal.ONE);
        for (int bits : new int[] {128, 256}) {
            values(() -> fixed(Format.decimal(38, 0, bits), 2, null, wide(above, below, bits / 8)), above, below);
            BigDecimal most = above.subtract(BigDecimal.ONE);
            BigDecimal least = below.add(BigDecimal.ONE);
            values(() -> fixed(Format.decimal(38, 0, bits), 2, null, wide(most, least, bits / 8)), most, least);
        }
        BigDecimal highest = new BigDecimal(BigInteger.TWO.pow(192));
        values(() -> fixed(Format.decimal(76, 0, 256), 2, null, wide(highest, highest.negate(), 32)), highest,
                highest.negate());
        through(fixed(Format.decimal(38, 10, 128), 1, null, wide(wide, wide, 16)), column -> {
            assertEquals(wide, column.getDecimal(0));
            assertEquals(wide.toPlainString(), column.asText(0));
            assertEquals(16, column.getBytes(0).length);
        });
        through(fixed("l", 1, null, Direct.longs(1)), column ->
                refused(Status.MISMATCH, () -> column.getDecimal(0), "format l", "a decimal"));
    }

    /** Two decimals of a number of bytes each, in native order. */
    private static ByteBuffer wide(BigDecimal first, BigDecimal second, int width) {
        ByteBuffer memory = Direct.room(2 * width);
        for (BigDecimal decimal : List.of(first, second)) {
            byte[] bytes = decimal.unscaledValue().toByteArray();
            for (int i = 0; i < width; i++) {
                int from = bytes.length - 1 - i;
                byte value = from >= 0 ? bytes[from] : (byte) (decimal.signum() < 0 ? -1 : 0);
                boolean little = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
                memory.put(memory.position() + (little ? i : width - 1 - i), value);
            }
            memory.position(memory.position() + width);
        }
        return memory.flip();
    }

    @Test
    void datesAndTimesOfDay() {
        values(() -> fixed("tdD", 3, "101", Direct.ints(-1, 0, 19000)), LocalDate.of(1969, 12, 31), null,
                LocalDate.ofEpochDay(19000));
        values(() -> fixed("tdm", 2, null, Direct.longs(-1, 86_400_000)), LocalDate.of(1969, 12, 31),
                LocalDate.of(1970, 1, 2));
        LocalTime late = LocalTime.of(23, 59, 58);
        values(() -> fixed("tts", 2, null, Direct.ints(late.toSecondOfDay(), 0)), late, LocalTime.MIDNIGHT);
        values(() -> fixed("ttm", 2, null, Direct.ints(1, 86_399_999)), LocalTime.ofNanoOfDay(1_000_000),
                LocalTime.of(23, 59, 59, 999_000_000));
        values(() -> fixed("ttu", 2, null, Direct.longs(1, 60_000_000)), LocalTime.ofNanoOfDay(1000),
                LocalTime.of(0, 1));
        values(() -> fixed("ttn", 2, null, Direct.longs(1, 60_000_000_000L)), LocalTime.ofNanoOfDay(1),
                LocalTime.of(0, 1));
        through(fixed("tts", 3, null, Direct.ints(86_400, -1, 7)), column -> {
            refused(Status.OUT_OF_RANGE, () -> column.getTime(0),
                    "row 0 of column \"c\" is 86400, of format \"tts\": no time of day");
            refused(Status.OUT_OF_RANGE, () -> column.getTime(1), "-1");
            assertEquals(LocalTime.of(0, 0, 7), column.getTime(2));
            assertEquals(86_400, column.getInt(0));
            assertEquals("86400 s", column.asText(0));
            assertEquals("00:00:07", column.asText(2));
            refused(Status.MISMATCH, () -> column.getDate(0), "format tts", "a date");
            refused(Status.MISMATCH, () -> column.getInstant(0), "format tts", "timestamp");
        });
        through(fixed("ttn", 2, null, Direct.longs(Long.MAX_VALUE, 86_400_000_000_000L)), column -> {
            refused(Status.OUT_OF_RANGE, () -> column.getTime(0), "9223372036854775807");
            refused(Status.OUT_OF_RANGE, () -> column.getTime(1), "row 1 of column \"c\" is 86400000000000, of");
        });
    }

    @Test
    void timestampsWithAndWithoutAZone() {
        Instant instant = Instant.parse("1969-12-31T23:59:59.999999999Z");
        LocalDateTime local = LocalDateTime.of(1969, 12, 31, 23, 59, 59, 999_999_999);
        values(() -> fixed("tsn:UTC", 2, "10", Direct.longs(-1, 0)), instant, null);
        values(() -> fixed("tsn:", 2, "10", Direct.longs(-1, 0)), local, null);
        values(() -> fixed("tsu:", 2, null, Direct.longs(-1, 1)), local.withNano(999_999_000),
                LocalDateTime.of(1970, 1, 1, 0, 0, 0, 1000));
        values(() -> fixed("tsm:+02:00", 2, null, Direct.longs(-1, 1)), instant.minusNanos(999_999),
                Instant.ofEpochMilli(1));
        values(() -> fixed("tss:Europe/Berlin", 2, null, Direct.longs(-1, 1)), Instant.ofEpochSecond(-1),
                Instant.ofEpochSecond(1));
        through(fixed(Format.timestamp(TimeUnit.SECONDS, "Europe/Berlin"), 2, null, Direct.longs(0, Long.MAX_VALUE)),
                column -> {
                    assertEquals("Europe/Berlin", column.field().timeZone());
                    assertEquals(Instant.EPOCH, column.getInstant(0));
                    assertEquals(Instant.EPOCH.atZone(ZoneId.of("Europe/Berlin")), column.getZonedDateTime(0));
                    assertEquals(1, column.getZonedDateTime(0).getHour());
                    assertSame(column.getZonedDateTime(0).getZone(), column.getZonedDateTime(0).getZone());
                    refused(Status.MISMATCH, () -> column.getDateTime(0), "without a time zone");
                    refused(Status.OUT_OF_RANGE, () -> column.getInstant(1),
                            "row 1 of column \"c\" is 9223372036854775807, of format \"tss:Europe/Berlin\"",
                            "no timestamp");
                    refused(Status.OUT_OF_RANGE, () -> column.getObject(1), "9223372036854775807");
                    assertEquals("1970-01-01T00:00:00Z", column.asText(0));
                    assertEquals("+292277026596-12-04T15:30:07Z", column.asText(1));
                });
        through(fixed("tsn:", 1, null, Direct.longs(-1)), column -> assertEquals(local, column.getDateTime(0)));
        through(fixed("tss:Nowhere/At_All", 1, null, Direct.longs(0)), column -> {
            assertEquals(Instant.EPOCH, column.getObject(0));
            refused(Status.UNSUPPORTED, () -> column.getZonedDateTime(0), "\"Nowhere/At_All\"");
        });
        through(fixed("tss:", 1, null, Direct.longs(Instant.MAX.getEpochSecond())), column -> {
            refused(Status.MISMATCH, () -> column.getInstant(0), "format tss:", "with a time zone");
            refused(Status.OUT_OF_RANGE, () -> column.getDateTime(0), String.valueOf(Instant.MAX.getEpochSecond()));
        });
    }

    @Test
    void durationsAndIntervals() {
        values(() -> fixed("tDs", 2, "10", Direct.longs(Long.MIN_VALUE, 0)), Duration.ofSeconds(Long.MIN_VALUE), null);
        values(() -> fixed("tDm", 2, null, Direct.longs(-1, 1500)), Duration.ofMillis(-1), Duration.ofMillis(1500));
        values(() -> fixed("tDu", 1, null, Direct.longs(Long.MAX_VALUE)),
                Duration.ofSeconds(Long.MAX_VALUE / 1_000_000, Long.MAX_VALUE % 1_000_000 * 1000));
        values(() -> fixed("tDn", 1, null, Direct.longs(-1)), Duration.ofNanos(-1));
        values(() -> fixed("tiM", 3, "101", Direct.ints(14, 0, -1)), new Interval(14, 0, 0), null,
                new Interval(-1, 0, 0));
        values(() -> fixed("tiD", 2, null, Direct.ints(3, -4, 5, Integer.MAX_VALUE)), new Interval(0, 3, -4_000_000),
                new Interval(0, 5, Integer.MAX_VALUE * 1_000_000L));
        ByteBuffer parts = Direct.room(32);
        parts.putInt(0, 1).putInt(4, -2).putLong(8, Long.MIN_VALUE).putInt(16, 4).putInt(20, 5).putLong(24, 6);
        values(() -> fixed("tin", 2, null, parts), new Interval(1, -2, Long.MIN_VALUE), new Interval(4, 5, 6));
        through(fixed("tin", 2, null, parts), column -> {
            assertEquals("4 months 5 days 6 ns", column.asText(1));
            assertEquals(new Interval(4, 5, 6), column.getInterval(1));
            refused(Status.MISMATCH, () -> column.getDuration(0), "format tin", "a duration");
        });
        through(fixed("tDs", 1, null, Direct.longs(1)), column -> {
            assertEquals(Duration.ofSeconds(1), column.getDuration(0));
            refused(Status.MISMATCH, () -> column.getInterval(0), "format tDs", "an interval");
        });
    }

    @Test
    void textAndBinaryWithOffsets() {
        ByteBuffer data = Direct.text("Köln🌧");
        values(() -> fixed("u", 4, "1101", Direct.ints(0, 5, 5, 5, 9)).buffer(data), "Köln", "", null, "🌧");
        values(() -> fixed("U", 4, "1101", Direct.longs(0, 5, 5, 5, 9)).buffer(data), "Köln", "", null, "🌧");
        for (String format : List.of("z", "Z")) {
            ByteBuffer offsets = format.equals("z") ? Direct.ints(0, 1, 3) : Direct.longs(0, 1, 3);
            through(fixed(format, 2, null, offsets).buffer(Direct.bytes(1, 255, 3)), column -> {
                assertArrayEquals(new byte[] {-1, 3}, (byte[]) column.getObject(1));
                assertEquals("0xff03", column.asText(1));
            });
        }
        through(fixed("w:2", 2, "01", Direct.bytes(1, 2, 3, 4)), column -> {
            assertNull(column.getObject(0));
            assertArrayEquals(new byte[] {3, 4}, (byte[]) column.getObject(1));
        });
        through(fixed("w:0", 2, "01", null), column -> assertArrayEquals(new byte[0], column.getBytes(1)));
        through(fixed("l", 1, null, Direct.longs(1)), column -> assertEquals(8, column.getBytes(0).length));
        through(fixed("b", 1, null, Direct.bits("1")), column ->
                refused(Status.MISMATCH, () -> column.getBytes(0), "format b", "bytes"));
    }

    /** Views of some texts; each text longer than 12 bytes gets its own data buffer. */
    private static ByteBuffer views(List<ByteBuffer> data, String... texts) {
        ByteBuffer views = Direct.room(16 * texts.length);
        for (int i = 0; i < texts.length; i++) {
            byte[] bytes = texts[i].getBytes(StandardCharsets.UTF_8);
            views.putInt(16 * i, bytes.length);
            views.put(16 * i + 4, bytes, 0, Math.min(bytes.length, bytes.length > 12 ? 4 : 12));
            if (bytes.length > 12) {
                views.putInt(16 * i + 8, data.size()).putInt(16 * i + 12, 3);
                data.add(Direct.text("???" + texts[i]));
            }
        }
        return views;
    }

    private static ArrayBuilder viewed(String format, String validity, String... texts) {
        List<ByteBuffer> data = new ArrayList<>();
        ByteBuffer views = views(data, texts);
        return fixed(format, texts.length, validity, views).viewData(data.toArray(ByteBuffer[]::new));
    }

    @Test
    void viewsOfTextAndBinary() {
        String[] texts = {"", "twelve bytes", "thirteen byte", "nothing", "Köln am Rhein im Regen 🌧"};
        values(() -> viewed("vu", "11101", texts), texts[0], texts[1], texts[2], null, texts[4]);
        through(viewed("vu", "11101", texts), column -> {
            assertEquals(5, column.bufferCount());
            assertEquals(texts[4], column.getString(4));
            assertArrayEquals(texts[2].getBytes(StandardCharsets.UTF_8), column.getBytes(2));
            assertNull(column.getString(3));
            assertNull(column.getBytes(3));
            assertEquals("\"twelve bytes\"", column.asText(1));
            refused(Status.OUT_OF_RANGE, () -> column.bufferAddress(5), "index is 5", "5 buffers");
            refused(Status.MISMATCH, column::valuesBuffer, "format vu");
        });
        through(viewed("vz", null, "a", "more than twelve"), column -> {
            assertArrayEquals(new byte[] {'a'}, (byte[]) column.getObject(0));
            assertEquals(16, column.getBytes(1).length);
            refused(Status.MISMATCH, () -> column.getString(0), "format vz", "text");
        });
        through(viewed("vu", null, texts).offset(0), column -> assertEquals(List.of(texts), objects(column)));
        // No data buffers at all, and no rows at all.
        values(() -> viewed("vu", "10", "short", "x"), "short", null);
        through(viewed("vu", null), column -> assertEquals(List.of(), objects(column)));
        through(ArrayBuilder.of("c", "vu", 0).buffer(null).buffer(null).buffer(null), column ->
                assertEquals(List.of(), objects(column)));
        // In the wrong bytes.
        through(viewed("vz", null, "\ufffd"), column -> assertEquals(3, column.getBytes(0).length));
        ByteBuffer broken = views(new ArrayList<>(), "ab");
        broken.put(4, (byte) 0xff);
        through(fixed("vu", 1, null, broken).viewData(), column ->
                refused(Status.INVALID_TEXT, () -> column.getString(0), "row 0", "UTF-8"));
        // A row can have gigabytes; the error shows how it begins.
        ByteBuffer row = Direct.room(1000).put(999, (byte) 0xff);
        ArrayBuilder text = ArrayBuilder.of("c", "u", 1).buffer(null).buffer(Direct.ints(0, 1000)).buffer(row);
        through(text, column -> {
            String message = refused(Status.INVALID_TEXT, () -> column.getString(0), "UTF-8").getMessage();
            assertEquals(256, message.chars().filter(c -> c == 0).count());
        });
    }

    @Test
    void viewsMayPointIntoAnyNumberOfBuffers() {
        int count = 3000;
        String[] texts = new String[count];
        for (int i = 0; i < count; i++) {
            texts[i] = "a text that is longer: " + i;
        }
        through(ArrayBuilder.batch(count).child(viewed("vu", null, texts)), root -> {
            Column column = root.child(0);
            assertEquals(count + 3, column.bufferCount());
            assertTrue(column.bufferAddress(count + 2) != 0);
            for (int i = 0; i < count; i++) {
                assertEquals(texts[i], column.getString(i));
            }
        });
    }

    @Test
    void viewsThatCannotBeAreRefusedWhenTheyAreRead() {
        int[][] wrong = {{-1, 0, 0, 0}, {13, 0, 2, 0}, {13, 0, -1, 0}, {13, 0, 0, -1}, {13, 0, 0, 8}, {20, 0, 1, 0},
            {13, 0, 1, Integer.MAX_VALUE}};
        ByteBuffer views = Direct.room(16 * wrong.length);
        for (int[] view : wrong) {
            views.asIntBuffer().put(view);
            views.position(views.position() + 16);
        }
        ArrayBuilder builder = fixed("vz", wrong.length, null, views.flip())
                .viewData(Direct.room(24).limit(20), Direct.room(0));
        through(builder, column -> {
            refused(Status.INVALID_BUFFERS, () -> column.getBytes(0), "row 0 has length -1");
            refused(Status.INVALID_BUFFERS, () -> column.getBytes(1), "row 1 is buffer 2", "2 data buffers");
            refused(Status.INVALID_BUFFERS, () -> column.getBytes(2), "row 2 is buffer -1");
            refused(Status.INVALID_BUFFERS, () -> column.getBytes(3), "row 3 is buffer 0, offset -1");
            refused(Status.INVALID_BUFFERS, () -> column.getObject(4), "row 4 is 13 bytes at offset 8", "which has 20");
            refused(Status.INVALID_BUFFERS, () -> column.getBytes(5), "row 5 is 20 bytes", "which has 0");
            refused(Status.INVALID_BUFFERS, () -> column.getBytes(6), "offset 2147483647");
            refused(Status.INVALID_BUFFERS, () -> column.asText(6), "offset 2147483647");
        });
        ByteBuffer view = Direct.ints(13, 0, 0, 0);
        ArrayBuilder missing = fixed("vz", 1, null, view).address(0).viewSizes(20);
        through(missing, column -> refused(Status.INVALID_BUFFERS, () -> column.getBytes(0), "buffers[2] is NULL"));
        refused(
                Status.INVALID_BUFFERS,
                () -> fixed("vz", 1, null, view).build(Device.CPU),
                "\"c\"", "n_buffers is 2", "binary_view has at least 3");
        refused(
                Status.INVALID_BUFFERS,
                () -> fixed("vz", 1, null, view)
                        .buffer(Direct.room(20))
                        .buffer(Direct.room(7))
                        .build(Device.CPU),
                "buffers[3] has 7 bytes", "take 8");
        // A copy of the array reads the sizes, even if there are no rows.
        refused(
                Status.INVALID_BUFFERS,
                () -> fixed("vz", 0, null, view)
                        .buffer(Direct.room(20))
                        .buffer(Direct.room(7))
                        .build(Device.CPU),
                "buffers[3] has 7 bytes", "take 8");
        refused(
                Status.INVALID_BUFFERS,
                () -> fixed("vz", 2, null, view).viewData().build(Device.CPU),
                "buffers[1] has 16 bytes", "take 32");
    }

    private static ArrayBuilder numbers(String name, int... values) {
        return ArrayBuilder.of(name, Format.INT32, values.length).buffer(null).buffer(Direct.ints(values));
    }

    private static List<Object> list(Object... values) {
        return Arrays.asList(values);
    }

    @Test
    void listsOfEveryKind() {
        values(() -> fixed("+l", 3, "101", Direct.ints(0, 2, 3, 3)).child(numbers("", 1, 2, 3)), list(1, 2), null,
                list());
        values(() -> fixed("+L", 3, "101", Direct.longs(0, 2, 3, 3)).child(numbers("", 1, 2, 3)), list(1, 2), null,
                list());
        values(() -> ArrayBuilder.of("c", "+w:2", 3).buffer(Direct.bits("101")).child(numbers("", 1, 2, 3, 4, 5, 6)),
                list(1, 2), null, list(5, 6));
        // In any order, overlapping.
        values(() -> fixed("+vl", 4, "1011", Direct.ints(2, 9, 0, 1))
                        .buffer(Direct.ints(1, 9, 3, 0)).child(numbers("", 1, 2, 3)),
                list(3), null, list(1, 2, 3), list());
        values(() -> fixed("+vL", 2, null, Direct.longs(1, 0))
                        .buffer(Direct.longs(2, 2)).child(numbers("", 1, 2, 3)),
                list(2, 3), list(1, 2));
        through(fixed("+l", 3, "101", Direct.ints(0, 2, 3, 3)).child(numbers("", 1, 2, 3)), column -> {
            assertNull(column.list(1));
            assertEquals(2, column.list(0).getInt(1));
            assertEquals("[1, 2]", column.asText(0));
            List<?> values = (List<?>) column.getObject(0);
            assertThrows(UnsupportedOperationException.class, () -> values.remove(0));
        });
        ArrayBuilder wrong = fixed("+vl", 4, null, Direct.ints(-1, 0, 4, 2))
                .buffer(Direct.ints(1, -2, 0, 2)).child(numbers("", 1, 2, 3));
        through(wrong, column -> {
            refused(Status.INVALID_BUFFERS, () -> column.list(0), "row 0 has offset -1 and size 1");
            refused(Status.INVALID_BUFFERS, () -> column.list(1), "row 1 has offset 0 and size -2");
            refused(Status.INVALID_BUFFERS, () -> column.list(2), "row 2", "child with length 3");
            refused(Status.INVALID_BUFFERS, () -> column.getObject(3), "row 3", "child with length 3");
        });
        refused(
                Status.INVALID_BUFFERS,
                () -> fixed("+vl", 1, null, Direct.ints(0)).child(numbers("", 1)).build(Device.CPU),
                "n_buffers is 2", "list_view has 3");
    }

    @Test
    void theValuesOfAListAreAColumn() {
        ArrayBuilder items = ArrayBuilder.of("item", Format.INT32, 5)
                .buffer(Direct.bits("0110111"))
                .buffer(Direct.ints(0, 0, 1, 2, 3, 4, 5))
                .offset(1);
        through(fixed("+l", 3, null, Direct.ints(0, 2, 4, 5)).child(items), column -> {
            Column first = column.list(0);
            assertEquals(list(0, 1), objects(first));
            assertEquals(0, first.nullCount());
            Column second = column.list(1);
            assertEquals(list(null, 3), objects(second));
            assertEquals(1, second.nullCount());
            assertTrue(second.isNull(0));
            assertEquals(3, second.offset());
            assertEquals(Direct.ints(2, 3), second.valuesBuffer());
            assertEquals(column.child(0).bufferAddress(1), second.bufferAddress(1));
            assertEquals(1, column.child(0).nullCount());
            assertEquals(Plan.Kind.VIEW, first.planTensor().kind());
            try (Tensor tensor = first.toTensor(Copy.NEVER)) {
                assertEquals(1, tensor.getLong(1));
            }
            refused(Status.OUT_OF_RANGE, () -> second.getInt(2), "row is 2", "has 2");
        });
    }

    private static ArrayBuilder texts(String name, String... texts) {
        int[] offsets = new int[texts.length + 1];
        for (int i = 0; i < texts.length; i++) {
            offsets[i + 1] = offsets[i] + texts[i].getBytes(StandardCharsets.UTF_8).length;
        }
        return ArrayBuilder.of(name, Format.UTF8, texts.length)
                .buffer(null)
                .buffer(Direct.ints(offsets))
                .buffer(Direct.text(String.join("", texts)));
    }

    private static ArrayBuilder map() {
        ArrayBuilder values = fixed("l", 4, "1011", Direct.longs(1, 2, 3, 4));
        ArrayBuilder entries = ArrayBuilder.of("entries", Format.STRUCT, 4)
                .flags(0)
                .buffer(null)
                .child(texts("key", "a", "b", "c", "c").flags(0))
                .child(values);
        return fixed("+m", 3, "101", Direct.ints(0, 2, 2, 4)).flags(Field.NULLABLE | Field.KEYS_SORTED).child(entries);
    }

    @Test
    void maps() {
        Map<Object, Object> last = Map.of("c", 4L);
        through(map(), column -> {
            assertTrue(column.field().isKeysSorted());
            Map<Object, Object> first = column.getMap(0);
            assertEquals(List.of("a", "b"), List.copyOf(first.keySet()));
            assertEquals(1L, first.get("a"));
            assertTrue(first.containsKey("b"));
            assertNull(first.get("b"));
            assertNull(column.getMap(1));
            assertNull(column.getObject(1));
            assertEquals(last, column.getMap(2), "of a key that repeats the last value counts");
            assertEquals(2, column.list(2).length());
            assertEquals(3, column.list(2).child(1).getLong(0));
            assertEquals("c", column.list(2).child(0).getString(1));
            assertEquals("{\"a\": 1, \"b\": null}", column.asText(0));
            assertThrows(UnsupportedOperationException.class, () -> first.remove("a"));
        });
        values(TypesTest::map, mapOf("a", 1L, "b", null), null, last);
        through(fixed("+l", 1, null, Direct.ints(0, 1)).child(numbers("", 1)), column ->
                refused(Status.MISMATCH, () -> column.getMap(0), "format +l", "a map"));
    }

    private static Map<Object, Object> mapOf(Object... pairs) {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            map.put(pairs[i], pairs[i + 1]);
        }
        return map;
    }

    @Test
    void structs() {
        values(() -> ArrayBuilder.of("c", "+s", 2)
                        .buffer(Direct.bits("10"))
                        .child(numbers("x", 1, 2))
                        .child(texts("y", "a", "b")),
                mapOf("x", 1, "y", "a"), null);
        through(ArrayBuilder.of("c", "+s", 2).buffer(null), column -> assertEquals(Map.of(), column.getObject(1)));
    }

    /** 5 is a number, 2 a text. */
    private static ArrayBuilder sparse() {
        return ArrayBuilder.of("c", Format.sparseUnion(5, 2), 4)
                .buffer(Direct.bytes(5, 2, 2, 5))
                .child(fixed("i", 4, "1110", Direct.ints(1, 2, 3, 4)))
                .child(texts("t", "a", "b", "c", "d"));
    }

    private static ArrayBuilder dense() {
        return ArrayBuilder.of("c", Format.denseUnion(5, 2), 4)
                .buffer(Direct.bytes(5, 2, 2, 5))
                .buffer(Direct.ints(0, 1, 0, 1))
                .child(fixed("i", 2, "10", Direct.ints(1, 4)))
                .child(texts("t", "c", "b"));
    }

    @Test
    void unions() {
        values(TypesTest::sparse, 1, "b", "c", null);
        values(TypesTest::dense, 1, "b", "c", null);
        for (ArrayBuilder builder : List.of(sparse(), dense())) {
            through(builder, column -> {
                assertEquals(List.of(5, 2), column.field().typeIds());
                assertEquals(5, column.typeId(0));
                assertEquals(2, column.typeId(1));
                Cell cell = column.unionValue(1);
                assertEquals("t", cell.column().field().name());
                assertEquals("b", cell.column().getString(cell.row()));
                assertEquals(1, column.getInt(0));
                assertEquals("b", column.getString(1));
                assertEquals(0, column.nullCount());
                assertFalse(column.isNull(3), "a union has no nulls of its own");
                assertNull(column.resolve(3));
                assertTrue(column.unionValue(3).column().isNull(column.unionValue(3).row()));
                refused(Status.INVALID_ARGUMENT, () -> column.getInt(3), "row 3", "\"c\"", "null");
                refused(Status.MISMATCH, () -> column.getInt(1), "\"t\"", "format u");
                refused(Status.OUT_OF_RANGE, () -> column.typeId(4), "row is 4");
                refused(Status.OUT_OF_RANGE, () -> column.unionValue(-1), "row is -1");
                refused(Status.MISMATCH, () -> column.run(0), "not runs");
                assertEquals("\"b\"", column.asText(1));
            });
        }
        through(numbers("n", 1), column -> {
            refused(Status.MISMATCH, () -> column.typeId(0), "format i", "a union");
            refused(Status.MISMATCH, () -> column.unionValue(0), "format i", "a union");
            assertEquals(List.of(), column.field().typeIds());
        });
        // A slice of its own, besides those of the arrays above.
        through(sparse().nullCount(0).offset(0), column -> assertEquals("c", column.getObject(2)));
        ArrayBuilder sliced = ArrayBuilder.of("c", Format.sparseUnion(0), 2)
                .offset(1)
                .buffer(Direct.bytes(9, 0, 0))
                .child(numbers("n", 9, 1, 2, 3).offset(0));
        through(sliced, column -> assertEquals(list(1, 2), objects(column)));
    }

    @Test
    void unionsThatCannotBeAreRefused() {
        ArrayBuilder ids = ArrayBuilder.of("c", Format.sparseUnion(5), 2)
                .buffer(Direct.bytes(7, -1))
                .child(numbers("", 1, 2));
        through(ids, column -> {
            refused(Status.INVALID_BUFFERS, () -> column.unionValue(0), "row 0 has type id 7", "+us:5");
            refused(Status.INVALID_BUFFERS, () -> column.getObject(1), "row 1 has type id -1");
            assertEquals(7, column.typeId(0));
        });
        ArrayBuilder offsets = ArrayBuilder.of("c", Format.denseUnion(5), 2)
                .buffer(Direct.bytes(5, 5))
                .buffer(Direct.ints(-1, 2))
                .child(numbers("", 1, 2));
        through(offsets, column -> {
            refused(Status.INVALID_BUFFERS, () -> column.getInt(0), "row 0 is offset -1 of child 0");
            refused(Status.INVALID_BUFFERS, () -> column.resolve(1), "row 1 is offset 2", "length is 2");
        });
        refused(
                Status.INVALID_LENGTH,
                () -> ArrayBuilder.of("c", Format.sparseUnion(5), 3)
                        .buffer(Direct.bytes(5, 5, 5))
                        .child(numbers("", 1, 2))
                        .build(Device.CPU),
                "\"c\"", "children[0].length is 2", "sparse_union");
        refused(
                Status.INVALID_NULL_COUNT,
                () -> sparse().nullCount(1).build(Device.CPU),
                "\"c\"", "null_count is 1", "sparse_union");
        refused(
                Status.INVALID_BUFFERS,
                () -> ArrayBuilder.of("c", Format.sparseUnion(0), 3)
                        .buffer(Direct.bytes(0, 0))
                        .child(numbers("", 1, 2, 3))
                        .build(Device.CPU),
                "buffers[0] has 2 bytes", "take 3");
    }

    private static ArrayBuilder runs(String ends, ByteBuffer memory) {
        return ArrayBuilder.of("c", Format.RUN_END_ENCODED, 6)
                .child(ArrayBuilder.of("run_ends", ends, 3).flags(0).buffer(null).buffer(memory))
                .child(fixed("i", 3, "101", Direct.ints(7, 8, 9)));
    }

    @Test
    void runsOfEqualValues() {
        Object[] expected = {7, 7, 7, null, 9, 9};
        values(() -> runs(Format.INT16, Direct.shorts(3, 4, 6)), expected);
        values(() -> runs(Format.INT32, Direct.ints(3, 4, 6)), expected);
        values(() -> runs(Format.INT64, Direct.longs(3, 4, 6)), expected);
        through(runs(Format.INT32, Direct.ints(3, 4, 6)), column -> {
            assertEquals(0, column.run(2));
            assertEquals(1, column.run(3));
            assertEquals(2, column.run(5));
            assertEquals(9, column.getInt(4));
            assertEquals(0, column.nullCount());
            assertFalse(column.isNull(3), "runs have no nulls of their own");
            assertNull(column.resolve(3));
            Cell cell = column.resolve(5);
            assertEquals(2, cell.row());
            assertEquals(9, cell.column().getInt(cell.row()));
            refused(Status.OUT_OF_RANGE, () -> column.run(6), "row is 6");
            refused(Status.INVALID_ARGUMENT, () -> column.getInt(3), "row 3 of column \"c\" is null");
            assertEquals("9", column.asText(5));
            assertEquals("null", column.asText(3));
        });
        ArrayBuilder sliced = ArrayBuilder.of("c", Format.RUN_END_ENCODED, 3)
                .offset(2)
                .child(numbers("run_ends", 3, 4, 6))
                .child(numbers("values", 7, 8, 9));
        through(sliced, column -> assertEquals(list(7, 8, 9), objects(column)));
        ArrayBuilder tooFew = ArrayBuilder.of("c", Format.RUN_END_ENCODED, 9)
                .child(numbers("run_ends", 3, 4, 6))
                .child(numbers("values", 7, 8, 9));
        through(tooFew, column -> {
            assertEquals(9, column.getInt(5));
            refused(Status.INVALID_BUFFERS, () -> column.run(6), "row 6 with offset 0", "all 3 runs");
            refused(Status.INVALID_BUFFERS, () -> column.getObject(8), "row 8");
        });
        through(numbers("n", 1), column -> refused(Status.MISMATCH, () -> column.run(0), "format i", "not runs"));
        refused(
                Status.INVALID_LENGTH,
                () -> ArrayBuilder.of("c", Format.RUN_END_ENCODED, 6)
                        .child(numbers("run_ends", 3, 6))
                        .child(numbers("values", 7))
                        .build(Device.CPU),
                "\"c\"", "children[1].length is 1", "run_end_encoded");
    }

    @Test
    void dictionariesUnionsAndRunsInEachOther() {
        // Runs of a union of dates and a dictionary of lists with a null in it.
        ArrayBuilder lists = fixed("+l", 2, "10", Direct.ints(0, 2, 2)).child(numbers("", 1, 2));
        ArrayBuilder coded = fixed("C", 3, "110", Direct.bytes(0, 1, 9)).dictionary(lists);
        ArrayBuilder union = ArrayBuilder.of("", Format.denseUnion(0, 1), 4)
                .buffer(Direct.bytes(0, 1, 1, 1))
                .buffer(Direct.ints(0, 0, 1, 2))
                .child(ArrayBuilder.of("d", Format.DATE32, 1).buffer(null).buffer(Direct.ints(1)))
                .child(coded);
        ArrayBuilder runs = ArrayBuilder.of("c", Format.RUN_END_ENCODED, 6)
                .child(numbers("run_ends", 1, 3, 4, 6))
                .child(union);
        through(runs, column -> {
            assertEquals(list(LocalDate.of(1970, 1, 2), list(1, 2), list(1, 2), null, null, null), objects(column));
            assertEquals(LocalDate.of(1970, 1, 2), column.getDate(0));
            assertEquals(2, column.list(2).getInt(1));
            assertNull(column.list(3));
            assertNull(column.list(5));
            assertEquals("+l", column.resolve(1).column().field().format());
        });
    }

    @Test
    void indicesOutsideADictionaryAreRefused() {
        ArrayBuilder coded = ArrayBuilder.of("c", Format.UINT64, 2).buffer(null).buffer(Direct.longs(1, -1))
                .dictionary(numbers("", 5, 6));
        through(coded, column -> {
            assertEquals(6, column.getObject(0));
            refused(Status.OUT_OF_RANGE, () -> column.getObject(1), "row 1 is index 18446744073709551615",
                    "dictionary of 2");
        });
    }

    @Test
    void sixtyFourLevels() {
        ArrayBuilder deep = numbers("leaf", 7, 8);
        ArrayBuilder tooDeep = numbers("leaf", 7, 8);
        Object expected = 8;
        for (int level = 1; level < 64; level++) {
            deep = ArrayBuilder.of("level", "+vl", 2).buffer(null).buffer(Direct.ints(0, 1)).buffer(Direct.ints(1, 1))
                    .child(deep);
            tooDeep = ArrayBuilder.of("level", "+s", 2).buffer(null).child(tooDeep);
            expected = List.of(expected);
        }
        Object found = expected;
        through(deep, column -> {
            assertEquals(found, column.getObject(1));
            assertEquals("[".repeat(63) + "8" + "]".repeat(63), column.asText(1));
        });
        ArrayBuilder one = ArrayBuilder.of("level", "+s", 2).buffer(null).child(tooDeep);
        refused(Status.TOO_DEEP, () -> one.build(Device.CPU), "64");
        ArrayBuilder many = numbers("leaf", 1);
        for (int level = 0; level < 100_000; level++) {
            many = ArrayBuilder.of("level", "+s", 1).buffer(null).child(many);
        }
        ArrayBuilder endless = many;
        refused(Status.TOO_DEEP, () -> endless.build(Device.CPU), "64");
    }

    @Test
    void noRowsAndNoColumns() {
        through(ArrayBuilder.batch(3), root -> {
            assertEquals(3, root.length());
            assertEquals(Map.of(), root.getObject(2));
        });
        ArrayBuilder empty = ArrayBuilder.batch(0);
        String[] two = {"b", "c", "l", "e", "g", "d:9,2", "w:4", "tdD", "ttn", "tss:", "tDs", "tiM", "tiD", "tin"};
        for (String format : two) {
            empty.child(ArrayBuilder.of(format, format, 0).buffer(null).buffer(null));
        }
        for (String format : List.of("u", "Z", "vu", "vz")) {
            empty.child(ArrayBuilder.of(format, format, 0).buffer(null).buffer(null).buffer(null));
        }
        for (String format : List.of("+l", "+L")) {
            empty.child(ArrayBuilder.of(format, format, 0).buffer(null).buffer(null).child(numbers("")));
        }
        for (String format : List.of("+vl", "+vL")) {
            empty.child(ArrayBuilder.of(format, format, 0).buffer(null).buffer(null).buffer(null).child(numbers("")));
        }
        empty.child(ArrayBuilder.of("n", "n", 0))
                .child(ArrayBuilder.of("+w:3", "+w:3", 0).buffer(null).child(numbers("")))
                .child(ArrayBuilder.of("us", Format.sparseUnion(), 0).buffer(null))
                .child(ArrayBuilder.of("ud", Format.denseUnion(0), 0).buffer(null).buffer(null).child(numbers("")))
                .child(ArrayBuilder.of("+r", "+r", 0).child(numbers("run_ends")).child(numbers("values")))
                .child(ArrayBuilder.of("+m", "+m", 0)
                        .buffer(null)
                        .buffer(null)
                        .child(ArrayBuilder.of("entries", "+s", 0)
                                .buffer(null)
                                .child(texts("key"))
                                .child(numbers("value"))))
                .child(ArrayBuilder.of("dictionary", "c", 0).buffer(null).buffer(null).dictionary(texts("")));
        through(empty, root -> {
            assertEquals(29, root.field().children().size());
            for (int i = 0; i < root.field().children().size(); i++) {
                Column column = root.child(i);
                assertEquals(0, column.length());
                assertEquals(0, column.nullCount());
                refused(Status.OUT_OF_RANGE, () -> column.getObject(0), "row is 0");
                refused(Status.OUT_OF_RANGE, () -> column.asText(0), "row is 0");
                refused(Status.OUT_OF_RANGE, () -> column.resolve(0), "row is 0");
            }
        });
    }
}
