/* Bad input, described once for all languages: what the library of this crate exports.
 *
 * A runner goes through all cases that are for its language, and fails if it ran fewer than corpus_count_for says. For
 * each: corpus_make, the import through the API of the language, corpus_after, then everything that was imported is
 * closed, then corpus_end. Texts are UTF-8 and stay. A description that is not as it should be ends the program.
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

/* All cases have the numbers 0 to corpus_count() - 1. */
int64_t corpus_count(void);

/* How many cases a runner has to run here and now; "rust", "c", "java", "julia", "python". */
int64_t corpus_count_for(const char *language);

/* Whether a case is one of them. */
int32_t corpus_is_for(int64_t i, const char *language);

/* What the description says: "name"; "kind" (what is imported); "base"; "status" (the name of the error's status, empty
 * if the input has to be accepted); "says" (what the error's text has in it); "stage" ("import", or "read": the import
 * succeeds, and reading all rows or batches fails); "source" (of the rule); "needs" ("cuda", or empty); "edits" (a line
 * each). */
const char *corpus_text(int64_t i, const char *what);

/* The number of the error's status; 0 if the input has to be accepted, -1 for what is no status of the C API. */
int32_t corpus_status(int64_t i);

/* 4096 bytes on CUDA device 0; NULL if there is no driver. For inputs that the runner makes itself. */
void *corpus_device_memory(void);

/* How many batches a stream gives before its end or its error. */
int64_t corpus_batches(int64_t i);

/* Makes the input. Given back by corpus_end. */
corpus_made *corpus_make(int64_t i);

/* The struct to import: ArrowSchema, ArrowArray, ArrowDeviceArray, ArrowArrayStream, ArrowDeviceArrayStream,
 * DLManagedTensorVersioned, DLManagedTensor or devx_cuda_array. */
void *corpus_address(corpus_made *made);

/* The schema of an array: a good one, which the import may take along. */
struct ArrowSchema *corpus_schema(corpus_made *made);

/* Where an exporter listens that offers something under every name. */
const char *corpus_listens(corpus_made *made);

/* Lets the producer of an asynchronous stream call a handler, until it releases it; NULL if there was no memory for one. */
void corpus_drive(corpus_made *made, struct ArrowAsyncDeviceStreamHandler *handler);

/* Says what became of the import: 1 it was refused, 0 it was taken. NULL, or what is wrong with who owns what now. */
const char *corpus_after(corpus_made *made, int32_t refused);

/* After everything was closed. The producer lets go of what is still its own. NULL, or what was not released exactly
 * as often as it should be. */
const char *corpus_end(corpus_made *made);

/* Allocations that fail: those of one library that is loaded, by the beginning of its file's name. How many places of it
 * were changed for that; 0 if there is no such library. Before other threads use it. */
int32_t corpus_fault_install(const char *library);

/* The nth allocation (1: the next one) that the library makes on this thread fails, and all after it if from_then_on. */
void corpus_fault_arm(int64_t nth, int32_t from_then_on);

/* None fails any more. How many did. */
int64_t corpus_fault_disarm(void);

/* Callbacks that fail, on whatever thread they come: the nth one (1: the next one) of all producers and consumers of the
 * corpus. `how` is 0 for a code; 1 for a code and, where there is a place for it, a text; 2 for a success with a struct
 * that is wrong (a consumer: that asks for what cannot be); 3 for a consumer that cancels. */
void corpus_callback_arm(int64_t nth, int32_t how);

/* None fails any more. 1 if one did. */
int32_t corpus_callback_disarm(void);

/* Of the one that failed, as it was when it was disarmed: the status of the error that has to come of it, and what its
 * text has in it. */
int32_t corpus_callback_status(void);
const char *corpus_callback_says(void);

/* A consumer of an asynchronous stream: it asks for eight batches at once and lets go of what it gets. */
typedef struct corpus_consumer corpus_consumer;
corpus_consumer *corpus_consumer_make(void);

/* Its handler, which the producer has to release before the consumer ends. */
struct ArrowAsyncDeviceStreamHandler *corpus_consumer_handler(corpus_consumer *consumer);

/* Gives the consumer back. NULL, or what the producer did wrong. */
const char *corpus_consumer_end(corpus_consumer *consumer);

#ifdef __cplusplus
}
#endif

#endif /* DEVEXCHANGE_CORPUS_H_ */
