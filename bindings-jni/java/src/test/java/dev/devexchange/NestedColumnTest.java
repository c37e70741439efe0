package dev.devexchange;

import static dev.devexchange.Check.refused;
import static dev.devexchange.Exchanged.through;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.time.LocalDate;
import java.util.List;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Dictionaries, lists, structs and slices of them: made here, exported as Arrow, imported again, and read. */
@ExtendWith(Check.class)
class NestedColumnTest {
    private static final ByteBuffer NONE = null;

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
        through(numbers, List.of(Node.of(3, NONE, Direct.longs(1, 5, 2)), Node.of(2, NONE, Direct.doubles(0.5, 1.5))),
                column -> {
                    assertEquals(1.5, column.getDouble(0));
                    refused(Status.OUT_OF_RANGE, () -> column.getDouble(2), "row 2 is index 2", "dictionary of 2");
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
        // The slice of the struct applies to its columns; each column has its own slice, too.
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
}
