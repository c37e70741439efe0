/* Record batches in device memory: copies there and back, the event of an array, and bad arrays. It is run like test_stream.c:
 * the simulated driver reports a missing wait as a finding.
 */
#include "streams.h"

enum { ROWS = 5 };

/* {number: int32 with nulls, text: utf8 with nulls, kind: dictionary}. Everything is static. */
static void make_batch(struct tally *tally, devx_batch_t **out) {
    static const uint8_t validity[] = {0x1b}; /* row 2 is null */
    static const int32_t numbers[ROWS] = {10, 11, 0, 13, 14};
    static const int32_t offsets[ROWS + 1] = {0, 1, 1, 1, 4, 9};
    static const char bytes[] = "abcdefghi";
    static const int8_t indices[ROWS] = {1, 0, 1, 1, 0};
    static const int32_t text_offsets[] = {0, 3, 7};
    static const char texts[] = "sunrain";
    static const void *const none[] = {NULL};
    static const void *const of_numbers[] = {validity, numbers};
    static const void *const of_texts[] = {validity, offsets, bytes};
    static const void *const of_indices[] = {NULL, indices};
    static const void *const of_dictionary[] = {NULL, text_offsets, texts};
    devx_field const fields[] = {
        {"+s", "", NULL, 0, 3, 0},
        {"i", "number", NULL, DEVX_FIELD_NULLABLE, 0, 0},
        {"u", "text", NULL, DEVX_FIELD_NULLABLE, 0, 0},
        {"c", "kind", NULL, 0, 0, 1},
        {"u", "", NULL, 0, 0, 0},
    };
    devx_node const nodes[] = {
        {ROWS, 0, 0, none, 1},        {ROWS, 1, 0, of_numbers, 2}, {ROWS, 1, 0, of_texts, 3},
        {ROWS, 0, 0, of_indices, 2}, {2, 0, 0, of_dictionary, 3},
    };
    devx_owner const owner = counting_owner(tally);
    devx_schema_t *schema = NULL;
    CHECK_OK(devx_schema_create(fields, 5, &schema, &error));
    CHECK_OK(devx_batch_create(schema, cpu, nodes, 5, &owner, out, &error));
    devx_schema_release(&schema);
}

static void check_text(const devx_batch_t *batch, const devx_column *column, int64_t row, const char *expected) {
    const char *bytes = NULL;
    size_t length = 0;
    CHECK_OK(devx_column_bytes(batch, column, row, &bytes, &length, &error));
    CHECK_INT(length, strlen(expected));
    CHECK(memcmp(bytes, expected, length) == 0);
}

static void check_batch(const devx_batch_t *batch) {
    devx_column number, text, kind, dictionary;
    const void *values = NULL;
    CHECK_OK(devx_batch_column_named(batch, "number", &number, &error));
    CHECK_OK(devx_batch_column_named(batch, "text", &text, &error));
    CHECK_OK(devx_batch_column_named(batch, "kind", &kind, &error));
    CHECK_OK(devx_column_dictionary(batch, &kind, &dictionary, &error));
    CHECK_INT(number.length, ROWS);
    CHECK_OK(devx_column_values(batch, &number, int32, &values, &error));
    static const char *const expected[ROWS] = {"a", "", NULL, "bcd", "efghi"};
    static const int64_t kinds[ROWS] = {1, 0, 1, 1, 0};
    for (int64_t row = 0; row < ROWS; ++row) {
        int32_t number_valid = -1, text_valid = -1;
        int64_t index = -1;
        CHECK_OK(devx_column_is_valid(batch, &number, row, &number_valid, &error));
        CHECK_OK(devx_column_is_valid(batch, &text, row, &text_valid, &error));
        CHECK_INT(number_valid, row != 2);
        CHECK_INT(text_valid, row != 2);
        if (row != 2) {
            CHECK_INT(((const int32_t *)values)[row], 10 + row);
            CHECK_CALL(check_text(batch, &text, row, expected[row]));
        }
        CHECK_OK(devx_column_dictionary_index(batch, &kind, row, &index, &error));
        CHECK_INT(index, kinds[row]);
    }
    CHECK_CALL(check_text(batch, &dictionary, 0, "sun"));
    CHECK_CALL(check_text(batch, &dictionary, 1, "rain"));
}

