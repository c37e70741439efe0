package dev.devexchange;

import static dev.devexchange.Check.refused;
import static dev.devexchange.Exchanged.objects;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.io.IOException;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.arrow.c.ArrowArray;
import org.apache.arrow.c.ArrowSchema;
import org.apache.arrow.c.CDataDictionaryProvider;
import org.apache.arrow.c.Data;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.DecimalVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.TimeStampMicroTZVector;
import org.apache.arrow.vector.TinyIntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ViewVarCharVector;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.MapVector;
import org.apache.arrow.vector.complex.impl.UnionListWriter;
import org.apache.arrow.vector.complex.impl.UnionMapWriter;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryProvider.MapDictionaryProvider;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Exchanges with Arrow Java, as an independent implementation. Runs without -Xcheck:jni, which finds fault with the
 * native library of arrow-c-data.
 */
@ExtendWith(Check.class)
class ArrowJavaTest {
    // ---- made here, through Arrow Java, and back ----

    /** Hands an array to Arrow Java, which must see these values, and takes it back from there. */
    private static void through(String seen, ArrayBuilder builder) throws InterruptedException {
        Release release = new Release();
        builder.onRelease(release);
        try (BufferAllocator allocator = new RootAllocator()) {
            try (CDataDictionaryProvider dictionaries = new CDataDictionaryProvider()) {
                Batch made = builder.build(Device.CPU);
                String expected = shown(objects(made.root()));
                long values = made.root().bufferCount() > 1 ? made.root().bufferAddress(1) : 0;
                Batch back;
                try (FieldVector vector = give(allocator, dictionaries, made)) {
                    made.close();
                    List<Object> objects = new ArrayList<>();
                    for (int row = 0; row < vector.getValueCount(); row++) {
                        objects.add(vector.getObject(row));
                    }
                    assertEquals(seen, shown(objects), builder.toString());
                    back = take(allocator, dictionaries, vector);
                }
                try (back) {
                    // An array without buffers leaves nothing for Arrow Java to hold.
                    assertEquals(builder.toString().endsWith(": n)") ? 1 : 0, release.count(), "released too early");
                    assertEquals(expected, shown(objects(back.root())), builder.toString());
                    if (values != 0) {
                        assertEquals(values, back.root().bufferAddress(1), "copied");
                    }
                }
            }
            release.assertOnce();
            assertEquals(0, allocator.getAllocatedMemory());
        }
    }

    private static FieldVector give(BufferAllocator allocator, CDataDictionaryProvider dictionaries, Batch batch) {
        try (ArrowArray array = ArrowArray.allocateNew(allocator);
                ArrowSchema fields = ArrowSchema.allocateNew(allocator);
                Schema schema = batch.schema()) {
            schema.exportArrow(fields.memoryAddress());
            batch.exportShare(array.memoryAddress());
            return Data.importVector(allocator, array, fields, dictionaries);
        }
    }

    private static Batch take(
            BufferAllocator allocator,
            org.apache.arrow.vector.dictionary.DictionaryProvider dictionaries,
            FieldVector vector) {
        try (ArrowArray array = ArrowArray.allocateNew(allocator);
                ArrowSchema fields = ArrowSchema.allocateNew(allocator)) {
            Data.exportVector(allocator, vector, dictionaries, array, fields);
            return Batch.importArrow(array.memoryAddress(), fields.memoryAddress());
        }
    }

    /** Compares bytes by their contents, and Arrow Java's lists like any others. */
    private static String shown(Object value) {
        if (value instanceof byte[] bytes) {
            return HexFormat.of().formatHex(bytes);
        }
        if (value instanceof Collection<?> values) {
            return values.stream().map(ArrowJavaTest::shown).toList().toString();
        }
        return value instanceof Character unsigned ? String.valueOf((int) unsigned) : String.valueOf(value);
    }

    /** An array of three rows, of which the second one is null. */
    private static ArrayBuilder nullable(String format, ByteBuffer memory) {
        return ArrayBuilder.of("c", format, 3).buffer(Direct.bits("101")).buffer(memory);
    }

    private static ArrayBuilder numbers(String name, int... values) {
        return ArrayBuilder.of(name, Format.INT32, values.length)
                .flags(0)
                .buffer(null)
                .buffer(Direct.ints(values));
    }

