/* How often this thread called malloc and its relatives, counted by standing before them: linked into a program, or
 * as a library of its own that is loaded before all others (LD_PRELOAD).
 */
#ifndef ALLOCATIONS_H_
#define ALLOCATIONS_H_

#include <stdint.h>

int64_t bench_allocations(void);

#endif
