/* Each allocation of the library fails once in asynchronous streams, both ends of which are made, used and released here. */
#include "faults.h"

static void on_wake(void *context) {
    (void)context;
}

static devx_wake waking(void) {
    devx_owner const owner = living();
    return (devx_wake){owner.context, on_wake, owner.release};
}

/* More batches than a queue has room for at first. */
enum { REQUESTED = 6 };

/* A block of no pairs. */
static const int32_t no_pairs = 0;

/* A reader, and a writer for it that has started. */
struct both {
    devx_async_reader_t *reader;
    devx_async_writer_t *writer;
    devx_schema_t *schema;
    devx_batch_t *batch;
    int started, sent, taken;
};

static void start(struct both *both) {
    struct ArrowAsyncDeviceStreamHandler *handler = NULL;
    devx_wake const wakes[2] = {waking(), waking()};
    *both = (struct both){0};
    both->batch = made_batch(&both->schema);
    if (!TRY(devx_async_reader_create(REQUESTED, 1, &wakes[0], &both->reader, &error))) {
        wakes[0].release(wakes[0].context);
    }
    (void)TRY(devx_async_reader_handler(both->reader, &handler, &error));
    const char *const block = (const char *)&no_pairs;
    if (!TRY(devx_async_writer_create(handler, kDLCPU, block, &wakes[1], &both->writer, &error))) {
        wakes[1].release(wakes[1].context);
        if (handler != NULL) {
            CHECK(handler->producer == NULL);
            handler->release(handler);
        }
    }
    both->started = TRY(devx_async_writer_start(both->writer, both->schema, &error)) && both->batch != NULL;
}

/* Sends what is requested. A reader that has no memory cancels, which is no error of this call; the reader reports it later. */
static void send(struct both *both) {
    int64_t demand = 0;
    (void)TRY(devx_async_writer_demand(both->writer, &demand, &error));
    for (; demand > 0; --demand) {
        devx_batch_t *mine = NULL;
        (void)TRY(devx_batch_share(both->batch, &mine, &error));
        devx_status const status = devx_async_writer_send_move(both->writer, &mine, (const char *)&no_pairs, &error);
        CHECK((mine == NULL) == (status == DEVX_OK));
        both->sent += status == DEVX_OK;
        (void)(status != DEVX_CLOSED && note("send", status));
        devx_batch_release(&mine);
    }
}

static void take(struct both *both) {
    /* An error is not the end. But if there is no memory to say that nothing has come, every call gives that error. */
    for (int last = 0, errors = 0; !last && errors < 2;) {
        devx_batch_t *batch = NULL;
        devx_metadata_t *metadata = NULL;
        devx_status const status = devx_async_reader_next(both->reader, 0, &batch, &metadata, &error);
        both->taken += batch != NULL && metadata != NULL;
        last = status == DEVX_NOT_READY || (status == DEVX_OK && batch == NULL);
        errors += status != DEVX_NOT_READY && !note("next", status);
        devx_batch_release(&batch);
        devx_metadata_release(&metadata);
    }
}

static void end(struct both *both) {
    devx_async_writer_release(&both->writer);
    devx_async_reader_release(&both->reader);
    devx_batch_release(&both->batch);
    devx_schema_release(&both->schema);
}

static void asynchronous_streams(void) {
    struct both both;
    start(&both);
    if (both.started) {
        send(&both);
        take(&both);
        send(&both);
        devx_status const finished = devx_async_writer_finish(both.writer, &error);
        take(&both);
        CHECK(both.taken == both.sent || without_memory + told > 0);
        CHECK(finished == DEVX_OK || without_memory + told > 0);
    }
    end(&both);
}

/* Streams that are broken off by the producer, by the consumer, and by neither. */
static void asynchronous_streams_that_break_off(void) {
    for (int how = 0; how < 3; ++how) {
        struct both both;
        int32_t code = 0;
        devx_metadata_t *metadata = NULL;
        start(&both);
        if (both.started) {
            send(&both);
            if (how == 0) {
                int const failed = devx_async_writer_fail(both.writer, 5, "no luck", NULL, &error) == DEVX_OK;
                int const before = without_memory + told;
                take(&both);
                CHECK_INT(without_memory + told, before + 1);
                (void)TRY(devx_async_reader_producer_error(both.reader, &code, &metadata, &error));
                CHECK(code == 5 || !failed || without_memory > 0);
                told -= without_memory + told == 1;
            } else if (how == 1) {
                (void)TRY(devx_async_reader_cancel(both.reader, &error));
            } else {
                devx_async_reader_release(&both.reader);
            }
        }
        devx_metadata_release(&metadata);
        end(&both);
    }
}

/* --- the sweeps --- */

TEST(allocations_can_fail) {
    CHECK_CALL(make_allocations_fail(asynchronous_streams));
}

SWEEP(asynchronous_streams)
SWEEP(asynchronous_streams_that_break_off)

TEST(there_were_many) {
    printf("# %d faults\n", (int)injected);
    CHECK(injected > 2000);
}

CHECK_MAIN()
