#include "data.h"
#include "bench.h"

const int array_widths[N_ARRAY_WIDTHS] = {1, 10, 100, 1000, 10000};
const int stream_widths[N_STREAM_WIDTHS] = {1, 10};

int32_t column_values[ROWS];
float matrix_values[2 * 3];
int64_t matrix_shape[MATRIX_NDIM] = {2, 3};

const char *const mixed_formats[N_MIXED_FORMATS] = {"i", "l", "f", "g", "u", "b", "z", "tdD"};
const char *const table_format = "i";

char *column_names(int columns) {
    char *names = malloc((size_t)columns * COLUMN_NAME_BYTES);
    MUST(names != NULL);
    for (int i = 0; i < columns; ++i) snprintf(names + (size_t)i * COLUMN_NAME_BYTES, COLUMN_NAME_BYTES, "c%d", i);
    return names;
}
