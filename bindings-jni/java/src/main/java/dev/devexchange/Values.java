package dev.devexchange;

import java.math.BigInteger;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads values as Java objects. The caller must be inside the batch; rows must be valid and hold a value themselves.
 */
final class Values {
    private Values() {}

    /** Implements {@link Column#getObject}. */
    static Object of(Column column, long row) {
        Layout layout = column.layout();
        return switch (layout.kind()) {
            case BOOL -> column.bit(row);
            case NUMBER, FIXED -> fixed(layout, column, row);
            case TEXT, TEXT_VIEW -> column.text(row);
            case BYTES, BYTES_VIEW -> column.bytes(row);
            case STRUCT -> struct(column, row);
            case LIST, LIST_VIEW, FIXED_LIST -> list(column.items(row));
            case MAP -> map(column.items(row));
            case NULL, SPARSE_UNION, DENSE_UNION, RUNS -> throw new AssertionError(layout);
        };
    }

    private static Object fixed(Layout layout, Column column, long row) {
        return switch (layout.meaning()) {
            case PLAIN -> layout.element() == null ? column.bytes(row) : number(layout.element(), column, row);
            case DATE -> Times.date(column, row, column.integer(row));
            case TIME -> Times.time(column, row, column.integer(row));
            case TIMESTAMP -> column.hasZone() ? Times.instant(column, row, column.integer(row))
                    : Times.dateTime(column, row, column.integer(row));
            case DURATION -> Times.duration(column, column.integer(row));
            case MONTHS, DAY_TIME, MONTH_DAY_NANO -> column.interval(row);
            case DECIMAL -> column.decimal(row);
        };
    }

    private static Number number(Element element, Column column, long row) {
        return switch (element) {
            case INT8 -> (byte) column.integer(row);
            case INT16 -> (short) column.integer(row);
            case INT32, UINT8, UINT16 -> (int) column.integer(row);
            case INT64, UINT32 -> column.integer(row);
            case UINT64 -> unsigned(column.integer(row));
            case FLOAT16, FLOAT32 -> (float) column.floating(row);
            case FLOAT64 -> column.floating(row);
            case BFLOAT16, BOOL -> throw new AssertionError(element);
        };
    }

    private static Number unsigned(long bits) {
        if (bits < 0) {
            return BigInteger.valueOf(bits & Long.MAX_VALUE).setBit(Long.SIZE - 1);
        }
        return bits;
    }

    /** The integer of a two's complement number in native byte order. */
    static BigInteger integer(byte[] bytes) {
        if (ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN) {
            for (int i = 0; i < bytes.length / 2; i++) {
                byte low = bytes[i];
                bytes[i] = bytes[bytes.length - 1 - i];
                bytes[bytes.length - 1 - i] = low;
            }
        }
        return new BigInteger(bytes);
    }

    static List<Object> list(Column items) {
        List<Object> list = new ArrayList<>(size(items));
        for (long row = 0; row < items.rows(); row++) {
            list.add(items.object(row));
        }
        return Collections.unmodifiableList(list);
    }

    /** The map of entries, which are structs of a key and a value. */
    static Map<Object, Object> map(Column entries) {
        Column keys = entries.below(0);
        Column values = entries.below(1);
        Map<Object, Object> map = new LinkedHashMap<>(size(entries));
        for (long row = 0; row < entries.rows(); row++) {
            map.put(keys.object(row), values.object(row));
        }
        return Collections.unmodifiableMap(map);
    }

    private static Map<String, Object> struct(Column column, long row) {
        List<Field> fields = column.fields();
        Map<String, Object> values = new LinkedHashMap<>();
        for (int i = 0; i < fields.size(); i++) {
            values.put(fields.get(i).name(), column.below(i).object(row));
        }
        return Collections.unmodifiableMap(values);
    }

    private static int size(Column items) {
        if (items.rows() > Integer.MAX_VALUE) {
            throw new DevExchangeException(
                    Status.UNSUPPORTED,
                    items.named("a list of " + items.rows() + " values: more than a List can have"));
        }
        return (int) items.rows();
    }
}
