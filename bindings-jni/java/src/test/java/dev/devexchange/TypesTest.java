package dev.devexchange;

import static dev.devexchange.Check.refused;
import static dev.devexchange.Exchanged.objects;
import static dev.devexchange.Exchanged.through;
import static dev.devexchange.Exchanged.values;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
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
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Values of types without other arrays below as Java objects: made here, exported, imported again; whole and as slices
 * of slices. {@link NestedTypesTest} has the others.
 */
@ExtendWith(Check.class)
class TypesTest {
    static ArrayBuilder fixed(String format, int rows, String validity, ByteBuffer memory) {
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
}
