/* Export and import of DLPack through libdevexchange. */
#include "../bench.h"
#include "../data.h"
#include "../threads.h"

#include <devexchange.h>

static DLDevice const cpu = {kDLCPU, 0};

struct producer {
    devx_tensor_t *tensor;
    int64_t released;
};

static void count_release(void *context) {
    ((struct producer *)context)->released += 1;
}

static devx_tensor_t *new_tensor(struct producer *producer) {
    DLTensor const description = {matrix_values, cpu, MATRIX_NDIM, {kDLFloat, 32, 1}, matrix_shape, NULL, 0};
    devx_owner const owner = {producer, count_release};
    devx_tensor_t *tensor = NULL;
    MUST(devx_tensor_create(&description, 0, &owner, &tensor, NULL) == DEVX_OK);
    return tensor;
}

static void *set_up(int size) {
    (void)size;
    struct producer *producer = calloc(1, sizeof *producer);
    MUST(producer != NULL);
    producer->tensor = new_tensor(producer);
    return producer;
}

static void tear_down(void *state) {
    struct producer *producer = state;
    devx_tensor_release(&producer->tensor);
    MUST(devx_ledger_outstanding() == 0);
    free(producer);
}

static void import_and_release(void *handed) {
    devx_tensor_t *seen = NULL;
    MUST(devx_tensor_import(handed, &seen, NULL) == DEVX_OK);
    devx_tensor_release(&seen);
}

static void *export_one(void *state) {
    struct DLManagedTensorVersioned *handed = NULL;
    MUST(devx_tensor_export_share(((struct producer *)state)->tensor, NULL, &handed, NULL) == DEVX_OK);
    return handed;
}

static void run_shared(void *state, int64_t times) {
    for (int64_t i = 0; i < times; ++i) import_and_release(export_one(state));
}

static void run_moved(void *state, int64_t times) {
    struct producer *producer = state;
    int64_t const before = producer->released;
    for (int64_t i = 0; i < times; ++i) {
        devx_tensor_t *tensor = new_tensor(producer);
        struct DLManagedTensorVersioned *handed = NULL;
        MUST(devx_tensor_export_move(&tensor, NULL, &handed, NULL) == DEVX_OK);
        import_and_release(handed);
    }
    MUST(producer->released == before + times);
}

static void run_borrowed(void *state, int64_t times) {
    struct producer *producer = state;
    for (int64_t i = 0; i < times; ++i) {
        DLTensor view;
        MUST(devx_tensor_borrow(producer->tensor, &view, NULL, NULL) == DEVX_OK);
        MUST(view.data == matrix_values);
    }
}

static const struct thread_bench threads = {set_up, tear_down, export_one, import_and_release};

BENCHES {
    bench_add("dlpack/shared", 0, set_up, run_shared, tear_down);
    bench_add("dlpack/moved", 0, set_up, run_moved, tear_down);
    bench_add("dlpack/borrowed", 0, set_up, run_borrowed, tear_down);
    add_thread_benches(&threads);
}
