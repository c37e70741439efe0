/* Rounds of exchanges: how many there are, and whether the memory of the process stays the same.
 *
 * DEVX_ROUNDS sets another number than ten thousand. Only rounds after the first tenth count: before that, pools and tables
 * fill.
 */
#ifndef DEVEXCHANGE_TESTS_ROUNDS_H_
#define DEVEXCHANGE_TESTS_ROUNDS_H_

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

static inline int rounds(void) {
    const char *text = getenv("DEVX_ROUNDS");
    int const wanted = text == NULL ? 0 : atoi(text);
    return wanted > 0 ? wanted : 10000;
}

/* Kilobytes of memory that this process has, shared ones included; 0 if the system does not say. */
static inline long resident_kb(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL) {
        if (fscanf(file, "%*d %ld", &pages) != 1) {
            pages = 0;
        }
        fclose(file);
    }
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static long resident_after_a_tenth;

/* Called in each round: notes the memory after the first tenth. */
static inline void note_round(int i, int n) {
    if (i == n / 10) {
        resident_after_a_tenth = resident_kb();
    }
}

/* From this number of rounds on, the memory is judged. Under valgrind there are fewer rounds: its own records let the process
 * grow, and it finds leaks itself. */
enum { ROUNDS_TO_JUDGE = 10000 };

/* Called after the last round: checks that the memory has not grown. */
static inline void check_flat(char const *what, int n) {
    long const now = resident_kb(), grown = now - resident_after_a_tenth;
    printf("# %s: %d rounds, %ld kB after the first tenth, %+ld kB at the end\n", what, n, resident_after_a_tenth, grown);
    CHECK_MSG(n < ROUNDS_TO_JUDGE || grown < 2048, "%s: memory grew by %ld kB in %d rounds", what, grown, n);
}

#endif /* DEVEXCHANGE_TESTS_ROUNDS_H_ */