    @Test
    void numbersAndTimes() throws InterruptedException {
        through("[null, null]", ArrayBuilder.of("c", "n", 2));
        through("[true, null, false]", nullable("b", Direct.bits("100")));
        through("[-1, null, 3]", nullable("c", Direct.bytes(-1, 2, 3)));
        through("[-1, null, 3]", nullable("C", Direct.bytes(-1, 2, 3)));
        through("[-1, null, 3]", nullable("s", Direct.shorts(-1, 2, 3)));
        through("[65535, null, 3]", nullable("S", Direct.shorts(-1, 2, 3)));
        through("[-1, null, 3]", nullable("i", Direct.ints(-1, 2, 3)));
        through("[-1, null, 3]", nullable("I", Direct.ints(-1, 2, 3)));
        through("[-1, null, 3]", nullable("l", Direct.longs(-1, 2, 3)));
        through("[-1, null, 3]", nullable("L", Direct.longs(-1, 2, 3)));
        through("[15360, null, 3]", nullable("e", Direct.shorts(0x3c00, 2, 3)));
        through("[0.5, null, 3.0]", nullable("f", Direct.floats(0.5f, 2, 3)));
        through("[0.5, null, 3.0]", nullable("g", Direct.doubles(0.5, 2, 3)));
        through("[-0.01, null, 0.03]", nullable("d:38,2", Direct.longs(-1, -1, 0, 0, 3, 0)));
        through("[0.1, null, 0.3]", nullable("d:70,1,256", Direct.longs(1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0)));
        through("[-1, null, 3]", nullable("tdD", Direct.ints(-1, 2, 3)));
        through("[1970-01-02T00:00, null, 1970-01-01T00:00]", nullable("tdm", Direct.longs(86_400_000, 0, 0)));
        through("[1, null, 3]", nullable("tts", Direct.ints(1, 2, 3)));
        through("[1, null, 3]", nullable("ttn", Direct.longs(1, 2, 3)));
        through("[1970-01-01T00:00:01, null, 1970-01-01T00:00:03]", nullable("tss:", Direct.longs(1, 2, 3)));
        through("[1, null, 3]", nullable("tsu:Europe/Berlin", Direct.longs(1, 2, 3)));
        through("[PT0.001S, null, PT-0.003S]", nullable("tDm", Direct.longs(1, 2, -3)));
        through("[P1M, null, P3M]", nullable("tiM", Direct.ints(1, 2, 3)));
        through("[PT24H0.002S, null, PT120H0.006S]", nullable("tiD", Direct.ints(1, 2, 3, 4, 5, 6)));
        through("[P1M PT0.000000002S, null, P3M PT0.000000004S]",
                nullable("tin", Direct.longs(1, 2, 0, 0, 3, 4)));
    }

    @Test
    void textAndBinary() throws InterruptedException {
        ByteBuffer text = Direct.text("Köln");
        through("[Köl, null, n]", nullable("u", Direct.ints(0, 4, 4, 5)).buffer(text));
        through("[Köl, null, n]", nullable("U", Direct.longs(0, 4, 4, 5)).buffer(text));
        through("[4bc3b66c, null, 6e]", nullable("z", Direct.ints(0, 4, 4, 5)).buffer(text));
        through("[4bc3b66c, null, 6e]", nullable("Z", Direct.longs(0, 4, 4, 5)).buffer(text));
        through("[0102, null, 0506]", nullable("w:2", Direct.bytes(1, 2, 3, 4, 5, 6)));
        ByteBuffer views = Direct.ints(1, 'x', 0, 0, 0, 0, 0, 0, 13, 0x33323130, 1, 2);
        ByteBuffer[] data = {Direct.text("not this one"), Direct.text("__0123456789abc")};
        through("[x, null, 0123456789abc]", nullable("vu", views).viewData(data));
        through("[78, null, 30313233343536373839616263]", nullable("vz", views).viewData(data));
    }

