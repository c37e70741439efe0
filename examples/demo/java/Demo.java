import dev.devexchange.Batch;
import dev.devexchange.CStruct;
import dev.devexchange.Column;
import dev.devexchange.DType;
import dev.devexchange.DevExchange;
import dev.devexchange.Device;
import dev.devexchange.DeviceStream;
import dev.devexchange.DlpackRequest;
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
 * The demo's consumer in Java: imports two record batches and a tensor from libweather without a copy, computes a few
 * figures, exports a tensor to libweather, and releases everything.
 *
 * <p>With {@code DEVX_DEVICE=cuda} in the environment, the tables come in the memory of a CUDA device. Then this
 * program queues its work on its own stream, computes the figures from copies in host memory, and exports the means in
 * device memory.
 *
 * <p>{@code java Demo DATADIR} prints KEY=VALUE lines for examples/demo/run.sh; every language prints the same keys.
 * Any error ends the program with an exception, and so with an exit status that is not 0.
 */
final class Demo {
    private static final int MEASUREMENTS = 4;
    private static final int MONTHS = 12;
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    /** The device that the tables are on. */
    private final Device device;

    /** The stream that this program queues its work on; null on the CPU, where nothing is queued. */
    private final DeviceStream stream;

    private final Weather weather;
    private final Batch airports;
    private final Batch days;
    private final Tensor measurements;

    /** The tables in host memory, for computing: copies if the tables are on a device. */
    private final Batch hostAirports;

    private final Batch hostDays;
    private final Tensor hostMeasurements;

    private Demo(String directory) {
        device = chosenDevice();
        stream = device.equals(Device.CPU) ? null : DeviceStream.create(device);
        weather = new Weather(directory);
        weather.useDevice(device.type().value(), device.id());
        airports = take(weather::airports);
        days = take(weather::days);
        // Names our stream to libweather, which makes it wait, on the device, until the data is ready.
        measurements = Tensor.importDlpack(weather.measurements(streamValue()), stream);
        require(measurements.device().equals(device), "the measurements are on another device");
        hostAirports = stream == null ? airports.share() : airports.copyTo(Device.CPU, stream);
        hostDays = stream == null ? days.share() : days.copyTo(Device.CPU, stream);
        hostMeasurements = stream == null ? measurements.share() : measurements.copyTo(Device.CPU, stream);
    }

    private static Device chosenDevice() {
        String name = System.getenv().getOrDefault("DEVX_DEVICE", "host");
        require(name.equals("host") || name.equals("cuda"), "DEVX_DEVICE is neither host nor cuda: " + name);
        return name.equals("cuda") ? Device.cuda(0) : Device.CPU;
    }

    private long streamValue() {
        return stream == null ? DlpackRequest.NO_SYNC : stream.value();
    }

    public static void main(String[] arguments) throws InterruptedException {
        require(arguments.length == 1, "usage: java Demo DATADIR");
        Demo demo = new Demo(arguments[0]);
        print("device", demo.device.info().name());
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

    // ---- importing ----

    /** Takes the batch that libweather exports: the import moves its contents out of the two structs. */
    private static Batch take(BiConsumer<Long, Long> export) {
        try (CStruct array = CStruct.arrowDeviceArray();
                CStruct schema = CStruct.arrowSchema()) {
            export.accept(array.address(), schema.address());
            return Batch.importArrowDevice(array.address(), schema.address());
        }
    }

    /** All values of a column, without a copy. */
    private static DoubleBuffer doubles(Batch batch, String column) {
        return batch.column(column).valuesBuffer().asDoubleBuffer();
    }

    // ---- figures ----

    private void printFigures() {
        print("airports", hostAirports.length());
        print("top_states", list(count(hostAirports.column("state")).entrySet().stream()
                .sorted(Comparator.<Map.Entry<String, Long>>comparingLong(Map.Entry::getValue)
                        .reversed()
                        .thenComparing(Map.Entry::getKey))
                .limit(3)));
        print("mean_temp_max", rounded(mean(doubles(hostDays, "temp_max")), 4));
        print("mean_temp_min", rounded(mean(doubles(hostDays, "temp_min")), 4));
        print("wettest_day", wettestDay());
        print("categories", list(count(hostDays.column("weather")).entrySet().stream()));
    }

    /** Counts how often each text occurs, without nulls, in the order of names. */
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
        DoubleBuffer rain = doubles(hostDays, "precipitation");
        int wettest = 0;
        for (int row = 1; row < rain.limit(); row++) {
            if (rain.get(row) > rain.get(wettest)) {
                wettest = row;
            }
        }
        return hostDays.column("date").getDate(wettest) + " " + rounded(rain.get(wettest), 1);
    }

