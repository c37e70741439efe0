/* Asynchronous streams: our reader and writer with each other on two threads, and each with a foreign peer. */
#include "async.h"

#include <errno.h>
#include <pthread.h>

static const int64_t second = 1000000000;

/* --- ours with ours --- */

enum { SENT = 500 };

struct writing {
    struct ArrowAsyncDeviceStreamHandler *handler;
    struct tally tally;
    struct woken woken;
    int stops_at; /* fails there, if it comes there */
    devx_status ended;
};

static devx_status write_all(struct writing *own, devx_async_writer_t *writer, const devx_schema_t *schema,
                             devx_error *said) {
    devx_status status = devx_async_writer_start(writer, schema, said);
    for (int i = 0; status == DEVX_OK && i < SENT; ++i) {
        if (i == own->stops_at) {
            return devx_async_writer_fail(writer, ENOSPC, "the disk is full", a_block(), said);
        }
        status = devx_async_writer_ready(writer, 60 * second, said);
        if (status == DEVX_OK) {
            devx_batch_t *batch = numbers(schema, i % 8, &own->tally, said);
            status = devx_async_writer_send_move(writer, &batch, i % 2 == 1 ? a_block() : NULL, said);
            devx_batch_release(&batch);
        }
    }
    return status == DEVX_OK ? devx_async_writer_finish(writer, said) : status;
}

static void *write_on_thread(void *context) {
    struct writing *own = (struct writing *)context;
    devx_error said = {0, 0, ""};
    devx_wake const wake = waking(&own->woken);
    devx_schema_t *schema = numbers_schema();
    devx_async_writer_t *writer = NULL;
    own->ended = devx_async_writer_create(own->handler, ARROW_DEVICE_CPU, a_block(), &wake, &writer, &said);
    if (own->ended == DEVX_OK) {
        own->ended = write_all(own, writer, schema, &said);
    }
    devx_async_writer_release(&writer);
    devx_schema_release(&schema);
    return NULL;
}

static void check_schema(devx_async_reader_t *reader) {
    devx_schema_t *schema = NULL;
    CHECK_OK(devx_async_reader_schema(reader, 60 * second, &schema, &error));
    struct ArrowSchema exported;
    CHECK_OK(devx_schema_export(schema, &exported, &error));
    CHECK_STR(exported.children[0]->name, "number");
    release_schema(&exported);
    devx_schema_release(&schema);

    int32_t device_type = 0;
    devx_metadata_t *metadata = NULL;
    CHECK_OK(devx_async_reader_producer(reader, &device_type, &metadata, &error));
    CHECK_INT(device_type, ARROW_DEVICE_CPU);
    CHECK(metadata != NULL);
    const char *block = NULL;
    size_t bytes = 0;
    CHECK_OK(devx_metadata_block(metadata, &block, &bytes, &error));
    CHECK_INT(bytes, 14);
    CHECK_INT(memcmp(block, a_block(), bytes), 0);
    devx_metadata_release(&metadata);
    CHECK(metadata == NULL);
}

/* Takes batches until the end, an error, or this number; returns how many came. */
static int read_some(devx_async_reader_t *reader, int most, devx_status *status) {
    for (int i = 0;; ++i) {
        devx_batch_t *batch = NULL;
        /* Half of the batches have metadata; if nobody wants it, it is released. */
        int const wanted = i % 4 < 2;
        devx_metadata_t *metadata = UNWRITTEN;
        *status = i == most ? DEVX_OK
                            : devx_async_reader_next(reader, 60 * second, &batch, wanted ? &metadata : NULL, &error);
        if (i == most || *status != DEVX_OK || !wanted) {
            metadata = NULL;
        }
        int const good = batch != NULL && rows_of(batch) == i % 8 && (metadata != NULL) == (wanted && i % 2 == 1);
        int const last = batch == NULL;
        devx_batch_release(&batch);
        devx_metadata_release(&metadata);
        if (last || !good) {
            return last ? i : -1;
        }
    }
}

