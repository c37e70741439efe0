#include "threads.h"
#include "allocations.h"
#include "bench.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

/* The queue is short, so that everything in it stays in the cache. */
enum { QUEUE = 64, LINE_BYTES = 64 };

static const struct thread_bench *bench;

/* What the second thread repeats: the import and release, or the whole exchange. Negative `times` end the thread. */
enum task { IMPORT, EVERYTHING };

struct pair {
    void *state;
    pthread_t second;
    enum task task;
    int64_t times;
    /* How often the second thread called malloc and its relatives in the last round. */
    int64_t allocations;
    /* Rounds: each request increments `asked`, and when it is done, `answered` becomes the same number. */
    _Alignas(LINE_BYTES) atomic_int_fast64_t asked;
    _Alignas(LINE_BYTES) atomic_int_fast64_t answered;
    /* The queue, and how many structs were put in and taken out since the beginning. */
    _Alignas(LINE_BYTES) atomic_int_fast64_t in;
    _Alignas(LINE_BYTES) atomic_int_fast64_t out;
    void *handed[QUEUE];
};

/* Waits until the number is at least `at_least`. It yields, because the other thread may need this processor. */
static int64_t wait_for(atomic_int_fast64_t *number, int64_t at_least) {
    int64_t seen;
    for (int turns = 0; (seen = atomic_load_explicit(number, memory_order_acquire)) < at_least; ++turns) {
        if (turns % 128 == 127) sched_yield();
    }
    return seen;
}

static void export_all(struct pair *pair, int64_t times) {
    int64_t in = atomic_load_explicit(&pair->in, memory_order_relaxed);
    int64_t out = atomic_load_explicit(&pair->out, memory_order_acquire);
    for (int64_t i = 0; i < times; ++i) {
        void *handed = bench->export_one(pair->state);
        if (in - out == QUEUE) out = wait_for(&pair->out, in - QUEUE + 1);
        pair->handed[in % QUEUE] = handed;
        atomic_store_explicit(&pair->in, ++in, memory_order_release);
    }
}

static void import_all(struct pair *pair, int64_t times) {
    int64_t out = atomic_load_explicit(&pair->out, memory_order_relaxed);
    int64_t in = atomic_load_explicit(&pair->in, memory_order_acquire);
    for (int64_t i = 0; i < times; ++i) {
        if (in == out) in = wait_for(&pair->in, out + 1);
        void *handed = pair->handed[out % QUEUE];
        atomic_store_explicit(&pair->out, ++out, memory_order_release);
        bench->import_one(handed);
    }
}

static void do_everything(struct pair *pair, int64_t times) {
    for (int64_t i = 0; i < times; ++i) bench->import_one(bench->export_one(pair->state));
}

static void *second_thread(void *context) {
    struct pair *pair = context;
    for (int64_t round = 1;; ++round) {
        wait_for(&pair->asked, round);
        if (pair->times < 0) return NULL;
        int64_t const before = bench_allocations();
        if (pair->task == IMPORT) import_all(pair, pair->times);
        else do_everything(pair, pair->times);
        pair->allocations = bench_allocations() - before;
        atomic_store_explicit(&pair->answered, round, memory_order_release);
    }
}

static int64_t ask(struct pair *pair, enum task task, int64_t times) {
    pair->task = task;
    pair->times = times;
    return atomic_fetch_add_explicit(&pair->asked, 1, memory_order_release) + 1;
}

static void finish(struct pair *pair, int64_t round) {
    wait_for(&pair->answered, round);
    bench_add_allocations(pair->allocations);
}

static void *set_up(int size) {
    struct pair *pair = aligned_alloc(LINE_BYTES, sizeof *pair);
    MUST(pair != NULL);
    *pair = (struct pair){.state = bench->set_up(size)};
    MUST(pthread_create(&pair->second, NULL, second_thread, pair) == 0);
    return pair;
}

static void run_elsewhere(void *state, int64_t times) {
    struct pair *pair = state;
    int64_t const round = ask(pair, IMPORT, times);
    export_all(pair, times);
    finish(pair, round);
}

static void run_both(void *state, int64_t times) {
    struct pair *pair = state;
    int64_t const round = ask(pair, EVERYTHING, times / 2);
    do_everything(pair, times - times / 2);
    finish(pair, round);
}

static void tear_down(void *state) {
    struct pair *pair = state;
    ask(pair, IMPORT, -1);
    MUST(pthread_join(pair->second, NULL) == 0);
    bench->tear_down(pair->state);
    free(pair);
}

void add_thread_benches(const struct thread_bench *added) {
    bench = added;
    bench_add("threads/released-elsewhere", 0, set_up, run_elsewhere, tear_down);
    bench_add("threads/two-at-once", 0, set_up, run_both, tear_down);
}
