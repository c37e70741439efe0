/* Bad Arrow arrays, bad descriptions of batches, and data that contradicts itself. */
#include "bad.h"

/* --- what is wrong with an array --- */

/* An array of five rows of `good_schema`. */
static struct ArrowArray good_array(struct tally *tally) {
    static int8_t const indices[5] = {0, 1, 2, 1, 0};
    static int32_t const ends[6] = {0, 1, 2, 2, 3, 4};
    struct ArrowArray root = foreign_array(tally, 5, 1), list = foreign_array(tally, 5, 2);
    struct ArrowArray kind = foreign_array(tally, 5, 2), pair = foreign_array(tally, 5, 1);
    set_buffer(&list, 1, ends, sizeof ends);
    add_array_child(&list, foreign_texts(tally, 4));
    set_buffer(&kind, 1, indices, sizeof indices);
    set_array_dictionary(&kind, foreign_texts(tally, 3));
    add_array_child(&pair, foreign_numbers(tally, 10));
    add_array_child(&root, foreign_numbers(tally, 5));
    add_array_child(&root, list);
    add_array_child(&root, kind);
    add_array_child(&root, pair);
    return root;
}

static devx_schema_t *import_good_schema(struct tally *tally) {
    struct ArrowSchema source = good_schema(tally);
    devx_schema_t *schema = NULL;
    return devx_schema_import(&source, &schema, &error) == DEVX_OK ? schema : NULL;
}

static void length_negative(struct ArrowArray *a) {
    a->length = -1;
}
static void offset_negative(struct ArrowArray *a) {
    a->offset = -5;
}
static void length_and_offset_overflow(struct ArrowArray *a) {
    a->length = INT64_MAX;
    a->offset = 1;
}
static void child_shorter(struct ArrowArray *a) {
    a->children[NUMBER]->length = 4;
}
static void parent_longer(struct ArrowArray *a) {
    a->offset = 1;
}
static void fixed_list_shorter(struct ArrowArray *a) {
    a->children[PAIR]->children[0]->length = 9;
}
static void fixed_list_overflow(struct ArrowArray *a) {
    a->children[PAIR]->length = INT64_MAX / 2 + 1;
}
static void length_beyond_memory(struct ArrowArray *a) {
    a->children[NUMBER]->length = INT64_MAX / 4 + 1;
}
static void null_count_low(struct ArrowArray *a) {
    a->children[NUMBER]->null_count = -2;
}
static void null_count_high(struct ArrowArray *a) {
    a->children[NUMBER]->null_count = 6;
}
static void null_count_without_bitmap(struct ArrowArray *a) {
    a->children[NUMBER]->null_count = 1;
}
static void n_buffers_negative(struct ArrowArray *a) {
    a->children[NUMBER]->n_buffers = -1;
    a->children[NUMBER]->buffers = forbidden();
}
static void n_buffers_few(struct ArrowArray *a) {
    a->children[NUMBER]->n_buffers = 1;
}
static void n_buffers_many(struct ArrowArray *a) {
    a->children[NUMBER]->n_buffers = 3;
    a->children[NUMBER]->buffers = forbidden();
}
static void n_buffers_huge(struct ArrowArray *a) {
    a->children[NUMBER]->n_buffers = INT64_MAX;
    a->children[NUMBER]->buffers = forbidden();
}
static void root_without_bitmap_place(struct ArrowArray *a) {
    a->n_buffers = 0;
}
static void buffers_null(struct ArrowArray *a) {
    a->children[NUMBER]->buffers = NULL;
}
static const void *nothing[3] = {NULL, NULL, NULL};
static void values_null(struct ArrowArray *a) {
    a->children[NUMBER]->buffers = nothing;
}
static void offsets_null(struct ArrowArray *a) {
    a->children[TEXTS]->children[0]->buffers = nothing;
}
static void n_children_negative(struct ArrowArray *a) {
    a->n_children = -1;
    a->children = forbidden();
}
static void n_children_few(struct ArrowArray *a) {
    a->n_children = 3;
    a->children = forbidden();
}
static void n_children_huge(struct ArrowArray *a) {
    a->n_children = INT64_C(1) << 31;
    a->children = forbidden();
}
static void children_of_a_leaf(struct ArrowArray *a) {
    a->children[NUMBER]->n_children = 1;
    a->children[NUMBER]->children = forbidden();
}
static void children_null(struct ArrowArray *a) {
    a->children = NULL;
}
static void child_released(struct ArrowArray *a) {
    a->children[KIND]->release = NULL;
}
static void dictionary_missing(struct ArrowArray *a) {
    a->children[KIND]->dictionary = NULL;
}
static void dictionary_released(struct ArrowArray *a) {
    a->children[KIND]->dictionary->release = NULL;
}
static struct ArrowArray stray;
static void dictionary_where_there_is_none(struct ArrowArray *a) {
    stray.release = release_foreign_array;
    a->children[NUMBER]->dictionary = &stray;
}

