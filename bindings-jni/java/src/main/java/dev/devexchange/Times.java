package dev.devexchange;

import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.util.function.Supplier;

/**
 * Converts numbers in the time unit of a column to the classes of {@code java.time}. The caller must be inside the
 * batch; the row that the number was read from is for errors.
 */
final class Times {
    private static final long NANOS_OF_SECOND = 1_000_000_000;
    private static final long NANOS_OF_DAY = 86_400 * NANOS_OF_SECOND;
    private static final String TIMESTAMP = "timestamp of java.time";

    private Times() {}

    /** The day that contains the time at a number of units since 1970-01-01. */
    static LocalDate date(ColumnRows column, long row, long value) {
        long ofDay = NANOS_OF_DAY / nanosOfUnit(column);
        return inRange(
                column, row, value, "date of java.time", () -> LocalDate.ofEpochDay(Math.floorDiv(value, ofDay)));
    }

    static LocalTime time(ColumnRows column, long row, long value) {
        long nanosOfUnit = nanosOfUnit(column);
        if (value < 0 || value >= NANOS_OF_DAY / nanosOfUnit) {
            throw outOfRange(column, row, value, "time of day");
        }
        return LocalTime.ofNanoOfDay(value * nanosOfUnit);
    }

    /** The point in time at a number of units after 1970-01-01 00:00 UTC. */
    static Instant instant(ColumnRows column, long row, long value) {
        long nanosOfUnit = nanosOfUnit(column);
        long ofSecond = NANOS_OF_SECOND / nanosOfUnit;
        return inRange(column, row, value, TIMESTAMP, () -> Instant.ofEpochSecond(
                Math.floorDiv(value, ofSecond), Math.floorMod(value, ofSecond) * nanosOfUnit));
    }

    /** Same as {@link #instant}, but as the time of a local clock of unknown zone. */
    static LocalDateTime dateTime(ColumnRows column, long row, long value) {
        long nanosOfUnit = nanosOfUnit(column);
        long ofSecond = NANOS_OF_SECOND / nanosOfUnit;
        return inRange(column, row, value, TIMESTAMP, () -> LocalDateTime.ofEpochSecond(
                Math.floorDiv(value, ofSecond), (int) (Math.floorMod(value, ofSecond) * nanosOfUnit), ZoneOffset.UTC));
    }

    /** Same as {@link #instant}, but as clocks in the column's zone show it. */
    static ZonedDateTime zoned(ColumnRows column, long row, long value) {
        Instant instant = instant(column, row, value);
        ZoneId known;
        try {
            known = column.is().zone();
        } catch (DateTimeException e) {
            throw new DevExchangeException(
                    Status.UNSUPPORTED,
                    column.named("the time zone is \"" + column.is().timeZone() + "\", which java.time does not know"));
        }
        return inRange(column, row, value, TIMESTAMP, () -> instant.atZone(known));
    }

    /** The span of a number of units; every number is valid. */
    static Duration duration(ColumnRows column, long value) {
        long nanosOfUnit = nanosOfUnit(column);
        long ofSecond = NANOS_OF_SECOND / nanosOfUnit;
        return Duration.ofSeconds(Math.floorDiv(value, ofSecond), Math.floorMod(value, ofSecond) * nanosOfUnit);
    }

    private static long nanosOfUnit(ColumnRows column) {
        return column.layout().parameter();
    }

    private static <T> T inRange(ColumnRows column, long row, long value, String what, Supplier<T> make) {
        try {
            return make.get();
        } catch (DateTimeException e) {
            throw outOfRange(column, row, value, what);
        }
    }

    private static DevExchangeException outOfRange(ColumnRows column, long row, long value, String what) {
        return new DevExchangeException(
                Status.OUT_OF_RANGE,
                "row " + row + " of column " + Names.shown(column.is().name()) + " is " + value + ", of format \""
                        + column.is().format() + "\": no " + what);
    }
}
