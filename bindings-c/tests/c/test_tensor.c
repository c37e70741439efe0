/* Import and export of tensors as DLPack, with both structs. */
#include "test_support.h"

static int64_t const shape_2x3[2] = {2, 3};

/* A tensor over the test's own six doubles, 0 to 5, of shape 2 x 3. */
static double six[6] = {0, 1, 2, 3, 4, 5};

static DLTensor describe_six(int64_t *shape) {
    shape[0] = 2;
    shape[1] = 3;
    DLTensor const description = {six, {kDLCPU, 0}, 2, {kDLFloat, 64, 1}, shape, NULL, 0};
    return description;
}

static devx_tensor_t *tensor_of_six(struct tally *tally, uint64_t flags) {
    int64_t shape[2];
    DLTensor const description = describe_six(shape);
    devx_owner const owner = counting_owner(tally);
    devx_tensor_t *tensor = NULL;
    devx_status const status = devx_tensor_create(&description, flags, &owner, &tensor, &error);
    return status == DEVX_OK ? tensor : NULL;
}

/* --- what a tensor says --- */

TEST(parts_share_the_memory) {
    struct tally tally = {0};
    devx_tensor_t *tensor = tensor_of_six(&tally, 0), *columns = NULL, *last = NULL;
    DLTensor view;
    CHECK_MADE(tensor);
    CHECK_OK(devx_tensor_slice(tensor, 1, 1, 2, &columns, &error));
    CHECK_OK(devx_tensor_slice(columns, 0, 1, 1, &last, &error));
    CHECK_REFUSED(devx_tensor_slice(columns, 1, 1, 2, &tensor, &error), DEVX_OUT_OF_RANGE,
                  "offset is 1 and length is 2: dimension 1 has an extent of 2");
    CHECK_REFUSED(devx_tensor_slice(columns, 2, 0, 1, &tensor, &error), DEVX_OUT_OF_RANGE, "dimension is 2");
    devx_tensor_release(&tensor);
    CHECK_OK(devx_tensor_borrow(columns, &view, NULL, &error));
    CHECK_PTR(view.data, &six[1]);
    CHECK_INT(view.shape[0], 2);
    CHECK_INT(view.shape[1], 2);
    CHECK_INT(view.strides[0], 3);
    CHECK_INT(view.strides[1], 1);
    devx_tensor_release(&columns);
    CHECK_OK(devx_tensor_borrow(last, &view, NULL, &error));
    CHECK_PTR(view.data, &six[4]);
    CHECK_INT(view.shape[0], 1);
    CHECK_INT(tally.releases, 0);
    devx_tensor_release(&last);
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(create_copies_the_description_and_not_the_memory) {
    struct tally tally = {0};
    int64_t shape[2];
    DLTensor const description = describe_six(shape);
    devx_owner const owner = counting_owner(&tally);
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_tensor_create(&description, 0, &owner, &tensor, &error));
    shape[0] = shape[1] = -1;

    DLTensor view;
    uint64_t flags = 77;
    CHECK_OK(devx_tensor_borrow(tensor, &view, &flags, &error));
    CHECK_PTR(view.data, six);
    CHECK_INT(view.device.device_type, kDLCPU);
    CHECK_INT(view.device.device_id, 0);
    CHECK_INT(view.ndim, 2);
    CHECK(memcmp(&view.dtype, &float64, sizeof float64) == 0);
    CHECK_INT(view.shape[0], 2);
    CHECK_INT(view.shape[1], 3);
    CHECK_INT(view.strides[0], 3);
    CHECK_INT(view.strides[1], 1);
    CHECK_INT(view.byte_offset, 0);
    CHECK_INT(flags, 0);
    CHECK_OK(devx_tensor_borrow(tensor, &view, NULL, &error));

    int64_t elements = 0, bytes = 0;
    int32_t row_major = 0;
    CHECK_OK(devx_tensor_size(tensor, &elements, &bytes, &row_major, &error));
    CHECK_INT(elements, 6);
    CHECK_INT(bytes, 48);
    CHECK_INT(row_major, 1);
    CHECK_OK(devx_tensor_size(tensor, NULL, NULL, NULL, &error));
    devx_tensor_release(&tensor);
    CHECK_PTR(tensor, NULL);
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(release_takes_null_and_may_be_repeated) {
    struct tally tally = {0};
    devx_tensor_t *tensor = tensor_of_six(&tally, 0);
    CHECK_MADE(tensor);
    devx_tensor_release(&tensor);
    devx_tensor_release(&tensor);
    devx_tensor_release(NULL);
    devx_dlpack_release(NULL);
    devx_dlpack_release_legacy(NULL);
    struct DLManagedTensorVersioned *none = NULL;
    devx_dlpack_release(&none);
    CHECK_INT(tally.releases, 1);
}

TEST(without_an_owner_there_is_nothing_to_release) {
    int64_t shape[2];
    DLTensor const description = describe_six(shape);
    devx_owner const nobody = {six, NULL};
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_tensor_create(&description, 0, NULL, &tensor, &error));
    devx_tensor_release(&tensor);
    CHECK_OK(devx_tensor_create(&description, 0, &nobody, &tensor, &error));
    CHECK_NOTHING_OUTSTANDING();
    devx_tensor_release(&tensor);
}

