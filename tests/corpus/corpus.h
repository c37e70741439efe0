/* Bad input, described once for all languages: the exports of this crate's library.
 *
 * A runner goes through all cases for its language, and fails if it ran fewer than corpus_count_for says. For each case
 * it calls corpus_make, imports through the API of the language, calls corpus_after, closes everything that was
 * imported, and calls corpus_end. Texts are UTF-8 and are never freed. An invalid description ends the program.
 */
#ifndef DEVEXCHANGE_CORPUS_H_
#define DEVEXCHANGE_CORPUS_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct corpus_made corpus_made;
struct ArrowSchema;
struct ArrowAsyncDeviceStreamHandler;

/* The number of all cases; they are numbered from 0. */
int64_t corpus_count(void);

/* How many cases a runner must run here and now; "rust", "c", "java", "julia", "python". */
int64_t corpus_count_for(const char *language);

/* Whether a runner must run a case. */
int32_t corpus_is_for(int64_t i, const char *language);

/* A text of the description: "name"; "kind" (what is imported); "base"; "status" (the name of the error's status, empty
 * if the input must be accepted); "says" (a part of the error's text); "stage" ("import", or "read": the import
 * succeeds, and reading all rows or batches fails); "source" (of the rule); "needs" ("cuda", or empty); "edits" (one
 * per line). */
const char *corpus_text(int64_t i, const char *what);

/* The number of the error's status; 0 if the input must be accepted, -1 if it is not a status of the C API. */
int32_t corpus_status(int64_t i);

/* 4096 bytes on CUDA device 0; NULL if there is no driver. For inputs that the runner makes itself. */
void *corpus_device_memory(void);

/* How many batches a stream gives before its end or its error. */
int64_t corpus_batches(int64_t i);

/* Makes the input. corpus_end gives it back. */
corpus_made *corpus_make(int64_t i);

/* The struct to import: ArrowSchema, ArrowArray, ArrowDeviceArray, ArrowArrayStream, ArrowDeviceArrayStream,
 * DLManagedTensorVersioned, DLManagedTensor or devx_cuda_array. */
void *corpus_address(corpus_made *made);

/* The schema of an array: a good one, which the import may take together with the array. */
struct ArrowSchema *corpus_schema(corpus_made *made);

/* The address of an exporter that offers something under every name. */
const char *corpus_listens(corpus_made *made);

/* Lets the producer of an asynchronous stream call a handler until the producer releases it; the handler is NULL if there
 * was no memory for one. */
void corpus_drive(corpus_made *made, struct ArrowAsyncDeviceStreamHandler *handler);

/* To be called after the import; refused is 1 if the import refused the input, 0 if it took it. Returns NULL, or what is
 * wrong with the ownership now. */
const char *corpus_after(corpus_made *made, int32_t refused);

/* To be called after everything was closed. The producer releases what it still owns. Returns NULL, or what was not
 * released exactly as often as it should be. */
const char *corpus_end(corpus_made *made);

/* Prepares failing allocations in one loaded library, named by the beginning of its file's name. Returns how many places
 * of it were changed for that; 0 if there is no such library. To be called before other threads use the library. */
int32_t corpus_fault_install(const char *library);

/* Makes the library's nth allocation (1: the next one) on this thread fail, and all after it if from_then_on. */
void corpus_fault_arm(int64_t nth, int32_t from_then_on);

/* Lets no more allocations fail. Returns how many did. */
int64_t corpus_fault_disarm(void);

/* Makes the nth callback (1: the next one) of all producers and consumers of the corpus fail, on whatever thread it
 * comes. `how` is 0 for a code; 1 for a code and, where there is a place for it, a text; 2 for a success with a wrong
 * struct (for a consumer: with an invalid request); 3 for a consumer that cancels. */
void corpus_callback_arm(int64_t nth, int32_t how);

/* Lets no more callbacks fail. Returns 1 if one did. */
int32_t corpus_callback_disarm(void);

/* The callback that had failed at the last disarming: the status of the error that must result, and a part of the
 * error's text. */
int32_t corpus_callback_status(void);
const char *corpus_callback_says(void);

/* A consumer of an asynchronous stream: it requests eight batches at once and releases what it gets. */
typedef struct corpus_consumer corpus_consumer;
corpus_consumer *corpus_consumer_make(void);

/* The consumer's handler, which the producer must release before the consumer ends. */
struct ArrowAsyncDeviceStreamHandler *corpus_consumer_handler(corpus_consumer *consumer);

/* Gives the consumer back. Returns NULL, or what the producer did wrong. */
const char *corpus_consumer_end(corpus_consumer *consumer);

#ifdef __cplusplus
}
#endif

#endif /* DEVEXCHANGE_CORPUS_H_ */
