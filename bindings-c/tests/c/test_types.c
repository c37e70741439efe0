/* Columns whose values lie behind unions, runs, views, maps and dictionaries, read through the C API. */
#include "test_support.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

static devx_field field(const char *format, int64_t n_children) {
    devx_field const made = {format, "", NULL, DEVX_FIELD_NULLABLE, n_children, 0};
    return made;
}

static devx_node node(int64_t length, const void *const *buffers, int64_t n) {
    devx_node const made = {length, -1, 0, buffers, n};
    return made;
}

static devx_batch_t *create(const devx_field *fields, const devx_node *nodes, size_t n) {
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = NULL;
    if (devx_schema_create(fields, n, &schema, &error) != DEVX_OK ||
        devx_batch_create(schema, cpu, nodes, n, NULL, &batch, &error) != DEVX_OK) {
        batch = NULL;
    }
    devx_schema_release(&schema);
    return batch;
}

/* All rows of the root as text, with a blank between them. */
static void check_rows(const devx_batch_t *batch, const char *expected) {
    devx_column root;
    char text[256], all[1024] = "";
    size_t length = 0;
    CHECK_OK(devx_batch_root(batch, &root, &error));
    for (int64_t row = 0; row < root.length; ++row) {
        CHECK_OK(devx_column_text(batch, &root, row, text, sizeof text, &length, &error));
        CHECK_INT(length, strlen(text));
        if (row > 0) {
            strcat(all, " ");
        }
        strcat(all, text);
    }
    CHECK_STR(all, expected);
}

static int32_t const numbers[] = {10, 11, 12, 13};
static const void *const number_buffers[] = {NULL, numbers};
static int32_t const text_offsets[] = {0, 1, 3};
static const void *const text_buffers[] = {NULL, text_offsets, "abc"};

