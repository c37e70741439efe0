/* One batch of a stream, through libdevexchange: the producer returns the same prepared batch each time, and the
 * consumer imports and releases it. The stream is set up beforehand and does not end.
 */
#include "../bench.h"
#include "../data.h"
#include "table.h"

/* --- the plain and the device stream, from which the consumer pulls --- */

struct pulled {
    struct table table;
    devx_batch_stream_t *stream; /* the consumer's end */
};

static devx_status next(void *context, devx_batch_t **out, devx_error *error) {
    return devx_batch_share(((struct pulled *)context)->table.batch, out, error);
}

static devx_batch_stream_t *make_stream(struct pulled *pulled) {
    devx_batch_source const source = {pulled, next, NULL};
    devx_batch_stream_t *stream = NULL;
    MUST(devx_batch_stream_create(pulled->table.schema, kDLCPU, &source, &stream, NULL) == DEVX_OK);
    return stream;
}

static struct pulled *new_pulled(int columns) {
    struct pulled *pulled = calloc(1, sizeof *pulled);
    MUST(pulled != NULL);
    pulled->table = make_table(columns);
    return pulled;
}

static void *set_up_plain(int columns) {
    struct pulled *pulled = new_pulled(columns);
    devx_batch_stream_t *produced = make_stream(pulled);
    struct ArrowArrayStream handed;
    MUST(devx_batch_stream_export(&produced, &handed, NULL) == DEVX_OK);
    MUST(devx_batch_stream_import(&handed, &pulled->stream, NULL) == DEVX_OK);
    return pulled;
}

static void *set_up_device(int columns) {
    struct pulled *pulled = new_pulled(columns);
    devx_batch_stream_t *produced = make_stream(pulled);
    struct ArrowDeviceArrayStream handed;
    MUST(devx_batch_stream_export_device(&produced, &handed, NULL) == DEVX_OK);
    MUST(devx_batch_stream_import_device(&handed, &pulled->stream, NULL) == DEVX_OK);
    return pulled;
}

static void run_pulled(void *state, int64_t times) {
    const struct pulled *pulled = state;
    for (int64_t i = 0; i < times; ++i) {
        devx_batch_t *seen = NULL;
        MUST(devx_batch_stream_next(pulled->stream, &seen, NULL) == DEVX_OK && seen != NULL);
        devx_batch_release(&seen);
    }
}

static void tear_down_pulled(void *state) {
    struct pulled *pulled = state;
    devx_batch_stream_release(&pulled->stream);
    release_table(&pulled->table);
    free(pulled);
}

/* --- the asynchronous stream, with producer and consumer on one thread --- */

struct pushed {
    struct table table;
    devx_async_reader_t *reader;
    devx_async_writer_t *writer;
};

static void *set_up_async(int columns) {
    struct pushed *pushed = calloc(1, sizeof *pushed);
    struct ArrowAsyncDeviceStreamHandler *handler = NULL;
    MUST(pushed != NULL);
    pushed->table = make_table(columns);
    MUST(devx_async_reader_create(2, 1, NULL, &pushed->reader, NULL) == DEVX_OK);
    MUST(devx_async_reader_handler(pushed->reader, &handler, NULL) == DEVX_OK);
    MUST(devx_async_writer_create(handler, kDLCPU, NULL, NULL, &pushed->writer, NULL) == DEVX_OK);
    MUST(devx_async_writer_start(pushed->writer, pushed->table.schema, NULL) == DEVX_OK);
    return pushed;
}

static void run_async(void *state, int64_t times) {
    const struct pushed *pushed = state;
    for (int64_t i = 0; i < times; ++i) {
        devx_batch_t *sent = NULL, *seen = NULL;
        MUST(devx_batch_share(pushed->table.batch, &sent, NULL) == DEVX_OK);
        MUST(devx_async_writer_send_move(pushed->writer, &sent, NULL, NULL) == DEVX_OK);
        MUST(devx_async_reader_next(pushed->reader, 0, &seen, NULL, NULL) == DEVX_OK && seen != NULL);
        devx_batch_release(&seen);
    }
}

static void tear_down_async(void *state) {
    struct pushed *pushed = state;
    MUST(devx_async_writer_finish(pushed->writer, NULL) == DEVX_OK);
    devx_async_writer_release(&pushed->writer);
    devx_async_reader_release(&pushed->reader);
    release_table(&pushed->table);
    free(pushed);
}

BENCHES {
    for (int i = 0; i < N_STREAM_WIDTHS; ++i) {
        bench_add("stream/plain", stream_widths[i], set_up_plain, run_pulled, tear_down_pulled);
        bench_add("stream/device", stream_widths[i], set_up_device, run_pulled, tear_down_pulled);
        bench_add("stream/async", stream_widths[i], set_up_async, run_async, tear_down_async);
    }
}
