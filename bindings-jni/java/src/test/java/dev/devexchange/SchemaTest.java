package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(Check.class)
class SchemaTest {
    private static Schema roundTrip(Schema schema) {
        try (schema;
                CStruct struct = CStruct.arrowSchema()) {
            schema.exportArrow(struct.address());
            assertFalse(struct.isReleased());
            Schema back = Schema.importArrow(struct.address());
            assertTrue(struct.isReleased());
            return back;
        }
    }

    @Test
    void schemasThatSayTheSameAreEqual() {
        Schema same = Schema.batch(Field.of("x", Format.INT8));
        try (Schema one = Schema.batch(Field.of("x", Format.INT8));
                Schema other = Schema.batch(Field.of("x", Format.INT8).notNull())) {
            assertEquals(one, same);
            assertEquals(one.hashCode(), same.hashCode());
            assertNotEquals(one, other);
            same.close();
            assertEquals(one, same);
        }
    }

    @Test
    void aTreeOfFieldsComesBack() {
        Map<String, String> metadata = new LinkedHashMap<>();
        metadata.put("unit", "°C");
        metadata.put("empty", "");
        metadata.put("", "without a key");
        Field point = Field.of("point", Format.STRUCT)
                .withChildren(Field.of("x", Format.FLOAT64).notNull(), Field.of("y", Format.FLOAT64).notNull().nullable());
        Field kind = Field.of("kind", Format.INT8)
                .withDictionary(Field.of("values", Format.UTF8).nullable())
                .withFlags(Field.ORDERED | Field.NULLABLE);
        Field lists = Field.of("lists", Format.LIST)
                .withChildren(Field.of("item", Format.fixedSizeList(3)).withChildren(Field.of("n", Format.INT64)));
        Field temperature = Field.of("Temperatur ☀ 🌡", Format.FLOAT32).withMetadata(metadata);
        try (Schema schema = roundTrip(Schema.batch(point, kind, lists, temperature))) {
            Field root = schema.root();
            assertEquals("+s", root.format());
            assertEquals("", root.name());
            assertEquals(0, root.flags());
            assertSame(root, schema.root());
            List<Field> columns = schema.columns();
            assertEquals(4, columns.size());
            assertTrue(columns.get(0).isNullable());
            assertEquals("y", columns.get(0).children().get(1).name());
            assertTrue(columns.get(0).children().get(1).isNullable());
            assertFalse(columns.get(0).children().get(0).isNullable());
            assertNull(columns.get(0).dictionary());
            assertEquals("c", columns.get(1).format());
            assertEquals("u", columns.get(1).dictionary().format());
            assertEquals("values", columns.get(1).dictionary().name());
            assertEquals(Field.ORDERED | Field.NULLABLE, columns.get(1).flags());
            assertEquals("+w:3", columns.get(2).children().get(0).format());
            assertEquals("l", columns.get(2).children().get(0).children().get(0).format());
            assertEquals("Temperatur ☀ 🌡", columns.get(3).name());
            assertEquals(metadata, columns.get(3).metadata());
            assertEquals(List.copyOf(metadata.keySet()), List.copyOf(columns.get(3).metadata().keySet()));
            assertEquals(Map.of(), columns.get(0).metadata());
            assertTrue(schema.toString().contains("\"kind\": int8 -> utf8"), schema.toString());
        }
    }

    @Test
    void manyColumnsAreNotAllShown() {
        Field[] fields = new Field[22];
        Arrays.setAll(fields, i -> Field.of("c" + i, Format.INT8));
        try (Schema schema = Schema.batch(fields);
                BatchStream stream = BatchStream.of(schema, DeviceType.CPU, List.<Batch>of().iterator())) {
            String shown = stream.toString();
            assertTrue(shown.startsWith("BatchStream (on cpu: c0: int8, c1: int8, "), shown);
            assertTrue(shown.endsWith(", c19: int8, … and 2 more)"), shown);
        }
    }

