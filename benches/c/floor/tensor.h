/* A producer of a matrix and a consumer of DLPack with the least work: a descriptor out of a pool, the checks that a
 * consumer cannot do without, and the deleter. In a file of their own, as the compiler does not see through calls of
 * other libraries either.
 */
#ifndef TENSOR_H_
#define TENSOR_H_

#include "../data.h"
#include "../owner.h"

#include <dlpack/dlpack.h>

struct producer {
    struct owner owner;
    DLTensor view; /* shape and strides are the producer's too */
    int64_t strides[MATRIX_NDIM];
    int64_t released; /* for good */
};

/* Of `matrix_values`; with one user. */
void make_producer(struct producer *out);

/* All are NULL if there is no memory. */
struct DLManagedTensorVersioned *export_tensor(struct producer *producer);
/* There is one user, and it changes: nothing to count. */
struct DLManagedTensorVersioned *export_tensor_for_good(struct producer *producer);
/* What this thread exports for others to release: the memory comes back. */
struct DLManagedTensorVersioned *export_tensor_far(struct producer *producer);

void borrow_tensor(const struct producer *producer, DLTensor *out);

/* What it is given, or NULL: a consumer of compact float32 in host memory. */
struct DLManagedTensorVersioned *import_tensor(struct DLManagedTensorVersioned *managed);
void release_tensor(struct DLManagedTensorVersioned *managed);

#endif
