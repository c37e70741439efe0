package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** Arrays that are exported as Arrow through both structs, and imported again. */
final class Exchanged {
    private Exchanged() {}

    static void through(ArrayBuilder builder, Consumer<Column> check) {
        try (Batch made = builder.build(Device.CPU)) {
            through(made, check);
        }
    }

    /** One column as a batch. */
    static void through(Field field, List<Node> nodes, Consumer<Column> check) {
        try (Schema schema = Schema.of(field);
                Batch made = Batch.create(schema, Device.CPU, nodes, null)) {
            through(made, check);
        }
    }

    static void through(String format, Node node, Consumer<Column> check) {
        through(Field.of("c", format).nullable(), List.of(node), check);
    }

    /** Checks an array as it was made and as it comes back each time, at the same addresses. */
    private static void through(Batch made, Consumer<Column> check) {
        try (Schema schema = made.schema();
                CStruct array = CStruct.arrowArray();
                CStruct fields = CStruct.arrowSchema();
                CStruct deviceArray = CStruct.arrowDeviceArray()) {
            check.accept(made.root());
            made.exportShare(array.address());
            schema.exportArrow(fields.address());
            try (Batch host = Batch.importArrow(array.address(), fields.address())) {
                assertTrue(array.isReleased() && fields.isReleased());
                check.accept(host.root());
                host.exportShareDevice(deviceArray.address());
                assertEquals(1, deviceArray.memory().getInt(Records.ARROW_DEVICE_ARRAY.at("device_type")));
                assertEquals(-1, deviceArray.memory().getLong(Records.ARROW_DEVICE_ARRAY.at("device_id")));
                assertEquals(0, deviceArray.memory().getLong(Records.ARROW_DEVICE_ARRAY.at("sync_event")));
                try (Batch device = Batch.importArrowDevice(deviceArray.address(), schema)) {
                    check.accept(device.root());
                    sameAddresses(made.root(), device.root());
                }
            }
        }
    }

    private static void sameAddresses(Column one, Column other) {
        assertEquals(one.bufferCount(), other.bufferCount());
        for (int i = 0; i < one.bufferCount(); i++) {
            assertEquals(one.bufferAddress(i), other.bufferAddress(i));
        }
        for (int i = 0; i < one.field().children().size(); i++) {
            sameAddresses(one.child(i), other.child(i));
        }
    }

    /** Checks what {@link Column#getObject} returns for all rows, also where they are a slice of a struct in a list. */
    static void values(Supplier<ArrayBuilder> builder, Object... expected) {
        List<Object> all = Arrays.asList(expected);
        through(builder.get(), column -> {
            assertEquals(all, objects(column));
            for (int row = 0; row < expected.length; row++) {
                assertEquals(expected[row] == null, column.resolve(row) == null);
                assertEquals(expected[row] == null, column.asText(row).equals("null"), column.asText(row));
            }
        });
        int rows = expected.length;
        slices(builder.get(), all);
        if (rows < 2) {
            return;
        }
        // The struct skips the first row, and the list skips the first row of the struct.
        ArrayBuilder struct = ArrayBuilder.of("s", Format.STRUCT, rows - 1)
                .buffer(null)
                .offset(1)
                .child(builder.get());
        ArrayBuilder list = ArrayBuilder.of("l", Format.LIST, 1)
                .offset(1)
                .buffer(null)
                .buffer(Direct.ints(0, 1, rows - 1))
                .child(struct);
        through(list, column -> {
            Column structs = column.list(0);
            assertEquals(all.subList(2, rows), objects(structs.child(0)));
            for (int row = 2; row < rows; row++) {
                assertEquals(structs.child(0).asText(row - 2), column.child(0).child(0).asText(row - 1));
                assertEquals(expected[row] == null, structs.child(0).resolve(row - 2) == null);
            }
            assertEquals(column.child(0).child(0).offset() + 1, structs.child(0).offset());
        });
    }

    /** Checks the content of each slice of an array, as a view and as a batch of its own. */
    private static void slices(ArrayBuilder builder, List<Object> all) {
        int rows = all.size();
        try (Batch whole = builder.build(Device.CPU)) {
            for (int from = 0; from <= rows; from++) {
                for (int to = from; to <= rows; to++) {
                    List<Object> part = all.subList(from, to);
                    assertEquals(part, objects(whole.root().slice(from, to - from)));
                    try (Batch slice = whole.slice(from, to - from);
                            Batch again = slice.slice((to - from) / 2, to - from - (to - from) / 2)) {
                        assertEquals(part, objects(slice.root()));
                        assertEquals(part.subList((to - from) / 2, to - from), objects(again.root()));
                    }
                }
            }
        }
    }

    static List<Object> objects(Column column) {
        Object[] objects = new Object[(int) column.length()];
        for (int row = 0; row < objects.length; row++) {
            objects[row] = column.getObject(row);
        }
        return Arrays.asList(objects);
    }
}
