/* The error record, and NULL in place of every pointer. */
#include "test_support.h"

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
