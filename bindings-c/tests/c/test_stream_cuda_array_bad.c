/* Bad input of the CUDA Array Interface: each case is refused with a status and a text that names the field and the value. The
 * array is untouched and still its owner's; no output is written. Cases for which a driver must be asked are run with one. */
#include "cuda_producer.h"

/* --- what is wrong with an array --- */

static void version_4(devx_cuda_array *a) {
    a->version = 4;
}
static void version_negative(devx_cuda_array *a) {
    a->version = -1;
}
static void version_largest(devx_cuda_array *a) {
    a->version = INT32_MAX;
}
static void typestr_null(devx_cuda_array *a) {
    a->typestr = NULL;
}
static void typestr_empty(devx_cuda_array *a) {
    a->typestr = "";
}
static void typestr_big_endian(devx_cuda_array *a) {
    a->typestr = ">i4";
}
static void typestr_object(devx_cuda_array *a) {
    a->typestr = "|O";
}
static void typestr_structured(devx_cuda_array *a) {
    a->typestr = "|V8";
    a->descr = "[('x', '<i4'), ('y', '<i4')]";
}
static void typestr_date(devx_cuda_array *a) {
    a->typestr = "<M8[ns]";
}
static void typestr_nonsense(devx_cuda_array *a) {
    a->typestr = "zz";
}
static void typestr_without_width(devx_cuda_array *a) {
    a->typestr = "<i";
}
static void typestr_odd_width(devx_cuda_array *a) {
    a->typestr = "<f3";
}
static void typestr_wide(devx_cuda_array *a) {
    a->typestr = "<i65536";
}
static void typestr_with_more(devx_cuda_array *a) {
    a->typestr = "<i4x";
}
static void typestr_not_utf8(devx_cuda_array *a) {
    a->typestr = "<\xff\xfe";
}
static void typestr_endless(devx_cuda_array *a) {
    static char text[128];
    memset(text, '4', sizeof text - 1);
    a->typestr = text;
}
static void ndim_negative(devx_cuda_array *a) {
    a->ndim = -1;
    a->shape = NULL;
}
static void ndim_65(devx_cuda_array *a) {
    a->ndim = 65;
}
static void ndim_largest(devx_cuda_array *a) {
    a->ndim = INT64_MAX;
}
static void shape_null(devx_cuda_array *a) {
    a->shape = NULL;
}
static void extent_negative(devx_cuda_array *a) {
    own(a)->shape[0] = -3;
}
static void extent_smallest(devx_cuda_array *a) {
    own(a)->shape[0] = INT64_MIN;
}
static void elements_overflow(devx_cuda_array *a) {
    a->ndim = 2;
    own(a)->shape[0] = own(a)->shape[1] = INT64_C(1) << 32;
}
static void bytes_overflow(devx_cuda_array *a) {
    own(a)->shape[0] = INT64_MAX;
}
static void strides_odd(devx_cuda_array *a) {
    own(a)->strides[0] = 6;
    a->strides = own(a)->strides;
}
static void strides_overflow(devx_cuda_array *a) {
    own(a)->strides[0] = INT64_MAX - 3;
    a->strides = own(a)->strides;
}
static void strides_smallest(devx_cuda_array *a) {
    own(a)->strides[0] = INT64_MIN;
    a->strides = own(a)->strides;
}
static void strides_past_the_end(devx_cuda_array *a) {
    own(a)->strides[0] = 8;
    a->strides = own(a)->strides;
}
static void strides_before_the_start(devx_cuda_array *a) {
    own(a)->strides[0] = -4;
    a->strides = own(a)->strides;
}
static void data_null(devx_cuda_array *a) {
    a->data = NULL;
}
static void data_of_the_host(devx_cuda_array *a) {
    a->data = host_values;
}
static void data_nowhere(devx_cuda_array *a) {
    a->data = (void *)(uintptr_t)UINT64_C(0xfffffffffffffffc);
}
static void data_past_the_end(devx_cuda_array *a) {
    a->data = (char *)a->data + 4;
}
static void data_before_the_start(devx_cuda_array *a) {
    a->data = (char *)a->data - 4;
}
static void data_misaligned(devx_cuda_array *a) {
    own(a)->shape[0] = 7;
    a->data = (char *)a->data + 2;
}
static void stream_0(devx_cuda_array *a) {
    a->stream = 0;
}
static void stream_negative(devx_cuda_array *a) {
    a->stream = -2;
}
static void stream_smallest(devx_cuda_array *a) {
    a->stream = INT64_MIN;
}
static void mask_there(devx_cuda_array *a) {
    a->mask = &own(a)->mask;
}
static void mask_of_another_shape(devx_cuda_array *a) {
    mask_there(a);
    own(a)->mask_shape[0] = 7;
}
static void mask_without_data(devx_cuda_array *a) {
    mask_there(a);
    own(a)->mask.data = NULL;
}
static void mask_of_the_host(devx_cuda_array *a) {
    mask_there(a);
    own(a)->mask.data = host_values;
}
static void mask_of_nonsense(devx_cuda_array *a) {
    mask_there(a);
    own(a)->mask.typestr = "zz";
}
static void mask_of_another_version(devx_cuda_array *a) {
    mask_there(a);
    own(a)->mask.version = 9;
}

