/*
 * Our side of every exchange with a peer, in C, so that a peer in any language calls the same: the cases of the corpus
 * (corpus/__main__.py) as batches of devexchange, handed out; and what a peer hands back, taken in and compared with
 * the rows, the nulls and the schema that the case has.
 *
 * Functions that return int return 1 for yes, and 0 with the reason in the case's `why` for no.
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

/* Asynchronous streams of `n` times the batch: all is pushed into a handler of the peer's, or what `produce` pushes
   into the handler that it is given is compared. No wait takes longer than five seconds. */
int ours_give_async(ours_case *it, int cuda, int n, struct ArrowAsyncDeviceStreamHandler *handler);
int ours_take_async(
    ours_case *it,
    int cuda,
    int n,
    void (*produce)(void *context, struct ArrowAsyncDeviceStreamHandler *handler),
    void *context);

int64_t ours_n_rows(ours_case const *it);
/* What row `row` is shown as, with dates and times as the numbers that they are stored as. */
char const *ours_stored_row(ours_case const *it, int64_t row);

/* Waits up to five seconds until everything is released; how much is not. */
int64_t ours_outstanding(void);

#ifdef __cplusplus
}
#endif

#endif