TEST(unions) {
    int8_t const ids[] = {4, 9, 4};
    int32_t const offsets[] = {2, 1, 0};
    const void *const buffers[] = {ids, offsets};
    devx_field const fields[] = {field("+ud:4,9", 2), field("i", 0), field("u", 0)};
    devx_node const nodes[] = {node(3, buffers, 2), node(4, number_buffers, 2), node(2, text_buffers, 3)};
    devx_batch_t *batch = create(fields, nodes, COUNT(fields));
    devx_column root, child;
    int32_t id = 0;
    int32_t valid = -1;
    int64_t row = -1;
    CHECK_MADE(batch);
    CHECK_CALL(check_rows(batch, "12 \"bc\" 10"));
    CHECK_OK(devx_batch_root(batch, &root, &error));
    CHECK_OK(devx_column_union(batch, &root, 1, &id, &child, &row, &error));
    CHECK_INT(id, 9);
    CHECK_STR(child.format, "u");
    CHECK_INT(row, 1);
    CHECK_OK(devx_column_resolve(batch, &root, 0, &valid, &child, &row, &error));
    CHECK_INT(valid, 1);
    CHECK_STR(child.format, "i");
    CHECK_INT(row, 2);
    row = -1;
    CHECK_REFUSED(devx_column_union(batch, &root, 3, &id, &child, &row, &error), DEVX_OUT_OF_RANGE, "row is 3");
    CHECK_REFUSED(devx_column_run(batch, &root, 0, &row, &error), DEVX_MISMATCH, "dense_union, not run-end encoded");
    CHECK_REFUSED(devx_column_union(batch, &root, 0, &id, NULL, &row, &error), DEVX_NULL_ARGUMENT, "child is NULL");
    CHECK_INT(row, -1);
    devx_batch_release(&batch);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(runs_with_a_null) {
    int16_t const ends[] = {2, 3, 5};
    unsigned char const valid_values[] = {0x5};
    const void *const end_buffers[] = {NULL, ends};
    const void *const value_buffers[] = {valid_values, numbers};
    devx_field const fields[] = {field("+r", 2), field("s", 0), field("i", 0)};
    devx_node const nodes[] = {node(5, NULL, 0), node(3, end_buffers, 2), node(3, value_buffers, 2)};
    devx_batch_t *batch = create(fields, nodes, COUNT(fields));
    devx_column root, stored;
    int32_t valid = -1;
    int64_t row = -1;
    CHECK_MADE(batch);
    CHECK_CALL(check_rows(batch, "10 10 null 12 12"));
    CHECK_OK(devx_batch_root(batch, &root, &error));
    CHECK_OK(devx_column_run(batch, &root, 3, &row, &error));
    CHECK_INT(row, 2);
    row = -1;
    CHECK_OK(devx_column_resolve(batch, &root, 2, &valid, &stored, &row, &error));
    CHECK_INT(valid, 0);
    CHECK_INT(row, -1);
    devx_batch_release(&batch);
}

TEST(views_and_maps) {
    struct {
        int32_t length;
        char prefix[4];
        int32_t buffer, offset;
    } const views[] = {{14, {'f', 'o', 'u', 'r'}, 0, 2}, {2, {'o', 'k', 0, 0}, 0, 0}};
    int64_t const sizes[] = {16};
    const void *const view_buffers[] = {NULL, views, "..fourteen bytes", sizes};
    int32_t const map_offsets[] = {0, 2};
    const void *const none[] = {NULL};
    const void *const map_buffers[] = {NULL, map_offsets};
    devx_field const fields[] = {field("+m", 1), field("+s", 2), field("vu", 0), field("i", 0)};
    devx_node const nodes[] = {node(1, map_buffers, 2), node(2, none, 1), node(2, view_buffers, 4),
                               node(2, number_buffers, 2)};
    devx_batch_t *batch = create(fields, nodes, COUNT(fields));
    char little[6];
    size_t length = 0;
    devx_column root;
    CHECK_MADE(batch);
    CHECK_CALL(check_rows(batch, "{\"fourteen bytes\": 10, \"ok\": 11}"));
    CHECK_OK(devx_batch_root(batch, &root, &error));
    CHECK_OK(devx_column_text(batch, &root, 0, little, sizeof little, &length, &error));
    CHECK_STR(little, "{\"fou");
    CHECK_INT(length, strlen("{\"fourteen bytes\": 10, \"ok\": 11}"));
    CHECK_OK(devx_column_text(batch, &root, 0, NULL, 0, &length, &error));
    CHECK_REFUSED(devx_column_text(batch, &root, 0, NULL, 4, &length, &error), DEVX_NULL_ARGUMENT, "buffer is NULL");
    devx_batch_release(&batch);
}

TEST(values_of_a_fixed_width) {
    int64_t const decimals[] = {-1234, -1, 5, 0};
    const void *const buffers[] = {NULL, decimals};
    devx_field const fields[] = {field("d:20,2", 0)};
    devx_node const nodes[] = {node(2, buffers, 2)};
    devx_batch_t *batch = create(fields, nodes, COUNT(fields));
    devx_column root;
    const char *bytes = NULL;
    size_t length = 0;
    CHECK_MADE(batch);
    CHECK_CALL(check_rows(batch, "-12.34 0.05"));
    CHECK_OK(devx_batch_root(batch, &root, &error));
    CHECK_OK(devx_column_fixed(batch, &root, 1, &bytes, &length, &error));
    CHECK_INT(length, 16);
    CHECK_PTR(bytes, &decimals[2]);
    devx_batch_release(&batch);
}

TEST(names_of_types) {
    char name[64], little[6];
    size_t length = 0;
    CHECK_OK(devx_type_name("tsu:Europe/Berlin", name, sizeof name, &length, &error));
    CHECK_STR(name, "timestamp(microsecond, Europe/Berlin)");
    CHECK_INT(length, strlen(name));
    CHECK_OK(devx_type_name("+vl", little, sizeof little, &length, &error));
    CHECK_STR(little, "list_");
    CHECK_INT(length, strlen("list_view"));
    CHECK_OK(devx_type_name("+vl", NULL, 0, &length, &error));
    CHECK_REFUSED(devx_type_name("+v", name, sizeof name, &length, &error), DEVX_INVALID_FORMAT, "format is \"+v\"");
    CHECK_REFUSED(devx_type_name("\xff", name, sizeof name, &length, &error), DEVX_INVALID_TEXT, "format");
    CHECK_INT(length, strlen("list_view"));
}

TEST(times) {
    int64_t const stamps[] = {-1, 951782400};
    int32_t const days[] = {-1, 11016};
    const void *const stamp_buffers[] = {NULL, stamps};
    const void *const day_buffers[] = {NULL, days};
    const void *const none[] = {NULL};
    devx_field const fields[] = {field("+s", 3), field("tss:Asia/Tokyo", 0), field("tdD", 0), field("tDs", 0)};
    devx_node const nodes[] = {node(2, none, 1), node(2, stamp_buffers, 2), node(2, day_buffers, 2),
                               node(2, stamp_buffers, 2)};
    devx_batch_t *batch = create(fields, nodes, COUNT(fields));
    CHECK_MADE(batch);
    CHECK_CALL(check_rows(batch, "{\"\": 1969-12-31T23:59:59Z, \"\": 1969-12-31, \"\": -1 s} "
                                 "{\"\": 2000-02-29T00:00:00Z, \"\": 2000-02-29, \"\": 951782400 s}"));
    devx_batch_release(&batch);
}

TEST(sizes_of_buffers) {
    devx_field const fields[] = {field("+s", 2), field("i", 0), field("u", 0)};
    const void *const none[] = {NULL};
    devx_node const nodes[] = {node(2, none, 1), node(2, number_buffers, 2), node(2, text_buffers, 3)};
    int64_t sizes[] = {-1, -1, 8, -1, 12, -1};
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = NULL;
    CHECK_OK(devx_schema_create(fields, 3, &schema, &error));
    CHECK_OK(devx_batch_create_sized(schema, cpu, nodes, 3, sizes, NULL, &batch, &error));
    devx_batch_release(&batch);
    CHECK_OK(devx_batch_create_sized(schema, cpu, nodes, 3, NULL, NULL, &batch, &error));
    devx_batch_release(&batch);
    sizes[4] = 11;
    CHECK_REFUSED(devx_batch_create_sized(schema, cpu, nodes, 3, sizes, NULL, &batch, &error), DEVX_INVALID_BUFFERS,
                  "buffers[1] has 11 bytes: offset and length 2 of utf8 take 12");
    CHECK_PTR(batch, NULL);
    devx_schema_release(&schema);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_batch_of_columns) {
    devx_field const fields[] = {field("i", 0)};
    devx_node const nodes[] = {node(2, number_buffers, 2)}, longer[] = {node(3, number_buffers, 2)};
    devx_batch_t *first = create(fields, nodes, 1), *second = create(fields, longer, 1), *batch = NULL;
    const char *const names[] = {"a", "b"};
    const devx_batch_t *columns[] = {first, first};
    CHECK_MADE(first);
    CHECK_MADE(second);
    CHECK_OK(devx_batch_of_columns(names, columns, 2, -1, &batch, &error));
    CHECK_CALL(check_rows(batch, "{\"a\": 10, \"b\": 10} {\"a\": 11, \"b\": 11}"));
    devx_batch_release(&batch);
    columns[1] = second;
    CHECK_REFUSED(devx_batch_of_columns(names, columns, 2, -1, &batch, &error), DEVX_INVALID_LENGTH,
                  "\"b\" has length 3");
    columns[1] = NULL;
    CHECK_REFUSED(devx_batch_of_columns(names, columns, 2, -1, &batch, &error), DEVX_NULL_ARGUMENT, "columns[1] is NULL");
    CHECK_REFUSED(devx_batch_of_columns(NULL, NULL, 0, -1, &batch, &error), DEVX_INVALID_ARGUMENT, "there is no column");
    CHECK(batch == NULL);
    devx_batch_release(&first);
    devx_batch_release(&second);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(parts_of_a_batch) {
    const void *const none[] = {NULL};
    devx_field const fields[] = {field("+s", 2), field("i", 0), field("u", 0)};
    devx_node const nodes[] = {node(2, none, 1), node(4, number_buffers, 2), node(2, text_buffers, 3)};
    devx_batch_t *batch = create(fields, nodes, COUNT(fields)), *rows = NULL, *text = NULL;
    devx_column column, last;
    struct ArrowArray array = {0};
    CHECK_MADE(batch);
    CHECK_OK(devx_batch_slice(batch, 1, 1, &rows, &error));
    CHECK_OK(devx_batch_column(batch, 1, &column, &error));
    CHECK_OK(devx_column_slice(batch, &column, 1, 1, &last, &error));
    CHECK_INT(last.offset, 1);
    CHECK_OK(devx_column_share(batch, &last, &text, &error));
    CHECK_REFUSED(devx_column_slice(batch, &last, 1, 1, &column, &error), DEVX_OUT_OF_RANGE, "there are 1 rows");
    devx_batch_release(&batch);
    CHECK_CALL(check_rows(rows, "{\"\": 11, \"\": \"bc\"}"));
    CHECK_CALL(check_rows(text, "\"bc\""));

    CHECK_OK(devx_batch_export_move(&rows, &array, &error));
    CHECK_INT(array.offset, 0);
    CHECK_INT(array.children[0]->offset, 1);
    CHECK_INT(array.children[0]->length, 1);
    array.release(&array);

    CHECK_REFUSED(devx_batch_slice(text, 0, 2, &rows, &error), DEVX_OUT_OF_RANGE,
                  "offset is 0 and length is 2: there are 1 rows");
    CHECK_PTR(rows, NULL);
    devx_batch_release(&text);
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
