/* Ten thousand rounds of export, import and release with nothing left over; and how many allocations a step takes if threads
 * keep no blocks (test_blocks.c tests threads that do).
 */
#define _GNU_SOURCE
#include "counting.h"
#include "rounds.h"

/* Runs before the library is used. Its first exchange on a thread allocates what the thread keeps for itself. */
__attribute__((constructor)) static void keep_no_blocks(void) {
    int64_t shape[1] = {0};
    DLTensor const empty = {NULL, {kDLCPU, 0}, 1, {kDLFloat, 64, 1}, shape, NULL, 0};
    devx_tensor_t *tensor = NULL;
    setenv("DEVEXCHANGE_KEEP_BLOCKS", "0", 1);
    (void)devx_tensor_create(&empty, 0, NULL, &tensor, NULL);
    devx_tensor_release(&tensor);
}

/* --- the allocations of a step --- */

static int64_t const shape_2x3[2] = {2, 3};
static int const widths[] = {1, 10, 1000};

enum { WIDTHS = sizeof widths / sizeof *widths };

/* A foreign schema and array with this number of columns, numbers and texts by turns. */
static void make_wide(struct tally *tally, int columns, struct ArrowSchema *schema, struct ArrowArray *array) {
    *schema = foreign_schema(tally, "+s", "");
    *array = foreign_array(tally, 4, 1);
    for (int i = 0; i < columns; ++i) {
        add_schema_child(schema, foreign_schema(tally, i % 2 == 0 ? "i" : "u", "column"));
        add_array_child(array, i % 2 == 0 ? foreign_numbers(tally, 4) : foreign_texts(tally, 4));
    }
}

/* An export, too, takes one allocation if a consumer already has the tensor. */
TEST(a_tensor_takes_one_allocation_to_import_and_none_to_export) {
    NEEDS_COUNTS();
    int64_t const shape[4] = {2, 3, 1, 1};
    for (int ndim = 0; ndim <= 4; ++ndim) {
        struct tally tally = {0};
        devx_tensor_t *tensor = NULL, *legacy_tensor = NULL;
        struct DLManagedTensorVersioned *source = foreign_tensor(&tally, ndim, shape, NULL);
        struct DLManagedTensor *old_source = foreign_legacy(&tally, ndim, shape, NULL);
        struct DLManagedTensorVersioned *shared = NULL, *moved = NULL;
        struct DLManagedTensor *legacy = NULL;
        devx_status status = DEVX_OK;
        int n = -1;
        COUNT_ALLOCATIONS(n, status = devx_tensor_import(source, &tensor, &error));
        CHECK_INT(status, DEVX_OK);
        CHECK_INT(n, 1);
        COUNT_ALLOCATIONS(n, status = devx_tensor_import_legacy(old_source, &legacy_tensor, &error));
        CHECK_INT(status, DEVX_OK);
        CHECK_INT(n, 1);
        COUNT_ALLOCATIONS(n, status = devx_tensor_export_share(tensor, NULL, &shared, &error));
        CHECK_INT(status, DEVX_OK);
        CHECK_INT(n, 0);
        COUNT_ALLOCATIONS(n, status = devx_tensor_export_move(&tensor, NULL, &moved, &error));
        CHECK_INT(status, DEVX_OK);
        CHECK_INT(n, 1);
        COUNT_ALLOCATIONS(n, status = devx_tensor_export_move_legacy(&legacy_tensor, NULL, &legacy, &error));
        CHECK_INT(status, DEVX_OK);
        CHECK_INT(n, 1);
        COUNT_ALLOCATIONS(n, devx_dlpack_release(&shared));
        CHECK_INT(n, 0);
        devx_dlpack_release(&moved);
        devx_dlpack_release_legacy(&legacy);
        CHECK_INT(tally.live, 0);
    }
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_shared_handle_takes_no_allocation) {
    NEEDS_COUNTS();
    struct tally tally = {0};
    devx_tensor_t *tensor = NULL, *shared = NULL;
    DLTensor view;
    int n = -1;
    CHECK_OK(devx_tensor_import(foreign_tensor(&tally, 2, shape_2x3, NULL), &tensor, &error));
    COUNT_ALLOCATIONS(n, (void)devx_tensor_share(tensor, &shared, &error));
    CHECK_INT(n, 0);
    COUNT_ALLOCATIONS(n, (void)devx_tensor_borrow(shared, &view, NULL, &error));
    CHECK_INT(n, 0);
    devx_tensor_release(&tensor);
    devx_tensor_release(&shared);
    CHECK_INT(tally.live, 0);
}

