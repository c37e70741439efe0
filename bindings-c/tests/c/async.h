/* What the tests of asynchronous streams share: wakes, batches of ours, and a foreign consumer. */
#ifndef DEVEXCHANGE_TESTS_ASYNC_H_
#define DEVEXCHANGE_TESTS_ASYNC_H_

#include "test_support.h"

/* --- wakes --- */

struct woken {
    atomic_int wakes;
    atomic_int releases;
};

static inline void on_wake(void *context) {
    atomic_fetch_add(&((struct woken *)context)->wakes, 1);
}

static inline void on_wake_release(void *context) {
    atomic_fetch_add(&((struct woken *)context)->releases, 1);
}

static inline devx_wake waking(struct woken *woken) {
    devx_wake const wake = {woken, on_wake, on_wake_release};
    return wake;
}

/* --- batches of ours --- */

static inline devx_schema_t *numbers_schema(void) {
    devx_field const fields[] = {{"+s", NULL, NULL, 0, 1, 0}, {"i", "number", NULL, 0, 0, 0}};
    devx_schema_t *schema = NULL;
    return devx_schema_create(fields, 2, &schema, &error) == DEVX_OK ? schema : NULL;
}

/* A batch with this number of rows, at most 8. */
static inline devx_batch_t *numbers(const devx_schema_t *schema, int64_t rows, struct tally *tally, devx_error *said) {
    static const int32_t values[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const void *const none[] = {NULL};
    const void *const buffers[] = {NULL, values};
    devx_node const nodes[] = {{rows, 0, 0, none, 1}, {rows, 0, 0, buffers, 2}};
    devx_owner const owner = counting_owner(tally);
    devx_batch_t *batch = NULL;
    return devx_batch_create(schema, cpu, nodes, 2, &owner, &batch, said) == DEVX_OK ? batch : NULL;
}

static inline int64_t rows_of(const devx_batch_t *batch) {
    devx_batch_info info;
    return devx_batch_get_info(batch, &info, &error) == DEVX_OK ? info.length : -1;
}

/* One pair {"k": "v"}. */
static inline const char *a_block(void) {
    static char block[14];
    int32_t const numbers[] = {1, 1, 1};
    memcpy(block, &numbers[0], 4);
    memcpy(block + 4, &numbers[1], 4);
    block[8] = 'k';
    memcpy(block + 9, &numbers[2], 4);
    block[13] = 'v';
    return block;
}

/* --- a foreign consumer --- */

struct foreign_consumer {
    struct ArrowAsyncDeviceStreamHandler base;
    int schemas;
    int ends;
    int errors;
    int releases;
    int code; /* that on_next_task returns */
    char text[64];
    int n_tasks;
    struct ArrowAsyncTask tasks[8];
};

#define CONSUMER(handler) ((struct foreign_consumer *)(handler)->private_data)

static inline int consumer_schema(struct ArrowAsyncDeviceStreamHandler *handler, struct ArrowSchema *schema) {
    CONSUMER(handler)->schemas += 1;
    release_schema(schema);
    handler->producer->request(handler->producer, 2);
    return 0;
}

static inline int consumer_task(struct ArrowAsyncDeviceStreamHandler *handler, struct ArrowAsyncTask *task,
                                const char *metadata) {
    struct foreign_consumer *own = CONSUMER(handler);
    (void)metadata;
    if (task == NULL) {
        own->ends += 1;
    } else {
        own->tasks[own->n_tasks++] = *task;
    }
    return own->code;
}

static inline void consumer_error(struct ArrowAsyncDeviceStreamHandler *handler, int code, const char *message,
                                  const char *metadata) {
    struct foreign_consumer *own = CONSUMER(handler);
    (void)metadata;
    own->errors += 1;
    snprintf(own->text, sizeof own->text, "%d %s", code, message);
}

static inline void consumer_release(struct ArrowAsyncDeviceStreamHandler *handler) {
    CONSUMER(handler)->releases += 1;
    handler->release = NULL;
}

/* The handler of a consumer that was told nothing yet. */
static inline struct ArrowAsyncDeviceStreamHandler consumer_handler(struct foreign_consumer *consumer) {
    struct ArrowAsyncDeviceStreamHandler const handler = {consumer_schema,  consumer_task, consumer_error,
                                                          consumer_release, NULL,          consumer};
    return handler;
}

#endif