    @Test
    void whatHasChildren() throws InterruptedException {
        through("[[1], null, [2, 3]]", nullable("+l", Direct.ints(0, 1, 1, 3)).child(numbers("$data$", 1, 2, 3)));
        through("[[1], null, [2, 3]]", nullable("+L", Direct.longs(0, 1, 1, 3)).child(numbers("$data$", 1, 2, 3)));
        through("[[2, 3], null, [1]]", nullable("+vl", Direct.ints(1, 0, 0)).buffer(Direct.ints(2, 0, 1))
                .child(numbers("$data$", 1, 2, 3)));
        through("[[2, 3], null, [1]]", nullable("+vL", Direct.longs(1, 0, 0)).buffer(Direct.longs(2, 0, 1))
                .child(numbers("$data$", 1, 2, 3)));
        through("[[1, 2], null, [5, 6]]", ArrayBuilder.of("c", "+w:2", 3).buffer(Direct.bits("101"))
                .child(numbers("$data$", 1, 2, 3, 4, 5, 6)));
        through("[{\"x\":1,\"y\":4}, null, {\"x\":3,\"y\":6}]", ArrayBuilder.of("c", "+s", 3)
                .buffer(Direct.bits("101")).child(numbers("x", 1, 2, 3)).child(numbers("y", 4, 5, 6)));
        ArrayBuilder entries = ArrayBuilder.of("entries", "+s", 3).flags(0).buffer(null)
                .child(numbers("key", 1, 2, 3)).child(numbers("value", 4, 5, 6));
        through("[[{\"key\":1,\"value\":4}], null, [{\"key\":2,\"value\":5}, {\"key\":3,\"value\":6}]]",
                nullable("+m", Direct.ints(0, 1, 1, 3)).child(entries));
        through("[7, 0.5, 8]", ArrayBuilder.of("c", Format.denseUnion(0, 1), 3)
                .buffer(Direct.bytes(0, 1, 0))
                .buffer(Direct.ints(0, 0, 1))
                .child(numbers("i", 7, 8))
                .child(ArrayBuilder.of("g", "g", 1).buffer(null).buffer(Direct.doubles(0.5))));
        // The type ids that Arrow Java has for the two types.
        through("[7, 0.5, 9]", ArrayBuilder.of("c", Format.sparseUnion(4, 22), 3)
                .buffer(Direct.bytes(4, 22, 4))
                .child(numbers("i", 7, 8, 9))
                .child(ArrayBuilder.of("g", "g", 3).buffer(null).buffer(Direct.doubles(0.25, 0.5, 0.75))));
        through("[7, 7, 8]", ArrayBuilder.of("c", "+r", 3).child(numbers("run_ends", 2, 3))
                .child(numbers("values", 7, 8)));
        through("[1, null, 0]", nullable("c", Direct.bytes(1, 9, 0)).dictionary(numbers("d", 50, 60)));
    }

    // ---- made by Arrow Java ----

    @Test
    void aRootOfArrowJava() {
        try (BufferAllocator allocator = new RootAllocator()) {
            Batch batch;
            long[] addresses = new long[2];
            try (IntVector number = new IntVector("number", allocator);
                    ViewVarCharVector view = new ViewVarCharVector("view", allocator);
                    DecimalVector decimal = new DecimalVector("decimal", allocator, 20, 3);
                    TimeStampMicroTZVector time = new TimeStampMicroTZVector(
                            "time",
                            FieldType.nullable(new ArrowType.Timestamp(
                                    org.apache.arrow.vector.types.TimeUnit.MICROSECOND, "UTC")),
                            allocator);
                    ListVector list = ListVector.empty("list", allocator);
                    MapVector map = MapVector.empty("map", allocator, false)) {
                view.allocateNew(3);
                UnionListWriter lists = list.getWriter();
                UnionMapWriter maps = map.getWriter();
                for (int row = 0; row < 3; row++) {
                    number.setSafe(row, row * 10);
                    view.setSafe(row, ("view".repeat(row * 4)).getBytes(StandardCharsets.UTF_8));
                    decimal.setSafe(row, new BigDecimal(row + ".125"));
                    time.setSafe(row, row);
                    lists.setPosition(row);
                    lists.startList();
                    maps.setPosition(row);
                    maps.startMap();
                    for (int i = 0; i < row; i++) {
                        lists.writeInt(i);
                        maps.startEntry();
                        maps.key().integer().writeInt(i);
                        maps.value().bigInt().writeBigInt(i * 100);
                        maps.endEntry();
                    }
                    lists.endList();
                    maps.endMap();
                }
                number.setNull(1);
                for (FieldVector vector : List.of(number, view, decimal, time, list, map)) {
                    vector.setValueCount(3);
                }
                addresses[0] = number.getDataBufferAddress();
                addresses[1] = view.getDataBufferAddress();
                try (VectorSchemaRoot root = VectorSchemaRoot.of(number, view, decimal, time, list, map);
                        ArrowArray array = ArrowArray.allocateNew(allocator);
                        ArrowSchema fields = ArrowSchema.allocateNew(allocator)) {
                    Data.exportVectorSchemaRoot(allocator, root, null, array, fields);
                    batch = Batch.importArrow(array.memoryAddress(), fields.memoryAddress());
                }
            }
            // The vectors are closed: only the batch still has their memory.
            assertNotEquals(0, allocator.getAllocatedMemory());
            try (batch) {
                assertEquals(addresses[0], batch.column("number").bufferAddress(1));
                assertEquals(addresses[1], batch.column("view").bufferAddress(1));
                assertNull(batch.column("number").getObject(1));
                assertEquals(1, batch.column("number").nullCount());
                assertEquals("view".repeat(8), batch.column("view").getString(2));
                assertEquals("", batch.column("view").getString(0));
                assertEquals(new BigDecimal("2.125"), batch.column("decimal").getDecimal(2));
                assertEquals(Instant.ofEpochSecond(0, 2000), batch.column("time").getInstant(2));
                assertEquals(List.of(0, 1), batch.column("list").getObject(2));
                assertEquals(Map.of(0, 0L, 1, 100L), batch.column("map").getMap(2));
                assertEquals(Map.of(), batch.column("map").getMap(0));
            }
            assertEquals(0, allocator.getAllocatedMemory());
        }
    }