/* One for the tree of arrays and one for the schema, however many columns there are. */
TEST(a_batch_takes_one_allocation_to_import_and_one_to_export) {
    NEEDS_COUNTS();
    for (int i = 0; i < WIDTHS; ++i) {
        struct tally tally = {0};
        struct ArrowSchema source, exported_schema;
        struct ArrowArray array;
        struct ArrowDeviceArray device;
        devx_schema_t *schema = NULL;
        devx_batch_t *batch = NULL, *again = NULL;
        devx_status status = DEVX_OK;
        int n = -1;
        make_wide(&tally, widths[i], &source, &array);
        COUNT_ALLOCATIONS(n, status = devx_schema_import(&source, &schema, &error));
        CHECK_INT(status, DEVX_OK);
        CHECK_INT(n, 1);
        COUNT_ALLOCATIONS(n, status = devx_batch_import(&array, schema, &batch, &error));
        CHECK_INT(status, DEVX_OK);
        CHECK_INT(n, 1);
        COUNT_ALLOCATIONS(n, status = devx_schema_export(schema, &exported_schema, &error));
        CHECK_INT(status, DEVX_OK);
        CHECK_INT(n, 1);
        COUNT_ALLOCATIONS(n, status = devx_batch_export_share(batch, &array, &error));
        CHECK_INT(status, DEVX_OK);
        CHECK_INT(n, 1);
        COUNT_ALLOCATIONS(n, status = devx_batch_export_share_device(batch, &device, &error));
        CHECK_INT(status, DEVX_OK);
        CHECK_INT(n, 1);
        COUNT_ALLOCATIONS(n, status = devx_batch_import_device(&device, schema, &again, &error));
        CHECK_INT(status, DEVX_OK);
        CHECK_INT(n, 1);
        devx_batch_release(&again);
        COUNT_ALLOCATIONS(n, status = devx_batch_export_move_device(&batch, &device, &error));
        CHECK_INT(status, DEVX_OK);
        CHECK_INT(n, 1);
        COUNT_ALLOCATIONS(n, array.release(&array));
        CHECK_INT(n, 0);
        COUNT_ALLOCATIONS(n, exported_schema.release(&exported_schema));
        CHECK_INT(n, 0);
        device.array.release(&device.array);
        devx_schema_release(&schema);
        CHECK_INT(tally.live, 0);
    }
    CHECK_NOTHING_OUTSTANDING();
}

