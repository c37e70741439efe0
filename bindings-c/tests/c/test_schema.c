/* Import and export of schemas as ArrowSchema. */
#include "own_batch.h"

/* {"key": "value", "": ""} as the Arrow specification encodes it. */
static size_t encode_pairs(char *block) {
    static const char *const texts[] = {"key", "value", "", ""};
    int32_t const pairs = 2;
    size_t length = sizeof pairs;
    memcpy(block, &pairs, sizeof pairs);
    for (int i = 0; i < 4; ++i) {
        int32_t const bytes = (int32_t)strlen(texts[i]);
        memcpy(block + length, &bytes, sizeof bytes);
        memcpy(block + length + sizeof bytes, texts[i], (size_t)bytes);
        length += sizeof bytes + (size_t)bytes;
    }
    return length;
}

/* Every format string of the types without children. */
static const char *const formats[] = {
    "n",    "b",       "c",                 "C",          "s",        "S",         "i",           "I",
    "l",    "L",       "e",                 "f",          "g",        "z",         "Z",           "u",
    "U",    "w:0",     "w:3",               "d:9,2",      "d:9,2,32", "d:18,2,64", "d:38,10,128", "d:76,10,256",
    "tdD",  "tdm",     "tts",               "ttm",        "ttu",      "ttn",       "d:38,-2",     "tin",
    "tss:", "tsm:UTC", "tsu:Europe/Berlin", "tsn:+07:30", "tDs",      "tDm",       "tDu",         "tDn",
    "tiM",  "tiD",
};

enum { FORMATS = sizeof formats / sizeof *formats };

TEST(every_type_is_described_and_exported) {
    for (int i = 0; i < FORMATS; ++i) {
        devx_field const one = field(formats[i], "x", 0);
        devx_schema_t *schema = NULL;
        struct ArrowSchema out;
        CHECK_OK(devx_schema_create(&one, 1, &schema, &error));
        CHECK_OK(devx_schema_export(schema, &out, &error));
        devx_schema_release(&schema); /* the export has what it needs */
        CHECK_STR(out.format, formats[i]);
        CHECK_STR(out.name, "x");
        CHECK_PTR(out.metadata, NULL);
        CHECK_INT(out.flags, ARROW_FLAG_NULLABLE);
        CHECK_INT(out.n_children, 0);
        CHECK_PTR(out.dictionary, NULL);
        out.release(&out);
        CHECK(out.release == NULL);
    }
    CHECK_NOTHING_OUTSTANDING();
}

TEST(every_type_is_imported_and_exported) {
    for (int i = 0; i < FORMATS; ++i) {
        struct tally tally = {0};
        struct ArrowSchema source = foreign_schema(&tally, formats[i], NULL), out;
        const char *const text = source.format;
        devx_schema_t *schema = NULL;
        CHECK_OK(devx_schema_import(&source, &schema, &error));
        CHECK(source.release == NULL);
        CHECK_OK(devx_schema_export(schema, &out, &error));
        CHECK_PTR(out.format, text); /* shared, not copied */
        CHECK_PTR(out.name, NULL);
        devx_schema_release(&schema);
        CHECK_INT(tally.releases, 0);
        out.release(&out);
        CHECK_INT(tally.releases, 1);
        CHECK_INT(tally.live, 0);
    }
    CHECK_NOTHING_OUTSTANDING();
}

/* A tree with one of everything that nests:
 * struct { a: list<int8>, b: large_list<struct { c: utf8 }>, d: fixed_size_list(3)<float>,
 *          e: dictionary<int16, utf8> } */
static void describe_tree(devx_field *fields) {
    fields[0] = field("+s", "", 4);
    fields[0].flags = 0;
    fields[1] = field("+l", "a", 1);
    fields[2] = field("c", "item", 0);
    fields[3] = field("+L", "b", 1);
    fields[4] = field("+s", "item", 1);
    fields[5] = field("u", "c", 0);
    fields[6] = field("+w:3", "d", 1);
    fields[7] = field("f", "item", 0);
    fields[8] = field("s", "e", 0);
    fields[8].has_dictionary = 1;
    fields[8].flags = DEVX_FIELD_NULLABLE | DEVX_FIELD_ORDERED;
    fields[9] = field("u", "", 0);
}

