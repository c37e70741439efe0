/*
 * Foreign producers and consumers of streams, on threads that Julia did not start. Their counters are in their structs,
 * which batch_streams.jl and async.jl read.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow/c/async.h"
#include "arrow/c/device_stream.h"
#include "arrow/c/stream.h"

/* --- arrays: struct<a: int64> with one row, which holds a number --- */

struct made {
    int64_t value;
    const void *values[2];
    const void *none[1];
    struct ArrowArray column;
    struct ArrowArray *children[1];
};

static atomic_long arrays_live, schemas_live;

long foreign_arrays_live(void) {
    return arrays_live;
}

long foreign_schemas_live(void) {
    return schemas_live;
}

static void column_release(struct ArrowArray *array) {
    array->release = NULL;
}

static void array_release(struct ArrowArray *array) {
    struct made *own = (struct made *)array->private_data;
    if (own->column.release) own->column.release(&own->column);
    free(own);
    array->release = NULL;
    arrays_live -= 1;
}

static void make_array(struct ArrowArray *out, int64_t value) {
    struct made *own = (struct made *)calloc(1, sizeof *own);
    own->value = value;
    own->values[1] = &own->value;
    own->children[0] = &own->column;
    own->column = (struct ArrowArray){1, 0, 0, 2, 0, own->values, NULL, NULL, column_release, NULL};
    *out = (struct ArrowArray){1, 0, 0, 1, 1, own->none, own->children, NULL, array_release, own};
    arrays_live += 1;
}

struct described {
    struct ArrowSchema column;
    struct ArrowSchema *children[1];
};

static void column_schema_release(struct ArrowSchema *schema) {
    schema->release = NULL;
}

static void schema_release(struct ArrowSchema *schema) {
    struct described *own = (struct described *)schema->private_data;
    if (own->column.release) own->column.release(&own->column);
    free(own);
    schema->release = NULL;
    schemas_live -= 1;
}

static void make_schema(struct ArrowSchema *out) {
    struct described *own = (struct described *)calloc(1, sizeof *own);
    own->children[0] = &own->column;
    own->column = (struct ArrowSchema){"l", "a", NULL, 0, 0, NULL, NULL, column_schema_release, NULL};
    *out = (struct ArrowSchema){"+s", "", NULL, 0, 1, own->children, NULL, schema_release, own};
    schemas_live += 1;
}

static int64_t value_of(const struct ArrowArray *array) {
    const struct ArrowArray *column = array->children[0];
    return ((const int64_t *)column->buffers[1])[column->offset];
}

/* --- a stream of `batches` arrays, followed by its end or an error --- */

struct producer {
    int64_t batches;
    int64_t fails; /* the code of the error; 0 for the end */
    int64_t given;
    int64_t releases;
    int64_t interrupts; /* the array before which it interrupts the process; 0 for none */
};

/* Sends Ctrl-C to the process, and gives Julia time to note it. */
static void interrupt(void) {
    kill(getpid(), SIGINT);
    usleep(300000);
}

static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void *interrupt_at(void *deadline) {
    while (nanoseconds() < *(int64_t *)deadline) {
    }
    free(deadline);
    kill(getpid(), SIGINT);
    return NULL;
}

/* Sends Ctrl-C to the process in so many nanoseconds, on a thread of its own: a timer would be less exact. */
int foreign_interrupt_in(int64_t wait) {
    int64_t *deadline = malloc(sizeof *deadline);
    pthread_t thread;
    if (deadline == NULL) return ENOMEM;
    *deadline = nanoseconds() + wait;
    int const code = pthread_create(&thread, NULL, interrupt_at, deadline);
    if (code) free(deadline);
    return code ? code : pthread_detach(thread);
}

static int give(struct producer *own, struct ArrowArray *out) {
    if (own->interrupts == own->given + 1) interrupt();
    if (own->given < own->batches) {
        make_array(out, ++own->given);
        return 0;
    }
    memset(out, 0, sizeof *out);
    return (int)own->fails;
}

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    (void)stream;
    make_schema(out);
    return 0;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    return give((struct producer *)stream->private_data, out);
}

