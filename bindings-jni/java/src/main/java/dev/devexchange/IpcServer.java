package dev.devexchange;

/**
 * An exporter: what it offers under names, other processes of the same user on this machine can import
 * ({@link IpcClient}): the same memory, with the same type, shape and order.
 *
 * <p>What was given to an importer stays valid until that has released it or is gone. Host memory that is not from
 * {@link Tensor#allocateShared} is copied, if the offer allows it; device memory is an allocation of the driver's, or
 * from {@link MemoryManager#shareablePool}; anything else is copied, if that is allowed. A native thread answers the
 * importers. Any thread may use a server; close it when it is not needed any more.
 */
public final class IpcServer extends Owned<IpcServer> implements AutoCloseable {
    private IpcServer() {
        super(Handle.Kind.IPC_SERVER);
    }

    /**
     * Listens at an address. Processes of other users are refused.
     *
     * @param address the path of a socket, or {@code @} and a name that no file stands for; at most 107 bytes
     * @return the server, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for an address that is none,
     *     {@link Status#INVALID_TEXT}, {@link Status#SYSTEM} if it is in use, for example
     */
    public static IpcServer bind(String address) {
        Field.requireUnicode(address, "address");
        return new IpcServer().of(Native.ipcServerBind(address));
    }

    /**
     * How a tensor can be offered to other processes. Nothing is taken.
     *
     * @param tensor which stays open
     * @return as a view, with a copy, or not at all, and why
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public static Plan plan(Tensor tensor) {
        return tensor.plan("IpcServer.plan", Native::ipcPlanTensor);
    }

    /**
     * How a batch can be offered to other processes. Nothing is taken.
     *
     * @param batch which stays open
     * @return as a view, with a copy, or not at all, and why
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public static Plan plan(Batch batch) {
        return batch.plan("IpcServer.plan", Native::ipcPlanBatch);
    }

    /**
     * Offers a tensor under a name, in place of what had that name. It is shared, as it is now: what its producer has
     * queued until this call is waited for by the importers' streams.
     *
     * @param name of 1 to 255 bytes
     * @param tensor which stays open, and may be closed at once
     * @param copy whether memory that other processes cannot see may be copied
     * @throws DevExchangeException {@link Status#COPY_REQUIRED}, {@link Status#IMPOSSIBLE},
     *     {@link Status#INVALID_ARGUMENT} and {@link Status#INVALID_TEXT} for the name, {@link Status#DEVICE},
     *     {@link Status#DRIVER}, {@link Status#SYSTEM}, {@link Status#CLOSED}
     */
    public void offer(String name, Tensor tensor, Copy copy) {
        Field.requireUnicode(name, "name");
        long server = enter("IpcServer.offer");
        try {
            long open = tensor.enter("IpcServer.offer");
            try {
                Native.ipcServerOfferTensor(server, name, open, copy.value);
            } finally {
                tensor.exit();
            }
        } finally {
            exit();
        }
    }

    /**
     * As {@link #offer(String, Tensor, Copy)}, for a batch. Importers cannot write its memory if it is the host's.
     *
     * @param name of 1 to 255 bytes
     * @param batch which stays open, and may be closed at once
     * @param copy whether memory that other processes cannot see may be copied
     * @throws DevExchangeException as there
     */
    public void offer(String name, Batch batch, Copy copy) {
        Field.requireUnicode(name, "name");
        long server = enter("IpcServer.offer");
        try {
            long open = batch.enter("IpcServer.offer");
            try {
                Native.ipcServerOfferBatch(server, name, open, copy.value);
            } finally {
                batch.exit();
            }
        } finally {
            exit();
        }
    }

    /**
     * Ends an offer. What was given of it stays valid.
     *
     * @param name of the offer
     * @return whether there was one
     * @throws DevExchangeException {@link Status#INVALID_TEXT}, {@link Status#CLOSED}
     */
    public boolean withdraw(String name) {
        Field.requireUnicode(name, "name");
        long server = enter("IpcServer.withdraw");
        try {
            return Native.ipcServerWithdraw(server, name);
        } finally {
            exit();
        }
    }

    /**
     * How much was given to importers that they have not released yet. What one of them imports again over the same
     * connection while it holds it counts once, unless an offer has changed.
     *
     * @return a number; 0 when all were released
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long leases() {
        long server = enter("IpcServer.leases");
        try {
            return Native.ipcServerLeases(server);
        } finally {
            exit();
        }
    }

    /**
     * Ends all offers. What was given stays valid until it is released. Waits until the address is free again, for a
     * second at most. Closing twice is fine.
     */
    @Override
    public void close() {
        super.close();
    }

    /** {@return what is not released yet, or that it is closed} */
    @Override
    public String toString() {
        try {
            return "IpcServer (" + leases() + " leases)";
        } catch (DevExchangeException closed) {
            return "IpcServer (closed)";
        }
    }
}
