/* Bad DLPack tensors, bad descriptions of tensors, bad requests; and input that is unusual but legal. */
#include "bad.h"

static int64_t const shape_2x3[2] = {2, 3};

static void ndim_negative(DLTensor *t) {
    t->ndim = -1;
    t->shape = t->strides = forbidden();
}
static void ndim_65(DLTensor *t) {
    t->ndim = 65;
    t->shape = t->strides = forbidden();
}
static void ndim_largest(DLTensor *t) {
    t->ndim = INT32_MAX;
    t->shape = t->strides = forbidden();
}
static void ndim_smallest(DLTensor *t) {
    t->ndim = INT32_MIN;
    t->shape = t->strides = forbidden();
}
static void shape_null(DLTensor *t) {
    t->shape = NULL;
}
static void extent_negative(DLTensor *t) {
    t->shape[1] = -3;
}
static void extent_smallest(DLTensor *t) {
    t->shape[0] = INT64_MIN;
}
static void product_too_large(DLTensor *t) {
    t->shape[0] = INT64_C(1) << 32;
    t->shape[1] = INT64_C(1) << 32;
}
static void product_wraps_to_small(DLTensor *t) { /* 2^64 + 2^33 as a product of two */
    t->shape[0] = INT64_C(1) << 33;
    t->shape[1] = (INT64_C(1) << 31) + 1;
}
static void bytes_too_many(DLTensor *t) {
    t->shape[0] = INT64_C(1) << 60;
    t->shape[1] = 1;
}
static void strides_too_far(DLTensor *t) {
    t->strides[0] = INT64_MAX;
}
static void strides_too_far_back(DLTensor *t) {
    t->strides[1] = INT64_MIN;
}
/* -2^122 elements of 64 bits: as a number of bits -2^128, which is 0 to a 128-bit computer. */
static void strides_wrap_to_zero(DLTensor *t) {
    t->shape[0] = (INT64_C(1) << 59) + 1;
    t->shape[1] = 1;
    t->strides[0] = INT64_MIN;
}
static void strides_sum_too_far(DLTensor *t) {
    t->strides[0] = INT64_MAX / 8;
    t->strides[1] = INT64_MAX / 16;
}
static void data_null(DLTensor *t) {
    t->data = NULL;
}
static void offset_wraps(DLTensor *t) {
    t->byte_offset = UINT64_MAX - 7;
}
static void below_address_zero(DLTensor *t) {
    t->data = (void *)(uintptr_t)64;
    t->strides[0] = -1000;
}
static void beyond_the_address_space(DLTensor *t) {
    t->data = (void *)(uintptr_t)(UINTPTR_MAX - 15);
}
static void misaligned(DLTensor *t) {
    t->data = (char *)t->data + 1;
}
static void misaligned_by_offset(DLTensor *t) {
    t->byte_offset = 4;
}
static void code_unknown(DLTensor *t) {
    t->dtype.code = 18;
}
static void code_largest(DLTensor *t) {
    t->dtype.code = 255;
}
static void code_opaque(DLTensor *t) {
    t->dtype.code = kDLOpaqueHandle;
}
static void bits_zero(DLTensor *t) {
    t->dtype.bits = 0;
}
static void bits_odd(DLTensor *t) {
    t->dtype.bits = 65;
}
static void lanes_zero(DLTensor *t) {
    t->dtype.lanes = 0;
}
static void bool_of_one_bit(DLTensor *t) {
    t->dtype.code = kDLBool;
    t->dtype.bits = 1;
}
static void float_of_one_byte(DLTensor *t) {
    t->dtype.bits = 8;
}
static void float6_of_eight_bits(DLTensor *t) {
    t->dtype.code = kDLFloat6_e2m3fn;
    t->dtype.bits = 8;
}
/* An enumeration of C holds any number that fits; this function writes one in a way that compilers accept. */
static void set_device_type(DLTensor *t, int32_t type) {
    memcpy(&t->device.device_type, &type, sizeof type);
}
static void device_zero(DLTensor *t) {
    set_device_type(t, 0);
}
static void device_unknown(DLTensor *t) {
    set_device_type(t, 99);
}
static void device_negative(DLTensor *t) {
    set_device_type(t, -1);
}
static void device_cuda(DLTensor *t) {
    set_device_type(t, kDLCUDA);
}
static void device_id_of_cpu(DLTensor *t) {
    t->device.device_id = 3;
}

