package dev.devexchange;

/**
 * One row of a column: the place where a value is stored that a row of another column refers to.
 *
 * @param column a view, valid while the batch is open
 * @param row counted from 0
 */
public record Cell(Column column, long row) {}