enum { ALONE = 0, WITH_DRIVER = 1, WITH_MASK = 2 };

static struct bad_case {
    char const *name;
    void (*spoil)(devx_cuda_array *);
    devx_status status;
    char const *part;
    int how;
} const cases[] = {
    {"version 4", version_4, DEVX_VERSION, "version is 4: this library reads 0 to 3", ALONE},
    {"version -1", version_negative, DEVX_VERSION, "version is -1", ALONE},
    {"version 2^31-1", version_largest, DEVX_VERSION, "version is 2147483647", ALONE},
    {"typestr NULL", typestr_null, DEVX_INVALID_DTYPE, "typestr is NULL", ALONE},
    {"typestr empty", typestr_empty, DEVX_INVALID_DTYPE, "typestr is \"\"", ALONE},
    {"typestr >", typestr_big_endian, DEVX_UNSUPPORTED, "typestr is \">i4\": the bytes are not in the order", ALONE},
    {"typestr |O", typestr_object, DEVX_UNSUPPORTED, "typestr is \"|O\"", ALONE},
    {"typestr |V8", typestr_structured, DEVX_UNSUPPORTED, "typestr is \"|V8\"", ALONE},
    {"typestr <M8", typestr_date, DEVX_UNSUPPORTED, "typestr is \"<M8[ns]\"", ALONE},
    {"typestr zz", typestr_nonsense, DEVX_INVALID_DTYPE, "typestr is \"zz\"", ALONE},
    {"typestr <i", typestr_without_width, DEVX_INVALID_DTYPE, "typestr is \"<i\"", ALONE},
    {"typestr <f3", typestr_odd_width, DEVX_INVALID_DTYPE, "typestr is \"<f3\"", ALONE},
    {"typestr <i65536", typestr_wide, DEVX_INVALID_DTYPE, "typestr is \"<i65536\"", ALONE},
    {"typestr <i4x", typestr_with_more, DEVX_INVALID_DTYPE, "typestr is \"<i4x\"", ALONE},
    {"typestr not UTF-8", typestr_not_utf8, DEVX_INVALID_DTYPE, "typestr is not valid UTF-8: [60, 255, 254]", ALONE},
    {"typestr without end", typestr_endless, DEVX_INVALID_DTYPE, "typestr has no end within 64 bytes", ALONE},
    {"ndim -1", ndim_negative, DEVX_INVALID_SHAPE, "ndim is -1", ALONE},
    {"ndim 65", ndim_65, DEVX_INVALID_SHAPE, "ndim is 65", ALONE},
    {"ndim 2^63-1", ndim_largest, DEVX_INVALID_SHAPE, "ndim is 9223372036854775807", ALONE},
    {"shape NULL", shape_null, DEVX_INVALID_SHAPE, "shape is NULL with ndim 1", ALONE},
    {"extent -3", extent_negative, DEVX_INVALID_SHAPE, "shape[0] is -3", WITH_DRIVER},
    {"extent -2^63", extent_smallest, DEVX_INVALID_SHAPE, "shape[0] is -9223372036854775808", WITH_DRIVER},
    {"2^64 elements", elements_overflow, DEVX_INVALID_SHAPE, "shape [4294967296, 4294967296]", WITH_DRIVER},
    {"2^65 bytes", bytes_overflow, DEVX_INVALID_SHAPE, "shape [9223372036854775807]", WITH_DRIVER},
    {"strides 6", strides_odd, DEVX_INVALID_SHAPE, "strides[0] is 6 bytes: not a multiple of the 4", ALONE},
    {"strides 2^63-4", strides_overflow, DEVX_INVALID_SHAPE, "strides [2305843009213693951]", WITH_DRIVER},
    {"strides -2^63", strides_smallest, DEVX_INVALID_SHAPE, "strides [-2305843009213693952]", WITH_DRIVER},
    {"strides past the end", strides_past_the_end, DEVX_DEVICE, "needs 60 bytes", WITH_DRIVER},
    {"strides before the start", strides_before_the_start, DEVX_DEVICE, "data 0x", WITH_DRIVER},
    {"data NULL", data_null, DEVX_INVALID_ARGUMENT, "data is NULL with shape [8]", ALONE},
    {"data of the host", data_of_the_host, DEVX_DEVICE, "host memory that no CUDA device can access", WITH_DRIVER},
    {"data nowhere", data_nowhere, DEVX_DEVICE, "data is 0xfffffffffffffffc", WITH_DRIVER},
    {"data past the end", data_past_the_end, DEVX_DEVICE, "needs 32 bytes", WITH_DRIVER},
    {"data before the start", data_before_the_start, DEVX_DEVICE, "data is 0x", WITH_DRIVER},
    {"data misaligned", data_misaligned, DEVX_INVALID_ARGUMENT, "is not aligned to 4 bytes", WITH_DRIVER},
    {"stream 0", stream_0, DEVX_INVALID_STREAM, "stream is 0", WITH_DRIVER},
    {"stream -2", stream_negative, DEVX_INVALID_STREAM, "stream is -2", WITH_DRIVER},
    {"stream -2^63", stream_smallest, DEVX_INVALID_STREAM, "stream is -9223372036854775808", WITH_DRIVER},
    {"mask", mask_there, DEVX_UNSUPPORTED, "mask is there", WITH_DRIVER},
    {"mask of 7", mask_of_another_shape, DEVX_MISMATCH, "mask has shape [7], the array [8]", WITH_DRIVER | WITH_MASK},
    {"mask NULL", mask_without_data, DEVX_INVALID_ARGUMENT, "mask: data is NULL", WITH_DRIVER | WITH_MASK},
    {"mask of the host", mask_of_the_host, DEVX_DEVICE, "mask: data is 0x", WITH_DRIVER | WITH_MASK},
    {"mask of zz", mask_of_nonsense, DEVX_INVALID_DTYPE, "mask: typestr is \"zz\"", WITH_DRIVER | WITH_MASK},
    {"mask of version 9", mask_of_another_version, DEVX_VERSION, "mask: version is 9", WITH_DRIVER | WITH_MASK},
};