TEST(a_batch_with_texts_and_nulls_goes_to_the_device_and_back) {
    NEEDS_DRIVER();
    struct tally tally = {0};
    int64_t stream = 0, other = 0;
    devx_batch_t *batch = NULL, *device = NULL, *second = NULL, *host = NULL;
    devx_batch_info info;
    devx_column number;
    const void *values = NULL;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_stream(&other));
    CHECK_CALL(make_batch(&tally, &batch));
    CHECK_CALL(check_batch(batch));
    CHECK_OK(devx_batch_copy_to(batch, gpu, stream, &device, &error));
    devx_batch_release(&batch);
    CHECK_OK(devx_batch_get_info(device, &info, &error));
    CHECK_INT(info.device_type, kDLCUDA);
    CHECK_INT(info.length, ROWS);
    /* The host cannot read the data where it is. */
    CHECK_OK(devx_batch_column_named(device, "number", &number, &error));
    CHECK_REFUSED(devx_column_values(device, &number, int32, &values, &error), DEVX_DEVICE, "not host memory");
    CHECK_OK(devx_batch_copy_to(device, gpu, other, &second, &error));
    devx_batch_release(&device);
    CHECK_OK(devx_batch_copy_to(second, cpu, other, &host, &error));
    devx_batch_release(&second);
    CHECK_CALL(check_batch(host));
    devx_batch_release(&host);
    CHECK_CALL(finish_releases());
    CHECK_INT(tally.releases, 1);
    CHECK_CALL(destroy_stream(other));
    CHECK_CALL(destroy_stream(stream));
}

/* A batch on the device, by a copy that is queued: for a copy from host memory, the host would wait. */
static void make_device_batch(int64_t stream, devx_batch_t **out) {
    struct tally tally = {0};
    devx_batch_t *host = NULL, *device = NULL;
    CHECK_CALL(make_batch(&tally, &host));
    CHECK_OK(devx_batch_copy_to(host, gpu, stream, &device, &error));
    devx_batch_release(&host);
    CHECK_INT(tally.releases, 1);
    CHECK_OK(devx_batch_copy_to(device, gpu, stream, out, &error));
    devx_batch_release(&device);
}

TEST(the_event_of_an_array_outlives_the_handle) {
    NEEDS_DRIVER();
    int64_t stream = 0, consumer = 0;
    devx_batch_t *batch = NULL;
    struct ArrowDeviceArray array;
    int32_t numbers[ROWS] = {0};
    device_pointer copy = 0;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_stream(&consumer));
    CHECK_CALL(make_device_batch(stream, &batch));
    CHECK_OK(devx_batch_export_share_device(batch, &array, &error));
    devx_batch_release(&batch);
    CHECK_INT(array.device_type, kDLCUDA);
    CHECK_INT(array.device_id, 0);
    CHECK(array.sync_event != NULL);
    void *event = *(void **)array.sync_event;
    CHECK(event != NULL);
    CHECK_INT(driver.wait(raw_stream(consumer), event, 0), 0);
    CHECK_INT(driver.allocate(&copy, sizeof numbers), 0);
    CHECK_INT(driver.copy(copy, pointer_of(array.array.children[0]->buffers[1]), sizeof numbers, raw_stream(consumer)),
              0);
    CHECK_INT(driver.synchronize(raw_stream(consumer)), 0);
    CHECK_INT(driver.read(numbers, copy, sizeof numbers), 0);
    CHECK_INT(numbers[4], 14);
    CHECK_INT(driver.free(copy), 0);
    release_array(&array.array);
    CHECK_CALL(finish_releases());
    CHECK_CALL(destroy_stream(consumer));
    CHECK_CALL(destroy_stream(stream));
}

TEST(an_array_is_imported_with_its_event_and_waited_for_on_a_stream) {
    NEEDS_DRIVER();
    int64_t stream = 0, mine = 0;
    devx_batch_t *batch = NULL, *taken = NULL, *host = NULL;
    devx_schema_t *schema = NULL;
    struct ArrowDeviceArray array;
    devx_column number;
    int32_t numbers[ROWS] = {0};
    device_pointer copy = 0;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_stream(&mine));
    CHECK_CALL(make_device_batch(stream, &batch));
    CHECK_OK(devx_batch_schema(batch, &schema, &error));
    CHECK_OK(devx_batch_export_move_device(&batch, &array, &error));
    CHECK_OK(devx_batch_import_device(&array, schema, &taken, &error));
    CHECK_REFUSED(devx_batch_wait(taken, 0, &error), DEVX_INVALID_STREAM, "stream is 0");
    CHECK_OK(devx_batch_wait(taken, mine, &error));
    /* Work of the program's own, which nobody else makes wait. */
    CHECK_OK(devx_batch_column_named(taken, "number", &number, &error));
    CHECK_INT(driver.allocate(&copy, sizeof numbers), 0);
    CHECK_INT(driver.copy(copy, pointer_of(number.buffers[1]), sizeof numbers, raw_stream(mine)), 0);
    CHECK_OK(devx_batch_used_on(taken, mine, &error));
    CHECK_INT(driver.synchronize(raw_stream(mine)), 0);
    CHECK_INT(driver.read(numbers, copy, sizeof numbers), 0);
    CHECK_INT(numbers[4], 14);
    CHECK_INT(driver.free(copy), 0);
    /* An export of the import carries the same event on. */
    CHECK_OK(devx_batch_export_share_device(taken, &array, &error));
    CHECK(array.sync_event != NULL);
    CHECK_OK(devx_batch_copy_to(taken, cpu, mine, &host, &error));
    devx_batch_release(&taken);
    CHECK_CALL(check_batch(host));
    devx_batch_release(&host);
    release_array(&array.array);
    devx_schema_release(&schema);
    CHECK_CALL(finish_releases());
    CHECK_CALL(destroy_stream(mine));
    CHECK_CALL(destroy_stream(stream));
}