static const char *get_last_error(struct ArrowArrayStream *stream) {
    (void)stream;
    return "the disk is on fire";
}

static void stream_release(struct ArrowArrayStream *stream) {
    ((struct producer *)stream->private_data)->releases += 1;
    stream->release = NULL;
}

void foreign_stream(struct producer *own, struct ArrowArrayStream *out) {
    *out = (struct ArrowArrayStream){get_schema, get_next, get_last_error, stream_release, own};
}

static int get_device_schema(struct ArrowDeviceArrayStream *stream, struct ArrowSchema *out) {
    (void)stream;
    make_schema(out);
    return 0;
}

static int get_device_next(struct ArrowDeviceArrayStream *stream, struct ArrowDeviceArray *out) {
    memset(out, 0, sizeof *out);
    out->device_id = -1;
    out->device_type = stream->device_type;
    return give((struct producer *)stream->private_data, &out->array);
}

static const char *get_last_device_error(struct ArrowDeviceArrayStream *stream) {
    (void)stream;
    return "the device is on fire";
}

static void device_stream_release(struct ArrowDeviceArrayStream *stream) {
    ((struct producer *)stream->private_data)->releases += 1;
    stream->release = NULL;
}

void foreign_device_stream(struct producer *own, struct ArrowDeviceArrayStream *out) {
    *out = (struct ArrowDeviceArrayStream){ARROW_DEVICE_CPU,      get_device_schema,     get_device_next,
                                           get_last_device_error, device_stream_release, own};
}

/* --- a consumer that reads a stream to its end, an error or `most` batches, and releases it --- */

struct puller {
    struct ArrowArrayStream *stream;
    int64_t most; /* negative for all */
    int64_t batches;
    int64_t sum;
    int64_t code;
    int64_t done;
    char text[512];
    pthread_t thread;
};

