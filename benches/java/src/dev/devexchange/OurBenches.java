package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Our benches. They measure the public API, except for {@code native-8-longs}, which calls one native method. */
final class OurBenches {
    static final int[] WIDTHS = {1, 100};
    static final int ROWS = 1024;

    private static final String NAME = "devexchange";

    private OurBenches() {}

    static void addTo(Bench.Adder benches) {
        benches.add("call", NAME, 0, columns -> new Call());
        benches.add("native-8-longs", NAME, 0, columns -> new EightLongs());
        benches.add("tensor-round-trip", NAME, 0, columns -> new RoundTrip());
        for (int columns : WIDTHS) {
            benches.add("batch-read", NAME, columns, BatchRead::new);
            benches.add("batch-columns", NAME, columns, BatchColumns::new);
        }
    }

    private static ByteBuffer room(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    }

    private static Tensor matrix() {
        return Tensor.create(room(6 * Float.BYTES), DType.FLOAT32, new long[] {2, 3}, null);
    }

    private static final class Call extends Bench {
        @Override
        void run(long times) {
            for (long i = 0; i < times; i++) {
                sink += DevExchange.outstanding();
            }
        }
    }

    /** Reads the description of a one-dimensional tensor: a struct of 48 bytes, followed by nine numbers. */
    private static final class EightLongs extends Bench {
        private final ByteBuffer values = room(Long.BYTES);
        private final ByteBuffer out = room(128);
        private final long address = Native.bufferAddress(out);
        private final long tensor;

        EightLongs() {
            Scratch scratch = Description.write(
                    Native.bufferAddress(values), Device.CPU, DType.INT64, new long[] {1}, null);
            tensor = Native.tensorCreate(scratch.address, Flags.NONE, 0, -1, 0);
        }

        @Override
        void run(long times) {
            for (long i = 0; i < times; i++) {
                Calls.tensorDescribe(tensor, address);
                sink += out.getLong(0);
            }
        }

        @Override
        public void close() {
            Handle handle = new Handle(this, Handle.Kind.TENSOR);
            handle.hold(tensor);
            handle.close();
        }
    }

    private static final class RoundTrip extends Bench {
        private final Tensor tensor = matrix();

        @Override
        void run(long times) {
            for (long i = 0; i < times; i++) {
                try (Tensor seen = Tensor.importDlpack(tensor.exportShare())) {
                    assert !seen.isClosed();
                }
            }
        }

        @Override
        public void close() {
            tensor.close();
        }
    }

    private static Batch batch(int columns) {
        ArrayBuilder builder = ArrayBuilder.batch(ROWS);
        for (int column = 0; column < columns; column++) {
            ByteBuffer values = room(ROWS * Integer.BYTES);
            builder.child(ArrayBuilder.of("c" + column, Format.INT32, ROWS).buffer(null).buffer(values));
        }
        return builder.build(Device.CPU);
    }

    private static final class BatchRead extends Bench {
        private final int columns;
        private final Batch batch;
        private final Schema type;
        private final CStruct array = CStruct.arrowArray();
        private final CStruct schema = CStruct.arrowSchema();

        BatchRead(int columns) {
            this.columns = columns;
            batch = batch(columns);
            type = batch.schema();
        }

        @Override
        void run(long times) {
            for (long i = 0; i < times; i++) {
                batch.exportShare(array.address());
                type.exportArrow(schema.address());
                try (Batch seen = Batch.importArrow(array.address(), schema.address())) {
                    for (int column = 0; column < columns; column++) {
                        sink += seen.column(column).bufferAddress(1);
                    }
                }
            }
        }

        @Override
        public void close() {
            array.close();
            schema.close();
            type.close();
            batch.close();
        }
    }

    /** The reading part of {@link BatchRead}: the batch drops its description, as if it had just been imported. */
    private static final class BatchColumns extends Bench {
        private final int columns;
        private final Batch batch;

        BatchColumns(int columns) {
            this.columns = columns;
            batch = batch(columns);
        }

        @Override
        void run(long times) {
            for (long i = 0; i < times; i++) {
                batch.forget();
                for (int column = 0; column < columns; column++) {
                    sink += batch.column(column).bufferAddress(1);
                }
            }
        }

        @Override
        public void close() {
            batch.close();
        }
    }
}
