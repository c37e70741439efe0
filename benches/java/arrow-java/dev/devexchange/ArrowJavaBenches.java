package dev.devexchange;

import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.c.ArrowArray;
import org.apache.arrow.c.ArrowSchema;
import org.apache.arrow.c.Data;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VectorSchemaRoot;

/** Arrow Java: a root is exported and imported as another one, through both structs. */
final class ArrowJavaBenches {
    private ArrowJavaBenches() {}

    static void addTo(Bench.Adder benches) {
        for (int columns : OurBenches.WIDTHS) {
            benches.add("batch-read", "arrow-java", columns, BatchRead::new);
        }
    }

    private static final class BatchRead extends Bench {
        private final BufferAllocator allocator = new RootAllocator();
        private final VectorSchemaRoot root;
        private final ArrowArray array = ArrowArray.allocateNew(allocator);
        private final ArrowSchema schema = ArrowSchema.allocateNew(allocator);

        BatchRead(int columns) {
            List<FieldVector> vectors = new ArrayList<>();
            for (int column = 0; column < columns; column++) {
                IntVector vector = new IntVector("c" + column, allocator);
                vector.allocateNew(OurBenches.ROWS);
                vector.setValueCount(OurBenches.ROWS);
                vectors.add(vector);
            }
            root = new VectorSchemaRoot(vectors);
            root.setRowCount(OurBenches.ROWS);
        }

        @Override
        void run(long times) {
            for (long i = 0; i < times; i++) {
                Data.exportVectorSchemaRoot(allocator, root, null, array, schema);
                // The import closes the objects that it gets, so it gets others at the same addresses.
                try (VectorSchemaRoot seen = Data.importVectorSchemaRoot(
                        allocator, ArrowArray.wrap(array.memoryAddress()), ArrowSchema.wrap(schema.memoryAddress()),
                        null)) {
                    for (FieldVector vector : seen.getFieldVectors()) {
                        sink += vector.getDataBufferAddress();
                    }
                }
            }
        }

        @Override
        public void close() {
            array.close();
            schema.close();
            root.close();
            allocator.close();
        }
    }
}