/* Depth, dictionaries and lists make no difference. */
TEST(a_nested_batch_takes_one_allocation_too) {
    NEEDS_COUNTS();
    struct tally tally = {0};
    struct ArrowSchema source = foreign_schema(&tally, "+s", ""), deep = foreign_schema(&tally, "i", "item");
    struct ArrowSchema kind = foreign_schema(&tally, "c", "kind"), exported;
    struct ArrowArray array = foreign_array(&tally, 1, 1), numbers = foreign_numbers(&tally, 1);
    struct ArrowArray kinds = foreign_array(&tally, 1, 2);
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = NULL;
    devx_status status = DEVX_OK;
    int n = -1;
    for (int level = 0; level < 40; ++level) {
        struct ArrowSchema above = foreign_schema(&tally, "+w:1", "item");
        struct ArrowArray lists = foreign_array(&tally, 1, 1);
        add_schema_child(&above, deep);
        add_array_child(&lists, numbers);
        deep = above;
        numbers = lists;
    }
    set_schema_dictionary(&kind, foreign_schema(&tally, "u", NULL));
    set_buffer(&kinds, 1, "", 1);
    set_array_dictionary(&kinds, foreign_texts(&tally, 2));
    add_schema_child(&source, deep);
    add_schema_child(&source, kind);
    add_array_child(&array, numbers);
    add_array_child(&array, kinds);
    COUNT_ALLOCATIONS(n, status = devx_schema_import(&source, &schema, &error));
    CHECK_INT(status, DEVX_OK);
    CHECK_INT(n, 1);
    COUNT_ALLOCATIONS(n, status = devx_batch_import(&array, schema, &batch, &error));
    CHECK_INT(status, DEVX_OK);
    CHECK_INT(n, 1);
    COUNT_ALLOCATIONS(n, status = devx_schema_export(schema, &exported, &error));
    CHECK_INT(n, 1);
    COUNT_ALLOCATIONS(n, status = devx_batch_export_move(&batch, &array, &error));
    CHECK_INT(status, DEVX_OK);
    CHECK_INT(n, 1);
    array.release(&array);
    exported.release(&exported);
    devx_schema_release(&schema);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

/* --- ten thousand times --- */

TEST(rounds_of_foreign_tensors) {
    struct tally tally = {0};
    int const n = rounds();
    for (int i = 0; i < n; ++i) {
        note_round(i, n);
        devx_tensor_t *tensor = NULL;
        struct DLManagedTensorVersioned *managed = NULL;
        CHECK_OK(devx_tensor_import(foreign_tensor(&tally, 2, shape_2x3, NULL), &tensor, &error));
        CHECK_OK(devx_tensor_export_move(&tensor, NULL, &managed, &error));
        CHECK_OK(devx_tensor_import(managed, &tensor, &error));
        devx_tensor_release(&tensor);
        CHECK_INT(tally.releases, i + 1);
        CHECK_NOTHING_OUTSTANDING();
    }
    CHECK_CALL(check_flat("DLPack, versioned", n));
    CHECK_INT(tally.live, 0);
}

TEST(rounds_of_own_tensors) {
    static double values[6];
    struct tally tally = {0};
    int const n = rounds();
    int64_t shape[2] = {2, 3};
    DLTensor const description = {values, {kDLCPU, 0}, 2, {kDLFloat, 64, 1}, shape, NULL, 0};
    devx_owner const owner = counting_owner(&tally);
    for (int i = 0; i < n; ++i) {
        note_round(i, n);
        devx_tensor_t *tensor = NULL;
        struct DLManagedTensor *legacy = NULL;
        CHECK_OK(devx_tensor_create(&description, 0, &owner, &tensor, &error));
        CHECK_OK(devx_tensor_export_share_legacy(tensor, NULL, &legacy, &error));
        devx_tensor_release(&tensor);
        CHECK_OK(devx_tensor_import_legacy(legacy, &tensor, &error));
        devx_tensor_release(&tensor);
        CHECK_INT(tally.releases, i + 1);
        CHECK_NOTHING_OUTSTANDING();
    }
    CHECK_CALL(check_flat("DLPack, legacy", n));
}

TEST(rounds_of_foreign_batches) {
    struct tally tally = {0};
    int const n = rounds();
    for (int i = 0; i < n; ++i) {
        note_round(i, n);
        struct ArrowSchema described;
        struct ArrowArray array, child;
        struct ArrowDeviceArray device;
        devx_schema_t *schema = NULL;
        devx_batch_t *batch = NULL;
        foreign_batch(&tally, 4, &described, &array);
        CHECK_OK(devx_schema_import(&described, &schema, &error));
        CHECK_OK(devx_batch_import(&array, schema, &batch, &error));
        CHECK_OK(devx_schema_export(schema, &described, &error));
        CHECK_OK(devx_batch_export_move_device(&batch, &device, &error));
        devx_schema_release(&schema);
        CHECK_OK(devx_schema_import(&described, &schema, &error));
        CHECK_OK(devx_batch_import_device(&device, schema, &batch, &error));
        CHECK_OK(devx_batch_export_share(batch, &array, &error));
        devx_batch_release(&batch);
        devx_schema_release(&schema);
        ARROW_MOVE(array.children[i % 2], &child);
        array.release(&array);
        child.release(&child);
        CHECK_INT(tally.releases, 6 * (i + 1));
        CHECK_NOTHING_OUTSTANDING();
    }
    CHECK_CALL(check_flat("Arrow arrays and device arrays", n));
    CHECK_INT(tally.live, 0);
}

TEST(rounds_of_own_batches) {
    static int32_t const values[4] = {1, 2, 3, 4};
    const void *const buffers[] = {NULL, values};
    devx_field const fields[] = {{"+s", "", NULL, 0, 1, 0}, {"i", "x", NULL, DEVX_FIELD_NULLABLE, 0, 0}};
    devx_node const nodes[] = {{4, 0, 0, buffers, 1}, {4, 0, 0, buffers, 2}};
    struct tally tally = {0};
    int const n = rounds();
    devx_owner const owner = counting_owner(&tally);
    for (int i = 0; i < n; ++i) {
        note_round(i, n);
        devx_schema_t *schema = NULL;
        devx_batch_t *batch = NULL;
        struct ArrowArray array;
        CHECK_OK(devx_schema_create(fields, 2, &schema, &error));
        CHECK_OK(devx_batch_create(schema, cpu, nodes, 2, &owner, &batch, &error));
        CHECK_OK(devx_batch_export_move(&batch, &array, &error));
        CHECK_OK(devx_batch_import(&array, schema, &batch, &error));
        devx_schema_release(&schema);
        devx_batch_release(&batch);
        CHECK_INT(tally.releases, i + 1);
        CHECK_NOTHING_OUTSTANDING();
    }
    CHECK_CALL(check_flat("Arrow arrays of one's own", n));
}

/* Between tensors and columns, and with copies. */
TEST(rounds_of_conversions) {
    struct tally tally = {0};
    int const n = rounds();
    for (int i = 0; i < n; ++i) {
        note_round(i, n);
        devx_tensor_t *tensor = NULL, *back = NULL;
        devx_batch_t *batch = NULL;
        devx_column column;
        CHECK_OK(devx_tensor_import(foreign_tensor(&tally, 2, shape_2x3, NULL), &tensor, &error));
        CHECK_OK(devx_tensor_to_column(tensor, "x", i % 2 == 0 ? DEVX_COPY_NEVER : DEVX_COPY_ALWAYS, &batch, &error));
        devx_tensor_release(&tensor);
        CHECK_OK(devx_batch_root(batch, &column, &error));
        CHECK_OK(devx_column_to_tensor(batch, &column, DEVX_COPY_NEVER, &back, &error));
        devx_batch_release(&batch);
        devx_tensor_release(&back);
        CHECK_INT(tally.releases, i + 1);
        CHECK_NOTHING_OUTSTANDING();
    }
    CHECK_CALL(check_flat("tensors and columns", n));
    CHECK_INT(tally.live, 0);
}

/* --- a million batches --- */

/* A foreign producer that gives the same batch for ever and allocates nothing itself, so that all allocations that are counted
 * are the library's. A batch has to be released before the next one is pulled. */
static int32_t const endless_numbers[4] = {1, 2, 3, 4};
static const void *endless_buffers[2] = {NULL, endless_numbers};
static struct ArrowArray endless_column;
static struct ArrowArray *endless_columns[1] = {&endless_column};

static void release_endless_array(struct ArrowArray *array) {
    if (array->private_data != NULL) {
        count_release(array->private_data);
    }
    array->release = NULL;
}

static int endless_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    struct ArrowArray const column = {4, 0, 0, 2, 0, endless_buffers, NULL, NULL, release_endless_array, NULL};
    struct ArrowArray const root = {4,    0, 0, 1, 1, endless_buffers, endless_columns, NULL, release_endless_array,
                                    stream->private_data};
    endless_column = column;
    *out = root;
    return 0;
}

