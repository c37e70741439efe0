package dev.devexchange;

import java.util.Objects;

/**
 * Where data is.
 *
 * @param type the kind of device
 * @param id which one of that kind, as its runtime counts them in this process; 0 for the CPU
 */
public record Device(DeviceType type, int id) {
    /**
     * Checks that there is a type, nothing more.
     *
     * @param type the kind of device
     * @param id which one of that kind
     */
    public Device {
        Objects.requireNonNull(type, "type");
    }

    /** Host memory. */
    public static final Device CPU = new Device(DeviceType.CPU, 0);

    /**
     * The CUDA device of this number. The driver is not asked for it; see {@link #count}.
     *
     * @param id as the driver counts the devices in this process, from 0
     * @return the device
     */
    public static Device cuda(int id) {
        return new Device(DeviceType.CUDA, id);
    }

    /**
     * How many devices of a type there are.
     *
     * @param type {@link DeviceType#CPU}, of which there is one, or {@link DeviceType#CUDA}
     * @return as many as the driver shows
     * @throws DevExchangeException {@link Status#DEVICE} if there is no driver on this machine, or if it has no device,
     *     and for other types; {@link Status#DRIVER}
     */
    public static int count(DeviceType type) {
        return Native.deviceCount(type.value());
    }

    /**
     * What the device is called and how much memory it has.
     *
     * @return as the driver says it now
     * @throws DevExchangeException {@link Status#DEVICE} if it is not there, and for other types than the CPU and CUDA;
     *     {@link Status#DRIVER}
     */
    public DeviceInfo info() {
        Scratch scratch = Scratch.get();
        Native.deviceInfo(packed(), scratch.address);
        return DeviceInfo.read(scratch.buffer);
    }

    /** As the native methods take it. */
    long packed() {
        return Integer.toUnsignedLong(type.value()) | (long) id << 32;
    }

    /** The other way round. */
    static Device unpack(long packed) {
        return of((int) packed, (int) (packed >> 32));
    }

    /** As the structs say it. */
    static Device of(int type, int id) {
        return type == CPU.type.value() && id == CPU.id ? CPU : new Device(new DeviceType(type), id);
    }

    /** {@return whether the host may read the memory through its address, once the data is there} */
    boolean isHost() {
        return type.equals(DeviceType.CPU) || type.equals(DeviceType.CUDA_HOST) || type.equals(DeviceType.CUDA_MANAGED);
    }

    /** Refuses to read values on the host that are not there, or not yet. */
    void requireHost(boolean ready) {
        if (!isHost()) {
            throw new DevExchangeException(Status.DEVICE, "device is " + this + ", not host memory");
        }
        if (!ready) {
            throw new DevExchangeException(
                    Status.NOT_READY, "the data is queued on a stream: copy it to the host first");
        }
    }

    /** {@return type and id, for example {@code cpu:0}} */
    @Override
    public String toString() {
        return type + ":" + id;
    }
}
