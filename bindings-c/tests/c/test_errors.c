/* The error record, and NULL in place of every pointer. (That of streams, managers and other processes is in their own
 * files.) */
#include "own_batch.h"

/* --- NULL, everywhere --- */

/* Each call, with one pointer missing that it needs. */
TEST(null_arguments_are_refused) {
    struct tally tally = {0};
    devx_tensor_t *tensor = NULL, *no_tensor = NULL, *other = UNWRITTEN;
    devx_batch_t *batch = NULL, *no_batch = NULL, *other_batch = UNWRITTEN;
    devx_schema_t *schema = NULL, *other_schema = UNWRITTEN;
    struct DLManagedTensorVersioned *managed = UNWRITTEN;
    struct DLManagedTensor *legacy = UNWRITTEN;
    struct ArrowSchema described;
    struct ArrowArray array;
    struct ArrowDeviceArray device;
    DLTensor view;
    devx_column column;
    devx_plan plan;
    devx_batch_info info;
    int64_t const shape[] = {2, 3};
    const void *values = UNWRITTEN;
    const char *bytes = UNWRITTEN;
    size_t length = 77;
    int64_t number = 77;
    int32_t flag = 77;
    foreign_batch(&tally, 3, &described, &array);
    CHECK_OK(devx_schema_import(&described, &schema, &error));
    CHECK_OK(devx_batch_import(&array, schema, &batch, &error));
    CHECK_OK(devx_tensor_import(foreign_tensor(&tally, 2, shape, NULL), &tensor, &error));
    CHECK_OK(devx_batch_column(batch, 0, &column, &error));
    CHECK_OK(devx_tensor_borrow(tensor, &view, NULL, &error));

#define NEEDS(call, name) CHECK_REFUSED(call, DEVX_NULL_ARGUMENT, name " is NULL")
    NEEDS(devx_tensor_create(NULL, 0, NULL, &other, &error), "description");
    NEEDS(devx_tensor_create(&view, 0, NULL, NULL, &error), "out");
    NEEDS(devx_tensor_slice(NULL, 0, 0, 1, &other, &error), "tensor");
    NEEDS(devx_tensor_slice(tensor, 0, 0, 1, NULL, &error), "out");
    NEEDS(devx_tensor_share(NULL, &other, &error), "tensor");
    NEEDS(devx_tensor_share(tensor, NULL, &error), "out");
    NEEDS(devx_tensor_copy(NULL, &other, &error), "tensor");
    NEEDS(devx_tensor_copy(tensor, NULL, &error), "out");
    NEEDS(devx_tensor_borrow(NULL, &view, NULL, &error), "tensor");
    NEEDS(devx_tensor_borrow(tensor, NULL, NULL, &error), "out");
    NEEDS(devx_tensor_size(NULL, &number, NULL, NULL, &error), "tensor");
    NEEDS(devx_tensor_import(NULL, &other, &error), "tensor");
    NEEDS(devx_tensor_import_legacy(NULL, &other, &error), "tensor");
    NEEDS(devx_tensor_export_share(NULL, NULL, &managed, &error), "tensor");
    NEEDS(devx_tensor_export_share(tensor, NULL, NULL, &error), "out");
    NEEDS(devx_tensor_export_move(NULL, NULL, &managed, &error), "tensor");
    NEEDS(devx_tensor_export_move(&no_tensor, NULL, &managed, &error), "*tensor");
    NEEDS(devx_tensor_export_move(&tensor, NULL, NULL, &error), "out");
    NEEDS(devx_tensor_export_share_legacy(NULL, NULL, &legacy, &error), "tensor");
    NEEDS(devx_tensor_export_move_legacy(&no_tensor, NULL, &legacy, &error), "*tensor");
    NEEDS(devx_tensor_plan_column(NULL, &plan, &error), "tensor");
    NEEDS(devx_tensor_plan_column(tensor, NULL, &error), "out");
    NEEDS(devx_tensor_to_column(NULL, "x", 0, &other_batch, &error), "tensor");
    NEEDS(devx_tensor_to_column(tensor, "x", 0, NULL, &error), "out");
    NEEDS(devx_schema_export(NULL, &described, &error), "schema");
    NEEDS(devx_schema_export(schema, NULL, &error), "out");
    NEEDS(devx_batch_share(NULL, &other_batch, &error), "batch");
    NEEDS(devx_batch_share(batch, NULL, &error), "out");
    NEEDS(devx_batch_slice(NULL, 0, 1, &other_batch, &error), "batch");
    NEEDS(devx_batch_slice(batch, 0, 1, NULL, &error), "out");
    NEEDS(devx_batch_copy(NULL, &other_batch, &error), "batch");
    NEEDS(devx_batch_copy(batch, NULL, &error), "out");
    NEEDS(devx_batch_schema(NULL, &other_schema, &error), "batch");
    NEEDS(devx_batch_schema(batch, NULL, &error), "out");
    NEEDS(devx_batch_get_info(NULL, &info, &error), "batch");
    NEEDS(devx_batch_get_info(batch, NULL, &error), "out");
    NEEDS(devx_batch_root(NULL, &column, &error), "batch");
    NEEDS(devx_batch_root(batch, NULL, &error), "out");
    NEEDS(devx_batch_column(NULL, 0, &column, &error), "batch");
    NEEDS(devx_batch_column(batch, 0, NULL, &error), "out");
    NEEDS(devx_batch_columns(NULL, 0, 1, &column, &error), "batch");
    NEEDS(devx_batch_columns(batch, 0, 1, NULL, &error), "out");
    NEEDS(devx_batch_column_named(NULL, "x", &column, &error), "batch");
    NEEDS(devx_batch_export_share(NULL, &array, &error), "batch");
    NEEDS(devx_batch_export_share(batch, NULL, &error), "out");
    NEEDS(devx_batch_export_share_device(NULL, &device, &error), "batch");
    NEEDS(devx_batch_export_share_device(batch, NULL, &error), "out");
    NEEDS(devx_batch_export_move(NULL, &array, &error), "batch");
    NEEDS(devx_batch_export_move(&no_batch, &array, &error), "*batch");
    NEEDS(devx_batch_export_move(&batch, NULL, &error), "out");
    NEEDS(devx_batch_export_move_device(&no_batch, &device, &error), "*batch");
    NEEDS(devx_batch_export_move_device(&batch, NULL, &error), "out");
    NEEDS(devx_column_child(batch, NULL, 0, &column, &error), "column");
    NEEDS(devx_column_child(NULL, &column, 0, &column, &error), "batch");
    NEEDS(devx_column_dictionary(batch, NULL, &column, &error), "column");
    NEEDS(devx_column_dictionary_index(batch, NULL, 0, &number, &error), "column");
    NEEDS(devx_column_list(batch, NULL, 0, &column, &error), "column");
    NEEDS(devx_column_slice(batch, NULL, 0, 1, &column, &error), "column");
    NEEDS(devx_column_slice(NULL, &column, 0, 1, &column, &error), "batch");
    NEEDS(devx_column_share(batch, NULL, &other_batch, &error), "column");
    NEEDS(devx_column_share(NULL, &column, &other_batch, &error), "batch");
    NEEDS(devx_column_share(batch, &column, NULL, &error), "out");
    NEEDS(devx_column_null_count(batch, NULL, &number, &error), "column");
    NEEDS(devx_column_null_count(batch, &column, NULL, &error), "out");
    NEEDS(devx_column_is_valid(batch, NULL, 0, &flag, &error), "column");
    NEEDS(devx_column_is_valid(batch, &column, 0, NULL, &error), "out");
    NEEDS(devx_column_values(batch, NULL, int32, &values, &error), "column");
    NEEDS(devx_column_values(batch, &column, int32, NULL, &error), "out");
    NEEDS(devx_column_bool(batch, NULL, 0, &flag, &error), "column");
    NEEDS(devx_column_bytes(batch, NULL, 0, &bytes, &length, &error), "column");
    NEEDS(devx_column_bytes(batch, &column, 0, NULL, &length, &error), "out");
    NEEDS(devx_column_bytes(batch, &column, 0, &bytes, NULL, &error), "length");
    NEEDS(devx_column_plan_tensor(batch, NULL, &plan, &error), "column");
    NEEDS(devx_column_plan_tensor(batch, &column, NULL, &error), "out");
    NEEDS(devx_column_to_tensor(batch, NULL, 0, &other, &error), "column");
    NEEDS(devx_column_to_tensor(batch, &column, 0, NULL, &error), "out");
    NEEDS(devx_ledger_read(NULL, &error), "out");
    NEEDS(devx_dtype_name(int32, NULL, 32, &error), "out");
    NEEDS(devx_device_name(cpu, NULL, 32, &error), "out");
    NEEDS(devx_type_name(NULL, NULL, 0, &length, &error), "format");
    NEEDS(devx_type_name("l", NULL, 32, &length, &error), "buffer");
    NEEDS(devx_type_name("l", NULL, 0, NULL, &error), "length");
#undef NEEDS

    CHECK_PTR(other, UNWRITTEN);
    CHECK_PTR(other_batch, UNWRITTEN);
    CHECK_PTR(other_schema, UNWRITTEN);
    CHECK_PTR(managed, UNWRITTEN);
    CHECK_PTR(legacy, UNWRITTEN);
    CHECK_PTR(values, UNWRITTEN);
    CHECK_PTR(bytes, UNWRITTEN);
    CHECK_INT(length, 77);
    CHECK_INT(number, 77);
    CHECK_INT(flag, 77);
    CHECK(tensor != NULL);
    CHECK(batch != NULL);
    devx_tensor_release(&tensor);
    devx_batch_release(&batch);
    devx_schema_release(&schema);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

/* A batch {bool, dictionary of text, runs of int32}: some functions need a column of such a type. */
static devx_batch_t *batch_of_rare_types(struct tally *tally) {
    static const uint8_t bools[] = {5};
    static const int8_t indices[] = {1, 0, 1};
    static const int32_t offsets[] = {0, 1, 2}, ends[] = {2, 3}, values[] = {7, 8};
    static const void *const none[] = {NULL}, *const of_bools[] = {NULL, bools}, *const of_indices[] = {NULL, indices};
    static const void *const of_texts[] = {NULL, offsets, "ab"}, *const of_ends[] = {NULL, ends};
    static const void *const of_values[] = {NULL, values};
    devx_field fields[] = {field("+s", "", 3), field("b", "bool", 0),     field("c", "kind", 0),  field("u", "", 0),
                           field("+r", "run", 2), field("i", "run_ends", 0), field("i", "values", 0)};
    devx_node const nodes[] = {node(3, 0, 0, none, 1),     node(3, 0, 0, of_bools, 2), node(3, 0, 0, of_indices, 2),
                               node(2, 0, 0, of_texts, 3), node(3, 0, 0, NULL, 0),     node(2, 0, 0, of_ends, 2),
                               node(2, 0, 0, of_values, 2)};
    fields[0].flags = fields[5].flags = 0;
    fields[2].has_dictionary = 1;
    return create(fields, nodes, 7, tally);
}

TEST(null_arguments_of_columns_are_refused) {
    struct tally tally = {0};
    devx_batch_t *batch = batch_of_rare_types(&tally);
    devx_column bools, kinds, runs, column;
    const void *values = UNWRITTEN;
    const char *bytes = UNWRITTEN;
    char text[8] = "x";
    size_t length = 77;
    int64_t number = 77;
    int32_t flag = 77;
    CHECK_MADE(batch);
    CHECK_OK(devx_batch_column(batch, 0, &bools, &error));
    CHECK_OK(devx_batch_column(batch, 1, &kinds, &error));
    CHECK_OK(devx_batch_column(batch, 2, &runs, &error));
    memset(&column, 0x5a, sizeof column);
    devx_column const before = column;

    CHECK_NEEDS(devx_batch_column_named(batch, NULL, &column, &error), "name");
    CHECK_NEEDS(devx_batch_column_named(batch, "bool", NULL, &error), "out");
    CHECK_NEEDS(devx_column_child(batch, &runs, 0, NULL, &error), "out");
    CHECK_NEEDS(devx_column_slice(batch, &bools, 0, 1, NULL, &error), "out");
    CHECK_NEEDS(devx_column_share(batch, &bools, NULL, &error), "out");
    CHECK_NEEDS(devx_column_dictionary(NULL, &kinds, &column, &error), "batch");
    CHECK_NEEDS(devx_column_dictionary(batch, &kinds, NULL, &error), "out");
    CHECK_NEEDS(devx_column_null_count(NULL, &bools, &number, &error), "batch");
    CHECK_NEEDS(devx_column_null_count_on(NULL, &bools, 1, &number, &error), "batch");
    CHECK_NEEDS(devx_column_null_count_on(batch, &bools, 1, NULL, &error), "out");
    CHECK_NEEDS(devx_column_is_valid(NULL, &bools, 0, &flag, &error), "batch");
    CHECK_NEEDS(devx_column_values(NULL, &kinds, int32, &values, &error), "batch");
    CHECK_NEEDS(devx_column_bool(NULL, &bools, 0, &flag, &error), "batch");
    CHECK_NEEDS(devx_column_bool(batch, &bools, 0, NULL, &error), "out");
    CHECK_NEEDS(devx_column_bytes(NULL, &kinds, 0, &bytes, &length, &error), "batch");
    CHECK_NEEDS(devx_column_fixed(NULL, &kinds, 0, &bytes, &length, &error), "batch");
    CHECK_NEEDS(devx_column_fixed(batch, NULL, 0, &bytes, &length, &error), "column");
    CHECK_NEEDS(devx_column_fixed(batch, &kinds, 0, NULL, &length, &error), "out");
    CHECK_NEEDS(devx_column_fixed(batch, &kinds, 0, &bytes, NULL, &error), "length");
    CHECK_NEEDS(devx_column_list(NULL, &kinds, 0, &column, &error), "batch");
    CHECK_NEEDS(devx_column_dictionary_index(NULL, &kinds, 0, &number, &error), "batch");
    CHECK_NEEDS(devx_column_dictionary_index(batch, &kinds, 0, NULL, &error), "out");
    CHECK_NEEDS(devx_column_union(NULL, &kinds, 0, &flag, &column, &number, &error), "batch");
    CHECK_NEEDS(devx_column_union(batch, NULL, 0, &flag, &column, &number, &error), "column");
    CHECK_NEEDS(devx_column_union(batch, &kinds, 0, NULL, &column, &number, &error), "type_id");
    CHECK_NEEDS(devx_column_union(batch, &kinds, 0, &flag, NULL, &number, &error), "child");
    CHECK_NEEDS(devx_column_union(batch, &kinds, 0, &flag, &column, NULL, &error), "child_row");
    CHECK_NEEDS(devx_column_run(NULL, &runs, 0, &number, &error), "batch");
    CHECK_NEEDS(devx_column_run(batch, NULL, 0, &number, &error), "column");
    CHECK_NEEDS(devx_column_run(batch, &runs, 0, NULL, &error), "out");
    CHECK_NEEDS(devx_column_resolve(NULL, &runs, 0, &flag, &column, &number, &error), "batch");
    CHECK_NEEDS(devx_column_resolve(batch, NULL, 0, &flag, &column, &number, &error), "column");
    CHECK_NEEDS(devx_column_resolve(batch, &runs, 0, NULL, &column, &number, &error), "valid");
    CHECK_NEEDS(devx_column_resolve(batch, &runs, 0, &flag, NULL, &number, &error), "stored_in");
    CHECK_NEEDS(devx_column_resolve(batch, &runs, 0, &flag, &column, NULL, &error), "stored_row");
    CHECK_NEEDS(devx_column_text(NULL, &runs, 0, text, sizeof text, &length, &error), "batch");
    CHECK_NEEDS(devx_column_text(batch, NULL, 0, text, sizeof text, &length, &error), "column");
    CHECK_NEEDS(devx_column_text(batch, &runs, 0, text, sizeof text, NULL, &error), "length");
    CHECK_REFUSED(devx_column_text(batch, &runs, 0, NULL, sizeof text, &length, &error), DEVX_NULL_ARGUMENT,
                  "buffer is NULL with 8 entries");
    CHECK_NEEDS(devx_column_plan_tensor(NULL, &kinds, UNWRITTEN, &error), "batch");
    CHECK_NEEDS(devx_column_to_tensor(NULL, &kinds, 0, UNWRITTEN, &error), "batch");

    CHECK_PTR(values, UNWRITTEN);
    CHECK_PTR(bytes, UNWRITTEN);
    CHECK_STR(text, "x");
    CHECK_INT(length, 77);
    CHECK_INT(number, 77);
    CHECK_INT(flag, 77);
    CHECK(memcmp(&column, &before, sizeof column) == 0);
    devx_batch_release(&batch);
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(null_arguments_of_conversions_and_lists_are_refused) {
    struct tally tally = {0};
    devx_tensor_t *tensor = NULL, *other = UNWRITTEN;
    devx_batch_t *batch = batch_of_rare_types(&tally), *no_batch = NULL, *other_batch = UNWRITTEN;
    devx_schema_t *other_schema = UNWRITTEN;
    struct ArrowDeviceArray exported;
    devx_plan plan;
    int64_t const shape[] = {2, 3};
    int64_t number = 77;
    double six[6] = {0};
    CHECK_MADE(batch);
    CHECK_OK(devx_tensor_import(foreign_tensor(&tally, 2, shape, NULL), &tensor, &error));
    const char *const names[] = {"one", "two", NULL}, *const no_text[] = {"one", "\xff", "three"};
    const devx_batch_t *const columns[] = {batch, NULL};

    CHECK_NEEDS(devx_batch_of_columns(names, columns, 1, -1, NULL, &error), "out");
    CHECK_NEEDS(devx_batch_of_columns(names, columns, 2, -1, &other_batch, &error), "columns[1]");
    CHECK_NEEDS(devx_batch_of_columns(names, columns, 3, -1, &other_batch, &error), "names[2]");
    CHECK_REFUSED(devx_batch_of_columns(NULL, columns, 1, -1, &other_batch, &error), DEVX_NULL_ARGUMENT,
                  "names is NULL with 1 entries");
    CHECK_REFUSED(devx_batch_of_columns(names, NULL, 1, -1, &other_batch, &error), DEVX_NULL_ARGUMENT,
                  "columns is NULL with 1 entries");
    CHECK_REFUSED(devx_batch_of_columns(no_text, columns, 2, -1, &other_batch, &error), DEVX_INVALID_TEXT,
                  "names[1] is not valid UTF-8: \"\\xff\"");
    CHECK_NEEDS(devx_batch_export_move_device(NULL, &exported, &error), "batch");
    CHECK_NEEDS(devx_batch_export_move_device(&no_batch, &exported, &error), "*batch");
    CHECK_NEEDS(devx_batch_plan_matrix(NULL, &plan, &error), "batch");
    CHECK_NEEDS(devx_batch_plan_matrix(batch, NULL, &error), "out");
    CHECK_NEEDS(devx_batch_to_matrix(NULL, 0, -1, &other, &error), "batch");
    CHECK_NEEDS(devx_batch_to_matrix(batch, 0, -1, NULL, &error), "out");
    CHECK_NEEDS(devx_schema_share(NULL, &other_schema, &error), "schema");
    CHECK_NEEDS(devx_tensor_plan_batch(NULL, &plan, &error), "tensor");
    CHECK_NEEDS(devx_tensor_plan_batch(tensor, NULL, &error), "out");
    CHECK_NEEDS(devx_tensor_to_batch(NULL, NULL, 0, 0, &other_batch, &error), "tensor");
    CHECK_NEEDS(devx_tensor_to_batch(tensor, NULL, 0, 0, NULL, &error), "out");
    CHECK_NEEDS(devx_tensor_to_batch(tensor, names, 3, 0, &other_batch, &error), "names[2]");
    CHECK_REFUSED(devx_tensor_to_batch(tensor, NULL, 3, 0, &other_batch, &error), DEVX_NULL_ARGUMENT,
                  "names is NULL with 3 entries");
    CHECK_NEEDS(devx_tensor_plan_fixed_shape_column(NULL, &plan, &error), "tensor");
    CHECK_NEEDS(devx_tensor_plan_fixed_shape_column(tensor, NULL, &error), "out");
    CHECK_NEEDS(devx_tensor_to_fixed_shape_column(NULL, "x", 0, &other_batch, &error), "tensor");
    CHECK_NEEDS(devx_tensor_to_fixed_shape_column(tensor, "x", 0, NULL, &error), "out");
    CHECK_NEEDS(devx_tensor_stream(NULL, 1, &number, &error), "tensor");
    CHECK_NEEDS(devx_tensor_stream(tensor, 1, NULL, &error), "out");
    CHECK_NEEDS(devx_tensor_copy_to(tensor, cpu, 1, NULL, &error), "out");
    CHECK_REFUSED(devx_tensor_read(tensor, NULL, sizeof six, 1, &error), DEVX_NULL_ARGUMENT,
                  "into is NULL with 48 entries");
    CHECK_REFUSED(devx_tensor_write(tensor, NULL, sizeof six, 1, &error), DEVX_NULL_ARGUMENT,
                  "from is NULL with 48 entries");
    CHECK_REFUSED(devx_tensor_allocate(cpu, int32, NULL, 2, -1, &other, &error), DEVX_NULL_ARGUMENT,
                  "shape is NULL with 2 entries");

    CHECK_PTR(other, UNWRITTEN);
    CHECK_PTR(other_batch, UNWRITTEN);
    CHECK_PTR(other_schema, UNWRITTEN);
    CHECK_INT(number, 77);
    devx_tensor_release(&tensor);
    devx_batch_release(&batch);
    CHECK_INT(tally.releases, 2);
    CHECK_NOTHING_OUTSTANDING();
}

/* Without a place for the result nothing is taken, so nothing can be lost. */
TEST(an_import_without_an_output_takes_nothing) {
    struct tally tally = {0};
    devx_schema_t *schema = NULL;
    struct ArrowSchema described;
    struct ArrowDeviceArray device = {0};
    struct DLManagedTensorVersioned *managed;
    struct DLManagedTensor *legacy;
    int64_t const shape[] = {2, 3};
    managed = foreign_tensor(&tally, 2, shape, NULL);
    legacy = foreign_legacy(&tally, 2, shape, NULL);
    foreign_batch(&tally, 3, &described, &device.array);
    device.device_id = -1;
    device.device_type = ARROW_DEVICE_CPU;
    devx_owner const owner = counting_owner(&tally);
    CHECK_NEEDS(devx_tensor_create(&managed->dl_tensor, 0, &owner, NULL, &error), "out");
    CHECK_NEEDS(devx_tensor_import(managed, NULL, &error), "out");
    CHECK_NEEDS(devx_tensor_import_on(managed, -1, NULL, &error), "out");
    CHECK_NEEDS(devx_tensor_import_legacy(legacy, NULL, &error), "out");
    CHECK_NEEDS(devx_tensor_import_on_legacy(legacy, -1, NULL, &error), "out");
    CHECK_NEEDS(devx_batch_import_pair(&device.array, &described, NULL, &error), "out");
    CHECK_NEEDS(devx_batch_import_pair_device(&device, &described, NULL, &error), "out");
    CHECK_NEEDS(devx_schema_import(&described, NULL, &error), "out");
    CHECK_OK(devx_schema_import(&described, &schema, &error));
    CHECK_NEEDS(devx_schema_share(schema, NULL, &error), "out");
    CHECK_NEEDS(devx_batch_import(&device.array, schema, NULL, &error), "out");
    CHECK_NEEDS(devx_batch_import_device(&device, schema, NULL, &error), "out");
    devx_batch_t *batch = UNWRITTEN;
    CHECK_NEEDS(devx_batch_import(&device.array, NULL, &batch, &error), "schema");
    CHECK_NEEDS(devx_batch_import_device(&device, NULL, &batch, &error), "schema");
    CHECK_PTR(batch, UNWRITTEN);
    CHECK_INT(tally.releases, 0);
    devx_schema_release(&schema);
    release_array(&device.array);
    devx_dlpack_release(&managed);
    devx_dlpack_release_legacy(&legacy);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

/* No list in memory can have so many bytes, so nothing of it is read. */
TEST(lists_that_cannot_be_are_refused) {
    devx_schema_t *schema = UNWRITTEN;
    devx_tensor_t *tensor = UNWRITTEN;
    devx_batch_t *batch = UNWRITTEN;
    devx_field const one = field("i", "x", 0);
    int64_t const extent = 1;
    const char *const name = "x";
    const devx_batch_t *const column = NULL;
    size_t const most = PTRDIFF_MAX;
    CHECK_REFUSED(devx_schema_create(&one, most / sizeof one + 1, &schema, &error), DEVX_INVALID_ARGUMENT,
                  "fields has 192153584101141163 entries");
    CHECK_REFUSED(devx_tensor_allocate(cpu, int32, &extent, most / sizeof extent + 1, -1, &tensor, &error),
                  DEVX_INVALID_ARGUMENT, "shape has 1152921504606846976 entries");
    CHECK_REFUSED(devx_batch_of_columns(&name, &column, most / sizeof name + 1, -1, &batch, &error),
                  DEVX_INVALID_ARGUMENT, "names has 1152921504606846976 entries");
    CHECK_PTR(schema, UNWRITTEN);
    CHECK_PTR(tensor, UNWRITTEN);
    CHECK_PTR(batch, UNWRITTEN);
}

/* --- errors themselves --- */

TEST(every_status_has_a_name) {
    CHECK_STR(devx_status_name(DEVX_OK), "DEVX_OK");
    CHECK_STR(devx_status_name(DEVX_INVALID_SHAPE), "DEVX_INVALID_SHAPE");
    CHECK_STR(devx_status_name(DEVX_PANIC), "DEVX_PANIC");
    for (devx_status status = DEVX_OK; status <= DEVX_SYSTEM; ++status) {
        CHECK(strncmp(devx_status_name(status), "DEVX_", 5) == 0);
        CHECK(strcmp(devx_status_name(status), "DEVX_?") != 0);
    }
    CHECK_STR(devx_status_name(-1), "DEVX_?");
    CHECK_STR(devx_status_name(12345), "DEVX_?");
}

TEST(a_success_does_not_write_the_error_record) {
    devx_error record, before;
    memset(&record, 0x5a, sizeof record);
    before = record;
    devx_ledger ledger;
    CHECK_INT(devx_ledger_read(&ledger, &record), DEVX_OK);
    CHECK(memcmp(&record, &before, sizeof record) == 0);
}

TEST(a_long_text_is_cut_and_ends) {
    struct tally tally = {0};
    char format[2000];
    memset(format, '?', sizeof format - 1);
    format[sizeof format - 1] = '\0';
    struct ArrowSchema one = foreign_schema(&tally, format, "x");
    devx_schema_t *out = UNWRITTEN;
    memset(&error, 0x5a, sizeof error);
    CHECK_INT(devx_schema_import(&one, &out, &error), DEVX_INVALID_FORMAT);
    CHECK_INT(error.driver_code, 0);
    CHECK_INT(strlen(error.message), DEVX_ERROR_MESSAGE_BYTES - 1);
    one.release(&one);
}

TEST(names_of_element_types_and_devices_need_room) {
    char name[32];
    memset(name, 'x', sizeof name);
    CHECK_REFUSED(devx_dtype_name(float64, name, 7, &error), DEVX_INVALID_ARGUMENT, "capacity is 7");
    CHECK_INT(name[0], 'x');
    CHECK_REFUSED(devx_dtype_name((DLDataType){200, 8, 1}, name, sizeof name, &error), DEVX_INVALID_DTYPE, "200");
    CHECK_OK(devx_dtype_name(float64, name, 8, &error));
    CHECK_STR(name, "float64");
    CHECK_INT(name[8], 'x');
    CHECK_REFUSED(devx_device_name(cpu, name, 5, &error), DEVX_INVALID_ARGUMENT, "capacity is 5: \"cpu:0\" needs 6");
    CHECK_OK(devx_device_name(cpu, name, 6, &error));
    CHECK_STR(name, "cpu:0");
    char long_name[48];
    CHECK_OK(devx_device_name((DLDevice){INT32_MIN, INT32_MIN}, long_name, sizeof long_name, &error));
    CHECK_STR(long_name, "device type -2147483648:-2147483648");
}

CHECK_MAIN()
