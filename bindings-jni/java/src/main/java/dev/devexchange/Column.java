package dev.devexchange;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;

/**
 * A column: a borrowed view of one array of a {@link Batch}. It owns nothing and is valid while the batch is open;
 * every method says {@link Status#CLOSED} after that.
 *
 * <p>Rows are counted from 0; the slices of the arrays above are already in them. Values are read where they are,
 * without a copy of the column. A method that reads one value refuses the value of a row that is null
 * ({@link Status#INVALID_ARGUMENT}), or returns {@code null} where it returns an object. The values of a
 * dictionary-encoded column are those that its indices stand for. To read many numbers fast, take the
 * {@link #valuesBuffer()}.
 */
public final class Column {
    private static final int LENGTH = Records.COLUMN.at("length");
    private static final int NULL_COUNT = Records.COLUMN.at("null_count");
    private static final int OFFSET = Records.COLUMN.at("offset");
    private static final int N_BUFFERS = Records.COLUMN.at("n_buffers");
    private static final int NODE = Records.COLUMN.at("node");

    /** The addresses of the buffers follow the record. */
    private static final int BUFFERS = Records.COLUMN.size();

    /** Where in the scratch memory the result of a call is, while a record is at its beginning. */
    private static final int RESULT = 1024;

    private static final long MILLIS_OF_DAY = 86_400_000;

    private final Batch batch;
    private final Field field;
    private final Layout layout;
    private final long node;
    private final long offset;
    private final long length;
    private final long[] buffers;

    /** −1 as long as nobody has counted. */
    private volatile long nullCount;

    private volatile HostMemory validity;

    /** Values, bits or offsets. */
    private volatile HostMemory values;

    private volatile HostMemory data;
    private volatile Column dictionary;

    /** The column whose record a native call has written. */
    Column(Batch batch, Field field, ByteBuffer record) {
        this.batch = batch;
        this.field = field;
        this.layout = field.layout();
        this.node = record.getLong(NODE);
        this.offset = record.getLong(OFFSET);
        this.length = record.getLong(LENGTH);
        this.nullCount = record.getLong(NULL_COUNT);
        this.buffers = new long[(int) record.getLong(N_BUFFERS)];
        for (int i = 0; i < buffers.length; i++) {
            buffers[i] = record.getLong(BUFFERS + i * Long.BYTES);
        }
    }

    /** The scratch memory with the record of this column in it, as far as the native calls read it. */
    private Scratch record() {
        Scratch scratch = Scratch.get();
        scratch.buffer.putLong(NODE, node);
        scratch.buffer.putLong(OFFSET, offset);
        scratch.buffer.putLong(LENGTH, length);
        return scratch;
    }

    /**
     * What the values are.
     *
     * @return the field, which stays valid after the batch is closed
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public Field field() {
        batch.check("Column.field");
        return field;
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
     * Where row 0 is in the buffers.
     *
     * @return an index in elements
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public long offset() {
        batch.check("Column.offset");
        return offset;
    }

    /**
     * The number of rows that are null; counted at the first call if it is not known.
     *
     * @return 0 or more
     * @throws DevExchangeException {@link Status#DEVICE} if it has to be counted and is not in host memory,
     *     {@link Status#CLOSED}
     */
    public long nullCount() {
        long open = batch.enter("Column.nullCount");
        try {
            if (nullCount < 0) {
                nullCount = Native.columnNullCount(open, record().address);
            }
            return nullCount;
        } finally {
            batch.exit();
        }
    }

