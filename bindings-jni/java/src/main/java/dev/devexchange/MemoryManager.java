package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Objects;
import java.util.function.Supplier;

/**
 * Allocates device, pinned, managed and host memory. Some managers come with the library, one is implemented by the
 * program ({@link #of}), and one limits another manager ({@link #limited}). {@link Tensor#allocate(MemoryManager,
 * Device, DType, long[], DeviceStream)} allocates through a manager.
 *
 * <p>Memory from a manager outlives it. CUDA is not needed until device memory is asked for. Any thread may use a
 * manager. Close it when it is no longer needed; after that every method fails with {@link Status#CLOSED}.
 */
public final class MemoryManager extends Owned<MemoryManager> implements AutoCloseable {
    /** The version of the interface, which is that of Numba's external memory management plugin. */
    public static final int VERSION = 1;

    /** In place of a number of bytes: no limit. */
    public static final long NO_LIMIT = -1;

    /** The device of pinned memory, whatever device it was pinned for. */
    private static final long PINNED = new Device(DeviceType.CUDA_HOST, 0).packed();

    /** Whether a call can wait for an allocator written in Java. */
    private final boolean java;

    private MemoryManager() {
        this(false);
    }

    private MemoryManager(boolean java) {
        super(Handle.Kind.MANAGER);
        this.java = java;
    }

    // ---- making ----

    /**
     * Creates a manager that asks the driver for each allocation, for every kind of memory. With a stream, device
     * memory comes from the device's default pool.
     *
     * @return the manager, which the caller closes
     */
    public static MemoryManager driver() {
        return new MemoryManager().of(Native.managerDriver());
    }

    /**
     * Same as {@link #driver}, but gives managed memory for every request of device memory.
     *
     * @return the manager, which the caller closes
     */
    public static MemoryManager managed() {
        return new MemoryManager().of(Native.managerManaged());
    }

    /**
     * Creates a manager that gives only plain and pinned host memory.
     *
     * @return the manager, which the caller closes
     */
    public static MemoryManager hostOnly() {
        return new MemoryManager().of(Native.managerHostOnly());
    }

    /**
     * Creates a manager with its own stream-ordered pool on each device; it also gives pinned host memory. When memory
     * runs out, it waits for the stream, trims the pool and tries once more.
     *
     * @param limit the most bytes in use at any time, over all devices; {@link #NO_LIMIT} for no limit
     * @param keep unused bytes that each pool keeps; {@link #NO_LIMIT} for all of them
     * @return the manager, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for other negative numbers
     */
    public static MemoryManager pool(long limit, long keep) {
        return pool(limit, keep, false);
    }

    /**
     * Same as {@link #pool(long, long)}, for device memory that can be offered to other processes ({@link IpcServer}).
     *
     * @param limit the most bytes in use at any time, over all devices; {@link #NO_LIMIT} for no limit
     * @param keep unused bytes that each pool keeps; {@link #NO_LIMIT} for all of them
     * @return the manager, which the caller closes
     * @throws DevExchangeException as {@link #pool(long, long)}
     */
    public static MemoryManager shareablePool(long limit, long keep) {
        return pool(limit, keep, true);
    }

    private static MemoryManager pool(long limit, long keep, boolean shareable) {
        checkLimit(limit, "limit");
        checkLimit(keep, "keep");
        return new MemoryManager().of(Native.managerPool(limit, keep, shareable));
    }

    /**
     * Creates a manager that limits the bytes that another manager has in use through it. The other manager is shared
     * and stays open. Memory ceases to count when it is given up: if an {@link Allocator} made it, its release is
     * queued then and may not have run yet ({@link ReleaseQueue#flush}), so for a while there can be more memory than
     * the limit.
     *
     * @param inner the manager that allocates
     * @param limit the most bytes in use at any time, over all devices; with {@link #NO_LIMIT} the new manager only
     *     counts
     * @return the manager, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for other negative numbers, {@link Status#TOO_DEEP}
     *     for more than 64 managers on top of each other, {@link Status#CLOSED}
     */
    public static MemoryManager limited(MemoryManager inner, long limit) {
        checkLimit(limit, "limit");
        long open = inner.enter("MemoryManager.limited");
        try {
            return new MemoryManager(inner.java).of(Native.managerLimited(open, limit));
        } finally {
            inner.exit();
        }
    }

    private static void checkLimit(long limit, String name) {
        if (limit < NO_LIMIT) {
            throw new DevExchangeException(
                    Status.INVALID_ARGUMENT, name + " is " + limit + ": a number of bytes, or -1 for no limit");
        }
    }

