package dev.devexchange;

/** The methods that hand a batch to a consumer. */
abstract class BatchExchange extends Held<Batch, BatchTable> {
    /** The structs that an array comes in. */
    static final Handle.Kind[] ARRAYS = {Handle.Kind.ARROW_ARRAY, Handle.Kind.ARROW_DEVICE_ARRAY};

    BatchExchange() {
        super(Handle.Kind.BATCH);
    }

    /**
     * Hands the batch to a consumer and keeps it. The consumer releases the struct. Child arrays may be moved out of
     * the struct and outlive it (C data interface, "Moving child structures").
     *
     * @param address of memory for an {@code ArrowArray}; its previous content is overwritten, not released
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#CLOSED}, {@link Status#DEVICE} for
     *     memory other than host memory, which this struct cannot express; on any error nothing is written
     */
    public void exportShare(long address) {
        export("Batch.exportShare", address, false);
    }

    /**
     * Hands the batch to a consumer and closes it here. The consumer releases the struct. On failure the batch stays
     * open.
     *
     * @param address of memory for an {@code ArrowArray}; its previous content is overwritten, not released
     * @throws DevExchangeException as {@link #exportShare(long)}
     */
    public void exportMove(long address) {
        move("Batch.exportMove", address, Handle.Kind.ARROW_ARRAY);
    }

    /**
     * Same as {@link #exportShare(long)}, with device and event.
     *
     * @param address of memory for an {@code ArrowDeviceArray}; its previous content is overwritten, not released
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#CLOSED}; on any error nothing is written
     */
    public void exportShareDevice(long address) {
        export("Batch.exportShareDevice", address, true);
    }

    /**
     * Same as {@link #exportMove(long)}, with device and event.
     *
     * @param address of memory for an {@code ArrowDeviceArray}; its previous content is overwritten, not released
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#CLOSED}; on any error nothing is written
     */
    public void exportMoveDevice(long address) {
        move("Batch.exportMoveDevice", address, Handle.Kind.ARROW_DEVICE_ARRAY);
    }

    /**
     * Same as {@link #exportShare(long)} or {@link #exportShareDevice(long)}, as the struct is.
     *
     * @param array an {@code ArrowArray} or {@code ArrowDeviceArray} without content
     * @throws DevExchangeException also {@link Status#MISMATCH} for a struct of another kind, {@link
     *     Status#INVALID_ARGUMENT} for one with content
     */
    public void exportShare(CStruct array) {
        String method = "Batch.exportShare";
        check(method);
        array.fill(method, address -> export(method, address, isDevice(array)), ARRAYS);
    }

    /**
     * Same as {@link #exportMove(long)} or {@link #exportMoveDevice(long)}, as the struct is.
     *
     * @param array an {@code ArrowArray} or {@code ArrowDeviceArray} without content
     * @throws DevExchangeException as {@link #exportShare(CStruct)}
     */
    public void exportMove(CStruct array) {
        String method = "Batch.exportMove";
        check(method);
        array.fill(method, address -> move(method, address, array.kind()), ARRAYS);
    }

    static boolean isDevice(CStruct array) {
        return array.kind() == Handle.Kind.ARROW_DEVICE_ARRAY;
    }

    private void export(String method, long address, boolean asDevice) {
        long batch = enter(method);
        try {
            Native.batchExport(batch, address, asDevice);
        } finally {
            exit();
        }
    }

    private void move(String method, long address, Handle.Kind struct) {
        export(method, address, struct == Handle.Kind.ARROW_DEVICE_ARRAY);
        moved(method, struct, address);
    }
}
