/* The least that an allocation can cost: the thread keeps one block that was given back, and takes it again. A larger
 * block, and a second one at the same time, come from malloc. A block may be given back on any thread.
 */
#ifndef POOL_H_
#define POOL_H_

#include <stddef.h>
#include <stdlib.h>

/* The head of each block. */
struct block {
    size_t bytes;
};

/* One pool for each thread and kind of block. */
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
    } else if (pool->free->bytes < block->bytes) { /* the larger block fits more requests */
        free(pool->free);
        pool->free = block;
    } else {
        free(block);
    }
}

#endif
