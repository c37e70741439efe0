package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * A request for memory, to a {@link MemoryManager} or from a manager to its {@link Allocator}.
 *
 * @param device the kind of memory ({@link DeviceType#CUDA}, {@link DeviceType#CUDA_HOST}, {@link
 *     DeviceType#CUDA_MANAGED} or {@link DeviceType#CPU}), and the id of the device that it is for
 * @param bytes the size; may be 0
 * @param stream the stream in whose order device memory is allocated and given back, numbered as in the protocols or by
 *     {@link #withStream(DeviceStream)}; {@link #NO_STREAM} if the memory has to be ready at once
 * @param hostFlags bits of {@link HostFlags}, for pinned memory
 */
public record MemoryRequest(Device device, long bytes, long stream, int hostFlags) {
    /**
     * Creates a request. Checks only that {@code device} is not null.
     *
     * @param device kind of memory, and the id of the device that it is for
     * @param bytes the size
     * @param stream the stream in whose order the memory is allocated and given back, as a number, or {@link
     *     #NO_STREAM}
     * @param hostFlags bits of {@link HostFlags}
     */
    public MemoryRequest {
        Objects.requireNonNull(device, "device");
    }

    /** No stream: the memory has to be ready at once. */
    public static final long NO_STREAM = -1;

    /**
     * Creates a request for memory that is ready at once; pinned memory gets no flags.
     *
     * @param device kind of memory, and the id of the device that it is for
     * @param bytes the size
     * @return the request
     */
    public static MemoryRequest of(Device device, long bytes) {
        return new MemoryRequest(device, bytes, NO_STREAM, HostFlags.NONE);
    }

    /**
     * Returns the same request in the order of a stream.
     *
     * @param number the stream, as the protocols number it; a default stream is that of the memory's device
     * @return the request
     */
    public MemoryRequest withStream(long number) {
        return new MemoryRequest(device, bytes, number, hostFlags);
    }

    /**
     * Returns the same request in the order of a stream. A default stream is that of the {@code DeviceStream}'s own
     * device, wherever the memory is. The stream must stay open until the request has been used.
     *
     * @param queue the stream
     * @return the request
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public MemoryRequest withStream(DeviceStream queue) {
        return withStream(queue.number());
    }

    /**
     * Returns the same request with other flags.
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
