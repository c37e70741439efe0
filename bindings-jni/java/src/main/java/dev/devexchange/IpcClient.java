package dev.devexchange;

import java.time.Duration;
import java.util.function.LongFunction;

/**
 * A connection to an exporter ({@link IpcServer}) in another process of the same user. Imported tensors and batches use
 * the exporter's memory, without a copy, and outlive this handle. Any thread may use a connection. While one thread
 * waits for an answer, other threads wait for that thread; a virtual thread leaves its carrier meanwhile. Close the
 * connection when it is no longer needed.
 *
 * <p>An exporter is trusted like a producer in this process: that the memory holds what the exporter says (the offsets
 * of a batch are followed unchecked), and that nobody writes the memory while it is read here. Nothing can check that.
 */
public final class IpcClient extends Owned<IpcClient> implements AutoCloseable {
    /** The default time that an exporter has for an answer. */
    public static final Duration TIMEOUT = Duration.ofSeconds(10);

    private static final Duration LONGEST = Duration.ofNanos(Long.MAX_VALUE);

    private IpcClient() {
        super(Handle.Kind.IPC_CLIENT);
    }

    /**
     * Connects to the exporter at an address, which has {@link #TIMEOUT} for each answer.
     *
     * @param address as in {@link IpcServer#bind}
     * @return the connection, which the caller closes
     * @throws DevExchangeException as {@link #connect(String, Duration)}
     */
    public static IpcClient connect(String address) {
        return connect(address, TIMEOUT);
    }

    /**
     * Connects to the exporter at an address.
     *
     * @param address as in {@link IpcServer#bind}
     * @param timeout the time that the exporter has for each answer; not negative. Any very long time, for example
     *     {@code ChronoUnit.FOREVER.getDuration()}, is a wait without a limit
     * @return the connection, which the caller closes
     * @throws DevExchangeException {@link Status#SYSTEM} if nobody listens there, or the exporter belongs to another
     *     user, {@link Status#NOT_READY} if there is no answer in time, {@link Status#INVALID_ARGUMENT} for an invalid
     *     address or a negative time, {@link Status#INVALID_TEXT}, {@link Status#VERSION}, {@link Status#CLOSED} if the
     *     exporter ends meanwhile, {@link Status#BUSY} if it has 512 importers already
     */
    public static IpcClient connect(String address, Duration timeout) {
        Field.requireUnicode(address, "address");
        if (timeout.isNegative()) {
            throw new DevExchangeException(
                    Status.INVALID_ARGUMENT, "timeout is " + timeout + ": it must not be negative");
        }
        long nanoseconds = (timeout.compareTo(LONGEST) > 0 ? LONGEST : timeout).toNanos();
        return Waiting.call(() -> new IpcClient().of(Native.ipcClientConnect(address, nanoseconds)));
    }

    /**
     * Imports the tensor that is offered under a name, without a copy. The exporter keeps its memory until the last
     * reference in this process is gone and all work noted with {@link Tensor#usedOn} is done, or until this process
     * ends.
     *
     * @param name of the offer
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} if nothing is offered under this name, {@link
     *     Status#MISMATCH} if it is not a tensor, {@link Status#CLOSED} if the exporter is gone or this handle is
     *     closed, {@link Status#NOT_READY} if there is no answer in time, {@link Status#BUSY} if too much is held
     *     already, {@link Status#DEVICE} if this process does not have its device, {@link Status#DRIVER}, {@link
     *     Status#INVALID_TEXT}, {@link Status#UNSUPPORTED} in a child of {@code fork}
     */
    public Tensor importTensor(String name) {
        return imported("IpcClient.importTensor", name, client ->
                new Tensor().of(Native.ipcClientImportTensor(client, name)));
    }

    /**
     * Same as {@link #importTensor}, for a batch. Its host memory cannot be written.
     *
     * @param name of the offer
     * @return the batch, which the caller closes
     * @throws DevExchangeException as {@link #importTensor}
     */
    public Batch importBatch(String name) {
        return imported("IpcClient.importBatch", name, client ->
                new Batch().of(Native.ipcClientImportBatch(client, name)));
    }

    /** Asks for an offer, and waits for the answer. */
    private <T> T imported(String method, String name, LongFunction<T> call) {
        Field.requireUnicode(name, "name");
        return Waiting.call(() -> {
            long client = enter(method);
            try {
                return call.apply(client);
            } finally {
                exit();
            }
        });
    }

    /** Gives the connection up. What was imported stays valid. Closing twice is fine. */
    @Override
    public void close() {
        super.close();
    }
}
