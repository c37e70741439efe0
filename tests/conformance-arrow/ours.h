/*
 * Our side of every exchange, in C so that peers in all languages call the same functions. `give` exports a case of the
 * corpus (corpus/__main__.py) from devexchange. `take` imports what a peer exports and compares it with the rows, the
 * null counts and the schema of the case.
 *
 * Functions that return int return 1 on success and 0 on failure; `ours_why` has the reason.
 */
#ifndef DEVX_CONFORMANCE_OURS_H_
#define DEVX_CONFORMANCE_OURS_H_

#include <devexchange.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ours_case ours_case;

/* A case of the corpus in one layout; ends the process if it cannot be read. */
ours_case *ours_open(char const *corpus, char const *name, char const *layout);
void ours_close(ours_case *it);
char const *ours_why(ours_case const *it);

/* Exports: with `cuda`, of a copy on CUDA device 0. */
int ours_give(ours_case *it, struct ArrowArray *array, struct ArrowSchema *schema);
int ours_give_device(ours_case *it, int cuda, struct ArrowDeviceArray *array, struct ArrowSchema *schema);

/* Imports, and compares with rows `first` to `first + count` of the case; all rows if `count` is negative. */
int ours_take(ours_case *it, int64_t first, int64_t count, struct ArrowArray *array, struct ArrowSchema *schema);
int ours_take_device(
    ours_case *it, int64_t first, int64_t count, struct ArrowDeviceArray *array, struct ArrowSchema *schema);

/* Streams of `n` times the batch. */
int ours_give_stream(ours_case *it, int n, struct ArrowArrayStream *out);
int ours_give_device_stream(ours_case *it, int cuda, int n, struct ArrowDeviceArrayStream *out);
int ours_take_stream(ours_case *it, int n, struct ArrowArrayStream *source);
int ours_take_device_stream(ours_case *it, int n, struct ArrowDeviceArrayStream *source);

/* Asynchronous streams of `n` times the batch: `give` pushes the batches into the peer's handler, `take` compares the
   batches that `produce` pushes into our handler. Each wait takes at most five seconds. */
int ours_give_async(ours_case *it, int cuda, int n, struct ArrowAsyncDeviceStreamHandler *handler);
int ours_take_async(
    ours_case *it,
    int cuda,
    int n,
    void (*produce)(void *context, struct ArrowAsyncDeviceStreamHandler *handler),
    void *context);

int64_t ours_n_rows(ours_case const *it);
/* The text of row `row`, with dates and times as their stored numbers. */
char const *ours_stored_row(ours_case const *it, int64_t row);

/* Waits up to five seconds until everything is released; returns what the ledger still counts. */
int64_t ours_outstanding(void);

#ifdef __cplusplus
}
#endif

#endif