/* --- versioned --- */

TEST(export_is_of_version_1_3_and_keeps_flags) {
    uint64_t const unknown = UINT64_C(1) << 40;
    uint64_t const all[] = {
        0,
        DLPACK_FLAG_BITMASK_READ_ONLY,
        DLPACK_FLAG_BITMASK_IS_COPIED,
        DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
        DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED | DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
        unknown | DLPACK_FLAG_BITMASK_READ_ONLY,
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        struct tally tally = {0};
        devx_tensor_t *tensor = tensor_of_six(&tally, all[i]);
        CHECK_MADE(tensor);
        struct DLManagedTensorVersioned *managed = NULL;
        CHECK_OK(devx_tensor_export_share(tensor, NULL, &managed, &error));
        CHECK_INT(managed->version.major, 1);
        CHECK_INT(managed->version.minor, 3);
        /* A consumer that shares a copy is not its only user. */
        CHECK_INT(managed->flags, all[i] & ~(uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED);
        CHECK_PTR(managed->dl_tensor.data, six);
        CHECK_INT(managed->dl_tensor.strides[0], 3);
        devx_dlpack_release(&managed);

        /* Out, in, and out again. */
        devx_tensor_t *imported = NULL;
        uint64_t flags = 77;
        DLTensor view;
        CHECK_OK(devx_tensor_export_move(&tensor, NULL, &managed, &error));
        CHECK_INT(managed->flags, all[i]);
        CHECK_OK(devx_tensor_import(managed, &imported, &error));
        CHECK_OK(devx_tensor_borrow(imported, &view, &flags, &error));
        CHECK_INT(flags, all[i]);
        CHECK_OK(devx_tensor_export_move(&imported, NULL, &managed, &error));
        CHECK_PTR(imported, NULL);
        CHECK_INT(managed->flags, all[i]);
        CHECK_INT(tally.releases, 0);
        devx_dlpack_release(&managed);
        CHECK_PTR(managed, NULL);
        CHECK_INT(tally.releases, 1);
        CHECK_NOTHING_OUTSTANDING();
    }
}

TEST(export_writes_the_version_that_was_asked_for) {
    static struct {
        uint32_t major, minor, written;
    } const all[] = {{1, 0, 0}, {1, 2, 2}, {1, 3, 3}, {1, 9, 3}, {2, 0, 3}};
    struct tally tally = {0};
    devx_tensor_t *tensor = tensor_of_six(&tally, 0);
    CHECK_MADE(tensor);
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        devx_dlpack_request const request = {all[i].major, all[i].minor, -1, DEVX_COPY_NEVER};
        struct DLManagedTensorVersioned *managed = NULL;
        CHECK_OK(devx_tensor_export_share(tensor, &request, &managed, &error));
        CHECK_INT(managed->version.major, 1);
        CHECK_INT(managed->version.minor, all[i].written);
        managed->deleter(managed);
    }
    devx_tensor_release(&tensor);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_consumer_that_reads_only_the_old_struct_is_told_so) {
    struct tally tally = {0};
    devx_tensor_t *tensor = tensor_of_six(&tally, 0);
    devx_tensor_t *const before = tensor;
    devx_dlpack_request const request = {0, 8, -1, DEVX_COPY_NEVER};
    struct DLManagedTensorVersioned *managed = UNWRITTEN;
    CHECK_REFUSED(devx_tensor_export_share(tensor, &request, &managed, &error), DEVX_VERSION, "max_version is 0.8");
    CHECK_REFUSED(devx_tensor_export_move(&tensor, &request, &managed, &error), DEVX_VERSION, "max_version is 0.8");
    CHECK_PTR(managed, UNWRITTEN);
    CHECK_PTR(tensor, before);
    struct DLManagedTensor *legacy = NULL;
    CHECK_OK(devx_tensor_export_move_legacy(&tensor, &request, &legacy, &error));
    CHECK_PTR(tensor, NULL);
    legacy->deleter(legacy);
    CHECK_INT(tally.releases, 1);
}

