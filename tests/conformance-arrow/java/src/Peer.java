import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.arrow.c.ArrowArray;
import org.apache.arrow.c.ArrowArrayStream;
import org.apache.arrow.c.ArrowSchema;
import org.apache.arrow.c.BaseStruct;
import org.apache.arrow.c.CDataDictionaryProvider;
import org.apache.arrow.c.Data;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.util.ValueVectorUtility;

/**
 * Arrow Java as the peer: {@code Peer CORPUS LIBOURS}. Prints a line for each exchange (results.py describes the
 * columns).
 */
public final class Peer {
    private static final int STREAMED = 3;

    private static String corpus;

    /** Whether Arrow Java takes every offset for 0. It would then read garbage as lengths and offsets of values. */
    private static boolean ignoresOffsets;

    /** A batch, with the dictionaries that its columns refer to. */
    private record Batch(VectorSchemaRoot root, DictionaryProvider dictionaries, List<AutoCloseable> closed)
            implements AutoCloseable {
        @Override
        public void close() throws Exception {
            for (AutoCloseable it : closed) it.close();
        }
    }

    private interface Exchange {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        corpus = arguments[0];
        System.load(Path.of(arguments[1]).toAbsolutePath().toString());
        Map<String, List<String>> cases = new LinkedHashMap<>();
        for (String line : Files.readAllLines(Path.of(corpus, "layouts"))) {
            String[] words = line.split(" ");
            cases.computeIfAbsent(words[0], name -> new ArrayList<>()).add(words[1]);
        }
        ignoresOffsets = ignoresOffsets();
        for (Map.Entry<String, List<String>> of : cases.entrySet()) run(of.getKey(), of.getValue());
        System.out.println("outstanding\t" + Ours.outstanding());
    }

    /** Runs all exchanges of a case. Its allocator reports what Arrow Java did not close; that memory is abandoned. */
    private static void run(String name, List<String> layouts) throws Exception {
        BufferAllocator allocator = new RootAllocator();
        byte[] file = file(name);
        for (String layout : layouts) {
            if (ignoresOffsets && (layout.equals("inner") || layout.equals("root"))) {
                for (String transport : List.of("array", "stream"))
                    report(name, "to peer", transport, layout, "wrong", "it takes an offset for 0");
                continue;
            }
            try (Ours ours = new Ours(corpus, name, layout)) {
                array(name, layout, ours, file, allocator);
                stream(name, layout, ours, file, allocator);
            }
        }
        try (Ours ours = new Ours(corpus, name, "plain")) {
            own(name, ours, file, allocator);
        }
        try {
            allocator.close();
        } catch (IllegalStateException leak) {
            report(name, "to peer", "array", "memory", "wrong", leak.getMessage().lines().findFirst().orElse(""));
        }
    }

    /** Tries this with a case of integers, where a wrong offset gives wrong values and no invalid access. */
    private static boolean ignoresOffsets() throws Exception {
        try (BufferAllocator allocator = new RootAllocator(); Ours ours = new Ours(corpus, "one_row", "inner");
                Batch given = give(ours, allocator); Batch original = read(file("one_row"), allocator)) {
            same(given, original);
            return false;
        } catch (Wrong wrong) {
            return true;
        }
    }

    /** The IPC stream of the case, or null if it has none. */
    private static byte[] file(String name) throws Exception {
        Path path = Path.of(corpus, name + ".arrow");
        return Files.exists(path) ? Files.readAllBytes(path) : null;
    }

    private static Batch read(byte[] file, BufferAllocator allocator) throws Exception {
        ArrowReader reader = new ArrowStreamReader(new ByteArrayInputStream(file), allocator);
        try {
            VectorSchemaRoot root = reader.getVectorSchemaRoot();
            if (!reader.loadNextBatch()) throw new Wrong("there is no batch");
            return new Batch(root, reader, List.of(reader));
        } catch (Exception failure) {
            reader.close();
            throw failure;
        }
    }