    /**
     * Whether a row is null: in a dictionary-encoded column, whether it has no index.
     *
     * @param row counted from 0
     * @return whether there is no value
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE}, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public boolean isNull(long row) {
        batch.enter("Column.isNull");
        try {
            requireRow(row);
            return !isValid(row);
        } finally {
            batch.exit();
        }
    }

    /**
     * The value of a row of bools.
     *
     * @param row counted from 0
     * @return the value
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#INVALID_ARGUMENT} for a null, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public boolean getBoolean(long row) {
        batch.enter("Column.getBoolean");
        try {
            requireValue(row);
            if (field.dictionary() != null) {
                return dictionaryColumn().getBoolean(index(row));
            }
            require(layout.kind() == Layout.Kind.BOOL, "a boolean");
            return values().bit(offset + row);
        } finally {
            batch.exit();
        }
    }

    /**
     * The value of a row of integers of up to 32 bits with a sign or 16 without; also of dates and times that are
     * stored as such integers.
     *
     * @param row counted from 0
     * @return the value
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#INVALID_ARGUMENT} for a null, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public int getInt(long row) {
        batch.enter("Column.getInt");
        try {
            requireValue(row);
            if (field.dictionary() != null) {
                return dictionaryColumn().getInt(index(row));
            }
            require(layout.element() != null && layout.element().fitsInt(), "an int");
            return (int) layout.element().readLong(values(), place(row));
        } finally {
            batch.exit();
        }
    }

    /**
     * The value of a row of integers; also of dates, times, timestamps and durations, as the integers that they are
     * stored as, in the unit of the type.
     *
     * @param row counted from 0
     * @return the value
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE} also for an
     *     unsigned value that a long cannot hold, {@link Status#INVALID_ARGUMENT} for a null, {@link Status#DEVICE},
     *     {@link Status#CLOSED}
     */
    public long getLong(long row) {
        batch.enter("Column.getLong");
        try {
            requireValue(row);
            if (field.dictionary() != null) {
                return dictionaryColumn().getLong(index(row));
            }
            require(layout.element() != null && layout.element().fitsLong(), "a long");
            return layout.element().readLong(values(), place(row));
        } finally {
            batch.exit();
        }
    }

    /**
     * The value of a row of floating point numbers, or of integers of up to 32 bits.
     *
     * @param row counted from 0
     * @return the value, exactly
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#INVALID_ARGUMENT} for a null, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public double getDouble(long row) {
        batch.enter("Column.getDouble");
        try {
            requireValue(row);
            if (field.dictionary() != null) {
                return dictionaryColumn().getDouble(index(row));
            }
            require(layout.element() != null && layout.element().fitsDouble(), "a double");
            return layout.element().readDouble(values(), place(row));
        } finally {
            batch.exit();
        }
    }

    /**
     * The text of a row.
     *
     * @param row counted from 0
     * @return the text, or {@code null} if the row is null
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#INVALID_TEXT} if it is not UTF-8, {@link Status#INVALID_BUFFERS} for offsets that cannot be,
     *     {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public String getString(long row) {
        batch.enter("Column.getString");
        try {
            requireRow(row);
            if (!isValid(row)) {
                return null;
            }
            if (field.dictionary() != null) {
                return dictionaryColumn().getString(index(row));
            }
            require(layout.kind() == Layout.Kind.TEXT, "text");
            return decode(bytes(row), row);
        } finally {
            batch.exit();
        }
    }

    /**
     * The bytes of a row of binary or text, or of a value of a fixed number of bytes that Java has no type for
     * (decimals, intervals), as they lie in memory.
     *
     * @param row counted from 0
     * @return a copy of the bytes, or {@code null} if the row is null
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#INVALID_BUFFERS} for offsets that cannot be, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public byte[] getBytes(long row) {
        batch.enter("Column.getBytes");
        try {
            requireRow(row);
            if (!isValid(row)) {
                return null;
            }
            if (field.dictionary() != null) {
                return dictionaryColumn().getBytes(index(row));
            }
            return switch (layout.kind()) {
                case TEXT, BYTES -> bytes(row);
                case FIXED -> values().bytes(place(row), layout.width());
                default -> throw mismatch("bytes");
            };
        } finally {
            batch.exit();
        }
    }

    /**
     * The date of a row of dates.
     *
     * @param row counted from 0
     * @return the date, or {@code null} if the row is null; of a date64 the day that the time is in
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public LocalDate getDate(long row) {
        batch.enter("Column.getDate");
        try {
            requireRow(row);
            if (!isValid(row)) {
                return null;
            }
            if (field.dictionary() != null) {
                return dictionaryColumn().getDate(index(row));
            }
            return switch (field.format()) {
                case Format.DATE32 -> LocalDate.ofEpochDay(values().i32(place(row)));
                case Format.DATE64 -> LocalDate.ofEpochDay(Math.floorDiv(values().i64(place(row)), MILLIS_OF_DAY));
                default -> throw mismatch("a date");
            };
        } finally {
            batch.exit();
        }
    }

    /**
     * The dictionary of a dictionary-encoded column.
     *
     * @return a view of all its values, valid while the batch is open
     * @throws DevExchangeException {@link Status#MISMATCH} if there is none, {@link Status#CLOSED}
     */
    public Column dictionary() {
        batch.enter("Column.dictionary");
        try {
            return dictionaryColumn();
        } finally {
            batch.exit();
        }
    }

