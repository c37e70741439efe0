/* Asynchronous streams: what is refused, and what is left alone. */
#include "async.h"

#include <errno.h>

TEST(refusals_take_nothing) {
    struct woken woken = {0};
    devx_wake const wake = waking(&woken);
    devx_async_reader_t *reader = (devx_async_reader_t *)UNWRITTEN;
    CHECK_REFUSED(devx_async_reader_create(-1, 0, &wake, &reader, &error), DEVX_INVALID_ARGUMENT,
                  "limit is -1: a number of batches");
    CHECK_REFUSED(devx_async_reader_create(0, 0, &wake, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK_PTR(reader, UNWRITTEN);
    CHECK_INT(woken.releases, 0);

    devx_async_writer_t *writer = (devx_async_writer_t *)UNWRITTEN;
    struct foreign_consumer consumer = {0};
    struct ArrowAsyncDeviceStreamHandler *const handler = &consumer.base;
    CHECK_REFUSED(devx_async_writer_create(NULL, 1, NULL, &wake, &writer, &error), DEVX_NULL_ARGUMENT, "handler");
    CHECK_REFUSED(devx_async_writer_create(handler, 1, NULL, &wake, &writer, &error), DEVX_RELEASED, "release");
    handler->release = consumer_release;
    CHECK_REFUSED(devx_async_writer_create(handler, 1, NULL, &wake, &writer, &error), DEVX_INVALID_ARGUMENT, "NULL");
    CHECK_PTR(writer, UNWRITTEN);
    CHECK_INT(woken.releases, 0);
    CHECK(handler->producer == NULL);
    CHECK_NOTHING_OUTSTANDING();

    CHECK_OK(devx_async_reader_create(0, 0, &wake, &reader, &error));
    CHECK_REFUSED(devx_async_reader_request(reader, 0, &error), DEVX_INVALID_ARGUMENT, "n is 0");
    CHECK_REFUSED(devx_async_reader_producer(reader, NULL, NULL, &error), DEVX_NOT_READY, "");
    devx_schema_t *schema = (devx_schema_t *)UNWRITTEN;
    CHECK_REFUSED(devx_async_reader_schema(reader, 1000, &schema, &error), DEVX_NOT_READY,
                  "timeout is 1µs: the schema has not come");
    CHECK_PTR(schema, UNWRITTEN);
    struct ArrowAsyncDeviceStreamHandler *out = NULL;
    CHECK_OK(devx_async_reader_handler(reader, &out, &error));
    CHECK_REFUSED(devx_async_reader_handler(reader, &out, &error), DEVX_INVALID_ARGUMENT, "already");
    out->release(out); /* whoever has it and gives it to nobody */
    devx_async_reader_release(&reader);
    CHECK_INT(woken.releases, 1);
    devx_async_reader_release(&reader);
    devx_async_writer_t *none = NULL;
    devx_async_writer_release(&none);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(null_arguments_are_refused) {
    struct woken woken = {0};
    devx_wake const wake = waking(&woken);
    struct tally tally = {0};
    struct foreign_consumer consumer = {0};
    struct ArrowAsyncDeviceStreamHandler *handler = UNWRITTEN;
    devx_async_reader_t *reader = NULL;
    devx_async_writer_t *writer = NULL;
    devx_schema_t *schema = numbers_schema(), *other_schema = UNWRITTEN;
    devx_batch_t *batch = NULL, *other = UNWRITTEN;
    devx_metadata_t *metadata = UNWRITTEN;
    const char *block = UNWRITTEN;
    size_t bytes = 77;
    int64_t demand = 77;
    int32_t flag = 77;
    CHECK_MADE(schema);
    CHECK_OK(devx_async_reader_create(2, 1, NULL, &reader, &error));

    CHECK_NEEDS(devx_async_reader_handler(NULL, &handler, &error), "reader");
    CHECK_NEEDS(devx_async_reader_request(NULL, 1, &error), "reader");
    CHECK_NEEDS(devx_async_reader_cancel(NULL, &error), "reader");
    CHECK_NEEDS(devx_async_reader_schema(NULL, 0, &other_schema, &error), "reader");
    CHECK_NEEDS(devx_async_reader_schema(reader, 0, NULL, &error), "out");
    CHECK_NEEDS(devx_async_reader_next(NULL, 0, &other, &metadata, &error), "reader");
    CHECK_NEEDS(devx_async_reader_producer(NULL, &flag, &metadata, &error), "reader");
    CHECK_NEEDS(devx_async_reader_producer_error(NULL, &flag, &metadata, &error), "reader");
    CHECK_NEEDS(devx_metadata_block(NULL, &block, &bytes, &error), "metadata");
    CHECK_NEEDS(devx_async_writer_start(NULL, schema, &error), "writer");
    CHECK_NEEDS(devx_async_writer_demand(NULL, &demand, &error), "writer");
    CHECK_NEEDS(devx_async_writer_is_cancelled(NULL, &flag, &error), "writer");
    CHECK_NEEDS(devx_async_writer_ready(NULL, 0, &error), "writer");
    CHECK_NEEDS(devx_async_writer_send_move(NULL, &batch, NULL, &error), "writer");
    CHECK_NEEDS(devx_async_writer_finish(NULL, &error), "writer");
    CHECK_NEEDS(devx_async_writer_fail(NULL, EIO, NULL, NULL, &error), "writer");
    CHECK_PTR(handler, UNWRITTEN);
    CHECK_PTR(other_schema, UNWRITTEN);

    /* The handler is given once, so it must not be given to nobody. Nor is a foreign one taken. */
    CHECK_NEEDS(devx_async_reader_handler(reader, NULL, &error), "out");
    CHECK_OK(devx_async_reader_handler(reader, &handler, &error));
    consumer.base = consumer_handler(&consumer);
    CHECK_NEEDS(devx_async_writer_create(&consumer.base, ARROW_DEVICE_CPU, NULL, &wake, NULL, &error), "out");
    CHECK(consumer.base.producer == NULL);
    CHECK_INT(consumer.releases, 0);
    CHECK_INT(woken.releases, 0);

    CHECK_OK(devx_async_writer_create(handler, ARROW_DEVICE_CPU, NULL, NULL, &writer, &error));
    CHECK_NEEDS(devx_async_writer_start(writer, NULL, &error), "schema");
    CHECK_OK(devx_async_writer_start(writer, schema, &error));
    CHECK_NEEDS(devx_async_writer_demand(writer, NULL, &error), "out");
    CHECK_NEEDS(devx_async_writer_is_cancelled(writer, NULL, &error), "out");
    CHECK_NEEDS(devx_async_writer_send_move(writer, NULL, NULL, &error), "batch");
    CHECK_NEEDS(devx_async_writer_send_move(writer, &batch, NULL, &error), "*batch");
    CHECK_REFUSED(devx_async_writer_fail(writer, EIO, "\xff", NULL, &error), DEVX_INVALID_TEXT,
                  "message is not valid UTF-8");
    batch = numbers(schema, 3, &tally, &error);
    CHECK_MADE(batch);
    CHECK_OK(devx_async_writer_send_move(writer, &batch, NULL, &error));
    CHECK_NEEDS(devx_async_reader_next(reader, 0, NULL, &metadata, &error), "out");
    CHECK_PTR(metadata, UNWRITTEN);
    CHECK_OK(devx_async_reader_next(reader, 0, &batch, NULL, &error)); /* it was not lost */
    CHECK_INT(rows_of(batch), 3);
    CHECK_OK(devx_async_writer_finish(writer, &error));
    CHECK_OK(devx_async_reader_next(reader, 0, &other, &metadata, &error));
    CHECK(other == NULL && metadata == NULL); /* the end has no metadata */

    CHECK_PTR(block, UNWRITTEN);
    CHECK_INT(bytes, 77);
    CHECK_INT(demand, 77);
    CHECK_INT(flag, 77);
    devx_batch_release(&batch);
    devx_async_writer_release(&writer);
    devx_async_reader_release(&reader);
    devx_schema_release(&schema);
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

/* The reader is not told which struct the producer has, so it leaves the metadata alone. */
TEST(metadata_of_a_producer_is_read_only_if_it_is_known_where_it_is) {
    struct ArrowAsyncDeviceStreamHandler *handler = NULL;
    devx_async_reader_t *reader = NULL;
    devx_async_writer_t *writer = NULL;
    devx_schema_t *schema = numbers_schema();
    devx_metadata_t *metadata = UNWRITTEN;
    int32_t device_type = 77;
    CHECK_MADE(schema);
    CHECK_OK(devx_async_reader_create(1, 0, NULL, &reader, &error));
    CHECK_OK(devx_async_reader_handler(reader, &handler, &error));
    CHECK_REFUSED(devx_async_writer_create(handler, 99, a_block(), NULL, &writer, &error), DEVX_DEVICE,
                  "device_type is 99");
    CHECK_OK(devx_async_writer_create(handler, ARROW_DEVICE_CPU, a_block(), NULL, &writer, &error));
    CHECK_OK(devx_async_writer_start(writer, schema, &error));
    CHECK_OK(devx_async_reader_producer(reader, &device_type, &metadata, &error));
    CHECK_INT(device_type, ARROW_DEVICE_CPU);
    CHECK(metadata == NULL);
    CHECK_OK(devx_async_writer_finish(writer, &error));
    devx_async_writer_release(&writer);
    devx_async_reader_release(&reader);
    devx_schema_release(&schema);
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
