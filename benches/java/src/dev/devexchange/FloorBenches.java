package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** The floor: the same operations with nothing but native calls. */
final class FloorBenches {
    private static final String NAME = "floor";

    private FloorBenches() {}

    static void addTo(Bench.Adder benches) {
        benches.add("call", NAME, 0, columns -> new Call());
        benches.add("native-8-longs", NAME, 0, columns -> new EightLongs());
        benches.add("tensor-round-trip", NAME, 0, columns -> new RoundTrip());
        for (int columns : OurBenches.WIDTHS) {
            benches.add("batch-read", NAME, columns, BatchRead::new);
            benches.add("batch-columns", NAME, columns, BatchColumns::new);
        }
    }

    private static final class Call extends Bench {
        @Override
        void run(long times) {
            for (long i = 0; i < times; i++) {
                sink += Floor.nothing();
            }
        }
    }

    private static final class EightLongs extends Bench {
        private final ByteBuffer out = ByteBuffer.allocateDirect(8 * Long.BYTES).order(ByteOrder.nativeOrder());
        private final long address = Native.bufferAddress(out);

        @Override
        void run(long times) {
            for (long i = 0; i < times; i++) {
                Floor.eightLongs(address);
                sink += out.getLong(7 * Long.BYTES);
            }
        }
    }

    private static final class RoundTrip extends Bench {
        private final long producer = Floor.producer();

        @Override
        void run(long times) {
            for (long i = 0; i < times; i++) {
                Floor.releaseTensor(Floor.importTensor(Floor.exportTensor(producer)));
            }
        }

        @Override
        public void close() {
            Floor.endProducer(producer);
        }
    }

    private static final class BatchRead extends Bench {
        private final int columns;
        private final long table;
        private final CStruct array = CStruct.arrowArray();
        private final CStruct schema = CStruct.arrowSchema();
        private final ByteBuffer out;
        private final long address;

        BatchRead(int columns) {
            this.columns = columns;
            table = Floor.table(columns);
            out = ByteBuffer.allocateDirect((2 + columns) * Long.BYTES).order(ByteOrder.nativeOrder());
            address = Native.bufferAddress(out);
        }

        @Override
        void run(long times) {
            for (long i = 0; i < times; i++) {
                Floor.exportBatch(table, array.address(), schema.address());
                Floor.importBatch(array.address(), schema.address(), address);
                Floor.readBatch(address, columns);
                for (int column = 0; column < columns; column++) {
                    sink += out.getLong((2 + column) * Long.BYTES);
                }
                Floor.releaseBatch(address);
            }
        }

        @Override
        public void close() {
            array.close();
            schema.close();
            Floor.endTable(table);
        }
    }

    private static final class BatchColumns extends Bench {
        private final int columns;
        private final long table;
        private final ByteBuffer out;
        private final long address;

        BatchColumns(int columns) {
            this.columns = columns;
            table = Floor.table(columns);
            out = ByteBuffer.allocateDirect((2 + columns) * Long.BYTES).order(ByteOrder.nativeOrder());
            address = Native.bufferAddress(out);
            try (CStruct array = CStruct.arrowArray(); CStruct schema = CStruct.arrowSchema()) {
                Floor.exportBatch(table, array.address(), schema.address());
                Floor.importBatch(array.address(), schema.address(), address);
            }
        }

        @Override
        void run(long times) {
            for (long i = 0; i < times; i++) {
                Floor.readBatch(address, columns);
                for (int column = 0; column < columns; column++) {
                    sink += out.getLong((2 + column) * Long.BYTES);
                }
            }
        }

        @Override
        public void close() {
            Floor.releaseBatch(address);
            Floor.endTable(table);
        }
    }
}