    /**
     * The index into the dictionary that a row holds.
     *
     * @param row counted from 0
     * @return the index, which is one of the dictionary
     * @throws DevExchangeException {@link Status#MISMATCH} if there is no dictionary, {@link Status#OUT_OF_RANGE} also
     *     for an index outside the dictionary, {@link Status#INVALID_ARGUMENT} for a null, {@link Status#DEVICE},
     *     {@link Status#CLOSED}
     */
    public long dictionaryIndex(long row) {
        batch.enter("Column.dictionaryIndex");
        try {
            requireValue(row);
            return index(row);
        } finally {
            batch.exit();
        }
    }

    /**
     * The values of a row of lists, of whatever kind.
     *
     * @param row counted from 0; what a null holds is not defined, usually nothing
     * @return a view, valid while the batch is open
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#INVALID_BUFFERS} for offsets that cannot be, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public Column list(long row) {
        long open = batch.enter("Column.list");
        try {
            Scratch scratch = record();
            Native.columnList(open, scratch.address, row);
            return new Column(batch, field.children().get(0), scratch.buffer);
        } finally {
            batch.exit();
        }
    }

    /**
     * The child at an index: of a struct and of a fixed-size list the rows that this column sees, of a list all values
     * (see {@link #list}).
     *
     * @param index counted from 0
     * @return a view, valid while the batch is open
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE}, {@link Status#CLOSED}
     */
    public Column child(int index) {
        long open = batch.enter("Column.child");
        try {
            Scratch scratch = record();
            Native.columnChild(open, scratch.address, index);
            return new Column(batch, field.children().get(index), scratch.buffer);
        } finally {
            batch.exit();
        }
    }

    /**
     * How many buffers the column has.
     *
     * @return as the format says
     * @throws DevExchangeException {@link Status#CLOSED}
     */
    public int bufferCount() {
        batch.check("Column.bufferCount");
        return buffers.length;
    }

    /**
     * The address of a buffer, in memory of the batch's device. Row 0 is at index {@link #offset()} of it.
     *
     * @param index in the order of the Arrow columnar format: 0 is the validity
     * @return the address; 0 if there is no such buffer (a validity without nulls)
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE}, {@link Status#CLOSED}
     */
    public long bufferAddress(int index) {
        batch.check("Column.bufferAddress");
        if (index < 0 || index >= buffers.length) {
            throw new DevExchangeException(
                    Status.OUT_OF_RANGE, "index is " + index + ": the column has " + buffers.length + " buffers");
        }
        return buffers[index];
    }

    /**
     * The values of all rows as they lie in memory, for types of a fixed number of bytes: numbers, dates and times as
     * the integers that they are stored as, the indices of a dictionary. What nulls hold is not defined.
     *
     * @return a read-only buffer in native byte order, from row 0 to the last one. It owns nothing: it is not to be
     *     used after the batch is closed, and nothing checks that
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#UNSUPPORTED} for more than a
     *     buffer can have (2 GiB), {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public ByteBuffer valuesBuffer() {
        batch.enter("Column.valuesBuffer");
        try {
            require(layout.kind() == Layout.Kind.NUMBER || layout.kind() == Layout.Kind.FIXED, "a row of values");
            batch.requireHost();
            long bytes = length * layout.width();
            if (bytes > Integer.MAX_VALUE) {
                throw new DevExchangeException(
                        Status.UNSUPPORTED,
                        "the values take " + bytes + " bytes: a ByteBuffer has at most " + Integer.MAX_VALUE);
            }
            return HostMemory.view(buffers[1] + offset * layout.width(), bytes)
                    .asReadOnlyBuffer()
                    .order(ByteOrder.nativeOrder());
        } finally {
            batch.exit();
        }
    }

    /**
     * How the column can be had as a tensor. Nothing is taken; nulls are counted if their number is not known.
     *
     * @return the plan
     * @throws DevExchangeException {@link Status#DEVICE}, {@link Status#CLOSED}
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
     * The column as a tensor: one dimension, and one more for each level of fixed-size lists. A view is read-only and
     * keeps the batch's memory alive by itself.
     *
     * @param copy whether the values may be copied
     * @return the tensor, which the caller closes
     * @throws DevExchangeException {@link Status#COPY_REQUIRED}, {@link Status#IMPOSSIBLE}, {@link Status#DEVICE},
     *     {@link Status#CLOSED}
     */
    public Tensor toTensor(Copy copy) {
        long open = batch.enter("Column.toTensor");
        try {
            return new Tensor(Native.columnToTensor(open, record().address, copy.value));
        } finally {
            batch.exit();
        }
    }

