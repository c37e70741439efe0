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

/** Numbers of some unit of time as the classes of {@code java.time}. */
final class Times {
    private static final long NANOS_OF_SECOND = 1_000_000_000;
    private static final long NANOS_OF_DAY = 86_400 * NANOS_OF_SECOND;

    private Times() {}

    /** The day that a number of units since 1970-01-01 is in. */
    static LocalDate date(long value, long nanosOfUnit) {
        return inRange(value, "date", () -> LocalDate.ofEpochDay(Math.floorDiv(value, NANOS_OF_DAY / nanosOfUnit)));
    }

    static LocalTime time(long value, long nanosOfUnit) {
        if (value < 0 || value >= NANOS_OF_DAY / nanosOfUnit) {
            throw outOfRange(value, "time of day");
        }
        return LocalTime.ofNanoOfDay(value * nanosOfUnit);
    }

    /** The point in time so many units after 1970-01-01 00:00 UTC. */
    static Instant instant(long value, long nanosOfUnit) {
        long ofSecond = NANOS_OF_SECOND / nanosOfUnit;
        return inRange(value, "timestamp", () -> Instant.ofEpochSecond(
                Math.floorDiv(value, ofSecond), Math.floorMod(value, ofSecond) * nanosOfUnit));
    }

    /** As {@link #instant}, on a clock whose zone nobody named. */
    static LocalDateTime dateTime(long value, long nanosOfUnit) {
        Instant instant = instant(value, nanosOfUnit);
        return inRange(value, "timestamp", () -> LocalDateTime.ofInstant(instant, ZoneOffset.UTC));
    }

    /** As {@link #instant}, as clocks in a zone show it. */
    static ZonedDateTime zoned(long value, long nanosOfUnit, String zone) {
        Instant instant = instant(value, nanosOfUnit);
        ZoneId known;
        try {
            known = ZoneId.of(zone);
        } catch (DateTimeException e) {
            throw new DevExchangeException(
                    Status.UNSUPPORTED, "the time zone is \"" + zone + "\", which java.time does not know");
        }
        return inRange(value, "timestamp", () -> instant.atZone(known));
    }

    static Duration duration(long value, long nanosOfUnit) {
        long ofSecond = NANOS_OF_SECOND / nanosOfUnit;
        return Duration.ofSeconds(Math.floorDiv(value, ofSecond), Math.floorMod(value, ofSecond) * nanosOfUnit);
    }

    private static <T> T inRange(long value, String what, Supplier<T> make) {
        try {
            return make.get();
        } catch (DateTimeException e) {
            throw outOfRange(value, what);
        }
    }

    private static DevExchangeException outOfRange(long value, String what) {
        return new DevExchangeException(
                Status.OUT_OF_RANGE, "the value is " + value + ": no " + what + " of java.time");
    }
}
