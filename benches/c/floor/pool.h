/* The least that an allocation can cost: a block that this thread gave back and takes again. What is larger than that
 * block, or the second one at a time, comes from malloc. A block may be given back on any thread.
 */
#ifndef POOL_H_
#define POOL_H_

#include <stddef.h>
#include <stdlib.h>

/* The head of each block. */
struct block {
    size_t bytes;
};

/* One for each thread and kind of block. */
struct pool {
    struct block *free;
};

static inline void *pool_take(struct pool *pool, size_t bytes) {
    struct block *block = pool->free;
    if (block != NULL && block->bytes >= bytes) {
        pool->free = NULL;
        return block;
    }
    block = malloc(bytes);
    if (block != NULL) block->bytes = bytes;
    return block;
}

static inline void pool_give(struct pool *pool, void *given) {
    struct block *block = given;
    if (pool->free == NULL) {
        pool->free = block;
    } else if (pool->free->bytes < block->bytes) { /* the larger one serves more */
        free(pool->free);
        pool->free = block;
    } else {
        free(block);
    }
}

#endif
