/* A producer of a matrix and a consumer of DLPack with the least work: a struct from a pool, the checks that a consumer
 * cannot do without, and the deleter. They are compiled by themselves, so that their calls are not inlined: the
 * compiler cannot inline calls of other libraries either.
 */
#ifndef TENSOR_H_
#define TENSOR_H_

#include "../data.h"
#include "../owner.h"

#include <dlpack/dlpack.h>

struct producer {
    struct owner owner;
    DLTensor view; /* its shape and strides stay the producer's, too */
    int64_t strides[MATRIX_NDIM];
    int64_t released; /* how often the owner was released */
};

/* Makes a producer of `matrix_values` whose owner has one user. */
void make_producer(struct producer *out);

/* Each export returns NULL if there is no memory. */
struct DLManagedTensorVersioned *export_tensor(struct producer *producer);
/* Moves the only share to the consumer, so there is nothing to count. */
struct DLManagedTensorVersioned *export_tensor_for_good(struct producer *producer);
/* For a release on another thread, which gives the block back to this one. */
struct DLManagedTensorVersioned *export_tensor_far(struct producer *producer);

void borrow_tensor(const struct producer *producer, DLTensor *out);

/* Returns its argument, or NULL if that is not compact float32 in host memory. */
struct DLManagedTensorVersioned *import_tensor(struct DLManagedTensorVersioned *managed);
void release_tensor(struct DLManagedTensorVersioned *managed);

#endif
