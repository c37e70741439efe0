package dev.devexchange;

/**
 * What a memory manager of one's own does: the callbacks of {@link MemoryManager#of}. The interface is that of Numba's
 * external memory management plugin; all methods but {@link #allocate} are optional.
 *
 * <p>They are called on daemon threads of this library ({@code devexchange-worker-…}), several at once, also before
 * {@link #initialize}; whoever allocates waits for them, whatever thread that is, and a foreign thread never enters the
 * JVM. What they throw becomes the error of the call that asked: a {@link DevExchangeException} with its status, an
 * {@link OutOfMemoryError}, as of {@code ByteBuffer.allocateDirect}, as {@link Status#OUT_OF_MEMORY}, everything else as
 * {@link Status#CALLBACK}, each with its text. When the JVM exits, whoever waits gets an error.
 */
@FunctionalInterface
public interface Allocator {
    /**
     * Allocates.
     *
     * @param request what is asked for; its number of bytes is not negative, and its stream is never {@link
     *     DeviceStream#PER_THREAD_DEFAULT}, as who asks is another thread: {@link DeviceStream#LEGACY_DEFAULT} stands for
     *     it
     * @return the memory: as many bytes as were asked for, in the order of the request's stream if there is one,
     *     otherwise ready at once. If the call that asked fails after all, it is given back like any other
     * @throws Exception becomes the error of the call that asked
     */
    Allocation allocate(MemoryRequest request) throws Exception;

    /**
     * Prepares for a device. Comes any number of times.
     *
     * @param deviceId which one
     * @throws Exception becomes the error of the call that asked
     */
    default void initialize(int deviceId) throws Exception {}

    /**
     * Pins host memory that is there already.
     *
     * @param deviceId for which device
     * @param address of the first byte
     * @param bytes how many there are
     * @param hostFlags bits of {@link HostFlags}
     * @return ends it: run once, on the thread of the {@link ReleaseQueue}; may be null
     * @throws Exception becomes the error of the call that asked; {@link Status#UNSUPPORTED} unless this is implemented
     */
    default Runnable pin(int deviceId, long address, long bytes, int hostFlags) throws Exception {
        throw new DevExchangeException(Status.UNSUPPORTED, "the manager cannot pin memory");
    }

    /**
     * Says how much memory there is.
     *
     * @param deviceId of which device
     * @return the numbers, not negative
     * @throws Exception becomes the error of the call that asked; {@link Status#UNSUPPORTED} unless this is implemented
     */
    default MemoryInfo memoryInfo(int deviceId) throws Exception {
        throw new DevExchangeException(Status.UNSUPPORTED, "the manager does not know how much memory there is");
    }

    /**
     * The handle of the allocation that an address of this manager's lies in.
     *
     * @param address somewhere in memory of this manager's
     * @return the handle; null if the driver is to be asked
     * @throws Exception becomes the error of the call that asked
     */
    default IpcHandle ipcHandle(long address) throws Exception {
        return null;
    }

    /**
     * Everything of a device has been given back: what was kept for it may go. The releases of its allocations are
     * queued already.
     *
     * @param deviceId which one
     * @throws Exception becomes the error of the call that asked
     */
    default void reset(int deviceId) throws Exception {}

    /**
     * Gives unused memory of a device back.
     *
     * @param deviceId which one
     * @param keep bytes that may stay
     * @throws Exception becomes the error of the call that asked
     */
    default void trim(int deviceId, long keep) throws Exception {}

    /**
     * Cleanup is deferred from now on, or no longer; the library holds back the releases of allocations meanwhile. This
     * does not wait for the {@link ReleaseQueue}, which may be waiting for it.
     *
     * @param begin whether it begins
     * @throws Exception is traced, and goes no further: there is nobody to tell
     */
    default void deferCleanup(boolean begin) throws Exception {}
}
