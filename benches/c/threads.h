/* The benches of two threads, which are the same for all who have DLPack: somebody exports, somebody imports and
 * releases.
 *
 *   threads/released-elsewhere   one thread exports, another one imports and releases; a queue is between them
 *   threads/two-at-once          both threads export, import and release, of one producer
 *
 * Allocations are those of the thread that exports, or of one of the two.
 */
#ifndef THREADS_H_
#define THREADS_H_

#ifdef __cplusplus
extern "C" {
#endif

struct thread_bench {
    void *(*set_up)(int size);
    void (*tear_down)(void *state);
    /* Both are called from several threads at a time. */
    void *(*export_one)(void *state);
    void (*import_one)(void *handed);
};

/* `bench` stays as long as the program runs; one to a program. */
void add_thread_benches(const struct thread_bench *bench);

#ifdef __cplusplus
}
#endif

#endif