/* --- legacy --- */

TEST(the_legacy_struct_goes_both_ways) {
    struct tally tally = {0};
    struct DLManagedTensor *foreign = foreign_legacy(&tally, 2, shape_2x3, NULL);
    void *const data = foreign->dl_tensor.data;
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_tensor_import_legacy(foreign, &tensor, &error));
    struct DLManagedTensor *shared = NULL, *moved = NULL;
    CHECK_OK(devx_tensor_export_share_legacy(tensor, NULL, &shared, &error));
    CHECK_OK(devx_tensor_export_move_legacy(&tensor, NULL, &moved, &error));
    CHECK_PTR(tensor, NULL);
    CHECK_PTR(shared->dl_tensor.data, data);
    CHECK_PTR(moved->dl_tensor.data, data);
    CHECK_INT(shared->dl_tensor.strides[0], 3);
    CHECK_INT(shared->dl_tensor.strides[1], 1);
    shared->deleter(shared);
    CHECK_INT(tally.releases, 0);
    devx_dlpack_release_legacy(&moved);
    CHECK_PTR(moved, NULL);
    CHECK_INT(tally.releases, 1);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(what_the_legacy_struct_cannot_say_is_refused) {
    struct tally tally = {0};
    devx_tensor_t *tensor = tensor_of_six(&tally, DLPACK_FLAG_BITMASK_READ_ONLY);
    devx_tensor_t *const before = tensor;
    struct DLManagedTensor *legacy = UNWRITTEN;
    CHECK_REFUSED(devx_tensor_export_share_legacy(tensor, NULL, &legacy, &error), DEVX_READ_ONLY, "READ_ONLY");
    CHECK_REFUSED(devx_tensor_export_move_legacy(&tensor, NULL, &legacy, &error), DEVX_READ_ONLY, "READ_ONLY");
    CHECK_PTR(legacy, UNWRITTEN);
    CHECK_PTR(tensor, before);

    /* A copy may be written to, so it can be exported. */
    devx_dlpack_request const may_copy = {0, 0, -1, DEVX_COPY_IF_NEEDED};
    CHECK_OK(devx_tensor_export_share_legacy(tensor, &may_copy, &legacy, &error));
    CHECK(legacy->dl_tensor.data != (void *)six);
    CHECK(memcmp(legacy->dl_tensor.data, six, sizeof six) == 0);
    legacy->deleter(legacy);
    devx_tensor_release(&tensor);
    CHECK_INT(tally.releases, 1);

    int64_t extent[1] = {3};
    uint8_t padded[3] = {1, 2, 3};
    DLTensor const description = {padded, {kDLCPU, 0}, 1, {kDLInt, 4, 1}, extent, NULL, 0};
    CHECK_OK(devx_tensor_create(&description, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, NULL, &tensor, &error));
    CHECK_REFUSED(devx_tensor_export_share_legacy(tensor, NULL, &legacy, &error), DEVX_UNSUPPORTED,
                  "SUBBYTE_PADDED");
    devx_tensor_release(&tensor);
    CHECK_NOTHING_OUTSTANDING();
}

/* --- shapes, strides, offsets --- */

TEST(null_strides_are_row_major) {
    struct tally tally = {0};
    int64_t const shape[4] = {2, 3, 4, 5};
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_tensor_import(foreign_tensor(&tally, 4, shape, NULL), &tensor, &error));
    DLTensor view;
    CHECK_OK(devx_tensor_borrow(tensor, &view, NULL, &error));
    int64_t const strides[4] = {60, 20, 5, 1};
    CHECK(memcmp(view.strides, strides, sizeof strides) == 0);
    int32_t row_major = 0;
    CHECK_OK(devx_tensor_size(tensor, NULL, NULL, &row_major, &error));
    CHECK_INT(row_major, 1);
    devx_tensor_release(&tensor);
    CHECK_INT(tally.releases, 1);
}