    /**
     * Creates a manager that the program implements.
     *
     * @param allocator does all the work, on threads of this library
     * @param release run once, on the thread of the {@link ReleaseQueue}, when the manager and all memory from it are
     *     given up; may be null. If this call fails, it never runs. Neither it nor the allocator should refer to the
     *     manager: the garbage collector would then never find the manager
     * @return the manager, which the caller closes
     */
    public static MemoryManager of(Allocator allocator, Runnable release) {
        MemoryManager manager = new MemoryManager(true);
        Long token = Dispatcher.register(new AllocatorTask(Objects.requireNonNull(allocator, "allocator")), release);
        long made = 0;
        try {
            made = Native.managerCreate(token);
        } finally {
            if (made == 0) {
                Dispatcher.cancel(token);
            }
        }
        return manager.of(made);
    }

    // ---- memory ----

    /**
     * Prepares for allocations on a device. Optional; may be called any number of times.
     *
     * @param deviceId the CUDA device
     * @throws DevExchangeException {@link Status#DEVICE}, {@link Status#DRIVER}, what an {@link Allocator} throws,
     *     {@link Status#CLOSED}
     */
    public void initialize(int deviceId) {
        tell("MemoryManager.initialize", manager -> Native.managerInitialize(manager, deviceId));
    }

    /**
     * Allocates uninitialised memory. Without a stream it is ready when this returns: for memory of a pool, the host
     * waits for that.
     *
     * @param request what is asked for
     * @return the memory, which the caller closes
     * @throws DevExchangeException {@link Status#OUT_OF_MEMORY}, {@link Status#UNSUPPORTED} for a kind of memory that
     *     this manager does not have, {@link Status#INVALID_ARGUMENT} for a negative number of bytes and unknown flags,
     *     {@link Status#INVALID_STREAM}, {@link Status#DEVICE}, {@link Status#DRIVER}, what an {@link Allocator}
     *     throws, {@link Status#CALLBACK} if the allocator gives no address, {@link Status#CLOSED}
     */
    public Memory allocate(MemoryRequest request) {
        return waiting(() -> allocateNow(request));
    }

    private Memory allocateNow(MemoryRequest request) {
        long manager = enter("MemoryManager.allocate");
        try {
            Memory memory = new Memory(request.bytes());
            Scratch scratch = Scratch.get();
            request.write(scratch.buffer);
            long raw = Native.managerAllocate(manager, scratch.address, scratch.address);
            return memory.of(raw, scratch.buffer.getLong(0), scratch.buffer.getLong(Long.BYTES));
        } finally {
            exit();
        }
    }

    /**
     * Pins the memory of a buffer, which stays reachable meanwhile. Otherwise the same as {@link #pin(int, long, long,
     * int)}.
     *
     * @param deviceId the device to pin for
     * @param memory a direct buffer in native byte order; its remaining bytes are pinned
     * @param hostFlags bits of {@link HostFlags}
     * @return pinned memory, at the same address, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a heap buffer or another byte order, and those
     *     of {@link #pin(int, long, long, int)}
     */
    public Memory pin(int deviceId, ByteBuffer memory, int hostFlags) {
        return pin(deviceId, HostMemory.address(memory, "memory"), memory.remaining(), hostFlags, memory);
    }

    /**
     * Pins existing host memory.
     *
     * @param deviceId the device to pin for
     * @param address of the first byte
     * @param bytes the number of bytes; the memory must exist until the result is closed
     * @param hostFlags bits of {@link HostFlags}
     * @return pinned memory, at the same address; the caller closes it, which unpins the memory
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a negative number of bytes and for flags that
     *     are unknown or not possible, {@link Status#UNSUPPORTED}, {@link Status#DEVICE}, {@link Status#DRIVER}, what
     *     an {@link Allocator} throws, {@link Status#CLOSED}
     */
    public Memory pin(int deviceId, long address, long bytes, int hostFlags) {
        return pin(deviceId, address, bytes, hostFlags, null);
    }

    private Memory pin(int deviceId, long address, long bytes, int hostFlags, Object kept) {
        return waiting(() -> pinNow(deviceId, address, bytes, hostFlags, kept));
    }

    private Memory pinNow(int deviceId, long address, long bytes, int hostFlags, Object kept) {
        Memory memory = new Memory(bytes);
        Device device = new Device(DeviceType.CUDA_HOST, deviceId);
        MemoryRequest request = new MemoryRequest(device, bytes, MemoryRequest.NO_STREAM, hostFlags);
        Scratch scratch = Scratch.get();
        Long token = kept == null ? Long.valueOf(0) : ReleaseQueue.register(kept, null);
        long raw = 0;
        try {
            long manager = enter("MemoryManager.pin");
            try {
                request.write(scratch.buffer);
                raw = Native.managerPin(manager, scratch.address, address, token);
            } finally {
                exit();
            }
        } finally {
            if (raw == 0) {
                ReleaseQueue.cancel(token);
            }
        }
        return memory.of(raw, address, PINNED);
    }

