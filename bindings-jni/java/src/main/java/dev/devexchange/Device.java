package dev.devexchange;

/**
 * Where data is.
 *
 * @param type the kind of device
 * @param id which one of that kind, as its runtime counts them in this process; 0 for the CPU
 */
public record Device(DeviceType type, int id) {
    /** Host memory. */
    public static final Device CPU = new Device(DeviceType.CPU, 0);

    /** {@return whether the host may read the memory through its address} */
    boolean isHost() {
        return type.equals(DeviceType.CPU);
    }

    /** {@return type and id, for example {@code cpu:0}} */
    @Override
    public String toString() {
        return type + ":" + id;
    }
}
