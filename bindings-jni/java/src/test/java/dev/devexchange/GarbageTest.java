package dev.devexchange;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.function.LongFunction;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** How many bytes of the heap frequent calls take: the result, and little else. */
@ExtendWith(Check.class)
class GarbageTest {
    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    private static final int ROWS = 1000;

    /** Keeps the compiler from leaving out what is measured. */
    private static volatile Object result;

    /** The bytes per call: the least of a few attempts, because the JVM may do something else on this thread, too. */
    private static double bytes(LongFunction<Object> call) {
        double least = Double.MAX_VALUE;
        for (int attempt = 0; attempt < 5; attempt++) {
            long before = THREADS.getCurrentThreadAllocatedBytes();
            for (long row = 0; row < ROWS; row++) {
                result = call.apply(row);
            }
            least = Math.min(least, (THREADS.getCurrentThreadAllocatedBytes() - before) / (double) ROWS);
        }
        return least;
    }

    private static void atMost(double limit, LongFunction<Object> call) {
        double bytes = bytes(call);
        assertTrue(bytes <= limit, bytes + " bytes");
    }

    private static Batch column(String format, ByteBuffer values) {
        return ArrayBuilder.of("c", format, ROWS).buffer(null).buffer(values).build(Device.CPU);
    }

    /** Numbers of some longs each, with something in the first. */
    private static ByteBuffer numbers(int longs) {
        return Direct.longs(LongStream.range(0, (long) ROWS * longs)
                .map(i -> i % longs == 0 ? 1000 + i : 0)
                .toArray());
    }

    @Test
    void aDecimalThatFitsIntoALongIsOneObject() {
        double one = bytes(row -> BigDecimal.valueOf(1000 + row, 2));
        for (int bits : new int[] {64, 128, 256}) {
            try (Batch batch = column(Format.decimal(18, 2, bits), numbers(bits / Long.SIZE))) {
                Column column = batch.root();
                atMost(one, column::getDecimal);
            }
        }
    }

    @Test
    void aTimestampDoesNotMakeTheNameOfItsZone() {
        try (Batch zoned = column("tsu:Europe/Berlin", numbers(1));
                Batch local = column("tsu:", numbers(1))) {
            Column instants = zoned.root();
            Column times = local.root();
            atMost(72, instants::getInstant);
            atMost(120, times::getDateTime);
        }
    }

    @Test
    void aBuiltColumnIsFewObjects() {
        ByteBuffer values = numbers(1);
        int columns = 100;
        atMost(1600 * columns, attempt -> {
            ArrayBuilder builder = ArrayBuilder.batch(2);
            for (int i = 0; i < columns; i++) {
                builder.child(ArrayBuilder.of("name", Format.INT64, 2).buffer(null).buffer(values));
            }
            try (Batch batch = builder.build(Device.CPU)) {
                return batch.device();
            }
        });
    }
}
