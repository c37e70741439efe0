package dev.devexchange;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.IntFunction;

/**
 * A record batch: an Arrow array of type struct with its schema, whose children are the columns. Any other array with a
 * schema is a batch too; then it has no columns, but a {@link #root()}.
 *
 * <p>A batch is one reference to memory, made here ({@link #create}) or imported from a producer. The memory is
 * released when the last reference and the last export are gone. Any thread may use a batch; close it when it is not
 * needed any more. Its data is not to be changed.
 */
@SuppressWarnings("exports") // What is held is for this package only.
public final class Batch extends Held<Batch, BatchTable> implements AutoCloseable {
    /** Up to so many columns are looked through each time that one is asked for by its name. */
    private static final int FEW = 64;

    private final Fields fields;
    private final Map<String, String> metadata;

    /** Of whose schema nothing is known in Java yet. */
    Batch() {
        this(new Fields());
    }

    Batch(Fields fields) {
        this(fields, Map.of());
    }

    Batch(Fields fields, Map<String, String> metadata) {
        super(Handle.Kind.BATCH);
        this.fields = fields;
        this.metadata = metadata;
    }

    @Override
    BatchTable describe(long address) {
        return BatchTable.of(address);
    }

    /**
     * A batch over memory of the caller's, which is not copied.
     *
     * <p>The buffers stay reachable, and {@code release} is not run, until the last user of the batch is gone, on this
     * side or on a consumer's; then {@code release} runs once, on the thread of the {@link ReleaseQueue}. If this call
     * fails, it is never run.
     *
     * @param schema what the nodes are; it is shared and stays open
     * @param device where the buffers are
     * @param nodes one for each field of the schema, in depth-first order: a field, its children each with all that is
     *     below it, then its dictionary. For a record batch the first node is the struct, whose one buffer is the
     *     validity: {@code Node.of(rows, (ByteBuffer) null)}
     * @param release run when the memory is not needed any more; may be null
     * @return the batch, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_ARGUMENT} for a heap buffer or another byte order,
     *     {@link Status#INVALID_LENGTH}, {@link Status#INVALID_NULL_COUNT}, {@link Status#INVALID_BUFFERS},
     *     {@link Status#MISMATCH}, {@link Status#DEVICE}, {@link Status#CLOSED}, with the field and the value
     */
    public static Batch create(Schema schema, Device device, List<Node> nodes, Runnable release) {
        return BatchMaker.make(schema, device, nodes, i -> "nodes[" + i + "]", release);
    }

    /**
     * A record batch whose columns are other batches, of any type, which it shares: nothing is copied, and they may be
     * closed at once.
     *
     * @param columns names and batches, in the order of the map; all of the same length and on the same device
     * @param stream the one that is made to wait for columns whose data is not there yet, and that orders the new
     *     batch then; {@code null} if all are there
     * @return the batch, which the caller closes
     * @throws DevExchangeException {@link Status#INVALID_LENGTH} if lengths differ, {@link Status#MISMATCH} if devices
     *     do, {@link Status#NOT_READY} without a stream that is needed, {@link Status#INVALID_ARGUMENT} for no columns,
     *     {@link Status#INVALID_TEXT}, {@link Status#DRIVER}, {@link Status#CLOSED}
     */
    public static Batch ofColumns(Map<String, Batch> columns, DeviceStream stream) {
        return ofColumns(List.copyOf(columns.keySet()), List.copyOf(columns.values()), stream);
    }

    /**
     * As {@link #ofColumns(Map, DeviceStream)}, also for names that repeat.
     *
     * @param names the names of the columns, in order
     * @param columns as many batches; the same one may be there more than once
     * @param stream may be {@code null}
     * @return the batch, which the caller closes
     * @throws DevExchangeException as {@link #ofColumns(Map, DeviceStream)}; {@link Status#MISMATCH} for another number
     *     of names than of batches
     */
    public static Batch ofColumns(List<String> names, List<Batch> columns, DeviceStream stream) {
        return BatchMaker.ofColumns(names, columns, stream);
    }

    /**
     * Takes an array in host memory from its producer. On success the struct is moved from (its {@code release} is
     * NULL) and is released once, when the last user is gone; on failure it is untouched. No buffer is read.
     *
     * @param arrayAddress of an {@code ArrowArray} that the caller owns
     * @param schema what the array is; it is shared and stays open
     * @return the batch, which the caller closes
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#RELEASED},
     *     {@link Status#INVALID_LENGTH}, {@link Status#INVALID_NULL_COUNT}, {@link Status#INVALID_BUFFERS},
     *     {@link Status#INVALID_CHILDREN}, {@link Status#MISMATCH}, with the field and the value
     */
    public static Batch importArrow(long arrayAddress, Schema schema) {
        return take("Batch.importArrow", arrayAddress, schema, false);
    }

