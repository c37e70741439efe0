/**
 * libweather as Java sees it: the calls of {@code weather.h}, which pass addresses. What fails throws an
 * {@link IllegalStateException} with what {@code weather_error()} says.
 */
final class Weather implements AutoCloseable {
    static {
        System.loadLibrary("weather_jni");
    }

    private final long handle;

    Weather(String directory) {
        handle = open(directory);
    }

    /** Puts the tables onto a device; before the first export. */
    void useDevice(int deviceType, int deviceId) {
        useDevice(handle, deviceType, deviceId);
    }

    /** Fills an {@code ArrowDeviceArray} and an {@code ArrowSchema}. */
    void airports(long array, long schema) {
        airports(handle, array, schema);
    }

    void days(long array, long schema) {
        days(handle, array, schema);
    }

    /**
     * The address of a {@code DLManagedTensorVersioned}, which the caller owns; its data is ready for work that is queued
     * on a stream (-1 on the CPU).
     */
    long measurements(long stream) {
        return measurements(handle, stream);
    }

    long address(String what) {
        return address(handle, what);
    }

    /** Takes a {@code DLManagedTensorVersioned} that is ready for work on a stream (-1: ready already). */
    void checkMeans(long tensor, long stream) {
        checkMeans(handle, tensor, stream);
    }

    /** What is exported stays valid. */
    @Override
    public void close() {
        close(handle);
    }

    static native long liveBuffers();

    static native long outstanding();

    private static native long open(String directory);

    private static native void close(long handle);

    private static native void useDevice(long handle, int deviceType, int deviceId);

    private static native void airports(long handle, long array, long schema);

    private static native void days(long handle, long array, long schema);

    private static native long measurements(long handle, long stream);

    private static native long address(long handle, String what);

    private static native void checkMeans(long handle, long tensor, long stream);
}
