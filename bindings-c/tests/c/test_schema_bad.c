/* Bad Arrow schemas, and bad descriptions of schemas. */
#include "bad.h"

/* Tries to import a schema that is already spoiled; puts `good` back in place of the root before the schema is released. */
static void refuse_schema(const char *name, struct ArrowSchema *source, struct ArrowSchema good, struct tally *tally,
                          devx_status status, const char *part) {
    struct ArrowSchema const before = *source;
    devx_schema_t *out = UNWRITTEN;
    int const live = tally->live;
    error = (devx_error){0, 0, ""};
    CHECK_CALL(check_refusal(name, devx_schema_import(source, &out, &error), status, part));
    CHECK_MSG(memcmp(source, &before, sizeof before) == 0, "%s: the source was changed", name);
    CHECK_PTR(out, UNWRITTEN);
    CHECK_MSG(tally->releases == 0 && tally->live == live, "%s: something was released", name);
    CHECK_NOTHING_OUTSTANDING();
    *source = good;
    release_schema(source);
    CHECK_MSG(tally->live == 0, "%s: something is left", name);
}

TEST(released_and_missing_schemas_are_refused) {
    struct ArrowSchema released;
    memset(&released, 0xff, sizeof released);
    released.release = NULL;
    released.children = forbidden();
    devx_schema_t *out = UNWRITTEN;
    CHECK_REFUSED(devx_schema_import(NULL, &out, &error), DEVX_NULL_ARGUMENT, "schema is NULL");
    CHECK_REFUSED(devx_schema_import(&released, &out, &error), DEVX_RELEASED, "release is NULL");
    CHECK_PTR(out, UNWRITTEN);
    struct tally tally = {0};
    struct ArrowSchema good = foreign_schema(&tally, "i", "x");
    CHECK_REFUSED(devx_schema_import(&good, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK(good.release != NULL);
    good.release(&good);
}

TEST(bad_formats_are_refused) {
    static struct {
        const char *format;
        devx_status status;
        const char *part;
    } const all[] = {
        {NULL, DEVX_INVALID_FORMAT, "format is NULL"},
        {"", DEVX_INVALID_FORMAT, "format is \"\""},
        {"y", DEVX_INVALID_FORMAT, "format is \"y\""},
        {"gg", DEVX_INVALID_FORMAT, "\"gg\""},
        {"i ", DEVX_INVALID_FORMAT, "\"i \""},
        {"\xff\xfe", DEVX_INVALID_TEXT, "format is not valid UTF-8"},
        {"+", DEVX_INVALID_FORMAT, "\"+\""},
        {"+x", DEVX_INVALID_FORMAT, "\"+x\""},
        {"w", DEVX_INVALID_FORMAT, "\"w\""},
        {"w:", DEVX_INVALID_FORMAT, "\"w:\""},
        {"w:-1", DEVX_INVALID_FORMAT, "\"w:-1\""},
        {"w:x", DEVX_INVALID_FORMAT, "\"w:x\""},
        {"w:3x", DEVX_INVALID_FORMAT, "\"w:3x\""},
        {"w: 3", DEVX_INVALID_FORMAT, "\"w: 3\""},
        {"w:2147483648", DEVX_INVALID_FORMAT, "\"w:2147483648\""},
        {"w:99999999999999999999", DEVX_INVALID_FORMAT, "\"w:99999999999999999999\""},
        {"+w:-2", DEVX_INVALID_FORMAT, "\"+w:-2\""},
        {"+w:99999999999", DEVX_INVALID_FORMAT, "\"+w:99999999999\""},
        {"d:", DEVX_INVALID_FORMAT, "\"d:\""},
        {"d:10", DEVX_INVALID_FORMAT, "\"d:10\""},
        {"d:0,0", DEVX_INVALID_FORMAT, "\"d:0,0\""},
        {"d:-1,0", DEVX_INVALID_FORMAT, "\"d:-1,0\""},
        {"d:39,2", DEVX_INVALID_FORMAT, "\"d:39,2\""},
        {"d:19,2,64", DEVX_INVALID_FORMAT, "\"d:19,2,64\""},
        {"d:10,2,127", DEVX_INVALID_FORMAT, "\"d:10,2,127\""},
        {"d:10,2,16", DEVX_INVALID_FORMAT, "\"d:10,2,16\""},
        {"d:10,2,128,1", DEVX_INVALID_FORMAT, "\"d:10,2,128,1\""},
        {"d:10,99999999999", DEVX_INVALID_FORMAT, "\"d:10,99999999999\""},
        {"d:x,2", DEVX_INVALID_FORMAT, "\"d:x,2\""},
        {"tss", DEVX_INVALID_FORMAT, "\"tss\""},
        {"tsx:UTC", DEVX_INVALID_FORMAT, "\"tsx:UTC\""},
        {"tdX", DEVX_INVALID_FORMAT, "\"tdX\""},
        {"ttx", DEVX_INVALID_FORMAT, "\"ttx\""},
        {"tDx", DEVX_INVALID_FORMAT, "\"tDx\""},
        {"tix", DEVX_INVALID_FORMAT, "\"tix\""},
        {"vx", DEVX_INVALID_FORMAT, "\"vx\""},
        {"+vs", DEVX_INVALID_FORMAT, "\"+vs\""},
        {"+us", DEVX_INVALID_FORMAT, "\"+us\""},
        {"+us:0,0", DEVX_INVALID_FORMAT, "\"+us:0,0\""},
        {"+ud:0,128", DEVX_INVALID_FORMAT, "\"+ud:0,128\""},
        {"+ud:-1", DEVX_INVALID_FORMAT, "\"+ud:-1\""},
        {"+ud:0,", DEVX_INVALID_FORMAT, "\"+ud:0,\""},
        {"+m", DEVX_INVALID_CHILDREN, "map has 1"},
        {"+r", DEVX_INVALID_CHILDREN, "run_end_encoded has 2"},
        {"+us:0,1", DEVX_INVALID_CHILDREN, "\"+us:0,1\" has 2 type ids"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        struct tally tally = {0};
        char name[64];
        snprintf(name, sizeof name, "format \"%s\"", all[i].format == NULL ? "NULL" : all[i].format);
        struct ArrowSchema one = foreign_schema(&tally, all[i].format, "x");
        CHECK_CALL(refuse_schema(name, &one, one, &tally, all[i].status, all[i].part));
        if (all[i].format != NULL) {
            devx_field const field = {all[i].format, "x", NULL, 0, 0, 0};
            devx_schema_t *out = UNWRITTEN;
            CHECK_CALL(check_refusal(name, devx_schema_create(&field, 1, &out, &error), all[i].status, all[i].part));
            CHECK_PTR(out, UNWRITTEN);
        }
    }
}

/* A wrong format deep in the tree is found, and the text says which field has it. */
TEST(a_bad_field_is_named) {
    struct tally tally = {0};
    struct ArrowSchema source = good_schema(&tally);
    source.children[TEXTS]->children[0]->format = "?!";
    CHECK_CALL(refuse_schema("below", &source, source, &tally, DEVX_INVALID_FORMAT,
                             "field \"item\": format is \"?!\""));
}

TEST(a_long_name_leaves_room_for_what_is_wrong) {
    static char name[2001];
    struct tally tally = {0};
    struct ArrowSchema source = good_schema(&tally);
    memset(name, 'x', sizeof name - 1);
    source.children[NUMBER]->name = name;
    source.children[NUMBER]->format = "?!";
    CHECK_CALL(refuse_schema("long", &source, source, &tally, DEVX_INVALID_FORMAT, "x\"…: format is \"?!\""));
}

TEST(bad_names_are_refused) {
    struct tally tally = {0};
    struct ArrowSchema one = foreign_schema(&tally, "i", "caf\xe9");
    CHECK_CALL(refuse_schema("name", &one, one, &tally, DEVX_INVALID_TEXT, "name is not valid UTF-8"));
    /* A text without an end is not read for ever. */
    size_t const long_enough = ((size_t)1 << 20) + 64;
    char *endless = support_memory(long_enough);
    memset(endless, 'x', long_enough - 1);
    one = foreign_schema(&tally, "i", endless);
    atomic_store(&tally.releases, 0);
    CHECK_CALL(refuse_schema("endless", &one, one, &tally, DEVX_INVALID_TEXT, "name has no end within 1048576 bytes"));
    free(endless);
}

TEST(a_name_may_be_as_long_as_the_limit) {
    size_t const limit = (size_t)1 << 20;
    char *name = support_memory(limit + 2);
    memset(name, 'x', limit + 1);
    devx_field const field = {"i", name, NULL, 0, 0, 0};
    devx_schema_t *schema = UNWRITTEN;
    CHECK_CALL(check_refusal("longer", devx_schema_create(&field, 1, &schema, &error), DEVX_INVALID_TEXT,
                             "name has no end within 1048576 bytes"));
    name[limit] = '\0';
    CHECK_OK(devx_schema_create(&field, 1, &schema, &error));
    devx_schema_release(&schema);
    free(name);
}

TEST(bad_metadata_is_refused) {
    static struct {
        const char *name;
        int32_t numbers[5];
        const char *part;
    } const all[] = {
        {"negative count", {-1, 0, 0, 0, 0}, "metadata has -1 pairs"},
        {"smallest count", {INT32_MIN, 0, 0, 0, 0}, "metadata has -2147483648 pairs"},
        {"huge count", {INT32_MAX, 0, 0, 0, 0}, "metadata has 2147483647 pairs"},
        {"negative key", {1, -5, 0, 0, 0}, "key 0 has -5 bytes"},
        {"huge key", {1, INT32_MAX, 0, 0, 0}, "key 0 has 2147483647 bytes"},
        {"negative value", {1, 0, -7, 0, 0}, "value 0 has -7 bytes"},
        {"huge value", {1, 0, 1 << 29, 0, 0}, "value 0 has 536870912 bytes"},
        {"second key", {2, 0, 0, -1, 0}, "key 1 has -1 bytes"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        struct tally tally = {0};
        struct ArrowSchema one = foreign_schema(&tally, "i", "x");
        set_metadata(&one, all[i].numbers, sizeof all[i].numbers);
        CHECK_CALL(refuse_schema(all[i].name, &one, one, &tally, DEVX_INVALID_METADATA, all[i].part));
        devx_field const field = {"i", "x", (const char *)all[i].numbers, 0, 0, 0};
        devx_schema_t *out = UNWRITTEN;
        CHECK_CALL(check_refusal(all[i].name, devx_schema_create(&field, 1, &out, &error), DEVX_INVALID_METADATA,
                                 all[i].part));
        CHECK_PTR(out, UNWRITTEN);
    }
}

static void schema_children_negative(struct ArrowSchema *s) {
    s->n_children = -1;
    s->children = forbidden();
}
static void schema_children_huge(struct ArrowSchema *s) {
    s->n_children = INT64_C(1) << 31;
    s->children = forbidden();
}
static void schema_children_largest(struct ArrowSchema *s) {
    s->n_children = INT64_MAX;
    s->children = forbidden();
}
static void schema_children_null(struct ArrowSchema *s) {
    s->children = NULL;
}

TEST(bad_children_of_schemas_are_refused) {
    static struct {
        const char *name;
        void (*spoil)(struct ArrowSchema *schema);
        devx_status status;
        const char *part;
    } const all[] = {
        {"negative", schema_children_negative, DEVX_INVALID_CHILDREN, "n_children is -1"},
        {"huge", schema_children_huge, DEVX_TOO_DEEP, "n_children is 2147483648"},
        {"largest", schema_children_largest, DEVX_TOO_DEEP, "n_children is 9223372036854775807"},
        {"table", schema_children_null, DEVX_INVALID_CHILDREN, "children is NULL with n_children 4"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        struct tally tally = {0};
        struct ArrowSchema source = good_schema(&tally), good = source;
        all[i].spoil(&source);
        CHECK_CALL(refuse_schema(all[i].name, &source, good, &tally, all[i].status, all[i].part));
    }

    struct tally tally = {0};
    struct ArrowSchema source = good_schema(&tally), *kept = source.children[KIND];
    struct ArrowSchema **table = source.children, *spoiled[COLUMNS];
    memcpy(spoiled, table, sizeof spoiled);
    spoiled[KIND] = NULL;
    source.children = spoiled;
    struct ArrowSchema good = source;
    good.children = table;
    CHECK_CALL(refuse_schema("NULL child", &source, good, &tally, DEVX_INVALID_CHILDREN, "children[2] is NULL"));

    source = good_schema(&tally);
    kept = source.children[TEXTS];
    void (*release)(struct ArrowSchema *) = kept->release;
    kept->release = NULL;
    atomic_store(&tally.releases, 0);
    devx_schema_t *out = UNWRITTEN;
    CHECK_REFUSED(devx_schema_import(&source, &out, &error), DEVX_INVALID_CHILDREN, "children[1] is released");
    kept->release = release;
    kept = source.children[KIND]->dictionary;
    kept->release = NULL;
    CHECK_REFUSED(devx_schema_import(&source, &out, &error), DEVX_INVALID_CHILDREN,
                  "children[2]: dictionary is released");
    kept->release = release;
    CHECK_PTR(out, UNWRITTEN);
    CHECK_INT(tally.live, GOOD_NODES);
    source.release(&source);
    CHECK_INT(tally.live, 0);
}

TEST(children_that_do_not_fit_the_type_are_refused) {
    static struct {
        const char *format;
        int n_children;
        const char *part;
    } const all[] = {
        {"i", 1, "n_children is 1: int32 has 0"}, {"u", 2, "n_children is 2: utf8 has 0"},
        {"n", 1, "n_children is 1: null has 0"},  {"+l", 0, "n_children is 0: list has 1"},
        {"+l", 2, "n_children is 2: list has 1"}, {"+L", 0, "n_children is 0: large_list has 1"},
        {"+w:3", 0, "n_children is 0: fixed_size_list(3) has 1"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        struct tally tally = {0};
        struct ArrowSchema one = foreign_schema(&tally, all[i].format, "x");
        for (int k = 0; k < all[i].n_children; ++k) {
            add_schema_child(&one, foreign_schema(&tally, "i", "item"));
        }
        CHECK_CALL(refuse_schema(all[i].format, &one, one, &tally, DEVX_INVALID_CHILDREN, all[i].part));
    }
}

TEST(dictionaries_of_what_is_no_index_are_refused) {
    static const char *const formats[] = {"g", "u", "b", "tdD", "+s"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; ++i) {
        struct tally tally = {0};
        struct ArrowSchema one = foreign_schema(&tally, formats[i], "x");
        set_schema_dictionary(&one, foreign_schema(&tally, "u", NULL));
        CHECK_CALL(refuse_schema(formats[i], &one, one, &tally, DEVX_MISMATCH, "not an integer"));
    }
}

/* These trees have no end, and every node of them looks right. */
TEST(cycles_end) {
    for (int children = 1; children <= 3; ++children) {
        struct tally tally = {0};
        struct ArrowSchema one = foreign_schema(&tally, children == 1 ? "+l" : "+s", "x"), good = one;
        struct ArrowSchema *table[3] = {&one, &one, &one};
        one.children = table;
        one.n_children = children;
        CHECK_CALL(refuse_schema("children", &one, good, &tally, DEVX_TOO_DEEP, "ArrowSchema"));
    }
    struct tally tally = {0};
    struct ArrowSchema one = foreign_schema(&tally, "i", "x"), good = one;
    one.dictionary = &one;
    CHECK_CALL(refuse_schema("dictionary", &one, good, &tally, DEVX_TOO_DEEP, "deeper than 64"));
}

TEST(sixty_five_levels_are_refused) {
    struct tally tally = {0};
    struct ArrowSchema schema = foreign_schema(&tally, "i", "x");
    for (int level = 1; level < 65; ++level) {
        struct ArrowSchema above = foreign_schema(&tally, "+l", "x");
        add_schema_child(&above, schema);
        schema = above;
    }
    CHECK_CALL(refuse_schema("65 levels", &schema, schema, &tally, DEVX_TOO_DEEP, "deeper than 64"));

    devx_field fields[65];
    for (int i = 0; i < 65; ++i) {
        fields[i] = (devx_field){i < 64 ? "+l" : "i", "x", NULL, 0, i < 64, 0};
    }
    devx_schema_t *out = UNWRITTEN;
    CHECK_REFUSED(devx_schema_create(fields, 65, &out, &error), DEVX_TOO_DEEP, "deeper than 64");
    CHECK_PTR(out, UNWRITTEN);
}

/* A producer that has one child in two places and releases it once. */
static void release_twin_schema(struct ArrowSchema *schema) {
    schema->n_children = 1;
    release_foreign_schema(schema);
}
static void release_twin_array(struct ArrowArray *array) {
    array->n_children = 1;
    release_foreign_array(array);
}

/* A consumer that moved both children out would release one struct twice. */
TEST(a_child_in_two_places_is_refused) {
    struct tally tally = {0};
    struct ArrowSchema root = foreign_schema(&tally, "+s", "");
    struct ArrowArray array = foreign_array(&tally, 3, 1);
    devx_field const fields[] = {{"+s", "", NULL, 0, 2, 0}, {"i", "x", NULL, 0, 0, 0}, {"i", "y", NULL, 0, 0, 0}};
    devx_schema_t *schema = NULL, *refused = UNWRITTEN;
    devx_batch_t *batch = UNWRITTEN;
    add_schema_child(&root, foreign_schema(&tally, "i", "x"));
    add_schema_child(&root, foreign_schema(&tally, "i", "y"));
    add_array_child(&array, foreign_numbers(&tally, 3));
    add_array_child(&array, foreign_numbers(&tally, 3));
    release_schema(root.children[1]);
    release_array(array.children[1]);
    free(root.children[1]);
    free(array.children[1]);
    root.children[1] = root.children[0];
    array.children[1] = array.children[0];
    root.release = release_twin_schema;
    array.release = release_twin_array;
    CHECK_INT(tally.releases, 2);

    CHECK_REFUSED(devx_schema_import(&root, &refused, &error), DEVX_INVALID_CHILDREN, "field \"x\": the struct stands");
    CHECK_OK(devx_schema_create(fields, 3, &schema, &error));
    CHECK_REFUSED(devx_batch_import(&array, schema, &batch, &error), DEVX_INVALID_CHILDREN, "in the tree twice");
    array.children[1] = &array;
    CHECK_REFUSED(devx_batch_import(&array, schema, &batch, &error), DEVX_INVALID_BUFFERS, "array \"y\"");
    array.children[1] = array.children[0];
    CHECK_PTR(refused, UNWRITTEN);
    CHECK_PTR(batch, UNWRITTEN);
    devx_schema_release(&schema);
    root.release(&root);
    array.release(&array);
    CHECK_INT(tally.releases, 6);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

/* --- what is wrong with a description of a schema --- */

TEST(bad_lists_of_fields_are_refused) {
    devx_schema_t *out = UNWRITTEN;
    devx_field fields[3] = {{"+s", "", NULL, 0, 1, 0}, {"i", "x", NULL, 0, 0, 0}, {"i", "y", NULL, 0, 0, 0}};
    CHECK_REFUSED(devx_schema_create(NULL, 3, &out, &error), DEVX_NULL_ARGUMENT, "fields is NULL");
    CHECK_REFUSED(devx_schema_create(fields, 0, &out, &error), DEVX_INVALID_ARGUMENT, "empty");
    CHECK_REFUSED(devx_schema_create(fields, 2, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK_REFUSED(devx_schema_create(fields, 3, &out, &error), DEVX_INVALID_CHILDREN, "3 nodes");
    CHECK_REFUSED(devx_schema_create(fields, 1, &out, &error), DEVX_INVALID_CHILDREN, "node 0 has 1 below it");
    fields[0].n_children = -1;
    CHECK_REFUSED(devx_schema_create(fields, 2, &out, &error), DEVX_INVALID_CHILDREN, "n_children is -1");
    fields[0].n_children = INT64_C(1) << 31;
    CHECK_REFUSED(devx_schema_create(fields, 2, &out, &error), DEVX_INVALID_CHILDREN, "2147483648");
    fields[0].n_children = INT64_MAX;
    CHECK_REFUSED(devx_schema_create(fields, 2, &out, &error), DEVX_INVALID_CHILDREN, "9223372036854775807");
    fields[0].n_children = 1;
    fields[1].has_dictionary = 2;
    CHECK_REFUSED(devx_schema_create(fields, 2, &out, &error), DEVX_INVALID_ARGUMENT, "has_dictionary is 2");
    fields[1].has_dictionary = 1;
    CHECK_REFUSED(devx_schema_create(fields, 2, &out, &error), DEVX_INVALID_CHILDREN, "node 1 has 1 below it");
    fields[1].has_dictionary = 0;
    fields[1].format = NULL;
    CHECK_REFUSED(devx_schema_create(fields, 2, &out, &error), DEVX_NULL_ARGUMENT,
                  "field \"x\": format is NULL");
    fields[1].format = "i";
    fields[1].name = "\xc3";
    CHECK_REFUSED(devx_schema_create(fields, 2, &out, &error), DEVX_INVALID_TEXT, "name");
    CHECK_PTR(out, UNWRITTEN);
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
