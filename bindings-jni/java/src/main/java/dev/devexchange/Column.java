package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Map;

/**
 * A column: a borrowed view of one array of a {@link Batch}. It owns nothing and is valid while the batch is open;
 * after that, every method fails with {@link Status#CLOSED}.
 *
 * <p>Rows are counted from 0, with the slices of all arrays above the column applied. Values are read from host memory
 * in place, without a copy of the column; in pinned and managed memory only when the data is ready (else {@link
 * Status#NOT_READY}): when the work on a stream that fills it is done ({@link DeviceStream#synchronize}). To read many
 * numbers fast, use {@link #valuesBuffer()}; to read a value of any type, use {@link #getObject}.
 *
 * <p>Every read counts itself in and out of the batch, so that no other thread releases the memory meanwhile. Threads
 * that read one batch value by value contend for that count: give each its own {@link Batch#share}, or let them use
 * {@link #valuesBuffer()}.
 *
 * <p>In a dictionary, a union or runs, a row refers to a value that is stored elsewhere. The methods {@code get…} and
 * {@link #list} follow these references ({@link #resolve}). If the value, or a row on the way to it, is null, a method
 * that returns an object returns {@code null}, and a method that returns a number refuses ({@link
 * Status#INVALID_ARGUMENT}). {@link #isNull} and {@link #nullCount()} are about this array only.
 */
public final class Column extends ColumnValues {
    private static final int LENGTH = Records.COLUMN.at("length");
    private static final int OFFSET = Records.COLUMN.at("offset");
    private static final int NODE = Records.COLUMN.at("node");

    /** The position of a call's result in the scratch memory, which begins with a record. */
    private static final int RESULT = 1024;

    /** The number of nulls plus 1; 0 until they are counted. */
    private volatile long counted;

    /** The column of a node. */
    Column(Batch batch, BatchTable table, int node) {
        super(batch, table, node, table.offset(node), table.length(node), null);
    }

    /** A range of the rows of a column. */
    Column(Column whole, long start, long length) {
        super(whole.batch, whole.table, whole.node, whole.offset + start, length, whole);
    }

    @Override
    Column self() {
        return this;
    }

    /** The number of nulls, or −1 if it is not known yet. */
    private long knownNullCount() {
        if (counted > 0) {
            return counted - 1;
        }
        if (whole == null) {
            return table.nullCount(node);
        }
        return whole.knownNullCount() == 0 ? 0 : -1;
    }

    /** The scratch memory, filled with the parts of this column's record that the native calls read. */
    private Scratch record() {
        Scratch scratch = Scratch.get();
        scratch.buffer.putLong(NODE, node);
        scratch.buffer.putLong(OFFSET, offset);
        scratch.buffer.putLong(LENGTH, length);
        return scratch;
    }

    /**
     * The field, which says what the values are.
     *
     * @return the field, which stays valid after the batch is closed
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Field field() {
        batch.enter("Column.field");
        try {
            return is();
        } finally {
            batch.exit();
        }
    }

    /**
     * The number of rows.
     *
     * @return 0 or more
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long length() {
        batch.check("Column.length");
        return length;
    }

    /**
     * The position of row 0 in the buffers.
     *
     * @return an index in elements
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long offset() {
        batch.check("Column.offset");
        return offset;
    }

    /**
     * The number of rows that are null according to {@link #isNull}; if it is not known, the first call counts them.
     *
     * @return 0 or more
     * @throws DevExchangeException {@link Status#DEVICE} if the nulls must be counted and are not in host memory: use
     *     {@link #nullCount(DeviceStream)}; {@link Status#NOT_READY}, {@link Status#CLOSED}
     */
    public long nullCount() {
        long open = batch.enter("Column.nullCount");
        try {
            long known = knownNullCount();
            if (known < 0) {
                known = Native.columnNullCount(open, record().address);
                counted = known + 1;
            }
            return known;
        } finally {
            batch.exit();
        }
    }

    /**
     * Same as {@link #nullCount()}, but also for device memory: if the number is not known, the validity is copied on a
     * stream once the data is ready, and the host waits for the copy.
     *
     * @param stream a stream of the batch's device
     * @return 0 or more
     * @throws DevExchangeException {@link Status#DEVICE} if the nulls must be counted and are not on a device with
     *     streams, {@link Status#DRIVER}, {@link Status#UNSUPPORTED} if the stream is being captured, {@link
     *     Status#OUT_OF_MEMORY}, {@link Status#CLOSED}
     */
    public long nullCount(DeviceStream stream) {
        long open = batch.enter("Column.nullCount");
        try {
            long queue = stream.enter("Column.nullCount");
            try {
                long known = knownNullCount();
                if (known < 0) {
                    known = Native.columnNullCountOn(open, record().address, queue);
                    counted = known + 1;
                }
                return known;
            } finally {
                stream.exit();
            }
        } finally {
            batch.exit();
        }
    }

