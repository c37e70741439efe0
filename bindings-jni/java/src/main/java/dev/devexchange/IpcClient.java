package dev.devexchange;

import java.time.Duration;
import java.util.function.LongFunction;

/**
 * A connection of an importer to an exporter ({@link IpcServer}) in another process of the same user. What is imported
 * is the exporter's memory, without a copy, and outlives the connection's handle. Any thread may use it; one that waits
 * for an answer makes the others wait, and a virtual one leaves its carrier meanwhile. Close it when it is not needed
 * any more.
 *
 * <p>An exporter is trusted as a producer in this process is: that the memory holds what it says (the offsets of a
 * batch are followed as they are), and that nobody writes it while it is read here. Nothing can check that.
 */
public final class IpcClient extends Owned<IpcClient> implements AutoCloseable {
    /** How long an exporter has for an answer, unless it is said otherwise. */
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
     * @param timeout how long it has for each answer
     * @return the connection, which the caller closes
     * @throws DevExchangeException {@link Status#SYSTEM} if nobody listens there, or the user is another one,
     *     {@link Status#NOT_READY} if there is no answer in time, {@link Status#INVALID_ARGUMENT} for an address that is
     *     none and for a negative time, {@link Status#INVALID_TEXT}, {@link Status#VERSION}, {@link Status#CLOSED} if
     *     the exporter goes meanwhile
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
     * reference is gone here and all work that was named with {@link Tensor#usedOn} is done, or this process ends.
     *
     * @param name of the offer
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} if nothing is offered under this name,
     *     {@link Status#MISMATCH} if it is not a tensor, {@link Status#CLOSED} if the exporter or this handle is gone,
     *     {@link Status#NOT_READY} if there is no answer in time, {@link Status#BUSY} if too much is held already,
     *     {@link Status#DEVICE} if this process does not have its device, {@link Status#DRIVER}, {@link Status#INVALID_TEXT}
     */
    public Tensor importTensor(String name) {
        return imported("IpcClient.importTensor", name, client ->
                new Tensor().of(Native.ipcClientImportTensor(client, name)));
    }

    /**
     * As {@link #importTensor}, for a batch. Host memory of it cannot be written.
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

    /** Gives the connection up; what was imported stays valid. Closing twice is fine. */
    @Override
    public void close() {
        super.close();
    }
}
