/* What no importer may fall over: each refused with a status and a text that names the field and the value, the source
 * as it was and still its owner's, the output not written. What must not even be read lies in memory that cannot be. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "test_support.h"

#include <sys/mman.h>
#include <unistd.h>

/* An address where reading and writing kill the program. */
static void *forbidden(void) {
    static void *page = NULL;
    if (page == NULL) {
        page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) {
            abort();
        }
    }
    return page;
}

/* `bytes` that can be read, directly before some that cannot. */
static void *last_bytes_of_a_page(size_t bytes) {
    size_t const page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = (char *)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE) != 0) {
        abort();
    }
    return pages + page - bytes;
}

static void free_page_of(void *memory) {
    size_t const page = (size_t)sysconf(_SC_PAGESIZE);
    munmap((void *)((uintptr_t)memory & ~(uintptr_t)(page - 1)), 2 * page);
}

/* As CHECK_REFUSED, for a case of a table. */
static void check_refusal(const char *name, devx_status got, devx_status expected, const char *part) {
    CHECK_MSG(got == expected, "%s: %s instead of %s: %.150s", name, devx_status_name(got), devx_status_name(expected),
              error.message);
    CHECK_MSG(got == DEVX_OK || error.status == expected, "%s: the record says %s", name,
              devx_status_name(error.status));
    CHECK_MSG(got == DEVX_OK || strstr(error.message, part) != NULL, "%s: \"%s\" is not in \"%.150s\"", name, part,
              error.message);
}

/* --- DLPack: what is wrong with a tensor --- */

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
/* An enumeration of C holds any number that fits; so that the compiler does not argue, it is written as one. */
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

#define BAD(spoil, status, part) {#spoil, spoil, status, part}
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
        CHECK_INT(devx_tensor_import(source, &out, NULL), bad->status); /* nobody has to want the text */
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

/* Without strides the bytes are what can be too many. */
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

/* Of another major version only the version, the context and the deleter have a known place. */
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

    /* No elements: the other extents and the strides may say what they like, and there is no address. */
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

/* --- Arrow: what is wrong with a schema --- */

/* A schema to spoil:
 * struct { number: int32, texts: list<utf8>, kind: dictionary<int8, utf8>, pair: fixed_size_list(2)<int32> } */
static struct ArrowSchema good_schema(struct tally *tally) {
    struct ArrowSchema root = foreign_schema(tally, "+s", ""), list = foreign_schema(tally, "+l", "texts");
    struct ArrowSchema kind = foreign_schema(tally, "c", "kind"), pair = foreign_schema(tally, "+w:2", "pair");
    add_schema_child(&list, foreign_schema(tally, "u", "item"));
    set_schema_dictionary(&kind, foreign_schema(tally, "u", NULL));
    add_schema_child(&pair, foreign_schema(tally, "i", "item"));
    add_schema_child(&root, foreign_schema(tally, "i", "number"));
    add_schema_child(&root, list);
    add_schema_child(&root, kind);
    add_schema_child(&root, pair);
    return root;
}
enum { NUMBER, TEXTS, KIND, PAIR, COLUMNS, GOOD_NODES = 8 };

/* Tries a schema that is spoiled already; puts `good` back in place of the root before it is released. */
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

/* A wrong format deep below is found, and the text says whose it is. */
TEST(a_bad_field_is_named) {
    struct tally tally = {0};
    struct ArrowSchema source = good_schema(&tally);
    source.children[TEXTS]->children[0]->format = "?!";
    CHECK_CALL(refuse_schema("below", &source, source, &tally, DEVX_INVALID_FORMAT,
                             "field \"item\": format is \"?!\""));
}

