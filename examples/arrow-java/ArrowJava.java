import dev.devexchange.ArrayBuilder;
import dev.devexchange.Batch;
import dev.devexchange.BatchStream;
import dev.devexchange.Column;
import dev.devexchange.DevExchange;
import dev.devexchange.DevExchangeException;
import dev.devexchange.Device;
import dev.devexchange.DeviceType;
import dev.devexchange.Format;
import dev.devexchange.ReleaseQueue;
import dev.devexchange.Schema;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import org.apache.arrow.c.ArrowArray;
import org.apache.arrow.c.ArrowArrayStream;
import org.apache.arrow.c.ArrowSchema;
import org.apache.arrow.c.CDataDictionaryProvider;
import org.apache.arrow.c.Data;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;

/** Exchanges record batches and streams between Arrow Java and devexchange, in one JVM, without a copy. */
public final class ArrowJava {
    private ArrowJava() {}

    /** Imports the vectors of a root as a batch. Both share the memory, so the root may be closed at once. */
    static Batch take(BufferAllocator allocator, VectorSchemaRoot root) {
        try (ArrowArray array = ArrowArray.allocateNew(allocator);
                ArrowSchema schema = ArrowSchema.allocateNew(allocator)) {
            Data.exportVectorSchemaRoot(allocator, root, null, array, schema);
            try {
                return Batch.importArrow(array.memoryAddress(), schema.memoryAddress());
            } catch (DevExchangeException refused) {
                // An import that fails takes nothing, so both structs have to be released here.
                array.release();
                schema.release();
                throw refused;
            }
        }
    }

    /** Exports a batch to Arrow Java as a root. Both share the memory, so the batch may be closed at once. */
    static VectorSchemaRoot give(BufferAllocator allocator, CDataDictionaryProvider dictionaries, Batch batch) {
        VectorSchemaRoot root;
        try (ArrowSchema fields = ArrowSchema.allocateNew(allocator);
                Schema schema = batch.schema()) {
            schema.exportArrow(fields.memoryAddress());
            root = Data.importVectorSchemaRoot(allocator, fields, dictionaries);
        }
        // The array is exported only after Arrow Java has taken the schema: if it refuses a schema, it releases the
        // schema, but not an array.
        try (ArrowArray array = ArrowArray.allocateNew(allocator)) {
            batch.exportShare(array.memoryAddress());
            Data.importIntoVectorSchemaRoot(allocator, array, root, dictionaries);
            return root;
        } catch (RuntimeException refused) {
            root.close();
            throw refused;
        }
    }

    private static Batch fromArrowJava(BufferAllocator allocator) {
        try (IntVector number = new IntVector("number", allocator);
                VarCharVector word = new VarCharVector("word", allocator)) {
            String[] words = {"one", "two", "three"};
            for (int row = 0; row < words.length; row++) {
                number.setSafe(row, row + 1);
                word.setSafe(row, words[row].getBytes(StandardCharsets.UTF_8));
            }
            number.setNull(1);
            number.setValueCount(words.length);
            word.setValueCount(words.length);
            try (VectorSchemaRoot root = VectorSchemaRoot.of(number, word)) {
                Batch batch = take(allocator, root);
                boolean same = batch.column("number").bufferAddress(1) == number.getDataBufferAddress();
                System.out.println(same ? "taken without a copy" : "copied");
                return batch;
            }
        }
    }

    private static ByteBuffer room(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    }

    private static Batch madeHere() {
        byte[] text = "sunrainfog".getBytes(StandardCharsets.UTF_8);
        ByteBuffer degrees = room(3 * Double.BYTES);
        degrees.asDoubleBuffer().put(new double[] {21.5, 14, 9.25});
        ByteBuffer offsets = room(4 * Integer.BYTES);
        offsets.asIntBuffer().put(new int[] {0, 3, 7, 10});
        return ArrayBuilder.batch(3)
                .child(ArrayBuilder.of("degrees", Format.FLOAT64, 3).buffer(null).buffer(degrees))
                .child(ArrayBuilder.of("sky", Format.UTF8, 3)
                        .buffer(null)
                        .buffer(offsets)
                        .buffer(room(text.length).put(text).flip()))
                .onRelease(() -> System.out.println("released by Arrow Java"))
                .build(Device.CPU);
    }

    /** Imports a reader of Arrow Java as a stream. The stream owns the reader: do not use the reader afterwards. */
    static BatchStream take(BufferAllocator allocator, ArrowReader reader) {
        try (ArrowArrayStream struct = ArrowArrayStream.allocateNew(allocator)) {
            Data.exportArrayStream(allocator, reader, struct);
            try {
                return BatchStream.importArrow(struct.memoryAddress());
            } catch (DevExchangeException refused) {
                struct.release();
                throw refused;
            }
        }
    }

    /** Moves a stream to Arrow Java as a reader. */
    static ArrowReader give(BufferAllocator allocator, BatchStream stream) {
        try (ArrowArrayStream struct = ArrowArrayStream.allocateNew(allocator)) {
            stream.exportArrow(struct.memoryAddress());
            return Data.importArrayStream(allocator, struct);
        }
    }

    /** A stream of three batches with one row each. */
    private static BatchStream streamed() {
        List<Double> degrees = List.of(21.5, 14.0, 9.25);
        try (Batch first = row(degrees.get(0));
                Schema schema = first.schema()) {
            return BatchStream.of(schema, DeviceType.CPU, degrees.stream().map(ArrowJava::row).iterator());
        }
    }

    private static Batch row(double degrees) {
        ByteBuffer memory = room(Double.BYTES).putDouble(0, degrees);
        return ArrayBuilder.batch(1)
                .child(ArrayBuilder.of("degrees", Format.FLOAT64, 1).buffer(null).buffer(memory))
                .build(Device.CPU);
    }

    private static void streams(BufferAllocator allocator) throws IOException {
        try (ArrowReader reader = give(allocator, streamed())) {
            StringBuilder seen = new StringBuilder();
            while (reader.loadNextBatch()) {
                seen.append(seen.length() == 0 ? "" : ", ")
                        .append(reader.getVectorSchemaRoot().getVector("degrees").getObject(0));
            }
            System.out.println(seen + " in a reader of Arrow Java");
        }
        double sum = 0;
        try (BatchStream stream = take(allocator, give(allocator, streamed()))) {
            for (Batch batch : stream) {
                sum += batch.column("degrees").getDouble(0);
                batch.close();
            }
        }
        System.out.println(sum == 44.75 ? "the same in a stream from it" : "something else: " + sum);
    }

    public static void main(String[] arguments) throws InterruptedException, IOException {
        try (BufferAllocator allocator = new RootAllocator();
                CDataDictionaryProvider dictionaries = new CDataDictionaryProvider()) {
            try (Batch batch = fromArrowJava(allocator)) {
                Column number = batch.column("number");
                for (long row = 0; row < batch.length(); row++) {
                    System.out.println(batch.column("word").getString(row) + " is " + number.getObject(row));
                }
            }
            System.out.println(allocator.getAllocatedMemory() + " bytes are left in Arrow Java");
            Batch batch = madeHere();
            try (VectorSchemaRoot root = give(allocator, dictionaries, batch)) {
                batch.close();
                System.out.print(root.contentToTSVString());
            }
            ReleaseQueue.flush(Duration.ofSeconds(5));
            streams(allocator);
            ReleaseQueue.flush(Duration.ofSeconds(5));
            System.out.println("outstanding " + DevExchange.outstanding());
        }
    }
}