    /**
     * Returns the value of a row, of any type, as readable text: numbers plainly, dates and times as in ISO 8601
     * (timestamps with a time zone in UTC), durations with their unit, text in quotes as in JSON, bytes as {@code 0x…},
     * lists as {@code […]}, structs as {@code {"name": …}}, maps as {@code {key: …}}. The text is the same in all
     * languages of this library. If a part of a nested value cannot be read, the reason takes its place in the text.
     *
     * @param row counted from 0
     * @return the text; the text {@code "null"} if the value is null
     * @throws DevExchangeException as {@link #getObject}; also {@link Status#UNSUPPORTED} if the text has 2³¹ bytes or
     *     more
     */
    public String asText(long row) {
        long open = batch.enter("Column.asText");
        try {
            return Native.columnText(open, record().address, row);
        } finally {
            batch.exit();
        }
    }

    /**
     * Returns the dictionary of a dictionary-encoded column.
     *
     * @return a view of all values of the dictionary, valid while the batch is open
     * @throws DevExchangeException {@link Status#MISMATCH} if there is no dictionary, {@link Status#CLOSED}
     */
    public Column dictionary() {
        batch.enter("Column.dictionary");
        try {
            if (is().dictionary() == null) {
                throw new DevExchangeException(Status.MISMATCH, named("there is no dictionary"));
            }
            return dictionaryColumn();
        } finally {
            batch.exit();
        }
    }

    /**
     * Returns the index into the dictionary that a row holds.
     *
     * @param row counted from 0
     * @return the index, which is valid in the dictionary
     * @throws DevExchangeException {@link Status#MISMATCH} if there is no dictionary, {@link Status#OUT_OF_RANGE} also
     *     for an index outside the dictionary, {@link Status#INVALID_ARGUMENT} for a null, {@link Status#DEVICE},
     *     {@link Status#CLOSED}
     */
    public long dictionaryIndex(long row) {
        batch.enter("Column.dictionaryIndex");
        try {
            if (is().dictionary() == null) {
                throw new DevExchangeException(Status.MISMATCH, named("there is no dictionary"));
            }
            requireValue(row);
            return index(row);
        } finally {
            batch.exit();
        }
    }

    /**
     * Returns the type id of a row of a union: one of the field's {@link Field#typeIds}.
     *
     * @param row counted from 0
     * @return the number that stands for a child
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE}, {@link
     *     Status#DEVICE}, {@link Status#CLOSED}
     */
    public int typeId(long row) {
        batch.enter("Column.typeId");
        try {
            require(layout().kind().isUnion(), "a union");
            requireRow(row);
            return buffers().typeId(offset + row);
        } finally {
            batch.exit();
        }
    }

    /**
     * Finds the value of a row of a union: the child that holds it, and the row there.
     *
     * @param row counted from 0
     * @return the child, as {@link #child} gives it, and the row
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE}, {@link
     *     Status#INVALID_BUFFERS} for a type id that the union does not have, or an offset beyond the child, {@link
     *     Status#DEVICE}, {@link Status#CLOSED}
     */
    public Cell unionValue(long row) {
        batch.enter("Column.unionValue");
        try {
            require(layout().kind().isUnion(), "a union");
            requireRow(row);
            return chosen(row);
        } finally {
            batch.exit();
        }
    }

    /**
     * Finds the run of a run-end encoded column that a row is in, which is the row of the value in the second child.
     *
     * @param row counted from 0
     * @return the number of the run, counted from 0
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE}, {@link
     *     Status#INVALID_BUFFERS} if the runs end before the row, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public long run(long row) {
        batch.enter("Column.run");
        try {
            require(layout().kind() == Layout.Kind.RUNS, "runs");
            requireRow(row);
            return runOf(row);
        } finally {
            batch.exit();
        }
    }

    /**
     * Returns the child at an index. For a struct, a sparse union and a fixed-size list, the child has the rows that
     * this column sees; for other types it has all values (see {@link #list}, {@link #unionValue}, {@link #run}).
     *
     * @param index counted from 0
     * @return a view, valid while the batch is open
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE}, {@link Status#CLOSED}
     */
    public Column child(int index) {
        batch.enter("Column.child");
        try {
            int children = table.childCount(node);
            if (index < 0 || index >= children) {
                throw new DevExchangeException(
                        Status.OUT_OF_RANGE, named("index is " + index + ": there are " + children + " children"));
            }
            return below(index);
        } finally {
            batch.exit();
        }
    }

    /**
     * Returns a range of the rows.
     *
     * @param offset of the first row
     * @param length number of rows
     * @return a view, valid while the batch is open
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE} if there are not that many rows, {@link Status#CLOSED}
     */
    public Column slice(long offset, long length) {
        batch.check("Column.slice");
        return part(offset, length);
    }

    /** Same as {@link #slice}, but the batch may be closed. */
    Column part(long offset, long count) {
        if (offset < 0 || count < 0 || count > length - offset) {
            throw new DevExchangeException(
                    Status.OUT_OF_RANGE,
                    "offset is " + offset + " and length is " + count + ": there are " + length + " rows");
        }
        return new Column(this, offset, count);
    }