    @Test
    void fieldsOfEveryNestedType() {
        Field map = Field.map("map", Field.of("key", Format.UTF8), Field.of("value", Format.INT8).nullable())
                .keysSorted();
        Field sparse = Field.sparseUnion("sparse", Field.of("a", Format.INT8), Field.of("b", Format.UTF8));
        Field dense = Field.of("dense", Format.denseUnion(7, 0, 127))
                .withChildren(sparse, Field.of("b", Format.UTF8_VIEW), Field.of("c", Format.BINARY_VIEW));
        Field runs = Field.runEndEncoded("runs", Format.INT64, Field.of("values", Format.LIST_VIEW)
                .withChildren(Field.of("item", Format.INTERVAL_MONTH_DAY_NANO)));
        Field id = Field.of("id", Format.fixedSizeBinary(16)).withMetadata(Map.of("k", "v"))
                .withExtension("arrow.uuid", "parameters");
        Field sky = Field.of("sky", Format.INT8).withDictionary(Field.of("", Format.UTF8)).ordered().nullable();
        Field time = Field.of("time", Format.timestamp(TimeUnit.SECONDS, "Asia/Tokyo"));
        try (Schema schema = roundTrip(Schema.batch(map, dense, runs, id, sky, time))) {
            List<Field> columns = schema.columns();
            assertTrue(columns.get(0).isKeysSorted());
            assertFalse(columns.get(0).isOrdered());
            assertEquals("[\"entries\": struct [\"key\": utf8, \"value\": int8]]", columns.get(0).children().toString());
            assertEquals(List.of(7, 0, 127), columns.get(1).typeIds());
            assertEquals(List.of(0, 1), columns.get(1).children().get(0).typeIds());
            assertEquals(
                    "[\"run_ends\": int64, \"values\": list_view [\"item\": interval_month_day_nano]]",
                    columns.get(2).children().toString());
            assertEquals("int8 -> utf8", columns.get(4).typeName());
            assertEquals("timestamp(second, Asia/Tokyo)", columns.get(5).typeName());
            assertEquals("\"x\": no type", Field.of("x", "no type").toString());
            refused(Status.INVALID_FORMAT, () -> Field.of("x", "no type").typeName(), "format is \"no type\"");
            assertEquals("arrow.uuid", columns.get(3).extensionName());
            assertEquals("parameters", columns.get(3).extensionMetadata());
            assertEquals("v", columns.get(3).metadata().get("k"));
            assertTrue(columns.get(4).isOrdered() && columns.get(4).isNullable());
            assertNull(columns.get(4).extensionName());
            assertEquals("Asia/Tokyo", columns.get(5).timeZone());
            assertEquals("", columns.get(4).timeZone());
            assertEquals(List.of(), columns.get(5).typeIds());
        }
        refused(Status.INVALID_FORMAT, () -> Field.of("x", "+us:1,").typeIds(), "\"x\"", "+us:1,");
        assertEquals(List.of(), Field.sparseUnion("none").typeIds());
    }

    @Test
    void formatsOfTimesAndSizes() {
        assertEquals("ttm", Format.time(TimeUnit.MILLISECONDS));
        assertEquals("tsu:Europe/Berlin", Format.timestamp(TimeUnit.MICROSECONDS, "Europe/Berlin"));
        assertEquals("tss:", Format.timestamp(TimeUnit.SECONDS, ""));
        assertEquals("tDn", Format.duration(TimeUnit.NANOSECONDS));
        assertEquals("w:16", Format.fixedSizeBinary(16));
        assertEquals("d:9,2,32", Format.decimal(9, 2, 32));
        assertEquals("d:38,2", Format.decimal(38, 2, 128));
        assertThrows(IllegalArgumentException.class, () -> Format.time(TimeUnit.DAYS));
        assertThrows(NullPointerException.class, () -> Format.timestamp(TimeUnit.SECONDS, null));
        assertThrows(NullPointerException.class, () -> Format.duration(null));
    }

    @Test
    void fieldsThatSayTheSameAreEqual() {
        Field one = family("x");
        assertEquals(one, family("x"));
        assertEquals(one.hashCode(), family("x").hashCode());
        try (Schema schema = roundTrip(Schema.batch(one))) {
            assertEquals(one, schema.columns().get(0));
            assertEquals(one.hashCode(), schema.columns().get(0).hashCode());
        }
        for (Field other : List.of(
                family("y"),
                one.withFlags(0),
                one.withChildren(Field.of("n", Format.INT32)),
                one.withDictionary(Field.of("words", Format.BINARY)),
                one.withMetadata(Map.of("k", "w")),
                Field.of("x", Format.LIST))) {
            assertNotEquals(one, other);
        }
        assertFalse(one.equals(null));
    }

