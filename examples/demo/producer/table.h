/*
 * Tables out of CSV files, in columns as Arrow has them. Nothing here knows devexchange.
 */
#ifndef WEATHER_TABLE_H
#define WEATHER_TABLE_H

#include <stddef.h>
#include <stdint.h>

enum { MAX_COLUMNS = 8 };

/* Memory that grows. */
typedef struct bytes {
    unsigned char *data;
    size_t length;
    size_t capacity;
} bytes;

typedef enum kind { TEXT, NUMBER, DATE, CATEGORY } kind;

typedef struct column_kind {
    const char *name;
    kind kind;
    int nullable; /* whether "NA" and an empty field mean that there is no value */
} column_kind;

/* Text: `offsets` and `values`; a category: int8 in `values`, its texts in `texts_offsets` and `texts`. */
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

/* Reads a file of a directory into a table of zeros that has its name and kinds. Returns 0, or 1 with `table_error`; what
 * was read by then is in the table, which has to be freed all the same. */
int table_read(table *t, const char *directory, const char *file);

/* Frees the columns. */
void table_free(table *t);

/* The month, 1 to 12, of a day since 1970-01-01. */
int table_month_of_day(int32_t day);

/* Notes an error of this thread, and returns 1. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
int table_fail(const char *format, ...);

/* The last error of this thread. */
const char *table_error(void);

#endif