    /** {@return field and number of rows} */
    @Override
    public String toString() {
        return "Column (" + field + ", " + length + " rows)";
    }

    // ---- reading; the caller is inside the batch ----

    private void requireRow(long row) {
        if (row < 0 || row >= length) {
            throw new DevExchangeException(
                    Status.OUT_OF_RANGE, "row is " + row + ": the column has " + length);
        }
    }

    private void requireValue(long row) {
        requireRow(row);
        if (!isValid(row)) {
            throw new DevExchangeException(
                    Status.INVALID_ARGUMENT, "row " + row + " of column \"" + field.name() + "\" is null");
        }
    }

    private void require(boolean fits, String wanted) {
        if (!fits) {
            throw mismatch(wanted);
        }
    }

    private DevExchangeException mismatch(String wanted) {
        return new DevExchangeException(
                Status.MISMATCH,
                "the values of column \"" + field.name() + "\" have format " + field.format() + ": not " + wanted);
    }

    private boolean isValid(long row) {
        if (layout.kind() == Layout.Kind.NULL) {
            return false;
        }
        if (buffers[0] == 0) {
            return true;
        }
        if (validity == null) {
            batch.requireHost();
            validity = HostMemory.of(buffers[0], (offset + length + 7) / 8);
        }
        return validity.bit(offset + row);
    }

    private long place(long row) {
        return (offset + row) * layout.width();
    }

    /** The second buffer, up to the end of the last row. */
    private HostMemory values() {
        if (values == null) {
            batch.requireHost();
            long end = offset + length;
            long bytes = switch (layout.kind()) {
                case BOOL -> (end + 7) / 8;
                case TEXT, BYTES -> (end + 1) * layout.width();
                default -> end * layout.width();
            };
            values = HostMemory.of(buffers[1], bytes);
        }
        return values;
    }

    private Column dictionaryColumn() {
        if (dictionary == null) {
            long open = batch.enter("Column.dictionary");
            try {
                Scratch scratch = record();
                Native.columnDictionary(open, scratch.address);
                dictionary = new Column(batch, field.dictionary(), scratch.buffer);
            } finally {
                batch.exit();
            }
        }
        return dictionary;
    }

    private long index(long row) {
        long size = dictionaryColumn().length;
        long index = layout.element().readLong(values(), place(row));
        if (index < 0 || index >= size) {
            throw new DevExchangeException(
                    Status.OUT_OF_RANGE, "row " + row + " is index " + index + " of a dictionary of " + size);
        }
        return index;
    }

    private byte[] bytes(long row) {
        long end = offsetOf(length);
        long first = offsetOf(row);
        long last = offsetOf(row + 1);
        if (first < 0 || first > last || last > end) {
            throw new DevExchangeException(
                    Status.INVALID_BUFFERS,
                    "the offsets of row " + row + " are " + first + " and " + last + ", those of the column end at "
                            + end);
        }
        if (first == last) {
            return new byte[0];
        }
        if (buffers[2] == 0) {
            throw new DevExchangeException(
                    Status.INVALID_BUFFERS, "the data buffer is NULL, but row " + row + " has " + (last - first)
                            + " bytes");
        }
        if (last - first > Integer.MAX_VALUE) {
            throw new DevExchangeException(
                    Status.UNSUPPORTED, "row " + row + " has " + (last - first)
                            + " bytes: more than an array can have");
        }
        if (data == null) {
            data = HostMemory.of(buffers[2], end);
        }
        return data.bytes(first, (int) (last - first));
    }

    /** Where the bytes of a row start; for the row behind the last one, where they end. */
    private long offsetOf(long row) {
        long at = (offset + row) * layout.width();
        return layout.width() == 4 ? values().i32(at) : values().i64(at);
    }

    private static String decode(byte[] bytes, long row) {
        String text = new String(bytes, StandardCharsets.UTF_8);
        // Only a text with the replacement character in it may have been repaired.
        if (text.indexOf('\ufffd') >= 0) {
            try {
                StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes));
            } catch (CharacterCodingException e) {
                throw new DevExchangeException(
                        Status.INVALID_TEXT, "row " + row + " is not valid UTF-8: \"" + text + "\"");
            }
        }
        return text;
    }
}
