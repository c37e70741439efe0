package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.ByteBuffer;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Many rounds of export, import and release end where they began. */
@ExtendWith(Check.class)
class RoundsTest {
    private static final int ROUNDS = 10_000;

    private static final ByteBuffer NONE = null;

    @Test
    void tenThousandTensors() throws InterruptedException {
        Ledger before = DevExchange.ledger();
        Release release = new Release();
        ByteBuffer memory = Direct.doubles(1, 2, 3, 4);
        for (int i = 0; i < ROUNDS; i++) {
            Tensor tensor = Tensor.create(memory, DType.FLOAT64, new long[] {2, 2}, release);
            try (Tensor imported = Tensor.importDlpack(tensor.exportMove())) {
                assertEquals(4, imported.getDouble(1, 1));
            }
        }
        assertEquals(ROUNDS, release.count());
        Ledger after = DevExchange.ledger();
        assertEquals(ROUNDS, after.tensorExports().total() - before.tensorExports().total());
        assertEquals(ROUNDS, after.tensorImports().total() - before.tensorImports().total());
        assertEquals(ROUNDS, after.owners().total() - before.owners().total());
    }

    @Test
    void tenThousandBatches() throws InterruptedException {
        Ledger before = DevExchange.ledger();
        Release release = new Release();
        rounds(ROUNDS, release);
        assertEquals(ROUNDS, release.count());
        Ledger after = DevExchange.ledger();
        assertEquals(ROUNDS, after.batchExports().total() - before.batchExports().total());
        assertEquals(ROUNDS, after.batchImports().total() - before.batchImports().total());
        assertEquals(ROUNDS, after.schemaExports().total() - before.schemaExports().total());
        assertEquals(ROUNDS, after.schemaImports().total() - before.schemaImports().total());
    }

    @Test
    void severalThreadsAtOnce() throws InterruptedException {
        Release release = new Release();
        Threads.start(4, () -> rounds(ROUNDS / 4, release)).join();
        assertEquals(ROUNDS, release.count());
    }

    private static void rounds(int rounds, Runnable release) {
        ByteBuffer numbers = Direct.ints(1, 2, 3);
        ByteBuffer offsets = Direct.ints(0, 1, 2, 3);
        ByteBuffer text = Direct.text("abc");
        Field[] fields = {Field.of("n", Format.INT32), Field.of("s", Format.UTF8)};
        List<Node> nodes = List.of(Node.of(3, NONE), Node.of(3, NONE, numbers), Node.of(3, NONE, offsets, text));
        try (CStruct array = CStruct.arrowDeviceArray();
                CStruct schemas = CStruct.arrowSchema()) {
            for (int i = 0; i < rounds; i++) {
                try (Schema schema = Schema.batch(fields)) {
                    schema.exportArrow(schemas.address());
                    Batch.create(schema, Device.CPU, nodes, release).exportMoveDevice(array.address());
                }
                try (Batch imported = Batch.importArrowDevice(array.address(), schemas.address())) {
                    assertEquals(3, imported.column("n").getInt(2));
                    assertEquals("c", imported.column(1).getString(2));
                }
            }
        }
    }
}
