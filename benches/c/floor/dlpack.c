/* Export and import of DLPack with the least work. */
#include "../bench.h"
#include "../threads.h"
#include "tensor.h"

static void *set_up(int size) {
    (void)size;
    struct producer *producer = malloc(sizeof *producer);
    MUST(producer != NULL);
    make_producer(producer);
    return producer;
}

static void tear_down(void *state) {
    struct producer *producer = state;
    MUST(atomic_load(&producer->owner.users) == 1);
    free(producer);
}

static void import_and_release(void *handed) {
    struct DLManagedTensorVersioned *seen = import_tensor(handed);
    MUST(seen != NULL);
    release_tensor(seen);
}

static void run_shared(void *state, int64_t times) {
    for (int64_t i = 0; i < times; ++i) import_and_release(export_tensor(state));
}

static void run_moved(void *state, int64_t times) {
    struct producer *producer = state;
    int64_t const before = producer->released;
    for (int64_t i = 0; i < times; ++i) import_and_release(export_tensor_for_good(producer));
    MUST(producer->released == before + times);
}

static void run_borrowed(void *state, int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
        DLTensor view;
        borrow_tensor(state, &view);
        MUST(view.data == matrix_values);
    }
}

static void *export_far(void *state) {
    return export_tensor_far(state);
}

static const struct thread_bench threads = {set_up, tear_down, export_far, import_and_release};

BENCHES {
    bench_add("dlpack/shared", 0, set_up, run_shared, tear_down);
    bench_add("dlpack/moved", 0, set_up, run_moved, tear_down);
    bench_add("dlpack/borrowed", 0, set_up, run_borrowed, tear_down);
    bench_add("rust/tensor-round-trip", 0, set_up, run_shared, tear_down);
    bench_add("rust/tensor-moved", 0, set_up, run_moved, tear_down);
    add_thread_benches(&threads);
}