TEST(strides_of_the_producer_are_kept) {
    struct tally tally = {0};
    int64_t const column_major[2] = {1, 2};
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_tensor_import(foreign_tensor(&tally, 2, shape_2x3, column_major), &tensor, &error));
    struct DLManagedTensorVersioned *managed = NULL;
    CHECK_OK(devx_tensor_export_move(&tensor, NULL, &managed, &error));
    CHECK_INT(managed->dl_tensor.strides[0], 1);
    CHECK_INT(managed->dl_tensor.strides[1], 2);
    devx_dlpack_release(&managed);
    CHECK_INT(tally.releases, 1);
}

TEST(byte_offset_is_folded_into_data) {
    struct tally tally = {0};
    int64_t const shape[1] = {6};
    struct DLManagedTensorVersioned *foreign = foreign_tensor(&tally, 1, shape, NULL);
    char *const data = foreign->dl_tensor.data;
    foreign->dl_tensor.shape[0] = 4;
    foreign->dl_tensor.byte_offset = 16;
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_tensor_import(foreign, &tensor, &error));
    struct DLManagedTensorVersioned *managed = NULL;
    CHECK_OK(devx_tensor_export_move(&tensor, NULL, &managed, &error));
    CHECK_PTR(managed->dl_tensor.data, data + 16);
    CHECK_INT(managed->dl_tensor.byte_offset, 0);
    CHECK_DOUBLE(*(double *)managed->dl_tensor.data, 2.0, 0);
    devx_dlpack_release(&managed);
    CHECK_INT(tally.releases, 1);
}

