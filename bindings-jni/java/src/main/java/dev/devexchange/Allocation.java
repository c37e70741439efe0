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
     * @param memory a direct buffer in native byte order; the memory begins at its position
     * @param release run when nobody uses the memory any more; may be null
     * @return the allocation
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a heap buffer or another byte order
     */
    public static Allocation of(ByteBuffer memory, Runnable release) {
        return new Allocation(HostMemory.address(memory, "memory"), Device.CPU, release, memory);
    }
}
