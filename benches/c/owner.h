/* The owner of memory: a count of its users, and a function to call when the last one has dropped its share. */
#ifndef OWNER_H_
#define OWNER_H_

#include <stdatomic.h>
#include <stdint.h>

struct owner {
    atomic_int_fast64_t users;
    void (*release)(void *context);
    void *context;
};

static inline void owner_share(struct owner *owner) {
    atomic_fetch_add_explicit(&owner->users, 1, memory_order_relaxed);
}

static inline void owner_drop(struct owner *owner) {
    if (atomic_fetch_sub_explicit(&owner->users, 1, memory_order_acq_rel) == 1) owner->release(owner->context);
}

#endif
