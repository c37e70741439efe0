/* What an exchange costs that keeps the order of streams: for the producer's own stream, where DLPack needs no call of
 * the driver, and for another stream, which waits for an event. The driver's calls are also measured by themselves.
 */
#include "../c/floor/tensor.h"
#include "driver.h"

/* --- the driver's calls, each by itself --- */

struct calls {
    int64_t stream, other;
    void *event;
};

static void *calls_up(int size) {
    (void)size;
    struct calls *calls = calloc(1, sizeof *calls);
    MUST(calls != NULL);
    *calls = (struct calls){gpu_stream(), gpu_stream(), gpu_event()};
    CU(cu.event_record(calls->event, raw(calls->stream)));
    return calls;
}

static void calls_down(void *state) {
    struct calls *calls = state;
    gpu_stream_end(calls->stream);
    gpu_stream_end(calls->other);
    CU(cu.event_destroy(calls->event));
    free(calls);
}

static void run_record(void *state, int64_t times) {
    const struct calls *calls = state;
    for (int64_t i = 0; i < times; ++i) CU(cu.event_record(calls->event, raw(calls->stream)));
    gpu_settle(calls->stream);
}

static void run_wait(void *state, int64_t times) {
    const struct calls *calls = state;
    for (int64_t i = 0; i < times; ++i) CU(cu.stream_wait(raw(calls->other), calls->event, 0));
    gpu_settle(calls->other);
}

static void run_query(void *state, int64_t times) {
    const struct calls *calls = state;
    gpu_settle(calls->stream);
    for (int64_t i = 0; i < times; ++i) CU(cu.event_query(calls->event));
}

/* --- an exchange --- */

struct exchange {
    int64_t stream, other;
    devx_tensor_t *tensor;
    devx_batch_t *batch;
    devx_schema_t *schema;
    void *event;
    struct producer producer;
};

static void *exchange_up(int size) {
    (void)size;
    struct exchange *exchange = calloc(1, sizeof *exchange);
    MUST(exchange != NULL);
    exchange->stream = gpu_stream();
    exchange->other = gpu_stream();
    exchange->event = gpu_event();
    exchange->tensor = gpu_tensor(4096, exchange->stream);
    OK(devx_tensor_to_column(exchange->tensor, "x", DEVX_COPY_NEVER, &exchange->batch, NULL));
    OK(devx_batch_schema(exchange->batch, &exchange->schema, NULL));
    make_producer(&exchange->producer);
    return exchange;
}

static void exchange_down(void *state) {
    struct exchange *exchange = state;
    devx_schema_release(&exchange->schema);
    devx_batch_release(&exchange->batch);
    devx_tensor_release(&exchange->tensor);
    gpu_settle(exchange->other);
    gpu_stream_end(exchange->stream);
    gpu_stream_end(exchange->other);
    CU(cu.event_destroy(exchange->event));
    free(exchange);
}

static void settle_both(const struct exchange *exchange) {
    gpu_settle(exchange->stream);
    gpu_settle(exchange->other);
}

static void dlpack(const struct exchange *exchange, int64_t stream, int64_t times) {
    devx_dlpack_request const request = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, stream, DEVX_COPY_NEVER};
    for (int64_t i = 0; i < times; ++i) {
        struct DLManagedTensorVersioned *handed = NULL;
        devx_tensor_t *seen = NULL;
        OK(devx_tensor_export_share(exchange->tensor, &request, &handed, NULL));
        OK(devx_tensor_import_on(handed, stream, &seen, NULL));
        devx_tensor_release(&seen);
    }
    settle_both(exchange);
}

static void run_dlpack_same(void *state, int64_t times) {
    const struct exchange *exchange = state;
    dlpack(exchange, exchange->stream, times);
}

static void run_dlpack_other(void *state, int64_t times) {
    const struct exchange *exchange = state;
    dlpack(exchange, exchange->other, times);
}

/* An Arrow array carries an event, and the consumer waits for it. */
static void arrow(const struct exchange *exchange, int64_t stream, int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
        struct ArrowDeviceArray handed;
        devx_batch_t *seen = NULL;
        OK(devx_batch_export_share_device(exchange->batch, &handed, NULL));
        OK(devx_batch_import_device(&handed, exchange->schema, &seen, NULL));
        OK(devx_batch_wait(seen, stream, NULL));
        devx_batch_release(&seen);
    }
    settle_both(exchange);
}

static void run_arrow_same(void *state, int64_t times) {
    const struct exchange *exchange = state;
    arrow(exchange, exchange->stream, times);
}

static void run_arrow_other(void *state, int64_t times) {
    const struct exchange *exchange = state;
    arrow(exchange, exchange->other, times);
}

/* --- the floor: the structs of the C floor for DLPack, and the driver's calls that the order needs --- */

static void exchange_in_order(struct exchange *exchange, int64_t stream, int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
        struct DLManagedTensorVersioned *handed = export_tensor(&exchange->producer);
        CU(cu.event_record(exchange->event, raw(exchange->stream)));
        CU(cu.stream_wait(raw(stream), exchange->event, 0));
        struct DLManagedTensorVersioned *seen = import_tensor(handed);
        MUST(seen != NULL);
        release_tensor(seen);
    }
    settle_both(exchange);
}

static void run_floor_same(void *state, int64_t times) {
    struct exchange *exchange = state;
    for (int64_t i = 0; i < times; ++i) {
        struct DLManagedTensorVersioned *seen = import_tensor(export_tensor(&exchange->producer));
        MUST(seen != NULL);
        release_tensor(seen);
    }
}

/* The producer of an Arrow array does not know the consumer's stream, so it always records an event. */
static void run_floor_arrow_same(void *state, int64_t times) {
    struct exchange *exchange = state;
    exchange_in_order(exchange, exchange->stream, times);
}

static void run_floor_other(void *state, int64_t times) {
    struct exchange *exchange = state;
    exchange_in_order(exchange, exchange->other, times);
}

BENCHES {
    bench_add_as("floor", "driver/event-record", 0, calls_up, run_record, calls_down);
    bench_add_as("floor", "driver/stream-wait", 0, calls_up, run_wait, calls_down);
    bench_add_as("floor", "driver/event-query", 0, calls_up, run_query, calls_down);
    bench_add("exchange/dlpack/same-stream", 0, exchange_up, run_dlpack_same, exchange_down);
    bench_add("exchange/dlpack/other-stream", 0, exchange_up, run_dlpack_other, exchange_down);
    bench_add("exchange/arrow/same-stream", 0, exchange_up, run_arrow_same, exchange_down);
    bench_add("exchange/arrow/other-stream", 0, exchange_up, run_arrow_other, exchange_down);
    bench_add_as("floor", "exchange/dlpack/same-stream", 0, exchange_up, run_floor_same, exchange_down);
    bench_add_as("floor", "exchange/dlpack/other-stream", 0, exchange_up, run_floor_other, exchange_down);
    bench_add_as("floor", "exchange/arrow/same-stream", 0, exchange_up, run_floor_arrow_same, exchange_down);
    bench_add_as("floor", "exchange/arrow/other-stream", 0, exchange_up, run_floor_other, exchange_down);
}
