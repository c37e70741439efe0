/* The CUDA Array Interface as a C struct. Without a driver, calls that need one are refused and take nothing. */
#include "cuda_producer.h"

TEST(an_array_comes_in_and_goes_out) {
    struct tally tally = {0};
    devx_cuda_array array = produce(&tally), out;
    devx_cuda_array_request const request = {3, DEVX_NO_STREAM_LEGACY_DEFAULT, 1};
    devx_tensor_t *tensor = NULL, *mask = UNWRITTEN;
    DLTensor seen;
    if (!has_driver()) {
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
    devx_cuda_array_request const older = {2, DEVX_NO_STREAM_LEGACY_DEFAULT, 1};
    CHECK_OK(devx_tensor_export_share_cuda_array(tensor, &older, &out, &error));
    CHECK_INT(out.version, 2);
    CHECK_INT(tally.releases, 0);
    devx_cuda_array_release(&out);
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

struct holder {
    devx_cuda_array array;
};

static void free_holder(devx_cuda_array *array) {
    array->release = NULL;
    free(array->private_data);
}

TEST(what_a_release_ends_may_hold_the_array) {
    struct holder *const holder = calloc(1, sizeof *holder);
    CHECK(holder != NULL);
    holder->array.private_data = holder;
    holder->array.release = free_holder;
    devx_cuda_array_release(&holder->array);
}

CHECK_MAIN()
