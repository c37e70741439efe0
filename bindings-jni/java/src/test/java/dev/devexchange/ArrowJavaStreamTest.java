package dev.devexchange;

import static dev.devexchange.Check.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.util.Arrays;
import java.util.List;
import org.apache.arrow.c.ArrowArrayStream;
import org.apache.arrow.c.Data;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Streams to and from the readers of Arrow Java; see {@link ArrowJavaTest}. */
@ExtendWith(Check.class)
class ArrowJavaStreamTest {
    /** A number of batches of two rows, as Arrow Java writes them. */
    private static byte[] ipc(BufferAllocator allocator, int batches) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (IntVector vector = new IntVector("n", allocator)) {
            vector.allocateNew(2);
            try (VectorSchemaRoot root = VectorSchemaRoot.of(vector);
                    ArrowStreamWriter writer = new ArrowStreamWriter(root, null, Channels.newChannel(bytes))) {
                for (int i = 0; i < batches; i++) {
                    vector.set(0, i);
                    vector.set(1, i + 1);
                    root.setRowCount(2);
                    writer.writeBatch();
                }
                writer.end();
            }
        }
        return bytes.toByteArray();
    }

    private static BatchStream take(BufferAllocator allocator, byte[] ipc) {
        try (ArrowArrayStream struct = ArrowArrayStream.allocateNew(allocator)) {
            Data.exportArrayStream(allocator, new ArrowStreamReader(new ByteArrayInputStream(ipc), allocator), struct);
            return BatchStream.importArrow(struct.memoryAddress());
        }
    }

    /** A stream of record batches, with an error instead of its end. */
    private static BatchStream made(int count, Runnable release, Exception error) {
        int[] next = {0};
        try (Schema schema = Schema.batch(Field.of("n", Format.INT32))) {
            Schema shared = schema.share();
            return BatchStream.of(
                    schema,
                    DeviceType.CPU,
                    () -> {
                        int i = next[0]++;
                        if (i == count && error != null) {
                            throw error;
                        }
                        List<Node> nodes =
                                List.of(Node.of(2, (ByteBuffer) null), Node.of(2, null, Direct.ints(i, i + 1)));
                        return i < count ? Batch.create(shared, Device.CPU, nodes, release) : null;
                    },
                    shared::close);
        }
    }

    @Test
    void aReaderOfArrowJava() throws IOException {
        try (BufferAllocator allocator = new RootAllocator()) {
            byte[] ipc = ipc(allocator, 5);
            Batch kept = null;
            try (BatchStream stream = take(allocator, ipc);
                    Schema schema = stream.schema()) {
                assertEquals("n", schema.columns().get(0).name());
                int next = 0;
                for (Batch batch : stream) {
                    assertEquals(next, batch.column("n").getInt(0));
                    assertEquals(next + 1, batch.column("n").getInt(1));
                    if (next++ == 3) {
                        kept = batch;
                    } else {
                        batch.close();
                    }
                }
                assertEquals(5, next);
            }
            assertEquals(3, kept.column("n").getInt(0));
            kept.close();
            // In the middle.
            try (BatchStream stream = take(allocator, ipc)) {
                stream.next().close();
            }
        }
    }

    @Test
    void aReaderThatFails() throws IOException {
        try (BufferAllocator allocator = new RootAllocator()) {
            byte[] whole = ipc(allocator, 5);
            byte[] cut = Arrays.copyOf(whole, whole.length - whole.length / 3);
            try (BatchStream stream = take(allocator, cut)) {
                stream.next().close();
                DevExchangeException first = refused(
                        Status.CALLBACK,
                        () -> {
                            while (true) {
                                stream.next().close();
                            }
                        },
                        "get_next failed");
                assertEquals(first.getMessage(), refused(Status.CALLBACK, stream::next).getMessage());
            }
        }
    }

    @Test
    void aReaderInArrowJava() throws IOException, InterruptedException {
        Release release = new Release();
        try (BufferAllocator allocator = new RootAllocator();
                ArrowArrayStream struct = ArrowArrayStream.allocateNew(allocator)) {
            made(3, release, null).exportArrow(struct.memoryAddress());
            try (ArrowReader reader = Data.importArrayStream(allocator, struct)) {
                for (int i = 0; i < 3; i++) {
                    assertTrue(reader.loadNextBatch());
                    IntVector column = (IntVector) reader.getVectorSchemaRoot().getVector("n");
                    assertEquals(i, column.get(0));
                    assertEquals(i + 1, column.get(1));
                }
                assertFalse(reader.loadNextBatch());
            }
        }
        assertEquals(3, release.count());
        // The source of the stream closes a schema when it is released.
        Check.flush();
    }

    @Test
    void anErrorForAReaderInArrowJava() throws IOException, InterruptedException {
        try (BufferAllocator allocator = new RootAllocator();
                ArrowArrayStream struct = ArrowArrayStream.allocateNew(allocator)) {
            made(1, null, new IllegalStateException("no more tea")).exportArrow(struct.memoryAddress());
            try (ArrowReader reader = Data.importArrayStream(allocator, struct)) {
                assertTrue(reader.loadNextBatch());
                IOException thrown = assertThrows(IOException.class, reader::loadNextBatch);
                assertTrue(thrown.getMessage().contains("no more tea"), thrown.getMessage());
            }
        }
        Check.flush();
    }
}
