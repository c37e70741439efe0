package dev.devexchange;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZonedDateTime;
import java.util.List;
import java.util.Map;

/**
 * A column: a borrowed view of one array of a {@link Batch}. It owns nothing and is valid while the batch is open;
 * every method says {@link Status#CLOSED} after that.
 *
 * <p>Rows are counted from 0; the slices of the arrays above are already in them. Values are read where they are, in
 * host memory, without a copy of the column. To read many numbers fast, take the {@link #valuesBuffer()}; to read any
 * value whatever its type, {@link #getObject}.
 *
 * <p>The values of a dictionary, a union or runs are those that a row stands for: the methods {@code get…} and
 * {@link #list} go on to where the value is stored ({@link #resolve}). If it is null, there or on the way, a method
 * that returns an object returns {@code null}, and one that returns a number refuses
 * ({@link Status#INVALID_ARGUMENT}). {@link #isNull} and {@link #nullCount()} are about this array only.
 */
public final class Column {
    private static final int LENGTH = Records.COLUMN.at("length");
    private static final int OFFSET = Records.COLUMN.at("offset");
    private static final int NODE = Records.COLUMN.at("node");

    /** Where in the scratch memory the result of a call is, while a record is at its beginning. */
    private static final int RESULT = 1024;

    private static final long NANOS_OF_MILLI = 1_000_000;

    private final Batch batch;
    private final BatchTable table;
    private final int node;
    private final long offset;
    private final long length;

    /** The column that this is a part of; null if it is no part. */
    private final Column whole;

    // What follows is there once somebody asked for it: a column is often made for one address only.

    private volatile Field field;
    private volatile Buffers buffers;

    /** Children and, behind them, the dictionary. */
    private volatile Column[] below;

    /** The number of nulls and one more. */
    private volatile long counted;

    /** The column that a node is. */
    Column(Batch batch, BatchTable table, int node) {
        this(batch, table, node, table.offset(node), table.length(node), null);
    }

    private Column(Batch batch, BatchTable table, int node, long offset, long length, Column whole) {
        this.batch = batch;
        this.table = table;
        this.node = node;
        this.offset = offset;
        this.length = length;
        this.whole = whole;
    }

    /** Some of the rows of a column. */
    private Column(Column whole, long start, long length) {
        this(whole.batch, whole.table, whole.node, whole.offset + start, length, whole);
    }

    /** As {@link #field}; the caller is inside the batch. */
    private Field is() {
        Field known = field;
        if (known == null) {
            known = batch.field(node);
            field = known;
        }
        return known;
    }

    /** The caller is inside the batch. */
    private Buffers buffers() {
        Buffers known = buffers;
        if (known == null) {
            known = table.buffers(batch, node);
            buffers = known;
        }
        return known;
    }

