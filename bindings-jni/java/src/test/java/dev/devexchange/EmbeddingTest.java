package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A C program with a JVM inside, which it destroys before it releases what it has from Java. */
class EmbeddingTest {
    private static final String EXPECTED =
            """
            released with an exception pending: 1
            of a C producer, after the JVM: 2
            main is done
            """;

    @Test
    void releasesWithAnExceptionPendingAndAfterDestroyJavaVm(@TempDir Path directory)
            throws IOException, InterruptedException {
        Path program = Cc.embedding("embedding.c", directory);
        String path = String.join(File.pathSeparator, Jvm.place(DevExchange.class), Jvm.place(Inside.class));
        assertEquals(new Jvm.End(0, EXPECTED), Jvm.end(new ProcessBuilder(program.toString(), path)));
    }

    /** The methods that the C program calls. */
    static final class Inside {
        private static final AtomicInteger RELEASED = new AtomicInteger();

        private Inside() {}

        /** A tensor over Java-owned memory. */
        static long lend(long unused) {
            Tensor tensor = Tensor.create(Direct.bytes(1), DType.INT8, new long[] {1}, RELEASED::incrementAndGet);
            return tensor.exportMove();
        }

        /** A foreign tensor, imported and exported again. */
        static long handOn(long address) {
            return Tensor.importDlpack(address).exportMove();
        }

        /** The number of tensors of Java that are released by now. */
        static long released(long unused) throws InterruptedException {
            ReleaseQueue.flush(Duration.ofMinutes(1));
            return RELEASED.get();
        }
    }
}
