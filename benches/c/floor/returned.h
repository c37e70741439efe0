/* Blocks of one size that come back from other threads: the least that can be done for them. The owner takes from a list
 * of its own, and all that came back at once when that is empty.
 *
 * A thread's blocks have to be back before it ends; the blocks themselves are never given up.
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

/* One for each thread. */
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