    /** The number of nulls; −1 as long as nobody has counted. */
    private long knownNullCount() {
        if (counted > 0) {
            return counted - 1;
        }
        if (whole == null) {
            return table.nullCount(node);
        }
        return whole.knownNullCount() == 0 ? 0 : -1;
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
     * The number of rows that are null, as {@link #isNull} says it; counted at the first call if it is not known.
     *
     * @return 0 or more
     * @throws DevExchangeException {@link Status#DEVICE} if it has to be counted and is not in host memory: then
     *     {@link #nullCount(DeviceStream)} does it; {@link Status#NOT_READY}, {@link Status#CLOSED}
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
     * As {@link #nullCount()}, also in device memory: if the number is not known, the validity is copied on a stream,
     * after the data is there, and the host waits for it.
     *
     * @param stream of the batch's device
     * @return 0 or more
     * @throws DevExchangeException {@link Status#DRIVER}, {@link Status#INVALID_STREAM} if the stream is being
     *     captured, {@link Status#OUT_OF_MEMORY}, {@link Status#CLOSED}
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
     * Whether a row is null in this array: in a dictionary-encoded column, whether it has no index; in a union and in
     * runs never, as they have no nulls of their own. Whether the value behind it is there says {@link #resolve}.
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
     * Where the value of a row is stored, behind dictionaries, unions and runs.
     *
     * @param row counted from 0
     * @return a column that holds values itself, and the row of it; {@code null} if the value is null, there or on the
     *     way
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE} also for an index outside the dictionary,
     *     {@link Status#INVALID_BUFFERS} for a type id, an offset or run ends that cannot be, {@link Status#DEVICE},
     *     {@link Status#CLOSED}
     */
    public Cell resolve(long row) {
        batch.enter("Column.resolve");
        try {
            requireRow(row);
            return follow(row);
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
            if (isIndirect()) {
                Cell cell = value(row);
                return cell.column().getBoolean(cell.row());
            }
            requireValue(row);
            require(layout().kind() == Layout.Kind.BOOL, "a boolean");
            return bit(row);
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
            if (isIndirect()) {
                Cell cell = value(row);
                return cell.column().getInt(cell.row());
            }
            requireValue(row);
            require(layout().element() != null && layout().element().fitsInt(), "an int");
            return (int) integer(row);
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
     *     unsigned value that a long cannot hold,
     *     {@link Status#INVALID_ARGUMENT} for a null, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public long getLong(long row) {
        batch.enter("Column.getLong");
        try {
            if (isIndirect()) {
                Cell cell = value(row);
                return cell.column().getLong(cell.row());
            }
            requireValue(row);
            require(layout().element() != null && layout().element().fitsLong(), "a long");
            return integer(row);
        } finally {
            batch.exit();
        }
    }

    /**
     * The value of a row of floating point numbers of up to 32 bits (halves too), or of integers of up to 16 bits.
     *
     * @param row counted from 0
     * @return the value, exactly
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#INVALID_ARGUMENT} for a null, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public float getFloat(long row) {
        batch.enter("Column.getFloat");
        try {
            if (isIndirect()) {
                Cell cell = value(row);
                return cell.column().getFloat(cell.row());
            }
            requireValue(row);
            require(layout().element() != null && layout().element().fitsFloat(), "a float");
            return (float) floating(row);
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
            if (isIndirect()) {
                Cell cell = value(row);
                return cell.column().getDouble(cell.row());
            }
            requireValue(row);
            require(layout().element() != null && layout().element().fitsDouble(), "a double");
            return floating(row);
        } finally {
            batch.exit();
        }
    }

    /**
     * The text of a row.
     *
     * @param row counted from 0
     * @return the text, or {@code null} if it is null
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#INVALID_TEXT} if it is not UTF-8, {@link Status#INVALID_BUFFERS} for offsets or views that
     *     cannot be, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public String getString(long row) {
        return read("Column.getString", row, Column::text);
    }

    /**
     * The bytes of a row of binary or text, or of a value of a fixed number of bytes (numbers, decimals, intervals,
     * dates and times), as they lie in memory.
     *
     * @param row counted from 0
     * @return a copy of the bytes, or {@code null} if it is null
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#INVALID_BUFFERS} for offsets or views that cannot be, {@link Status#DEVICE},
     *     {@link Status#CLOSED}
     */
    public byte[] getBytes(long row) {
        return read("Column.getBytes", row, Column::bytes);
    }

    /**
     * The value of a row of decimals, of whatever width.
     *
     * @param row counted from 0
     * @return the number with the scale of the type, or {@code null} if it is null
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public BigDecimal getDecimal(long row) {
        return read("Column.getDecimal", row, Column::decimal);
    }

    /**
     * The date of a row of dates.
     *
     * @param row counted from 0
     * @return the date, or {@code null} if it is null; of a date64 the day that the time is in
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public LocalDate getDate(long row) {
        return read("Column.getDate", row, (column, at) ->
                Times.date(column.integer(Layout.Meaning.DATE, at, "a date"), column.layout().parameter()));
    }

    /**
     * The time of a row of times of day.
     *
     * @param row counted from 0
     * @return the time, or {@code null} if it is null
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE} also for
     *     what {@code java.time} cannot say, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public LocalTime getTime(long row) {
        return read("Column.getTime", row, (column, at) ->
                Times.time(column.integer(Layout.Meaning.TIME, at, "a time of day"), column.layout().parameter()));
    }

    /**
     * The point in time of a row of timestamps with a time zone, which say it in UTC.
     *
     * @param row counted from 0
     * @return the point in time, or {@code null} if it is null
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE} also for
     *     what {@code java.time} cannot say, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public Instant getInstant(long row) {
        return read("Column.getInstant", row, (column, at) ->
                Times.instant(column.timestamp(at, true), column.layout().parameter()));
    }

    /**
     * As {@link #getInstant}, as clocks in the column's time zone show it.
     *
     * @param row counted from 0
     * @return date, time and zone, or {@code null} if it is null
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE} also for
     *     what {@code java.time} cannot say, {@link Status#UNSUPPORTED} for a zone that it does not know,
     *     {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public ZonedDateTime getZonedDateTime(long row) {
        return read("Column.getZonedDateTime", row, (column, at) ->
                Times.zoned(column.timestamp(at, true), column.layout().parameter(), column.is().timeZone()));
    }

    /**
     * Date and time of a row of timestamps without a time zone: what some clock showed.
     *
     * @param row counted from 0
     * @return date and time, or {@code null} if it is null
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE} also for
     *     what {@code java.time} cannot say, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public LocalDateTime getDateTime(long row) {
        return read("Column.getDateTime", row, (column, at) ->
                Times.dateTime(column.timestamp(at, false), column.layout().parameter()));
    }

    /**
     * The span of a row of durations.
     *
     * @param row counted from 0
     * @return the span, or {@code null} if it is null
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public Duration getDuration(long row) {
        return read("Column.getDuration", row, (column, at) ->
                Times.duration(column.integer(Layout.Meaning.DURATION, at, "a duration"), column.layout().parameter()));
    }

    /**
     * The span of a row of intervals, of whatever kind.
     *
     * @param row counted from 0
     * @return the span; the parts that the kind does not have are 0; or {@code null} if it is null
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public Interval getInterval(long row) {
        return read("Column.getInterval", row, Column::interval);
    }

    /**
     * The values of a row of lists, of whatever kind; of a map its entries, which are structs of a key and a value.
     *
     * @param row counted from 0
     * @return a view, valid while the batch is open; {@code null} if it is null
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#INVALID_BUFFERS} for offsets that cannot be, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public Column list(long row) {
        return read("Column.list", row, Column::items);
    }

    /**
     * The keys and values of a row of maps, as {@link #getObject} gives them. Of a key that repeats the last value
     * counts; {@link #list} has them all.
     *
     * @param row counted from 0
     * @return keys and values in their order, unmodifiable; or {@code null} if it is null
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, and as {@link #getObject}
     */
    public Map<Object, Object> getMap(long row) {
        return read("Column.getMap", row, (column, at) -> {
            column.require(column.layout().kind() == Layout.Kind.MAP, "a map");
            return Values.map(column.items(at));
        });
    }

    /**
     * The value of a row of any type:
     *
     * <ul>
     * <li>bool: {@code Boolean}
     * <li>int8, int16, int32, int64: {@code Byte}, {@code Short}, {@code Integer}, {@code Long}
     * <li>uint8 and uint16: {@code Integer}; uint32: {@code Long}; uint64: {@code Long} if that can hold it, else
     *     {@code BigInteger}
     * <li>float16 and float32: {@code Float}; float64: {@code Double}
     * <li>decimals: {@code BigDecimal}
     * <li>text: {@code String}; binary of any kind: {@code byte[]}
     * <li>dates: {@code LocalDate}; times: {@code LocalTime}; timestamps: {@code Instant} with a time zone,
     *     {@code LocalDateTime} without; durations: {@code Duration}; intervals: {@link Interval}
     * <li>lists: {@code List<Object>}; maps: {@code Map<Object, Object>}; structs: {@code Map<String, Object>} from
     *     names to values, where of a name that repeats the last value counts. They are unmodifiable
     * <li>dictionaries, unions and runs: the value that the row stands for; extension types: the value that is stored
     * </ul>
     *
     * @param row counted from 0
     * @return the value, or {@code null} if it is null
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE} also for what {@code java.time} cannot say,
     *     {@link Status#INVALID_TEXT}, {@link Status#INVALID_BUFFERS}, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public Object getObject(long row) {
        return read("Column.getObject", row, Values::of);
    }

    /**
     * The value of a row of any type as text for a person: numbers plainly (times as the numbers that they are stored
     * as), text in quotes as in JSON, bytes as {@code 0x…}, lists as {@code […]}, structs as {@code {"name": …}}, maps
     * as {@code {key: …}}. The same in all languages of this library.
     *
     * @param row counted from 0
     * @return the text; {@code null} as a text if the value is null
     * @throws DevExchangeException as {@link #getObject}
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
     * The dictionary of a dictionary-encoded column.
     *
     * @return a view of all its values, valid while the batch is open
     * @throws DevExchangeException {@link Status#MISMATCH} if there is none, {@link Status#CLOSED}
     */
    public Column dictionary() {
        batch.enter("Column.dictionary");
        try {
            if (is().dictionary() == null) {
                throw new DevExchangeException(Status.MISMATCH, "the column has no dictionary");
            }
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
            if (is().dictionary() == null) {
                throw new DevExchangeException(Status.MISMATCH, "the column has no dictionary");
            }
            requireValue(row);
            return index(row);
        } finally {
            batch.exit();
        }
    }

    /**
     * The type id of a row of a union: one of the field's {@link Field#typeIds}.
     *
     * @param row counted from 0
     * @return the number that stands for a child
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#DEVICE}, {@link Status#CLOSED}
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
     * Which child of a union holds the value of a row, and in which row of it.
     *
     * @param row counted from 0
     * @return the child, as {@link #child} gives it, and the row
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#INVALID_BUFFERS} for a type id that is none of the union's, or an offset beyond the child,
     *     {@link Status#DEVICE}, {@link Status#CLOSED}
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
     * Which run of a run-end encoded column a row is in: the row of the value in the second child.
     *
     * @param row counted from 0
     * @return the number of the run, counted from 0
     * @throws DevExchangeException {@link Status#MISMATCH} for another type, {@link Status#OUT_OF_RANGE},
     *     {@link Status#INVALID_BUFFERS} if the runs end before the row, {@link Status#DEVICE}, {@link Status#CLOSED}
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
     * The child at an index: of a struct, a sparse union and a fixed-size list the rows that this column sees, of other
     * types all values (see {@link #list}, {@link #unionValue}, {@link #run}).
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
                        Status.OUT_OF_RANGE, "index is " + index + ": the column has " + children + " children");
            }
            return below(index);
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
        return table.bufferCount(node);
    }

    /**
     * The address of a buffer, in memory of the batch's device. Row 0 is at index {@link #offset()} of it.
     *
     * @param index in the order of the Arrow columnar format: 0 is the validity, except of unions
     * @return the address; 0 if there is no such buffer (a validity without nulls)
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE}, {@link Status#CLOSED}
     */
    public long bufferAddress(int index) {
        batch.check("Column.bufferAddress");
        int count = table.bufferCount(node);
        if (index < 0 || index >= count) {
            throw new DevExchangeException(
                    Status.OUT_OF_RANGE, "index is " + index + ": the column has " + count + " buffers");
        }
        if (table.hasBuffer(node, index)) {
            return table.buffer(node, index);
        }
        batch.enter("Column.bufferAddress");
        try {
            return table.buffer(node, index);
        } finally {
            batch.exit();
        }
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
            require(layout().isFixed(), "a row of values");
            batch.requireHost();
            long bytes = length * layout().width();
            if (bytes > Integer.MAX_VALUE) {
                throw new DevExchangeException(
                        Status.UNSUPPORTED,
                        "the values take " + bytes + " bytes: a ByteBuffer has at most " + Integer.MAX_VALUE);
            }
            return HostMemory.view(table.buffer(node, 1) + offset * layout().width(), bytes)
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

    /** {@return field and number of rows, or that its batch is closed} */
    @Override
    public String toString() {
        try {
            return "Column (" + field() + ", " + length + " rows)";
        } catch (DevExchangeException closed) {
            return "Column (closed)";
        }
    }

    // ---- for {@link Values}: rows that are valid; the caller is inside the batch ----

    Layout layout() {
        return is().layout();
    }

    List<Field> fields() {
        return is().children();
    }

    long rows() {
        return length;
    }

    boolean hasZone() {
        return !is().timeZone().isEmpty();
    }

    boolean bit(long row) {
        return buffers().bit(offset + row);
    }

    long integer(long row) {
        return buffers().integer(offset + row);
    }

    double floating(long row) {
        return buffers().floating(offset + row);
    }

    long longWord(long row) {
        return buffers().longWord(offset + row, 0);
    }

    byte[] bytes(long row) {
        if (layout().isFixed()) {
            return buffers().fixed(offset + row);
        }
        return switch (layout().kind()) {
            case TEXT, BYTES, TEXT_VIEW, BYTES_VIEW -> buffers().bytes(offset + row, row);
            default -> throw mismatch("bytes");
        };
    }

    String text(long row) {
        require(layout().kind().isText(), "text");
        return decode(buffers().bytes(offset + row, row), row);
    }

    BigDecimal decimal(long row) {
        require(layout().meaning() == Layout.Meaning.DECIMAL, "a decimal");
        return Values.decimal(buffers().fixed(offset + row), layout().parameter());
    }

    Interval interval(long row) {
        long at = offset + row;
        return switch (layout().meaning()) {
            case MONTHS -> new Interval(buffers().word(at, 0), 0, 0);
            case DAY_TIME -> new Interval(0, buffers().word(at, 0), buffers().word(at, 4) * NANOS_OF_MILLI);
            case MONTH_DAY_NANO ->
                new Interval(buffers().word(at, 0), buffers().word(at, 4), buffers().longWord(at, 8));
            default -> throw mismatch("an interval");
        };
    }

    Column items(long row) {
        require(layout().kind().isList(), "a list");
        Column items = below(0);
        if (layout().kind() == Layout.Kind.FIXED_LIST) {
            return new Column(items, row * layout().width(), layout().width());
        }
        long start = buffers().offset(offset + row);
        long size;
        if (layout().kind() == Layout.Kind.LIST_VIEW) {
            size = buffers().size(offset + row);
            if (start < 0 || size < 0) {
                throw Buffers.broken("row " + row + " has offset " + start + " and size " + size);
            }
        } else {
            long end = buffers().offset(offset + row + 1);
            if (start < 0 || end < start) {
                throw Buffers.broken("the offsets of row " + row + " are " + start + " and " + end);
            }
            size = end - start;
        }
        if (start > items.length || size > items.length - start) {
            throw Buffers.broken("row " + row + " is " + size + " values from " + start + " on of a child with length "
                    + items.length);
        }
        return new Column(items, start, size);
    }

    /** The value of any row, which may be null. */
    Object object(long row) {
        if (isIndirect()) {
            Cell cell = follow(row);
            return cell == null ? null : Values.of(cell.column(), cell.row());
        }
        return isValid(row) ? Values.of(this, row) : null;
    }

    /** The child at an index, or the dictionary behind the last one. */
    Column below(int index) {
        Column[] all = below;
        if (all == null) {
            // And one for the dictionary, which there may be.
            all = new Column[table.childCount(node) + 1];
            below = all;
        }
        Column column = all[index];
        if (column == null) {
            column = whole == null
                    ? new Column(batch, table, table.below(node) + index)
                    : partOf(whole.below(index));
            all[index] = column;
        }
        return column;
    }

    // ---- the caller is inside the batch ----

    /** What this part sees of something below the whole. */
    private Column partOf(Column column) {
        long start = offset - whole.offset;
        return switch (layout().kind()) {
            case STRUCT, SPARSE_UNION -> new Column(column, start, length);
            case FIXED_LIST -> new Column(column, start * layout().width(), length * layout().width());
            default -> column;
        };
    }

    private Column dictionaryColumn() {
        return below(table.childCount(node));
    }

    /** Whether the values are stored elsewhere. */
    private boolean isIndirect() {
        return is().dictionary() != null || layout().kind() == Layout.Kind.RUNS || layout().kind().isUnion();
    }

    /** Reads the value of a valid row of a column that holds values itself. */
    private interface Reader<T> {
        T read(Column column, long row);
    }

    private <T> T read(String method, long row, Reader<T> reader) {
        batch.enter(method);
        try {
            requireRow(row);
            if (isIndirect()) {
                Cell cell = follow(row);
                return cell == null ? null : reader.read(cell.column(), cell.row());
            }
            return isValid(row) ? reader.read(this, row) : null;
        } finally {
            batch.exit();
        }
    }

    /** See {@link #resolve}. Each step goes down in a tree whose depth was checked. */
    private Cell follow(long row) {
        Column column = this;
        long at = row;
        while (column.isValid(at)) {
            if (column.is().dictionary() != null) {
                at = column.index(at);
                column = column.dictionaryColumn();
            } else if (column.layout().kind() == Layout.Kind.RUNS) {
                at = column.runOf(at);
                column = column.below(1);
            } else if (column.layout().kind().isUnion()) {
                Cell chosen = column.chosen(at);
                at = chosen.row();
                column = chosen.column();
            } else {
                return new Cell(column, at);
            }
        }
        return null;
    }

    /** As {@link #follow}; refuses a null. */
    private Cell value(long row) {
        requireRow(row);
        Cell cell = follow(row);
        if (cell == null) {
            throw isNullAt(row);
        }
        return cell;
    }

    private Cell chosen(long row) {
        int id = buffers().typeId(offset + row);
        int number = is().typeIds().indexOf(id);
        if (number < 0) {
            throw Buffers.broken("row " + row + " has type id " + id + ": \"" + is().format() + "\" has none");
        }
        Column child = below(number);
        if (layout().kind() == Layout.Kind.SPARSE_UNION) {
            return new Cell(child, row);
        }
        int at = buffers().denseOffset(offset + row);
        if (at < 0 || at >= child.length) {
            throw Buffers.broken("row " + row + " is offset " + at + " of child " + number + ", whose length is "
                    + child.length);
        }
        return new Cell(child, at);
    }

    /** Found by halving, as run ends grow. */
    private long runOf(long row) {
        Column ends = below(0);
        long low = 0;
        long high = ends.length;
        while (low < high) {
            long middle = (low + high) >>> 1;
            if (ends.integer(middle) <= offset + row) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if (low == ends.length) {
            throw Buffers.broken(
                    "row " + row + " with offset " + offset + " is behind the end of all " + low + " runs");
        }
        return low;
    }

    private long index(long row) {
        long size = dictionaryColumn().length;
        long index = layout().element() == Element.UINT64 ? longWord(row) : integer(row);
        if (index < 0 || index >= size) {
            String shown = layout().element() == Element.UINT64 ? Long.toUnsignedString(index) : Long.toString(index);
            throw new DevExchangeException(
                    Status.OUT_OF_RANGE, "row " + row + " is index " + shown + " of a dictionary of " + size);
        }
        return index;
    }

    private boolean isValid(long row) {
        return buffers().isValid(offset + row);
    }

    private void requireRow(long row) {
        if (row < 0 || row >= length) {
            throw new DevExchangeException(
                    Status.OUT_OF_RANGE, "row is " + row + ": the column has " + length);
        }
    }

    private void requireValue(long row) {
        requireRow(row);
        if (!isValid(row)) {
            throw isNullAt(row);
        }
    }

    private DevExchangeException isNullAt(long row) {
        return new DevExchangeException(
                Status.INVALID_ARGUMENT, "row " + row + " of column \"" + is().name() + "\" is null");
    }

    private long integer(Layout.Meaning meaning, long row, String wanted) {
        require(layout().meaning() == meaning, wanted);
        return integer(row);
    }

    private long timestamp(long row, boolean zone) {
        boolean fits = layout().meaning() == Layout.Meaning.TIMESTAMP && hasZone() == zone;
        require(fits, zone ? "a timestamp with a time zone" : "a timestamp without a time zone");
        return integer(row);
    }

    private void require(boolean fits, String wanted) {
        if (!fits) {
            throw mismatch(wanted);
        }
    }

    private DevExchangeException mismatch(String wanted) {
        return new DevExchangeException(
                Status.MISMATCH,
                "the values of column \"" + is().name() + "\" have format " + is().format() + ": not " + wanted);
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
