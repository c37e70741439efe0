/* What the C tests share: short ways to say what is expected, and foreign producers.
 *
 * The producers follow the letter of DLPack and of the Arrow C data interface, and use nothing of this library. Every struct,
 * text, table and buffer is an allocation of its own, which the release frees, so that valgrind and ASan see any use after
 * that. The producers count how often they are released.
 */
#ifndef DEVEXCHANGE_TESTS_TEST_SUPPORT_H_
#define DEVEXCHANGE_TESTS_TEST_SUPPORT_H_

#include <devexchange.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* --- expectations --- */

/* The record that the calls of a test write to; each thread has its own. */
static devx_error error;

/* The call, which is given &error, succeeds. */
#define CHECK_OK(call)                                                                                                 \
    do {                                                                                                               \
        devx_status const check_status_ = (call);                                                                      \
        if (check_status_ != DEVX_OK) {                                                                                \
            check_fail_(CHECK_AT_ "%s is %s: %s", CHECK_HERE_, #call, devx_status_name(check_status_), error.message); \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* The call, which is given &error, is refused with this status and a text that contains this part. */
#define CHECK_REFUSED(call, expected, part)                                                                            \
    do {                                                                                                               \
        error = (devx_error){0, 0, ""};                                                                                \
        devx_status const check_status_ = (call);                                                                      \
        if (check_status_ != (expected) || error.status != (expected)) {                                               \
            check_fail_(CHECK_AT_ "%s is %s (%s), expected %s", CHECK_HERE_, #call, devx_status_name(check_status_),   \
                        error.message, #expected);                                                                     \
            return;                                                                                                    \
        }                                                                                                              \
        if (strstr(error.message, (part)) == NULL) {                                                                   \
            check_fail_(CHECK_AT_ "%s says \"%s\", which lacks \"%s\"", CHECK_HERE_, #call, error.message, (part));    \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* The call, which is given &error, is refused because the argument with this name is NULL. */
#define CHECK_NEEDS(call, name)                                                                                        \
    do {                                                                                                               \
        CHECK_REFUSED(call, DEVX_NULL_ARGUMENT, name);                                                                 \
        CHECK_STR(error.message, name " is NULL");                                                                     \
    } while (0)

/* A helper gave a handle; it gives NULL after a call, which was given &error, failed. */
#define CHECK_MADE(handle)                                                                                             \
    do {                                                                                                               \
        if ((handle) == NULL) {                                                                                        \
            check_fail_(CHECK_AT_ "%s is NULL: %s", CHECK_HERE_, #handle, error.message);                              \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

#define CHECK_NOTHING_OUTSTANDING() CHECK_INT(devx_ledger_outstanding(), 0)

/* The value of an output before a call that must not write it. */
#define UNWRITTEN ((void *)(uintptr_t)0x5a5a5a50)

static inline void *support_memory(size_t bytes) {
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    if (memory == NULL) {
        abort();
    }
    return memory;
}

static inline void *support_copy(const void *from, size_t bytes) {
    void *memory = support_memory(bytes);
    if (bytes > 0) {
        memcpy(memory, from, bytes);
    }
    return memory;
}

static inline char *support_text(const char *text) {
    return text == NULL ? NULL : (char *)support_copy(text, strlen(text) + 1);
}

/* --- owners --- */

/* Counts what is released. Releases may come on several threads. */
struct tally {
    atomic_int releases; /* how often a release was called */
    atomic_int live;     /* structs that exist and are not released */
    int forgets;         /* 1: a producer that does not set `release` to NULL, against the specification */
};

static inline void count_release(void *context) {
    struct tally *tally = (struct tally *)context;
    atomic_fetch_add(&tally->releases, 1);
}

static inline devx_owner counting_owner(struct tally *tally) {
    devx_owner const owner = {tally, count_release};
    return owner;
}

/* --- DLPack --- */

static const DLDevice cpu = {kDLCPU, 0};
static const DLDataType float64 = {kDLFloat, 64, 1};
static const DLDataType int32 = {kDLInt, 32, 1};

enum { MOST_DIMENSIONS = 4 };

/* What a producer keeps beside its tensor. */
struct foreign_tensor {
    struct tally *tally;
    double *values;
    int64_t *shape;
    int64_t *strides;
};

static inline void free_foreign_tensor(struct foreign_tensor *own) {
    atomic_fetch_add(&own->tally->releases, 1);
    atomic_fetch_sub(&own->tally->live, 1);
    free(own->values);
    free(own->shape);
    free(own->strides);
    free(own);
}

/* float64 values 0, 1, 2, ... of this shape; `strides` may be NULL. */
static inline DLTensor make_foreign_tensor(struct tally *tally, int ndim, const int64_t *shape, const int64_t *strides,
                                           struct foreign_tensor **out) {
    struct foreign_tensor *own = (struct foreign_tensor *)support_memory(sizeof *own);
    size_t elements = 1;
    for (int i = 0; i < ndim; ++i) {
        elements *= (size_t)shape[i];
    }
    own->tally = tally;
    own->values = (double *)support_memory(elements * sizeof *own->values);
    for (size_t i = 0; i < elements; ++i) {
        own->values[i] = (double)i;
    }
    own->shape = (int64_t *)support_copy(shape, (size_t)ndim * sizeof *shape);
    own->strides = strides == NULL ? NULL : (int64_t *)support_copy(strides, (size_t)ndim * sizeof *strides);
    atomic_fetch_add(&tally->live, 1);
    *out = own;
    DLTensor const tensor = {own->values, {kDLCPU, 0}, ndim, {kDLFloat, 64, 1}, own->shape, own->strides, 0};
    return tensor;
}

static inline void delete_foreign(struct DLManagedTensorVersioned *managed) {
    free_foreign_tensor((struct foreign_tensor *)managed->manager_ctx);
    free(managed);
}

static inline struct DLManagedTensorVersioned *foreign_tensor(struct tally *tally, int ndim, const int64_t *shape,
                                                              const int64_t *strides) {
    struct DLManagedTensorVersioned *managed = (struct DLManagedTensorVersioned *)support_memory(sizeof *managed);
    struct foreign_tensor *own = NULL;
    managed->version.major = 1;
    managed->version.minor = 0;
    managed->dl_tensor = make_foreign_tensor(tally, ndim, shape, strides, &own);
    managed->manager_ctx = own;
    managed->deleter = delete_foreign;
    return managed;
}

static inline void delete_foreign_legacy(struct DLManagedTensor *managed) {
    free_foreign_tensor((struct foreign_tensor *)managed->manager_ctx);
    free(managed);
}

static inline struct DLManagedTensor *foreign_legacy(struct tally *tally, int ndim, const int64_t *shape,
                                                     const int64_t *strides) {
    struct DLManagedTensor *managed = (struct DLManagedTensor *)support_memory(sizeof *managed);
    struct foreign_tensor *own = NULL;
    managed->dl_tensor = make_foreign_tensor(tally, ndim, shape, strides, &own);
    managed->manager_ctx = own;
    managed->deleter = delete_foreign_legacy;
    return managed;
}

/* --- Arrow schemas --- */

struct foreign_schema_own {
    struct tally *tally;
    char *format;
    char *name;
    char *metadata;
};

/* Releases what is still there of the children and the dictionary first, as the specification requires. */
static inline void release_foreign_schema(struct ArrowSchema *schema) {
    struct foreign_schema_own *own = (struct foreign_schema_own *)schema->private_data;
    for (int64_t i = 0; i < schema->n_children; ++i) {
        if (schema->children[i]->release != NULL) {
            schema->children[i]->release(schema->children[i]);
        }
        free(schema->children[i]);
    }
    free(schema->children);
    if (schema->dictionary != NULL) {
        if (schema->dictionary->release != NULL) {
            schema->dictionary->release(schema->dictionary);
        }
        free(schema->dictionary);
    }
    atomic_fetch_add(&own->tally->releases, 1);
    atomic_fetch_sub(&own->tally->live, 1);
    if (!own->tally->forgets) {
        schema->release = NULL;
    }
    free(own->format);
    free(own->name);
    free(own->metadata);
    free(own);
}

static inline struct ArrowSchema foreign_schema(struct tally *tally, const char *format, const char *name) {
    struct ArrowSchema schema;
    memset(&schema, 0, sizeof schema);
    struct foreign_schema_own *own = (struct foreign_schema_own *)support_memory(sizeof *own);
    own->tally = tally;
    own->format = support_text(format);
    own->name = support_text(name);
    schema.format = own->format;
    schema.name = own->name;
    schema.flags = ARROW_FLAG_NULLABLE;
    schema.release = release_foreign_schema;
    schema.private_data = own;
    atomic_fetch_add(&tally->live, 1);
    return schema;
}

static inline void set_metadata(struct ArrowSchema *schema, const void *block, size_t bytes) {
    struct foreign_schema_own *own = (struct foreign_schema_own *)schema->private_data;
    own->metadata = (char *)support_copy(block, bytes);
    schema->metadata = own->metadata;
}

/* Moves `child` to the end of the children. */
static inline void add_schema_child(struct ArrowSchema *schema, struct ArrowSchema child) {
    size_t const n = (size_t)schema->n_children + 1;
    schema->children = (struct ArrowSchema **)realloc((void *)schema->children, n * sizeof *schema->children);
    schema->children[n - 1] = (struct ArrowSchema *)support_copy(&child, sizeof child);
    schema->n_children = (int64_t)n;
}

static inline void set_schema_dictionary(struct ArrowSchema *schema, struct ArrowSchema values) {
    schema->dictionary = (struct ArrowSchema *)support_copy(&values, sizeof values);
}

/* --- Arrow arrays --- */

static inline void release_foreign_array(struct ArrowArray *array) {
    struct tally *tally = (struct tally *)array->private_data;
    for (int64_t i = 0; i < array->n_children; ++i) {
        if (array->children[i]->release != NULL) {
            array->children[i]->release(array->children[i]);
        }
        free(array->children[i]);
    }
    free(array->children);
    if (array->dictionary != NULL) {
        if (array->dictionary->release != NULL) {
            array->dictionary->release(array->dictionary);
        }
        free(array->dictionary);
    }
    for (int64_t i = 0; i < array->n_buffers; ++i) {
        free((void *)array->buffers[i]);
    }
    free((void *)array->buffers);
    atomic_fetch_add(&tally->releases, 1);
    atomic_fetch_sub(&tally->live, 1);
    if (!tally->forgets) {
        array->release = NULL;
    }
}

/* An array with this number of buffers, all still NULL. */
static inline struct ArrowArray foreign_array(struct tally *tally, int64_t length, int64_t n_buffers) {
    struct ArrowArray array;
    memset(&array, 0, sizeof array);
    array.length = length;
    array.n_buffers = n_buffers;
    if (n_buffers > 0) {
        array.buffers = (const void **)support_memory((size_t)n_buffers * sizeof *array.buffers);
    }
    array.release = release_foreign_array;
    array.private_data = tally;
    atomic_fetch_add(&tally->live, 1);
    return array;
}

static inline void set_buffer(struct ArrowArray *array, int index, const void *values, size_t bytes) {
    free((void *)array->buffers[index]);
    array->buffers[index] = support_copy(values, bytes);
}

static inline void add_array_child(struct ArrowArray *array, struct ArrowArray child) {
    size_t const n = (size_t)array->n_children + 1;
    array->children = (struct ArrowArray **)realloc((void *)array->children, n * sizeof *array->children);
    array->children[n - 1] = (struct ArrowArray *)support_copy(&child, sizeof child);
    array->n_children = (int64_t)n;
}

static inline void set_array_dictionary(struct ArrowArray *array, struct ArrowArray values) {
    array->dictionary = (struct ArrowArray *)support_copy(&values, sizeof values);
}

/* int32 values 0, 1, 2, ... without nulls. */
static inline struct ArrowArray foreign_numbers(struct tally *tally, int64_t length) {
    struct ArrowArray array = foreign_array(tally, length, 2);
    int32_t *values = (int32_t *)support_memory((size_t)length * sizeof *values);
    for (int64_t i = 0; i < length; ++i) {
        values[i] = (int32_t)i;
    }
    array.buffers[1] = values;
    return array;
}

/* Texts "a", "bb", "ccc", "dddd", ... */
static inline struct ArrowArray foreign_texts(struct tally *tally, int64_t length) {
    struct ArrowArray array = foreign_array(tally, length, 3);
    int32_t *offsets = (int32_t *)support_memory(((size_t)length + 1) * sizeof *offsets);
    for (int64_t i = 0; i < length; ++i) {
        offsets[i + 1] = offsets[i] + (int32_t)i + 1;
    }
    char *bytes = (char *)support_memory((size_t)offsets[length]);
    for (int64_t i = 0; i < length; ++i) {
        memset(bytes + offsets[i], 'a' + (int)(i % 26), (size_t)i + 1);
    }
    array.buffers[1] = offsets;
    array.buffers[2] = bytes;
    return array;
}

/* A record batch {number: int32, text: utf8} with this number of rows: schema and array, three structs each. */
static inline void foreign_batch(struct tally *tally, int64_t length, struct ArrowSchema *schema,
                                 struct ArrowArray *array) {
    *schema = foreign_schema(tally, "+s", NULL);
    add_schema_child(schema, foreign_schema(tally, "i", "number"));
    add_schema_child(schema, foreign_schema(tally, "u", "text"));
    *array = foreign_array(tally, length, 1);
    add_array_child(array, foreign_numbers(tally, length));
    add_array_child(array, foreign_texts(tally, length));
}

/* Moves a struct of the Arrow C data interface as a consumer does: copies the bytes and clears `release` of the source. */
#define ARROW_MOVE(from, to)                                                                                           \
    do {                                                                                                               \
        *(to) = *(from);                                                                                               \
        (from)->release = NULL;                                                                                        \
    } while (0)

static inline void release_array(struct ArrowArray *array) {
    if (array->release != NULL) {
        array->release(array);
    }
}

static inline void release_schema(struct ArrowSchema *schema) {
    if (schema->release != NULL) {
        schema->release(schema);
    }
}

/* --- orders --- */

enum { HOLDERS = 4 };

/* Calls `check` with each order of four holders, which are numbered. */
static inline void in_every_order(void (*check)(const int *order)) {
    int order[HOLDERS];
    for (int code = 0; code < HOLDERS * HOLDERS * HOLDERS * HOLDERS; ++code) {
        int seen = 0;
        for (int i = 0, rest = code; i < HOLDERS; ++i, rest /= HOLDERS) {
            order[i] = rest % HOLDERS;
            seen |= 1 << order[i];
        }
        if (seen == (1 << HOLDERS) - 1) {
            CHECK_CALL(check(order));
        }
    }
}

#endif /* DEVEXCHANGE_TESTS_TEST_SUPPORT_H_ */
