/* What a program with benches is made of: ways of doing operations, each in a function that does it so many times.
 * The rest (clock, count of allocations, the conversation with benches/run.py) is in bench.c.
 */
#ifndef BENCH_H_
#define BENCH_H_

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the table calls it: -DBENCH_IMPLEMENTATION, or the program's own where it is not C. */
extern const char *const bench_implementation;

/* Adds one way of doing an operation, whose name gets "/SIZE" if it has a size. `set_up` makes, and `tear_down` takes
 * away, what `run` works on; only `run` is measured, and before that it ran a few times.
 */
void bench_add(const char *operation, int size, void *(*set_up)(int size), void (*run)(void *state, int64_t times),
               void (*tear_down)(void *state));

/* The same for a program that has several implementations. */
void bench_add_as(const char *implementation, const char *operation, int size, void *(*set_up)(int size),
                  void (*run)(void *state, int64_t times), void (*tear_down)(void *state));

/* A run that has to do something which does not count adds its nanoseconds here. */
extern int64_t bench_left_out;
int64_t bench_now(void);

#ifdef __cplusplus
}
#endif

/* The body that follows adds the benches of a file; it runs before main, which is bench.c's. */
#define BENCHES __attribute__((constructor)) static void add_benches(void)

/* A bench in which something fails measures nothing. */
#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
