/* Counts what a program allocates: malloc and its relatives are defined here, so that calls of the library come here, too.
 * Valgrind and ASan have their own malloc, which takes precedence: then nothing can be counted, and tests say so.
 */
#ifndef COUNTING_H_
#define COUNTING_H_

#include "test_support.h"

#include <errno.h>

static _Thread_local int counting;
static _Thread_local int allocations;
/* Blocks that this thread has allocated and not freed. Not every test looks at it. */
__attribute__((unused)) static _Thread_local int64_t blocks;

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *memory);

void *malloc(size_t size) {
    allocations += counting;
    blocks += 1;
    return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
    allocations += counting;
    blocks += 1;
    return __libc_calloc(count, size);
}
void *realloc(void *memory, size_t size) {
    allocations += counting;
    blocks += memory == NULL;
    return __libc_realloc(memory, size);
}
void *memalign(size_t alignment, size_t size) {
    allocations += counting;
    blocks += 1;
    return __libc_memalign(alignment, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
    allocations += counting;
    blocks += 1;
    return __libc_memalign(alignment, size);
}
int posix_memalign(void **out, size_t alignment, size_t size) {
    allocations += counting;
    blocks += 1;
    *out = __libc_memalign(alignment, size);
    return *out == NULL ? ENOMEM : 0;
}
void free(void *memory) {
    blocks -= memory != NULL;
    __libc_free(memory);
}
#endif

/* The number of allocations that the statement makes on this thread. */
#define COUNT_ALLOCATIONS(into, statement)                                                                             \
    do {                                                                                                               \
        allocations = 0;                                                                                               \
        counting = 1;                                                                                                  \
        statement;                                                                                                     \
        counting = 0;                                                                                                  \
        (into) = allocations;                                                                                          \
    } while (0)

/* Whether allocations come here. */
static int counts(void) {
    int seen = 0;
    void *memory = NULL;
    /* Compilers assume that malloc changes no variable of ours. */
    void *(*volatile allocate)(size_t) = malloc;
    COUNT_ALLOCATIONS(seen, memory = allocate(1));
    free(memory);
    return seen > 0;
}

#define NEEDS_COUNTS()                                                                                                 \
    do {                                                                                                               \
        if (!counts()) {                                                                                               \
            SKIP("malloc is not ours here (valgrind, ASan)");                                                          \
        }                                                                                                              \
    } while (0)

#endif