    @Test
    void fieldsNeverChange() {
        Map<String, String> pairs = new HashMap<>(Map.of("k", "v"));
        Field[] children = {Field.of("a", Format.INT8)};
        Field made = Field.of("x", Format.STRUCT).withChildren(children).withMetadata(pairs);
        pairs.put("k", "w");
        children[0] = Field.of("b", Format.INT8);
        try (Schema schema = roundTrip(Schema.of(made))) {
            for (Field field : List.of(made, schema.root())) {
                assertEquals("a", field.children().get(0).name());
                assertEquals(Map.of("k", "v"), field.metadata());
                assertThrows(UnsupportedOperationException.class, () -> field.children().set(0, children[0]));
                assertThrows(UnsupportedOperationException.class, () -> field.metadata().put("k", "w"));
            }
        }
    }

    /** Arrow allows it. */
    @Test
    void ofValuesWithOneKeyTheLastIsSeen() {
        ByteBuffer block = Direct.room(24).putInt(2);
        for (int value : new int[] {'1', '2'}) {
            block.putInt(1).put((byte) 'k').putInt(1).put((byte) value);
        }
        block.flip();
        try (Schema schema = Schema.of(Field.of("x", Format.INT8));
                CStruct struct = CStruct.arrowSchema()) {
            schema.exportArrow(struct.address());
            struct.memory().putLong(Records.ARROW_SCHEMA.at("metadata"), Direct.address(block));
            try (Schema imported = Schema.importArrow(struct.address())) {
                assertEquals(Map.of("k", "2"), imported.root().metadata());
                assertEquals(24, block.remaining());
            }
        }
    }

    private static Field family(String name) {
        return Field.of(name, Format.INT8)
                .nullable()
                .withDictionary(Field.of("words", Format.LIST).withChildren(Field.of("item", Format.UTF8)))
                .withMetadata(Map.of("k", "v"));
    }

    @Test
    void unknownFlagsAreKept() {
        long flags = 1L << 40 | Field.NULLABLE;
        try (Schema schema = roundTrip(Schema.of(Field.of("x", Format.INT8).withFlags(flags)))) {
            assertEquals(flags, schema.root().flags());
        }
    }

    @Test
    void sharesOutliveEachOther() {
        Schema first = Schema.batch(Field.of("x", Format.INT8));
        Schema second = first.share();
        first.close();
        assertEquals("x", second.columns().get(0).name());
        second.close();
    }

    @Test
    void aWideSchemaNeedsNoSpecialRoom() {
        Field[] columns = new Field[5000];
        for (int i = 0; i < columns.length; i++) {
            columns[i] = Field.of("column " + i, Format.INT32);
        }
        try (Schema schema = roundTrip(Schema.batch(columns))) {
            assertEquals("column 4999", schema.columns().get(4999).name());
        }
    }

    /** On a new thread, which has the least memory for a call. */
    @Test
    void aSchemaOfAnySizeHasRoom() throws InterruptedException {
        Threads.start(1, () -> {
            for (int length = 4000; length < 4100; length++) {
                String name = "x".repeat(length);
                try (Schema schema = Schema.of(Field.of(name, Format.INT32))) {
                    assertEquals(name, schema.root().name());
                }
            }
        }).join();
    }

