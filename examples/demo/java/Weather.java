/**
 * libweather for Java: the functions of {@code weather.h}, with structs passed by their addresses. A call that fails
 * throws an {@link IllegalStateException} with the text of {@code weather_error()}.
 */
final class Weather implements AutoCloseable {
    static {
        System.loadLibrary("weather_jni");
    }

    private final long handle;

    Weather(String directory) {
        handle = open(directory);
    }

    /** Copies the tables to a device. To be called before the first export. */
    void useDevice(int deviceType, int deviceId) {
        useDevice(handle, deviceType, deviceId);
    }

    /** Exports the airports into an {@code ArrowDeviceArray} and an {@code ArrowSchema}, given by their addresses. */
    void airports(long array, long schema) {
        airports(handle, array, schema);
    }

    void days(long array, long schema) {
        days(handle, array, schema);
    }

    /**
     * Exports the measurements. Returns the address of a {@code DLManagedTensorVersioned}, which the caller owns; its
     * data is ready for work on the stream (-1 on the CPU).
     */
    long measurements(long stream) {
        return measurements(handle, stream);
    }

    long address(String what) {
        return address(handle, what);
    }

    /** Takes a {@code DLManagedTensorVersioned} whose data is ready for work on a stream, or already if that is -1. */
    void checkMeans(long tensor, long stream) {
        checkMeans(handle, tensor, stream);
    }

    /** Closes libweather. Its exports stay valid until they are released. */
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