    @Test
    void aDictionaryOfArrowJava() {
        try (BufferAllocator allocator = new RootAllocator();
                VarCharVector words = new VarCharVector("words", allocator)) {
            words.setSafe(0, "sun".getBytes(StandardCharsets.UTF_8));
            words.setSafe(1, "rain".getBytes(StandardCharsets.UTF_8));
            words.setValueCount(2);
            DictionaryEncoding encoding = new DictionaryEncoding(7, true, new ArrowType.Int(8, true));
            MapDictionaryProvider dictionaries = new MapDictionaryProvider(new Dictionary(words, encoding));
            try (TinyIntVector indices = new TinyIntVector(
                    "sky", new FieldType(true, encoding.getIndexType(), encoding), allocator)) {
                indices.setSafe(0, 1);
                indices.setNull(1);
                indices.setSafe(2, 0);
                indices.setValueCount(3);
                try (Batch batch = take(allocator, dictionaries, indices)) {
                    assertEquals("[rain, null, sun]", objects(batch.root()).toString());
                    assertEquals(2, batch.root().dictionary().length());
                }
            }
        }
    }

    @Test
    void aRefusedImportLeavesArrowJavaItsStructs() {
        try (BufferAllocator allocator = new RootAllocator();
                BigIntVector vector = new BigIntVector("n", allocator);
                ArrowArray array = ArrowArray.allocateNew(allocator);
                Schema other = Schema.of(Field.of("n", Format.UTF8))) {
            vector.setSafe(0, 5);
            vector.setValueCount(1);
            Data.exportVector(allocator, vector, null, array);
            refused(Status.INVALID_BUFFERS, () -> Batch.importArrow(array.memoryAddress(), other), "\"n\"",
                    "n_buffers is 2", "utf8 has 3");
            assertNotEquals(0, array.snapshot().release);
            array.release();
        }
    }

    // ---- the example ----

    @Test
    void theExampleSaysWhatItsReadmeSays() throws IOException, InterruptedException {
        Path example = Path.of(System.getProperty("devexchange.root"), "examples", "arrow-java");
        Process program = new ProcessBuilder(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "--add-opens=java.base/java.nio=ALL-UNNAMED",
                        "-cp",
                        System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")),
                        example.resolve("ArrowJava.java").toString())
                // SLF4J says there that it has no backend.
                .redirectError(ProcessBuilder.Redirect.DISCARD)
                .start();
        program.getOutputStream().close();
        String output = new String(program.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, program.waitFor(), output);
        String readme = Files.readString(example.resolve("README.md"));
        String block = "```text\n";
        int start = readme.indexOf(block) + block.length();
        assertEquals(readme.substring(start, readme.indexOf("```", start)), output);
    }
}