    /**
     * Takes an array in host memory and its schema from their producer, both or neither; as
     * {@link #importArrow(long, Schema)}.
     *
     * @param arrayAddress of an {@code ArrowArray} that the caller owns
     * @param schemaAddress of an {@code ArrowSchema} that the caller owns
     * @return the batch, which the caller closes
     * @throws DevExchangeException as {@link #importArrow(long, Schema)} and {@link Schema#importArrow}
     */
    public static Batch importArrow(long arrayAddress, long schemaAddress) {
        return new Batch().of(Native.batchImportBoth(arrayAddress, schemaAddress, false));
    }

    /**
     * As {@link #importArrow(long, Schema)}, for an array that says where it is and when it may be touched.
     *
     * @param arrayAddress of an {@code ArrowDeviceArray} that the caller owns
     * @param schema what the array is; it is shared and stays open
     * @return the batch, which the caller closes
     * @throws DevExchangeException also {@link Status#DEVICE} for a device that this library has no runtime for
     */
    public static Batch importArrowDevice(long arrayAddress, Schema schema) {
        return take("Batch.importArrowDevice", arrayAddress, schema, true);
    }

    /**
     * As {@link #importArrow(long, long)}, for an array that says where it is and when it may be touched.
     *
     * @param arrayAddress of an {@code ArrowDeviceArray} that the caller owns
     * @param schemaAddress of an {@code ArrowSchema} that the caller owns
     * @return the batch, which the caller closes
     * @throws DevExchangeException also {@link Status#DEVICE} for a device that this library has no runtime for
     */
    public static Batch importArrowDevice(long arrayAddress, long schemaAddress) {
        return new Batch().of(Native.batchImportBoth(arrayAddress, schemaAddress, true));
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
     * Hands the batch to a consumer, which releases it, and keeps it. Child arrays may be moved out of the struct and
     * outlive it (C data interface, "Moving child structures").
     *
     * @param address of room for an {@code ArrowArray}; what it holds is overwritten, not released
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#CLOSED}, {@link Status#DEVICE} if the
     *     memory is not host memory, which this struct cannot say; then nothing is written
     */
    public void exportShare(long address) {
        export("Batch.exportShare", address, false);
    }

    /**
     * Hands the batch to a consumer, which releases it, and closes it here. On failure it stays open.
     *
     * @param address of room for an {@code ArrowArray}; what it holds is overwritten, not released
     * @throws DevExchangeException as {@link #exportShare}
     */
    public void exportMove(long address) {
        move("Batch.exportMove", address, Handle.Kind.ARROW_ARRAY);
    }

    /**
     * As {@link #exportShare}, with device and event.
     *
     * @param address of room for an {@code ArrowDeviceArray}; what it holds is overwritten, not released
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#CLOSED}; then nothing is written
     */
    public void exportShareDevice(long address) {
        export("Batch.exportShareDevice", address, true);
    }

    /**
     * As {@link #exportMove}, with device and event.
     *
     * @param address of room for an {@code ArrowDeviceArray}; what it holds is overwritten, not released
     * @throws DevExchangeException {@link Status#NULL_ARGUMENT}, {@link Status#CLOSED}; then nothing is written
     */
    public void exportMoveDevice(long address) {
        move("Batch.exportMoveDevice", address, Handle.Kind.ARROW_DEVICE_ARRAY);
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
        handle.moved(method, struct, address);
    }

    /**
     * Another reference to the same batch.
     *
     * @return the batch, which the caller closes too
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Batch share() {
        return shareWith(metadata);
    }

    /**
     * Another reference to the same batch, with this metadata, for an {@link AsyncWriter}.
     *
     * @param pairs keys and values, in the order of the map; copied
     * @return the batch, which the caller closes too
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Batch share(Map<String, String> pairs) {
        return shareWith(Metadata.copy(pairs));
    }

    /** As {@link #share(Map)}, of pairs that do not change any more. */
    Batch shareWith(Map<String, String> pairs) {
        long batch = enter("Batch.share");
        try {
            return new Batch(fields, pairs).of(Calls.batchShare(batch));
        } finally {
            exit();
        }
    }

    /**
     * What the producer of an asynchronous stream says about this batch, or what is to be said: metadata that comes with
     * the batch and is not part of it. Arrow allows any bytes and keys that repeat; here bytes that are not UTF-8 are
     * replaced and the last value of a key stays.
     *
     * @return keys and values; empty where there is nothing to say; unmodifiable
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Map<String, String> metadata() {
        check("Batch.metadata");
        return metadata;
    }

    /**
     * A reference to the schema.
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

    /** As {@link #schema}; the caller is inside. */
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
     * Some of the rows as a batch of their own, which shares the memory: nothing is copied, and this one may be closed. The
     * slice of a record batch is exported without an offset of its own, which many consumers ask for: its columns have one.
     *
     * @param offset of the first row
     * @param length how many rows
     * @return the batch, which the caller closes
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE} if there are not so many, {@link Status#OUT_OF_MEMORY},
     *     {@link Status#CLOSED}
     */
    public Batch slice(long offset, long length) {
        enter("Batch.slice");
        try {
            return new Column(this, isInside(), BatchTable.ROOT).part(offset, length).shareInside(metadata);
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
     * The number of columns: of children, if the type is struct, otherwise 0.
     *
     * @return 0 or more
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public int columnCount() {
        return is("Batch.columnCount").columnCount;
    }

    /**
     * The whole array as one column; for a record batch a column of type struct.
     *
     * @return a view, valid while the batch is open
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Column root() {
        return new Column(this, is("Batch.root"), BatchTable.ROOT);
    }

    /** The field of a node; the caller is inside. */
    Field field(int node) {
        return fields.at(node, this);
    }

    /**
     * The column at an index, with the batch's own slice applied.
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
     * The first column with a name.
     *
     * @param name the column's name
     * @return a view, valid while the batch is open
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE} if there is none, {@link Status#CLOSED}
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
                Status.OUT_OF_RANGE, "name is \"" + name + "\": the batch has no such column");
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
     * All columns.
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
     * How the batch, if its columns are of one number type, can be had as a matrix. Nothing is taken.
     *
     * @return the plan
     * @throws DevExchangeException {@link Status#CLOSED}; {@link Status#DEVICE} if nulls would have to be counted there
     */
    public Plan planMatrix() {
        return plan("Batch.planMatrix", Native::batchPlanMatrix);
    }

    /**
     * The batch as a matrix with a row for each row and a column for each column, column-major. A view is read-only and
     * keeps the memory alive by itself; it needs columns that follow each other in memory at equal distances.
     *
     * @param copy whether the values may be copied
     * @param stream that a copy of memory which the host cannot read is queued on; {@code null} if there is none
     * @return the matrix, which the caller closes
     * @throws DevExchangeException {@link Status#COPY_REQUIRED}, {@link Status#IMPOSSIBLE}, {@link Status#NOT_READY}
     *     without a stream that is needed, {@link Status#DEVICE}, {@link Status#DRIVER}, {@link Status#CLOSED}
     */
    public Tensor toMatrix(Copy copy, DeviceStream stream) {
        long batch = enter("Batch.toMatrix");
        try {
            long queue = DeviceStream.enterIfAny(stream, "Batch.toMatrix");
            try {
                return new Tensor().of(Native.batchToMatrix(batch, copy.value, queue));
            } finally {
                if (queue != 0) {
                    stream.exit();
                }
            }
        } finally {
            exit();
        }
    }

    /**
     * A copy in one block of host memory of the library's. For memory of a device, and to one, {@link #copyTo}.
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
     * A copy on another device (or the same), queued on a stream. This batch may be closed at once: its memory stays
     * until the copy is done. The host waits for copies into host memory, and for the sizes of texts and binary in
     * device memory.
     *
     * @param target where the copy is to be
     * @param stream of this device or of the other one; within host memory, any
     * @return the copy, which the caller closes; its data is there for work that is queued on {@code stream} afterwards
     * @throws DevExchangeException {@link Status#OUT_OF_MEMORY}, {@link Status#INVALID_BUFFERS}, {@link Status#DEVICE},
     *     {@link Status#DRIVER}, {@link Status#UNSUPPORTED} if the stream is being captured, {@link Status#CLOSED}
     */
    public Batch copyTo(Device target, DeviceStream stream) {
        long batch = enter("Batch.copyTo");
        try {
            long queue = stream.enter("Batch.copyTo");
            try {
                return new Batch(fields, metadata).of(Native.batchCopyTo(batch, target.packed(), queue));
            } finally {
                stream.exit();
            }
        } finally {
            exit();
        }
    }

    /**
     * Makes a stream wait, on the device, until the data of the batch may be touched. The host does not wait.
     *
     * @param stream the one that work with the data will be queued on
     * @throws DevExchangeException {@link Status#DRIVER}, {@link Status#UNSUPPORTED} if a stream is being captured,
     *     {@link Status#CLOSED}
     */
    public void waitOn(DeviceStream stream) {
        order("Batch.waitOn", stream, Native::batchWaitOn);
    }

    /**
     * Says that work which is queued on a stream by now uses the batch: its memory is released only when that work is
     * done, however early the batch is closed. From any thread, for as many streams as there are.
     *
     * @param stream the one that the work is queued on
     * @throws DevExchangeException {@link Status#DEVICE} if the batch is not on a device with streams,
     *     {@link Status#DRIVER}, {@link Status#UNSUPPORTED} if the stream is being captured, {@link Status#CLOSED}
     */
    public void usedOn(DeviceStream stream) {
        order("Batch.usedOn", stream, Native::batchUsedOn);
    }

    /**
     * Asks the driver whether the buffers are where the batch says, with all bytes that its lengths and offsets come
     * to. No buffer is read, so the bytes that offsets and views point into are left out: only those tell how many they
     * are. Host memory is not asked for.
     *
     * @throws DevExchangeException {@link Status#DEVICE} with the array and the buffer that is not, {@link
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
     * Says that the data is there when what is queued on a stream is done: for a producer that worked on another stream
     * than the legacy default one. To be called before the batch is shared, exported or used by other threads. Memory
     * that is given back in the order of another stream is so only after that work, too.
     *
     * @param stream the one that fills the memory
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

    /** Refuses to read values that are not in host memory, or not there yet. The caller is inside. */
    void requireHost() {
        BatchTable is = isInside();
        is.device.requireHost(is.ready);
    }
}
