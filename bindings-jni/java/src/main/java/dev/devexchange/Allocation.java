package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * Memory that an {@link Allocator} returns.
 *
 * @param address of the first byte; 0 only if no bytes were asked for
 * @param device where it is
 * @param release gives the memory back; may be null. It is run once, on the thread of the {@link ReleaseQueue}, when
 *     nobody uses the memory any more, even after a reset of the manager. The manager's limit and statistics cease to
 *     count the memory when the release is queued, before it runs. If the stream of the request is closed before
 *     that, it is destroyed only afterwards
 * @param kept an object that stays reachable until the release; may be null
 */
public record Allocation(long address, Device device, Runnable release, Object kept) {
    /** A buffer that holds the whole allocation, and its number of bytes. */
    record Counted(ByteBuffer memory, int bytes) {}

    /**
     * Creates an allocation. Checks only that {@code device} is not null.
     *
     * @param address of the first byte
     * @param device where it is
     * @param release gives the memory back; may be null
     * @param kept an object that stays reachable until the release; may be null
     */
    public Allocation {
        Objects.requireNonNull(device, "device");
    }

    /**
     * Creates an allocation of memory at an address.
     *
     * @param address of the first byte; 0 only if no bytes were asked for
     * @param device where it is
     * @param release gives the memory back; may be null
     */
    public Allocation(long address, Device device, Runnable release) {
        this(address, device, release, null);
    }

    /**
     * Creates an allocation of the host memory of a direct buffer, which stays reachable until nobody uses the memory
     * any more.
     *
     * @param memory a writable direct buffer in native byte order; its remaining bytes are the memory, at least as many
     *     as requested. The arena of a buffer over a memory segment must stay open until the release
     * @param release run when nobody uses the memory any more; may be null
     * @return the allocation
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a heap buffer, another byte order or a read-only
     *     buffer
     */
    public static Allocation of(ByteBuffer memory, Runnable release) {
        if (memory.isReadOnly()) {
            throw new DevExchangeException(
                    Status.INVALID_ARGUMENT, "memory is a read-only ByteBuffer: whoever allocates is going to write");
        }
        Counted counted = new Counted(memory, memory.remaining());
        return new Allocation(HostMemory.address(memory, "memory"), Device.CPU, release, counted);
    }
}