TEST(a_tensor_of_no_dimensions_has_one_element) {
    double value = 42;
    DLTensor const description = {&value, {kDLCPU, 0}, 0, {kDLFloat, 64, 1}, NULL, NULL, 0};
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_tensor_create(&description, 0, NULL, &tensor, &error));
    int64_t elements = 0, bytes = 0;
    CHECK_OK(devx_tensor_size(tensor, &elements, &bytes, NULL, &error));
    CHECK_INT(elements, 1);
    CHECK_INT(bytes, 8);
    devx_tensor_t *copy = NULL;
    CHECK_OK(devx_tensor_copy(tensor, &copy, &error));
    DLTensor view;
    CHECK_OK(devx_tensor_borrow(copy, &view, NULL, &error));
    CHECK_INT(view.ndim, 0);
    CHECK_DOUBLE(*(double *)view.data, 42.0, 0);
    struct DLManagedTensorVersioned *managed = NULL;
    CHECK_OK(devx_tensor_export_move(&tensor, NULL, &managed, &error));
    CHECK_PTR(managed->dl_tensor.data, &value);
    CHECK_OK(devx_tensor_import(managed, &tensor, &error));
    devx_tensor_release(&tensor);
    devx_tensor_release(&copy);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(an_empty_tensor_has_no_address) {
    static int64_t shapes[][3] = {
        {0, 5, 2}, {3, 0, 2}, {3, 2, 0}, {0, INT64_MAX, INT64_MAX}, {INT64_MAX, INT64_MAX, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
        struct tally tally = {0};
        devx_owner const owner = counting_owner(&tally);
        DLTensor const description = {six, {kDLCPU, 0}, 3, {kDLFloat, 64, 1}, shapes[i], NULL, 8};
        devx_tensor_t *tensor = NULL, *copy = NULL;
        CHECK_OK(devx_tensor_create(&description, 0, &owner, &tensor, &error));
        struct DLManagedTensorVersioned *managed = NULL;
        CHECK_OK(devx_tensor_export_share(tensor, NULL, &managed, &error));
        CHECK_PTR(managed->dl_tensor.data, NULL);
        CHECK_INT(managed->dl_tensor.byte_offset, 0);
        CHECK(managed->dl_tensor.strides != NULL);
        CHECK(memcmp(managed->dl_tensor.shape, shapes[i], sizeof shapes[i]) == 0);
        devx_tensor_t *imported = NULL;
        CHECK_OK(devx_tensor_import(managed, &imported, &error));
        CHECK_OK(devx_tensor_copy(imported, &copy, &error));
        devx_tensor_release(&copy);
        devx_tensor_release(&imported);
        CHECK_INT(tally.releases, 0);
        devx_tensor_release(&tensor);
        CHECK_INT(tally.releases, 1);
    }
    CHECK_NOTHING_OUTSTANDING();
}

TEST(negative_strides_are_kept_and_copied_in_order) {
    int64_t shape[2] = {2, 3}, strides[2] = {-3, -1};
    DLTensor const description = {six, {kDLCPU, 0}, 2, {kDLFloat, 64, 1}, shape, strides, 5 * sizeof(double)};
    devx_tensor_t *tensor = NULL, *copy = NULL;
    CHECK_OK(devx_tensor_create(&description, 0, NULL, &tensor, &error));
    DLTensor view;
    CHECK_OK(devx_tensor_borrow(tensor, &view, NULL, &error));
    CHECK_PTR(view.data, &six[5]);
    CHECK_INT(view.strides[0], -3);
    int32_t row_major = 1;
    CHECK_OK(devx_tensor_size(tensor, NULL, NULL, &row_major, &error));
    CHECK_INT(row_major, 0);
    CHECK_OK(devx_tensor_copy(tensor, &copy, &error));
    CHECK_OK(devx_tensor_borrow(copy, &view, NULL, &error));
    for (int i = 0; i < 6; ++i) {
        CHECK_DOUBLE(((double *)view.data)[i], 5.0 - i, 0);
    }
    devx_tensor_release(&copy);
    devx_tensor_release(&tensor);
}

TEST(a_stride_of_zero_repeats_a_row) {
    int64_t shape[2] = {4, 3}, strides[2] = {0, 1};
    DLTensor const description = {six, {kDLCPU, 0}, 2, {kDLFloat, 64, 1}, shape, strides, 0};
    devx_tensor_t *tensor = NULL, *copy = NULL;
    CHECK_OK(devx_tensor_create(&description, 0, NULL, &tensor, &error));
    CHECK_OK(devx_tensor_copy(tensor, &copy, &error));
    DLTensor view;
    CHECK_OK(devx_tensor_borrow(copy, &view, NULL, &error));
    for (int i = 0; i < 12; ++i) {
        CHECK_DOUBLE(((double *)view.data)[i], (double)(i % 3), 0);
    }
    devx_tensor_release(&copy);
    devx_tensor_release(&tensor);
}

TEST(elements_of_less_than_a_byte_are_rounded_once) {
    uint8_t bytes[3] = {0x21, 0x03, 0};
    int64_t shape[1] = {3};
    DLTensor const description = {bytes, {kDLCPU, 0}, 1, {kDLInt, 4, 1}, shape, NULL, 0};
    devx_tensor_t *tensor = NULL;
    int64_t size = 0;
    CHECK_OK(devx_tensor_create(&description, 0, NULL, &tensor, &error));
    CHECK_OK(devx_tensor_size(tensor, NULL, &size, NULL, &error));
    CHECK_INT(size, 2);
    devx_tensor_release(&tensor);
    CHECK_OK(devx_tensor_create(&description, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, NULL, &tensor, &error));
    CHECK_OK(devx_tensor_size(tensor, NULL, &size, NULL, &error));
    CHECK_INT(size, 3);
    devx_tensor_t *copy = NULL;
    uint64_t flags = 0;
    DLTensor view;
    CHECK_OK(devx_tensor_copy(tensor, &copy, &error));
    CHECK_OK(devx_tensor_borrow(copy, &view, &flags, &error));
    CHECK_INT(flags, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED | DLPACK_FLAG_BITMASK_IS_COPIED);
    CHECK(memcmp(view.data, bytes, 3) == 0);
    devx_tensor_release(&copy);
    devx_tensor_release(&tensor);
}

/* Every element type of DLPack 1.3 comes through unchanged. */
TEST(every_element_type_is_taken) {
    static struct {
        DLDataType dtype;
        const char *name;
    } const all[] = {
        {{kDLInt, 8, 1}, "int8"},
        {{kDLInt, 64, 1}, "int64"},
        {{kDLInt, 4, 1}, "int4"},
        {{kDLUInt, 1, 1}, "uint1"},
        {{kDLUInt, 32, 1}, "uint32"},
        {{kDLFloat, 16, 1}, "float16"},
        {{kDLFloat, 32, 4}, "float32x4"},
        {{kDLFloat, 128, 1}, "float128"},
        {{kDLBfloat, 16, 1}, "bfloat16"},
        {{kDLComplex, 64, 1}, "complex64"},
        {{kDLComplex, 128, 1}, "complex128"},
        {{kDLBool, 8, 1}, "bool"},
        {{kDLFloat8_e3m4, 8, 1}, "float8_e3m4"},
        {{kDLFloat8_e4m3, 8, 1}, "float8_e4m3"},
        {{kDLFloat8_e4m3b11fnuz, 8, 1}, "float8_e4m3b11fnuz"},
        {{kDLFloat8_e4m3fn, 8, 1}, "float8_e4m3fn"},
        {{kDLFloat8_e4m3fnuz, 8, 1}, "float8_e4m3fnuz"},
        {{kDLFloat8_e5m2, 8, 1}, "float8_e5m2"},
        {{kDLFloat8_e5m2fnuz, 8, 1}, "float8_e5m2fnuz"},
        {{kDLFloat8_e8m0fnu, 8, 1}, "float8_e8m0fnu"},
        {{kDLFloat6_e2m3fn, 6, 1}, "float6_e2m3fn"},
        {{kDLFloat6_e3m2fn, 6, 1}, "float6_e3m2fn"},
        {{kDLFloat4_e2m1fn, 4, 2}, "float4_e2m1fnx2"},
    };
    static _Alignas(16) unsigned char memory[256];
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        int64_t shape[1] = {4};
        char name[32];
        DLTensor const description = {memory, {kDLCPU, 0}, 1, all[i].dtype, shape, NULL, 0};
        devx_tensor_t *tensor = NULL;
        struct DLManagedTensorVersioned *managed = NULL;
        CHECK_OK(devx_dtype_name(all[i].dtype, name, sizeof name, &error));
        CHECK_STR(name, all[i].name);
        CHECK_OK(devx_tensor_create(&description, 0, NULL, &tensor, &error));
        CHECK_OK(devx_tensor_export_move(&tensor, NULL, &managed, &error));
        CHECK(memcmp(&managed->dl_tensor.dtype, &all[i].dtype, sizeof all[i].dtype) == 0);
        CHECK_OK(devx_tensor_import(managed, &tensor, &error));
        devx_tensor_release(&tensor);
    }
    CHECK_NOTHING_OUTSTANDING();
}