    private static Batch give(Ours ours, BufferAllocator allocator) throws Exception {
        CDataDictionaryProvider dictionaries = new CDataDictionaryProvider();
        try (ArrowArray array = ArrowArray.allocateNew(allocator);
                ArrowSchema schema = ArrowSchema.allocateNew(allocator)) {
            ours.give(array.memoryAddress(), schema.memoryAddress());
            try {
                VectorSchemaRoot root = Data.importVectorSchemaRoot(allocator, array, schema, dictionaries);
                return new Batch(root, dictionaries, List.of(root, dictionaries));
            } catch (Exception | Error failure) {
                // A failed import has closed the structs that it took.
                if (isOpen(array)) array.release();
                if (isOpen(schema)) schema.release();
                throw failure;
            }
        } catch (Exception | Error failure) {
            dictionaries.close();
            throw failure;
        }
    }

    private static boolean isOpen(BaseStruct struct) {
        try {
            return struct.memoryAddress() != 0;
        } catch (NullPointerException closed) {
            return false;
        }
    }

    private static void take(Ours ours, Batch batch, VectorSchemaRoot rows, long first, long count,
            BufferAllocator allocator) throws Exception {
        try (ArrowArray array = ArrowArray.allocateNew(allocator);
                ArrowSchema schema = ArrowSchema.allocateNew(allocator)) {
            Data.exportVectorSchemaRoot(allocator, rows, batch.dictionaries, array, schema);
            try {
                ours.take(first, count, array.memoryAddress(), schema.memoryAddress());
            } finally {
                array.release();
                schema.release();
            }
        }
    }

    private static void takeStream(Ours ours, byte[] file, BufferAllocator allocator) throws Exception {
        ArrowReader reader = new ArrowStreamReader(new ByteArrayInputStream(file), allocator);
        try (ArrowArrayStream stream = ArrowArrayStream.allocateNew(allocator)) {
            Data.exportArrayStream(allocator, reader, stream);
            try {
                ours.takeStream(STREAMED, stream.memoryAddress());
            } finally {
                stream.release();
            }
        }
    }