TEST(bad_names_are_refused) {
    struct tally tally = {0};
    struct ArrowSchema one = foreign_schema(&tally, "i", "caf\xe9");
    CHECK_CALL(refuse_schema("name", &one, one, &tally, DEVX_INVALID_TEXT, "name is not valid UTF-8"));
    /* A text that does not end is not read for ever. */
    size_t const long_enough = ((size_t)1 << 20) + 64;
    char *endless = support_memory(long_enough);
    memset(endless, 'x', long_enough - 1);
    one = foreign_schema(&tally, "i", endless);
    atomic_store(&tally.releases, 0);
    CHECK_CALL(refuse_schema("endless", &one, one, &tally, DEVX_INVALID_TEXT, "no end within"));
    free(endless);
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

/* Nothing of this has an end, and every node looks right. */
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

/* A producer that has one child in two places, and knows it. */
static void release_twin_schema(struct ArrowSchema *schema) {
    schema->n_children = 1;
    release_foreign_schema(schema);
}
static void release_twin_array(struct ArrowArray *array) {
    array->n_children = 1;
    release_foreign_array(array);
}

/* Whoever moved both children out would release one struct twice. */
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

/* --- Arrow: what is wrong with a description of a schema --- */

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

/* --- Arrow: what is wrong with an array --- */

/* An array of five rows of the schema above. */
static struct ArrowArray good_array(struct tally *tally) {
    static int8_t const indices[5] = {0, 1, 2, 1, 0};
    static int32_t const ends[6] = {0, 1, 2, 2, 3, 4};
    struct ArrowArray root = foreign_array(tally, 5, 1), list = foreign_array(tally, 5, 2);
    struct ArrowArray kind = foreign_array(tally, 5, 2), pair = foreign_array(tally, 5, 1);
    set_buffer(&list, 1, ends, sizeof ends);
    add_array_child(&list, foreign_texts(tally, 4));
    set_buffer(&kind, 1, indices, sizeof indices);
    set_array_dictionary(&kind, foreign_texts(tally, 3));
    add_array_child(&pair, foreign_numbers(tally, 10));
    add_array_child(&root, foreign_numbers(tally, 5));
    add_array_child(&root, list);
    add_array_child(&root, kind);
    add_array_child(&root, pair);
    return root;
}

static devx_schema_t *import_good_schema(struct tally *tally) {
    struct ArrowSchema source = good_schema(tally);
    devx_schema_t *schema = NULL;
    return devx_schema_import(&source, &schema, &error) == DEVX_OK ? schema : NULL;
}

static void length_negative(struct ArrowArray *a) {
    a->length = -1;
}
static void offset_negative(struct ArrowArray *a) {
    a->offset = -5;
}
static void length_and_offset_overflow(struct ArrowArray *a) {
    a->length = INT64_MAX;
    a->offset = 1;
}
static void child_shorter(struct ArrowArray *a) {
    a->children[NUMBER]->length = 4;
}
static void parent_longer(struct ArrowArray *a) {
    a->offset = 1;
}
static void fixed_list_shorter(struct ArrowArray *a) {
    a->children[PAIR]->children[0]->length = 9;
}
static void fixed_list_overflow(struct ArrowArray *a) {
    a->children[PAIR]->length = INT64_MAX / 2 + 1;
}
static void length_beyond_memory(struct ArrowArray *a) {
    a->children[NUMBER]->length = INT64_MAX / 4 + 1;
}
static void null_count_low(struct ArrowArray *a) {
    a->children[NUMBER]->null_count = -2;
}
static void null_count_high(struct ArrowArray *a) {
    a->children[NUMBER]->null_count = 6;
}
static void null_count_without_bitmap(struct ArrowArray *a) {
    a->children[NUMBER]->null_count = 1;
}
static void n_buffers_negative(struct ArrowArray *a) {
    a->children[NUMBER]->n_buffers = -1;
    a->children[NUMBER]->buffers = forbidden();
}
static void n_buffers_few(struct ArrowArray *a) {
    a->children[NUMBER]->n_buffers = 1;
}
static void n_buffers_many(struct ArrowArray *a) {
    a->children[NUMBER]->n_buffers = 3;
    a->children[NUMBER]->buffers = forbidden();
}
static void n_buffers_huge(struct ArrowArray *a) {
    a->children[NUMBER]->n_buffers = INT64_MAX;
    a->children[NUMBER]->buffers = forbidden();
}
static void root_without_bitmap_place(struct ArrowArray *a) {
    a->n_buffers = 0;
}
static void buffers_null(struct ArrowArray *a) {
    a->children[NUMBER]->buffers = NULL;
}
static const void *nothing[3] = {NULL, NULL, NULL};
static void values_null(struct ArrowArray *a) {
    a->children[NUMBER]->buffers = nothing;
}
static void offsets_null(struct ArrowArray *a) {
    a->children[TEXTS]->children[0]->buffers = nothing;
}
static void n_children_negative(struct ArrowArray *a) {
    a->n_children = -1;
    a->children = forbidden();
}
static void n_children_few(struct ArrowArray *a) {
    a->n_children = 3;
    a->children = forbidden();
}
static void n_children_huge(struct ArrowArray *a) {
    a->n_children = INT64_C(1) << 31;
    a->children = forbidden();
}
static void children_of_a_leaf(struct ArrowArray *a) {
    a->children[NUMBER]->n_children = 1;
    a->children[NUMBER]->children = forbidden();
}
static void children_null(struct ArrowArray *a) {
    a->children = NULL;
}
static void child_released(struct ArrowArray *a) {
    a->children[KIND]->release = NULL;
}
static void dictionary_missing(struct ArrowArray *a) {
    a->children[KIND]->dictionary = NULL;
}
static void dictionary_released(struct ArrowArray *a) {
    a->children[KIND]->dictionary->release = NULL;
}
static struct ArrowArray stray;
static void dictionary_where_there_is_none(struct ArrowArray *a) {
    stray.release = release_foreign_array;
    a->children[NUMBER]->dictionary = &stray;
}

struct bad_array {
    const char *name;
    void (*spoil)(struct ArrowArray *array);
    devx_status status;
    const char *part;
};

static struct bad_array const bad_arrays[] = {
    BAD(length_negative, DEVX_INVALID_LENGTH, "length is -1"),
    BAD(offset_negative, DEVX_INVALID_LENGTH, "offset is -5"),
    BAD(length_and_offset_overflow, DEVX_INVALID_LENGTH, "offset 1 and length 9223372036854775807"),
    BAD(child_shorter, DEVX_INVALID_LENGTH, "children[0].length is 4"),
    BAD(parent_longer, DEVX_INVALID_LENGTH, "children[0].length is 5: struct of length 5 and offset 1 needs more"),
    BAD(fixed_list_shorter, DEVX_INVALID_LENGTH, "array \"pair\": children[0].length is 9"),
    BAD(fixed_list_overflow, DEVX_INVALID_LENGTH, "array \"pair\""),
    BAD(length_beyond_memory, DEVX_INVALID_LENGTH, "array \"number\": buffers[1]"),
    BAD(null_count_low, DEVX_INVALID_NULL_COUNT, "null_count is -2"),
    BAD(null_count_high, DEVX_INVALID_NULL_COUNT, "null_count is 6 with length 5"),
    BAD(null_count_without_bitmap, DEVX_INVALID_NULL_COUNT, "validity buffer is NULL"),
    BAD(n_buffers_negative, DEVX_INVALID_BUFFERS, "n_buffers is -1"),
    BAD(n_buffers_few, DEVX_INVALID_BUFFERS, "n_buffers is 1: int32 has 2"),
    BAD(n_buffers_many, DEVX_INVALID_BUFFERS, "n_buffers is 3: int32 has 2"),
    BAD(n_buffers_huge, DEVX_INVALID_BUFFERS, "n_buffers is 9223372036854775807"),
    BAD(root_without_bitmap_place, DEVX_INVALID_BUFFERS, "n_buffers is 0: struct has 1"),
    BAD(buffers_null, DEVX_INVALID_BUFFERS, "buffers is NULL with n_buffers 2"),
    BAD(values_null, DEVX_INVALID_BUFFERS, "buffers[1] is NULL with length 5"),
    BAD(offsets_null, DEVX_INVALID_BUFFERS, "array \"item\": buffers[1] is NULL"),
    BAD(n_children_negative, DEVX_MISMATCH, "n_children is -1: the schema has 4"),
    BAD(n_children_few, DEVX_MISMATCH, "n_children is 3: the schema has 4"),
    BAD(n_children_huge, DEVX_MISMATCH, "n_children is 2147483648"),
    BAD(children_of_a_leaf, DEVX_MISMATCH, "array \"number\": n_children is 1: the schema has 0"),
    BAD(children_null, DEVX_INVALID_CHILDREN, "children is NULL with n_children 4"),
    BAD(child_released, DEVX_INVALID_CHILDREN, "children[2] is released"),
    BAD(dictionary_missing, DEVX_MISMATCH, "dictionary is NULL, but the schema has one"),
    BAD(dictionary_released, DEVX_INVALID_CHILDREN, "array \"kind\": dictionary is released"),
    BAD(dictionary_where_there_is_none, DEVX_MISMATCH, "there is a dictionary, but the schema has none"),
};
enum { BAD_ARRAYS = sizeof bad_arrays / sizeof *bad_arrays };

/* The structs of an array, to be put back as they were: what is spoiled may be the root or one below it. */
struct array_copy {
    struct ArrowArray root, children[COLUMNS], dictionary, pair_values, text_values;
    struct ArrowArray *places[COLUMNS], *dictionary_place, *pair_place, *text_place;
};

static void keep_array(struct array_copy *copy, const struct ArrowArray *array) {
    copy->root = *array;
    for (int i = 0; i < COLUMNS; ++i) {
        copy->places[i] = array->children[i];
        copy->children[i] = *array->children[i];
    }
    copy->dictionary_place = array->children[KIND]->dictionary;
    copy->dictionary = *copy->dictionary_place;
    copy->pair_place = array->children[PAIR]->children[0];
    copy->pair_values = *copy->pair_place;
    copy->text_place = array->children[TEXTS]->children[0];
    copy->text_values = *copy->text_place;
}

static void restore_array(const struct array_copy *copy, struct ArrowArray *array) {
    *array = copy->root;
    for (int i = 0; i < COLUMNS; ++i) {
        *copy->places[i] = copy->children[i];
    }
    *copy->dictionary_place = copy->dictionary;
    *copy->pair_place = copy->pair_values;
    *copy->text_place = copy->text_values;
}

TEST(bad_arrays_are_refused) {
    for (int i = 0; i < BAD_ARRAYS; ++i) {
        struct bad_array const *bad = &bad_arrays[i];
        struct tally schema_tally = {0}, tally = {0};
        struct array_copy copy;
        devx_schema_t *schema = import_good_schema(&schema_tally);
        CHECK_MADE(schema);
        struct ArrowArray source = good_array(&tally);
        keep_array(&copy, &source);
        bad->spoil(&source);
        struct ArrowArray const before = source;
        struct ArrowDeviceArray device, device_before;
        memset(&device, 0, sizeof device); /* the bytes between the members are compared too */
        device.array = source;
        device.device_id = -1;
        device.device_type = ARROW_DEVICE_CPU;
        memcpy(&device_before, &device, sizeof device);
        devx_batch_t *out = UNWRITTEN;
        CHECK_CALL(check_refusal(bad->name, devx_batch_import(&source, schema, &out, &error), bad->status, bad->part));
        CHECK_CALL(check_refusal(bad->name, devx_batch_import_device(&device, schema, &out, &error), bad->status,
                                 bad->part));
        CHECK_MSG(memcmp(&source, &before, sizeof before) == 0, "%s: the source was changed", bad->name);
        CHECK_MSG(memcmp(&device, &device_before, sizeof device) == 0, "%s: the device array was changed", bad->name);
        CHECK_PTR(out, UNWRITTEN);
        CHECK_INT(tally.releases, 0);
        CHECK_INT(tally.live, GOOD_NODES);
        CHECK_INT(devx_ledger_outstanding(), 1); /* the schema */
        restore_array(&copy, &source);

        /* Nothing of it was lost: put right, it is taken. */
        CHECK_OK(devx_batch_import(&source, schema, &out, &error));
        devx_batch_release(&out);
        CHECK_INT(tally.releases, GOOD_NODES);
        devx_schema_release(&schema);
        CHECK_INT(schema_tally.live, 0);
    }
    CHECK_NOTHING_OUTSTANDING();
}

TEST(null_children_of_arrays_are_refused) {
    struct tally schema_tally = {0}, tally = {0};
    devx_schema_t *schema = import_good_schema(&schema_tally);
    CHECK_MADE(schema);
    struct ArrowArray source = good_array(&tally), *kept = source.children[PAIR];
    source.children[PAIR] = NULL;
    devx_batch_t *out = UNWRITTEN;
    CHECK_REFUSED(devx_batch_import(&source, schema, &out, &error), DEVX_INVALID_CHILDREN, "children[3] is NULL");
    source.children[PAIR] = kept;
    CHECK_PTR(out, UNWRITTEN);
    source.release(&source);
    devx_schema_release(&schema);
    CHECK_INT(tally.live, 0);
}

TEST(released_and_missing_arrays_are_refused) {
    struct tally tally = {0};
    devx_schema_t *schema = import_good_schema(&tally);
    CHECK_MADE(schema);
    struct ArrowArray released, good = foreign_numbers(&tally, 1);
    struct ArrowDeviceArray device;
    memset(&released, 0xff, sizeof released);
    released.release = NULL;
    memset(&device, 0xff, sizeof device);
    device.array = released;
    devx_batch_t *out = UNWRITTEN;
    CHECK_REFUSED(devx_batch_import(NULL, schema, &out, &error), DEVX_NULL_ARGUMENT, "array is NULL");
    CHECK_REFUSED(devx_batch_import_device(NULL, schema, &out, &error), DEVX_NULL_ARGUMENT, "array is NULL");
    CHECK_REFUSED(devx_batch_import(&released, schema, &out, &error), DEVX_RELEASED, "release is NULL");
    CHECK_REFUSED(devx_batch_import_device(&device, schema, &out, &error), DEVX_RELEASED, "release is NULL");
    CHECK_REFUSED(devx_batch_import(&good, NULL, &out, &error), DEVX_NULL_ARGUMENT, "schema is NULL");
    CHECK_REFUSED(devx_batch_import(&good, schema, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK_PTR(out, UNWRITTEN);
    CHECK(good.release != NULL);
    good.release(&good);
    devx_schema_release(&schema);
    CHECK_NOTHING_OUTSTANDING();
}

/* A width that takes 2^31 - 1 bytes, and so many of them that their number of bytes is beyond 2^63. */
TEST(wide_binaries_are_counted_in_full) {
    struct tally tally = {0};
    struct ArrowSchema described = foreign_schema(&tally, "w:2147483647", "x");
    struct ArrowArray source = foreign_array(&tally, INT64_C(1) << 33, 2);
    set_buffer(&source, 1, "x", 1);
    devx_schema_t *schema = NULL;
    devx_batch_t *out = UNWRITTEN;
    CHECK_OK(devx_schema_import(&described, &schema, &error));
    CHECK_REFUSED(devx_batch_import(&source, schema, &out, &error), DEVX_INVALID_LENGTH, "buffers[1]");
    CHECK_PTR(out, UNWRITTEN);
    source.release(&source);
    devx_schema_release(&schema);
}

TEST(bad_devices_are_refused) {
    static struct {
        int32_t type;
        int64_t id;
        const char *part;
    } const all[] = {
        {0, -1, "device_type is 0"},
        {99, -1, "device_type is 99"},
        {-1, 0, "device_type is -1"},
        {INT32_MAX, 0, "device_type is 2147483647"},
        {ARROW_DEVICE_CUDA, 0, "cuda"},
        {ARROW_DEVICE_CUDA_HOST, 0, "cuda_host"},
        {ARROW_DEVICE_ROCM, 0, "rocm"},
        {ARROW_DEVICE_CPU, 1, "device_id is 1"},
        {ARROW_DEVICE_CPU, -2, "device_id is -2"},
        {ARROW_DEVICE_CPU, INT64_MAX, "device_id is 9223372036854775807"},
    };
    struct tally tally = {0};
    struct ArrowSchema described = foreign_schema(&tally, "i", "x");
    devx_schema_t *schema = NULL;
    CHECK_OK(devx_schema_import(&described, &schema, &error));
    struct ArrowDeviceArray source;
    memset(&source, 0, sizeof source);
    source.array = foreign_numbers(&tally, 3);
    devx_batch_t *out = UNWRITTEN;
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        source.device_type = all[i].type;
        source.device_id = all[i].id;
        struct ArrowDeviceArray before;
        memcpy(&before, &source, sizeof before);
        CHECK_REFUSED(devx_batch_import_device(&source, schema, &out, &error), DEVX_DEVICE, all[i].part);
        CHECK(memcmp(&source, &before, sizeof before) == 0);
    }
    source.device_type = ARROW_DEVICE_CPU;
    source.device_id = -1;
    source.sync_event = forbidden();
    CHECK_REFUSED(devx_batch_import_device(&source, schema, &out, &error), DEVX_DEVICE, "sync_event is 0x");
    CHECK_PTR(out, UNWRITTEN);
    CHECK_INT(tally.live, 2);
    source.sync_event = NULL;
    CHECK_OK(devx_batch_import_device(&source, schema, &out, &error));
    devx_batch_release(&out);
    devx_schema_release(&schema);
    CHECK_INT(tally.live, 0);
}

/* --- Arrow: what is wrong with a description of a batch --- */

TEST(bad_lists_of_nodes_are_refused) {
    static int32_t const values[4] = {0, 1, 2, 3};
    const void *const buffers[] = {NULL, values};
    devx_field const fields[] = {{"+s", "", NULL, 0, 1, 0}, {"i", "x", NULL, 0, 0, 0}};
    devx_node nodes[] = {{4, 0, 0, buffers, 1}, {4, 0, 0, buffers, 2}, {4, 0, 0, buffers, 2}};
    struct tally tally = {0};
    devx_owner const owner = counting_owner(&tally);
    devx_schema_t *schema = NULL;
    devx_batch_t *out = UNWRITTEN;
    CHECK_OK(devx_schema_create(fields, 2, &schema, &error));
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 1, &owner, &out, &error), DEVX_MISMATCH, "there are 1 nodes");
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 3, &owner, &out, &error), DEVX_MISMATCH, "there are 3 nodes");
    CHECK_REFUSED(devx_batch_create(schema, cpu, NULL, 2, &owner, &out, &error), DEVX_NULL_ARGUMENT, "nodes is NULL");
    CHECK_REFUSED(devx_batch_create(NULL, cpu, nodes, 2, &owner, &out, &error), DEVX_NULL_ARGUMENT, "schema is NULL");
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK_REFUSED(devx_batch_create(schema, (DLDevice){kDLCUDA, 0}, nodes, 2, &owner, &out, &error), DEVX_DEVICE,
                  "cuda");
    nodes[1].n_buffers = -1;
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error), DEVX_INVALID_BUFFERS,
                  "n_buffers is -1");
    nodes[1].n_buffers = 1;
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error), DEVX_INVALID_BUFFERS,
                  "n_buffers is 1: int32 has 2");
    nodes[1].n_buffers = INT64_MAX;
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error), DEVX_INVALID_BUFFERS,
                  "n_buffers is 9223372036854775807");
    nodes[1].n_buffers = 2;
    nodes[1].buffers = NULL;
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error), DEVX_NULL_ARGUMENT,
                  "nodes[1]: buffers is NULL");
    nodes[1].buffers = buffers;
    nodes[1].length = 3;
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error), DEVX_INVALID_LENGTH,
                  "children[0].length is 3");
    nodes[1].length = -4;
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error), DEVX_INVALID_LENGTH, "is -4");
    nodes[1].length = 4;
    nodes[1].null_count = 9;
    CHECK_REFUSED(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error), DEVX_INVALID_NULL_COUNT,
                  "null_count is 9");
    nodes[1].null_count = 0;
    CHECK_PTR(out, UNWRITTEN);
    CHECK_INT(tally.releases, 0); /* the owner is still the caller's */
    CHECK_NOTHING_OUTSTANDING();
    CHECK_OK(devx_batch_create(schema, cpu, nodes, 2, &owner, &out, &error));
    devx_batch_release(&out);
    CHECK_INT(tally.releases, 1);
    devx_schema_release(&schema);
}

