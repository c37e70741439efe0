/* The benches with two threads, which are the same for all implementations of DLPack.
 *
 *   threads/released-elsewhere   one thread exports, the other one imports and releases; a queue is between them
 *   threads/two-at-once          both threads export, import and release, from one producer
 *
 * Allocations are counted on both threads.
 */
#ifndef THREADS_H_
#define THREADS_H_

#ifdef __cplusplus
extern "C" {
#endif

struct thread_bench {
    void *(*set_up)(int size);
    void (*tear_down)(void *state);
    /* Both threads may call these at once. */
    void *(*export_one)(void *state);
    void (*import_one)(void *handed);
};

/* A program calls this at most once. `bench` must stay valid as long as the program runs. */
void add_thread_benches(const struct thread_bench *bench);

#ifdef __cplusplus
}
#endif

#endif