    @Test
    void fieldsThatCannotBeAreRefused() {
        refuse(Status.INVALID_FORMAT, Field.of("x", ""), "\"x\"", "format is \"\"");
        refuse(Status.INVALID_FORMAT, Field.of("x", "q"), "\"x\"", "\"q\"");
        refuse(Status.INVALID_FORMAT, Field.of("x", "w:-1"), "\"w:-1\"");
        refuse(Status.INVALID_FORMAT, Field.of("x", "gg"), "\"gg\"");
        refuse(Status.INVALID_FORMAT, Field.of("x", Format.decimal(77, 0, 256)), "d:77,0,256");
        refuse(Status.INVALID_FORMAT, Field.of("x", "vv"), "\"vv\"");
        refuse(Status.INVALID_FORMAT, Field.of("x", "+us:0,0"), "\"+us:0,0\"");
        refuse(Status.INVALID_FORMAT, Field.of("x", "+ud:128"), "\"+ud:128\"");
        refuse(
                Status.INVALID_CHILDREN,
                Field.of("x", Format.sparseUnion(3, 4)).withChildren(Field.of("y", Format.INT8)),
                "n_children is 1", "2 type ids");
        refuse(
                Status.INVALID_CHILDREN,
                Field.of("x", Format.MAP).withChildren(Field.of("entries", Format.INT8)),
                "map is int8");
        refuse(
                Status.INVALID_CHILDREN,
                Field.runEndEncoded("x", Format.UINT32, Field.of("values", Format.INT8)),
                "run ends", "uint32");
        refuse(Status.INVALID_CHILDREN, Field.of("x", Format.LIST), "n_children is 0");
        refuse(
                Status.INVALID_CHILDREN,
                Field.of("x", Format.INT8).withChildren(Field.of("y", Format.INT8)),
                "n_children is 1");
        refuse(
                Status.MISMATCH,
                Field.of("x", Format.FLOAT64).withDictionary(Field.of("y", Format.UTF8)),
                "dictionary", "float64");
        refuse(Status.INVALID_TEXT, Field.of("a\0b", Format.INT8), "name", "a\\0b", "NUL");
        refuse(Status.INVALID_TEXT, Field.of("x", "c\0"), "format", "NUL");
        String most = "x".repeat(1 << 20);
        try (Schema schema = Schema.of(Field.of(most, Format.INT8))) {
            assertEquals(most, schema.root().name());
        }
        refuse(Status.INVALID_TEXT, Field.of(most + "x", Format.INT8), "name has no end within 1048576 bytes");
        refuse(Status.INVALID_TEXT, Field.of("half \ud83d", Format.INT8), "name", "Unicode");
        refuse(
                Status.INVALID_TEXT,
                Field.of("x", Format.INT8).withMetadata(Map.of("k", "\udc00")),
                "metadata", "Unicode");
        Field deep = Field.of("leaf", Format.INT8);
        for (int i = 0; i < 100; i++) {
            deep = Field.of("level", Format.STRUCT).withChildren(deep);
        }
        refuse(Status.TOO_DEEP, deep, "64");
        assertThrows(NullPointerException.class, () -> Field.of(null, Format.INT8));
        assertThrows(NullPointerException.class, () -> Field.of("x", null));
        assertThrows(NullPointerException.class, () -> Field.of("x", Format.INT8).withDictionary(null));
    }

    /** A field may occur any number of times, so a few objects could make a tree that nobody gets through. */
    @Test
    void fieldsAreCountedAsOftenAsTheyOccur() {
        Field leaf = Field.of("leaf", Format.INT8);
        Field one = doubled(leaf, 19);
        Field other = doubled(Field.of("leaf", Format.INT8), 19);
        assertEquals(one, other);
        assertEquals(one.hashCode(), other.hashCode());
        assertNotEquals(one, doubled(Field.of("leaf", Format.INT16), 19));
        assertTrue(one.toString().startsWith("\"level\": struct [\"level\": struct ["));
        // With one more field there are as many as a schema can have.
        Field root = Field.of("root", Format.STRUCT);
        Field indices = Field.of("indices", Format.INT32);
        assertEquals(List.of(one), root.withChildren(one).notNull().children());
        assertEquals(one, indices.withDictionary(one).dictionary());
        String[] texts = {"field \"root\": ", "more than 1048576 fields"};
        refused(Status.TOO_DEEP, () -> root.withChildren(one, leaf), texts);
        refused(Status.TOO_DEEP, () -> root.withChildren(one).withDictionary(leaf), texts);
        refused(Status.TOO_DEEP, () -> root.withChildren(leaf).withDictionary(one), texts);
        refused(Status.TOO_DEEP, () -> root.withDictionary(one).withChildren(leaf), texts);
        refused(Status.TOO_DEEP, () -> Schema.batch(one, leaf), "field \"\": ", "more than 1048576 fields");
        refused(Status.TOO_DEEP, () -> doubled(leaf, 40), "field \"level\": ", "more than 1048576 fields");
    }

