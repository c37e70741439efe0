#include "data.h"
#include "bench.h"

const int array_widths[N_ARRAY_WIDTHS] = {1, 10, 100, 1000, 10000};
const int stream_widths[N_STREAM_WIDTHS] = {1, 10};
const int rust_widths[N_RUST_WIDTHS] = {1, 100};

int32_t column_values[ROWS];
float matrix_values[2 * 3];
int64_t matrix_shape[MATRIX_NDIM] = {2, 3};

double square[SIDE * SIDE];
uint8_t picture[PICTURE_HEIGHT * PICTURE_WIDTH * CHANNELS];
double forwards[REVERSED];
int32_t text_offsets[TEXTS + 1];
char texts[TEXTS * TEXT_BYTES];
uint8_t bits[BITS / 8];

/* Different values, so that a copy in the wrong order is noticed. */
__attribute__((constructor)) static void fill_copied(void) {
    for (int i = 0; i < SIDE * SIDE; ++i) square[i] = i;
    for (int i = 0; i < PICTURE_HEIGHT * PICTURE_WIDTH * CHANNELS; ++i) picture[i] = (uint8_t)(i * 7 + i / 256);
    for (int i = 0; i < REVERSED; ++i) forwards[i] = i;
    for (int i = 0; i <= TEXTS; ++i) text_offsets[i] = i * TEXT_BYTES;
    for (int i = 0; i < TEXTS * TEXT_BYTES; ++i) texts[i] = (char)('a' + i / TEXT_BYTES % 26);
    for (int i = 0; i < BITS / 8; ++i) bits[i] = (uint8_t)(i * 11);
}

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