static void run_threads(int64_t limit, int stops_at, int reads, struct writing *own, struct woken *woken,
                        devx_status *status, int *came) {
    devx_async_reader_t *reader = NULL;
    devx_wake const wake = waking(woken);
    pthread_t thread;
    own->stops_at = stops_at;
    CHECK_OK(devx_async_reader_create(limit, 1, &wake, &reader, &error));
    CHECK_OK(devx_async_reader_handler(reader, &own->handler, &error));
    CHECK_INT(pthread_create(&thread, NULL, write_on_thread, own), 0);
    check_schema(reader);
    *came = read_some(reader, reads, status);
    int32_t code = 0;
    devx_metadata_t *metadata = NULL;
    CHECK_OK(devx_async_reader_producer_error(reader, &code, &metadata, &error));
    CHECK_INT(code, *status == DEVX_CALLBACK ? ENOSPC : 0);
    CHECK_INT(metadata != NULL, *status == DEVX_CALLBACK);
    devx_metadata_release(&metadata);
    devx_async_reader_release(&reader);
    CHECK(reader == NULL);
    pthread_join(thread, NULL);
}

TEST(goes_from_thread_to_thread) {
    for (int64_t limit = 1; limit <= 4; limit += 3) {
        struct writing own = {0};
        struct woken woken = {0};
        devx_status status = DEVX_OK;
        int came = 0;
        CHECK_CALL(run_threads(limit, -1, -1, &own, &woken, &status, &came));
        CHECK_INT(status, DEVX_OK);
        CHECK_INT(came, SENT);
        CHECK_INT(own.ended, DEVX_OK);
        CHECK_INT(own.tally.releases, SENT);
        CHECK(woken.wakes > 0 && own.woken.wakes > 0);
        CHECK_INT(woken.releases, 1);
        CHECK_INT(own.woken.releases, 1);
        CHECK_NOTHING_OUTSTANDING();
    }
}

