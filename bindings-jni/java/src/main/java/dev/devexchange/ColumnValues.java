package dev.devexchange;

import java.math.BigDecimal;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZonedDateTime;
import java.util.Map;

/** The methods that read the values of a column, each as its Java type. */
abstract class ColumnValues extends ColumnNesting {
    ColumnValues(Batch batch, BatchTable table, int node, long offset, long length, Column whole) {
        super(batch, table, node, offset, length, whole);
    }

    /**
     * Whether a row is null in this array. In a dictionary-encoded column this says whether the index is null; in a
     * union and in runs it is never true, because they have no nulls of their own. {@link #resolve} says whether the
     * value that a row refers to is null.
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
     * Finds where the value of a row is stored, through dictionaries, unions and runs.
     *
     * @param row counted from 0
     * @return a column that holds values itself, and the row there; {@code null} if the value or a row on the way to it
     *     is null
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE} also for an index outside the dictionary, {@link
     *     Status#INVALID_BUFFERS} for an invalid type id, offset or run end, {@link Status#DEVICE}, {@link
     *     Status#CLOSED}
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
     * Returns the value of a row of bools.
     *
     * @param row counted from 0
     * @return the value
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE}, {@link
     *     Status#INVALID_ARGUMENT} for a null, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public boolean getBoolean(long row) {
        batch.enter("Column.getBoolean");
        try {
            if (isIndirect()) {
                Cell cell = value(row);
                return cell.column().booleanAt(cell.row());
            }
            requireValue(row);
            return booleanAt(row);
        } finally {
            batch.exit();
        }
    }

    /**
     * Returns the value of a row of signed integers of up to 32 bits or unsigned ones of up to 16 bits, or of dates and
     * times that are stored as such integers.
     *
     * @param row counted from 0
     * @return the value
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE}, {@link
     *     Status#INVALID_ARGUMENT} for a null, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public int getInt(long row) {
        batch.enter("Column.getInt");
        try {
            if (isIndirect()) {
                Cell cell = value(row);
                return cell.column().intAt(cell.row());
            }
            requireValue(row);
            return intAt(row);
        } finally {
            batch.exit();
        }
    }

    /**
     * Returns the value of a row of integers, or of dates, times, timestamps and durations, as the integers that store
     * them, in the unit of the type.
     *
     * @param row counted from 0
     * @return the value
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE} also for an
     *     unsigned value that a long cannot hold, {@link Status#INVALID_ARGUMENT} for a null, {@link Status#DEVICE},
     *     {@link Status#CLOSED}
     */
    public long getLong(long row) {
        batch.enter("Column.getLong");
        try {
            if (isIndirect()) {
                Cell cell = value(row);
                return cell.column().longAt(cell.row());
            }
            requireValue(row);
            return longAt(row);
        } finally {
            batch.exit();
        }
    }