static devx_schema_t *create_tree(void) {
    devx_field fields[10];
    devx_schema_t *schema = NULL;
    describe_tree(fields);
    return devx_schema_create(fields, 10, &schema, &error) == DEVX_OK ? schema : NULL;
}

static void check_tree(const struct ArrowSchema *root) {
    CHECK_STR(root->format, "+s");
    CHECK_INT(root->flags, 0);
    CHECK_INT(root->n_children, 4);
    CHECK_STR(root->children[0]->format, "+l");
    CHECK_STR(root->children[0]->name, "a");
    CHECK_STR(root->children[0]->children[0]->format, "c");
    CHECK_STR(root->children[1]->format, "+L");
    CHECK_STR(root->children[1]->children[0]->format, "+s");
    CHECK_STR(root->children[1]->children[0]->children[0]->name, "c");
    CHECK_STR(root->children[2]->format, "+w:3");
    CHECK_STR(root->children[2]->children[0]->format, "f");
    CHECK_STR(root->children[3]->format, "s");
    CHECK_INT(root->children[3]->flags, ARROW_FLAG_NULLABLE | ARROW_FLAG_DICTIONARY_ORDERED);
    CHECK(root->children[3]->dictionary != NULL);
    CHECK_STR(root->children[3]->dictionary->format, "u");
    for (int i = 0; i < 4; ++i) {
        CHECK(root->children[i]->release != NULL);
    }
}

TEST(a_nested_schema_is_described_depth_first) {
    devx_schema_t *schema = create_tree();
    CHECK_MADE(schema);
    struct ArrowSchema first, second;
    CHECK_OK(devx_schema_export(schema, &first, &error));
    CHECK_OK(devx_schema_export(schema, &second, &error)); /* exports are independent of each other */
    CHECK_CALL(check_tree(&first));
    first.release(&first);
    CHECK_CALL(check_tree(&second));

    /* Out and in again. */
    devx_schema_t *imported = NULL;
    CHECK_OK(devx_schema_import(&second, &imported, &error));
    CHECK_OK(devx_schema_export(imported, &first, &error));
    CHECK_CALL(check_tree(&first));
    devx_schema_release(&schema);
    devx_schema_release(&imported);
    CHECK_CALL(check_tree(&first));
    first.release(&first);
    CHECK_NOTHING_OUTSTANDING();
}

