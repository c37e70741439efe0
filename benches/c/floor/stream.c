/* One batch of a stream, with the least work. */
#include "../bench.h"
#include "../data.h"
#include "table.h"

#include <arrow/c/async.h>
#include <arrow/c/device_stream.h>
#include <arrow/c/stream.h>
#include <errno.h>

static const char *no_error_plain(struct ArrowArrayStream *stream) {
    (void)stream;
    return NULL;
}

static const char *no_error_device(struct ArrowDeviceArrayStream *stream) {
    (void)stream;
    return NULL;
}

static struct seen_schema *agree(struct table *table) {
    struct ArrowSchema schema;
    MUST(export_schema(table, &schema) == 0);
    struct seen_schema *agreed = import_schema(&schema);
    MUST(agreed != NULL);
    return agreed;
}

static void end(struct table *table, struct seen_schema *agreed) {
    release_seen_schema(agreed);
    MUST(atomic_load(&table->owner.users) == 1);
    owner_drop(&table->owner);
}

/* --- plain --- */

struct plain {
    struct ArrowArrayStream stream;
    struct table *table;
    struct seen_schema *agreed;
};

static int plain_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    return export_schema(stream->private_data, out);
}

static int plain_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    return export_array(stream->private_data, out);
}

static void plain_release(struct ArrowArrayStream *stream) {
    stream->release = NULL;
}

static void *set_up_plain(int columns) {
    struct plain *plain = calloc(1, sizeof *plain);
    MUST(plain != NULL);
    plain->table = new_table(columns, &table_format, 1);
    plain->agreed = agree(plain->table);
    plain->stream = (struct ArrowArrayStream){plain_schema, plain_next, no_error_plain, plain_release, plain->table};
    return plain;
}

static void run_plain(void *state, int64_t times) {
    struct plain *plain = state;
    for (int64_t i = 0; i < times; ++i) {
        struct ArrowArray array;
        MUST(plain->stream.get_next(&plain->stream, &array) == 0);
        struct seen *seen = import_array(&array, plain->agreed);
        MUST(seen != NULL);
        release_seen(seen);
    }
}

static void tear_down_plain(void *state) {
    struct plain *plain = state;
    plain->stream.release(&plain->stream);
    end(plain->table, plain->agreed);
    free(plain);
}

/* --- device --- */

struct device {
    struct ArrowDeviceArrayStream stream;
    struct table *table;
    struct seen_schema *agreed;
};

static int device_schema(struct ArrowDeviceArrayStream *stream, struct ArrowSchema *out) {
    return export_schema(stream->private_data, out);
}

static int device_next(struct ArrowDeviceArrayStream *stream, struct ArrowDeviceArray *out) {
    return export_device_array(stream->private_data, out);
}

static void device_release(struct ArrowDeviceArrayStream *stream) {
    stream->release = NULL;
}

static void *set_up_device(int columns) {
    struct device *device = calloc(1, sizeof *device);
    MUST(device != NULL);
    device->table = new_table(columns, &table_format, 1);
    device->agreed = agree(device->table);
    device->stream = (struct ArrowDeviceArrayStream){ARROW_DEVICE_CPU, device_schema,  device_next,
                                                     no_error_device,  device_release, device->table};
    return device;
}

static void run_device(void *state, int64_t times) {
    struct device *device = state;
    for (int64_t i = 0; i < times; ++i) {
        struct ArrowDeviceArray array;
        MUST(device->stream.get_next(&device->stream, &array) == 0);
        struct seen *seen = import_device_array(&array, device->agreed);
        MUST(seen != NULL);
        release_seen(seen);
    }
}

static void tear_down_device(void *state) {
    struct device *device = state;
    device->stream.release(&device->stream);
    end(device->table, device->agreed);
    free(device);
}

/* --- asynchronous ---
 *
 * Producer and consumer run on one thread. Each side uses atomics all the same, because `request` may come from any
 * thread. The consumer keeps a task until it needs the batch.
 */