/* The batch is ready behind the one stream, which waits for all columns. */
TEST(a_batch_of_columns_is_in_the_order_of_the_stream) {
    NEEDS_DRIVER();
    int64_t streams[2] = {0}, joined = 0;
    const char *const names[] = {"a", "b"};
    devx_batch_t *columns[2] = {NULL, NULL}, *batch = NULL, *copy = NULL;
    for (int i = 0; i < 2; ++i) {
        devx_batch_t *whole = NULL;
        devx_column number;
        CHECK_CALL(make_stream(&streams[i]));
        CHECK_CALL(make_device_batch(streams[i], &whole));
        CHECK_OK(devx_batch_column_named(whole, "number", &number, &error));
        CHECK_OK(devx_column_share(whole, &number, &columns[i], &error));
        devx_batch_release(&whole);
    }
    CHECK_CALL(make_stream(&joined));
    const devx_batch_t *const given[] = {columns[0], columns[1]};
    CHECK_REFUSED(devx_batch_of_columns(names, given, 2, -1, &batch, &error), DEVX_NOT_READY, "stream");
    CHECK_OK(devx_batch_of_columns(names, given, 2, joined, &batch, &error));
    devx_batch_release(&columns[0]);
    devx_batch_release(&columns[1]);
    CHECK_OK(devx_batch_copy_to(batch, cpu, joined, &copy, &error));
    for (int i = 0; i < 2; ++i) {
        devx_column column;
        const void *values = NULL;
        CHECK_OK(devx_batch_column(copy, i, &column, &error));
        CHECK_STR(column.name, names[i]);
        CHECK_OK(devx_column_values(copy, &column, int32, &values, &error));
        CHECK_INT(((const int32_t *)values)[4], 14);
    }
    devx_batch_release(&copy);
    devx_batch_release(&batch);
    CHECK_CALL(finish_releases());
    CHECK_CALL(destroy_stream(joined));
    CHECK_CALL(destroy_stream(streams[1]));
    CHECK_CALL(destroy_stream(streams[0]));
}

TEST(what_is_shared_has_its_order_already) {
    NEEDS_DRIVER();
    int64_t stream = 0;
    devx_batch_t *batch = NULL, *batch_too = NULL;
    devx_tensor_t *tensor = NULL, *tensor_too = NULL;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_device_batch(stream, &batch));
    CHECK_CALL(make_six(stream, &tensor));
    CHECK_OK(devx_batch_produced_on(batch, stream, &error));
    CHECK_OK(devx_tensor_produced_on(tensor, stream, &error));
    CHECK_OK(devx_batch_share(batch, &batch_too, &error));
    CHECK_OK(devx_tensor_share(tensor, &tensor_too, &error));
    CHECK_REFUSED(devx_batch_produced_on(batch, 1, &error), DEVX_INVALID_ARGUMENT, "shared already");
    CHECK_REFUSED(devx_tensor_produced_on(tensor, 1, &error), DEVX_INVALID_ARGUMENT, "shared already");
    devx_batch_release(&batch_too);
    devx_batch_release(&batch);
    devx_tensor_release(&tensor_too);
    devx_tensor_release(&tensor);
    CHECK_CALL(finish_releases());
    CHECK_CALL(destroy_stream(stream));
}

