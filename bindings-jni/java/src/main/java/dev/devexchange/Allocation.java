package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * Memory that an {@link Allocator} gives.
 *
 * @param address of the first byte; 0 only if no bytes were asked for
 * @param device where it is
 * @param release gives it back: run once, on the thread of the {@link ReleaseQueue}, when nobody uses the memory any
 *     more, also after a reset of the manager; may be null. The stream of the request, if it is closed meanwhile, is
 *     destroyed only after that
 * @param kept stays reachable until then; may be null
 */
public record Allocation(long address, Device device, Runnable release, Object kept) {
    /** A buffer that is the whole allocation, and how many bytes it has. */
    record Counted(ByteBuffer memory, int bytes) {}

    /**
     * Checks that there is a device, nothing more.
     *
     * @param address of the first byte
     * @param device where it is
     * @param release gives it back; may be null
     * @param kept stays reachable until then; may be null
     */
    public Allocation {
        Objects.requireNonNull(device, "device");
    }

    /**
     * Memory at an address.
     *
     * @param address of the first byte; 0 only if no bytes were asked for
     * @param device where it is
     * @param release gives it back; may be null
     */
    public Allocation(long address, Device device, Runnable release) {
        this(address, device, release, null);
    }

    /**
     * Host memory of a direct buffer, which stays reachable until nobody uses the memory any more.
     *
     * @param memory a direct buffer in native byte order that may be written; the memory is what remains in it: as many
     *     bytes as were asked for, at least. The arena of a buffer of a memory segment stays open until the release
     * @param release run when nobody uses the memory any more; may be null
     * @return the allocation
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a heap buffer, another byte order and a read-only
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