struct bad_tensor {
    const char *name;
    void (*spoil)(DLTensor *tensor);
    devx_status status;
    const char *part;
};

static struct bad_tensor const bad_tensors[] = {
    BAD(ndim_negative, DEVX_INVALID_SHAPE, "ndim is -1"),
    BAD(ndim_65, DEVX_INVALID_SHAPE, "ndim is 65"),
    BAD(ndim_largest, DEVX_INVALID_SHAPE, "ndim is 2147483647"),
    BAD(ndim_smallest, DEVX_INVALID_SHAPE, "ndim is -2147483648"),
    BAD(shape_null, DEVX_INVALID_SHAPE, "shape is NULL with ndim 2"),
    BAD(extent_negative, DEVX_INVALID_SHAPE, "shape[1] is -3"),
    BAD(extent_smallest, DEVX_INVALID_SHAPE, "shape[0] is -9223372036854775808"),
    BAD(product_too_large, DEVX_INVALID_SHAPE, "[4294967296, 4294967296]"),
    BAD(product_wraps_to_small, DEVX_INVALID_SHAPE, "[8589934592, 2147483649]"),
    BAD(bytes_too_many, DEVX_INVALID_SHAPE, "9223372036854775808 bytes"),
    BAD(strides_too_far, DEVX_INVALID_SHAPE, "strides [9223372036854775807, 1]"),
    BAD(strides_too_far_back, DEVX_INVALID_SHAPE, "strides [3, -9223372036854775808]"),
    BAD(strides_wrap_to_zero, DEVX_INVALID_SHAPE, "strides [-9223372036854775808, 1]"),
    BAD(strides_sum_too_far, DEVX_INVALID_SHAPE, "strides [1152921504606846975, 576460752303423487]"),
    BAD(data_null, DEVX_NULL_ARGUMENT, "data is NULL for shape [2, 3]"),
    BAD(offset_wraps, DEVX_INVALID_SHAPE, "byte_offset is 18446744073709551608"),
    BAD(below_address_zero, DEVX_INVALID_SHAPE, "data 0x40"),
    BAD(beyond_the_address_space, DEVX_INVALID_SHAPE, "0xfffffffffffffff0"),
    BAD(misaligned, DEVX_INVALID_ARGUMENT, "not aligned to 8 bytes"),
    BAD(misaligned_by_offset, DEVX_INVALID_ARGUMENT, "byte_offset 4 is not aligned to 8 bytes"),
    BAD(code_unknown, DEVX_INVALID_DTYPE, "dtype.code is 18"),
    BAD(code_largest, DEVX_INVALID_DTYPE, "dtype.code is 255"),
    BAD(code_opaque, DEVX_UNSUPPORTED, "dtype.code is 3"),
    BAD(bits_zero, DEVX_INVALID_DTYPE, "dtype.bits is 0"),
    BAD(bits_odd, DEVX_INVALID_DTYPE, "dtype.bits is 65"),
    BAD(lanes_zero, DEVX_INVALID_DTYPE, "dtype.lanes is 0"),
    BAD(bool_of_one_bit, DEVX_INVALID_DTYPE, "dtype.bits is 1"),
    BAD(float_of_one_byte, DEVX_INVALID_DTYPE, "dtype.bits is 8"),
    BAD(float6_of_eight_bits, DEVX_INVALID_DTYPE, "dtype.bits is 8"),
    BAD(device_zero, DEVX_DEVICE, "device_type is 0"),
    BAD(device_unknown, DEVX_DEVICE, "device_type is 99"),
    BAD(device_negative, DEVX_DEVICE, "device_type is -1"),
    BAD(device_cuda, DEVX_DEVICE, "cuda"),
    BAD(device_id_of_cpu, DEVX_DEVICE, "device_id is 3"),
};
enum { BAD_TENSORS = sizeof bad_tensors / sizeof *bad_tensors };

static int64_t const row_major[2] = {3, 1};