/* Follows the numbers from the root, and compares with what was described. */
TEST(a_schema_is_looked_at_field_by_field) {
    devx_schema_t *schema = create_tree();
    CHECK_MADE(schema);
    devx_field_info root, field;
    CHECK_OK(devx_schema_field(schema, 0, &root, &error));
    CHECK_STR(root.format, "+s");
    CHECK_STR(root.name, "");
    CHECK(root.metadata == NULL);
    CHECK_INT(root.flags, 0);
    CHECK_INT(root.n_children, 4);
    CHECK_INT(root.dictionary, -1);
    CHECK_OK(devx_schema_field(schema, root.first_child + 1, &field, &error));
    CHECK_STR(field.format, "+L");
    CHECK_INT(field.n_children, 1);
    CHECK_OK(devx_schema_field(schema, field.first_child, &field, &error));
    CHECK_STR(field.name, "item");
    CHECK_OK(devx_schema_field(schema, field.first_child, &field, &error));
    CHECK_STR(field.name, "c");
    CHECK_INT(field.first_child, -1);
    CHECK_OK(devx_schema_field(schema, root.first_child + 3, &field, &error));
    CHECK_STR(field.name, "e");
    CHECK_INT(field.flags, DEVX_FIELD_NULLABLE | DEVX_FIELD_ORDERED);
    CHECK_INT(field.n_children, 0);
    CHECK_INT(field.first_child, -1);
    CHECK_OK(devx_schema_field(schema, field.dictionary, &field, &error));
    CHECK_STR(field.format, "u");
    CHECK_REFUSED(devx_schema_field(schema, 10, &field, &error), DEVX_OUT_OF_RANGE, "node is 10: the schema has 10 fields");
    CHECK_REFUSED(devx_schema_field(schema, -1, &field, &error), DEVX_OUT_OF_RANGE, "node is -1");
    CHECK_NEEDS(devx_schema_field(NULL, 0, &field, &error), "schema");
    CHECK_NEEDS(devx_schema_field(schema, 0, NULL, &error), "out");
    devx_schema_release(&schema);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(schemas_are_equal_if_all_their_fields_are) {
    devx_schema_t *first = create_tree(), *second = create_tree(), *third = NULL;
    devx_field fields[10];
    int32_t equal = -1;
    CHECK_MADE(first);
    CHECK_MADE(second);
    describe_tree(fields);
    fields[7].flags = 0;
    CHECK_OK(devx_schema_create(fields, 10, &third, &error));
    CHECK_OK(devx_schema_equal(first, first, &equal, &error));
    CHECK_INT(equal, 1);
    CHECK_OK(devx_schema_equal(first, second, &equal, &error));
    CHECK_INT(equal, 1);
    CHECK_OK(devx_schema_equal(first, third, &equal, &error));
    CHECK_INT(equal, 0);
    CHECK_NEEDS(devx_schema_equal(NULL, second, &equal, &error), "schema");
    CHECK_NEEDS(devx_schema_equal(first, NULL, &equal, &error), "other");
    CHECK_NEEDS(devx_schema_equal(first, second, NULL, &error), "out");
    devx_schema_release(&first);
    devx_schema_release(&second);
    devx_schema_release(&third);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(metadata_and_unknown_flags_come_through) {
    struct tally tally = {0};
    char block[64];
    size_t const bytes = encode_pairs(block);
    struct ArrowSchema source = foreign_schema(&tally, "+s", ""), out;
    struct ArrowSchema child = foreign_schema(&tally, "i", "x");
    set_metadata(&child, block, bytes);
    child.flags = INT64_C(1) << 40 | ARROW_FLAG_NULLABLE;
    add_schema_child(&source, child);
    devx_schema_t *schema = NULL;
    CHECK_OK(devx_schema_import(&source, &schema, &error));
    CHECK_OK(devx_schema_export(schema, &out, &error));
    CHECK_INT(out.children[0]->flags, INT64_C(1) << 40 | ARROW_FLAG_NULLABLE);
    CHECK(memcmp(out.children[0]->metadata, block, bytes) == 0);
    out.release(&out);
    devx_schema_release(&schema);
    CHECK_INT(tally.releases, 2);

    /* The same for a schema that is described: then the block is copied. */
    devx_field one = field("i", "x", 0);
    one.metadata = block;
    CHECK_OK(devx_schema_create(&one, 1, &schema, &error));
    CHECK_OK(devx_schema_export(schema, &out, &error));
    CHECK(out.metadata != block);
    CHECK(memcmp(out.metadata, block, bytes) == 0);
    out.release(&out);
    devx_schema_release(&schema);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(texts_are_copied_by_create) {
    char format[] = "tsu:UTC", name[] = "Größe \xe2\x82\xac";
    devx_field const one = field(format, name, 0);
    devx_schema_t *schema = NULL;
    struct ArrowSchema out;
    CHECK_OK(devx_schema_create(&one, 1, &schema, &error));
    memset(format, 'X', sizeof format - 1);
    memset(name, 'X', sizeof name - 1);
    CHECK_OK(devx_schema_export(schema, &out, &error));
    CHECK_STR(out.format, "tsu:UTC");
    CHECK_STR(out.name, "Größe \xe2\x82\xac");
    out.release(&out);
    devx_schema_release(&schema);
}

TEST(a_thousand_columns_and_sixty_four_levels_are_fine) {
    enum { WIDE = 1000, DEEP = 64 };
    static devx_field fields[1 + WIDE];
    devx_schema_t *schema = NULL;
    struct ArrowSchema out;
    fields[0] = field("+s", "", WIDE);
    for (int i = 1; i <= WIDE; ++i) {
        fields[i] = field("g", "x", 0);
    }
    CHECK_OK(devx_schema_create(fields, 1 + WIDE, &schema, &error));
    CHECK_OK(devx_schema_export(schema, &out, &error));
    CHECK_INT(out.n_children, WIDE);
    out.release(&out);
    devx_schema_release(&schema);

    for (int i = 0; i < DEEP; ++i) {
        fields[i] = field(i + 1 < DEEP ? "+l" : "i", "x", i + 1 < DEEP);
    }
    CHECK_OK(devx_schema_create(fields, DEEP, &schema, &error));
    CHECK_OK(devx_schema_export(schema, &out, &error));
    devx_schema_release(&schema);
    CHECK_OK(devx_schema_import(&out, &schema, &error));
    devx_schema_release(&schema);
    CHECK_NOTHING_OUTSTANDING();
}

/* --- released exactly once, and children that are moved out --- */

TEST(a_foreign_schema_is_released_once_in_both_orders) {
    for (int handle_first = 0; handle_first < 2; ++handle_first) {
        struct tally tally = {0};
        struct ArrowSchema source, out;
        struct ArrowArray unused;
        foreign_batch(&tally, 1, &source, &unused);
        unused.release(&unused);
        int const before = tally.releases;
        devx_schema_t *schema = NULL;
        CHECK_OK(devx_schema_import(&source, &schema, &error));
        CHECK_OK(devx_schema_export(schema, &out, &error));
        if (handle_first) {
            devx_schema_release(&schema);
        } else {
            out.release(&out);
        }
        CHECK_INT(tally.releases, before);
        if (handle_first) {
            CHECK_STR(out.children[1]->name, "text");
            out.release(&out);
        } else {
            devx_schema_release(&schema);
        }
        CHECK_INT(tally.releases, before + 3);
        CHECK_INT(tally.live, 0);
    }
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_producer_that_forgets_to_mark_is_released_once) {
    struct tally tally = {0};
    struct ArrowSchema source = foreign_schema(&tally, "i", "x");
    tally.forgets = 1;
    devx_schema_t *schema = NULL;
    CHECK_OK(devx_schema_import(&source, &schema, &error));
    devx_schema_release(&schema);
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_child_moved_out_survives_its_parent) {
    devx_schema_t *schema = create_tree();
    CHECK_MADE(schema);
    struct ArrowSchema out, list, values, grandchild;
    CHECK_OK(devx_schema_export(schema, &out, &error));
    devx_schema_release(&schema);
    ARROW_MOVE(out.children[0], &list);
    ARROW_MOVE(out.children[3]->dictionary, &values);
    ARROW_MOVE(out.children[1]->children[0], &grandchild);
    out.release(&out);
    CHECK(out.release == NULL);
    CHECK_STR(list.name, "a");
    CHECK_STR(list.children[0]->format, "c");
    CHECK_STR(values.format, "u");
    CHECK_STR(grandchild.children[0]->name, "c");
    CHECK_INT(devx_ledger_outstanding(), 1); /* one tree, as long as a part of it is there */
    list.release(&list);
    CHECK(list.release == NULL);
    grandchild.release(&grandchild);
    CHECK_INT(devx_ledger_outstanding(), 1);
    CHECK_STR(values.format, "u");
    values.release(&values);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_child_released_in_place_is_skipped_by_its_parent) {
    devx_schema_t *schema = create_tree();
    CHECK_MADE(schema);
    struct ArrowSchema out;
    CHECK_OK(devx_schema_export(schema, &out, &error));
    devx_schema_release(&schema);
    out.children[1]->release(out.children[1]);
    CHECK(out.children[1]->release == NULL);
    out.children[3]->dictionary->release(out.children[3]->dictionary);
    CHECK_STR(out.children[2]->name, "d");
    out.release(&out);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_moved_schema_is_released_where_it_is) {
    devx_schema_t *schema = create_tree();
    CHECK_MADE(schema);
    struct ArrowSchema out, elsewhere;
    CHECK_OK(devx_schema_export(schema, &out, &error));
    devx_schema_release(&schema);
    ARROW_MOVE(&out, &elsewhere);
    CHECK_CALL(check_tree(&elsewhere));
    elsewhere.release(&elsewhere);
    CHECK(elsewhere.release == NULL);
    CHECK_NOTHING_OUTSTANDING();
}

/* A consumer may put its own struct where ours was; whoever releases the tree also releases that struct, by its own
 * callback. */
TEST(a_foreign_child_in_our_tree_is_released_by_its_own_callback) {
    struct tally tally = {0};
    devx_schema_t *schema = create_tree();
    CHECK_MADE(schema);
    struct ArrowSchema out, moved;
    CHECK_OK(devx_schema_export(schema, &out, &error));
    devx_schema_release(&schema);
    ARROW_MOVE(out.children[0], &moved);
    *out.children[0] = foreign_schema(&tally, "i", "theirs");
    out.release(&out);
    CHECK_INT(tally.releases, 1);
    moved.release(&moved);
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
