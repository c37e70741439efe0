/* A program with benches, as benches/run.py talks to it:
 *
 *   PROGRAM list              prints a line `OPERATION<TAB>IMPLEMENTATION` for each bench
 *   PROGRAM                   reads lines `OPERATION<TAB>IMPLEMENTATION<TAB>TIMES`, repeats the operation TIMES times,
 *                             and answers each line with `NANOSECONDS<TAB>ALLOCATIONS` of all repetitions together
 *
 * Each line is one sample, so that samples of several programs can be taken in turn. The state of a bench is kept until
 * a line names another operation.
 */
#define _GNU_SOURCE
#include "bench.h"
#include "allocations.h"

#include <string.h>
#include <time.h>

/* --- the benches --- */

enum { MOST = 100, NAME_BYTES = 100, WARM_UP = 3 };

struct bench {
    const char *implementation;
    char operation[NAME_BYTES];
    int size;
    void *(*set_up)(int size);
    void (*run)(void *state, int64_t times);
    void (*tear_down)(void *state);
    int is_up;
    void *state;
};

static struct bench benches[MOST];
static int n_benches;

#ifdef BENCH_IMPLEMENTATION
const char *const bench_implementation = BENCH_IMPLEMENTATION;
#endif

int64_t bench_left_out;
static struct bench *current;

void bench_add(const char *operation, int size, void *(*set_up)(int size), void (*run)(void *state, int64_t times),
               void (*tear_down)(void *state)) {
    bench_add_as(bench_implementation, operation, size, set_up, run, tear_down);
}

void bench_add_as(const char *implementation, const char *operation, int size, void *(*set_up)(int size),
                  void (*run)(void *state, int64_t times), void (*tear_down)(void *state)) {
    MUST(n_benches < MOST);
    struct bench *bench = &benches[n_benches++];
    *bench = (struct bench){implementation, "", size, set_up, run, tear_down, 0, NULL};
    int const length = size == 0 ? snprintf(bench->operation, NAME_BYTES, "%s", operation)
                                 : snprintf(bench->operation, NAME_BYTES, "%s/%d", operation, size);
    MUST(length > 0 && length < NAME_BYTES);
}

static struct bench *find(const char *operation, const char *implementation) {
    for (int i = 0; i < n_benches; ++i) {
        struct bench *bench = &benches[i];
        if (strcmp(bench->operation, operation) == 0 && strcmp(bench->implementation, implementation) == 0) return bench;
    }
    return NULL;
}

static void end_operation(void) {
    for (int i = 0; i < n_benches; ++i) {
        if (benches[i].is_up) benches[i].tear_down(benches[i].state);
        benches[i].is_up = 0;
    }
}

static void switch_to(struct bench *bench) {
    if (current != NULL && strcmp(bench->operation, current->operation) != 0) end_operation();
    current = bench;
    if (bench->is_up) return;
    bench->state = bench->set_up(bench->size);
    bench->is_up = 1;
    bench->run(bench->state, WARM_UP);
}

int64_t bench_now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

/* Callgrind counts only within this function, which it finds by its name. */
__attribute__((noinline)) void bench_measured(int64_t times) {
    current->run(current->state, times);
    __asm__ volatile("" ::: "memory"); /* keeps the call above from becoming a tail jump */
}

static void answer(int64_t times) {
    bench_left_out = 0;
    int64_t const before = bench_allocations(), start = bench_now();
    bench_measured(times);
    int64_t const ns = bench_now() - start - bench_left_out;
    printf("%lld\t%lld\n", (long long)ns, (long long)(bench_allocations() - before));
    fflush(stdout);
}

static void list(void) {
    for (int i = 0; i < n_benches; ++i) printf("%s\t%s\n", benches[i].operation, benches[i].implementation);
}

static void serve(void) {
    char line[3 * NAME_BYTES], operation[NAME_BYTES], implementation[NAME_BYTES];
    while (fgets(line, sizeof line, stdin) != NULL) {
        long long times = 0;
        MUST(sscanf(line, "%99[^\t]\t%99[^\t]\t%lld", operation, implementation, &times) == 3 && times > 0);
        struct bench *bench = find(operation, implementation);
        MUST(bench != NULL);
        switch_to(bench);
        answer(times);
    }
    end_operation();
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        list();
    } else {
        MUST(argc == 1);
        serve();
    }
}