TEST(an_asynchronous_stream_is_of_a_type_of_device) {
    NEEDS_DRIVER();
    struct tally tally = {0};
    struct ArrowAsyncDeviceStreamHandler *handler = NULL;
    devx_async_reader_t *reader = NULL;
    devx_async_writer_t *writer = NULL;
    devx_batch_t *host = NULL, *batch = NULL;
    devx_schema_t *schema = NULL;
    int32_t device_type = 77;
    int64_t stream = 0;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_batch(&tally, &host));
    CHECK_OK(devx_batch_schema(host, &schema, &error));
    CHECK_OK(devx_async_reader_create(1, 0, NULL, &reader, &error));
    CHECK_OK(devx_async_reader_handler(reader, &handler, &error));
    CHECK_OK(devx_async_writer_create(handler, kDLCUDA, NULL, NULL, &writer, &error));
    CHECK_OK(devx_async_writer_start(writer, schema, &error));
    CHECK_OK(devx_async_reader_producer(reader, &device_type, NULL, &error));
    CHECK_INT(device_type, kDLCUDA);
    CHECK_REFUSED(devx_async_writer_send_move(writer, &host, NULL, &error), DEVX_DEVICE, "cpu");
    CHECK(host != NULL);
    CHECK_OK(devx_batch_copy_to(host, gpu, stream, &batch, &error));
    CHECK_OK(devx_async_writer_send_move(writer, &batch, NULL, &error));
    CHECK_OK(devx_async_writer_finish(writer, &error));
    devx_async_writer_release(&writer);
    devx_async_reader_release(&reader);
    devx_schema_release(&schema);
    devx_batch_release(&host);
    CHECK_CALL(finish_releases());
    CHECK_INT(tally.releases, 1);
    CHECK_CALL(destroy_stream(stream));
}

/* --- bad input --- */

static void describe_numbers(device_pointer memory, int64_t length, devx_batch_t **out) {
    devx_field const field = {"l", "", NULL, 0, 0, 0};
    const void *buffers[] = {NULL, (const void *)(uintptr_t)memory};
    devx_node const node = {length, 0, 0, buffers, 2};
    devx_schema_t *schema = NULL;
    CHECK_OK(devx_schema_create(&field, 1, &schema, &error));
    CHECK_OK(devx_batch_create(schema, gpu, &node, 1, NULL, out, &error));
    devx_schema_release(&schema);
}

TEST(buffers_that_are_not_where_they_claim_are_found_out) {
    NEEDS_DRIVER();
    device_pointer memory = 0;
    devx_batch_t *batch = NULL;
    CHECK_INT(driver.allocate(&memory, 64), 0);
    CHECK_CALL(describe_numbers(memory, 8, &batch));
    CHECK_OK(devx_batch_check_pointers(batch, &error));
    devx_batch_release(&batch);
    CHECK_CALL(describe_numbers(memory, 9, &batch));
    CHECK_REFUSED(devx_batch_check_pointers(batch, &error), DEVX_DEVICE, "buffers[1]: data 0x");
    devx_batch_release(&batch);
    CHECK_CALL(describe_numbers(pointer_of(six), 6, &batch));
    CHECK_REFUSED(devx_batch_check_pointers(batch, &error), DEVX_DEVICE, "is not CUDA memory");
    devx_batch_release(&batch);
    CHECK_INT(driver.free(memory), 0);
    CHECK_CALL(describe_numbers(memory, 8, &batch));
    CHECK_REFUSED(devx_batch_check_pointers(batch, &error), DEVX_DEVICE, "(any more)");
    devx_batch_release(&batch);
    CHECK_REFUSED(devx_batch_check_pointers(batch, &error), DEVX_NULL_ARGUMENT, "batch is NULL");
    CHECK_CALL(finish_releases());
}

TEST(a_null_event_is_refused_and_the_array_is_still_the_producers) {
    NEEDS_DRIVER();
    struct tally tally = {0};
    struct ArrowSchema schema;
    struct ArrowDeviceArray array;
    void *no_event = NULL;
    devx_batch_t *batch = (devx_batch_t *)UNWRITTEN;
    memset(&array, 0, sizeof array);
    foreign_batch(&tally, 3, &schema, &array.array);
    array.device_type = kDLCUDA;
    array.sync_event = &no_event;
    CHECK_REFUSED(devx_batch_import_pair_device(&array, &schema, &batch, &error), DEVX_NULL_ARGUMENT, "sync_event");
    CHECK_PTR(batch, UNWRITTEN);
    CHECK(array.array.release != NULL && schema.release != NULL);
    array.device_type = kDLCPU;
    CHECK_REFUSED(devx_batch_import_pair_device(&array, &schema, &batch, &error), DEVX_DEVICE, "sync_event");
    release_array(&array.array);
    release_schema(&schema);
    CHECK_INT(tally.live, 0);
    CHECK_CALL(finish_releases());
}

CHECK_MAIN()
