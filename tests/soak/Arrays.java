import dev.devexchange.Batch;
import dev.devexchange.Cell;
import dev.devexchange.Column;
import dev.devexchange.DevExchange;
import dev.devexchange.Interval;
import dev.devexchange.ReleaseQueue;
import dev.devexchange.Schema;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.util.List;
import java.util.StringJoiner;

/** Java in arrays.py: reads arrays through their columns, and hands them back. */
public final class Arrays {
    private static final BigInteger SECOND = BigInteger.valueOf(1_000_000_000);
    private static final int COPIED = 1;

    private Arrays() {}

    private static String hex(byte[] bytes) {
        StringBuilder hex = new StringBuilder();
        for (byte each : bytes) {
            hex.append(String.format("%02x", each));
        }
        return hex.toString();
    }

    private static BigInteger nanos(long seconds, int nanos) {
        return BigInteger.valueOf(seconds).multiply(SECOND).add(BigInteger.valueOf(nanos));
    }

    /** A point in time: in milliseconds or seconds if it is stored so; otherwise in the stored unit. */
    private static String stamp(Instant time, String format) {
        boolean coarse = format.startsWith("tss") || format.startsWith("tsm");
        int unit = coarse ? 1_000_000 : format.startsWith("tsu") ? 1000 : 1;
        return (coarse ? "T" : "") + nanos(time.getEpochSecond(), time.getNano()).divide(BigInteger.valueOf(unit));
    }

    private static String plain(Object value, String format) {
        if (value instanceof Float || value instanceof Double) {
            return String.format("f%016x", Double.doubleToRawLongBits(((Number) value).doubleValue()));
        } else if (value instanceof BigDecimal decimal) {
            return "d" + decimal.unscaledValue() + "e" + -decimal.scale();
        } else if (value instanceof String text) {
            return "s" + hex(text.getBytes(StandardCharsets.UTF_8));
        } else if (value instanceof byte[] bytes) {
            return "x" + hex(bytes);
        } else if (value instanceof LocalDate date) {
            return "D" + date.toEpochDay();
        } else if (value instanceof LocalTime time) {
            return "t" + time.toNanoOfDay();
        } else if (value instanceof Instant time) {
            return stamp(time, format);
        } else if (value instanceof LocalDateTime time) {
            return stamp(time.toInstant(ZoneOffset.UTC), format);
        } else if (value instanceof Duration duration) {
            return "P" + nanos(duration.getSeconds(), duration.getNano());
        } else if (value instanceof Interval interval) {
            return "i" + interval.months() + "," + interval.days() + "," + interval.nanoseconds();
        }
        return value.toString();
    }

    private static String said(Column column, long row) {
        Cell cell = column.resolve(row);
        Object value = column.getObject(row);
        require((cell == null) == (value == null), "what is null is not null");
        if (cell == null) {
            return "null";
        }
        String format = cell.column().field().format().toString();
        if (format.equals("+s")) {
            StringJoiner members = new StringJoiner(",", "{", "}");
            for (int k = 0; k < cell.column().field().children().size(); k++) {
                members.add(said(cell.column().child(k), cell.row()));
            }
            return members.toString();
        } else if (format.equals("+m")) {
            Column entries = column.list(row);
            StringJoiner pairs = new StringJoiner(",", "(", ")");
            for (long i = 0; i < entries.length(); i++) {
                pairs.add(said(entries.child(0), i) + "=" + said(entries.child(1), i));
            }
            return pairs.toString();
        } else if (format.startsWith("+")) {
            Column items = column.list(row);
            require(((List<?>) value).size() == items.length(), "a list has another length");
            return "[" + rows(items, ",") + "]";
        }
        return plain(value, format);
    }

    private static String rows(Column column, String between) {
        StringJoiner rows = new StringJoiner(between);
        for (long row = 0; row < column.length(); row++) {
            rows.add(said(column, row));
        }
        return rows.toString();
    }

    private static void require(boolean fact, String what) {
        if (!fact) {
            throw new IllegalStateException(what);
        }
    }

    /** The rows of an array, which is handed back unchanged or copied. */
    public static String exchange(long array, long schema, long out, long outSchema, int how) {
        try (Batch batch = Batch.importArrow(array, schema);
                Batch copy = batch.copy();
                Schema described = batch.schema()) {
            String rows = rows(batch.root(), "\n");
            require(rows.equals(rows(copy.root(), "\n")), "a copy says other things");
            (how == COPIED ? copy : batch).exportShare(out);
            described.exportArrow(outSchema);
            return rows;
        }
    }

    /** The number of outstanding things. */
    public static long settled() throws InterruptedException {
        ReleaseQueue.flush(Duration.ofSeconds(10));
        return DevExchange.outstanding();
    }
}