TEST(an_error_comes_after_the_batches_before_it) {
    struct writing own = {0};
    struct woken woken = {0};
    devx_status status = DEVX_OK;
    int came = 0;
    CHECK_CALL(run_threads(3, 20, -1, &own, &woken, &status, &came));
    CHECK_INT(status, DEVX_CALLBACK);
    CHECK_HAS(error.message, "the disk is full");
    CHECK_INT(came, 20);
    CHECK_INT(own.ended, DEVX_OK);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_reader_that_goes_cancels) {
    struct writing own = {0};
    struct woken woken = {0};
    devx_status status = DEVX_OK;
    int came = 0;
    CHECK_CALL(run_threads(3, -1, 10, &own, &woken, &status, &came));
    CHECK_INT(came, 10);
    CHECK_INT(own.ended, DEVX_CLOSED);
    CHECK_INT(woken.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

/* --- a foreign producer --- */

struct foreign_producer {
    struct ArrowAsyncProducer base;
    struct tally tally;
    int64_t requested;
    int cancels;
};

struct foreign_task {
    struct tally *tally;
    int64_t rows;
    int extracted;
};

static void producer_request(struct ArrowAsyncProducer *producer, int64_t n) {
    ((struct foreign_producer *)producer->private_data)->requested += n;
}

static void producer_cancel(struct ArrowAsyncProducer *producer) {
    ((struct foreign_producer *)producer->private_data)->cancels += 1;
}

/* Extracting twice would read freed memory. */
static int task_extract(struct ArrowAsyncTask *task, struct ArrowDeviceArray *out) {
    struct foreign_task *own = (struct foreign_task *)task->private_data;
    if (out != NULL) {
        memset(out, 0, sizeof *out);
        out->array = foreign_array(own->tally, own->rows, 1);
        add_array_child(&out->array, foreign_numbers(own->tally, own->rows));
        out->device_id = -1;
        out->device_type = ARROW_DEVICE_CPU;
    }
    atomic_fetch_sub(&own->tally->live, 1);
    free(own);
    return 0;
}

static struct ArrowAsyncTask foreign_task(struct tally *tally, int64_t rows) {
    struct foreign_task *own = (struct foreign_task *)support_memory(sizeof *own);
    own->tally = tally;
    own->rows = rows;
    atomic_fetch_add(&tally->live, 1);
    struct ArrowAsyncTask const task = {task_extract, own};
    return task;
}

static void introduce(struct foreign_producer *producer, struct ArrowAsyncDeviceStreamHandler *handler, int *code) {
    producer->base.device_type = ARROW_DEVICE_CPU;
    producer->base.request = producer_request;
    producer->base.cancel = producer_cancel;
    producer->base.private_data = producer;
    handler->producer = &producer->base;
    struct ArrowSchema schema = foreign_schema(&producer->tally, "+s", NULL);
    add_schema_child(&schema, foreign_schema(&producer->tally, "i", "number"));
    *code = handler->on_schema(handler, &schema);
    release_schema(&schema);
}

static void begin_foreign(int64_t limit, struct foreign_producer *producer, devx_async_reader_t **reader,
                          struct ArrowAsyncDeviceStreamHandler **handler) {
    int code = -1;
    CHECK_OK(devx_async_reader_create(limit, 0, NULL, reader, &error));
    CHECK_OK(devx_async_reader_handler(*reader, handler, &error));
    introduce(producer, *handler, &code);
    CHECK_INT(code, 0);
}

TEST(takes_what_a_foreign_producer_gives) {
    struct foreign_producer producer = {0};
    devx_async_reader_t *reader = NULL;
    struct ArrowAsyncDeviceStreamHandler *handler = NULL;
    CHECK_CALL(begin_foreign(2, &producer, &reader, &handler));
    CHECK_INT(producer.requested, 2);
    devx_batch_t *batch = (devx_batch_t *)UNWRITTEN;
    CHECK_REFUSED(devx_async_reader_next(reader, 0, &batch, NULL, &error), DEVX_NOT_READY,
                  "no batch has come");
    CHECK_PTR(batch, UNWRITTEN);
    for (int i = 0; i < 2; ++i) {
        struct ArrowAsyncTask task = foreign_task(&producer.tally, i + 1);
        CHECK_INT(handler->on_next_task(handler, &task, NULL), 0);
        memset(&task, 0x5a, sizeof task); /* valid during the call only */
    }
    CHECK_INT(handler->on_next_task(handler, NULL, NULL), 0);
    handler->release(handler);
    for (int i = 0; i < 2; ++i) {
        CHECK_OK(devx_async_reader_next(reader, 0, &batch, NULL, &error));
        CHECK_INT(rows_of(batch), i + 1);
        devx_batch_release(&batch);
    }
    for (int i = 0; i < 2; ++i) { /* the end stays */
        batch = (devx_batch_t *)UNWRITTEN;
        CHECK_OK(devx_async_reader_next(reader, -1, &batch, NULL, &error));
        CHECK(batch == NULL);
    }
    CHECK_INT(producer.requested, 2); /* nothing is asked after the end */
    CHECK_INT(producer.cancels, 0);
    devx_async_reader_release(&reader);
    CHECK_INT(producer.tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(what_nobody_wants_is_extracted_without_data) {
    struct foreign_producer producer = {0};
    devx_async_reader_t *reader = NULL;
    struct ArrowAsyncDeviceStreamHandler *handler = NULL;
    CHECK_CALL(begin_foreign(3, &producer, &reader, &handler));
    struct ArrowAsyncTask task = foreign_task(&producer.tally, 1);
    CHECK_INT(handler->on_next_task(handler, &task, NULL), 0);
    CHECK_OK(devx_async_reader_cancel(reader, &error));
    CHECK_OK(devx_async_reader_cancel(reader, &error));
    CHECK_INT(producer.cancels, 1);
    task = foreign_task(&producer.tally, 2);
    CHECK_INT(handler->on_next_task(handler, &task, NULL), 0);
    devx_batch_t *batch = (devx_batch_t *)UNWRITTEN;
    CHECK_OK(devx_async_reader_next(reader, -1, &batch, NULL, &error));
    CHECK(batch == NULL);
    devx_async_reader_release(&reader);
    handler->on_error(handler, EINVAL, "Consumer requested cancellation", NULL); /* as Arrow C++ does */
    handler->release(handler);
    CHECK_INT(producer.tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_producer_that_breaks_the_contract_is_an_error) {
    for (int how = 0; how < 4; ++how) {
        struct foreign_producer producer = {0};
        devx_async_reader_t *reader = NULL;
        struct ArrowAsyncDeviceStreamHandler *handler = NULL;
        CHECK_CALL(begin_foreign(1, &producer, &reader, &handler));
        const char *said = "";
        if (how == 0) {
            said = "released without an end";
        } else if (how == 1) {
            said = "not requested";
            struct ArrowAsyncTask task = foreign_task(&producer.tally, 1);
            CHECK_INT(handler->on_next_task(handler, &task, NULL), 0);
            devx_batch_t *batch = NULL;
            task = foreign_task(&producer.tally, 2);
            CHECK_INT(handler->on_next_task(handler, &task, NULL), 0);
            CHECK_OK(devx_async_reader_next(reader, 0, &batch, NULL, &error));
            devx_batch_release(&batch);
        } else if (how == 2) {
            said = "a second time";
            int code = 0;
            introduce(&producer, handler, &code);
            CHECK(code != 0);
        } else {
            said = "error 5: no luck";
            handler->on_error(handler, EIO, "no luck", NULL);
        }
        CHECK_INT(producer.cancels, how == 1 || how == 2);
        handler->release(handler);
        devx_batch_t *batch = (devx_batch_t *)UNWRITTEN;
        CHECK_REFUSED(devx_async_reader_next(reader, -1, &batch, NULL, &error), DEVX_CALLBACK, said);
        CHECK_PTR(batch, UNWRITTEN);
        CHECK_OK(devx_async_reader_next(reader, -1, &batch, NULL, &error)); /* told once */
        CHECK(batch == NULL);
        devx_async_reader_release(&reader);
        CHECK_INT(producer.tally.live, 0);
    }
    CHECK_NOTHING_OUTSTANDING();
}

/* --- a foreign consumer --- */

static void begin_consumer(struct foreign_consumer *consumer, devx_async_writer_t **writer, devx_schema_t **schema) {
    consumer->base = consumer_handler(consumer);
    *schema = numbers_schema();
    CHECK_MADE(*schema);
    CHECK_OK(devx_async_writer_create(&consumer->base, ARROW_DEVICE_CPU, NULL, NULL, writer, &error));
    CHECK_OK(devx_async_writer_start(*writer, *schema, &error));
    CHECK_INT(consumer->schemas, 1);
}

TEST(gives_a_foreign_consumer_what_it_requested) {
    struct foreign_consumer consumer = {0};
    struct tally tally = {0};
    devx_async_writer_t *writer = NULL;
    devx_schema_t *schema = NULL;
    CHECK_CALL(begin_consumer(&consumer, &writer, &schema));
    int64_t demand = 0;
    for (int i = 0; i < 2; ++i) {
        devx_batch_t *batch = numbers(schema, i + 1, &tally, &error);
        CHECK_MADE(batch);
        CHECK_OK(devx_async_writer_send_move(writer, &batch, NULL, &error));
        CHECK(batch == NULL);
    }
    CHECK_OK(devx_async_writer_demand(writer, &demand, &error));
    CHECK_INT(demand, 0);
    CHECK_REFUSED(devx_async_writer_ready(writer, 1000, &error), DEVX_NOT_READY,
                  "timeout is 1µs: the consumer has requested no batch");
    devx_batch_t *batch = numbers(schema, 3, &tally, &error);
    devx_batch_t *const before = batch;
    CHECK_REFUSED(devx_async_writer_send_move(writer, &batch, NULL, &error), DEVX_NOT_READY, "not requested");
    CHECK_PTR(batch, before);
    devx_batch_release(&batch);
    struct ArrowAsyncProducer *producer = consumer.base.producer;
    CHECK_OK(devx_async_writer_finish(writer, &error));
    CHECK_INT(consumer.ends, 1);
    CHECK_INT(consumer.releases, 1);
    CHECK_REFUSED(devx_async_writer_finish(writer, &error), DEVX_CLOSED, "ended already");
    devx_async_writer_release(&writer);
    producer->request(producer, 1); /* some consumers do, after the release */
    producer->cancel(producer);

    struct ArrowDeviceArray array;
    CHECK_INT(consumer.tasks[0].extract_data(&consumer.tasks[0], &array), 0);
    CHECK_INT(array.array.length, 1);
    CHECK_INT(consumer.tasks[0].extract_data(&consumer.tasks[0], &array), EINVAL); /* once */
    release_array(&array.array);
    CHECK_INT(consumer.tasks[1].extract_data(&consumer.tasks[1], NULL), 0);
    CHECK_INT(tally.releases, 3);
    CHECK_INT(consumer.errors, 0);
    CHECK_INT(consumer.releases, 1);
    devx_schema_release(&schema);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_consumer_that_refuses_is_only_released) {
    struct foreign_consumer consumer = {0};
    struct tally tally = {0};
    devx_async_writer_t *writer = NULL;
    devx_schema_t *schema = NULL;
    CHECK_CALL(begin_consumer(&consumer, &writer, &schema));
    consumer.code = EIO;
    devx_batch_t *batch = numbers(schema, 1, &tally, &error);
    CHECK_REFUSED(devx_async_writer_send_move(writer, &batch, NULL, &error), DEVX_CALLBACK, "on_next_task returned 5");
    CHECK(batch != NULL);
    devx_batch_release(&batch);
    CHECK_INT(tally.releases, 1); /* what the consumer was offered is withdrawn */
    CHECK_INT(consumer.tasks[0].extract_data(&consumer.tasks[0], NULL), EINVAL);
    CHECK_INT(consumer.releases, 1);
    devx_async_writer_release(&writer);
    CHECK_INT(consumer.errors, 0);
    CHECK_INT(consumer.releases, 1);
    devx_schema_release(&schema);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_bad_request_is_told_outside_of_it) {
    struct foreign_consumer consumer = {0};
    devx_async_writer_t *writer = NULL;
    devx_schema_t *schema = NULL;
    CHECK_CALL(begin_consumer(&consumer, &writer, &schema));
    consumer.base.producer->request(consumer.base.producer, -5);
    CHECK_INT(consumer.errors, 0);
    CHECK_REFUSED(devx_async_writer_ready(writer, 0, &error), DEVX_INVALID_ARGUMENT, "-5 batches");
    CHECK_INT(consumer.errors, 1);
    CHECK_HAS(consumer.text, "22 -5 batches");
    CHECK_INT(consumer.releases, 1);
    devx_async_writer_release(&writer);
    CHECK_INT(consumer.releases, 1);
    devx_schema_release(&schema);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_cancel_is_no_error) {
    struct foreign_consumer consumer = {0};
    devx_async_writer_t *writer = NULL;
    devx_schema_t *schema = NULL;
    int32_t cancelled = 0;
    CHECK_CALL(begin_consumer(&consumer, &writer, &schema));
    consumer.base.producer->cancel(consumer.base.producer);
    consumer.base.producer->cancel(consumer.base.producer);
    CHECK_INT(consumer.releases, 0);
    CHECK_OK(devx_async_writer_is_cancelled(writer, &cancelled, &error));
    CHECK_INT(cancelled, 1);
    CHECK_OK(devx_async_writer_fail(writer, EIO, "nobody is told", NULL, &error));
    CHECK_INT(consumer.errors, 0);
    CHECK_INT(consumer.releases, 1);
    CHECK_REFUSED(devx_async_writer_ready(writer, 0, &error), DEVX_CLOSED, "cancelled");
    devx_async_writer_release(&writer);
    devx_schema_release(&schema);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_writer_that_goes_says_so) {
    struct foreign_consumer consumer = {0};
    devx_async_writer_t *writer = NULL;
    devx_schema_t *schema = NULL;
    CHECK_CALL(begin_consumer(&consumer, &writer, &schema));
    devx_async_writer_release(&writer);
    CHECK(writer == NULL);
    CHECK_INT(consumer.errors, 1);
    CHECK_HAS(consumer.text, "32 the producer went away");
    CHECK_INT(consumer.releases, 1);
    devx_schema_release(&schema);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(an_error_needs_no_text) {
    struct foreign_consumer consumer = {0};
    devx_async_writer_t *writer = NULL;
    devx_schema_t *schema = NULL;
    CHECK_CALL(begin_consumer(&consumer, &writer, &schema));
    CHECK_OK(devx_async_writer_fail(writer, EIO, NULL, NULL, &error));
    CHECK_STR(consumer.text, "5 ");
    CHECK_INT(consumer.releases, 1);
    devx_async_writer_release(&writer);
    devx_schema_release(&schema);
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