    /**
     * Returns the rows as a batch of their own that shares the memory: nothing is copied, and the batch of this column
     * may be closed. The result is a record batch if the column is a struct, and its schema has the name of the column.
     *
     * @return the batch, which the caller closes
     * @throws DevExchangeException {@link Status#OUT_OF_MEMORY}, {@link Status#CLOSED}
     */
    public Batch share() {
        batch.enter("Column.share");
        try {
            return shareInside(node == BatchTable.ROOT ? batch.fields() : new Fields(), Map.of());
        } finally {
            batch.exit();
        }
    }

    /**
     * Same as {@link #share}, with metadata that no longer changes. {@code fields} are those of this column, read or
     * not. The caller must be inside the batch.
     */
    Batch shareInside(Fields fields, Map<String, String> pairs) {
        return new Batch(fields, pairs).of(Native.columnShare(batch.handle.address(), record().address));
    }

    /**
     * The number of buffers of the column.
     *
     * @return the number that the format requires
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public int bufferCount() {
        batch.check("Column.bufferCount");
        return table.bufferCount(node);
    }

    /**
     * The address of a buffer, in memory of the batch's device. Row 0 is at index {@link #offset()} of the buffer.
     *
     * @param index in the order of the Arrow columnar format: 0 is the validity, except for unions
     * @return the address; 0 if there is no such buffer (a validity without nulls). It is valid only while the batch is
     *     open and reachable, so use it within the try-with-resources that closes the batch
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE}, {@link Status#CLOSED}
     */
    public long bufferAddress(int index) {
        batch.check("Column.bufferAddress");
        int count = table.bufferCount(node);
        boolean exists = index >= 0 && index < count;
        if (exists && table.hasBuffer(node, index)) {
            return table.buffer(node, index);
        }
        batch.enter("Column.bufferAddress");
        try {
            if (!exists) {
                throw new DevExchangeException(
                        Status.OUT_OF_RANGE, named("index is " + index + ": the column has " + count + " buffers"));
            }
            return table.buffer(node, index);
        } finally {
            batch.exit();
        }
    }

    /**
     * The values of all rows as they lie in memory, for types of a fixed number of bytes: numbers, dates and times (as
     * the integers that store them), the indices of a dictionary. The bytes of null rows are undefined.
     *
     * @return a read-only buffer in native byte order, from row 0 to the last one. It must not be used after the batch
     *     is closed, which nothing checks; while it is reachable, the garbage collector does not close the batch
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#UNSUPPORTED} for more than
     *     a buffer can hold (2 GiB), {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public ByteBuffer valuesBuffer() {
        batch.enter("Column.valuesBuffer");
        try {
            require(layout().isFixed(), "a row of values");
            batch.requireHost();
            long bytes = length * layout().width();
            if (bytes > Integer.MAX_VALUE) {
                throw new DevExchangeException(
                        Status.UNSUPPORTED,
                        named("the values take " + bytes + " bytes: a ByteBuffer has at most " + Integer.MAX_VALUE));
            }
            return batch.view(table.buffer(node, 1) + offset * layout().width(), bytes)
                    .asReadOnlyBuffer()
                    .order(ByteOrder.nativeOrder());
        } finally {
            batch.exit();
        }
    }

    /**
     * Says how the column can become a tensor. Nothing is taken; nulls are counted if their number is not known.
     *
     * @return the plan
     * @throws DevExchangeException {@link Status#DEVICE} or {@link Status#NOT_READY} if nulls would have to be counted
     *     and the host cannot read the data, {@link Status#CLOSED}
     */
    public Plan planTensor() {
        long open = batch.enter("Column.planTensor");
        try {
            Scratch scratch = record();
            Native.columnPlanTensor(open, scratch.address, scratch.address + RESULT);
            return Plan.read(scratch.buffer, RESULT);
        } finally {
            batch.exit();
        }
    }

    /**
     * Returns the column as a tensor: one dimension, and one more for each level of fixed-size lists. If nothing is
     * copied, the tensor is read-only and keeps the batch's memory alive by itself.
     *
     * @param copy whether the values may be copied
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#COPY_REQUIRED}, {@link Status#IMPOSSIBLE}, {@link Status#DEVICE} or
     *     {@link Status#NOT_READY} if data would have to be read and the host cannot read it, {@link Status#CLOSED}
     */
    public Tensor toTensor(Copy copy) {
        long open = batch.enter("Column.toTensor");
        try {
            return new Tensor().of(Native.columnToTensor(open, record().address, copy.value));
        } finally {
            batch.exit();
        }
    }

    /** {@return field and number of rows, or that its batch is closed} */
    @Override
    public String toString() {
        try {
            return "Column (" + field() + ", " + length + " rows)";
        } catch (DevExchangeException closed) {
            return "Column (closed)";
        }
    }
}
