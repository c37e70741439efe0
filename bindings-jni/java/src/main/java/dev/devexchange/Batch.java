package dev.devexchange;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * A record batch: an Arrow array of type struct with its schema; its children are the columns. An array of any other
 * type with a schema is a batch, too; it has no columns, only a {@link #root()}.
 *
 * <p>A batch is one reference to memory, made here ({@link #create}) or imported from a producer. The memory is
 * released when the last reference and the last export are gone. Any thread may use a batch. Close it when it is no
 * longer needed. Its data must not be changed.
 */
@SuppressWarnings("exports") // What is held is for this package only.
public final class Batch extends BatchExchange implements AutoCloseable {
    /** The largest number of columns that a look-up by name searches one by one, without a map. */
    private static final int FEW = 64;

    private final Fields fields;
    private final Map<String, String> metadata;

    /** A batch whose schema has not been read into Java yet. */
    Batch() {
        this(new Fields());
    }

    Batch(Fields fields) {
        this(fields, Map.of());
    }

    Batch(Fields fields, Map<String, String> metadata) {
        this.fields = fields;
        this.metadata = metadata;
    }

    @Override
    BatchTable describe(long address) {
        return BatchTable.of(address);
    }

    /**
     * Creates a batch over the caller's memory, without a copy.
     *
     * <p>The buffers stay reachable until the last user of the batch is gone, on this side or on a consumer's; then
     * {@code release} runs once, on the thread of the {@link ReleaseQueue}. If this call fails, {@code release} never
     * runs.
     *
     * @param schema the schema that the nodes follow; it is shared and stays open
     * @param device where the buffers are
     * @param nodes one for each field of the schema, in depth-first order: a field, then each child with everything
     *     below it, then the dictionary. For a record batch the first node is the struct, whose only buffer is the
     *     validity: {@code Node.of(rows, (ByteBuffer) null)}
     * @param release run when the memory is no longer needed; may be null
     * @return the batch, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a heap buffer or another byte order,
     *     {@link Status#INVALID_LENGTH}, {@link Status#INVALID_NULL_COUNT}, {@link Status#INVALID_BUFFERS},
     *     {@link Status#MISMATCH}, {@link Status#DEVICE}, {@link Status#CLOSED}, with the field and the value
     */
    public static Batch create(Schema schema, Device device, List<Node> nodes, Runnable release) {
        return BatchMaker.make(schema, device, nodes, i -> "nodes[" + i + "]", release);
    }

    /**
     * Creates a record batch whose columns are other batches of any type. It shares them: nothing is copied, and they
     * may be closed at once.
     *
     * @param columns names and batches, in the order of the map; all of the same length and on the same device
     * @param stream if the data of some columns is not ready yet: the stream that is made to wait for it, and that then
     *     orders the new batch; it may be closed before the batch. {@code null} if all data is ready
     * @return the batch, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_LENGTH} if lengths differ, {@link Status#MISMATCH} if devices
     *     differ, {@link Status#NOT_READY} if a stream is needed and missing, {@link Status#INVALID_ARGUMENT} for no
     *     columns, {@link Status#INVALID_TEXT}, {@link Status#DRIVER}, {@link Status#CLOSED}
     */
    public static Batch ofColumns(Map<String, Batch> columns, DeviceStream stream) {
        return ofColumns(List.copyOf(columns.keySet()), List.copyOf(columns.values()), stream);
    }

    /**
     * Same as {@link #ofColumns(Map, DeviceStream)}, but names may repeat.
     *
     * @param names the names of the columns, in order
     * @param columns as many batches; the same batch may appear more than once
     * @param stream as in {@link #ofColumns(Map, DeviceStream)}; may be {@code null}
     * @return the batch, which the caller closes
     * @throws DevExchangeException as {@link #ofColumns(Map, DeviceStream)}; {@link Status#MISMATCH} if the numbers of
     *     names and batches differ
     */
    public static Batch ofColumns(List<String> names, List<Batch> columns, DeviceStream stream) {
        return BatchMaker.ofColumns(names, columns, stream);
    }

    /**
     * Takes an array in host memory from its producer. On success the struct is moved from (its {@code release} is
     * NULL) and is released once, when the last user is gone; on failure it is untouched and the caller still owns it.
     * No buffer is read.
     *
     * @param arrayAddress of an {@code ArrowArray} that the caller owns
     * @param schema the schema of the array; it is shared and stays open
     * @return the batch, which the caller closes
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#RELEASED},
     *     {@link Status#INVALID_LENGTH}, {@link Status#INVALID_NULL_COUNT}, {@link Status#INVALID_BUFFERS},
     *     {@link Status#INVALID_CHILDREN}, {@link Status#MISMATCH}, with the field and the value
     */
    public static Batch importArrow(long arrayAddress, Schema schema) {
        return take("Batch.importArrow", arrayAddress, schema, false);
    }

    /**
     * Takes an array in host memory and its schema from their producer, both or neither. Otherwise the same as {@link
     * #importArrow(long, Schema)}.
     *
     * @param arrayAddress of an {@code ArrowArray} that the caller owns
     * @param schemaAddress of an {@code ArrowSchema} that the caller owns
     * @return the batch, which the caller closes
     * @throws DevExchangeException as {@link #importArrow(long, Schema)} and {@link Schema#importArrow(long)}
     */
    public static Batch importArrow(long arrayAddress, long schemaAddress) {
        return new Batch().of(Native.batchImportBoth(arrayAddress, schemaAddress, false));
    }

    /**
     * Same as {@link #importArrow(long, Schema)}, for an array that carries its device and event.
     *
     * @param arrayAddress of an {@code ArrowDeviceArray} that the caller owns
     * @param schema the schema of the array; it is shared and stays open
     * @return the batch, which the caller closes
     * @throws DevExchangeException also {@link Status#DEVICE} for a device that this library has no runtime for
     */
    public static Batch importArrowDevice(long arrayAddress, Schema schema) {
        return take("Batch.importArrowDevice", arrayAddress, schema, true);
    }

    /**
     * Same as {@link #importArrow(long, long)}, for an array that carries its device and event.
     *
     * @param arrayAddress of an {@code ArrowDeviceArray} that the caller owns
     * @param schemaAddress of an {@code ArrowSchema} that the caller owns
     * @return the batch, which the caller closes
     * @throws DevExchangeException also {@link Status#DEVICE} for a device that this library has no runtime for
     */
    public static Batch importArrowDevice(long arrayAddress, long schemaAddress) {
        return new Batch().of(Native.batchImportBoth(arrayAddress, schemaAddress, true));
    }

    /**
     * Same as {@link #importArrow(long, Schema)} or {@link #importArrowDevice(long, Schema)}, as the struct is.
     *
     * @param array an {@code ArrowArray} or {@code ArrowDeviceArray} with content
     * @param schema the schema of the array; it is shared and stays open
     * @return the batch, which the caller closes
     * @throws DevExchangeException also {@link Status#MISMATCH} for a struct of another kind
     */
    public static Batch importArrow(CStruct array, Schema schema) {
        String method = "Batch.importArrow";
        return array.lend(method, address -> take(method, address, schema, isDevice(array)), ARRAYS);
    }

    /**
     * Same as {@link #importArrow(long, long)} or {@link #importArrowDevice(long, long)}, as the first struct is.
     *
     * @param array an {@code ArrowArray} or {@code ArrowDeviceArray} with content
     * @param schema an {@code ArrowSchema} with content
     * @return the batch, which the caller closes
     * @throws DevExchangeException also {@link Status#MISMATCH} for a struct of another kind
     */
    public static Batch importArrow(CStruct array, CStruct schema) {
        String method = "Batch.importArrow";
        return array.lend(
                method,
                address -> schema.lend(
                        method,
                        fields -> new Batch().of(Native.batchImportBoth(address, fields, isDevice(array))),
                        Handle.Kind.ARROW_SCHEMA),
                ARRAYS);
    }

    private static Batch take(String method, long arrayAddress, Schema schema, boolean device) {
        long open = schema.enter(method);
        try {
            return new Batch(schema.fields()).of(Native.batchImport(arrayAddress, open, device));
        } finally {
            schema.exit();
        }
    }

    /**
     * Returns another reference to the same batch.
     *
     * @return the batch, which the caller closes, too
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Batch share() {
        return shareWith(metadata);
    }

    /**
     * Returns another reference to the same batch, with the given metadata for an {@link AsyncWriter}.
     *
     * @param pairs keys and values, in the order of the map; copied
     * @return the batch, which the caller closes, too
     * @throws DevExchangeException {@link Status#INVALID_TEXT} for half surrogate pairs, {@link Status#CLOSED}
     */
    public Batch share(Map<String, String> pairs) {
        Map<String, String> copy = Metadata.copy(pairs);
        Metadata.requireUnicode(copy);
        return shareWith(copy);
    }

    /** Same as {@link #share(Map)}, for pairs that no longer change. */
    Batch shareWith(Map<String, String> pairs) {
        long batch = enter("Batch.share");
        try {
            return new Batch(fields, pairs).of(Calls.batchShare(batch));
        } finally {
            exit();
        }
    }

    /**
     * The metadata that accompanies this batch in an asynchronous stream, received from a producer or to be sent to a
     * consumer; it is not part of the batch. Arrow allows arbitrary bytes and repeated keys; here bytes that are not
     * UTF-8 are replaced, and the last value of a key wins.
     *
     * @return keys and values; empty if there is no metadata; unmodifiable
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Map<String, String> metadata() {
        check("Batch.metadata");
        return metadata;
    }

    /**
     * Returns a reference to the schema.
     *
     * @return the schema, which the caller closes
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Schema schema() {
        enter("Batch.schema");
        try {
            return schemaInside();
        } finally {
            exit();
        }
    }

    /** Same as {@link #schema}, for a caller that is inside. */
    Schema schemaInside() {
        return new Schema(fields).of(Native.batchSchema(handle.address()));
    }

    /**
     * The number of rows.
     *
     * @return 0 or more
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long length() {
        return is("Batch.length").length;
    }

    /**
     * Returns a range of the rows as a batch that shares the memory: nothing is copied, and this batch may be closed.
     * It is ready when this batch is, and its uses are uses of this batch. The slice of a record batch is exported with
     * the offset in its columns and not in the struct, as many consumers require; only if rows of the record batch itself
     * may be null, the struct has it.
     *
     * @param offset of the first row
     * @param length number of rows
     * @return the batch, which the caller closes
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE} if there are not that many rows, {@link
     *     Status#OUT_OF_MEMORY}, {@link Status#CLOSED}
     */
    public Batch slice(long offset, long length) {
        enter("Batch.slice");
        try {
            Column rows = new Column(this, isInside(), BatchTable.ROOT).part(offset, length);
            return rows.shareInside(fields, metadata);
        } finally {
            exit();
        }
    }

    /**
     * Where the buffers are.
     *
     * @return the device
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Device device() {
        return is("Batch.device").device;
    }

    /**
     * The number of columns: the children of an array of type struct, otherwise 0.
     *
     * @return 0 or more
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public int columnCount() {
        return is("Batch.columnCount").columnCount;
    }

    /**
     * Returns the whole array as one column; for a record batch, a column of type struct.
     *
     * @return a view, valid while the batch is open
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Column root() {
        return new Column(this, is("Batch.root"), BatchTable.ROOT);
    }

    Fields fields() {
        return fields;
    }

    /** The field of a node. The caller must be inside. */
    Field field(int node) {
        return fields.at(node, this);
    }

    /**
     * Returns the column at an index, with the batch's own slice applied.
     *
     * @param index counted from 0
     * @return a view, valid while the batch is open
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE}, {@link Status#CLOSED}
     */
    public Column column(int index) {
        BatchTable is = is("Batch.column");
        if (index < 0 || index >= is.columnCount) {
            throw new DevExchangeException(
                    Status.OUT_OF_RANGE, "index is " + index + ": the batch has " + is.columnCount + " columns");
        }
        return new Column(this, is, is.firstColumn + index);
    }

    /**
     * Returns the first column with a name.
     *
     * @param name the column's name
     * @return a view, valid while the batch is open
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE} if no column has this name, {@link Status#CLOSED}
     */
    public Column column(String name) {
        Objects.requireNonNull(name, "name");
        enter("Batch.column");
        try {
            BatchTable is = isInside();
            int child = is.columnCount > FEW ? fields.child(name, this) : lookedFor(name, is);
            if (child >= 0) {
                return new Column(this, is, is.firstColumn + child);
            }
        } finally {
            exit();
        }
        throw new DevExchangeException(
                Status.OUT_OF_RANGE, "name is " + Names.shown(name) + ": the batch has no such column");
    }

    private int lookedFor(String name, BatchTable is) {
        for (int child = 0; child < is.columnCount; child++) {
            if (field(is.firstColumn + child).name().equals(name)) {
                return child;
            }
        }
        return -1;
    }

    /**
     * Returns all columns.
     *
     * @return views, valid while the batch is open
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public List<Column> columns() {
        BatchTable is = is("Batch.columns");
        List<Column> columns = new ArrayList<>(is.columnCount);
        for (int i = 0; i < is.columnCount; i++) {
            columns.add(new Column(this, is, is.firstColumn + i));
        }
        return columns;
    }

    /**
     * Says how the batch, if all its columns have the same number type, can become a matrix. Nothing is taken.
     *
     * @return the plan
     * @throws DevExchangeException {@link Status#DEVICE} or {@link Status#NOT_READY} if nulls would have to be counted
     *     and the host cannot read the data, {@link Status#CLOSED}
     */
    public Plan planMatrix() {
        return plan("Batch.planMatrix", Native::batchPlanMatrix);
    }

    /**
     * Returns the batch as a column-major matrix with the same rows and columns. If nothing is copied, the matrix is
     * read-only and keeps the memory alive by itself; that requires columns that follow each other in memory at equal
     * distances, with nothing between them, or in one block, as in a batch that was copied as a whole or made of a
     * matrix.
     *
     * @param copy whether the values may be copied
     * @param stream the stream that a copy is queued on if the host cannot read the memory; otherwise may be {@code
     *     null}
     * @return the matrix, which the caller closes
     * @throws DevExchangeException {@link Status#COPY_REQUIRED}, {@link Status#IMPOSSIBLE}, {@link Status#NOT_READY} if
     *     a stream is needed and missing, {@link Status#DEVICE}, {@link Status#DRIVER}, {@link Status#CLOSED}
     */
    public Tensor toMatrix(Copy copy, DeviceStream stream) {
        long batch = enter("Batch.toMatrix");
        try {
            long queue = DeviceStream.enterIfAny(stream, "Batch.toMatrix");
            try {
                return new Tensor().of(Native.batchToMatrix(batch, copy.value, queue));
            } finally {
                DeviceStream.exitIfAny(stream);
            }
        } finally {
            exit();
        }
    }

    /**
     * Returns a copy in one block of the library's own host memory. For copies from or to device memory, see {@link
     * #copyTo}.
     *
     * <p>Of a slice, the copy has the rows, with their texts and elements of lists; what views, list views, dense
     * unions, run-end encoded columns and indices of dictionaries refer to is copied whole. It has no offsets, except
     * in run-end encoded columns.
     *
     * @return the copy, which the caller closes
     * @throws DevExchangeException {@link Status#DEVICE}, {@link Status#NOT_READY}, {@link Status#INVALID_BUFFERS},
     *     {@link Status#OUT_OF_MEMORY}, {@link Status#CLOSED}
     */
    public Batch copy() {
        long batch = enter("Batch.copy");
        try {
            return new Batch(fields, metadata).of(Native.batchCopy(batch));
        } finally {
            exit();
        }
    }

    // ---- on devices ----

    /**
     * Copies the batch to another device (or the same), in the order of a stream. This batch may be closed at once: its
     * memory stays until the copy is done. The host waits for copies from or into host memory that is not pinned, and
     * for the sizes of texts and binary values in device memory.
     *
     * <p>A copy in host memory that is not pinned has of a slice what {@link #copy} has. Any other copy also has the
     * texts and elements of lists in front of those of the slice (in device memory, all elements of the lists), and up
     * to seven rows in front of a slice that has bits, with an offset.
     *
     * @param target where to place the copy
     * @param stream as in {@link Tensor#copyTo}; {@code null} if the host is to copy by itself
     * @return the copy, which the caller closes; its data is ready for work that is queued on {@code stream}
     *     afterwards, without a stream at once
     * @throws DevExchangeException as {@link Tensor#copyTo}; also {@link Status#INVALID_BUFFERS}
     */
    public Batch copyTo(Device target, DeviceStream stream) {
        long batch = enter("Batch.copyTo");
        try {
            long queue = DeviceStream.enterIfAny(stream, "Batch.copyTo");
            try {
                return new Batch(fields, metadata).of(Native.batchCopyTo(batch, target.packed(), queue));
            } finally {
                DeviceStream.exitIfAny(stream);
            }
        } finally {
            exit();
        }
    }

    /**
     * Makes a stream wait, on the device, until the data of the batch may be touched. The host does not wait.
     *
     * @param stream the stream that work with the data will be queued on
     * @throws DevExchangeException {@link Status#DEVICE} if the batch is not on a device with streams,
     *     {@link Status#DRIVER}, {@link Status#UNSUPPORTED} if the stream is being captured and would have to wait for
     *     work outside the capture, {@link Status#CLOSED}
     */
    public void waitOn(DeviceStream stream) {
        order("Batch.waitOn", stream, Native::batchWaitOn);
    }

    /**
     * Notes that work already queued on a stream uses the batch: its memory is released only when that work is done,
     * however early the batch is closed. May be called from any thread and for any number of streams.
     *
     * @param stream the stream that the work is queued on
     * @throws DevExchangeException {@link Status#DEVICE} if the batch is not on a device with streams,
     *     {@link Status#DRIVER}, {@link Status#UNSUPPORTED} if the stream is being captured, {@link Status#CLOSED}
     */
    public void usedOn(DeviceStream stream) {
        order("Batch.usedOn", stream, Native::batchUsedOn);
    }

    /**
     * Asks the driver whether the buffers are where the batch says, with all bytes that its lengths and offsets
     * require. No buffer is read, so the buffers that offsets and views point into are not checked: their sizes can
     * only be read from the data. Memory of the CPU is not checked; pinned and managed memory is.
     *
     * @throws DevExchangeException {@link Status#DEVICE} with the array and the buffer that fails the check, {@link
     *     Status#DRIVER}, {@link Status#CLOSED}
     */
    public void checkPointers() {
        long batch = enter("Batch.checkPointers");
        try {
            Native.batchCheckPointers(batch);
        } finally {
            exit();
        }
    }

    /**
     * Notes that the data is ready when the work already queued on a stream is done. This is for work on another stream
     * than the one that the batch was made on, which is the legacy default stream if no other was named. Must be called
     * before the batch is shared, exported or used by other threads. Memory that is given back in the order of another
     * stream is given back only after that work, too. A {@link Column} that was read before does not ask again whether
     * the host may read it: take the column anew.
     *
     * @param stream the stream that fills the memory
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} if the batch is shared already or used by another
     *     thread, {@link Status#DEVICE} if it is not on a device with streams, {@link Status#CLOSED}
     */
    public void producedOn(DeviceStream stream) {
        orderAlone("Batch.producedOn", stream, Native::batchProducedOn);
    }

    /** {@return number of rows, device, and names and types of the columns, or that it is closed} */
    @Override
    public String toString() {
        try (Schema schema = schema()) {
            BatchTable is = is("Batch.toString");
            return "Batch (" + is.length + " rows on " + is.device + ": " + schema.shown() + ")";
        } catch (DevExchangeException closed) {
            return "Batch (closed)";
        }
    }

    /** Refuses to read values that are not in host memory or not ready yet. The caller must be inside. */
    void requireHost() {
        BatchTable is = isInside();
        if (!(is.ready && is.device.isHost())) {
            Native.batchRequireHost(handle.address());
        }
    }
}
