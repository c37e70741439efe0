/* Who keeps memory alive: a count, and what to call when nobody uses the memory any more. */
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