struct bad_array {
    const char *name;
    void (*spoil)(struct ArrowArray *array);
    devx_status status;
    const char *part;
};

static struct bad_array const bad_arrays[] = {
    BAD(length_negative, DEVX_INVALID_LENGTH, "length is -1"),
    BAD(offset_negative, DEVX_INVALID_LENGTH, "offset is -5"),
    BAD(length_and_offset_overflow, DEVX_INVALID_LENGTH, "offset 1 and length 9223372036854775807"),
    BAD(child_shorter, DEVX_INVALID_LENGTH, "children[0].length is 4"),
    BAD(parent_longer, DEVX_INVALID_LENGTH, "children[0].length is 5: struct of length 5 and offset 1 needs more"),
    BAD(fixed_list_shorter, DEVX_INVALID_LENGTH, "array \"pair\": children[0].length is 9"),
    BAD(fixed_list_overflow, DEVX_INVALID_LENGTH, "array \"pair\""),
    BAD(length_beyond_memory, DEVX_INVALID_LENGTH, "array \"number\": buffers[1]"),
    BAD(null_count_low, DEVX_INVALID_NULL_COUNT, "null_count is -2"),
    BAD(null_count_high, DEVX_INVALID_NULL_COUNT, "null_count is 6 with length 5"),
    BAD(null_count_without_bitmap, DEVX_INVALID_NULL_COUNT, "validity buffer is NULL"),
    BAD(n_buffers_negative, DEVX_INVALID_BUFFERS, "n_buffers is -1"),
    BAD(n_buffers_few, DEVX_INVALID_BUFFERS, "n_buffers is 1: int32 has 2"),
    BAD(n_buffers_many, DEVX_INVALID_BUFFERS, "n_buffers is 3: int32 has 2"),
    BAD(n_buffers_huge, DEVX_INVALID_BUFFERS, "n_buffers is 9223372036854775807"),
    BAD(root_without_bitmap_place, DEVX_INVALID_BUFFERS, "n_buffers is 0: struct has 1"),
    BAD(buffers_null, DEVX_INVALID_BUFFERS, "buffers is NULL with n_buffers 2"),
    BAD(values_null, DEVX_INVALID_BUFFERS, "buffers[1] is NULL with length 5"),
    BAD(offsets_null, DEVX_INVALID_BUFFERS, "array \"item\": buffers[1] is NULL"),
    BAD(n_children_negative, DEVX_MISMATCH, "n_children is -1: the schema has 4"),
    BAD(n_children_few, DEVX_MISMATCH, "n_children is 3: the schema has 4"),
    BAD(n_children_huge, DEVX_MISMATCH, "n_children is 2147483648"),
    BAD(children_of_a_leaf, DEVX_MISMATCH, "array \"number\": n_children is 1: the schema has 0"),
    BAD(children_null, DEVX_INVALID_CHILDREN, "children is NULL with n_children 4"),
    BAD(child_released, DEVX_INVALID_CHILDREN, "children[2] is released"),
    BAD(dictionary_missing, DEVX_MISMATCH, "dictionary is NULL, but the schema has one"),
    BAD(dictionary_released, DEVX_INVALID_CHILDREN, "array \"kind\": dictionary is released"),
    BAD(dictionary_where_there_is_none, DEVX_MISMATCH, "there is a dictionary, but the schema has none"),
};
enum { BAD_ARRAYS = sizeof bad_arrays / sizeof *bad_arrays };

