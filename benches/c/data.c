#include "data.h"
#include "bench.h"

const int array_widths[N_ARRAY_WIDTHS] = {1, 10, 100, 1000, 10000};
const int stream_widths[N_STREAM_WIDTHS] = {1, 10};
const int rust_widths[N_RUST_WIDTHS] = {1, 100};

int32_t column_values[ROWS];
float matrix_values[2 * 3];
int64_t matrix_shape[MATRIX_NDIM] = {2, 3};

const char *const mixed_formats[N_MIXED_FORMATS] = {"i", "l", "f", "g", "u", "b", "z", "tdD"};
const char *const table_format = "i";

/* The buffers of empty texts and lists. */
static int32_t const offsets[ROWS + 1];
static char const bytes[1];

const struct nested_node nested[N_NESTED] = {
    {"+s", "", 3, 0, 1, {NULL}},
    {"i", "word", 0, 1, 2, {NULL, column_values}},
    {"u", "", 0, 0, 3, {NULL, offsets, bytes}},
    {"+l", "list", 1, 0, 2, {NULL, offsets}},
    {"i", "item", 0, 0, 2, {NULL, column_values}},
    {"+s", "pair", 2, 0, 1, {NULL}},
    {"i", "number", 0, 0, 2, {NULL, column_values}},
    {"u", "text", 0, 0, 3, {NULL, offsets, bytes}},
};

char *column_names(int columns) {
    char *names = malloc((size_t)columns * COLUMN_NAME_BYTES);
    MUST(names != NULL);
    for (int i = 0; i < columns; ++i) snprintf(names + (size_t)i * COLUMN_NAME_BYTES, COLUMN_NAME_BYTES, "c%d", i);
    return names;
}
