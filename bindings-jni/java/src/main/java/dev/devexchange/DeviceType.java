package dev.devexchange;

/**
 * A kind of device. The numbers are those of DLPack and Arrow, which agree; the set is open.
 *
 * @param value the number
 */
public record DeviceType(int value) {
    /** Host memory. */
    public static final DeviceType CPU = new DeviceType(1);
    /** CUDA device memory. */
    public static final DeviceType CUDA = new DeviceType(2);
    /** Host memory pinned by CUDA. */
    public static final DeviceType CUDA_HOST = new DeviceType(3);
    /** ROCm device memory. */
    public static final DeviceType ROCM = new DeviceType(10);
    /** Host memory pinned by ROCm. */
    public static final DeviceType ROCM_HOST = new DeviceType(11);
    /** CUDA managed memory. */
    public static final DeviceType CUDA_MANAGED = new DeviceType(13);

    /** Same as {@link #equals}, which takes a new JVM tens of milliseconds to set up. */
    boolean is(DeviceType other) {
        return value == other.value;
    }

    /** {@return the usual name, for example {@code cuda}, or the number of a type without a name} */
    @Override
    public String toString() {
        String name = name();
        return name == null ? "device type " + value : name;
    }

    /** The name; null if the type has none or the native library cannot be loaded. */
    private String name() {
        try {
            return Native.deviceTypeName(value);
        } catch (LinkageError unknown) {
            return null;
        }
    }
}