/* Like CHECK_REFUSED; also checks that nothing was taken or written. */
static void check_case(struct bad_case const *bad) {
    struct tally tally = {0};
    devx_cuda_array array = produce(&tally), before;
    devx_tensor_t *tensor = UNWRITTEN, *mask = UNWRITTEN;
    int64_t outstanding;
    devx_status got;
    CHECK_CALL(settle());
    outstanding = devx_ledger_outstanding();
    bad->spoil(&array);
    before = array;
    error = (devx_error){0, 0, ""};
    got = devx_cuda_array_import(&array, NULL, &tensor, bad->how & WITH_MASK ? &mask : NULL, &error);
    CHECK_MSG(got == bad->status && error.status == got, "%s: %s instead of %s: %.150s", bad->name, devx_status_name(got),
              devx_status_name(bad->status), error.message);
    CHECK_MSG(strstr(error.message, bad->part) != NULL, "%s: \"%s\" is not in \"%.150s\"", bad->name, bad->part,
              error.message);
    CHECK_MSG(memcmp(&array, &before, sizeof array) == 0, "%s: the array was altered", bad->name);
    CHECK_MSG(tensor == UNWRITTEN && mask == UNWRITTEN, "%s: an output was written", bad->name);
    CHECK_MSG(tally.releases == 0, "%s: it was released", bad->name);
    CHECK_MSG(devx_ledger_outstanding() == outstanding, "%s: something is left", bad->name);
    devx_cuda_array_release(&array);
    CHECK_MSG(tally.releases == 1 && array.release == NULL, "%s: released %d times", bad->name, tally.releases);
}

TEST(what_is_wrong_is_told_without_a_driver) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        if (cases[i].how == ALONE) {
            CHECK_CALL(check_case(&cases[i]));
        }
    }
}

TEST(what_is_wrong_is_told_with_a_driver) {
    if (!has_driver()) {
        SKIP("there is no CUDA driver");
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        CHECK_CALL(check_case(&cases[i]));
    }
}