    /** Rounds the exact value once, as C's printf does. */
    private static BigDecimal rounded(double value, int digits) {
        return new BigDecimal(value).setScale(digits, RoundingMode.HALF_EVEN);
    }

    // ---- zero copy ----

    private void checkAddresses() {
        // The buffers of text are validity, offsets and bytes; those of other types are validity and values. The values
        // of a dictionary column are its indices.
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

    // ---- exporting ----

    private void handBackMeans() throws InterruptedException {
        AtomicInteger freed = new AtomicInteger();
        long[] shape = {MONTHS, MEASUREMENTS};
        Tensor means = Tensor.create(monthlyMeans(), DType.FLOAT64, shape, freed::incrementAndGet);
        if (stream != null) {
            Tensor copy = means.copyTo(device, stream);
            means.close();
            means = copy;
        }
        weather.checkMeans(means.exportMove(DlpackRequest.DEFAULT.withStream(streamValue())), streamValue());
        finishReleases();
        require(freed.get() == 1, "the means were released " + freed.get() + " times");
        print("means_checked", "yes");
    }

    /** A row for each month, a column for each measurement. */
    private ByteBuffer monthlyMeans() {
        require(
                Arrays.equals(measurements.shape(), new long[] {days.length(), MEASUREMENTS}),
                "the measurements are not days x " + MEASUREMENTS);
        double[] sums = new double[MONTHS * MEASUREMENTS];
        int[] daysIn = new int[MONTHS];
        Column dates = hostDays.column("date");
        for (long row = 0; row < days.length(); row++) {
            int month = dates.getDate(row).getMonthValue() - 1;
            daysIn[month]++;
            for (int k = 0; k < MEASUREMENTS; k++) {
                sums[month * MEASUREMENTS + k] += hostMeasurements.getDouble(row, k);
            }
        }
        ByteBuffer means = ByteBuffer.allocateDirect(sums.length * Double.BYTES).order(ByteOrder.nativeOrder());
        for (int i = 0; i < sums.length; i++) {
            means.putDouble(i * Double.BYTES, sums[i] / daysIn[i / MEASUREMENTS]);
        }
        return means;
    }

    // ---- releasing ----

    /** Closes the producer first: our imports stay valid until we release them. */
    private void close() {
        weather.close();
        require(Weather.liveBuffers() == 2, "libweather freed buffers that are in use");
        measurements.close();
        days.close();
        airports.close();
        hostMeasurements.close();
        hostDays.close();
        hostAirports.close();
        if (stream != null) {
            stream.close();
        }
    }

    /** Waits for releases: memory that work on the stream uses is released after that work, by a library thread. */
    private static void finishReleases() throws InterruptedException {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (DevExchange.releasesWaiting() > 0) {
            require(System.nanoTime() < end, "releases wait for work that is not done");
            Thread.sleep(1);
        }
        require(DevExchange.releasesLost() == 0, "a release was never called");
        require(ReleaseQueue.flush(PATIENCE), "the release queue does not move");
    }

    private static void printLedger() throws InterruptedException {
        finishReleases();
        long ours = DevExchange.outstanding();
        print("outstanding", ours);
        print("producer_outstanding", Weather.outstanding());
        print("producer_live_buffers", Weather.liveBuffers());
        require(ours == 0 && Weather.outstanding() == 0 && Weather.liveBuffers() == 0, "something was not released");
    }
}
