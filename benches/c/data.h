/* The exchanged data, the same in all programs: a small matrix, and tables whose int32 columns share their values.
 * Only the benches of copies read values; the others measure the exchange alone.
 */
#ifndef DATA_H_
#define DATA_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ROWS = 1024, MATRIX_NDIM = 2, COLUMN_NAME_BYTES = 16, N_MIXED_FORMATS = 8 };

/* Numbers of columns. */
enum { N_ARRAY_WIDTHS = 5, N_STREAM_WIDTHS = 2, N_RUST_WIDTHS = 2, SCHEMA_WIDTH = 1000, READ_WIDTH = 100 };
extern const int array_widths[N_ARRAY_WIDTHS];
extern const int stream_widths[N_STREAM_WIDTHS];
extern const int rust_widths[N_RUST_WIDTHS];

extern int32_t column_values[ROWS];
extern float matrix_values[2 * 3];
extern int64_t matrix_shape[MATRIX_NDIM];

/* The columns of a schema that is exchanged by itself have these formats in turn. All columns of a table are int32. */
extern const char *const mixed_formats[N_MIXED_FORMATS];
extern const char *const table_format;

/* A batch with a dictionary, a list and a struct, depth first: a node, then its children, then its dictionary. */
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

/* What is copied: a square matrix of doubles, the bytes of a picture with its channels innermost, doubles, and the
 * columns of a batch: texts of equal length, and bits. benches/python/bench.py has the same.
 */
enum { SIDE = 120, PICTURE_HEIGHT = 120, PICTURE_WIDTH = 160, CHANNELS = 3, REVERSED = 16384 };
enum { TEXTS = 4096, TEXT_BYTES = 64, SLICE_START = 4000, SLICE_LENGTH = 64, BITS = 131072 };
extern double square[SIDE * SIDE];
extern uint8_t picture[PICTURE_HEIGHT * PICTURE_WIDTH * CHANNELS];
extern double forwards[REVERSED];
extern int32_t text_offsets[TEXTS + 1];
extern char texts[TEXTS * TEXT_BYTES];
extern uint8_t bits[BITS / 8];

/* The names "c0", "c1", ... in one block, which the caller frees, with COLUMN_NAME_BYTES for each name. */
char *column_names(int columns);

#ifdef __cplusplus
}
#endif

#endif
