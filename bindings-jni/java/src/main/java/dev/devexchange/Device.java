package dev.devexchange;

import java.util.Objects;

/**
 * Where data is.
 *
 * @param type the kind of device
 * @param id the number of the device, as its runtime counts the devices of that kind in this process; 0 for the CPU
 */
public record Device(DeviceType type, int id) {
    /**
     * Creates a device. Checks only that {@code type} is not null.
     *
     * @param type the kind of device
     * @param id the number of the device among those of that kind
     */
    public Device {
        Objects.requireNonNull(type, "type");
    }

    /** Host memory. */
    public static final Device CPU = new Device(DeviceType.CPU, 0);

    /**
     * Returns the CUDA device of this number, without asking the driver whether it exists; see {@link #count}.
     *
     * @param id the number of the device, as the driver counts them in this process, from 0
     * @return the device
     */
    public static Device cuda(int id) {
        return new Device(DeviceType.CUDA, id);
    }

    /**
     * Returns the number of devices of a type.
     *
     * @param type {@link DeviceType#CUDA}, or {@link DeviceType#CPU}, which gives 1
     * @return the number of devices that the driver shows
     * @throws DevExchangeException {@link Status#DEVICE} if this machine has no driver or no device, and for other
     *     types; {@link Status#DRIVER}
     */
    public static int count(DeviceType type) {
        return Native.deviceCount(type.value());
    }

    /**
     * Returns the name of the device and the size of its memory.
     *
     * @return the driver's present answer
     * @throws DevExchangeException {@link Status#DEVICE} if there is no such device, and for types other than the CPU
     *     and CUDA; {@link Status#DRIVER}
     */
    public DeviceInfo info() {
        Scratch scratch = Scratch.get();
        Native.deviceInfo(packed(), scratch.address);
        return DeviceInfo.read(scratch.buffer);
    }

    /** The device in one number, for the native methods. */
    long packed() {
        return Integer.toUnsignedLong(type.value()) | (long) id << 32;
    }

    /** The device of a number that {@link #packed} made. */
    static Device unpack(long packed) {
        return of((int) packed, (int) (packed >> 32));
    }

    /** The device of the two numbers in a struct. */
    static Device of(int type, int id) {
        return type == CPU.type.value() && id == CPU.id ? CPU : new Device(new DeviceType(type), id);
    }

    /** {@return whether the host can read the memory through its address, once the data is ready} */
    boolean isHost() {
        return type.is(DeviceType.CPU) || type.is(DeviceType.CUDA_HOST) || type.is(DeviceType.CUDA_MANAGED);
    }

    /** Refuses what the host cannot read. */
    void requireHost() {
        if (!isHost()) {
            throw new DevExchangeException(Status.DEVICE, "device is " + this + ", not host memory");
        }
    }

    /** {@return type and id, for example {@code cpu:0}} */
    @Override
    public String toString() {
        return type + ":" + id;
    }
}
