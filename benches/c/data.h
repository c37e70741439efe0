/* What is exchanged, the same in all programs: a small matrix, and tables of int32 columns over the same values.
 * Nobody reads the values: what is measured is the way there and back.
 */
#ifndef DATA_H_
#define DATA_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ROWS = 1024, MATRIX_NDIM = 2, COLUMN_NAME_BYTES = 16, N_MIXED_FORMATS = 8 };

/* How many columns there are. */
enum { N_ARRAY_WIDTHS = 5, N_STREAM_WIDTHS = 2, N_RUST_WIDTHS = 2, SCHEMA_WIDTH = 1000, READ_WIDTH = 100 };
extern const int array_widths[N_ARRAY_WIDTHS];
extern const int stream_widths[N_STREAM_WIDTHS];
extern const int rust_widths[N_RUST_WIDTHS];

extern int32_t column_values[ROWS];
extern float matrix_values[2 * 3];
extern int64_t matrix_shape[MATRIX_NDIM];

/* Formats of the columns by turns, where a schema is exchanged by itself; those of a table are all int32. */
extern const char *const mixed_formats[N_MIXED_FORMATS];
extern const char *const table_format;

/* A batch with a dictionary, a list and a struct, depth first: a node, its children, its dictionary's values. */
struct nested_node {
    const char *format;
    const char *name;
    int64_t n_children;
    int64_t has_dictionary;
    int64_t n_buffers;
    const void *buffers[3];
};
enum { N_NESTED = 8 };
extern const struct nested_node nested[N_NESTED];

/* "c0", "c1", ...: one block of the caller's, COLUMN_NAME_BYTES for each name. */
char *column_names(int columns);

#ifdef __cplusplus
}
#endif

#endif
