/* DLPack out and in again with the least work: a descriptor out of a pool, the checks that a consumer cannot do
 * without, and the deleter. Producer and consumer are functions that the compiler does not see through, as between two
 * libraries.
 */
#include "../bench.h"
#include "../data.h"
#include "../owner.h"
#include "../threads.h"
#include "pool.h"
#include "returned.h"

#include <dlpack/dlpack.h>
#include <string.h>

#define APART __attribute__((noinline))

/* --- the producer --- */

struct producer {
    struct owner owner;
    DLTensor view; /* shape and strides are the producer's too */
    int64_t strides[MATRIX_NDIM];
    int64_t released;
};

/* What is handed over. */
struct handed {
    struct block block;
    struct DLManagedTensorVersioned managed;
};

/* What is handed over to other threads: `home` is where it comes back to. */
struct far_handed {
    struct link block;
    struct returned *home;
    struct DLManagedTensorVersioned managed;
};

static _Thread_local struct pool handed_pool;

static void count_release(void *context) {
    ((struct producer *)context)->released += 1;
}

static struct DLManagedTensorVersioned *hand_over(struct producer *producer,
                                                  void (*deleter)(struct DLManagedTensorVersioned *managed)) {
    struct handed *handed = pool_take(&handed_pool, sizeof *handed);
    if (handed == NULL) return NULL;
    handed->managed = (struct DLManagedTensorVersioned){
        {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, producer, deleter, 0, producer->view};
    return &handed->managed;
}

static void *take_back(struct DLManagedTensorVersioned *managed) {
    void *producer = managed->manager_ctx;
    pool_give(&handed_pool, (char *)managed - offsetof(struct handed, managed));
    return producer;
}

static void delete_shared(struct DLManagedTensorVersioned *managed) {
    struct producer *producer = take_back(managed);
    owner_drop(&producer->owner);
}

static void delete_moved(struct DLManagedTensorVersioned *managed) {
    struct producer *producer = take_back(managed);
    producer->owner.release(producer->owner.context);
}

APART static struct DLManagedTensorVersioned *export_share(struct producer *producer) {
    struct DLManagedTensorVersioned *managed = hand_over(producer, delete_shared);
    if (managed != NULL) owner_share(&producer->owner);
    return managed;
}

/* There is one user, and it changes: nothing to count. */
APART static struct DLManagedTensorVersioned *export_move(struct producer *producer) {
    return hand_over(producer, delete_moved);
}

APART static void borrow(const struct producer *producer, DLTensor *out) {
    *out = producer->view;
}

/* --- the consumer --- */

/* Compact float32 in host memory. */
static inline int is_usable(const DLTensor *tensor) {
    int64_t step = 1;
    if (tensor->device.device_type != kDLCPU || tensor->ndim < 0) return 0;
    if (tensor->dtype.code != kDLFloat || tensor->dtype.bits != 32 || tensor->dtype.lanes != 1) return 0;
    for (int32_t i = tensor->ndim - 1; i >= 0; --i) {
        if (tensor->shape[i] < 0 || (tensor->strides != NULL && tensor->strides[i] != step)) return 0;
        if (__builtin_mul_overflow(step, tensor->shape[i], &step)) return 0;
    }
    return tensor->data != NULL || step == 0;
}

APART static struct DLManagedTensorVersioned *import(struct DLManagedTensorVersioned *managed) {
    return managed->version.major == DLPACK_MAJOR_VERSION && is_usable(&managed->dl_tensor) ? managed : NULL;
}

APART static void release(struct DLManagedTensorVersioned *managed) {
    if (managed->deleter != NULL) managed->deleter(managed);
}

/* --- the benches --- */

static void *set_up(int size) {
    (void)size;
    struct producer *producer = calloc(1, sizeof *producer);
    MUST(producer != NULL);
    producer->owner.release = count_release;
    producer->owner.context = producer;
    atomic_init(&producer->owner.users, 1);
    producer->strides[0] = matrix_shape[1];
    producer->strides[1] = 1;
    producer->view = (DLTensor){matrix_values,       {kDLCPU, 0}, MATRIX_NDIM, {kDLFloat, 32, 1}, matrix_shape,
                                producer->strides, 0};
    return producer;
}

static void tear_down(void *state) {
    struct producer *producer = state;
    MUST(atomic_load(&producer->owner.users) == 1);
    free(producer);
}

static void run_shared(void *state, int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
        struct DLManagedTensorVersioned *seen = import(export_share(state));
        MUST(seen != NULL);
        release(seen);
    }
}

static void run_moved(void *state, int64_t times) {
    struct producer *producer = state;
    int64_t const before = producer->released;
    for (int64_t i = 0; i < times; ++i) {
        struct DLManagedTensorVersioned *seen = import(export_move(producer));
        MUST(seen != NULL);
        release(seen);
    }
    MUST(producer->released == before + times);
}

static void run_borrowed(void *state, int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
        DLTensor view;
        borrow(state, &view);
        MUST(view.data == matrix_values);
    }
}

/* --- the same over two threads: what one of them releases is still the other one's to use again --- */

static _Thread_local struct returned returned_here;

static void delete_anywhere(struct DLManagedTensorVersioned *managed) {
    struct far_handed *far = (struct far_handed *)((char *)managed - offsetof(struct far_handed, managed));
    struct producer *producer = managed->manager_ctx;
    returned_give(far->home, &far->block);
    owner_drop(&producer->owner);
}

static void *export_far(void *state) {
    struct producer *producer = state;
    struct far_handed *far = returned_take(&returned_here, sizeof *far);
    MUST(far != NULL);
    far->home = &returned_here;
    far->managed = (struct DLManagedTensorVersioned){
        {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, producer, delete_anywhere, 0, producer->view};
    owner_share(&producer->owner);
    return &far->managed;
}

static void import_far(void *handed) {
    struct DLManagedTensorVersioned *seen = import(handed);
    MUST(seen != NULL);
    release(seen);
}

static const struct thread_bench threads = {set_up, tear_down, export_far, import_far};

BENCHES {
    bench_add("dlpack/shared", 0, set_up, run_shared, tear_down);
    bench_add("dlpack/moved", 0, set_up, run_moved, tear_down);
    bench_add("dlpack/borrowed", 0, set_up, run_borrowed, tear_down);
    add_thread_benches(&threads);
}