struct async {
    struct ArrowAsyncDeviceStreamHandler handler;
    struct ArrowAsyncProducer producer;
    struct table *table;
    struct seen_schema *agreed;
    atomic_int_fast64_t demand; /* the producer's: batches requested and not sent yet */
    struct ArrowAsyncTask task; /* the consumer's, set if has_task is */
    atomic_int has_task;
    int done;
};

static void request(struct ArrowAsyncProducer *producer, int64_t n) {
    atomic_fetch_add(&((struct async *)producer->private_data)->demand, n);
}

static void cancel(struct ArrowAsyncProducer *producer) {
    (void)producer;
}

static int extract(struct ArrowAsyncTask *task, struct ArrowDeviceArray *out) {
    return export_device_array(task->private_data, out);
}

static int on_schema(struct ArrowAsyncDeviceStreamHandler *handler, struct ArrowSchema *schema) {
    struct async *async = handler->private_data;
    async->agreed = import_schema(schema);
    if (async->agreed == NULL) return EINVAL;
    handler->producer->request(handler->producer, 2);
    return 0;
}

static int on_next_task(struct ArrowAsyncDeviceStreamHandler *handler, struct ArrowAsyncTask *task,
                        const char *metadata) {
    struct async *async = handler->private_data;
    (void)metadata;
    if (task == NULL) {
        async->done = 1;
        return 0;
    }
    async->task = *task;
    atomic_store_explicit(&async->has_task, 1, memory_order_release);
    return 0;
}

static void on_error(struct ArrowAsyncDeviceStreamHandler *handler, int code, const char *message,
                     const char *metadata) {
    (void)handler, (void)code, (void)message, (void)metadata;
}

static void release_handler(struct ArrowAsyncDeviceStreamHandler *handler) {
    handler->release = NULL;
}

static void *set_up_async(int columns) {
    struct async *async = calloc(1, sizeof *async);
    struct ArrowSchema schema;
    MUST(async != NULL);
    async->table = new_table(columns, &table_format, 1);
    async->producer = (struct ArrowAsyncProducer){ARROW_DEVICE_CPU, request, cancel, NULL, async};
    async->handler = (struct ArrowAsyncDeviceStreamHandler){on_schema,       on_next_task,     on_error,
                                                            release_handler, &async->producer, async};
    MUST(export_schema(async->table, &schema) == 0);
    MUST(async->handler.on_schema(&async->handler, &schema) == 0);
    return async;
}

static void send(struct async *async) {
    struct ArrowAsyncTask task = {extract, async->table};
    MUST(atomic_load_explicit(&async->demand, memory_order_acquire) > 0);
    atomic_fetch_sub(&async->demand, 1);
    MUST(async->handler.on_next_task(&async->handler, &task, NULL) == 0);
}

static struct seen *take(struct async *async) {
    struct ArrowDeviceArray array;
    MUST(atomic_exchange_explicit(&async->has_task, 0, memory_order_acquire) == 1);
    MUST(async->task.extract_data(&async->task, &array) == 0);
    async->handler.producer->request(async->handler.producer, 1);
    return import_device_array(&array, async->agreed);
}

static void run_async(void *state, int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
        send(state);
        struct seen *seen = take(state);
        MUST(seen != NULL);
        release_seen(seen);
    }
}

static void tear_down_async(void *state) {
    struct async *async = state;
    MUST(async->handler.on_next_task(&async->handler, NULL, NULL) == 0 && async->done);
    async->handler.release(&async->handler);
    end(async->table, async->agreed);
    free(async);
}

BENCHES {
    for (int i = 0; i < N_STREAM_WIDTHS; ++i) {
        bench_add("stream/plain", stream_widths[i], set_up_plain, run_plain, tear_down_plain);
        bench_add("stream/device", stream_widths[i], set_up_device, run_device, tear_down_device);
        bench_add("stream/async", stream_widths[i], set_up_async, run_async, tear_down_async);
    }
}
