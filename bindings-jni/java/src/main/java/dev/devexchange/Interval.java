package dev.devexchange;

/**
 * A span of the calendar. Its parts are not converted into each other: a month has no fixed number of days, and, where
 * clocks are changed, a day has no fixed number of hours.
 *
 * @param months calendar months
 * @param days days
 * @param nanoseconds thousand-millionths of a second
 */
public record Interval(int months, int days, long nanoseconds) {}