    /**
     * Returns the value of a row of floating point numbers of up to 32 bits (including half precision), or of integers
     * of up to 16 bits.
     *
     * @param row counted from 0
     * @return the value, exactly
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE}, {@link
     *     Status#INVALID_ARGUMENT} for a null, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public float getFloat(long row) {
        batch.enter("Column.getFloat");
        try {
            if (isIndirect()) {
                Cell cell = value(row);
                return cell.column().floatAt(cell.row());
            }
            requireValue(row);
            return floatAt(row);
        } finally {
            batch.exit();
        }
    }

    /**
     * Returns the value of a row of floating point numbers, or of integers of up to 32 bits.
     *
     * @param row counted from 0
     * @return the value, exactly
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE}, {@link
     *     Status#INVALID_ARGUMENT} for a null, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public double getDouble(long row) {
        batch.enter("Column.getDouble");
        try {
            if (isIndirect()) {
                Cell cell = value(row);
                return cell.column().doubleAt(cell.row());
            }
            requireValue(row);
            return doubleAt(row);
        } finally {
            batch.exit();
        }
    }

    // The same for a valid row that holds its value itself. The caller must be inside the batch.

    final boolean booleanAt(long row) {
        require(layout().kind() == Layout.Kind.BOOL, "a boolean");
        return bit(row);
    }

    final int intAt(long row) {
        require(layout().element() != null && layout().element().fitsInt(), "an int");
        return (int) integer(row);
    }

    final long longAt(long row) {
        Element element = layout().element();
        require(element != null && element.fitsLong(), "a long");
        long read = integer(row);
        if (element.isTooLarge(read)) {
            throw new DevExchangeException(Status.OUT_OF_RANGE, named(Element.tooLarge(read)));
        }
        return read;
    }

    final float floatAt(long row) {
        require(layout().element() != null && layout().element().fitsFloat(), "a float");
        return (float) floating(row);
    }

    final double doubleAt(long row) {
        require(layout().element() != null && layout().element().fitsDouble(), "a double");
        return floating(row);
    }

    /**
     * Returns the text of a row.
     *
     * @param row counted from 0
     * @return the text, or {@code null} if the value is null
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE}, {@link
     *     Status#INVALID_TEXT} if it is not UTF-8, {@link Status#INVALID_BUFFERS} for invalid offsets or views, {@link
     *     Status#DEVICE}, {@link Status#CLOSED}
     */
    public String getString(long row) {
        return read("Column.getString", row, Column::text);
    }

    /**
     * Returns the bytes of a row of binary or text, or of a type with a fixed number of bytes (numbers, decimals,
     * intervals, dates and times), as they lie in memory.
     *
     * @param row counted from 0
     * @return a copy of the bytes, or {@code null} if the value is null
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE}, {@link
     *     Status#INVALID_BUFFERS} for invalid offsets or views, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public byte[] getBytes(long row) {
        return read("Column.getBytes", row, Column::bytes);
    }

    /**
     * Returns the value of a row of decimals of any width.
     *
     * @param row counted from 0
     * @return the number with the scale of the type, or {@code null} if the value is null
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE}, {@link
     *     Status#DEVICE}, {@link Status#CLOSED}
     */
    public BigDecimal getDecimal(long row) {
        return read("Column.getDecimal", row, Column::decimal);
    }

    /**
     * Returns the date of a row of dates.
     *
     * @param row counted from 0
     * @return the date (for a date64, the day that contains its time), or {@code null} if the value is null
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE}, {@link
     *     Status#DEVICE}, {@link Status#CLOSED}
     */
    public LocalDate getDate(long row) {
        return read("Column.getDate", row, (column, at) ->
                Times.date(column, at, column.integer(Layout.Meaning.DATE, at, "a date")));
    }

    /**
     * Returns the time of a row of times of day.
     *
     * @param row counted from 0
     * @return the time, or {@code null} if the value is null
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE} also for a
     *     value that {@code java.time} cannot represent, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public LocalTime getTime(long row) {
        return read("Column.getTime", row, (column, at) ->
                Times.time(column, at, column.integer(Layout.Meaning.TIME, at, "a time of day")));
    }

    /**
     * Returns the point in time of a row of timestamps with a time zone, which are stored in UTC.
     *
     * @param row counted from 0
     * @return the point in time, or {@code null} if the value is null
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE} also for a
     *     value that {@code java.time} cannot represent, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public Instant getInstant(long row) {
        return read("Column.getInstant", row, (column, at) ->
                Times.instant(column, at, column.timestamp(at, true)));
    }

    /**
     * Same as {@link #getInstant}, but as clocks in the column's time zone show it.
     *
     * @param row counted from 0
     * @return date, time and zone, or {@code null} if the value is null
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE} also for a
     *     value that {@code java.time} cannot represent, {@link Status#UNSUPPORTED} for a zone that {@code java.time}
     *     does not know, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public ZonedDateTime getZonedDateTime(long row) {
        return read("Column.getZonedDateTime", row, (column, at) ->
                Times.zoned(column, at, column.timestamp(at, true)));
    }

    /**
     * Returns date and time of a row of timestamps without a time zone, as a local clock showed them.
     *
     * @param row counted from 0
     * @return date and time, or {@code null} if the value is null
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE} also for a
     *     value that {@code java.time} cannot represent, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public LocalDateTime getDateTime(long row) {
        return read("Column.getDateTime", row, (column, at) ->
                Times.dateTime(column, at, column.timestamp(at, false)));
    }

    /**
     * Returns the span of a row of durations.
     *
     * @param row counted from 0
     * @return the span, or {@code null} if the value is null
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE}, {@link
     *     Status#DEVICE}, {@link Status#CLOSED}
     */
    public Duration getDuration(long row) {
        return read("Column.getDuration", row, (column, at) ->
                Times.duration(column, column.integer(Layout.Meaning.DURATION, at, "a duration")));
    }

