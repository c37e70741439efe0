/* Columns that become tensors, through libdevexchange. */
#include "../bench.h"
#include "../copied.h"
#include "table.h"

static void *set_up_column(int size) {
    (void)size;
    const void *const buffers[] = {NULL, column_values};
    return new_one_column(table_format, ROWS, buffers, 2);
}

static void *set_up_bools(int size) {
    (void)size;
    const void *const buffers[] = {NULL, bits};
    return new_one_column("b", BITS, buffers, 2);
}

static inline void run(const struct table *table, int64_t times, int (*is_right)(const DLTensor *view)) {
    devx_column column;
    MUST(devx_batch_column(table->batch, 0, &column, NULL) == DEVX_OK);
    for (int64_t i = 0; i < times; ++i) {
        devx_tensor_t *tensor = NULL;
        DLTensor view;
        MUST(devx_column_to_tensor(table->batch, &column, DEVX_COPY_IF_NEEDED, &tensor, NULL) == DEVX_OK);
        MUST(devx_tensor_borrow(tensor, &view, NULL, NULL) == DEVX_OK);
        MUST(is_right(&view));
        devx_tensor_release(&tensor);
    }
}

static int is_seen(const DLTensor *view) {
    return view->data == column_values && view->shape[0] == ROWS;
}

static int is_copied(const DLTensor *view) {
    return are_bools(view->data) && view->shape[0] == BITS;
}

static void run_column(void *state, int64_t times) {
    run(state, times, is_seen);
}

static void run_bools(void *state, int64_t times) {
    run(state, times, is_copied);
}

BENCHES {
    bench_add("convert/column", 0, set_up_column, run_column, free_one_column);
    bench_add("convert/bools", 0, set_up_bools, run_bools, free_one_column);
}