TEST(bad_tensors_are_refused) {
    for (int i = 0; i < BAD_TENSORS; ++i) {
        struct bad_tensor const *bad = &bad_tensors[i];
        struct tally tally = {0};
        struct DLManagedTensorVersioned *source = foreign_tensor(&tally, 2, shape_2x3, row_major);
        bad->spoil(&source->dl_tensor);
        struct DLManagedTensorVersioned const before = *source;
        devx_tensor_t *out = UNWRITTEN;
        CHECK_CALL(check_refusal(bad->name, devx_tensor_import(source, &out, &error), bad->status, bad->part));
        CHECK_INT(devx_tensor_import(source, &out, NULL), bad->status); /* the text may be left out */
        CHECK_MSG(memcmp(source, &before, sizeof before) == 0, "%s: the source was changed", bad->name);
        CHECK_PTR(out, UNWRITTEN);
        CHECK_INT(tally.releases, 0);
        CHECK_NOTHING_OUTSTANDING();
        source->deleter(source);
        CHECK_INT(tally.live, 0);
    }
}

TEST(bad_legacy_tensors_are_refused) {
    for (int i = 0; i < BAD_TENSORS; ++i) {
        struct bad_tensor const *bad = &bad_tensors[i];
        struct tally tally = {0};
        struct DLManagedTensor *source = foreign_legacy(&tally, 2, shape_2x3, row_major);
        bad->spoil(&source->dl_tensor);
        struct DLManagedTensor const before = *source;
        devx_tensor_t *out = UNWRITTEN;
        CHECK_CALL(check_refusal(bad->name, devx_tensor_import_legacy(source, &out, &error), bad->status, bad->part));
        CHECK_MSG(memcmp(source, &before, sizeof before) == 0, "%s: the source was changed", bad->name);
        CHECK_PTR(out, UNWRITTEN);
        CHECK_INT(tally.releases, 0);
        source->deleter(source);
        CHECK_NOTHING_OUTSTANDING();
    }
}

TEST(bad_descriptions_of_tensors_are_refused) {
    static double memory[6];
    for (int i = 0; i < BAD_TENSORS; ++i) {
        struct bad_tensor const *bad = &bad_tensors[i];
        struct tally tally = {0};
        int64_t shape[2] = {2, 3}, strides[2] = {3, 1};
        DLTensor description = {memory, {kDLCPU, 0}, 2, {kDLFloat, 64, 1}, shape, strides, 0};
        devx_owner const owner = counting_owner(&tally);
        devx_tensor_t *out = UNWRITTEN;
        bad->spoil(&description);
        CHECK_CALL(check_refusal(bad->name, devx_tensor_create(&description, 0, &owner, &out, &error), bad->status,
                                 bad->part));
        CHECK_PTR(out, UNWRITTEN);
        CHECK_INT(tally.releases, 0); /* still the caller's */
        CHECK_NOTHING_OUTSTANDING();
    }
}

/* Without strides, it is the number of bytes that can be too large. */
TEST(shapes_without_strides_are_checked_too) {
    static int64_t shapes[][3] = {
        {INT64_MAX, 2, 1},
        {INT64_C(1) << 62, 1, 1},
        {3, INT64_MAX, 3},
        {INT64_C(1) << 21, INT64_C(1) << 21, INT64_C(1) << 21},
    };
    static double memory[6];
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
        DLTensor const description = {memory, {kDLCPU, 0}, 3, {kDLFloat, 64, 1}, shapes[i], NULL, 0};
        devx_tensor_t *out = UNWRITTEN;
        CHECK_REFUSED(devx_tensor_create(&description, 0, NULL, &out, &error), DEVX_INVALID_SHAPE, "shape [");
        CHECK_PTR(out, UNWRITTEN);
    }
}

/* In a struct of another major version, only the version, the context and the deleter have a known place. */
TEST(other_major_versions_are_refused_unread) {
    static uint32_t const majors[] = {0, 2, 7, UINT32_MAX};
    size_t const known = offsetof(struct DLManagedTensorVersioned, flags);
    for (size_t i = 0; i < sizeof majors / sizeof *majors; ++i) {
        struct tally tally = {0};
        char expected[32];
        snprintf(expected, sizeof expected, "version is %u.", (unsigned)majors[i]);
        struct DLManagedTensorVersioned *source = last_bytes_of_a_page(known);
        source->version.major = majors[i];
        source->version.minor = 9;
        source->manager_ctx = &tally;
        source->deleter = NULL;
        devx_tensor_t *out = UNWRITTEN;
        CHECK_REFUSED(devx_tensor_import(source, &out, &error), DEVX_VERSION, expected);
        CHECK_PTR(out, UNWRITTEN);
        CHECK_INT(source->version.major, majors[i]);
        CHECK_PTR(source->manager_ctx, &tally);
        free_page_of(source);
    }
    CHECK_NOTHING_OUTSTANDING();
}