    /**
     * Returns the span of a row of intervals of any kind.
     *
     * @param row counted from 0
     * @return the span, in which parts that the kind does not have are 0, or {@code null} if the value is null
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE}, {@link
     *     Status#DEVICE}, {@link Status#CLOSED}
     */
    public Interval getInterval(long row) {
        return read("Column.getInterval", row, Column::interval);
    }

    /**
     * Returns the values of a row of lists of any kind, or the entries of a map, which are structs of a key and a
     * value.
     *
     * @param row counted from 0
     * @return a view, valid while the batch is open, or {@code null} if the value is null
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, {@link Status#OUT_OF_RANGE}, {@link
     *     Status#INVALID_BUFFERS} for invalid offsets, {@link Status#DEVICE}, {@link Status#CLOSED}
     */
    public Column list(long row) {
        return read("Column.list", row, Column::items);
    }

    /**
     * Returns the keys and values of a row of maps, as {@link #getObject} gives them. If a key repeats, its last value
     * wins; {@link #list} gives all of them. Binary keys are arrays, which Java compares by identity: all of them are
     * kept, even repeated ones, and none can be found by its bytes.
     *
     * @param row counted from 0
     * @return keys and values in their order, unmodifiable, or {@code null} if the value is null
     * @throws DevExchangeException {@link Status#MISMATCH} for any other type, and those of {@link #getObject}
     */
    public Map<Object, Object> getMap(long row) {
        return read("Column.getMap", row, (column, at) -> {
            column.require(column.layout().kind() == Layout.Kind.MAP, "a map");
            return Values.map(column.items(at));
        });
    }

    /**
     * Returns the value of a row of any type:
     *
     * <ul>
     * <li>bool: {@code Boolean}
     * <li>int8, int16, int32, int64: {@code Byte}, {@code Short}, {@code Integer}, {@code Long}
     * <li>uint8 and uint16: {@code Integer}; uint32: {@code Long}; uint64: {@code Long} if it fits, else {@code
     *     BigInteger}
     * <li>float16 and float32: {@code Float}; float64: {@code Double}
     * <li>decimals: {@code BigDecimal}
     * <li>text: {@code String}; binary of any kind: {@code byte[]}
     * <li>dates: {@code LocalDate}; times: {@code LocalTime}; timestamps: {@code Instant} with a time zone,
     *     {@code LocalDateTime} without; durations: {@code Duration}; intervals: {@link Interval}
     * <li>lists: {@code List<Object>}; maps: {@code Map<Object, Object>}; structs: {@code Map<String, Object>} from
     *     names to values, where the last value of a repeated name wins. All of them are unmodifiable
     * <li>dictionaries, unions and runs: the value that the row refers to; extension types: the stored value
     * </ul>
     *
     * @param row counted from 0
     * @return the value, or {@code null} for a null
     * @throws DevExchangeException {@link Status#OUT_OF_RANGE} also for a value that {@code java.time} cannot
     *     represent, {@link Status#INVALID_TEXT}, {@link Status#INVALID_BUFFERS}, {@link Status#DEVICE}, {@link
     *     Status#CLOSED}
     */
    public Object getObject(long row) {
        return read("Column.getObject", row, Values::of);
    }
}