    /**
     * Says how much memory this manager has.
     *
     * @param deviceId the CUDA device
     * @return the numbers as they are now
     * @throws DevExchangeException {@link Status#UNSUPPORTED} if the manager cannot tell (that of {@link #hostOnly}
     *     never can), {@link Status#DEVICE}, {@link Status#DRIVER}, what an {@link Allocator} throws, {@link
     *     Status#CLOSED}
     */
    public MemoryInfo memoryInfo(int deviceId) {
        return ask("MemoryManager.memoryInfo", (manager, scratch) -> {
            Native.managerMemoryInfo(manager, deviceId, scratch.address);
            return MemoryInfo.read(scratch.buffer);
        });
    }

    /**
     * Returns the driver's handle for the allocation that contains an address of this manager's memory, for programs
     * that send handles themselves. The memory must live until the other process has closed the handle. {@link
     * IpcServer} takes care of all that, and can also share memory of pools, which has no such handle.
     *
     * @param address any address in memory of this manager
     * @return the handle
     * @throws DevExchangeException {@link Status#UNSUPPORTED} for memory that has no handle, {@link Status#DEVICE},
     *     {@link Status#DRIVER}, what an {@link Allocator} throws, {@link Status#CLOSED}
     */
    public IpcHandle ipcHandle(long address) {
        return ask("MemoryManager.ipcHandle", (manager, scratch) -> {
            Native.managerIpcHandle(manager, address, scratch.address);
            return IpcHandle.read(scratch.buffer);
        });
    }

    /**
     * Gives back all memory of a device, even memory that is still in use: closing that memory then does nothing.
     * Nobody may use the memory after this call, and no other thread may give it up during the call. If cleanup was
     * deferred, no other thread may resume it, trim or allocate during the call either, because that may give back what
     * was kept. Plain host memory belongs to no device and stays. Memory of an {@link Allocator} written in Java is
     * given back on the thread of the {@link ReleaseQueue}: call {@link ReleaseQueue#flush} after this, before you
     * reset the device.
     *
     * <p>A limited manager also resets the manager that it allocates from, and with it the memory that others have from
     * that one. Call this before a reset of the device itself ({@code cudaDeviceReset}, {@code
     * cuDevicePrimaryCtxReset}), which takes the device's memory: memory given up after such a reset is unknown to the
     * driver, or has been given to somebody else since.
     *
     * @param deviceId the CUDA device
     * @throws DevExchangeException what an {@link Allocator} throws, {@link Status#CLOSED}
     */
    public void reset(int deviceId) {
        tell("MemoryManager.reset", manager -> Native.managerReset(manager, deviceId));
    }

    /**
     * Returns unused memory of a device to the driver.
     *
     * @param deviceId the CUDA device
     * @param keep the number of unused bytes to keep
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a negative number, {@link Status#DRIVER}, what
     *     an {@link Allocator} throws, {@link Status#CLOSED}
     */
    public void trim(int deviceId, long keep) {
        tell("MemoryManager.trim", manager -> Native.managerTrim(manager, deviceId, keep));
    }

    /**
     * Defers the expensive part of giving memory back until the result is closed. Memory in the order of a stream still
     * goes back to its pool at once, and pinning ends at once. {@link #trim} gives back what is held back, and so does a
     * manager of this library that runs out of memory.
     *
     * @return the scope, which the caller closes, preferably with try-with-resources; it may outlive this handle
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public DeferredCleanup deferCleanup() {
        return ask("MemoryManager.deferCleanup", (manager, scratch) ->
                new DeferredCleanup(this).of(Native.managerDeferCleanup(manager)));
    }

    /**
     * Returns the numbers of allocations that were made and given back. Memory of an {@link Allocator} counts as given
     * back when its release is queued, which can be before {@link Allocation#release} has run.
     *
     * @return the numbers as they are now
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public ManagerStatistics statistics() {
        long manager = enter("MemoryManager.statistics");
        try {
            Scratch scratch = Scratch.get();
            Native.managerStatistics(manager, scratch.address);
            return ManagerStatistics.read(scratch.buffer);
        } finally {
            exit();
        }
    }

    // ---- closing ----

    /** Gives up this reference. Memory from the manager stays valid. Closing twice is fine. */
    @Override
    public void close() {
        super.close();
    }

    /** {@return bytes in use, or that it is closed} */
    @Override
    public String toString() {
        try {
            return "MemoryManager (" + statistics().bytes() + " bytes in use)";
        } catch (DevExchangeException closed) {
            return "MemoryManager (closed)";
        }
    }

    /** Makes a call that can wait for an allocator written in Java. */
    <T> T waiting(Supplier<T> call) {
        return java ? Waiting.call(call) : call.get();
    }

    private interface Ask<T> {
        T of(long manager, Scratch scratch);
    }

    private <T> T ask(String method, Ask<T> call) {
        return waiting(() -> {
            long manager = enter(method);
            try {
                return call.of(manager, Scratch.get());
            } finally {
                exit();
            }
        });
    }

    private interface Tell {
        void to(long manager);
    }

    private void tell(String method, Tell call) {
        ask(method, (manager, scratch) -> {
            call.to(manager);
            return null;
        });
    }
}
