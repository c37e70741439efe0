/* Import and export of record batches and other arrays as ArrowArray and ArrowDeviceArray, and reading their columns. */
#include "own_batch.h"

static void check_valid(const devx_batch_t *batch, const devx_column *column, int64_t row, int expected) {
    int32_t valid = -1;
    CHECK_OK(devx_column_is_valid(batch, column, row, &valid, &error));
    CHECK_INT(valid, expected);
}

/* Checks a batch as it was made, and after a trip through the C structs. */
static void check_both(void (*check)(const devx_batch_t *batch), devx_batch_t *batch, struct tally *tally) {
    CHECK_MADE(batch);
    CHECK_CALL(check(batch));
    batch = round_trip(batch);
    CHECK_MADE(batch);
    CHECK_CALL(check(batch));
    CHECK_INT(tally->releases, 0);
    devx_batch_release(&batch);
    CHECK_INT(tally->releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_copy_keeps_nothing_of_its_source) {
    struct tally tally = {0};
    struct ArrowSchema schema;
    struct ArrowArray array;
    devx_batch_t *batch = NULL, *copy = NULL;
    devx_column column;
    const void *values = NULL;
    char text[8] = "";
    size_t length = 0;
    foreign_batch(&tally, 3, &schema, &array);
    CHECK_OK(devx_batch_import_pair(&array, &schema, &batch, &error));
    CHECK_OK(devx_batch_copy(batch, &copy, &error));
    devx_batch_release(&batch);
    CHECK_OK(devx_batch_column(copy, 0, &column, &error));
    CHECK_OK(devx_column_values(copy, &column, int32, &values, &error));
    CHECK_INT(((const int32_t *)values)[1], 1);
    CHECK_OK(devx_batch_column(copy, 1, &column, &error));
    CHECK_OK(devx_column_text(copy, &column, 1, text, sizeof text, &length, &error));
    CHECK_STR(text, "\"bb\"");
    devx_batch_release(&copy);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

/* --- values of a fixed width --- */

/* Eight values of each type that is stored as a number, seen through a slice of [2, 7) with row 4 of the array null. */
static int64_t memory_of_numbers[16];
static unsigned char const bit_4_is_null[1] = {0xef};

static DLDataType stored_as;

static void check_slice(const devx_batch_t *batch) {
    devx_column column;
    const void *values = NULL;
    int64_t nulls = 0;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_INT(column.length, 5);
    CHECK_INT(column.offset, 2);
    CHECK_INT(column.n_buffers, 2);
    CHECK_PTR(column.buffers[0], bit_4_is_null);
    CHECK_PTR(column.buffers[1], memory_of_numbers);
    CHECK_OK(devx_column_values(batch, &column, stored_as, &values, &error));
    CHECK_PTR(values, (const char *)memory_of_numbers + 2 * stored_as.bits / 8);
    CHECK_OK(devx_column_null_count(batch, &column, &nulls, &error));
    CHECK_INT(nulls, 1);
    for (int row = 0; row < 5; ++row) {
        CHECK_CALL(check_valid(batch, &column, row, row != 2));
    }
}

TEST(every_type_that_is_stored_as_a_number) {
    static struct {
        const char *format;
        DLDataType stored;
    } const all[] = {
        {"c", {kDLInt, 8, 1}},         {"C", {kDLUInt, 8, 1}},  {"s", {kDLInt, 16, 1}},   {"S", {kDLUInt, 16, 1}},
        {"i", {kDLInt, 32, 1}},        {"I", {kDLUInt, 32, 1}}, {"l", {kDLInt, 64, 1}},   {"L", {kDLUInt, 64, 1}},
        {"e", {kDLFloat, 16, 1}},      {"f", {kDLFloat, 32, 1}}, {"g", {kDLFloat, 64, 1}}, {"tdD", {kDLInt, 32, 1}},
        {"tdm", {kDLInt, 64, 1}},      {"tts", {kDLInt, 32, 1}}, {"ttm", {kDLInt, 32, 1}}, {"ttu", {kDLInt, 64, 1}},
        {"ttn", {kDLInt, 64, 1}},      {"tDs", {kDLInt, 64, 1}}, {"tDm", {kDLInt, 64, 1}}, {"tDu", {kDLInt, 64, 1}},
        {"tDn", {kDLInt, 64, 1}},      {"tiM", {kDLInt, 32, 1}}, {"tss:", {kDLInt, 64, 1}},
        {"tsm:UTC", {kDLInt, 64, 1}},  {"tsu:Europe/Berlin", {kDLInt, 64, 1}}, {"tsn:-03:00", {kDLInt, 64, 1}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        for (int known = 0; known < 2; ++known) {
            struct tally tally = {0};
            const void *const buffers[] = {bit_4_is_null, memory_of_numbers};
            devx_field const one = field(all[i].format, "x", 0);
            devx_node const slice = node(5, 2, known ? 1 : -1, buffers, 2);
            stored_as = all[i].stored;
            CHECK_CALL(check_both(check_slice, create(&one, &slice, 1, &tally), &tally));
        }
    }
}

static void check_wide(const devx_batch_t *batch) {
    devx_column column;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_INT(column.n_buffers, 2);
    CHECK_PTR(column.buffers[1], memory_of_numbers);
    const void *values = UNWRITTEN;
    CHECK_REFUSED(devx_column_values(batch, &column, (DLDataType){kDLInt, 64, 1}, &values, &error), DEVX_MISMATCH,
                  "not stored as int64");
}

TEST(types_without_a_number_have_their_buffers) {
    static const char *const formats[] = {"d:9,2,32", "d:18,2,64", "d:38,10", "d:76,10,256", "tiD", "tin"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; ++i) {
        struct tally tally = {0};
        const void *const buffers[] = {NULL, memory_of_numbers};
        devx_field const one = field(formats[i], "x", 0);
        devx_node const all = node(3, 0, 0, buffers, 2);
        CHECK_CALL(check_both(check_wide, create(&one, &all, 1, &tally), &tally));
    }
}

static unsigned char const bools[2] = {0xa5, 0x01};

static void check_bools(const devx_batch_t *batch) {
    static int const expected[] = {0, 1, 0, 1, 1};
    devx_column column;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    for (int row = 0; row < 5; ++row) {
        int32_t value = -1;
        CHECK_OK(devx_column_bool(batch, &column, row, &value, &error));
        CHECK_INT(value, expected[row]);
        CHECK_CALL(check_valid(batch, &column, row, 1));
    }
}

TEST(bools_are_bits) {
    struct tally tally = {0};
    const void *const buffers[] = {NULL, bools};
    devx_field const one = field("b", "x", 0);
    devx_node const slice = node(5, 4, 0, buffers, 2); /* 0xa5, 0x01: bits 4 to 8 are 0 1 0 1 1 */
    CHECK_CALL(check_both(check_bools, create(&one, &slice, 1, &tally), &tally));
}

static void check_nulls(const devx_batch_t *batch) {
    devx_column column;
    int64_t nulls = 0;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_INT(column.n_buffers, 0);
    CHECK_OK(devx_column_null_count(batch, &column, &nulls, &error));
    CHECK_INT(nulls, 7);
    CHECK_CALL(check_valid(batch, &column, 6, 0));
}

TEST(the_null_type_has_no_buffers) {
    struct tally tally = {0};
    devx_field const one = field("n", "x", 0);
    devx_node const all = node(7, 0, 7, NULL, 0);
    CHECK_CALL(check_both(check_nulls, create(&one, &all, 1, &tally), &tally));
}

/* --- text and binary --- */

static int32_t const offsets_32[] = {0, 1, 3, 3, 6};
static int64_t const offsets_64[] = {0, 1, 3, 3, 6};
static char const letters[] = "abbccc";
static unsigned char const bit_3_is_null[1] = {0xf7};

static void check_texts(const devx_batch_t *batch) {
    devx_column column;
    const char *bytes = NULL;
    size_t length = 0;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_INT(column.n_buffers, 3);
    CHECK_PTR(column.buffers[2], letters);
    CHECK_CALL(check_bytes(batch, &column, 0, "bb"));
    CHECK_CALL(check_bytes(batch, &column, 1, ""));
    CHECK_CALL(check_valid(batch, &column, 0, 1));
    CHECK_CALL(check_valid(batch, &column, 1, 1));
    CHECK_CALL(check_valid(batch, &column, 2, 0));
    CHECK_OK(devx_column_bytes(batch, &column, 0, &bytes, &length, &error));
    CHECK_PTR(bytes, letters + 1);
}

TEST(texts_and_binaries_of_both_widths) {
    static const char *const formats[] = {"u", "z", "U", "Z"};
    for (int i = 0; i < 4; ++i) {
        struct tally tally = {0};
        const void *const offsets = i < 2 ? (const void *)offsets_32 : (const void *)offsets_64;
        const void *const buffers[] = {bit_3_is_null, offsets, letters};
        devx_field const one = field(formats[i], "x", 0);
        devx_node const slice = node(3, 1, 1, buffers, 3);
        CHECK_CALL(check_both(check_texts, create(&one, &slice, 1, &tally), &tally));
    }
}

static void check_pairs(const devx_batch_t *batch) {
    devx_column column;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_CALL(check_bytes(batch, &column, 0, "bc"));
    CHECK_CALL(check_bytes(batch, &column, 1, "cc"));
}

TEST(binaries_of_a_fixed_size) {
    struct tally tally = {0};
    const void *const buffers[] = {NULL, letters};
    devx_field const one = field("w:2", "x", 0);
    devx_node const slice = node(2, 1, 0, buffers, 2); /* "ab" "bc" "cc" from the second on */
    CHECK_CALL(check_both(check_pairs, create(&one, &slice, 1, &tally), &tally));
}

/* --- nested types --- */

static const void *const no_buffers[] = {NULL};
static int32_t const ten[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
static const void *const ten_buffers[] = {NULL, ten};
static const void *const text_buffers[] = {NULL, offsets_32, letters};

static void check_struct(const devx_batch_t *batch) {
    devx_batch_info info;
    devx_column root, number, text, named;
    const void *values = NULL;
    CHECK_OK(devx_batch_get_info(batch, &info, &error));
    CHECK_INT(info.length, 2);
    CHECK_INT(info.n_columns, 2);
    CHECK_INT(info.n_nodes, 3);
    CHECK_INT(info.device_type, kDLCPU);
    CHECK_INT(info.device_id, 0);
    /* Rows 1 and 2 of the struct are rows 3 + 1 and 3 + 2 of the numbers, 1 and 2 of the texts. */
    CHECK_OK(devx_batch_column(batch, 0, &number, &error));
    CHECK_INT(number.length, 2);
    CHECK_INT(number.offset, 4);
    CHECK_STR(number.name, "number");
    CHECK_OK(devx_column_values(batch, &number, int32, &values, &error));
    CHECK_PTR(values, &ten[4]);
    CHECK_OK(devx_batch_column_named(batch, "text", &text, &error));
    CHECK_CALL(check_bytes(batch, &text, 0, "bb"));
    CHECK_CALL(check_bytes(batch, &text, 1, ""));
    CHECK_OK(devx_batch_root(batch, &root, &error));
    CHECK_STR(root.format, "+s");
    CHECK_INT(root.n_children, 2);
    CHECK_OK(devx_column_child(batch, &root, 1, &named, &error));
    CHECK_INT(named.offset, text.offset);
    /* Several columns in one call are the same as one by one. */
    devx_column all[3];
    memset(all, 0x5a, sizeof all);
    devx_column const untouched = all[2];
    CHECK_OK(devx_batch_columns(batch, 0, 2, all, &error));
    CHECK(memcmp(&all[0], &number, sizeof number) == 0);
    CHECK(memcmp(&all[1], &text, sizeof text) == 0);
    CHECK(memcmp(&all[2], &untouched, sizeof untouched) == 0);
    CHECK_OK(devx_batch_columns(batch, 1, 1, &all[2], &error));
    CHECK(memcmp(&all[2], &text, sizeof text) == 0);
    CHECK_OK(devx_batch_columns(batch, 2, 0, NULL, &error));
}

TEST(a_slice_of_a_struct_slices_its_children) {
    struct tally tally = {0};
    devx_field const fields[] = {field("+s", "", 2), field("i", "number", 0), field("u", "text", 0)};
    devx_node const nodes[] = {node(2, 1, 0, no_buffers, 1), node(5, 3, 0, ten_buffers, 2),
                               node(4, 0, 0, text_buffers, 3)};
    CHECK_CALL(check_both(check_struct, create(fields, nodes, 3, &tally), &tally));
}

static int64_t large_lists;

static void check_lists(const devx_batch_t *batch) {
    devx_column column, list, all;
    const void *values = NULL;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_OK(devx_column_list(batch, &column, 0, &list, &error));
    CHECK_INT(list.length, 2);
    CHECK_OK(devx_column_values(batch, &list, int32, &values, &error));
    CHECK_PTR(values, &ten[2 + 1]); /* the child skips two, the list one more */
    CHECK_OK(devx_column_list(batch, &column, 1, &list, &error));
    CHECK_INT(list.length, 0);
    CHECK_OK(devx_column_list(batch, &column, 2, &list, &error));
    CHECK_INT(list.length, 3);
    CHECK_OK(devx_column_child(batch, &column, 0, &all, &error));
    CHECK_INT(all.length, 8);
    CHECK_INT(all.offset, 2);
    CHECK_STR(all.name, "item");
}

TEST(lists_of_both_widths) {
    for (large_lists = 0; large_lists < 2; ++large_lists) {
        struct tally tally = {0};
        const void *const buffers[] = {NULL, large_lists ? (const void *)offsets_64 : (const void *)offsets_32};
        devx_field const fields[] = {field(large_lists ? "+L" : "+l", "x", 1), field("i", "item", 0)};
        devx_node const nodes[] = {node(3, 1, 0, buffers, 2), node(8, 2, 0, ten_buffers, 2)};
        CHECK_CALL(check_both(check_lists, create(fields, nodes, 2, &tally), &tally));
    }
}

static void check_triples(const devx_batch_t *batch) {
    devx_column column, child, row;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_OK(devx_column_child(batch, &column, 0, &child, &error));
    CHECK_INT(child.length, 6);
    CHECK_INT(child.offset, 1 + 3);
    CHECK_OK(devx_column_list(batch, &column, 1, &row, &error));
    CHECK_INT(row.length, 3);
    CHECK_INT(row.offset, 1 + 6);
}

TEST(lists_of_a_fixed_size) {
    struct tally tally = {0};
    devx_field const fields[] = {field("+w:3", "x", 1), field("i", "item", 0)};
    devx_node const nodes[] = {node(2, 1, 0, no_buffers, 1), node(9, 1, 0, ten_buffers, 2)};
    CHECK_CALL(check_both(check_triples, create(fields, nodes, 2, &tally), &tally));
}

static unsigned char const indices[] = {3, 0, 2, 1, 0};
static unsigned char const bit_2_is_null[1] = {0xfb};

static void check_dictionary(const devx_batch_t *batch) {
    static int const expected[] = {0, -1, 1, 0};
    devx_column column, dictionary;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_INT(column.has_dictionary, 1);
    CHECK_INT(column.flags, DEVX_FIELD_NULLABLE | DEVX_FIELD_ORDERED);
    CHECK_PTR(column.buffers[1], indices);
    CHECK_OK(devx_column_dictionary(batch, &column, &dictionary, &error));
    CHECK_INT(dictionary.length, 4);
    for (int row = 0; row < 4; ++row) {
        int64_t index = -1;
        CHECK_CALL(check_valid(batch, &column, row, expected[row] >= 0));
        if (expected[row] >= 0) {
            CHECK_OK(devx_column_dictionary_index(batch, &column, row, &index, &error));
            CHECK_INT(index, expected[row]);
        }
    }
    CHECK_CALL(check_bytes(batch, &dictionary, 3, "ccc"));
}

TEST(dictionaries) {
    struct tally tally = {0};
    const void *const buffers[] = {bit_2_is_null, indices};
    devx_field fields[] = {field("C", "x", 0), field("u", "", 0)};
    devx_node const nodes[] = {node(4, 1, 1, buffers, 2), node(4, 0, 0, text_buffers, 3)};
    fields[0].has_dictionary = 1;
    fields[0].flags |= DEVX_FIELD_ORDERED;
    CHECK_CALL(check_both(check_dictionary, create(fields, nodes, 2, &tally), &tally));
}

/* Every integer type may hold the indices. */
TEST(dictionary_indices_of_every_width) {
    static struct {
        const char *format;
        unsigned char values[16];
    } const all[] = {
        {"c", {1, 2}},
        {"C", {1, 2}},
        {"s", {1, 0, 2, 0}},
        {"S", {1, 0, 2, 0}},
        {"i", {1, 0, 0, 0, 2, 0, 0, 0}},
        {"I", {1, 0, 0, 0, 2, 0, 0, 0}},
        {"l", {1, 0, 0, 0, 0, 0, 0, 0, 2}},
        {"L", {1, 0, 0, 0, 0, 0, 0, 0, 2}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        struct tally tally = {0};
        _Alignas(8) unsigned char values[16];
        memcpy(values, all[i].values, sizeof values);
        const void *const buffers[] = {NULL, values};
        devx_field fields[] = {field(all[i].format, "x", 0), field("u", "", 0)};
        devx_node const nodes[] = {node(2, 0, 0, buffers, 2), node(4, 0, 0, text_buffers, 3)};
        fields[0].has_dictionary = 1;
        devx_batch_t *batch = create(fields, nodes, 2, &tally);
        CHECK_MADE(batch);
        devx_column column;
        int64_t index = 0;
        CHECK_OK(devx_batch_root(batch, &column, &error));
        CHECK_OK(devx_column_dictionary_index(batch, &column, 0, &index, &error));
        CHECK_INT(index, 1);
        CHECK_OK(devx_column_dictionary_index(batch, &column, 1, &index, &error));
        CHECK_INT(index, 2);
        devx_batch_release(&batch);
    }
}

/* A list of structs of lists of texts, each level with its own offset. */
static void check_deep(const devx_batch_t *batch) {
    devx_column column, people, names, list;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_OK(devx_column_list(batch, &column, 1, &people, &error)); /* people 1 and 2, behind an offset of 1 */
    CHECK_INT(people.length, 2);
    CHECK_INT(people.offset, 2);
    CHECK_OK(devx_column_child(batch, &people, 0, &names, &error));
    CHECK_INT(names.length, 2);
    CHECK_OK(devx_column_list(batch, &names, 0, &list, &error));
    CHECK_INT(list.length, 0);
    CHECK_OK(devx_column_list(batch, &names, 1, &list, &error));
    CHECK_INT(list.length, 3);
    CHECK_CALL(check_bytes(batch, &list, 0, ""));
    CHECK_CALL(check_bytes(batch, &list, 1, "ccc"));
    CHECK_CALL(check_bytes(batch, &list, 2, "dddd"));
}

TEST(offsets_add_up_through_all_levels) {
    struct tally tally = {0};
    static int32_t const outer[] = {0, 1, 3}, inner[] = {0, 1, 2, 2, 5};
    static int32_t const ends[] = {0, 1, 3, 3, 6, 10};
    const void *const outer_buffers[] = {NULL, outer};
    const void *const inner_buffers[] = {NULL, inner};
    const void *const texts[] = {NULL, ends, "abbcccdddd"};
    devx_field const fields[] = {field("+l", "groups", 1), field("+s", "item", 1), field("+l", "names", 1),
                                 field("u", "item", 0)};
    devx_node const nodes[] = {node(2, 0, 0, outer_buffers, 2), node(3, 1, 0, no_buffers, 1),
                               node(4, 0, 0, inner_buffers, 2), node(5, 0, 0, texts, 3)};
    CHECK_CALL(check_both(check_deep, create(fields, nodes, 4, &tally), &tally));
}

/* The record that a call reads may be the one that it writes. */
TEST(one_record_goes_down_all_levels) {
    struct tally tally = {0};
    static int32_t const outer[] = {0, 1, 3}, words[] = {0, 2, 3};
    const void *const outer_buffers[] = {NULL, outer};
    const void *const word_buffers[] = {NULL, words};
    devx_field fields[] = {field("+l", "groups", 1), field("+s", "item", 1), field("i", "word", 0), field("u", "", 0)};
    devx_node const nodes[] = {node(2, 0, 0, outer_buffers, 2), node(3, 0, 0, no_buffers, 1),
                               node(3, 0, 0, word_buffers, 2), node(4, 0, 0, text_buffers, 3)};
    fields[2].has_dictionary = 1;
    devx_batch_t *batch = create(fields, nodes, 4, &tally);
    CHECK_MADE(batch);
    devx_column column, stored;
    int32_t valid = 0;
    int64_t row = 0;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_OK(devx_column_slice(batch, &column, 1, 1, &column, &error));
    CHECK_OK(devx_column_list(batch, &column, 0, &column, &error));
    CHECK_INT(column.length, 2);
    CHECK_OK(devx_column_child(batch, &column, 0, &column, &error));
    CHECK_STR(column.name, "word");
    stored = column;
    CHECK_OK(devx_column_resolve(batch, &stored, 1, &valid, &stored, &row, &error));
    CHECK_CALL(check_bytes(batch, &stored, row, "ccc"));
    CHECK_OK(devx_column_dictionary(batch, &column, &column, &error));
    CHECK_CALL(check_bytes(batch, &column, 2, ""));
    CHECK(memcmp(&column, &stored, sizeof column) == 0);
    devx_batch_release(&batch);
}

TEST(an_empty_array_needs_no_buffers) {
    static struct {
        const char *format;
        int64_t n_buffers;
    } const all[] = {{"g", 2},   {"b", 2},       {"u", 3},      {"U", 3}, {"z", 3},
                     {"w:4", 2}, {"tsn:UTC", 2}, {"d:38,2", 2}, {"n", 0}};
    static const void *const nothing[3] = {NULL, NULL, NULL};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        struct tally tally = {0};
        devx_field const one = field(all[i].format, "x", 0);
        devx_node const empty = node(0, 0, 0, nothing, all[i].n_buffers);
        devx_batch_t *batch = create(&one, &empty, 1, &tally);
        CHECK_MADE(batch);
        batch = round_trip(batch);
        CHECK_MADE(batch);
        devx_column column;
        int64_t nulls = -1;
        CHECK_OK(devx_batch_root(batch, &column, &error));
        CHECK_OK(devx_column_null_count(batch, &column, &nulls, &error));
        CHECK_INT(nulls, 0);
        devx_batch_release(&batch);
        CHECK_INT(tally.releases, 1);
    }
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_batch_without_columns_has_rows) {
    struct tally tally = {0};
    devx_field const root = field("+s", "", 0);
    devx_node const rows = node(9, 0, 0, no_buffers, 1);
    devx_batch_t *batch = create(&root, &rows, 1, &tally);
    CHECK_MADE(batch);
    batch = round_trip(batch);
    CHECK_MADE(batch);
    devx_batch_info info;
    CHECK_OK(devx_batch_get_info(batch, &info, &error));
    CHECK_INT(info.length, 9);
    CHECK_INT(info.n_columns, 0);
    devx_batch_release(&batch);
    CHECK_NOTHING_OUTSTANDING();
}

/* Nulls that nobody has counted are counted over the rows that the column sees, and the count is not kept. */
TEST(null_counts_are_of_the_rows_that_are_seen) {
    struct tally tally = {0};
    static unsigned char const bits[2] = {0x0f, 0x02}; /* rows 0 to 3 and 9 are there */
    const void *const buffers[] = {bits, ten};
    devx_field const fields[] = {field("+s", "", 1), field("i", "x", 0)};
    devx_node const nodes[] = {node(5, 2, 0, no_buffers, 1), node(10, 0, -1, buffers, 2)};
    devx_batch_t *batch = create(fields, nodes, 2, &tally);
    CHECK_MADE(batch);
    devx_column column;
    int64_t nulls = 0;
    CHECK_OK(devx_batch_column(batch, 0, &column, &error));
    CHECK_INT(column.null_count, -1);
    CHECK_OK(devx_column_null_count(batch, &column, &nulls, &error));
    CHECK_INT(nulls, 3);
    devx_batch_release(&batch);
}

TEST(field_metadata_is_seen_through_a_column) {
    struct tally tally = {0};
    static char const block[] = {1, 0, 0, 0, 1, 0, 0, 0, 'k', 2, 0, 0, 0, 'v', 'w'};
    struct ArrowSchema source;
    struct ArrowArray array;
    foreign_batch(&tally, 2, &source, &array);
    set_metadata(source.children[0], block, sizeof block);
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = NULL;
    devx_column column;
    CHECK_OK(devx_schema_import(&source, &schema, &error));
    CHECK_OK(devx_batch_import(&array, schema, &batch, &error));
    devx_schema_release(&schema);
    CHECK_OK(devx_batch_column(batch, 0, &column, &error));
    CHECK(memcmp(column.metadata, block, sizeof block) == 0);
    CHECK_OK(devx_batch_column(batch, 1, &column, &error));
    CHECK_PTR(column.metadata, NULL);
    devx_batch_release(&batch);
    CHECK_INT(tally.live, 0);
}

CHECK_MAIN()
