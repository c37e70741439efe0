package dev.devexchange;

/**
 * Implements a memory manager: the callbacks of {@link MemoryManager#of}. The interface is that of Numba's external
 * memory management plugin; all methods except {@link #allocate} are optional.
 *
 * <p>The methods are called on daemon threads of this library ({@code devexchange-worker-…}), several at once, and
 * possibly before {@link #initialize}. The thread that allocates waits for them; a foreign thread never enters the JVM.
 * An exception becomes the error of the call that asked, with its text: a {@link DevExchangeException} keeps its
 * status, an {@link OutOfMemoryError}, such as that of {@code ByteBuffer.allocateDirect}, becomes {@link
 * Status#OUT_OF_MEMORY}, and everything else becomes {@link Status#CALLBACK}. When the JVM exits, threads that wait get
 * an error.
 */
@FunctionalInterface
public interface Allocator {
    /**
     * Allocates memory.
     *
     * @param request the request; its number of bytes is not negative. Its stream is never {@link
     *     DeviceStream#PER_THREAD_DEFAULT}, because another thread made the request: {@link
     *     DeviceStream#LEGACY_DEFAULT} takes its place
     * @return the memory, with as many bytes as requested; in the order of the request's stream if there is one,
     *     otherwise ready at once. If the call that asked still fails, the memory is given back like any other
     * @throws Exception becomes the error of the call that asked
     */
    Allocation allocate(MemoryRequest request) throws Exception;

    /**
     * Prepares for a device. Is called any number of times.
     *
     * @param deviceId the device
     * @throws Exception becomes the error of the call that asked
     */
    default void initialize(int deviceId) throws Exception {}

    /**
     * Pins existing host memory.
     *
     * @param deviceId the device to pin for
     * @param address of the first byte
     * @param bytes the number of bytes
     * @param hostFlags bits of {@link HostFlags}
     * @return a callback that unpins the memory, run once, on the thread of the {@link ReleaseQueue}; may be null
     * @throws Exception becomes the error of the call that asked; {@link Status#UNSUPPORTED} if this method is not
     *     implemented
     */
    default Runnable pin(int deviceId, long address, long bytes, int hostFlags) throws Exception {
        throw new DevExchangeException(Status.UNSUPPORTED, "the manager cannot pin memory");
    }

    /**
     * Says how much memory the manager has.
     *
     * @param deviceId the device
     * @return the numbers, which must not be negative
     * @throws Exception becomes the error of the call that asked; {@link Status#UNSUPPORTED} if this method is not
     *     implemented
     */
    default MemoryInfo memoryInfo(int deviceId) throws Exception {
        throw new DevExchangeException(Status.UNSUPPORTED, "the manager does not know how much memory there is");
    }

    /**
     * Returns the handle of the allocation that contains an address of this manager's memory.
     *
     * @param address any address in memory of this manager
     * @return the handle; null to let the library ask the driver
     * @throws Exception becomes the error of the call that asked
     */
    default IpcHandle ipcHandle(long address) throws Exception {
        return null;
    }

    /**
     * Called when the releases of all memory of a device have been queued; they may not have run yet. Whatever the
     * allocator keeps for the device may go.
     *
     * @param deviceId the device
     * @throws Exception becomes the error of the call that asked
     */
    default void reset(int deviceId) throws Exception {}

    /**
     * Returns unused memory of a device to its source.
     *
     * @param deviceId the device
     * @param keep the number of unused bytes that may stay
     * @throws Exception becomes the error of the call that asked
     */
    default void trim(int deviceId, long keep) throws Exception {}

    /**
     * Called when cleanup begins or ceases to be deferred; in between, the library holds back the releases of
     * allocations. This method must not wait for the {@link ReleaseQueue}, which may be waiting for it.
     *
     * @param begin whether the deferring begins
     * @throws Exception is traced and goes no further, because no caller waits for it
     */
    default void deferCleanup(boolean begin) throws Exception {}
}