/* Saved structs of an array, to restore them: the spoiled struct may be the root or one below it. */
struct array_copy {
    struct ArrowArray root, children[COLUMNS], dictionary, pair_values, text_values;
    struct ArrowArray *places[COLUMNS], *dictionary_place, *pair_place, *text_place;
};

static void keep_array(struct array_copy *copy, const struct ArrowArray *array) {
    copy->root = *array;
    for (int i = 0; i < COLUMNS; ++i) {
        copy->places[i] = array->children[i];
        copy->children[i] = *array->children[i];
    }
    copy->dictionary_place = array->children[KIND]->dictionary;
    copy->dictionary = *copy->dictionary_place;
    copy->pair_place = array->children[PAIR]->children[0];
    copy->pair_values = *copy->pair_place;
    copy->text_place = array->children[TEXTS]->children[0];
    copy->text_values = *copy->text_place;
}

static void restore_array(const struct array_copy *copy, struct ArrowArray *array) {
    *array = copy->root;
    for (int i = 0; i < COLUMNS; ++i) {
        *copy->places[i] = copy->children[i];
    }
    *copy->dictionary_place = copy->dictionary;
    *copy->pair_place = copy->pair_values;
    *copy->text_place = copy->text_values;
}

TEST(bad_arrays_are_refused) {
    for (int i = 0; i < BAD_ARRAYS; ++i) {
        struct bad_array const *bad = &bad_arrays[i];
        struct tally schema_tally = {0}, tally = {0};
        struct array_copy copy;
        devx_schema_t *schema = import_good_schema(&schema_tally);
        CHECK_MADE(schema);
        struct ArrowArray source = good_array(&tally);
        keep_array(&copy, &source);
        bad->spoil(&source);
        struct ArrowArray const before = source;
        struct ArrowDeviceArray device, device_before;
        memset(&device, 0, sizeof device); /* the bytes between the members are compared too */
        device.array = source;
        device.device_id = -1;
        device.device_type = ARROW_DEVICE_CPU;
        memcpy(&device_before, &device, sizeof device);
        devx_batch_t *out = UNWRITTEN;
        CHECK_CALL(check_refusal(bad->name, devx_batch_import(&source, schema, &out, &error), bad->status, bad->part));
        CHECK_CALL(check_refusal(bad->name, devx_batch_import_device(&device, schema, &out, &error), bad->status,
                                 bad->part));
        CHECK_MSG(memcmp(&source, &before, sizeof before) == 0, "%s: the source was changed", bad->name);
        CHECK_MSG(memcmp(&device, &device_before, sizeof device) == 0, "%s: the device array was changed", bad->name);
        CHECK_PTR(out, UNWRITTEN);
        CHECK_INT(tally.releases, 0);
        CHECK_INT(tally.live, GOOD_NODES);
        CHECK_INT(devx_ledger_outstanding(), 1); /* the schema */
        restore_array(&copy, &source);

        /* Nothing of it was lost: put right, it is taken. */
        CHECK_OK(devx_batch_import(&source, schema, &out, &error));
        devx_batch_release(&out);
        CHECK_INT(tally.releases, GOOD_NODES);
        devx_schema_release(&schema);
        CHECK_INT(schema_tally.live, 0);
    }
    CHECK_NOTHING_OUTSTANDING();
}

