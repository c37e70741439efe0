package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.Objects;
import java.util.function.Supplier;

/**
 * Who allocates: a manager of device, pinned, managed and host memory. Some come with the library, one is filled in by
 * the program ({@link #of}), and one limits another ({@link #limited}). {@link Tensor#allocate(MemoryManager, Device,
 * DType, long[], DeviceStream)} allocates through it.
 *
 * <p>Memory that a manager gave outlives it. Nothing of CUDA is asked for before memory of a device is. Any thread may
 * use a manager; close it when it is not needed any more. After that every method says {@link Status#CLOSED}.
 */
public final class MemoryManager extends Owned<MemoryManager> implements AutoCloseable {
    /** The version of the interface: that of Numba's external memory management plugin. */
    public static final int VERSION = 1;

    /** In place of a number of bytes: no limit. */
    public static final long NO_LIMIT = -1;

    /** Where pinned memory is, whatever device it was pinned for. */
    private static final long PINNED = new Device(DeviceType.CUDA_HOST, 0).packed();

    /** Whether it asks Java, which may take its time. */
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
     * A manager that asks the driver for each allocation: every kind of memory. With a stream, device memory comes from
     * the device's default pool.
     *
     * @return the manager, which the caller closes
     */
    public static MemoryManager driver() {
        return new MemoryManager().of(Native.managerDriver());
    }

    /**
     * As {@link #driver}, with managed memory for every request of device memory.
     *
     * @return the manager, which the caller closes
     */
    public static MemoryManager managed() {
        return new MemoryManager().of(Native.managerManaged());
    }

    /**
     * A manager of plain and pinned host memory only.
     *
     * @return the manager, which the caller closes
     */
    public static MemoryManager hostOnly() {
        return new MemoryManager().of(Native.managerHostOnly());
    }

    /**
     * A manager with a stream-ordered pool of its own on each device. Out of memory, it trims, waits for the stream and
     * tries once more.
     *
     * @param limit most bytes in use at a time, over all devices; {@link #NO_LIMIT} for no limit
     * @param keep unused bytes that each pool keeps; {@link #NO_LIMIT} for all of them
     * @return the manager, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for other negative numbers
     */
    public static MemoryManager pool(long limit, long keep) {
        return pool(limit, keep, false);
    }

    /**
     * As {@link #pool(long, long)}, of device memory that can be offered to other processes ({@link IpcServer}).
     *
     * @param limit most bytes in use at a time, over all devices; {@link #NO_LIMIT} for no limit
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
     * A manager that lets another one, which is shared and stays open, have no more than so many bytes in use.
     *
     * @param inner who allocates
     * @param limit most bytes in use at a time, over all devices; with {@link #NO_LIMIT} it only counts
     * @return the manager, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for other negative numbers,
     *     {@link Status#TOO_DEEP} over 64 managers that stand one over the other, {@link Status#CLOSED}
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
     * A manager of the program's own.
     *
     * @param allocator asked for everything, on threads of this library
     * @param release run once, on the thread of the {@link ReleaseQueue}, when the manager and all memory of it are
     *     given up; may be null. If this call fails, it is never run. If it or the allocator refers to the manager, the
     *     garbage collector never finds that
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
     * Prepares for allocations on a device. May be called any number of times; nothing needs it.
     *
     * @param deviceId which CUDA device
     * @throws DevExchangeException {@link Status#DEVICE}, {@link Status#DRIVER}, what an {@link Allocator} throws,
     *     {@link Status#CLOSED}
     */
    public void initialize(int deviceId) {
        tell("MemoryManager.initialize", manager -> Native.managerInitialize(manager, deviceId));
    }

