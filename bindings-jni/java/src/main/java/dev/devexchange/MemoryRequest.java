package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * Memory that is asked of a {@link MemoryManager}, or by one of an {@link Allocator}.
 *
 * @param device what kind of memory ({@link DeviceType#CUDA}, {@link DeviceType#CUDA_HOST},
 *     {@link DeviceType#CUDA_MANAGED} or {@link DeviceType#CPU}), and the id of the device that it is for
 * @param bytes how much; 0 is fine
 * @param stream the one in whose order device memory is given and taken back, as the protocols
 *     number it, or as {@link #withStream(DeviceStream)} does; {@link #NO_STREAM} if the memory has to be ready at once
 * @param hostFlags bits of {@link HostFlags}, of pinned memory
 */
public record MemoryRequest(Device device, long bytes, long stream, int hostFlags) {
    /**
     * Checks that there is a device, nothing more.
     *
     * @param device what kind of memory, and for which device
     * @param bytes how much
     * @param stream the one in whose order it is given, as a number, or {@link #NO_STREAM}
     * @param hostFlags bits of {@link HostFlags}
     */
    public MemoryRequest {
        Objects.requireNonNull(device, "device");
    }

    /** No stream: the memory has to be ready at once. */
    public static final long NO_STREAM = -1;

    /**
     * Memory that is ready at once, pinned without flags if it is pinned.
     *
     * @param device kind of memory, and the id of the device that it is for
     * @param bytes how much
     * @return the request
     */
    public static MemoryRequest of(Device device, long bytes) {
        return new MemoryRequest(device, bytes, NO_STREAM, HostFlags.NONE);
    }

    /**
     * The same request in the order of a stream.
     *
     * @param number as the protocols write it; a default stream is that of the memory's device
     * @return the request
     */
    public MemoryRequest withStream(long number) {
        return new MemoryRequest(device, bytes, number, hostFlags);
    }

    /**
     * The same request for a stream, which is a default one of its own device, wherever the data is. It stays open until
     * the request was used.
     *
     * @param queue the stream
     * @return the request
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public MemoryRequest withStream(DeviceStream queue) {
        return withStream(queue.number());
    }

    /**
     * The same request with other flags.
     *
     * @param flags bits of {@link HostFlags}
     * @return the request
     */
    public MemoryRequest withHostFlags(int flags) {
        return new MemoryRequest(device, bytes, stream, flags);
    }

    void write(ByteBuffer record) {
        record.putInt(Records.MEMORY_REQUEST.at("device_type"), device.type().value());
        record.putInt(Records.MEMORY_REQUEST.at("device_id"), device.id());
        record.putLong(Records.MEMORY_REQUEST.at("bytes"), bytes);
        record.putLong(Records.MEMORY_REQUEST.at("stream"), stream);
        record.putInt(Records.MEMORY_REQUEST.at("host_flags"), hostFlags);
        record.putInt(Records.MEMORY_REQUEST.at("reserved"), 0);
    }
}
