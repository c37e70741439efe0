/* A foreign producer of the CUDA Array Interface: one block, which its release frees.
 */
#ifndef DEVEXCHANGE_TESTS_CUDA_PRODUCER_H_
#define DEVEXCHANGE_TESTS_CUDA_PRODUCER_H_

#include "test_driver.h"

/* Eight int32 on device 0 (without a driver: an address that nobody reads), and a mask that may be used. */
struct producer {
    int64_t shape[2], strides[2], mask_shape[1];
    devx_cuda_array mask;
    devx_tensor_t *memory, *freed;
    struct tally *tally;
};

static inline void give_up(devx_cuda_array *array) {
    struct producer *producer = array->private_data;
    array->release = NULL;
    producer->tally->releases += 1;
    devx_tensor_release(&producer->memory);
    free(producer);
}

static int32_t host_values[64];

static inline devx_cuda_array produce(struct tally *tally) {
    struct producer *own = calloc(1, sizeof *own);
    devx_cuda_array array = {3,    0,    host_values, 1, own->shape, NULL, "<i4", NULL, NULL, DEVX_CUDA_ARRAY_NO_STREAM,
                             give_up, own};
    DLTensor seen = {0};
    own->shape[0] = own->mask_shape[0] = 8;
    own->shape[1] = 1;
    own->tally = tally;
    if (has_driver() && devx_tensor_allocate(gpu, int32, own->shape, 1, -1, &own->memory, &error) == DEVX_OK) {
        devx_tensor_borrow(own->memory, &seen, NULL, &error);
        array.data = seen.data;
    }
    own->mask = array;
    own->mask.shape = own->mask_shape;
    own->mask.typestr = "|b1";
    own->mask.release = NULL;
    own->mask.private_data = NULL;
    return array;
}

static inline struct producer *own(devx_cuda_array *array) {
    return (struct producer *)array->private_data;
}

#endif
