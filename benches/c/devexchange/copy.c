/* Copies in host memory through libdevexchange. */
#include "../bench.h"
#include "../copied.h"
#include "table.h"

static DLDevice const cpu = {kDLCPU, 0};

static devx_tensor_t *new_tensor(void *data, DLDataType dtype, int32_t ndim, int64_t *shape, int64_t *strides) {
    DLTensor const description = {data, cpu, ndim, dtype, shape, strides, 0};
    devx_tensor_t *tensor = NULL;
    MUST(devx_tensor_create(&description, 0, NULL, &tensor, NULL) == DEVX_OK);
    return tensor;
}

/* --- tensors that are not compact --- */

struct strided {
    devx_tensor_t *tensor;
    int (*is_copied)(const void *values);
};

static void *set_up(devx_tensor_t *tensor, int (*is_copied)(const void *values)) {
    struct strided *strided = malloc(sizeof *strided);
    MUST(strided != NULL);
    *strided = (struct strided){tensor, is_copied};
    return strided;
}

static void *set_up_transposed(int size) {
    (void)size;
    int64_t shape[] = {SIDE, SIDE}, strides[] = {1, SIDE};
    return set_up(new_tensor(square, (DLDataType){kDLFloat, 64, 1}, 2, shape, strides), is_transposed);
}

static void *set_up_channels(int size) {
    (void)size;
    int64_t shape[] = {CHANNELS, PICTURE_HEIGHT, PICTURE_WIDTH}, strides[] = {1, PICTURE_WIDTH * CHANNELS, CHANNELS};
    return set_up(new_tensor(picture, (DLDataType){kDLUInt, 8, 1}, 3, shape, strides), has_channels);
}

static void *set_up_reversed(int size) {
    (void)size;
    int64_t shape[] = {REVERSED}, strides[] = {-1};
    return set_up(new_tensor(&forwards[REVERSED - 1], (DLDataType){kDLFloat, 64, 1}, 1, shape, strides), is_reversed);
}

static void run_strided(void *state, int64_t times) {
    const struct strided *strided = state;
    for (int64_t i = 0; i < times; ++i) {
        devx_tensor_t *copy = NULL;
        DLTensor view;
        MUST(devx_tensor_copy(strided->tensor, &copy, NULL) == DEVX_OK);
        MUST(devx_tensor_borrow(copy, &view, NULL, NULL) == DEVX_OK);
        MUST(strided->is_copied(view.data));
        devx_tensor_release(&copy);
    }
}

static void tear_down_strided(void *state) {
    struct strided *strided = state;
    devx_tensor_release(&strided->tensor);
    free(strided);
}

/* --- a slice of a batch --- */

static void *set_up_texts(int size) {
    (void)size;
    const void *const buffers[] = {NULL, text_offsets, texts};
    struct table *table = new_one_column("u", TEXTS, buffers, 3);
    devx_batch_t *slice = NULL;
    MUST(devx_batch_slice(table->batch, SLICE_START, SLICE_LENGTH, &slice, NULL) == DEVX_OK);
    devx_batch_release(&table->batch);
    table->batch = slice;
    return table;
}

static void run_texts(void *state, int64_t times) {
    const struct table *table = state;
    for (int64_t i = 0; i < times; ++i) {
        devx_batch_t *copy = NULL;
        MUST(devx_batch_copy(table->batch, &copy, NULL) == DEVX_OK);
        devx_column column;
        MUST(devx_batch_column(copy, 0, &column, NULL) == DEVX_OK);
        MUST(is_slice((const int32_t *)column.buffers[1] + column.offset, column.buffers[2]));
        devx_batch_release(&copy);
    }
}

BENCHES {
    bench_add("copy/transposed", 0, set_up_transposed, run_strided, tear_down_strided);
    bench_add("copy/channels", 0, set_up_channels, run_strided, tear_down_strided);
    bench_add("copy/reversed", 0, set_up_reversed, run_strided, tear_down_strided);
    bench_add("copy/slice", 0, set_up_texts, run_texts, free_one_column);
}
