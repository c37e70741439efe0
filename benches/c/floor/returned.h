/* Blocks of one size that other threads give back, with the least work. A thread takes blocks from its own list; when
 * that is empty, it takes over the list of all blocks that came back.
 *
 * All blocks of a thread must be back before it ends. Blocks are never freed.
 */
#ifndef RETURNED_H_
#define RETURNED_H_

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

/* The head of each block. */
struct link {
    struct link *next;
};

/* One for each thread that takes blocks. */
struct returned {
    struct link *own;
    _Atomic(struct link *) back;
};

static inline void *returned_take(struct returned *home, size_t bytes) {
    if (home->own == NULL) home->own = atomic_exchange_explicit(&home->back, NULL, memory_order_acquire);
    struct link *block = home->own;
    if (block == NULL) return malloc(bytes);
    home->own = block->next;
    return block;
}

static inline void returned_give(struct returned *home, struct link *block) {
    block->next = atomic_load_explicit(&home->back, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&home->back, &block->next, block, memory_order_release,
                                                  memory_order_relaxed)) {
    }
}

#endif
