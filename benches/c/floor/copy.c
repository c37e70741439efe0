/* Copies by plain loops, for these shapes alone, into a block that the thread used before. */
#include "../bench.h"
#include "../copied.h"
#include "pool.h"

#include <string.h>

/* A tile of doubles whose rows and columns both stay in the first cache. */
enum { TILE = 8 };
_Static_assert(SIDE % TILE == 0, "whole tiles");

static _Thread_local struct pool pool;

static void *set_up(int size) {
    (void)size;
    return &pool;
}

static void tear_down(void *state) {
    (void)state;
}

/* Room for a copy of so many bytes, behind the head that the pool keeps. */
static struct block *take(size_t bytes) {
    struct block *block = pool_take(&pool, sizeof *block + bytes);
    MUST(block != NULL);
    return block;
}

__attribute__((always_inline)) static inline void run(int64_t times, size_t bytes, void (*fill)(void *copy),
                                                      int (*is_copied)(const void *values)) {
    for (int64_t i = 0; i < times; ++i) {
        struct block *block = take(bytes);
        fill(block + 1);
        MUST(is_copied(block + 1));
        pool_give(&pool, block);
    }
}

static void transpose(void *values) {
    double *copy = values;
    for (int i = 0; i < SIDE; i += TILE) {
        for (int j = 0; j < SIDE; j += TILE) {
            for (int row = i; row < i + TILE; ++row) {
                for (int column = j; column < j + TILE; ++column) copy[row * SIDE + column] = square[column * SIDE + row];
            }
        }
    }
}

static void separate(void *values) {
    uint8_t *copy = values;
    for (int channel = 0; channel < CHANNELS; ++channel) {
        for (int pixel = 0; pixel < PICTURE_HEIGHT * PICTURE_WIDTH; ++pixel) {
            *copy++ = picture[pixel * CHANNELS + channel];
        }
    }
}

static void reverse(void *values) {
    double *copy = values;
    for (int at = 0; at < REVERSED; ++at) copy[at] = forwards[REVERSED - 1 - at];
}

static void run_transposed(void *state, int64_t times) {
    (void)state;
    run(times, sizeof square, transpose, is_transposed);
}

static void run_channels(void *state, int64_t times) {
    (void)state;
    run(times, sizeof picture, separate, has_channels);
}

static void run_reversed(void *state, int64_t times) {
    (void)state;
    run(times, sizeof forwards, reverse, is_reversed);
}

static void run_texts(void *state, int64_t times) {
    (void)state;
    for (int64_t i = 0; i < times; ++i) {
        enum { OFFSETS_BYTES = (SLICE_LENGTH + 1) * sizeof(int32_t) };
        int32_t const start = text_offsets[SLICE_START], end = text_offsets[SLICE_START + SLICE_LENGTH];
        struct block *block = take(OFFSETS_BYTES + (size_t)(end - start));
        int32_t *offsets = (int32_t *)(block + 1);
        char *bytes = (char *)offsets + OFFSETS_BYTES;
        for (int at = 0; at <= SLICE_LENGTH; ++at) offsets[at] = text_offsets[SLICE_START + at] - start;
        memcpy(bytes, texts + start, (size_t)(end - start));
        MUST(is_slice(offsets, bytes));
        pool_give(&pool, block);
    }
}

BENCHES {
    bench_add("copy/transposed", 0, set_up, run_transposed, tear_down);
    bench_add("copy/channels", 0, set_up, run_channels, tear_down);
    bench_add("copy/reversed", 0, set_up, run_reversed, tear_down);
    bench_add("copy/slice", 0, set_up, run_texts, tear_down);
}
