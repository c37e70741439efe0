package dev.devexchange;

import static dev.devexchange.Check.refused;
import static dev.devexchange.Exchanged.objects;
import static dev.devexchange.Exchanged.through;
import static dev.devexchange.Exchanged.values;
import static dev.devexchange.TypesTest.fixed;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Like {@link TypesTest}, for types whose values are in other arrays, and for columns of every type without rows. */
@ExtendWith(Check.class)
class NestedTypesTest {
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
        values(NestedTypesTest::map, mapOf("a", 1L, "b", null), null, last);
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
        values(NestedTypesTest::sparse, 1, "b", "c", null);
        values(NestedTypesTest::dense, 1, "b", "c", null);
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