int foreign_pull(struct puller *own) {
    struct ArrowSchema schema;
    own->code = own->stream->get_schema(own->stream, &schema);
    if (own->code == 0) schema.release(&schema);
    while (own->code == 0 && own->batches != own->most) {
        struct ArrowArray array;
        own->code = own->stream->get_next(own->stream, &array);
        if (own->code != 0) {
            const char *text = own->stream->get_last_error(own->stream);
            snprintf(own->text, sizeof own->text, "%s", text ? text : "");
        } else if (array.release == NULL) {
            break;
        } else {
            own->batches += 1;
            own->sum += value_of(&array);
            array.release(&array);
        }
    }
    own->stream->release(own->stream);
    __atomic_store_n(&own->done, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static void *pull_on_thread(void *own) {
    foreign_pull((struct puller *)own);
    return NULL;
}

/* Runs foreign_pull on a thread of its own, which sets `done` at the end. */
int foreign_pull_on_thread(struct puller *own) {
    int const code = pthread_create(&own->thread, NULL, pull_on_thread, own);
    return code ? code : pthread_detach(own->thread);
}

/* Runs foreign_pull on a thread of its own, and waits for that thread. */
int foreign_pull_and_join(struct puller *own) {
    int const code = pthread_create(&own->thread, NULL, pull_on_thread, own);
    return code ? code : pthread_join(own->thread, NULL);
}

/* --- an asynchronous producer with a thread of its own --- */

struct async_producer {
    int64_t batches;
    int64_t fails; /* the code of the error after them; 0 for the end */
    int64_t schema_first; /* 0: ends or fails without a schema */
    int64_t sent;
    int64_t extracted;
    int64_t most_ahead; /* the largest number of batches that were requested but not sent */
    int64_t cancels;
    int64_t done;
    int64_t interrupts; /* the batch whose extraction interrupts the process; 0 for none */
    struct ArrowAsyncDeviceStreamHandler *handler;
    struct ArrowAsyncProducer base;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t requested;
    pthread_t thread;
};

static void async_request(struct ArrowAsyncProducer *base, int64_t n) {
    struct async_producer *own = (struct async_producer *)base->private_data;
    pthread_mutex_lock(&own->lock);
    own->requested += n;
    if (own->requested - own->sent > own->most_ahead) own->most_ahead = own->requested - own->sent;
    pthread_cond_signal(&own->changed);
    pthread_mutex_unlock(&own->lock);
}

static void async_cancel(struct ArrowAsyncProducer *base) {
    struct async_producer *own = (struct async_producer *)base->private_data;
    pthread_mutex_lock(&own->lock);
    own->cancels += 1;
    pthread_cond_signal(&own->changed);
    pthread_mutex_unlock(&own->lock);
}

static int async_extract(struct ArrowAsyncTask *task, struct ArrowDeviceArray *out) {
    struct async_producer *own = (struct async_producer *)((void **)task->private_data)[0];
    int64_t const value = ((int64_t *)task->private_data)[1];
    free(task->private_data);
    __atomic_add_fetch(&own->extracted, 1, __ATOMIC_SEQ_CST);
    if (own->interrupts == value) interrupt();
    if (out) {
        memset(out, 0, sizeof *out);
        out->device_id = -1;
        out->device_type = ARROW_DEVICE_CPU;
        make_array(&out->array, value);
    }
    return 0;
}

/* Waits until a batch is requested; 0 if the consumer cancelled. */
static int demanded(struct async_producer *own) {
    pthread_mutex_lock(&own->lock);
    while (own->requested <= own->sent && own->cancels == 0) pthread_cond_wait(&own->changed, &own->lock);
    int const go_on = own->cancels == 0;
    pthread_mutex_unlock(&own->lock);
    return go_on;
}

/* A metadata block of one pair, {"n": "0"} to {"n": "9"}. */
static void number_block(char *block, int64_t number) {
    int32_t const one = 1;
    memcpy(block, &one, 4);
    memcpy(block + 4, &one, 4);
    block[8] = 'n';
    memcpy(block + 9, &one, 4);
    block[13] = (char)('0' + number % 10);
}

static int send_all(struct async_producer *own) {
    struct ArrowAsyncDeviceStreamHandler *handler = own->handler;
    while (own->sent < own->batches) {
        if (!demanded(own)) return 0;
        void **held = (void **)malloc(2 * sizeof *held);
        held[0] = own;
        ((int64_t *)held)[1] = own->sent + 1;
        struct ArrowAsyncTask task = {async_extract, held};
        char block[14];
        number_block(block, own->sent + 1);
        pthread_mutex_lock(&own->lock);
        own->sent += 1;
        pthread_mutex_unlock(&own->lock);
        if (handler->on_next_task(handler, &task, block) != 0) return 0;
    }
    return 1;
}

static void *produce_on_thread(void *context) {
    struct async_producer *own = (struct async_producer *)context;
    struct ArrowAsyncDeviceStreamHandler *handler = own->handler;
    own->base = (struct ArrowAsyncProducer){ARROW_DEVICE_CPU, async_request, async_cancel, NULL, own};
    handler->producer = &own->base;
    int go_on = 1;
    if (own->schema_first) {
        struct ArrowSchema schema;
        make_schema(&schema);
        go_on = handler->on_schema(handler, &schema) == 0 && send_all(own);
        if (schema.release) schema.release(&schema);
    }
    if (go_on && own->fails) {
        char block[14];
        number_block(block, 7);
        handler->on_error(handler, (int)own->fails, "the network is down", block);
    } else if (go_on) {
        handler->on_next_task(handler, NULL, NULL);
    }
    handler->release(handler);
    __atomic_store_n(&own->done, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

int64_t foreign_async_producer_bytes(void) {
    return sizeof(struct async_producer);
}

int foreign_produce(struct async_producer *own, struct ArrowAsyncDeviceStreamHandler *handler) {
    own->handler = handler;
    pthread_mutex_init(&own->lock, NULL);
    pthread_cond_init(&own->changed, NULL);
    int const code = pthread_create(&own->thread, NULL, produce_on_thread, own);
    return code ? code : pthread_detach(own->thread);
}

/* --- an asynchronous consumer, which requests batches on a thread of its own --- */

struct async_consumer {
    int64_t at_a_time; /* batches requested at a time */
    int64_t cancels_at; /* cancels after this many batches; negative for never */
    int64_t refuses_at; /* refuses the batch after this many; -2 refuses the schema, -1 nothing */
    int64_t batches;
    int64_t sum;
    int64_t pairs; /* batches with metadata */
    int64_t ended;
    int64_t code; /* from on_error */
    int64_t releases;
    char text[512];
    struct ArrowAsyncDeviceStreamHandler base;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t asked, over;
    pthread_t thread;
};

static int consumer_schema(struct ArrowAsyncDeviceStreamHandler *base, struct ArrowSchema *schema) {
    struct async_consumer *own = (struct async_consumer *)base->private_data;
    schema->release(schema);
    return own->refuses_at == -2 ? ENOTSUP : 0;
}

static int consumer_next(struct ArrowAsyncDeviceStreamHandler *base, struct ArrowAsyncTask *task,
                         const char *metadata) {
    struct async_consumer *own = (struct async_consumer *)base->private_data;
    if (task == NULL) {
        own->ended += 1;
        return 0;
    }
    if (own->batches == own->refuses_at) return ENOSPC;
    struct ArrowDeviceArray array;
    int const code = task->extract_data(task, &array);
    if (code != 0) return code;
    own->sum += value_of(&array.array);
    array.array.release(&array.array);
    if (metadata) own->pairs += 1;
    pthread_mutex_lock(&own->lock);
    own->batches += 1;
    pthread_cond_signal(&own->changed);
    pthread_mutex_unlock(&own->lock);
    return 0;
}

static void consumer_error(struct ArrowAsyncDeviceStreamHandler *base, int code, const char *text,
                           const char *metadata) {
    struct async_consumer *own = (struct async_consumer *)base->private_data;
    (void)metadata;
    own->code = code;
    snprintf(own->text, sizeof own->text, "%s", text ? text : "");
}

static void consumer_release(struct ArrowAsyncDeviceStreamHandler *base) {
    struct async_consumer *own = (struct async_consumer *)base->private_data;
    base->release = NULL;
    pthread_mutex_lock(&own->lock);
    own->over = 1;
    pthread_cond_signal(&own->changed);
    pthread_mutex_unlock(&own->lock);
    __atomic_add_fetch(&own->releases, 1, __ATOMIC_SEQ_CST);
}

static void *ask_on_thread(void *context) {
    struct async_consumer *own = (struct async_consumer *)context;
    pthread_mutex_lock(&own->lock);
    while (!own->over) {
        /* The producer stays valid until the handler's release returns, and this release takes the lock. */
        struct ArrowAsyncProducer *producer = own->base.producer;
        if (producer && own->cancels_at >= 0 && own->batches >= own->cancels_at) {
            producer->cancel(producer);
            break;
        }
        if (producer && own->batches == own->asked) {
            own->asked += own->at_a_time;
            producer->request(producer, own->at_a_time);
        }
        pthread_cond_wait(&own->changed, &own->lock);
    }
    pthread_mutex_unlock(&own->lock);
    return NULL;
}

int64_t foreign_async_consumer_bytes(void) {
    return sizeof(struct async_consumer);
}

struct ArrowAsyncDeviceStreamHandler *foreign_consumer(struct async_consumer *own) {
    own->base = (struct ArrowAsyncDeviceStreamHandler){consumer_schema,  consumer_next, consumer_error,
                                                       consumer_release, NULL,          own};
    pthread_mutex_init(&own->lock, NULL);
    pthread_cond_init(&own->changed, NULL);
    return &own->base;
}

/* Starts the consumer. The producer must have called on_schema before. */
int foreign_consume(struct async_consumer *own) {
    return pthread_create(&own->thread, NULL, ask_on_thread, own);
}

int foreign_consumer_join(struct async_consumer *own) {
    return pthread_join(own->thread, NULL);
}
