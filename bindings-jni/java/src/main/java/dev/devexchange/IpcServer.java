package dev.devexchange;

/**
 * Offers tensors and batches under names to other processes of the same user on this machine, which import them with an
 * {@link IpcClient}: the same memory, with the same type, shape and order.
 *
 * <p>What an importer has got stays valid until the importer releases it or ends. Shared without a copy are host memory
 * from {@link Tensor#allocateShared} or from another process, and this process's own device memory that is a driver
 * allocation or comes from {@link MemoryManager#shareablePool}. Anything else is copied, if the offer allows it. A
 * native thread answers the importers. Any thread may use a server. Close it when it is no longer needed.
 */
public final class IpcServer extends Owned<IpcServer> implements AutoCloseable {
    private IpcServer() {
        super(Handle.Kind.IPC_SERVER);
    }

    /**
     * Listens at an address. Processes of other users are refused. If the process is killed, the file of a path stays,
     * and a server at this path is refused until the file is removed.
     *
     * @param address the path of a socket, or {@code @} and a name that has no file; path or name have at most 107
     *     bytes
     * @return the server, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for an invalid address, {@link Status#INVALID_TEXT},
     *     {@link Status#SYSTEM}, for example if the address is in use
     */
    public static IpcServer bind(String address) {
        Field.requireUnicode(address, "address");
        return new IpcServer().of(Native.ipcServerBind(address));
    }

    /**
     * Says how a tensor can be offered to other processes. Nothing is taken.
     *
     * @param tensor the tensor; it stays open
     * @return as a view, with a copy, or not at all, and why
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public static Plan plan(Tensor tensor) {
        return tensor.plan("IpcServer.plan", Native::ipcPlanTensor);
    }

    /**
     * Says how a batch can be offered to other processes. Nothing is taken. To tell the size of a copy of texts on a
     * device, the host waits for their last offsets.
     *
     * @param batch the batch; it stays open
     * @return as a view, with a copy, or not at all, and why
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public static Plan plan(Batch batch) {
        return batch.plan("IpcServer.plan", Native::ipcPlanBatch);
    }

    /**
     * Offers a tensor under a name, in place of any earlier offer of that name. The tensor is shared in its present
     * state: the importers' streams wait for everything that its producer has queued before this call.
     *
     * @param name of 1 to 255 bytes
     * @param tensor the tensor; it stays open, and may be closed at once
     * @param copy whether memory that other processes cannot see may be copied
     * @throws DevExchangeException {@link Status#COPY_REQUIRED}, {@link Status#IMPOSSIBLE},
     *     {@link Status#INVALID_ARGUMENT} and {@link Status#INVALID_TEXT} for the name, {@link Status#DEVICE},
     *     {@link Status#DRIVER}, {@link Status#SYSTEM}, {@link Status#UNSUPPORTED} also in a child of {@code fork},
     *     {@link Status#CLOSED}
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
     * Same as {@link #offer(String, Tensor, Copy)}, for a batch. Importers cannot write its host memory.
     *
     * @param name of 1 to 255 bytes
     * @param batch the batch; it stays open, and may be closed at once
     * @param copy whether memory that other processes cannot see may be copied
     * @throws DevExchangeException as {@link #offer(String, Tensor, Copy)}
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
     * Ends an offer. What importers have got from it stays valid.
     *
     * @param name of the offer
     * @return whether there was one
     * @throws DevExchangeException {@link Status#INVALID_TEXT}, {@link Status#UNSUPPORTED} in a child of {@code fork},
     *     {@link Status#CLOSED}
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
     * The number of imports that the importers have not released yet. Repeated imports of the same offer over the same
     * connection count once while one of them is held, unless an offer has changed.
     *
     * @return the number of leases; 0 when all are released
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
     * Ends all offers. What importers have got stays valid until they release it. Waits until the address is free
     * again, for a second at most. Closing twice is fine.
     */
    @Override
    public void close() {
        super.close();
    }

    /** {@return the number of leases, or that it is closed} */
    @Override
    public String toString() {
        try {
            return "IpcServer (" + leases() + " leases)";
        } catch (DevExchangeException closed) {
            return "IpcServer (closed)";
        }
    }
}
