/* What consumers get of a batch, and that all of it is released exactly once, in whatever order it is given up. */
#include "own_batch.h"

/* A record batch {number: int32, text: utf8} of four rows, made by this library. */
static int32_t const numbers[] = {0, 1, 2, 3, 4, 5, 6};
static int32_t const ends_of_texts[] = {0, 1, 3, 3, 6};
static char const letters[] = "abbccc";

static devx_batch_t *numbers_and_texts(int64_t offset_of_numbers, int64_t nulls_of_numbers, struct tally *tally) {
    static const void *const no_buffers[] = {NULL};
    static const void *const number_buffers[] = {NULL, numbers};
    static const void *const text_buffers[] = {NULL, ends_of_texts, letters};
    devx_field const fields[] = {field("+s", "", 2), field("i", "number", 0), field("u", "text", 0)};
    devx_node const nodes[] = {node(4, 0, 0, no_buffers, 1),
                               node(4, offset_of_numbers, nulls_of_numbers, number_buffers, 2),
                               node(4, 0, 0, text_buffers, 3)};
    return create(fields, nodes, 3, tally);
}

/* --- what an export looks like --- */

TEST(an_export_says_where_the_memory_is) {
    struct tally tally = {0};
    devx_batch_t *batch = numbers_and_texts(3, -1, &tally);
    CHECK_MADE(batch);
    struct ArrowDeviceArray device;
    struct ArrowArray plain;
    memset(&device, 0xff, sizeof device);
    CHECK_OK(devx_batch_export_share_device(batch, &device, &error));
    CHECK_INT(device.device_type, ARROW_DEVICE_CPU);
    CHECK_INT(device.device_id, -1);
    CHECK_PTR(device.sync_event, NULL);
    for (int i = 0; i < 3; ++i) {
        CHECK_INT(device.reserved[i], 0);
    }
    CHECK_OK(devx_batch_export_move(&batch, &plain, &error));
    CHECK_PTR(batch, NULL);
    CHECK_INT(plain.length, 4);
    CHECK_INT(plain.n_children, 2);
    CHECK_INT(plain.n_buffers, 1);
    CHECK_PTR(plain.buffers[0], NULL);
    CHECK_INT(plain.children[0]->offset, 3);
    CHECK_INT(plain.children[0]->null_count, 0); /* known, as there is no validity */
    CHECK_INT(plain.children[0]->n_buffers, 2);
    CHECK_PTR(plain.children[0]->buffers[1], numbers);
    CHECK_PTR(plain.children[1]->buffers[2], letters);
    plain.release(&plain);
    CHECK_INT(tally.releases, 0);
    device.array.release(&device.array);
    CHECK(device.array.release == NULL);
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

/* --- exactly once --- */

/* A batch of a foreign producer; its schema and its array are three structs each. */
static devx_batch_t *import_foreign(struct tally *tally) {
    struct ArrowSchema source;
    struct ArrowArray array;
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = NULL;
    foreign_batch(tally, 4, &source, &array);
    if (devx_schema_import(&source, &schema, &error) != DEVX_OK) {
        return NULL;
    }
    if (devx_batch_import(&array, schema, &batch, &error) != DEVX_OK) {
        batch = NULL;
    }
    devx_schema_release(&schema);
    return source.release == NULL && array.release == NULL ? batch : NULL;
}

enum { HANDLE, SHARED, EXPORTED, CHILD };

/* Five parts of one batch, released in the order of `order`; SHARED also releases the schema that was taken from the batch. */
static void release_in_order(devx_batch_t *batch, struct tally *tally, int at_end, const int *order) {
    devx_batch_t *shared = NULL;
    devx_schema_t *schema = NULL;
    struct ArrowDeviceArray exported;
    struct ArrowArray child;
    CHECK_MADE(batch);
    CHECK_OK(devx_batch_share(batch, &shared, &error));
    CHECK_OK(devx_batch_schema(batch, &schema, &error));
    CHECK_OK(devx_batch_export_share_device(shared, &exported, &error));
    ARROW_MOVE(exported.array.children[1], &child);
    for (int i = 0; i < HOLDERS; ++i) {
        CHECK_INT(tally->releases, 0);
        switch (order[i]) {
        case HANDLE: devx_batch_release(&batch); break;
        case SHARED:
            devx_batch_release(&shared);
            devx_schema_release(&schema);
            break;
        case EXPORTED: exported.array.release(&exported.array); break;
        default:
            /* The text "bb" is there until its own column is released. */
            CHECK(memcmp((const char *)child.buffers[2] + 1, "bb", 2) == 0);
            child.release(&child);
            break;
        }
    }
    CHECK_INT(tally->releases, at_end);
    CHECK_INT(tally->live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

static void check_created(const int *order) {
    struct tally tally = {0};
    release_in_order(numbers_and_texts(0, 0, &tally), &tally, 1, order);
}

static void check_imported(const int *order) {
    struct tally tally = {0};
    release_in_order(import_foreign(&tally), &tally, 6, order);
}

TEST(an_owner_is_released_once_in_every_order) {
    in_every_order(check_created);
}

TEST(a_foreign_batch_is_released_once_in_every_order) {
    in_every_order(check_imported);
}

TEST(a_producer_that_forgets_to_mark_is_released_once) {
    struct tally schema_tally = {0}, tally = {0};
    struct ArrowSchema source = foreign_schema(&schema_tally, "i", "x");
    struct ArrowArray array = foreign_numbers(&tally, 3);
    tally.forgets = 1;
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = NULL, *shared = NULL;
    CHECK_OK(devx_schema_import(&source, &schema, &error));
    CHECK_OK(devx_batch_import(&array, schema, &batch, &error));
    devx_schema_release(&schema);
    CHECK_OK(devx_batch_share(batch, &shared, &error));
    devx_batch_release(&batch);
    CHECK_INT(tally.releases, 0);
    devx_batch_release(&shared);
    CHECK_INT(tally.releases, 1);
    CHECK_INT(schema_tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(children_moved_out_survive_their_parent_and_are_skipped) {
    struct tally tally = {0};
    devx_batch_t *batch = import_foreign(&tally);
    CHECK_MADE(batch);
    struct ArrowArray out, number, text;
    CHECK_OK(devx_batch_export_move(&batch, &out, &error));
    ARROW_MOVE(out.children[0], &number);
    ARROW_MOVE(out.children[1], &text);
    out.release(&out);
    CHECK(out.release == NULL);
    CHECK_INT(devx_ledger_outstanding(), 3); /* the export, the array and the schema that it came from */
    CHECK_INT(((const int32_t *)number.buffers[1])[3], 3);
    number.release(&number);
    CHECK(number.release == NULL);
    CHECK_INT(tally.releases, 0);
    CHECK(memcmp(text.buffers[2], "abb", 3) == 0);
    text.release(&text);
    CHECK_INT(tally.releases, 6);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_child_can_be_imported_on_its_own) {
    struct tally tally = {0}, text_tally = {0};
    devx_batch_t *batch = import_foreign(&tally), *column = NULL;
    CHECK_MADE(batch);
    struct ArrowArray out, text;
    struct ArrowSchema described = foreign_schema(&text_tally, "u", "text");
    devx_schema_t *schema = NULL;
    CHECK_OK(devx_batch_export_move(&batch, &out, &error));
    ARROW_MOVE(out.children[1], &text);
    out.release(&out);
    CHECK_OK(devx_schema_import(&described, &schema, &error));
    CHECK_OK(devx_batch_import(&text, schema, &column, &error));
    devx_schema_release(&schema);
    devx_column root;
    CHECK_OK(devx_batch_root(column, &root, &error));
    CHECK_CALL(check_bytes(column, &root, 2, "ccc"));
    CHECK_INT(tally.releases, 0);
    devx_batch_release(&column);
    CHECK_INT(tally.releases, 6);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(children_released_in_place_are_skipped) {
    struct tally tally = {0};
    devx_batch_t *batch = import_foreign(&tally);
    CHECK_MADE(batch);
    struct ArrowArray out;
    CHECK_OK(devx_batch_export_move(&batch, &out, &error));
    out.children[0]->release(out.children[0]);
    CHECK(out.children[0]->release == NULL);
    CHECK_INT(tally.releases, 0);
    out.release(&out);
    CHECK_INT(tally.releases, 6);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(an_export_may_be_imported_again_and_again) {
    struct tally tally = {0};
    devx_batch_t *batch = import_foreign(&tally);
    CHECK_MADE(batch);
    for (int i = 0; i < 20; ++i) {
        batch = round_trip(batch);
        CHECK_MADE(batch);
    }
    devx_column column;
    CHECK_OK(devx_batch_column(batch, 1, &column, &error));
    CHECK_CALL(check_bytes(batch, &column, 3, "dddd"));
    CHECK_INT(tally.releases, 0);
    devx_batch_release(&batch);
    CHECK_INT(tally.releases, 6);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(an_array_and_its_schema_are_taken_together_or_not_at_all) {
    struct tally tally = {0};
    struct ArrowSchema schema, schema_before;
    struct ArrowArray array, array_before;
    devx_batch_t *batch = NULL;
    foreign_batch(&tally, 3, &schema, &array);
    array_before = array, schema_before = schema;
    array.length = -3;
    CHECK(devx_batch_import_pair(&array, &schema, &batch, &error) == DEVX_INVALID_LENGTH);
    CHECK(strstr(error.message, "length is -3") != NULL);
    CHECK(batch == NULL && tally.releases == 0);
    array.length = 3;
    CHECK(memcmp(&array, &array_before, sizeof array) == 0);
    CHECK(memcmp(&schema, &schema_before, sizeof schema) == 0);

    CHECK(devx_batch_import_pair(&array, &schema, &batch, &error) == DEVX_OK);
    CHECK(array.release == NULL && schema.release == NULL);
    devx_batch_release(&batch);
    CHECK(devx_ledger_outstanding() == 0);

    struct ArrowDeviceArray device;
    memset(&device, 0, sizeof device);
    foreign_batch(&tally, 3, &schema, &device.array);
    device.device_type = ARROW_DEVICE_CPU;
    device.device_id = 5;
    CHECK(devx_batch_import_pair_device(&device, &schema, &batch, &error) == DEVX_DEVICE);
    CHECK(device.array.release != NULL && schema.release != NULL);
    device.device_id = -1;
    CHECK(devx_batch_import_pair_device(&device, &schema, &batch, &error) == DEVX_OK);
    devx_batch_release(&batch);
    CHECK(devx_ledger_outstanding() == 0);
}

TEST(one_schema_serves_many_batches) {
    struct tally tally = {0};
    struct ArrowSchema source = foreign_schema(&tally, "i", "x");
    devx_schema_t *schema = NULL;
    devx_batch_t *batches[8];
    CHECK_OK(devx_schema_import(&source, &schema, &error));
    for (int i = 0; i < 8; ++i) {
        struct ArrowArray array = foreign_numbers(&tally, i);
        CHECK_OK(devx_batch_import(&array, schema, &batches[i], &error));
    }
    devx_schema_release(&schema);
    for (int i = 0; i < 8; ++i) {
        CHECK_INT(tally.releases, i);
        devx_batch_release(&batches[i]);
    }
    CHECK_INT(tally.releases, 9); /* the schema went with the last of them */
    CHECK_NOTHING_OUTSTANDING();
}

/* --- devices --- */

TEST(the_cpu_is_known_by_both_numbers) {
    for (int64_t id = -1; id <= 0; ++id) {
        struct tally tally = {0};
        struct ArrowSchema source = foreign_schema(&tally, "i", "x");
        struct ArrowDeviceArray array;
        memset(&array, 0, sizeof array);
        array.array = foreign_numbers(&tally, 3);
        array.device_id = id;
        array.device_type = ARROW_DEVICE_CPU;
        array.reserved[1] = 77; /* some producers do not clear it */
        devx_schema_t *schema = NULL;
        devx_batch_t *batch = NULL;
        devx_batch_info info;
        CHECK_OK(devx_schema_import(&source, &schema, &error));
        CHECK_OK(devx_batch_import_device(&array, schema, &batch, &error));
        CHECK(array.array.release == NULL);
        CHECK_OK(devx_batch_get_info(batch, &info, &error));
        CHECK_INT(info.device_type, ARROW_DEVICE_CPU);
        CHECK_INT(info.device_id, 0);
        CHECK_INT(info.n_columns, 0); /* not a struct */
        devx_batch_release(&batch);
        devx_schema_release(&schema);
        CHECK_INT(tally.releases, 2);
    }
}

CHECK_MAIN()
