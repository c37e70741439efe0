/* How often this thread called malloc and its relatives. allocations.c replaces these functions with ones that count:
 * it is linked into the program, or preloaded as a library of its own (LD_PRELOAD).
 */
#ifndef ALLOCATIONS_H_
#define ALLOCATIONS_H_

#include <stdint.h>

int64_t bench_allocations(void);

/* Adds those of another thread, which work for this one. */
void bench_add_allocations(int64_t of_other);

#endif
