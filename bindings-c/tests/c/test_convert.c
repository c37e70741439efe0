/* Conversions of tensors to columns and of columns to tensors: plans, views, copies and refusals. */
#include "own_batch.h"

static int32_t const twelve[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
static const void *const no_buffers[] = {NULL};
static const void *const twelve_buffers[] = {NULL, twelve};

/* A batch that is a single column. */
static devx_batch_t *create_one(const char *format, int64_t length, int64_t offset, int64_t nulls,
                                const void *const *buffers, int64_t n, struct tally *tally) {
    devx_field const one = field(format, "x", 0);
    devx_node const all = {length, nulls, offset, buffers, n};
    return create(&one, &all, 1, tally);
}

static devx_tensor_t *tensor_over(void *data, DLDataType dtype, int ndim, int64_t *shape, int64_t *strides,
                                  struct tally *tally) {
    DLTensor const description = {data, {kDLCPU, 0}, ndim, dtype, shape, strides, 0};
    devx_owner const owner = counting_owner(tally);
    devx_tensor_t *tensor = NULL;
    return devx_tensor_create(&description, 0, &owner, &tensor, &error) == DEVX_OK ? tensor : NULL;
}

/* --- column to tensor --- */

TEST(a_column_of_numbers_is_seen_as_a_tensor) {
    struct tally tally = {0};
    devx_batch_t *batch = create_one("i", 5, 3, 0, twelve_buffers, 2, &tally);
    CHECK_MADE(batch);
    devx_column column;
    devx_plan plan;
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_OK(devx_column_plan_tensor(batch, &column, &plan, &error));
    CHECK_INT(plan.kind, DEVX_PLAN_VIEW);
    CHECK_INT(plan.reserved, 0);
    CHECK_INT(plan.copy_bytes, 0);
    CHECK_STR(plan.reason, "");
    CHECK_OK(devx_column_to_tensor(batch, &column, DEVX_COPY_NEVER, &tensor, &error));
    devx_batch_release(&batch); /* the tensor keeps the memory */
    CHECK_INT(tally.releases, 0);

    DLTensor view;
    uint64_t flags = 0;
    CHECK_OK(devx_tensor_borrow(tensor, &view, &flags, &error));
    CHECK_INT(view.ndim, 1);
    CHECK_INT(view.shape[0], 5);
    CHECK_INT(view.strides[0], 1);
    CHECK_PTR(view.data, &twelve[3]);
    CHECK(memcmp(&view.dtype, &int32, sizeof int32) == 0);
    CHECK_INT(flags, DLPACK_FLAG_BITMASK_READ_ONLY); /* Arrow's memory is not to be changed */
    devx_tensor_release(&tensor);
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(every_number_type_has_its_element_type) {
    static struct {
        const char *format;
        DLDataType dtype;
    } const all[] = {
        {"c", {kDLInt, 8, 1}},  {"C", {kDLUInt, 8, 1}},  {"s", {kDLInt, 16, 1}},   {"S", {kDLUInt, 16, 1}},
        {"i", {kDLInt, 32, 1}}, {"I", {kDLUInt, 32, 1}}, {"l", {kDLInt, 64, 1}},   {"L", {kDLUInt, 64, 1}},
        {"e", {kDLFloat, 16, 1}}, {"f", {kDLFloat, 32, 1}}, {"g", {kDLFloat, 64, 1}},
    };
    static _Alignas(8) unsigned char memory[64];
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        struct tally tally = {0};
        const void *const buffers[] = {NULL, memory};
        devx_batch_t *batch = create_one(all[i].format, 4, 0, 0, buffers, 2, &tally);
        CHECK_MADE(batch);
        devx_column column;
        devx_tensor_t *tensor = NULL;
        DLTensor view;
        CHECK_OK(devx_batch_root(batch, &column, &error));
        CHECK_OK(devx_column_to_tensor(batch, &column, DEVX_COPY_NEVER, &tensor, &error));
        CHECK_OK(devx_tensor_borrow(tensor, &view, NULL, &error));
        CHECK_PTR(view.data, memory);
        CHECK(memcmp(&view.dtype, &all[i].dtype, sizeof view.dtype) == 0);

        /* And back: the same memory under the same format. */
        devx_batch_t *back = NULL;
        CHECK_OK(devx_tensor_to_column(tensor, "y", DEVX_COPY_NEVER, &back, &error));
        CHECK_OK(devx_batch_root(back, &column, &error));
        CHECK_STR(column.format, all[i].format);
        CHECK_STR(column.name, "y");
        CHECK_PTR(column.buffers[1], memory);
        devx_batch_release(&back);
        devx_tensor_release(&tensor);
        devx_batch_release(&batch);
        CHECK_INT(tally.releases, 1);
    }
    CHECK_NOTHING_OUTSTANDING();
}

TEST(fixed_size_lists_are_dimensions) {
    struct tally tally = {0};
    devx_field const fields[] = {field("+w:2", "x", 1), field("+w:3", "item", 1), field("i", "item", 0)};
    devx_node const nodes[] = {{1, 0, 1, no_buffers, 1}, {4, 0, 0, no_buffers, 1}, {12, 0, 0, twelve_buffers, 2}};
    devx_batch_t *batch = create(fields, nodes, 3, &tally);
    CHECK_MADE(batch);
    devx_column column;
    devx_tensor_t *tensor = NULL;
    DLTensor view;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_OK(devx_column_to_tensor(batch, &column, DEVX_COPY_NEVER, &tensor, &error));
    CHECK_OK(devx_tensor_borrow(tensor, &view, NULL, &error));
    CHECK_INT(view.ndim, 3);
    CHECK_INT(view.shape[0], 1);
    CHECK_INT(view.shape[1], 2);
    CHECK_INT(view.shape[2], 3);
    CHECK_PTR(view.data, &twelve[6]);
    devx_tensor_release(&tensor);
    devx_batch_release(&batch);
    CHECK_INT(tally.releases, 1);
}

TEST(a_column_is_copied_on_request) {
    struct tally tally = {0};
    devx_batch_t *batch = create_one("i", 4, 2, 0, twelve_buffers, 2, &tally);
    CHECK_MADE(batch);
    devx_column column;
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_OK(devx_column_to_tensor(batch, &column, DEVX_COPY_ALWAYS, &tensor, &error));
    devx_batch_release(&batch);
    CHECK_INT(tally.releases, 1);
    DLTensor view;
    uint64_t flags = 0;
    CHECK_OK(devx_tensor_borrow(tensor, &view, &flags, &error));
    CHECK_INT(flags, DLPACK_FLAG_BITMASK_IS_COPIED);
    CHECK(memcmp(view.data, &twelve[2], 4 * sizeof *twelve) == 0);
    devx_tensor_release(&tensor);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(bools_need_a_copy) {
    struct tally tally = {0};
    static unsigned char const bits[2] = {0xa5, 0x01};
    const void *const buffers[] = {NULL, bits};
    devx_batch_t *batch = create_one("b", 5, 4, 0, buffers, 2, &tally);
    CHECK_MADE(batch);
    devx_column column;
    devx_plan plan;
    devx_tensor_t *tensor = UNWRITTEN;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_OK(devx_column_plan_tensor(batch, &column, &plan, &error));
    CHECK_INT(plan.kind, DEVX_PLAN_COPY);
    CHECK_INT(plan.copy_bytes, 5);
    CHECK_HAS(plan.reason, "bits in Arrow");
    CHECK_REFUSED(devx_column_to_tensor(batch, &column, DEVX_COPY_NEVER, &tensor, &error), DEVX_COPY_REQUIRED,
                  "5 bytes");
    CHECK_PTR(tensor, UNWRITTEN);
    CHECK_OK(devx_column_to_tensor(batch, &column, DEVX_COPY_IF_NEEDED, &tensor, &error));
    DLTensor view;
    CHECK_OK(devx_tensor_borrow(tensor, &view, NULL, &error));
    CHECK_INT(view.dtype.code, kDLBool);
    CHECK(memcmp(view.data, "\0\1\0\1\1", 5) == 0);

    /* And back to bits. */
    devx_batch_t *back = NULL;
    CHECK_OK(devx_tensor_to_column(tensor, NULL, DEVX_COPY_IF_NEEDED, &back, &error));
    CHECK_OK(devx_batch_root(back, &column, &error));
    CHECK_STR(column.format, "b");
    CHECK_STR(column.name, "");
    CHECK_INT(*(const unsigned char *)column.buffers[1], 0x1a);
    devx_batch_release(&back);
    devx_tensor_release(&tensor);
    devx_batch_release(&batch);
    CHECK_NOTHING_OUTSTANDING();
}

static void check_impossible(devx_batch_t *batch, const char *why) {
    CHECK_MADE(batch);
    devx_column column;
    devx_plan plan;
    devx_tensor_t *tensor = UNWRITTEN;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_OK(devx_column_plan_tensor(batch, &column, &plan, &error));
    CHECK_INT(plan.kind, DEVX_PLAN_IMPOSSIBLE);
    CHECK_HAS(plan.reason, why);
    for (int32_t copy = DEVX_COPY_NEVER; copy <= DEVX_COPY_ALWAYS; ++copy) {
        CHECK_REFUSED(devx_column_to_tensor(batch, &column, copy, &tensor, &error), DEVX_IMPOSSIBLE, why);
    }
    CHECK_PTR(tensor, UNWRITTEN);
    devx_batch_release(&batch);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(what_a_tensor_cannot_say_is_impossible) {
    struct tally tally = {0};
    static unsigned char const bits[2] = {0xfb, 0xff};
    static int32_t const ends[] = {0, 1, 2};
    const void *const with_null[] = {bits, twelve};
    const void *const texts[] = {NULL, ends, "ab"};
    CHECK_CALL(check_impossible(create_one("i", 5, 0, 1, with_null, 2, &tally), "1 of 5 values of int32 are null"));
    CHECK_CALL(check_impossible(create_one("i", 5, 0, -1, with_null, 2, &tally), "1 of 5 values of int32 are null"));
    CHECK_CALL(check_impossible(create_one("u", 2, 0, 0, texts, 3, &tally), "utf8"));
    CHECK_CALL(check_impossible(create_one("tdD", 5, 0, 0, twelve_buffers, 2, &tally), "date32"));
    CHECK_CALL(check_impossible(create_one("n", 5, 0, 5, NULL, 0, &tally), "null"));

    devx_field fields[] = {field("i", "x", 0), field("u", "", 0)};
    devx_node const nodes[] = {{2, 0, 0, twelve_buffers, 2}, {2, 0, 0, texts, 3}};
    fields[0].has_dictionary = 1;
    CHECK_CALL(check_impossible(create(fields, nodes, 2, &tally), "dictionary"));

    devx_field const lists[] = {field("+w:2", "x", 1), field("i", "item", 0)};
    devx_node const of_nulls[] = {{2, 0, 0, no_buffers, 1}, {4, 1, 0, with_null, 2}};
    CHECK_CALL(check_impossible(create(lists, of_nulls, 2, &tally), "1 of 4 values"));

    devx_field const record[] = {field("+s", "", 1), field("i", "x", 0)};
    devx_node const of_one[] = {{4, 0, 0, no_buffers, 1}, {4, 0, 0, twelve_buffers, 2}};
    CHECK_CALL(check_impossible(create(record, of_one, 2, &tally), "struct"));
    CHECK_INT(tally.releases, 8);
}

/* A validity bitmap is no obstacle if the rows that the column sees have no nulls. */
TEST(nulls_outside_the_slice_do_not_count) {
    struct tally tally = {0};
    static unsigned char const bits[2] = {0xfb, 0xff};
    const void *const with_null[] = {bits, twelve};
    devx_batch_t *batch = create_one("i", 5, 3, -1, with_null, 2, &tally);
    CHECK_MADE(batch);
    devx_column column;
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_OK(devx_column_to_tensor(batch, &column, DEVX_COPY_NEVER, &tensor, &error));
    devx_tensor_release(&tensor);
    devx_batch_release(&batch);
}

TEST(an_empty_column_is_an_empty_tensor) {
    struct tally tally = {0};
    static const void *const nothing[] = {NULL, NULL};
    devx_batch_t *batch = create_one("g", 0, 0, 0, nothing, 2, &tally);
    CHECK_MADE(batch);
    devx_column column;
    devx_tensor_t *tensor = NULL;
    DLTensor view;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_OK(devx_column_to_tensor(batch, &column, DEVX_COPY_NEVER, &tensor, &error));
    CHECK_OK(devx_tensor_borrow(tensor, &view, NULL, &error));
    CHECK_INT(view.shape[0], 0);
    CHECK_PTR(view.data, NULL);
    devx_batch_t *back = NULL;
    CHECK_OK(devx_tensor_to_column(tensor, "x", DEVX_COPY_NEVER, &back, &error));
    devx_batch_release(&back);
    devx_tensor_release(&tensor);
    devx_batch_release(&batch);
    CHECK_INT(tally.releases, 1);
}

/* --- tensor to column --- */

static double twelve_doubles[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

TEST(dimensions_are_fixed_size_lists) {
    struct tally tally = {0};
    int64_t shape[3] = {2, 3, 2};
    devx_tensor_t *tensor = tensor_over(twelve_doubles, float64, 3, shape, NULL, &tally);
    CHECK_MADE(tensor);
    devx_plan plan;
    devx_batch_t *batch = NULL;
    CHECK_OK(devx_tensor_plan_column(tensor, &plan, &error));
    CHECK_INT(plan.kind, DEVX_PLAN_VIEW);
    CHECK_OK(devx_tensor_to_column(tensor, "m", DEVX_COPY_NEVER, &batch, &error));
    devx_tensor_release(&tensor);
    CHECK_INT(tally.releases, 0);

    devx_column rows, middle, values;
    const void *first = NULL;
    CHECK_OK(devx_batch_root(batch, &rows, &error));
    CHECK_STR(rows.format, "+w:3");
    CHECK_STR(rows.name, "m");
    CHECK_INT(rows.length, 2);
    CHECK_OK(devx_column_child(batch, &rows, 0, &middle, &error));
    CHECK_STR(middle.format, "+w:2");
    CHECK_INT(middle.length, 6);
    CHECK_OK(devx_column_list(batch, &rows, 1, &middle, &error));
    CHECK_OK(devx_column_list(batch, &middle, 2, &values, &error));
    CHECK_OK(devx_column_values(batch, &values, float64, &first, &error));
    CHECK_PTR(first, &twelve_doubles[10]);

    /* As a tensor again: the same memory, and the same shape. */
    DLTensor view;
    CHECK_OK(devx_column_to_tensor(batch, &rows, DEVX_COPY_NEVER, &tensor, &error));
    devx_batch_release(&batch);
    CHECK_OK(devx_tensor_borrow(tensor, &view, NULL, &error));
    CHECK_PTR(view.data, twelve_doubles);
    CHECK_INT(view.ndim, 3);
    CHECK(memcmp(view.shape, shape, sizeof shape) == 0);
    CHECK_INT(tally.releases, 0);
    devx_tensor_release(&tensor);
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_column_of_a_tensor_is_exported_like_any_other) {
    struct tally tally = {0};
    int64_t shape[2] = {6, 2};
    devx_tensor_t *tensor = tensor_over(twelve_doubles, float64, 2, shape, NULL, &tally);
    CHECK_MADE(tensor);
    devx_batch_t *batch = NULL;
    struct ArrowArray array;
    CHECK_OK(devx_tensor_to_column(tensor, "m", DEVX_COPY_NEVER, &batch, &error));
    CHECK_OK(devx_batch_export_move(&batch, &array, &error));
    devx_tensor_release(&tensor);
    CHECK_INT(array.n_buffers, 1);
    CHECK_INT(array.n_children, 1);
    CHECK_PTR(array.children[0]->buffers[1], twelve_doubles);
    CHECK_INT(tally.releases, 0);
    array.release(&array);
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(other_strides_need_a_copy) {
    struct tally tally = {0};
    int64_t shape[2] = {3, 4}, column_major[2] = {1, 3};
    devx_tensor_t *tensor = tensor_over(twelve_doubles, float64, 2, shape, column_major, &tally);
    CHECK_MADE(tensor);
    devx_plan plan;
    devx_batch_t *batch = UNWRITTEN;
    CHECK_OK(devx_tensor_plan_column(tensor, &plan, &error));
    CHECK_INT(plan.kind, DEVX_PLAN_COPY);
    CHECK_INT(plan.copy_bytes, 96);
    CHECK_HAS(plan.reason, "[1, 3]");
    CHECK_REFUSED(devx_tensor_to_column(tensor, "m", DEVX_COPY_NEVER, &batch, &error), DEVX_COPY_REQUIRED, "[1, 3]");
    CHECK_PTR(batch, UNWRITTEN);
    CHECK_OK(devx_tensor_to_column(tensor, "m", DEVX_COPY_IF_NEEDED, &batch, &error));
    devx_tensor_release(&tensor);
    CHECK_INT(tally.releases, 1);
    devx_column rows, row;
    const void *values = NULL;
    CHECK_OK(devx_batch_root(batch, &rows, &error));
    CHECK_OK(devx_column_list(batch, &rows, 1, &row, &error));
    CHECK_OK(devx_column_values(batch, &row, float64, &values, &error));
    for (int i = 0; i < 4; ++i) {
        CHECK_DOUBLE(((const double *)values)[i], 1.0 + 3 * i, 0);
    }
    devx_batch_release(&batch);
    CHECK_NOTHING_OUTSTANDING();
}

static void check_tensor_impossible(devx_tensor_t *tensor, const char *why) {
    CHECK_MADE(tensor);
    devx_plan plan;
    devx_batch_t *batch = UNWRITTEN;
    CHECK_OK(devx_tensor_plan_column(tensor, &plan, &error));
    CHECK_INT(plan.kind, DEVX_PLAN_IMPOSSIBLE);
    CHECK_HAS(plan.reason, why);
    CHECK_REFUSED(devx_tensor_to_column(tensor, "x", DEVX_COPY_ALWAYS, &batch, &error), DEVX_IMPOSSIBLE, why);
    CHECK_PTR(batch, UNWRITTEN);
    devx_tensor_release(&tensor);
}

TEST(what_a_column_cannot_say_is_impossible) {
    struct tally tally = {0};
    static DLDataType const bfloat16 = {kDLBfloat, 16, 1}, pair = {kDLFloat, 64, 2}, complex = {kDLComplex, 128, 1};
    int64_t shape[2] = {2, 3}, wide[2] = {0, INT64_C(1) << 31};
    CHECK_CALL(
        check_tensor_impossible(tensor_over(twelve_doubles, float64, 0, NULL, NULL, &tally), "no dimensions"));
    CHECK_CALL(check_tensor_impossible(tensor_over(twelve_doubles, bfloat16, 2, shape, NULL, &tally), "bfloat16"));
    CHECK_CALL(check_tensor_impossible(tensor_over(twelve_doubles, pair, 2, shape, NULL, &tally), "float64x2"));
    CHECK_CALL(check_tensor_impossible(tensor_over(twelve_doubles, complex, 2, shape, NULL, &tally), "complex128"));
    CHECK_CALL(check_tensor_impossible(tensor_over(NULL, float64, 2, wide, NULL, &tally), "2147483648"));
    CHECK_INT(tally.releases, 5);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(copies_are_chosen_by_a_number_that_exists) {
    struct tally tally = {0};
    int64_t shape[1] = {3};
    devx_tensor_t *tensor = tensor_over(twelve_doubles, float64, 1, shape, NULL, &tally);
    CHECK_MADE(tensor);
    devx_batch_t *batch = UNWRITTEN;
    CHECK_REFUSED(devx_tensor_to_column(tensor, "x", 7, &batch, &error), DEVX_INVALID_ARGUMENT, "copy is 7");
    CHECK_REFUSED(devx_tensor_to_column(tensor, "\xff", 0, &batch, &error), DEVX_INVALID_TEXT, "name");
    CHECK_PTR(batch, UNWRITTEN);
    CHECK_OK(devx_tensor_to_column(tensor, "x", DEVX_COPY_ALWAYS, &batch, &error));
    devx_column column;
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK(column.buffers[1] != (const void *)twelve_doubles);
    devx_tensor_t *back = UNWRITTEN;
    CHECK_REFUSED(devx_column_to_tensor(batch, &column, -1, &back, &error), DEVX_INVALID_ARGUMENT, "copy is -1");
    devx_batch_release(&batch);
    devx_tensor_release(&tensor);

    int64_t extents[2] = {2, 3}, strides[2] = {1, 2};
    tensor = tensor_over(twelve_doubles, float64, 2, extents, strides, &tally);
    CHECK_MADE(tensor);
    batch = UNWRITTEN;
    CHECK_REFUSED(devx_tensor_to_batch(tensor, NULL, 0, 7, &batch, &error), DEVX_INVALID_ARGUMENT, "copy is 7");
    CHECK_PTR(batch, UNWRITTEN);
    CHECK_OK(devx_tensor_to_batch(tensor, NULL, 0, DEVX_COPY_ALWAYS, &batch, &error));
    CHECK_OK(devx_batch_column(batch, 0, &column, &error));
    CHECK(column.buffers[1] != (const void *)twelve_doubles);
    CHECK_REFUSED(devx_batch_to_matrix(batch, 7, -1, &back, &error), DEVX_INVALID_ARGUMENT, "copy is 7");
    CHECK_PTR(back, UNWRITTEN);
    devx_batch_release(&batch);
    devx_tensor_release(&tensor);
    CHECK_NOTHING_OUTSTANDING();
}

/* Host memory has no streams: 0, which is no stream of anything, is not taken for none. */
TEST(work_in_host_memory_takes_no_stream) {
    struct tally tally = {0};
    int64_t extents[2] = {2, 3}, strides[2] = {1, 2};
    devx_tensor_t *tensor = tensor_over(twelve_doubles, float64, 2, extents, strides, &tally);
    devx_tensor_t *other = UNWRITTEN;
    devx_batch_t *batch = NULL, *other_batch = UNWRITTEN;
    CHECK_MADE(tensor);
    CHECK_OK(devx_tensor_to_batch(tensor, NULL, 0, DEVX_COPY_NEVER, &batch, &error));
    const char *const name = "x";
    const devx_batch_t *const column = batch;
    for (int64_t stream = 0; stream <= 1; ++stream) {
        CHECK_REFUSED(devx_batch_to_matrix(batch, DEVX_COPY_NEVER, stream, &other, &error), DEVX_DEVICE,
                      "which has no streams");
        CHECK_REFUSED(devx_batch_of_columns(&name, &column, 1, stream, &other_batch, &error), DEVX_DEVICE,
                      "which has no streams");
        CHECK_REFUSED(devx_tensor_allocate(cpu, float64, extents, 2, stream, &other, &error), DEVX_DEVICE,
                      "which has no streams");
    }
    CHECK_PTR(other, UNWRITTEN);
    CHECK_PTR(other_batch, UNWRITTEN);
    devx_batch_release(&batch);
    devx_tensor_release(&tensor);
    CHECK_NOTHING_OUTSTANDING();
}

/* --- matrices and tensor columns --- */

TEST(a_matrix_is_a_batch_and_a_batch_is_a_matrix) {
    struct tally tally = {0};
    int64_t shape[] = {4, 3}, strides[] = {1, 4};
    const char *const names[] = {"x", "y", "z"};
    int32_t values[12];
    devx_plan plan;
    devx_batch_t *batch = NULL;
    devx_column column;
    devx_tensor_t *tensor = NULL, *back = NULL;
    memcpy(values, twelve, sizeof values);
    tensor = tensor_over(values, (DLDataType){kDLInt, 32, 1}, 2, shape, strides, &tally);
    CHECK_MADE(tensor);
    CHECK_OK(devx_tensor_plan_batch(tensor, &plan, &error));
    CHECK_INT(plan.kind, DEVX_PLAN_VIEW);
    CHECK_REFUSED(devx_tensor_to_batch(tensor, names, 2, DEVX_COPY_NEVER, &batch, &error), DEVX_MISMATCH, "2 names for 3");
    CHECK_OK(devx_tensor_to_batch(tensor, names, 3, DEVX_COPY_NEVER, &batch, &error));
    devx_tensor_release(&tensor);
    CHECK_OK(devx_batch_column_named(batch, "z", &column, &error));
    CHECK_PTR(column.buffers[1], &values[8]);
    CHECK_OK(devx_batch_plan_matrix(batch, &plan, &error));
    CHECK_INT(plan.kind, DEVX_PLAN_VIEW);
    CHECK_OK(devx_batch_to_matrix(batch, DEVX_COPY_NEVER, -1, &back, &error));
    devx_batch_release(&batch);
    CHECK_INT(tally.releases, 0);
    DLTensor seen;
    CHECK_OK(devx_tensor_borrow(back, &seen, NULL, &error));
    CHECK_PTR(seen.data, values);
    CHECK_INT(seen.shape[1], 3);
    CHECK_INT(seen.strides[1], 4);
    devx_tensor_release(&back);
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_tensor_is_a_column_of_tensors) {
    struct tally tally = {0};
    int64_t shape[] = {2, 3, 2}, strides[] = {6, 1, 3};
    int32_t values[12];
    devx_plan plan;
    devx_batch_t *batch = NULL;
    devx_column column;
    devx_tensor_t *tensor = NULL, *back = NULL;
    DLTensor seen;
    memcpy(values, twelve, sizeof values);
    tensor = tensor_over(values, (DLDataType){kDLInt, 32, 1}, 3, shape, strides, &tally);
    CHECK_MADE(tensor);
    CHECK_OK(devx_tensor_plan_column(tensor, &plan, &error));
    CHECK_INT(plan.kind, DEVX_PLAN_COPY);
    CHECK_OK(devx_tensor_plan_fixed_shape_column(tensor, &plan, &error));
    CHECK_INT(plan.kind, DEVX_PLAN_VIEW);
    CHECK_OK(devx_tensor_to_fixed_shape_column(tensor, "t", DEVX_COPY_NEVER, &batch, &error));
    devx_tensor_release(&tensor);
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_STR(column.format, "+w:6");
    CHECK_OK(devx_column_to_tensor(batch, &column, DEVX_COPY_NEVER, &back, &error));
    devx_batch_release(&batch);
    CHECK_OK(devx_tensor_borrow(back, &seen, NULL, &error));
    CHECK_PTR(seen.data, values);
    CHECK(memcmp(seen.shape, shape, sizeof shape) == 0);
    CHECK(memcmp(seen.strides, strides, sizeof strides) == 0);
    devx_tensor_release(&back);
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
