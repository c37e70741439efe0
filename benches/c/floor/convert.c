/* Columns that become tensors, with the least work. */
#include "../bench.h"
#include "../copied.h"
#include "../owner.h"
#include "pool.h"

#include <dlpack/dlpack.h>

/* A column whose memory has an owner. */
struct column {
    struct owner owner;
    const char *format;
    const void *values;
    int64_t offset, length, null_count;
};

/* A tensor of one dimension, which is a share of the owner or has the values behind it. */
struct seen {
    struct block block;
    struct owner *owner;
    DLTensor view;
    int64_t shape, stride;
};

static _Thread_local struct pool pool;

static void release_nothing(void *context) {
    (void)context;
}

static void *new_column(const char *format, const void *values, int64_t length) {
    struct column *column = malloc(sizeof *column);
    MUST(column != NULL);
    *column = (struct column){{1, release_nothing, NULL}, format, values, 0, length, 0};
    return column;
}

static void *set_up_column(int size) {
    (void)size;
    return new_column(table_format, column_values, ROWS);
}

static void *set_up_bools(int size) {
    (void)size;
    return new_column("b", bits, BITS);
}

static void tear_down(void *state) {
    MUST(atomic_load(&((struct column *)state)->owner.users) == 1);
    free(state);
}

static inline struct seen *new_seen(DLDataType dtype, int64_t length, size_t bytes) {
    struct seen *seen = pool_take(&pool, sizeof *seen + bytes);
    MUST(seen != NULL);
    seen->shape = length;
    seen->stride = 1;
    seen->view = (DLTensor){seen + 1, {kDLCPU, 0}, 1, dtype, &seen->shape, &seen->stride, 0};
    return seen;
}

static __attribute__((noinline)) struct seen *see_column(struct column *column) {
    if (column->format[0] != 'i' || column->format[1] != 0 || column->null_count != 0) return NULL;
    struct seen *seen = new_seen((DLDataType){kDLInt, 32, 1}, column->length, 0);
    seen->view.data = (int32_t *)column->values + column->offset;
    seen->owner = &column->owner;
    owner_share(seen->owner);
    return seen;
}

static __attribute__((noinline)) void release(struct seen *seen) {
    if (seen->owner != NULL) owner_drop(seen->owner);
    pool_give(&pool, &seen->block);
}

static __attribute__((noinline)) struct seen *copy_bools(const struct column *column) {
    if (column->format[0] != 'b' || column->null_count != 0) return NULL;
    struct seen *seen = new_seen((DLDataType){kDLBool, 8, 1}, column->length, (size_t)column->length);
    uint64_t *copy = seen->view.data;
    seen->owner = NULL;
    /* The product has bit k of the byte as the highest bit of byte 7 - k of the word. */
    for (int64_t at = 0; at < column->length / 8; ++at) {
        uint64_t const spread = ((const uint8_t *)column->values)[at] * UINT64_C(0x8040201008040201);
        copy[at] = __builtin_bswap64((spread & UINT64_C(0x8080808080808080)) >> 7);
    }
    return seen;
}

static void run_column(void *state, int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
        struct seen *seen = see_column(state);
        MUST(seen != NULL && seen->view.data == column_values && seen->view.shape[0] == ROWS);
        release(seen);
    }
}

static void run_bools(void *state, int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
        struct seen *seen = copy_bools(state);
        MUST(seen != NULL && are_bools(seen->view.data) && seen->view.shape[0] == BITS);
        release(seen);
    }
}

BENCHES {
    bench_add("convert/column", 0, set_up_column, run_column, tear_down);
    bench_add("convert/bools", 0, set_up_bools, run_bools, tear_down);
}
