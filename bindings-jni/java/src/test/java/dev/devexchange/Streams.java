package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.List;
import java.util.stream.IntStream;

/** Streams of small batches in Java and in C: batch {@code i} has the values {@code i} and {@code i + 1}. */
final class Streams {
    static final String PROPERTY = "devexchange.test.streams";

    /** No batch has this number. */
    static final int NEVER = 1 << 30;

    /** What failed tests have left behind, as in {@link Check}. */
    private static int left;

    private Streams() {}

    private static native int all();

    /** The number of objects that producers and consumers in C have not given up. */
    static int live() {
        return all() - left;
    }

    static native String text();

    /**
     * The name of the thread that last cancelled a producer of {@link #produceAsync} or told a {@link #sink} of an
     * error, as the system has it: at most 15 bytes.
     */
    static native String caller();

    static native void produce(long address, boolean device, int batches, int failAt);

    static native long consume(long address, boolean device, int most);

    static native boolean consumeAtExit(long address);

    static native void produceAsync(long handler, int batches, int failAt);

    /** Fills in an {@code ArrowArray} that must be released and has no data. */
    static native void holdArray(long address);

    /**
     * Sets whether threads that take the data of a task of {@link #produceAsync}, or release such an array, wait from
     * now on.
     */
    static native void setGate(boolean shut);

    /** Whether a thread waits. */
    static native boolean isAtGate();

    static native long sink(int refuseAt, int cancelAt);

    static native long sinkInJava();

    /** Called by {@link #sinkInJava}. */
    private static void asked() {
        DevExchange.ledger();
    }

    static native long awaitSink(long handler);

    static void compile(Path directory) throws IOException, InterruptedException {
        String known = System.getProperty(PROPERTY);
        // Other JVMs load the library, too, after the first class's directory is gone.
        if (known == null || Files.notExists(Path.of(known))) {
            Path library = Cc.shared("streams.c", directory);
            System.setProperty(PROPERTY, library.toString());
            if (known == null) {
                System.load(library.toString());
            }
        }
    }

    /** Producers in C may still be finishing. */
    static void nothingLives() throws InterruptedException {
        try {
            Check.eventually(() -> live() <= 0);
        } catch (AssertionError failed) {
            left = all();
            throw failed;
        }
    }

    static Schema schema() {
        return Schema.of(Field.of("n", Format.INT32));
    }

    static Batch batch(int number, Runnable release) {
        try (Schema schema = schema()) {
            return Batch.create(
                    schema, Device.CPU, List.of(Node.of(2, null, Direct.ints(number, number + 1))), release);
        }
    }

    static Iterator<Batch> batches(int count, Runnable release) {
        return IntStream.range(0, count).mapToObj(i -> batch(i, release)).iterator();
    }

    static BatchStream stream(int count) {
        try (Schema schema = schema()) {
            return BatchStream.of(schema, DeviceType.CPU, batches(count, null));
        }
    }

    /** The number of a batch, which is closed. */
    static int number(Batch taken) {
        try (Batch batch = taken) {
            assertEquals(batch.root().getInt(0) + 1, batch.root().getInt(1));
            return batch.root().getInt(0);
        }
    }

    /** The sum of all values of a number of batches. */
    static long sum(long batches) {
        return batches * batches;
    }
}