static int endless_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    *out = foreign_schema((struct tally *)stream->private_data, "+s", "");
    add_schema_child(out, foreign_schema((struct tally *)stream->private_data, "i", "n"));
    return 0;
}

static const char *endless_last_error(struct ArrowArrayStream *stream) {
    (void)stream;
    return NULL;
}

static void endless_release(struct ArrowArrayStream *stream) {
    stream->release = NULL;
}

/* From a foreign producer through both kinds of stream, imported and exported, to a foreign consumer: each batch takes one
 * allocation at each of the four steps, and none remains. */
TEST(a_million_batches_through_both_kinds_of_stream) {
    struct tally tally = {0};
    struct ArrowArrayStream plain = {endless_schema, endless_next, endless_last_error, endless_release, &tally};
    struct ArrowDeviceArrayStream device;
    devx_batch_stream_t *stream = NULL;
    int const counted = counts(), n = counted && rounds() <= 10000 ? 100 * rounds() : rounds();
    CHECK_OK(devx_batch_stream_import(&plain, &stream, &error));
    CHECK_OK(devx_batch_stream_export_device(&stream, &device, &error));
    CHECK_OK(devx_batch_stream_import_device(&device, &stream, &error));
    CHECK_OK(devx_batch_stream_export(&stream, &plain, &error));
    int64_t const blocks_before = blocks;
    for (int i = 0; i < n; ++i) {
        note_round(i, n);
        struct ArrowArray array;
        int code = -1, allocated = 0;
        COUNT_ALLOCATIONS(allocated, code = plain.get_next(&plain, &array));
        CHECK_INT(code, 0);
        CHECK_PTR(array.children[0]->buffers[1], endless_numbers);
        CHECK_INT(allocated, counted ? 4 : 0);
        array.release(&array);
        CHECK_INT(tally.releases, i + 1);
        CHECK_INT(blocks, blocks_before);
    }
    CHECK_CALL(check_flat("Arrow streams and device streams", n));
    plain.release(&plain);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

/* An import that is refused a thousand times leaves nothing behind either. */
TEST(rounds_of_refusals) {
    struct tally tally = {0};
    int const n = rounds();
    struct DLManagedTensorVersioned *managed = foreign_tensor(&tally, 2, shape_2x3, NULL);
    managed->dl_tensor.shape[0] = -2;
    for (int i = 0; i < n; ++i) {
        devx_tensor_t *tensor = NULL;
        CHECK_INT(devx_tensor_import(managed, &tensor, &error), DEVX_INVALID_SHAPE);
    }
    CHECK_INT(tally.releases, 0);
    CHECK_NOTHING_OUTSTANDING();
    managed->deleter(managed);
    CHECK_INT(tally.live, 0);
}

CHECK_MAIN()
