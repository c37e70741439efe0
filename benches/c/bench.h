/* What a program with benches provides: functions that repeat an operation a given number of times. The rest (main,
 * the clock, the count of allocations, the conversation with benches/run.py) is in bench.c.
 */
#ifndef BENCH_H_
#define BENCH_H_

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The implementation's name in the table: -DBENCH_IMPLEMENTATION, or without that, defined by the program. */
extern const char *const bench_implementation;

/* Adds an implementation of an operation, whose name gets "/SIZE" unless `size` is 0. `set_up` makes the state that
 * `run` works on, and `tear_down` destroys it. Only `run` is measured, after a few repetitions as a warm-up.
 */
void bench_add(const char *operation, int size, void *(*set_up)(int size), void (*run)(void *state, int64_t times),
               void (*tear_down)(void *state));

/* Same as bench_add, for a program with several implementations. */
void bench_add_as(const char *implementation, const char *operation, int size, void *(*set_up)(int size),
                  void (*run)(void *state, int64_t times), void (*tear_down)(void *state));

/* `run` adds the nanoseconds of what is not to be counted. */
extern int64_t bench_left_out;
int64_t bench_now(void);

#ifdef __cplusplus
}
#endif

/* The body that follows adds the benches of a file. It runs before main. */
#define BENCHES __attribute__((constructor)) static void add_benches(void)

/* Ends the program if the condition is false: a bench that fails has no figure. */
#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