TEST(null_children_of_arrays_are_refused) {
    struct tally schema_tally = {0}, tally = {0};
    devx_schema_t *schema = import_good_schema(&schema_tally);
    CHECK_MADE(schema);
    struct ArrowArray source = good_array(&tally), *kept = source.children[PAIR];
    source.children[PAIR] = NULL;
    devx_batch_t *out = UNWRITTEN;
    CHECK_REFUSED(devx_batch_import(&source, schema, &out, &error), DEVX_INVALID_CHILDREN, "children[3] is NULL");
    source.children[PAIR] = kept;
    CHECK_PTR(out, UNWRITTEN);
    source.release(&source);
    devx_schema_release(&schema);
    CHECK_INT(tally.live, 0);
}

TEST(released_and_missing_arrays_are_refused) {
    struct tally tally = {0};
    devx_schema_t *schema = import_good_schema(&tally);
    CHECK_MADE(schema);
    struct ArrowArray released, good = foreign_numbers(&tally, 1);
    struct ArrowDeviceArray device;
    memset(&released, 0xff, sizeof released);
    released.release = NULL;
    memset(&device, 0xff, sizeof device);
    device.array = released;
    devx_batch_t *out = UNWRITTEN;
    CHECK_REFUSED(devx_batch_import(NULL, schema, &out, &error), DEVX_NULL_ARGUMENT, "array is NULL");
    CHECK_REFUSED(devx_batch_import_device(NULL, schema, &out, &error), DEVX_NULL_ARGUMENT, "array is NULL");
    CHECK_REFUSED(devx_batch_import(&released, schema, &out, &error), DEVX_RELEASED, "release is NULL");
    CHECK_REFUSED(devx_batch_import_device(&device, schema, &out, &error), DEVX_RELEASED, "release is NULL");
    CHECK_REFUSED(devx_batch_import(&good, NULL, &out, &error), DEVX_NULL_ARGUMENT, "schema is NULL");
    CHECK_REFUSED(devx_batch_import(&good, schema, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK_PTR(out, UNWRITTEN);
    CHECK(good.release != NULL);
    good.release(&good);
    devx_schema_release(&schema);
    CHECK_NOTHING_OUTSTANDING();
}

/* Values of 2^31 - 1 bytes, and so many of them that they take more than 2^63 bytes. */
TEST(wide_binaries_are_counted_in_full) {
    struct tally tally = {0};
    struct ArrowSchema described = foreign_schema(&tally, "w:2147483647", "x");
    struct ArrowArray source = foreign_array(&tally, INT64_C(1) << 33, 2);
    set_buffer(&source, 1, "x", 1);
    devx_schema_t *schema = NULL;
    devx_batch_t *out = UNWRITTEN;
    CHECK_OK(devx_schema_import(&described, &schema, &error));
    CHECK_REFUSED(devx_batch_import(&source, schema, &out, &error), DEVX_INVALID_LENGTH, "buffers[1]");
    CHECK_PTR(out, UNWRITTEN);
    source.release(&source);
    devx_schema_release(&schema);
}

TEST(bad_devices_are_refused) {
    static struct {
        int32_t type;
        int64_t id;
        const char *part;
    } const all[] = {
        {0, -1, "device_type is 0"},
        {99, -1, "device_type is 99"},
        {-1, 0, "device_type is -1"},
        {INT32_MAX, 0, "device_type is 2147483647"},
        {ARROW_DEVICE_CUDA, 1 << 20, "cuda"},
        {ARROW_DEVICE_CUDA_HOST, 1 << 20, "cuda_host"},
        {ARROW_DEVICE_ROCM, 0, "rocm"},
        {ARROW_DEVICE_CPU, 1, "device_id is 1"},
        {ARROW_DEVICE_CPU, -2, "device_id is -2"},
        {ARROW_DEVICE_CPU, INT64_MAX, "device_id is 9223372036854775807"},
    };
    struct tally tally = {0};
    struct ArrowSchema described = foreign_schema(&tally, "i", "x");
    devx_schema_t *schema = NULL;
    CHECK_OK(devx_schema_import(&described, &schema, &error));
    struct ArrowDeviceArray source;
    memset(&source, 0, sizeof source);
    source.array = foreign_numbers(&tally, 3);
    devx_batch_t *out = UNWRITTEN;
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        source.device_type = all[i].type;
        source.device_id = all[i].id;
        struct ArrowDeviceArray before;
        memcpy(&before, &source, sizeof before);
        CHECK_REFUSED(devx_batch_import_device(&source, schema, &out, &error), DEVX_DEVICE, all[i].part);
        CHECK(memcmp(&source, &before, sizeof before) == 0);
    }
    source.device_type = ARROW_DEVICE_CPU;
    source.device_id = -1;
    source.sync_event = forbidden();
    CHECK_REFUSED(devx_batch_import_device(&source, schema, &out, &error), DEVX_DEVICE, "sync_event is 0x");
    CHECK_PTR(out, UNWRITTEN);
    CHECK_INT(tally.live, 2);
    source.sync_event = NULL;
    CHECK_OK(devx_batch_import_device(&source, schema, &out, &error));
    devx_batch_release(&out);
    devx_schema_release(&schema);
    CHECK_INT(tally.live, 0);
}

/* --- what is wrong with a description of a batch --- */

TEST(bad_lists_of_nodes_are_refused) {
    static int32_t const values[4] = {0, 1, 2, 3};
    const void *const buffers[] = {NULL, values};
    devx_field const fields[] = {{"+s", "", NULL, 0, 1, 0}, {"i", "x", NULL, 0, 0, 0}};
    devx_node nodes[] = {{4, 0, 0, buffers, 1}, {4, 0, 0, buffers, 2}, {4, 0, 0, buffers, 2}};
    struct tally tally = {0};
    devx_owner const owner = counting_owner(&tally);
    devx_schema_t *schema = NULL;
    devx_batch_t *out = UNWRITTEN;
    CHECK_OK(devx_schema_create(fields, 2, &schema, &error));
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 1, &owner, &out, &error), DEVX_MISMATCH, "there are 1 nodes");
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 3, &owner, &out, &error), DEVX_MISMATCH, "there are 3 nodes");
    CHECK_REFUSED(devx_batch_create(schema, cpu, NULL, 2, &owner, &out, &error), DEVX_NULL_ARGUMENT, "nodes is NULL");
    CHECK_REFUSED(devx_batch_create(NULL, cpu, nodes, 2, &owner, &out, &error), DEVX_NULL_ARGUMENT, "schema is NULL");
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK_REFUSED(devx_batch_create(schema, (DLDevice){kDLCUDA, 1 << 20}, nodes, 2, &owner, &out, &error), DEVX_DEVICE,
                  "cuda");
    nodes[1].n_buffers = -1;
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error), DEVX_INVALID_BUFFERS,
                  "n_buffers is -1");
    nodes[1].n_buffers = 1;
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error), DEVX_INVALID_BUFFERS,
                  "n_buffers is 1: int32 has 2");
    nodes[1].n_buffers = INT64_MAX;
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error), DEVX_INVALID_BUFFERS,
                  "n_buffers is 9223372036854775807");
    nodes[1].n_buffers = 2;
    nodes[1].buffers = NULL;
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error), DEVX_NULL_ARGUMENT,
                  "nodes[1]: buffers is NULL");
    nodes[1].buffers = buffers;
    nodes[1].length = 3;
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error), DEVX_INVALID_LENGTH,
                  "children[0].length is 3");
    nodes[1].length = -4;
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error), DEVX_INVALID_LENGTH, "is -4");
    nodes[1].length = 4;
    nodes[1].null_count = 9;
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error), DEVX_INVALID_NULL_COUNT,
                  "null_count is 9");
    nodes[1].null_count = 0;
    CHECK_PTR(out, UNWRITTEN);
    CHECK_INT(tally.releases, 0); /* the owner is still the caller's */
    CHECK_NOTHING_OUTSTANDING();
    CHECK_OK(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error));
    devx_batch_release(&out);
    CHECK_INT(tally.releases, 1);
    devx_schema_release(&schema);
}

