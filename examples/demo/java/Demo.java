import dev.devexchange.Batch;
import dev.devexchange.CStruct;
import dev.devexchange.Column;
import dev.devexchange.DType;
import dev.devexchange.DevExchange;
import dev.devexchange.ReleaseQueue;
import dev.devexchange.Tensor;
import java.math.BigDecimal;
import java.math.RoundingMode;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiConsumer;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * The demo's consumer in Java: takes two record batches and a tensor from libweather without a copy, computes a few
 * figures, hands a tensor back, and gives up everything again.
 *
 * <p>{@code java Demo DATADIR} prints KEY=VALUE lines for examples/demo/run.sh; every language prints the same keys.
 * Whatever is wrong ends the program with an exception, and so with an exit status that is not 0.
 */
final class Demo {
    private static final int MEASUREMENTS = 4;
    private static final int MONTHS = 12;

    private final Weather weather;
    private final Batch airports;
    private final Batch days;
    private final Tensor measurements;

    private Demo(String directory) {
        weather = new Weather(directory);
        airports = take(weather::airports);
        days = take(weather::days);
        measurements = Tensor.importDlpack(weather.measurements());
    }

    public static void main(String[] arguments) throws InterruptedException {
        require(arguments.length == 1, "usage: java Demo DATADIR");
        Demo demo = new Demo(arguments[0]);
        demo.printFigures();
        demo.checkAddresses();
        demo.handBackMeans();
        demo.close();
        printLedger();
    }

    private static void require(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }

    private static void print(String key, Object value) {
        System.out.println(key + "=" + value);
    }

    // ---- taking ----

    /** What libweather exports becomes ours: the import moves it out of the two structs. */
    private static Batch take(BiConsumer<Long, Long> export) {
        try (CStruct array = CStruct.arrowDeviceArray();
                CStruct schema = CStruct.arrowSchema()) {
            export.accept(array.address(), schema.address());
            return Batch.importArrowDevice(array.address(), schema.address());
        }
    }

    /** All values of a column, where they are. */
    private static DoubleBuffer doubles(Batch batch, String column) {
        return batch.column(column).valuesBuffer().asDoubleBuffer();
    }

    // ---- figures ----

    private void printFigures() {
        print("airports", airports.length());
        print("top_states", list(count(airports.column("state")).entrySet().stream()
                .sorted(Comparator.<Map.Entry<String, Long>>comparingLong(Map.Entry::getValue)
                        .reversed()
                        .thenComparing(Map.Entry::getKey))
                .limit(3)));
        print("mean_temp_max", rounded(mean(doubles(days, "temp_max")), 4));
        print("mean_temp_min", rounded(mean(doubles(days, "temp_min")), 4));
        print("wettest_day", wettestDay());
        print("categories", list(count(days.column("weather")).entrySet().stream()));
    }

    /** How often each text is there, by name. Nulls do not count. */
    private static Map<String, Long> count(Column texts) {
        Map<String, Long> counts = new TreeMap<>();
        for (long row = 0; row < texts.length(); row++) {
            if (!texts.isNull(row)) {
                counts.merge(texts.getString(row), 1L, Long::sum);
            }
        }
        return counts;
    }

    private static String list(Stream<Map.Entry<String, Long>> counts) {
        return counts.map(count -> count.getKey() + ":" + count.getValue()).collect(Collectors.joining(","));
    }

    private static double mean(DoubleBuffer values) {
        double sum = 0;
        for (int i = 0; i < values.limit(); i++) {
            sum += values.get(i);
        }
        return sum / values.limit();
    }

    private String wettestDay() {
        DoubleBuffer rain = doubles(days, "precipitation");
        int wettest = 0;
        for (int row = 1; row < rain.limit(); row++) {
            if (rain.get(row) > rain.get(wettest)) {
                wettest = row;
            }
        }
        return days.column("date").getDate(wettest) + " " + rounded(rain.get(wettest), 1);
    }

    /** As printf does: the exact value, rounded once. */
    private static BigDecimal rounded(double value, int digits) {
        return new BigDecimal(value).setScale(digits, RoundingMode.HALF_EVEN);
    }

    // ---- zero copy ----

    private void checkAddresses() {
        // Text: validity, offsets, bytes. Numbers and dictionaries: validity, values or indices.
        Map<String, Long> ours = Map.of(
                "airports.iata", airports.column("iata").bufferAddress(2),
                "airports.name", airports.column("name").bufferAddress(2),
                "airports.latitude", airports.column("latitude").bufferAddress(1),
                "days.date", days.column("date").bufferAddress(1),
                "days.temp_max", days.column("temp_max").bufferAddress(1),
                "days.weather", days.column("weather").bufferAddress(1),
                "measurements", measurements.address());
        long equal = ours.entrySet().stream()
                .filter(address -> weather.address(address.getKey()) == address.getValue())
                .count();
        print("zero_copy", equal + " of " + ours.size());
        require(equal == ours.size(), "something was copied");
    }

    // ---- handing back ----

    private void handBackMeans() throws InterruptedException {
        AtomicInteger freed = new AtomicInteger();
        long[] shape = {MONTHS, MEASUREMENTS};
        Tensor means = Tensor.create(monthlyMeans(), DType.FLOAT64, shape, freed::incrementAndGet);
        weather.checkMeans(means.exportMove());
        require(ReleaseQueue.flush(Duration.ofSeconds(30)), "the release queue does not move");
        require(freed.get() == 1, "the means were released " + freed.get() + " times");
        print("means_checked", "yes");
    }

    /** Row: month. Column: measurement. */
    private ByteBuffer monthlyMeans() {
        require(
                Arrays.equals(measurements.shape(), new long[] {days.length(), MEASUREMENTS}),
                "the measurements are not days x " + MEASUREMENTS);
        double[] sums = new double[MONTHS * MEASUREMENTS];
        int[] daysIn = new int[MONTHS];
        Column dates = days.column("date");
        for (long row = 0; row < days.length(); row++) {
            int month = dates.getDate(row).getMonthValue() - 1;
            daysIn[month]++;
            for (int k = 0; k < MEASUREMENTS; k++) {
                sums[month * MEASUREMENTS + k] += measurements.getDouble(row, k);
            }
        }
        ByteBuffer means = ByteBuffer.allocateDirect(sums.length * Double.BYTES).order(ByteOrder.nativeOrder());
        for (int i = 0; i < sums.length; i++) {
            means.putDouble(i * Double.BYTES, sums[i] / daysIn[i / MEASUREMENTS]);
        }
        return means;
    }

    // ---- giving up ----

    /** The producer goes first: what we hold stays valid until we release it. */
    private void close() {
        weather.close();
        require(Weather.liveBuffers() == 2, "libweather freed buffers that are in use");
        measurements.close();
        days.close();
        airports.close();
    }

    private static void printLedger() throws InterruptedException {
        require(ReleaseQueue.flush(Duration.ofSeconds(30)), "the release queue does not move");
        long ours = DevExchange.outstanding();
        print("outstanding", ours);
        print("producer_outstanding", Weather.outstanding());
        print("producer_live_buffers", Weather.liveBuffers());
        require(ours == 0 && Weather.outstanding() == 0 && Weather.liveBuffers() == 0, "something was not released");
    }
}