/* --- copies --- */

TEST(a_copy_is_made_on_request) {
    struct tally tally = {0};
    devx_tensor_t *tensor = tensor_of_six(&tally, DLPACK_FLAG_BITMASK_READ_ONLY);
    devx_dlpack_request const always = {1, 3, -1, DEVX_COPY_ALWAYS};
    devx_dlpack_request const if_needed = {1, 3, -1, DEVX_COPY_IF_NEEDED};
    struct DLManagedTensorVersioned *managed = NULL;
    CHECK_OK(devx_tensor_export_share(tensor, &if_needed, &managed, &error));
    CHECK_PTR(managed->dl_tensor.data, six);
    CHECK_INT(managed->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
    devx_dlpack_release(&managed);

    /* The consumer is the only user of a copy: it may write to it, and the source may be released. */
    CHECK_OK(devx_tensor_export_move(&tensor, &always, &managed, &error));
    CHECK_PTR(tensor, NULL);
    CHECK_INT(tally.releases, 1);
    CHECK_INT(managed->flags, DLPACK_FLAG_BITMASK_IS_COPIED);
    CHECK(managed->dl_tensor.data != (void *)six);
    CHECK(memcmp(managed->dl_tensor.data, six, sizeof six) == 0);
    ((double *)managed->dl_tensor.data)[0] = 7;
    CHECK_DOUBLE(six[0], 0.0, 0);
    devx_dlpack_release(&managed);
    CHECK_NOTHING_OUTSTANDING();
}

/* --- exactly once --- */

enum { HANDLE, SHARED, EXPORTED, LEGACY };

/* Four holders of one tensor, given up in the order of `order`: the last one releases the tensor, whichever it is. */
static void release_in_order(devx_tensor_t *tensor, struct tally *tally, const int *order) {
    devx_tensor_t *shared = NULL;
    struct DLManagedTensorVersioned *exported = NULL;
    struct DLManagedTensor *legacy = NULL;
    CHECK_MADE(tensor);
    CHECK_OK(devx_tensor_share(tensor, &shared, &error));
    CHECK_OK(devx_tensor_export_share(tensor, NULL, &exported, &error));
    CHECK_OK(devx_tensor_export_share_legacy(shared, NULL, &legacy, &error));
    for (int i = 0; i < HOLDERS; ++i) {
        CHECK_INT(tally->releases, 0);
        switch (order[i]) {
        case HANDLE: devx_tensor_release(&tensor); break;
        case SHARED: devx_tensor_release(&shared); break;
        case EXPORTED: exported->deleter(exported); break;
        default: legacy->deleter(legacy); break;
        }
    }
    CHECK_INT(tally->releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

static void check_created(const int *order) {
    struct tally tally = {0};
    release_in_order(tensor_of_six(&tally, 0), &tally, order);
}

static void check_imported(const int *order) {
    struct tally tally = {0};
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_tensor_import(foreign_tensor(&tally, 2, shape_2x3, NULL), &tensor, &error));
    CHECK_CALL(release_in_order(tensor, &tally, order));
    CHECK_INT(tally.live, 0);
}

static void check_imported_legacy(const int *order) {
    struct tally tally = {0};
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_tensor_import_legacy(foreign_legacy(&tally, 2, shape_2x3, NULL), &tensor, &error));
    CHECK_CALL(release_in_order(tensor, &tally, order));
    CHECK_INT(tally.live, 0);
}

TEST(an_owner_is_released_once_in_every_order) {
    in_every_order(check_created);
}

TEST(a_foreign_tensor_is_deleted_once_in_every_order) {
    in_every_order(check_imported);
}

TEST(a_foreign_legacy_tensor_is_deleted_once_in_every_order) {
    in_every_order(check_imported_legacy);
}

TEST(an_export_may_be_imported_again_and_again) {
    struct tally tally = {0};
    struct DLManagedTensorVersioned *managed = foreign_tensor(&tally, 2, shape_2x3, NULL);
    void *const data = managed->dl_tensor.data;
    for (int i = 0; i < 20; ++i) {
        devx_tensor_t *tensor = NULL;
        CHECK_OK(devx_tensor_import(managed, &tensor, &error));
        CHECK_OK(devx_tensor_export_move(&tensor, NULL, &managed, &error));
    }
    CHECK_PTR(managed->dl_tensor.data, data);
    CHECK_INT(tally.releases, 0);
    devx_dlpack_release(&managed);
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(without_a_deleter_there_is_nothing_to_call) {
    int64_t shape[2] = {2, 3};
    struct DLManagedTensor legacy = {{six, {kDLCPU, 0}, 2, {kDLFloat, 64, 1}, shape, NULL, 0}, NULL, NULL};
    struct DLManagedTensorVersioned managed = {{1, 3}, NULL, NULL, 0, legacy.dl_tensor};
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_tensor_import(&managed, &tensor, &error));
    CHECK_INT(devx_ledger_outstanding(), 1);
    devx_tensor_release(&tensor);
    CHECK_OK(devx_tensor_import_legacy(&legacy, &tensor, &error));
    devx_tensor_release(&tensor);
    struct DLManagedTensorVersioned *pointer = &managed;
    devx_dlpack_release(&pointer);
    CHECK_PTR(pointer, NULL);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(the_ledger_says_what_is_out) {
    struct tally tally = {0};
    devx_ledger before, now;
    CHECK_OK(devx_ledger_read(&before, &error));
    devx_tensor_t *tensor = NULL;
    struct DLManagedTensorVersioned *managed = NULL;
    CHECK_OK(devx_tensor_import(foreign_tensor(&tally, 2, shape_2x3, NULL), &tensor, &error));
    CHECK_OK(devx_tensor_export_share(tensor, NULL, &managed, &error));
    CHECK_OK(devx_ledger_read(&now, &error));
    CHECK_INT(now.tensor_imports.live, 1);
    CHECK_INT(now.tensor_imports.total, before.tensor_imports.total + 1);
    CHECK_INT(now.tensor_exports.live, 1);
    CHECK_INT(now.tensor_exports.total, before.tensor_exports.total + 1);
    CHECK_INT(now.owners.live, 0);
    CHECK_INT(devx_ledger_outstanding(), 2);
    devx_tensor_release(&tensor);
    CHECK_OK(devx_ledger_read(&now, &error));
    CHECK_INT(now.tensor_imports.live, 1); /* the export holds it */
    devx_dlpack_release(&managed);
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
