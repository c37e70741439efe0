#include "allocations.h"

#include <errno.h>
#include <stdlib.h>

/* With another TLS model, access to the variable may call malloc, which would recurse. */
static _Thread_local int64_t allocations __attribute__((tls_model("initial-exec")));

int64_t bench_allocations(void) {
    return allocations;
}

void bench_add_allocations(int64_t of_other) {
    allocations += of_other;
}

/* A malloc in the program or in a preloaded library replaces libc's everywhere; these names still reach libc's. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size) {
    allocations += 1;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    allocations += 1;
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
    allocations += 1;
    return __libc_realloc(memory, size);
}

void *memalign(size_t alignment, size_t size) {
    allocations += 1;
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
    *out = memalign(alignment, size);
    return *out == NULL ? ENOMEM : 0;
}