/* --- Arrow: values that lie --- */

/* Nothing of the data is read at import, so this is found when a row is looked at. */
TEST(values_that_lie_are_found_when_they_are_read) {
    static int32_t const backwards[] = {0, 3, 1, 2, 100};
    static int32_t const negative[] = {-5, 1};
    static int8_t const indices[] = {0, 5, -1};
    static _Alignas(8) unsigned char const memory[32];
    struct tally tally = {0};
    devx_column column;
    devx_batch_t *batch = NULL;
    devx_schema_t *schema = NULL;
    const char *bytes = UNWRITTEN;
    size_t length = 77;
    int64_t index = 77;
    const void *values = UNWRITTEN;

    devx_field fields[] = {{"u", "x", NULL, 0, 0, 0}, {"u", "", NULL, 0, 0, 0}};
    const void *text_buffers[] = {NULL, backwards, "abc"};
    devx_node nodes[] = {{3, 0, 0, text_buffers, 3}, {2, 0, 0, text_buffers, 3}};
    CHECK_OK(devx_schema_create(fields, 1, &schema, &error));
    CHECK_OK(devx_batch_create(schema, cpu, nodes, 1, NULL, &batch, &error));
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_REFUSED(devx_column_bytes(batch, &column, 1, &bytes, &length, &error), DEVX_INVALID_BUFFERS, "are 3 and 1");
    devx_batch_release(&batch);
    text_buffers[1] = negative;
    nodes[0].length = 1;
    CHECK_OK(devx_batch_create(schema, cpu, nodes, 1, NULL, &batch, &error));
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_REFUSED(devx_column_bytes(batch, &column, 0, &bytes, &length, &error), DEVX_INVALID_BUFFERS, "are -5 and 1");
    devx_batch_release(&batch);
    text_buffers[1] = backwards;
    text_buffers[2] = NULL;
    CHECK_OK(devx_batch_create(schema, cpu, nodes, 1, NULL, &batch, &error));
    CHECK_REFUSED(devx_column_bytes(batch, &column, 0, &bytes, &length, &error), DEVX_INVALID_BUFFERS,
                  "buffers[2] is NULL");
    CHECK_PTR(bytes, UNWRITTEN);
    CHECK_INT(length, 77);
    devx_batch_release(&batch);
    devx_schema_release(&schema);

    /* A list beyond its values. */
    const void *list_buffers[] = {NULL, backwards}, *number_buffers[] = {NULL, memory};
    devx_field const list[] = {{"+l", "x", NULL, 0, 1, 0}, {"i", "item", NULL, 0, 0, 0}};
    devx_node const list_nodes[] = {{4, 0, 0, list_buffers, 2}, {4, 0, 0, number_buffers, 2}};
    devx_column row;
    memset(&row, 0x5a, sizeof row);
    CHECK_OK(devx_schema_create(list, 2, &schema, &error));
    CHECK_OK(devx_batch_create(schema, cpu, list_nodes, 2, NULL, &batch, &error));
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_REFUSED(devx_column_list(batch, &column, 1, &row, &error), DEVX_INVALID_BUFFERS, "are 3 and 1");
    CHECK_REFUSED(devx_column_list(batch, &column, 3, &row, &error), DEVX_INVALID_BUFFERS, "2..100");
    CHECK_INT(row.node, INT64_C(0x5a5a5a5a5a5a5a5a));
    devx_batch_release(&batch);
    devx_schema_release(&schema);

    /* Indices outside the dictionary. */
    const void *index_buffers[] = {NULL, indices};
    const void *good_texts[] = {NULL, backwards, "abc"};
    fields[0].format = "c";
    fields[0].has_dictionary = 1;
    nodes[0] = (devx_node){3, 0, 0, index_buffers, 2};
    nodes[1] = (devx_node){2, 0, 0, good_texts, 3};
    CHECK_OK(devx_schema_create(fields, 2, &schema, &error));
    CHECK_OK(devx_batch_create(schema, cpu, nodes, 2, NULL, &batch, &error));
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_REFUSED(devx_column_dictionary_index(batch, &column, 1, &index, &error), DEVX_OUT_OF_RANGE,
                  "index 5 of a dictionary of 2");
    CHECK_REFUSED(devx_column_dictionary_index(batch, &column, 2, &index, &error), DEVX_OUT_OF_RANGE, "index -1");
    CHECK_INT(index, 77);
    devx_batch_release(&batch);
    devx_schema_release(&schema);

    /* A buffer that is not aligned is taken, for those who copy; as values of a type it is not given out. */
    struct ArrowSchema described = foreign_schema(&tally, "i", "x");
    struct ArrowArray array = foreign_numbers(&tally, 3);
    const void *const aligned = array.buffers[1];
    array.buffers[1] = memory + 1;
    CHECK_OK(devx_schema_import(&described, &schema, &error));
    CHECK_OK(devx_batch_import(&array, schema, &batch, &error));
    CHECK_OK(devx_batch_root(batch, &column, &error));
    CHECK_REFUSED(devx_column_values(batch, &column, int32, &values, &error), DEVX_INVALID_BUFFERS,
                  "not aligned to 4 bytes");
    CHECK_PTR(values, UNWRITTEN);
    devx_tensor_t *tensor = UNWRITTEN;
    CHECK_REFUSED(devx_column_to_tensor(batch, &column, DEVX_COPY_NEVER, &tensor, &error), DEVX_COPY_REQUIRED,
                  "not aligned to 4 bytes");
    CHECK_PTR(tensor, UNWRITTEN);
    DLTensor copied;
    CHECK_OK(devx_column_to_tensor(batch, &column, DEVX_COPY_IF_NEEDED, &tensor, &error));
    CHECK_OK(devx_tensor_borrow(tensor, &copied, NULL, &error));
    CHECK_INT(memcmp(copied.data, memory + 1, 3 * sizeof(int32_t)), 0);
    devx_tensor_release(&tensor);
    ((const void **)(uintptr_t)column.buffers)[1] = aligned; /* for the producer to free */
    devx_batch_release(&batch);
    devx_schema_release(&schema);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(rows_and_columns_out_of_range_are_refused) {
    struct tally tally = {0};
    struct ArrowSchema described;
    struct ArrowArray array;
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = NULL;
    foreign_batch(&tally, 3, &described, &array);
    CHECK_OK(devx_schema_import(&described, &schema, &error));
    CHECK_OK(devx_batch_import(&array, schema, &batch, &error));

    devx_column number, text, out;
    const char *bytes = UNWRITTEN;
    size_t length = 77;
    int32_t valid = 77;
    int64_t count = 77;
    memset(&out, 0x5a, sizeof out);
    devx_column const untouched = out;
    CHECK_OK(devx_batch_column(batch, 0, &number, &error));
    CHECK_OK(devx_batch_column(batch, 1, &text, &error));
    CHECK_REFUSED(devx_batch_column(batch, 2, &out, &error), DEVX_OUT_OF_RANGE, "index is 2");
    CHECK_REFUSED(devx_batch_column(batch, -1, &out, &error), DEVX_OUT_OF_RANGE, "index is -1");
    CHECK_REFUSED(devx_batch_columns(batch, 2, 1, &out, &error), DEVX_OUT_OF_RANGE,
                  "first is 2 and count is 1: the batch has 2 columns");
    CHECK_REFUSED(devx_batch_columns(batch, 0, 3, &out, &error), DEVX_OUT_OF_RANGE, "first is 0 and count is 3");
    CHECK_REFUSED(devx_batch_columns(batch, -1, 1, &out, &error), DEVX_OUT_OF_RANGE, "first is -1");
    CHECK_REFUSED(devx_batch_columns(batch, INT64_MAX, 1, &out, &error), DEVX_OUT_OF_RANGE, "first is 9223372036854775807");
    CHECK_REFUSED(devx_batch_columns(batch, 1, SIZE_MAX, &out, &error), DEVX_INVALID_ARGUMENT, "out has");
    CHECK_REFUSED(devx_batch_column_named(batch, "nobody", &out, &error), DEVX_OUT_OF_RANGE, "nobody");
    CHECK_REFUSED(devx_batch_column_named(batch, NULL, &out, &error), DEVX_NULL_ARGUMENT, "name is NULL");
    CHECK_REFUSED(devx_column_child(batch, &number, 0, &out, &error), DEVX_OUT_OF_RANGE, "index is 0");
    CHECK_REFUSED(devx_column_dictionary(batch, &number, &out, &error), DEVX_MISMATCH, "no dictionary");
    CHECK_REFUSED(devx_column_dictionary_index(batch, &number, 0, &count, &error), DEVX_MISMATCH, "no dictionary");
    CHECK_REFUSED(devx_column_list(batch, &number, 0, &out, &error), DEVX_MISMATCH, "not a list");
    CHECK_REFUSED(devx_column_is_valid(batch, &number, 3, &valid, &error), DEVX_OUT_OF_RANGE, "row is 3");
    CHECK_REFUSED(devx_column_is_valid(batch, &number, -1, &valid, &error), DEVX_OUT_OF_RANGE, "row is -1");
    CHECK_REFUSED(devx_column_bool(batch, &number, 0, &valid, &error), DEVX_MISMATCH, "not bool");
    CHECK_REFUSED(devx_column_bytes(batch, &text, 3, &bytes, &length, &error), DEVX_OUT_OF_RANGE, "row is 3");
    CHECK_REFUSED(devx_column_bytes(batch, &text, INT64_MIN, &bytes, &length, &error), DEVX_OUT_OF_RANGE, "row is -");
    CHECK_REFUSED(devx_column_bytes(batch, &number, 0, &bytes, &length, &error), DEVX_MISMATCH, "int32");

    /* A record that is not of this batch. */
    devx_column wrong = number;
    wrong.node = 99;
    CHECK_REFUSED(devx_column_is_valid(batch, &wrong, 0, &valid, &error), DEVX_OUT_OF_RANGE, "node is 99");
    wrong.node = -1;
    CHECK_REFUSED(devx_column_null_count(batch, &wrong, &count, &error), DEVX_OUT_OF_RANGE, "node is -1");
    wrong = number;
    wrong.length = 4;
    CHECK_REFUSED(devx_column_null_count(batch, &wrong, &count, &error), DEVX_OUT_OF_RANGE, "length 4");
    wrong.length = INT64_MAX;
    wrong.offset = 1;
    CHECK_REFUSED(devx_column_null_count(batch, &wrong, &count, &error), DEVX_OUT_OF_RANGE, "9223372036854775807");
    wrong = number;
    wrong.offset = -1;
    CHECK_REFUSED(devx_column_null_count(batch, &wrong, &count, &error), DEVX_OUT_OF_RANGE, "offset -1");
    wrong = number;
    wrong.length = -1;
    CHECK_REFUSED(devx_column_null_count(batch, &wrong, &count, &error), DEVX_OUT_OF_RANGE, "length -1");

    CHECK(memcmp(&out, &untouched, sizeof out) == 0);
    CHECK_PTR(bytes, UNWRITTEN);
    CHECK_INT(length, 77);
    CHECK_INT(valid, 77);
    CHECK_INT(count, 77);
    devx_batch_release(&batch);
    devx_schema_release(&schema);
    CHECK_INT(tally.live, 0);
}

/* --- NULL, everywhere --- */

/* Each call with one pointer that it needs missing. */
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
    const void *values = UNWRITTEN;
    const char *bytes = UNWRITTEN;
    size_t length = 77;
    int64_t number = 77;
    int32_t flag = 77;
    foreign_batch(&tally, 3, &described, &array);
    CHECK_OK(devx_schema_import(&described, &schema, &error));
    CHECK_OK(devx_batch_import(&array, schema, &batch, &error));
    CHECK_OK(devx_tensor_import(foreign_tensor(&tally, 2, shape_2x3, NULL), &tensor, &error));
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
    char name[2000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    struct ArrowSchema one = foreign_schema(&tally, "?", name);
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
