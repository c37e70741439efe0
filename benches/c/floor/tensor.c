#include "tensor.h"
#include "pool.h"
#include "returned.h"

#include <stddef.h>

/* --- the producer --- */

static void count_release(void *context) {
    ((struct producer *)context)->released += 1;
}

void make_producer(struct producer *out) {
    *out = (struct producer){.strides = {matrix_shape[1], 1}};
    out->owner.release = count_release;
    out->owner.context = out;
    atomic_init(&out->owner.users, 1);
    out->view = (DLTensor){matrix_values, {kDLCPU, 0}, MATRIX_NDIM, {kDLFloat, 32, 1}, matrix_shape, out->strides, 0};
}

void borrow_tensor(const struct producer *producer, DLTensor *out) {
    *out = producer->view;
}

static inline void fill(struct DLManagedTensorVersioned *out, struct producer *producer,
                        void (*deleter)(struct DLManagedTensorVersioned *managed)) {
    *out = (struct DLManagedTensorVersioned){
        {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, producer, deleter, 0, producer->view};
}

/* The exported struct, in its block. */
struct handed {
    struct block block;
    struct DLManagedTensorVersioned managed;
};

static _Thread_local struct pool handed_pool;

static struct DLManagedTensorVersioned *hand_over(struct producer *producer,
                                                  void (*deleter)(struct DLManagedTensorVersioned *managed)) {
    struct handed *handed = pool_take(&handed_pool, sizeof *handed);
    if (handed == NULL) return NULL;
    fill(&handed->managed, producer, deleter);
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

struct DLManagedTensorVersioned *export_tensor(struct producer *producer) {
    struct DLManagedTensorVersioned *managed = hand_over(producer, delete_shared);
    if (managed != NULL) owner_share(&producer->owner);
    return managed;
}

struct DLManagedTensorVersioned *export_tensor_for_good(struct producer *producer) {
    return hand_over(producer, delete_moved);
}

/* --- for two threads: a block that one thread releases goes back to the thread that exported it --- */

struct far_handed {
    struct link block;
    struct returned *home; /* where the block is given back */
    struct DLManagedTensorVersioned managed;
};

static _Thread_local struct returned returned_here;

static void delete_anywhere(struct DLManagedTensorVersioned *managed) {
    struct far_handed *far = (struct far_handed *)((char *)managed - offsetof(struct far_handed, managed));
    struct producer *producer = managed->manager_ctx;
    returned_give(far->home, &far->block);
    owner_drop(&producer->owner);
}

struct DLManagedTensorVersioned *export_tensor_far(struct producer *producer) {
    struct far_handed *far = returned_take(&returned_here, sizeof *far);
    if (far == NULL) return NULL;
    far->home = &returned_here;
    fill(&far->managed, producer, delete_anywhere);
    owner_share(&producer->owner);
    return &far->managed;
}

/* --- the consumer --- */

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

struct DLManagedTensorVersioned *import_tensor(struct DLManagedTensorVersioned *managed) {
    return managed->version.major == DLPACK_MAJOR_VERSION && is_usable(&managed->dl_tensor) ? managed : NULL;
}

void release_tensor(struct DLManagedTensorVersioned *managed) {
    if (managed->deleter != NULL) managed->deleter(managed);
}