/* --- data that contradicts itself --- */

/* An import reads none of the data, so this is found when a row is read. */
TEST(values_that_lie_are_found_when_they_are_read) {
    static int32_t const backwards[] = {0, 3, 1, 2, 100};
    static int32_t const negative[] = {-5, 1};
    static int8_t const indices[] = {0, 5, -1};
    static _Alignas(8) unsigned char const memory[32];
    struct tally tally = {0};
    devx_column column;
    devx_batch_t *batch = NULL;
    devx_schema_t *schema = NULL;
    const char *bytes = UNWRITTEN;
    size_t length = 77;
    int64_t index = 77;
    const void *values = UNWRITTEN;

    devx_field fields[] = {{"u", "x", NULL, 0, 0, 0}, {"u", "", NULL, 0, 0, 0}};
    const void *text_buffers[] = {NULL, backwards, "abc"};
    devx_node nodes[] = {{3, 0, 0, text_buffers, 3}, {2, 0, 0, text_buffers, 3}};
    CHECK_OK(devx_schema_create(fields, 1, &schema, &error));
    CHECK_OK(devx_batch_create(schema, cpu, nodes, 1, NULL, &batch, &error));
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_REFUSED(devx_column_bytes(batch, &column, 1, &bytes, &length, &error), DEVX_INVALID_BUFFERS, "are 3 and 1");
    devx_batch_release(&batch);
    text_buffers[1] = negative;
    nodes[0].length = 1;
    CHECK_OK(devx_batch_create(schema, cpu, nodes, 1, NULL, &batch, &error));
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_REFUSED(devx_column_bytes(batch, &column, 0, &bytes, &length, &error), DEVX_INVALID_BUFFERS, "are -5 and 1");
    devx_batch_release(&batch);
    text_buffers[1] = backwards;
    text_buffers[2] = NULL;
    CHECK_OK(devx_batch_create(schema, cpu, nodes, 1, NULL, &batch, &error));
    CHECK_REFUSED(devx_column_bytes(batch, &column, 0, &bytes, &length, &error), DEVX_INVALID_BUFFERS,
                  "buffers[2] is NULL");
    CHECK_PTR(bytes, UNWRITTEN);
    CHECK_INT(length, 77);
    devx_batch_release(&batch);
    devx_schema_release(&schema);

    /* A list that reaches beyond its values. */
    const void *list_buffers[] = {NULL, backwards}, *number_buffers[] = {NULL, memory};
    devx_field const list[] = {{"+l", "x", NULL, 0, 1, 0}, {"i", "item", NULL, 0, 0, 0}};
    devx_node const list_nodes[] = {{4, 0, 0, list_buffers, 2}, {4, 0, 0, number_buffers, 2}};
    devx_column row;
    memset(&row, 0x5a, sizeof row);
    CHECK_OK(devx_schema_create(list, 2, &schema, &error));
    CHECK_OK(devx_batch_create(schema, cpu, list_nodes, 2, NULL, &batch, &error));
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_REFUSED(devx_column_list(batch, &column, 1, &row, &error), DEVX_INVALID_BUFFERS, "are 3 and 1");
    CHECK_REFUSED(devx_column_list(batch, &column, 3, &row, &error), DEVX_INVALID_BUFFERS, "2..100");
    CHECK_INT(row.node, INT64_C(0x5a5a5a5a5a5a5a5a));
    devx_batch_release(&batch);
    devx_schema_release(&schema);

    /* Indices outside the dictionary. */
    const void *index_buffers[] = {NULL, indices};
    const void *good_texts[] = {NULL, backwards, "abc"};
    fields[0].format = "c";
    fields[0].has_dictionary = 1;
    nodes[0] = (devx_node){3, 0, 0, index_buffers, 2};
    nodes[1] = (devx_node){2, 0, 0, good_texts, 3};
    CHECK_OK(devx_schema_create(fields, 2, &schema, &error));
    CHECK_OK(devx_batch_create(schema, cpu, nodes, 2, NULL, &batch, &error));
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_REFUSED(devx_column_dictionary_index(batch, &column, 1, &index, &error), DEVX_OUT_OF_RANGE,
                  "index 5 of a dictionary of 2");
    CHECK_REFUSED(devx_column_dictionary_index(batch, &column, 2, &index, &error), DEVX_OUT_OF_RANGE, "index -1");
    CHECK_INT(index, 77);
    devx_batch_release(&batch);
    devx_schema_release(&schema);

    /* An unaligned buffer is accepted, because a consumer may copy from it; but it is not handed out as values of a type. */
    struct ArrowSchema described = foreign_schema(&tally, "i", "x");
    struct ArrowArray array = foreign_numbers(&tally, 3);
    const void *const aligned = array.buffers[1];
    array.buffers[1] = memory + 1;
    CHECK_OK(devx_schema_import(&described, &schema, &error));
    CHECK_OK(devx_batch_import(&array, schema, &batch, &error));
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_REFUSED(devx_column_values(batch, &column, int32, &values, &error), DEVX_INVALID_BUFFERS,
                  "not aligned to 4 bytes");
    CHECK_PTR(values, UNWRITTEN);
    devx_tensor_t *tensor = UNWRITTEN;
    CHECK_REFUSED(devx_column_to_tensor(batch, &column, DEVX_COPY_NEVER, &tensor, &error), DEVX_COPY_REQUIRED,
                  "not aligned to 4 bytes");
    CHECK_PTR(tensor, UNWRITTEN);
    DLTensor copied;
    CHECK_OK(devx_column_to_tensor(batch, &column, DEVX_COPY_IF_NEEDED, &tensor, &error));
    CHECK_OK(devx_tensor_borrow(tensor, &copied, NULL, &error));
    CHECK_INT(memcmp(copied.data, memory + 1, 3 * sizeof(int32_t)), 0);
    devx_tensor_release(&tensor);
    ((const void **)(uintptr_t)column.buffers)[1] = aligned; /* for the producer to free */
    devx_batch_release(&batch);
    devx_schema_release(&schema);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(rows_and_columns_out_of_range_are_refused) {
    struct tally tally = {0};
    struct ArrowSchema described;
    struct ArrowArray array;
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = NULL;
    foreign_batch(&tally, 3, &described, &array);
    CHECK_OK(devx_schema_import(&described, &schema, &error));
    CHECK_OK(devx_batch_import(&array, schema, &batch, &error));

    devx_column number, text, out;
    const char *bytes = UNWRITTEN;
    size_t length = 77;
    int32_t valid = 77;
    int64_t count = 77;
    memset(&out, 0x5a, sizeof out);
    devx_column const untouched = out;
    CHECK_OK(devx_batch_column(batch, 0, &number, &error));
    CHECK_OK(devx_batch_column(batch, 1, &text, &error));
    CHECK_REFUSED(devx_batch_column(batch, 2, &out, &error), DEVX_OUT_OF_RANGE,
                  "index is 2: the batch has 2 columns");
    CHECK_REFUSED(devx_batch_column(batch, -1, &out, &error), DEVX_OUT_OF_RANGE, "index is -1");
    CHECK_REFUSED(devx_batch_columns(batch, 2, 1, &out, &error), DEVX_OUT_OF_RANGE,
                  "first is 2 and count is 1: the batch has 2 columns");
    CHECK_REFUSED(devx_batch_columns(batch, 0, 3, &out, &error), DEVX_OUT_OF_RANGE, "first is 0 and count is 3");
    CHECK_REFUSED(devx_batch_columns(batch, -1, 1, &out, &error), DEVX_OUT_OF_RANGE, "first is -1");
    CHECK_REFUSED(devx_batch_columns(batch, INT64_MAX, 1, &out, &error), DEVX_OUT_OF_RANGE, "first is 9223372036854775807");
    CHECK_REFUSED(devx_batch_columns(batch, 1, SIZE_MAX, &out, &error), DEVX_INVALID_ARGUMENT, "out has");
    CHECK_REFUSED(devx_batch_column_named(batch, "nobody", &out, &error), DEVX_OUT_OF_RANGE, "nobody");
    CHECK_REFUSED(devx_batch_column_named(batch, NULL, &out, &error), DEVX_NULL_ARGUMENT, "name is NULL");
    devx_column root;
    CHECK_OK(devx_batch_root(batch, &root, &error));
    CHECK_REFUSED(devx_column_child(batch, &number, 0, &out, &error), DEVX_OUT_OF_RANGE,
                  "column \"number\": index is 0: the column has 0 children");
    CHECK_REFUSED(devx_column_child(batch, &root, -1, &out, &error), DEVX_OUT_OF_RANGE, "index is -1");
    CHECK_REFUSED(devx_column_dictionary(batch, &number, &out, &error), DEVX_MISMATCH,
                  "column \"number\": the column has no dictionary");
    CHECK_REFUSED(devx_column_dictionary_index(batch, &number, 0, &count, &error), DEVX_MISMATCH, "no dictionary");
    CHECK_REFUSED(devx_column_list(batch, &number, 0, &out, &error), DEVX_MISMATCH, "not a list");
    CHECK_REFUSED(devx_column_is_valid(batch, &number, 3, &valid, &error), DEVX_OUT_OF_RANGE, "row is 3");
    CHECK_REFUSED(devx_column_is_valid(batch, &number, -1, &valid, &error), DEVX_OUT_OF_RANGE, "row is -1");
    CHECK_REFUSED(devx_column_bool(batch, &number, 0, &valid, &error), DEVX_MISMATCH, "not bool");
    CHECK_REFUSED(devx_column_bytes(batch, &text, 3, &bytes, &length, &error), DEVX_OUT_OF_RANGE, "row is 3");
    CHECK_REFUSED(devx_column_bytes(batch, &text, INT64_MIN, &bytes, &length, &error), DEVX_OUT_OF_RANGE, "row is -");
    CHECK_REFUSED(devx_column_bytes(batch, &number, 0, &bytes, &length, &error), DEVX_MISMATCH, "int32");

    /* A record that is not of this batch. */
    devx_column wrong = number;
    wrong.node = 99;
    CHECK_REFUSED(devx_column_is_valid(batch, &wrong, 0, &valid, &error), DEVX_OUT_OF_RANGE, "node is 99");
    wrong.node = -1;
    CHECK_REFUSED(devx_column_null_count(batch, &wrong, &count, &error), DEVX_OUT_OF_RANGE, "node is -1");
    wrong = number;
    wrong.length = 4;
    CHECK_REFUSED(devx_column_null_count(batch, &wrong, &count, &error), DEVX_OUT_OF_RANGE, "length 4");
    wrong.length = INT64_MAX;
    wrong.offset = 1;
    CHECK_REFUSED(devx_column_null_count(batch, &wrong, &count, &error), DEVX_OUT_OF_RANGE, "9223372036854775807");
    wrong = number;
    wrong.offset = -1;
    CHECK_REFUSED(devx_column_null_count(batch, &wrong, &count, &error), DEVX_OUT_OF_RANGE, "offset -1");
    wrong = number;
    wrong.length = -1;
    CHECK_REFUSED(devx_column_null_count(batch, &wrong, &count, &error), DEVX_OUT_OF_RANGE, "length -1");

    CHECK(memcmp(&out, &untouched, sizeof out) == 0);
    CHECK_PTR(bytes, UNWRITTEN);
    CHECK_INT(length, 77);
    CHECK_INT(valid, 77);
    CHECK_INT(count, 77);
    devx_batch_release(&batch);
    devx_schema_release(&schema);
    CHECK_INT(tally.live, 0);
}

CHECK_MAIN()