    /**
     * Allocates memory, not initialised.
     *
     * @param request what is asked for
     * @return the memory, which the caller closes
     * @throws DevExchangeException {@link Status#OUT_OF_MEMORY}, {@link Status#UNSUPPORTED} for a kind of memory that
     *     this manager does not have, {@link Status#INVALID_ARGUMENT} for a negative number of bytes and unknown flags,
     *     {@link Status#INVALID_STREAM}, {@link Status#DEVICE}, {@link Status#DRIVER}, what an {@link Allocator}
     *     throws, {@link Status#CALLBACK} if it gives no address, {@link Status#CLOSED}
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
     * Pins the memory of a buffer, which stays reachable meanwhile; as {@link #pin(int, long, long, int)}.
     *
     * @param deviceId for which device
     * @param memory a direct buffer in native byte order; what remains in it is pinned
     * @param hostFlags bits of {@link HostFlags}
     * @return pinned memory, at the same address, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a heap buffer or another byte order, and as
     *     there
     */
    public Memory pin(int deviceId, ByteBuffer memory, int hostFlags) {
        return pin(deviceId, HostMemory.address(memory, "memory"), memory.remaining(), hostFlags, memory);
    }

    /**
     * Pins host memory that is there already.
     *
     * @param deviceId for which device
     * @param address of the first byte
     * @param bytes how many there are; they are there until the result is closed
     * @param hostFlags bits of {@link HostFlags}
     * @return pinned memory, at the same address, which the caller closes: that unpins it
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
     * How much memory there is for this manager.
     *
     * @param deviceId of which CUDA device
     * @return the numbers as they are now
     * @throws DevExchangeException {@link Status#UNSUPPORTED} if it cannot say, {@link Status#DEVICE},
     *     {@link Status#DRIVER}, what an {@link Allocator} throws, {@link Status#CLOSED}
     */
    public MemoryInfo memoryInfo(int deviceId) {
        return ask("MemoryManager.memoryInfo", (manager, scratch) -> {
            Native.managerMemoryInfo(manager, deviceId, scratch.address);
            return MemoryInfo.read(scratch.buffer);
        });
    }

    /**
     * The driver's handle for the allocation that an address of this manager's lies in: for programs that send handles
     * on their own. The memory must live until the other process has closed it. {@link IpcServer} sees to all of that
     * by itself, and shares memory of pools, which has no such handle.
     *
     * @param address somewhere in memory of this manager's
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
     * Gives all memory of a device back, also what is still in use: closing that has nothing to do any more. Nobody
     * uses it after this, and no other thread gives it up meanwhile. Plain host memory is of no device and stays.
     *
     * <p>A limited manager resets the one that it asks, too, and with it the memory that others have of that one. This
     * comes before a reset of the device itself ({@code cudaDeviceReset}, {@code cuDevicePrimaryCtxReset}), which takes
     * its memory: what is given up after that, the driver does not know any more, or has given to somebody else since.
     *
     * @param deviceId which CUDA device
     * @throws DevExchangeException what an {@link Allocator} throws, {@link Status#CLOSED}
     */
    public void reset(int deviceId) {
        tell("MemoryManager.reset", manager -> Native.managerReset(manager, deviceId));
    }

    /**
     * Gives unused memory of a device back to the driver.
     *
     * @param deviceId which CUDA device
     * @param keep bytes that stay
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a negative number, {@link Status#DRIVER}, what
     *     an {@link Allocator} throws, {@link Status#CLOSED}
     */
    public void trim(int deviceId, long keep) {
        tell("MemoryManager.trim", manager -> Native.managerTrim(manager, deviceId, keep));
    }

    /**
     * Holds back what is given up, until the result is closed: what is expensive about giving memory back does not
     * happen meanwhile. Memory in the order of a stream is given back to its pool at once.
     *
     * @return the scope, which the caller closes, best with try-with-resources; it may outlive this handle
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public DeferredCleanup deferCleanup() {
        return ask("MemoryManager.deferCleanup", (manager, scratch) ->
                new DeferredCleanup(this).of(Native.managerDeferCleanup(manager)));
    }

    /**
     * What was allocated and given back.
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

    /** Gives up this reference; memory that the manager gave stays valid. Closing twice is fine. */
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

    /** Makes a call that asks the manager. */
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