static void count_deleter(struct DLManagedTensorVersioned *tensor) {
    atomic_fetch_add(&((struct tally *)tensor->manager_ctx)->releases, 1);
}

TEST(other_major_versions_are_given_back_by_their_deleter) {
    struct tally tally = {0};
    size_t const known = offsetof(struct DLManagedTensorVersioned, flags);
    struct DLManagedTensorVersioned *source = last_bytes_of_a_page(known), *pointer = source;
    source->version.major = 2;
    source->manager_ctx = &tally;
    source->deleter = count_deleter;
    devx_tensor_t *out = UNWRITTEN;
    CHECK_REFUSED(devx_tensor_import(source, &out, &error), DEVX_VERSION, "call the deleter");
    CHECK_INT(tally.releases, 0);
    devx_dlpack_release(&pointer);
    CHECK_PTR(pointer, NULL);
    CHECK_INT(tally.releases, 1);
    free_page_of(source);
}

TEST(what_is_unusual_but_legal_is_taken) {
    struct tally tally = {0};
    devx_tensor_t *tensor = NULL;
    struct DLManagedTensorVersioned *source = foreign_tensor(&tally, 2, shape_2x3, NULL);
    source->version.minor = 99;
    source->flags = UINT64_C(1) << 63;
    CHECK_OK(devx_tensor_import(source, &tensor, &error));
    uint64_t flags = 0;
    DLTensor view;
    CHECK_OK(devx_tensor_borrow(tensor, &view, &flags, &error));
    CHECK_INT(flags, UINT64_C(1) << 63);
    devx_tensor_release(&tensor);

    /* Without elements, the other extents and the strides may be anything, and there is no address. */
    int64_t const huge[3] = {INT64_MAX, 0, INT64_MAX};
    int64_t const far[3] = {INT64_MIN, INT64_MAX, 0};
    source = foreign_tensor(&tally, 3, (int64_t const[3]){0, 0, 0}, far);
    memcpy(source->dl_tensor.shape, huge, sizeof huge);
    source->dl_tensor.data = NULL;
    source->dl_tensor.byte_offset = UINT64_MAX;
    CHECK_OK(devx_tensor_import(source, &tensor, &error));
    devx_tensor_release(&tensor);

    /* The CPU as -1, which is Arrow's way. */
    source = foreign_tensor(&tally, 2, shape_2x3, NULL);
    source->dl_tensor.device.device_id = -1;
    CHECK_OK(devx_tensor_import(source, &tensor, &error));
    CHECK_OK(devx_tensor_borrow(tensor, &view, NULL, &error));
    CHECK_INT(view.device.device_id, 0);
    devx_tensor_release(&tensor);
    CHECK_INT(tally.releases, 3);
    CHECK_INT(tally.live, 0);
}

TEST(bad_requests_are_refused) {
    static struct {
        devx_dlpack_request request;
        devx_status status;
        const char *part;
    } const all[] = {
        {{1, 3, -1, 7}, DEVX_INVALID_ARGUMENT, "copy is 7"},
        {{1, 3, -1, -1}, DEVX_INVALID_ARGUMENT, "copy is -1"},
        {{1, 3, 0, 0}, DEVX_INVALID_STREAM, "stream is 0"},
        {{1, 3, 1, 0}, DEVX_INVALID_STREAM, "stream is 1"},
        {{1, 3, -2, 0}, DEVX_INVALID_STREAM, "stream is -2"},
        {{0, 0, -1, 0}, DEVX_VERSION, "max_version is 0.0"},
    };
    struct tally tally = {0};
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_tensor_import(foreign_tensor(&tally, 2, shape_2x3, NULL), &tensor, &error));
    devx_tensor_t *const before = tensor;
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        struct DLManagedTensorVersioned *out = UNWRITTEN;
        CHECK_REFUSED(devx_tensor_export_share(tensor, &all[i].request, &out, &error), all[i].status, all[i].part);
        CHECK_REFUSED(devx_tensor_export_move(&tensor, &all[i].request, &out, &error), all[i].status, all[i].part);
        CHECK_PTR(out, UNWRITTEN);
        CHECK_PTR(tensor, before);
    }
    CHECK_INT(devx_ledger_outstanding(), 1);
    devx_tensor_release(&tensor);
    CHECK_INT(tally.releases, 1);
}

CHECK_MAIN()