TEST(arguments_that_are_missing_or_wrong) {
    struct tally tally = {0};
    devx_cuda_array array = produce(&tally);
    devx_cuda_array_request request = {3, DEVX_NO_STREAM_LEGACY_DEFAULT, DEVX_CUDA_ARRAY_NO_STREAM};
    devx_tensor_t *tensor = NULL;
    CHECK_REFUSED(devx_cuda_array_import(NULL, NULL, &tensor, NULL, &error), DEVX_NULL_ARGUMENT, "array is NULL");
    CHECK_REFUSED(devx_cuda_array_import(&array, NULL, NULL, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    for (int32_t policy = -1; policy <= 3; policy += 4) {
        request.no_stream = policy;
        CHECK_REFUSED(devx_cuda_array_import(&array, &request, &tensor, NULL, &error), DEVX_INVALID_ARGUMENT,
                      policy < 0 ? "no_stream is -1" : "no_stream is 3");
    }
    request.no_stream = DEVX_NO_STREAM_TRUST;
    request.max_version = -1;
    CHECK_REFUSED(devx_cuda_array_import(&array, &request, &tensor, NULL, &error), DEVX_VERSION, "max_version is -1");
    CHECK_REFUSED(devx_tensor_export_share_cuda_array(NULL, NULL, &array, &error), DEVX_NULL_ARGUMENT, "tensor is NULL");
    CHECK_REFUSED(devx_tensor_export_move_cuda_array(NULL, NULL, &array, &error), DEVX_NULL_ARGUMENT, "tensor is NULL");
    CHECK_REFUSED(devx_tensor_export_move_cuda_array(&tensor, NULL, &array, &error), DEVX_NULL_ARGUMENT,
                  "*tensor is NULL");
    CHECK(array.release == give_up && tally.releases == 0 && tensor == NULL);
    devx_cuda_array_release(&array);
    CHECK_REFUSED(devx_cuda_array_import(&array, NULL, &tensor, NULL, &error), DEVX_RELEASED, "array.release is NULL");
    CHECK_INT(tally.releases, 1);
}

/* Host memory, and what an export cannot describe, is refused; a tensor that was to be moved is as before. */
TEST(what_cannot_go_out_stays) {
    devx_tensor_t *tensor = NULL, *same;
    devx_cuda_array out = {.release = give_up};
    int64_t const shape[1] = {4};
    CHECK_OK(devx_tensor_allocate(cpu, int32, shape, 1, -1, &tensor, &error));
    same = tensor;
    CHECK_REFUSED(devx_tensor_export_share_cuda_array(tensor, NULL, &out, &error), DEVX_DEVICE, "device is cpu:0");
    CHECK_REFUSED(devx_tensor_export_move_cuda_array(&tensor, NULL, &out, &error), DEVX_DEVICE, "device is cpu:0");
    CHECK_REFUSED(devx_tensor_export_move_cuda_array(&tensor, NULL, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK_PTR(tensor, same);
    CHECK(out.release == give_up);
    devx_tensor_release(&tensor);
    CHECK_CALL(finish_releases());
}

/* --- input that looks wrong but is right --- */

static void negative_strides(devx_cuda_array *a) {
    own(a)->strides[0] = -4;
    a->strides = own(a)->strides;
    a->data = (char *)a->data + 28;
}
static void strides_0(devx_cuda_array *a) {
    own(a)->strides[0] = 0;
    a->strides = own(a)->strides;
}
static void no_elements_and_no_data(devx_cuda_array *a) {
    own(a)->shape[0] = 0;
    a->data = NULL;
}
static void no_elements_but_data(devx_cuda_array *a) {
    own(a)->shape[0] = 0;
}
static void no_dimensions(devx_cuda_array *a) {
    a->ndim = 0;
    a->shape = NULL;
}
static void read_only_2(devx_cuda_array *a) {
    a->read_only = 2;
}
static void descr_of_plain_elements(devx_cuda_array *a) {
    a->descr = "[('', '<i4')]";
}
static void version_0_with_stream_0(devx_cuda_array *a) {
    a->version = 0;
    a->stream = 0;
}

TEST(what_looks_wrong_and_is_right) {
    static struct {
        char const *name;
        void (*alter)(devx_cuda_array *);
        int64_t elements;
    } const fine[] = {
        {"negative strides", negative_strides, 8},
        {"strides 0", strides_0, 8},
        {"no elements, NULL", no_elements_and_no_data, 0},
        {"no elements, not NULL", no_elements_but_data, 0},
        {"no dimensions", no_dimensions, 1},
        {"read_only 2", read_only_2, 8},
        {"descr of plain elements", descr_of_plain_elements, 8},
        {"version 0, whose stream means nothing", version_0_with_stream_0, 8},
    };
    if (!has_driver()) {
        SKIP("there is no CUDA driver");
    }
    for (size_t i = 0; i < sizeof fine / sizeof *fine; ++i) {
        struct tally tally = {0};
        devx_cuda_array array = produce(&tally);
        devx_tensor_t *tensor = NULL;
        DLTensor seen;
        uint64_t flags = 0;
        int64_t elements = -1;
        devx_status got;
        fine[i].alter(&array);
        got = devx_cuda_array_import(&array, NULL, &tensor, NULL, &error);
        CHECK_MSG(got == DEVX_OK, "%s: %s: %.150s", fine[i].name, devx_status_name(got), error.message);
        CHECK_OK(devx_tensor_size(tensor, &elements, NULL, NULL, &error));
        CHECK_MSG(elements == fine[i].elements, "%s: %d elements", fine[i].name, (int)elements);
        CHECK_OK(devx_tensor_borrow(tensor, &seen, &flags, &error));
        CHECK_INT((flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0, array.read_only != 0);
        devx_tensor_release(&tensor);
        CHECK_INT(tally.releases, 1);
    }
}

CHECK_MAIN()
