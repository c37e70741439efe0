package dev.devexchange;

import java.util.Arrays;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** Arrow types as format strings (C data interface, "Data type description"). */
public final class Format {
    /** No values and no buffers. */
    public static final String NULL = "n";
    /** One bit each. */
    public static final String BOOL = "b";
    /** Signed 8-bit integer. */
    public static final String INT8 = "c";
    /** Unsigned 8-bit integer. */
    public static final String UINT8 = "C";
    /** Signed 16-bit integer. */
    public static final String INT16 = "s";
    /** Unsigned 16-bit integer. */
    public static final String UINT16 = "S";
    /** Signed 32-bit integer. */
    public static final String INT32 = "i";
    /** Unsigned 32-bit integer. */
    public static final String UINT32 = "I";
    /** Signed 64-bit integer. */
    public static final String INT64 = "l";
    /** Unsigned 64-bit integer. */
    public static final String UINT64 = "L";
    /** IEEE half. */
    public static final String FLOAT16 = "e";
    /** IEEE single. */
    public static final String FLOAT32 = "f";
    /** IEEE double. */
    public static final String FLOAT64 = "g";
    /** Bytes, with 32-bit offsets. */
    public static final String BINARY = "z";
    /** Bytes, with 64-bit offsets. */
    public static final String LARGE_BINARY = "Z";
    /** UTF-8 text, with 32-bit offsets. */
    public static final String UTF8 = "u";
    /** UTF-8 text, with 64-bit offsets. */
    public static final String LARGE_UTF8 = "U";
    /** Bytes; short values in place, long ones in any of several data buffers. */
    public static final String BINARY_VIEW = "vz";
    /** UTF-8 text; short values in place, long ones in any of several data buffers. */
    public static final String UTF8_VIEW = "vu";
    /** Days since 1970-01-01, 32-bit. */
    public static final String DATE32 = "tdD";
    /** Milliseconds since 1970-01-01, 64-bit. */
    public static final String DATE64 = "tdm";
    /** Calendar months, 32-bit. */
    public static final String INTERVAL_MONTHS = "tiM";
    /** Days and milliseconds, 32-bit each. */
    public static final String INTERVAL_DAY_TIME = "tiD";
    /** Months and days, 32-bit each, and nanoseconds, 64-bit. */
    public static final String INTERVAL_MONTH_DAY_NANO = "tin";
    /** A struct with a column for each child. */
    public static final String STRUCT = "+s";
    /** Lists of the child's values, with 32-bit offsets. */
    public static final String LIST = "+l";
    /** Lists of the child's values, with 64-bit offsets. */
    public static final String LARGE_LIST = "+L";
    /** Lists of the child's values in any order, with 32-bit offsets and sizes. */
    public static final String LIST_VIEW = "+vl";
    /** Lists of the child's values in any order, with 64-bit offsets and sizes. */
    public static final String LARGE_LIST_VIEW = "+vL";
    /** Lists of keys and values, with 32-bit offsets; see {@link Field#map}. */
    public static final String MAP = "+m";
    /** Runs of equal values; see {@link Field#runEndEncoded}. */
    public static final String RUN_END_ENCODED = "+r";

    private Format() {}

    /**
     * Returns the format of times of day: 32-bit for seconds and milliseconds, 64-bit for the finer units.
     *
     * @param unit seconds, milli-, micro- or nanoseconds
     * @return the format string
     * @throws IllegalArgumentException for another unit
     */
    public static String time(TimeUnit unit) {
        return "tt" + letter(unit);
    }

    /**
     * Returns the format of 64-bit timestamps: points in time since 1970-01-01 00:00 UTC, or times of a local clock if
     * there is no zone.
     *
     * @param unit seconds, milli-, micro- or nanoseconds
     * @param zone name or offset of the time zone; empty for none
     * @return the format string
     * @throws IllegalArgumentException for another unit
     */
    public static String timestamp(TimeUnit unit, String zone) {
        return "ts" + letter(unit) + ":" + Objects.requireNonNull(zone, "zone");
    }

    /**
     * Returns the format of 64-bit spans of time.
     *
     * @param unit seconds, milli-, micro- or nanoseconds
     * @return the format string
     * @throws IllegalArgumentException for another unit
     */
    public static String duration(TimeUnit unit) {
        return "tD" + letter(unit);
    }

    /**
     * Returns the format of values of a fixed number of bytes.
     *
     * @param bytes the number of bytes of a value
     * @return the format string
     */
    public static String fixedSizeBinary(int bytes) {
        return "w:" + bytes;
    }

    /**
     * Returns the format of lists of a fixed number of the child's values.
     *
     * @param values the number of values of a list
     * @return the format string
     */
    public static String fixedSizeList(int values) {
        return "+w:" + values;
    }

    /**
     * Returns the format of decimal numbers.
     *
     * @param precision decimal digits
     * @param scale digits after the point
     * @param bits the bits of a value: 32, 64, 128 or 256
     * @return the format string
     */
    public static String decimal(int precision, int scale, int bits) {
        return "d:" + precision + "," + scale + (bits == 128 ? "" : "," + bits);
    }

    /**
     * Returns the format of sparse unions: each value is in one of the children, which all have as many rows as the
     * union.
     *
     * @param typeIds the number that stands for each child, from 0 to 127
     * @return the format string
     */
    public static String sparseUnion(int... typeIds) {
        return "+us:" + joined(typeIds);
    }

    /**
     * Returns the format of dense unions: each value is in one of the children, at a 32-bit offset.
     *
     * @param typeIds the number that stands for each child, from 0 to 127
     * @return the format string
     */
    public static String denseUnion(int... typeIds) {
        return "+ud:" + joined(typeIds);
    }

    private static String joined(int[] typeIds) {
        return Arrays.stream(typeIds).mapToObj(Integer::toString).collect(Collectors.joining(","));
    }

    private static String letter(TimeUnit unit) {
        return switch (unit) {
            case SECONDS -> "s";
            case MILLISECONDS -> "m";
            case MICROSECONDS -> "u";
            case NANOSECONDS -> "n";
            default -> throw new IllegalArgumentException("Arrow has no unit " + unit);
        };
    }
}