    /** A tree of structs with two equal children each: 2^(levels + 1) - 1 fields. */
    private static Field doubled(Field leaf, int levels) {
        Field field = leaf;
        for (int i = 0; i < levels; i++) {
            field = Field.of("level", Format.STRUCT).withChildren(field, field);
        }
        return field;
    }

    private static void refuse(int status, Field field, String... texts) {
        refused(status, () -> Schema.of(field), texts);
    }

    @Test
    void structsThatCannotBeAreRefusedAndLeftAlone() {
        refused(Status.NULL_ARGUMENT, () -> Schema.importArrow(0), "schema is NULL");
        refused(Status.INVALID_ARGUMENT, () -> Schema.importArrow(20), "schema is 0x14", "not aligned to 8");
        try (CStruct empty = CStruct.arrowSchema()) {
            refused(Status.RELEASED, () -> Schema.importArrow(empty.address()), "schema.release is NULL");
        }
        broken(Status.INVALID_FORMAT, "format", 0, "format is NULL");
        broken(Status.INVALID_CHILDREN, "n_children", -1, "n_children is -1");
        broken(Status.TOO_DEEP, "n_children", Long.MAX_VALUE, "n_children is 9223372036854775807");
        broken(Status.INVALID_CHILDREN, "children", 0, "children is NULL");
        ByteBuffer format = Direct.text("nonsense\0");
        broken(Status.INVALID_FORMAT, "format", Direct.address(format), "\"nonsense\"");
        ByteBuffer latin1 = Direct.bytes('x', 0xe9, 0);
        broken(Status.INVALID_TEXT, "name", Direct.address(latin1), "name", "UTF-8");
        ByteBuffer negative = Direct.ints(-1);
        broken(Status.INVALID_METADATA, "metadata", Direct.address(negative), "-1 pairs");
        ByteBuffer negativeKey = Direct.ints(1, -5);
        broken(Status.INVALID_METADATA, "metadata", Direct.address(negativeKey), "key 0 has -5 bytes");
        assertEquals(0, format.get(format.limit() - 1) + latin1.get(2));
        assertEquals(-6, negative.getInt(0) + negativeKey.getInt(4));
    }

    /** A good struct with one bad member: it is refused and untouched, and its owner still has to release it. */
    private static void broken(int status, String member, long value, String... texts) {
        try (Schema schema = Schema.batch(Field.of("x", Format.INT8), Field.of("y", Format.INT8));
                CStruct struct = CStruct.arrowSchema()) {
            schema.exportArrow(struct.address());
            int at = Records.ARROW_SCHEMA.at(member);
            long good = struct.memory().getLong(at);
            struct.memory().putLong(at, value);
            byte[] before = bytes(struct.memory());
            refused(status, () -> Schema.importArrow(struct.address()), texts);
            assertEquals(ByteBuffer.wrap(before), ByteBuffer.wrap(bytes(struct.memory())), "the struct was touched");
            struct.memory().putLong(at, good);
            Schema.importArrow(struct.address()).close();
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.capacity()];
        buffer.get(0, bytes);
        return bytes;
    }

    @Test
    void exportsNeedRoom() {
        try (Schema schema = Schema.batch()) {
            refused(Status.NULL_ARGUMENT, () -> schema.exportArrow(0), "out is NULL");
            refused(Status.INVALID_ARGUMENT, () -> schema.exportArrow(4), "out is 0x4");
        }
    }

    @Test
    void aChildMayBeMovedOutOfAnExport() {
        try (Schema schema = Schema.batch(Field.of("x", Format.INT8), Field.of("y", Format.UTF8));
                CStruct struct = CStruct.arrowSchema();
                CStruct moved = CStruct.arrowSchema()) {
            schema.exportArrow(struct.address());
            long children = struct.memory().getLong(Records.ARROW_SCHEMA.at("children"));
            ByteBuffer second = HostMemory.view(
                    HostMemory.view(children, 16).getLong(8), Records.ARROW_SCHEMA.size());
            moved.memory().put(0, second, 0, second.capacity());
            second.putLong(Records.ARROW_SCHEMA.at("release"), 0);
            refused(Status.INVALID_CHILDREN, () -> Schema.importArrow(struct.address()), "children[1]", "moved out");
            struct.release();
            try (Schema child = Schema.importArrow(moved.address())) {
                assertEquals("y", child.root().name());
            }
        }
    }
}
