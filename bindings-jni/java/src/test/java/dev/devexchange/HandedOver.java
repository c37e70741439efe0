package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.function.Consumer;

/** Columns as they are here, and after they went through both of Arrow's structs and back. */
final class HandedOver {
    private HandedOver() {}

    /** One column as a batch, through both structs and back; each time the same addresses. */
    static void through(Field field, List<Node> nodes, Consumer<Column> check) {
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

    static void through(String format, Node node, Consumer<Column> check) {
        through(Field.of("c", format).nullable(), List.of(node), check);
    }
}
