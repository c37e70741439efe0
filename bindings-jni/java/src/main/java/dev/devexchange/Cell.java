package dev.devexchange;

/**
 * One row of a column: where a value is stored that was asked for by another column.
 *
 * @param column a view, valid while the batch is open
 * @param row counted from 0
 */
public record Cell(Column column, long row) {}