    /** An IPC stream by Arrow Java that has the batch {@code STREAMED} times. */
    private static byte[] repeated(Batch batch) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (ArrowStreamWriter writer = new ArrowStreamWriter(batch.root, batch.dictionaries, out)) {
            writer.start();
            for (int i = 0; i < STREAMED; i++) writer.writeBatch();
            writer.end();
        }
        return out.toByteArray();
    }

    private static void array(String name, String layout, Ours ours, byte[] file, BufferAllocator allocator) {
        reported(name, "to peer", "array", layout, () -> {
            try (Batch given = give(ours, allocator)) {
                compare(given, file, allocator);
            }
        });
        reported(name, "from peer", "array", layout, () -> {
            try (Batch given = given(ours, allocator)) {
                if (given != null) take(ours, given, given.root, 0, -1, allocator);
            }
        });
    }

    private static void compare(Batch given, byte[] file, BufferAllocator allocator) throws Exception {
        if (file == null) return; // Our side compares the rows when the batch comes back.
        try (Batch original = read(file, allocator)) {
            same(given, original);
        }
    }

    /** Like {@link #give}, but a failure, which was reported for "to peer", becomes {@link NothingToHandBack}. */
    private static Batch given(Ours ours, BufferAllocator allocator) throws Exception {
        try {
            return give(ours, allocator);
        } catch (Exception | Error refused) {
            throw new NothingToHandBack();
        }
    }

    private static final class NothingToHandBack extends Exception {
        private static final long serialVersionUID = 1;
    }

    private static void stream(String name, String layout, Ours ours, byte[] file, BufferAllocator allocator) {
        reported(name, "to peer", "stream", layout, () -> {
            try (ArrowArrayStream stream = ArrowArrayStream.allocateNew(allocator)) {
                ours.giveStream(STREAMED, stream.memoryAddress());
                try (ArrowReader reader = Data.importArrayStream(allocator, stream)) {
                    int batches = 0;
                    for (; reader.loadNextBatch(); batches++) {
                        Batch given = new Batch(reader.getVectorSchemaRoot(), reader, List.of());
                        compare(given, file, allocator);
                    }
                    if (batches != STREAMED) throw new Wrong("there are " + batches + " batches, not " + STREAMED);
                }
            }
        });
    }

    private static void own(String name, Ours ours, byte[] file, BufferAllocator allocator) {
        reported(name, "from peer", "stream", "its own", () -> {
            byte[] batches;
            try (Batch own = file == null ? give(ours, allocator) : read(file, allocator)) {
                batches = repeated(own);
            }
            takeStream(ours, batches, allocator);
        });
        if (file == null) return;
        reported(name, "from peer", "array", "its own", () -> {
            try (Batch own = read(file, allocator)) {
                take(ours, own, own.root, 0, -1, allocator);
            }
        });
        reported(name, "from peer", "array", "its own slice", () -> {
            try (Batch own = read(file, allocator)) {
                int rows = own.root.getRowCount();
                if (rows <= 2) throw new NothingToHandBack();
                try (VectorSchemaRoot slice = own.root.slice(1, rows - 2)) {
                    take(ours, own, slice, 1, rows - 2, allocator);
                }
            }
        });
    }

    /** Validates a batch. If a validator is missing or fails for the original, the batch counts as valid. */
    private static void validate(VectorSchemaRoot given, VectorSchemaRoot original) {
        try {
            for (FieldVector vector : original.getFieldVectors()) ValueVectorUtility.validateFull(vector);
        } catch (RuntimeException notToBeValidated) {
            return;
        }
        for (FieldVector vector : given.getFieldVectors()) ValueVectorUtility.validateFull(vector);
    }

    /** Requires a valid batch with the same types, metadata and values as the original, also in dictionaries. */
    private static void same(Batch given, Batch original) throws Wrong {
        validate(given.root, original.root);
        if (!given.root.getSchema().equals(original.root.getSchema()))
            throw new Wrong("the schema is " + given.root.getSchema() + ", not " + original.root.getSchema());
        if (given.root.getRowCount() != original.root.getRowCount())
            throw new Wrong("there are " + given.root.getRowCount() + " rows, not " + original.root.getRowCount());
        for (int i = 0; i < given.root.getFieldVectors().size(); i++)
            same(given.root.getVector(i), given.dictionaries, original.root.getVector(i), original.dictionaries);
    }

    private static void same(FieldVector given, DictionaryProvider givenTo, FieldVector original,
            DictionaryProvider originalTo) throws Wrong {
        if (given.getValueCount() != original.getValueCount())
            throw new Wrong("there are " + given.getValueCount() + " values, not " + original.getValueCount());
        for (int row = 0; row < original.getValueCount(); row++) {
            Object is = given.getObject(row), was = original.getObject(row);
            if (!equal(is, was)) throw new Wrong("row " + row + " is " + is + ", not " + was);
        }
        if (original.getField().getDictionary() != null) {
            Dictionary is = givenTo.lookup(given.getField().getDictionary().getId());
            Dictionary was = originalTo.lookup(original.getField().getDictionary().getId());
            same(is.getVector(), givenTo, was.getVector(), originalTo);
        }
        for (int i = 0; i < original.getChildrenFromFields().size(); i++) {
            FieldVector child = original.getChildrenFromFields().get(i);
            if (child.getField().getDictionary() != null)
                same(given.getChildrenFromFields().get(i), givenTo, child, originalTo);
        }
    }

    private static boolean equal(Object one, Object other) {
        if (one instanceof List<?> list && other instanceof List<?> others) {
            if (list.size() != others.size()) return false;
            for (int i = 0; i < list.size(); i++)
                if (!equal(list.get(i), others.get(i))) return false;
            return true;
        }
        if (one instanceof Map<?, ?> map && other instanceof Map<?, ?> others) {
            if (!map.keySet().equals(others.keySet())) return false;
            for (Object key : map.keySet())
                if (!equal(map.get(key), others.get(key))) return false;
            return true;
        }
        return Objects.deepEquals(one, other);
    }

    private static void reported(String name, String direction, String transport, String layout, Exchange exchange) {
        try {
            exchange.run();
            report(name, direction, transport, layout, "ok", "");
        } catch (NothingToHandBack nothing) {
            // The import failed, which was reported, or the batch is too short for a slice.
        } catch (Wrong wrong) {
            report(name, direction, transport, layout, "wrong", wrong.getMessage());
        } catch (Exception | Error refused) {
            report(name, direction, transport, layout, "refused", refused.toString());
        }
    }

    private static void report(
            String name, String direction, String transport, String layout, String result, String how) {
        String words = how.replaceAll("[\\n\\t\\r]", " ");
        System.out.println(String.join("\t", name, direction, transport, "host", layout, result, words));
    }
}
