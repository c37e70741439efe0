/*
 * Reads CSV files into tables whose columns have Arrow's layout. It does not use devexchange.
 */
#ifndef WEATHER_TABLE_H
#define WEATHER_TABLE_H

#include <stddef.h>
#include <stdint.h>

enum { MAX_COLUMNS = 8 };

/* A growing block of memory. */
typedef struct bytes {
    unsigned char *data;
    size_t length;
    size_t capacity;
} bytes;

typedef enum kind { TEXT, NUMBER, DATE, CATEGORY } kind;

typedef struct column_kind {
    const char *name;
    kind kind;
    int nullable; /* whether "NA" and an empty field mean a null */
} column_kind;

/* Text is in `offsets` and `values`. Of a category, `values` has the int8 indices, and `texts_offsets` and `texts` have the
 * dictionary. */
typedef struct column {
    bytes validity;
    bytes offsets;
    bytes values;
    bytes texts_offsets;
    bytes texts;
    int64_t nulls;
    int32_t categories;
} column;

typedef struct table {
    const char *name;
    const column_kind *kinds;
    int n_columns;
    int64_t rows;
    column columns[MAX_COLUMNS];
} table;

/* Reads a file of a directory into a table in which only the name and the kinds are set, and all else is zero. Returns 0, or
 * 1 with a text in `table_error`. The table must be freed in both cases. */
int table_read(table *t, const char *directory, const char *file);

/* Frees the columns. */
void table_free(table *t);

/* The month, 1 to 12, of a day since 1970-01-01. */
int table_month_of_day(int32_t day);

/* Sets the last error of this thread, and returns 1. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
int table_fail(const char *format, ...);

/* The last error of this thread. */
const char *table_error(void);

#endif
