/* The CUDA Array Interface as a C struct. Without a driver, what needs one is refused and nothing is taken. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <time.h>

#include "test_support.h"

/* A producer as somebody else would write it: one block that its release frees. */
struct producer {
    int64_t shape[1];
    devx_tensor_t *memory;
    struct tally *tally;
};

static void give_up(devx_cuda_array *array) {
    struct producer *producer = array->private_data;
    array->release = NULL;
    producer->tally->releases += 1;
    devx_tensor_release(&producer->memory);
    free(producer);
}

/* Eight int32 on device 0, or NULL data without a driver. */
static devx_cuda_array produce(struct tally *tally) {
    struct producer *producer = calloc(1, sizeof *producer);
    devx_cuda_array array = {3, 0, NULL, 1, NULL, NULL, "<i4", NULL, NULL, DEVX_CUDA_ARRAY_NO_STREAM, give_up, NULL};
    DLTensor seen = {0};
    producer->shape[0] = 8;
    producer->tally = tally;
    if (devx_tensor_allocate((DLDevice){kDLCUDA, 0}, (DLDataType){kDLInt, 32, 1}, producer->shape, 1, -1,
                             &producer->memory, &error) == DEVX_OK) {
        devx_tensor_borrow(producer->memory, &seen, NULL, &error);
    }
    array.data = seen.data;
    array.shape = producer->shape;
    array.private_data = producer;
    return array;
}

/* Freeing device memory may wait for the device, so it is left to a thread of the library. */
static void settle(void) {
    struct timespec const moment = {0, 1000 * 1000};
    for (int i = 0; devx_releases_waiting() > 0 && i < 20 * 1000; ++i) {
        nanosleep(&moment, NULL);
    }
    CHECK_INT(devx_releases_waiting(), 0);
}

TEST(an_array_comes_in_and_goes_out) {
    struct tally tally = {0};
    devx_cuda_array array = produce(&tally), out;
    devx_cuda_array_request const request = {3, DEVX_NO_STREAM_LEGACY_DEFAULT, 1};
    devx_tensor_t *tensor = NULL, *mask = UNWRITTEN;
    DLTensor seen;
    if (array.data == NULL) {
        CHECK(devx_cuda_array_import(&array, NULL, &tensor, NULL, &error) != DEVX_OK);
        CHECK(array.release == give_up);
        devx_cuda_array_release(&array);
        CHECK_INT(tally.releases, 1);
        SKIP("there is no CUDA driver");
    }
    CHECK_OK(devx_cuda_array_import(&array, &request, &tensor, &mask, &error));
    CHECK(array.release == NULL);
    CHECK(mask == NULL);
    CHECK_OK(devx_tensor_borrow(tensor, &seen, NULL, &error));
    CHECK_PTR(seen.data, array.data);
    CHECK_INT(seen.device.device_type, kDLCUDA);
    CHECK_OK(devx_tensor_export_share_cuda_array(tensor, NULL, &out, &error));
    CHECK_STR(out.typestr, "<i4");
    CHECK_INT(out.stream, DEVX_CUDA_ARRAY_NO_STREAM);
    devx_cuda_array_release(&out);
    CHECK(out.release == NULL);
    CHECK_OK(devx_tensor_export_move_cuda_array(&tensor, &request, &out, &error));
    CHECK(tensor == NULL);
    CHECK_INT(out.stream, 1);
    CHECK_INT(tally.releases, 0);
    devx_cuda_array_release(&out);
    /* After what the consumer queued on that stream. */
    CHECK_CALL(settle());
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(what_is_wrong_is_named_and_nothing_is_taken) {
    struct tally tally = {0};
    devx_cuda_array array = produce(&tally);
    devx_cuda_array_request request = {3, 7, -1};
    devx_tensor_t *tensor = NULL;
    CHECK_REFUSED(devx_cuda_array_import(NULL, NULL, &tensor, NULL, &error), DEVX_NULL_ARGUMENT, "array is NULL");
    CHECK_REFUSED(devx_cuda_array_import(&array, NULL, NULL, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK_REFUSED(devx_cuda_array_import(&array, &request, &tensor, NULL, &error), DEVX_INVALID_ARGUMENT, "no_stream is 7");
    array.version = 4;
    CHECK_REFUSED(devx_cuda_array_import(&array, NULL, &tensor, NULL, &error), DEVX_VERSION, "version is 4");
    array.version = 3;
    array.typestr = ">i4";
    CHECK_REFUSED(devx_cuda_array_import(&array, NULL, &tensor, NULL, &error), DEVX_UNSUPPORTED, "\">i4\"");
    CHECK(tensor == NULL);
    CHECK_INT(tally.releases, 0);
    devx_cuda_array_release(&array);
    devx_cuda_array_release(&array);
    devx_cuda_array_release(NULL);
    CHECK_INT(tally.releases, 1);
    CHECK_REFUSED(devx_cuda_array_import(&array, NULL, &tensor, NULL, &error), DEVX_RELEASED, "array.release is NULL");
}

CHECK_MAIN()
