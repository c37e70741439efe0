/* Devices, streams, and tensors in the order of streams. scripts/test-c.sh runs this twice: as it is, where there may be no
 * driver, and on the simulated driver, which reports every missing wait and every early release as a finding that makes the
 * program fail. Foreign code here (a consumer's copy, a producer's memory) calls the driver itself.
 */
#include "streams.h"

/* --- without a driver --- */

#define CHECK_NO_DRIVER(call) CHECK_REFUSED(call, DEVX_DEVICE, "there is no CUDA driver")

TEST(without_a_driver_cuda_is_refused_and_says_so) {
    NEEDS_NO_DRIVER();
    struct tally tally = {0};
    int32_t count = -5;
    int64_t stream = -5;
    devx_device_info info;
    devx_tensor_t *tensor = (devx_tensor_t *)UNWRITTEN;
    CHECK_NO_DRIVER(devx_device_count(kDLCUDA, &count, &error));
    CHECK_INT(count, -5);
    CHECK_NO_DRIVER(devx_device_get_info(gpu, &info, &error));
    CHECK_NO_DRIVER(devx_stream_create(gpu, &stream, &error));
    CHECK_NO_DRIVER(devx_stream_destroy(gpu, 1, &error));
    CHECK_NO_DRIVER(devx_stream_close(gpu, 1, &error));
    CHECK_NO_DRIVER(devx_stream_synchronize(gpu, 1, &error));
    CHECK_INT(stream, -5);
    CHECK_NO_DRIVER(devx_tensor_allocate(gpu, float64, shape_of_six, 2, -1, &tensor, &error));
    CHECK_NO_DRIVER(devx_tensor_allocate(gpu, float64, shape_of_six, 2, 1, &tensor, &error));
    CHECK_NO_DRIVER(devx_tensor_allocate((DLDevice){kDLCUDAHost, 0}, float64, shape_of_six, 2, -1, &tensor, &error));
    CHECK_NO_DRIVER(devx_tensor_allocate((DLDevice){kDLCUDAManaged, 0}, float64, shape_of_six, 2, -1, &tensor, &error));

    struct DLManagedTensorVersioned *managed = foreign_tensor(&tally, 2, shape_of_six, NULL);
    managed->dl_tensor.device = gpu;
    CHECK_NO_DRIVER(devx_tensor_import(managed, &tensor, &error));
    CHECK_NO_DRIVER(devx_tensor_import_on(managed, 1, &tensor, &error));
    CHECK_PTR(tensor, UNWRITTEN);
    CHECK_INT(tally.releases, 0);

    managed->dl_tensor.device = cpu;
    CHECK_OK(devx_tensor_import(managed, &tensor, &error));
    devx_tensor_t *copy = (devx_tensor_t *)UNWRITTEN;
    CHECK_NO_DRIVER(devx_tensor_copy_to(tensor, gpu, 1, &copy, &error));
    CHECK_PTR(copy, UNWRITTEN);
    devx_tensor_release(&tensor);
    CHECK_INT(tally.releases, 1);

    struct ArrowSchema schema;
    struct ArrowDeviceArray array;
    devx_batch_t *batch = (devx_batch_t *)UNWRITTEN;
    memset(&array, 0, sizeof array);
    foreign_batch(&tally, 3, &schema, &array.array);
    array.device_type = kDLCUDA;
    CHECK_NO_DRIVER(devx_batch_import_pair_device(&array, &schema, &batch, &error));
    CHECK_PTR(batch, UNWRITTEN);
    array.device_type = kDLCPU;
    CHECK_OK(devx_batch_import_pair_device(&array, &schema, &batch, &error));
    devx_batch_t *moved = (devx_batch_t *)UNWRITTEN;
    CHECK_NO_DRIVER(devx_batch_copy_to(batch, gpu, 1, &moved, &error));
    CHECK_PTR(moved, UNWRITTEN);
    devx_batch_release(&batch);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

/* --- host memory: the same with a driver and without --- */

TEST(host_memory_has_a_device_and_no_streams) {
    int32_t count = 0;
    int64_t stream = 0;
    devx_device_info info;
    CHECK_OK(devx_device_count(kDLCPU, &count, &error));
    CHECK_INT(count, 1);
    CHECK_OK(devx_device_get_info(cpu, &info, &error));
    CHECK_STR(info.name, "host memory");
    CHECK_INT(info.total_bytes, -1);
    CHECK_INT(info.driver_version, 0);
    CHECK_REFUSED(devx_device_count(77, &count, &error), DEVX_DEVICE, "device_type is");
    CHECK_REFUSED(devx_device_count(kDLCPU, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK_REFUSED(devx_device_get_info(cpu, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK_REFUSED(devx_stream_create(cpu, &stream, &error), DEVX_DEVICE, "no streams");
    CHECK_REFUSED(devx_stream_synchronize(cpu, 1, &error), DEVX_DEVICE, "which has no streams");
    CHECK_INT(devx_releases_lost(), 0);
}

TEST(host_memory_is_allocated_and_imported_without_a_stream) {
    devx_tensor_t *tensor = NULL, *again = NULL, *refused = (devx_tensor_t *)UNWRITTEN;
    struct DLManagedTensorVersioned *exported = NULL;
    DLTensor view, view_again;
    CHECK_OK(devx_tensor_allocate(cpu, float64, shape_of_six, 2, -1, &tensor, &error));
    CHECK_OK(devx_tensor_borrow(tensor, &view, NULL, &error));
    memcpy(view.data, six, sizeof six);
    CHECK_OK(devx_tensor_export_share(tensor, NULL, &exported, &error));
    CHECK_REFUSED(devx_tensor_import_on(exported, 1, &refused, &error), DEVX_INVALID_STREAM, "the cpu takes -1");
    CHECK_OK(devx_tensor_import_on(exported, -1, &again, &error));
    CHECK_OK(devx_tensor_borrow(again, &view_again, NULL, &error));
    CHECK_PTR(view_again.data, view.data);
    CHECK_OK(devx_tensor_check_pointers(again, &error));
    CHECK_REFUSED(devx_tensor_used_on(again, 1, &error), DEVX_DEVICE, "which has no streams");
    CHECK_REFUSED(devx_tensor_wait(again, 1, &error), DEVX_DEVICE, "which has no streams");
    CHECK_REFUSED(devx_tensor_produced_on(again, 1, &error), DEVX_DEVICE, "which has no streams");
    CHECK_PTR(refused, UNWRITTEN);
    devx_tensor_release(&tensor);
    devx_tensor_release(&again);
    CHECK_NOTHING_OUTSTANDING();
}

/* One call for a copy from anywhere to anywhere: with a driver in the order of the stream, without one at once. */
TEST(within_host_memory_a_copy_takes_any_stream) {
    struct tally tally = {0};
    struct ArrowSchema schema;
    struct ArrowArray array;
    devx_tensor_t *tensor = NULL, *copy = NULL;
    devx_batch_t *batch = NULL, *batch_copy = (devx_batch_t *)UNWRITTEN;
    devx_batch_info info;
    double values[SIX] = {0};
    DLTensor view;
    CHECK_OK(devx_tensor_allocate(cpu, float64, shape_of_six, 2, -1, &tensor, &error));
    CHECK_OK(devx_tensor_write(tensor, six, sizeof six, 1, &error));
    CHECK_OK(devx_tensor_copy_to(tensor, cpu, 2, &copy, &error));
    CHECK_OK(devx_tensor_borrow(copy, &view, NULL, &error));
    CHECK(memcmp(view.data, six, sizeof six) == 0);
    CHECK_OK(devx_tensor_read(copy, values, sizeof values, 2, &error));
    CHECK(memcmp(values, six, sizeof six) == 0);
    foreign_batch(&tally, 3, &schema, &array);
    CHECK_OK(devx_batch_import_pair(&array, &schema, &batch, &error));
    CHECK_REFUSED(devx_batch_copy_to(batch, cpu, 0, &batch_copy, &error), DEVX_INVALID_STREAM, "stream is 0");
    CHECK_PTR(batch_copy, UNWRITTEN);
    CHECK_OK(devx_batch_copy_to(batch, cpu, 1, &batch_copy, &error));
    CHECK_OK(devx_batch_get_info(batch_copy, &info, &error));
    CHECK_INT(info.length, 3);
    devx_tensor_release(&tensor);
    devx_tensor_release(&copy);
    devx_batch_release(&batch);
    devx_batch_release(&batch_copy);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(what_is_missing_is_named) {
    devx_tensor_t *tensor = NULL;
    int64_t const negative[] = {2, -3};
    CHECK_REFUSED(devx_stream_create(cpu, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK_REFUSED(devx_tensor_allocate(cpu, float64, NULL, 2, -1, &tensor, &error), DEVX_NULL_ARGUMENT, "shape");
    CHECK_REFUSED(devx_tensor_allocate(cpu, float64, shape_of_six, 2, -1, NULL, &error), DEVX_NULL_ARGUMENT, "out");
    CHECK_REFUSED(devx_tensor_allocate(cpu, float64, negative, 2, -1, &tensor, &error), DEVX_INVALID_SHAPE,
                  "shape[1] is -3");
    CHECK_REFUSED(devx_tensor_import_on(NULL, -1, &tensor, &error), DEVX_NULL_ARGUMENT, "tensor is NULL");
    CHECK_REFUSED(devx_tensor_copy_to(NULL, cpu, 1, &tensor, &error), DEVX_NULL_ARGUMENT, "tensor is NULL");
    CHECK_REFUSED(devx_tensor_read(NULL, NULL, 0, 1, &error), DEVX_NULL_ARGUMENT, "tensor is NULL");
    CHECK_REFUSED(devx_tensor_write(NULL, NULL, 0, 1, &error), DEVX_NULL_ARGUMENT, "tensor is NULL");
    CHECK_REFUSED(devx_tensor_wait(NULL, 1, &error), DEVX_NULL_ARGUMENT, "tensor is NULL");
    CHECK_REFUSED(devx_tensor_used_on(NULL, 1, &error), DEVX_NULL_ARGUMENT, "tensor is NULL");
    CHECK_REFUSED(devx_tensor_produced_on(NULL, 1, &error), DEVX_NULL_ARGUMENT, "tensor is NULL");
    CHECK_REFUSED(devx_tensor_check_pointers(NULL, &error), DEVX_NULL_ARGUMENT, "tensor is NULL");
    CHECK_REFUSED(devx_batch_copy_to(NULL, cpu, 1, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK_REFUSED(devx_batch_wait(NULL, 1, &error), DEVX_NULL_ARGUMENT, "batch is NULL");
    CHECK_REFUSED(devx_batch_used_on(NULL, 1, &error), DEVX_NULL_ARGUMENT, "batch is NULL");
    CHECK_REFUSED(devx_batch_produced_on(NULL, 1, &error), DEVX_NULL_ARGUMENT, "batch is NULL");
    CHECK_PTR(tensor, NULL);
}

/* --- with a driver --- */

TEST(a_device_says_what_it_is) {
    NEEDS_DRIVER();
    int32_t count = 0;
    devx_device_info info;
    CHECK_OK(devx_device_count(kDLCUDA, &count, &error));
    CHECK(count >= 1);
    CHECK_OK(devx_device_get_info(gpu, &info, &error));
    /* The simulated device, and no other, says that it is simulated. */
    CHECK_INT(strstr(info.name, "Simulated") != NULL, driver.calls != NULL);
    CHECK(info.driver_version >= 11000);
    CHECK(info.total_bytes > 0 && info.free_bytes >= 0 && info.free_bytes <= info.total_bytes);
    CHECK_REFUSED(devx_device_get_info((DLDevice){kDLCUDA, count}, &info, &error), DEVX_DEVICE, "cuda");
    CHECK_REFUSED(devx_device_get_info((DLDevice){kDLCUDA, -1}, &info, &error), DEVX_DEVICE, "cuda");
    CHECK_REFUSED(devx_device_get_info((DLDevice){kDLCUDAHost, 0}, &info, &error), DEVX_DEVICE,
                  "device is cuda_host:0: it must be cpu or cuda");
}

TEST(a_stream_is_made_and_destroyed_by_its_maker) {
    NEEDS_DRIVER();
    int64_t stream = 0;
    CHECK_CALL(make_stream(&stream));
    CHECK_OK(devx_stream_synchronize(gpu, stream, &error));
    CHECK_OK(devx_stream_synchronize(gpu, 1, &error));
    CHECK_OK(devx_stream_synchronize(gpu, 2, &error));
    CHECK_REFUSED(devx_stream_destroy(gpu, 1, &error), DEVX_INVALID_STREAM, "default stream");
    CHECK_REFUSED(devx_stream_destroy(gpu, 2, &error), DEVX_INVALID_STREAM, "default stream");
    CHECK_REFUSED(devx_stream_destroy(gpu, 0, &error), DEVX_INVALID_STREAM, "stream is 0");
    CHECK_REFUSED(devx_stream_synchronize(gpu, -1, &error), DEVX_INVALID_STREAM, "stream is -1");
    CHECK_CALL(destroy_stream(stream));
}

TEST(memory_is_written_and_read) {
    NEEDS_DRIVER();
    int64_t stream = 0;
    devx_tensor_t *tensor = NULL, *plain = NULL;
    double values[SIX];
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_six(stream, &tensor));
    CHECK_CALL(check_six(tensor, stream));
    /* A read on another stream waits for the stream that the data is queued on. */
    CHECK_CALL(check_six(tensor, 1));
    CHECK_CALL(check_six(tensor, 2));
    CHECK_OK(devx_tensor_check_pointers(tensor, &error));

    CHECK_REFUSED(devx_tensor_read(tensor, values, 40, stream, &error), DEVX_INVALID_ARGUMENT, "40 bytes");
    CHECK_REFUSED(devx_tensor_write(tensor, six, 56, stream, &error), DEVX_INVALID_ARGUMENT, "56 bytes");
    CHECK_REFUSED(devx_tensor_read(tensor, NULL, sizeof values, stream, &error), DEVX_NULL_ARGUMENT, "into is NULL");
    CHECK_REFUSED(devx_tensor_write(tensor, NULL, sizeof six, stream, &error), DEVX_NULL_ARGUMENT, "from is NULL");
    CHECK_REFUSED(devx_tensor_read(tensor, values, sizeof values, 0, &error), DEVX_INVALID_STREAM, "stream is 0");
    CHECK_REFUSED(devx_tensor_read(tensor, values, sizeof values, -1, &error), DEVX_INVALID_STREAM, "stream is -1");
    CHECK_REFUSED(devx_tensor_write(tensor, six, sizeof six, 0, &error), DEVX_INVALID_STREAM, "stream is 0");
    CHECK_REFUSED(devx_tensor_write(tensor, six, sizeof six, -1, &error), DEVX_INVALID_STREAM, "stream is -1");
    CHECK_REFUSED(devx_tensor_copy(tensor, &plain, &error), DEVX_DEVICE, "not host memory");
    devx_dlpack_request const always = {1, 0, -1, DEVX_COPY_ALWAYS};
    struct DLManagedTensorVersioned *managed = NULL;
    CHECK_REFUSED(devx_tensor_export_share(tensor, &always, &managed, &error), DEVX_DEVICE,
                  "an export copies nothing else; make a copy first (copy_to)");

    /* Memory that is not from the pool is ready at once. */
    CHECK_CALL(make_six(1, &plain));
    CHECK_CALL(check_six(plain, 1));
    devx_tensor_release(&plain);
    CHECK_OK(devx_tensor_allocate(gpu, float64, shape_of_six, 2, -1, &plain, &error));
    CHECK_OK(devx_tensor_write(plain, six, sizeof six, stream, &error));
    CHECK_CALL(check_six(plain, stream));
    devx_tensor_release(&plain);
    devx_tensor_release(&tensor);
    CHECK_CALL(destroy_stream(stream));
    CHECK_CALL(finish_releases());
}

/* The memory of a pool is given in the order of a stream. Without one, whoever gets it may use it anywhere at once. */
TEST(memory_for_no_stream_is_ready) {
    NEEDS_DRIVER();
    devx_memory_request const request = {kDLCUDA, 0, sizeof six, -1, 0, 0};
    devx_manager_t *manager = NULL;
    devx_memory memory;
    int64_t stream = 0;
    CHECK_CALL(make_stream(&stream));
    CHECK_OK(devx_manager_create_pool(-1, -1, &manager, &error));
    CHECK_OK(devx_manager_allocate(manager, &request, &memory, &error));
    CHECK_INT(driver.fill(pointer_of(memory.address), 0, sizeof six, raw_stream(stream)), 0);
    CHECK_INT(driver.synchronize(raw_stream(stream)), 0);
    memory.owner.release(memory.owner.context);
    devx_manager_release(&manager);
    CHECK_CALL(destroy_stream(stream));
    CHECK_CALL(finish_releases());
}

TEST(a_tensor_is_copied_between_devices_and_the_host) {
    NEEDS_DRIVER();
    struct tally tally = {0};
    int64_t stream = 0;
    devx_tensor_t *host = NULL, *device = NULL, *second = NULL, *back = NULL;
    DLTensor view;
    CHECK_CALL(make_stream(&stream));
    CHECK_OK(devx_tensor_import(foreign_tensor(&tally, 2, shape_of_six, NULL), &host, &error));
    CHECK_OK(devx_tensor_copy_to(host, gpu, stream, &device, &error));
    devx_tensor_release(&host);
    CHECK_OK(devx_tensor_copy_to(device, gpu, stream, &second, &error));
    devx_tensor_release(&device);
    CHECK_OK(devx_tensor_copy_to(second, cpu, stream, &back, &error));
    devx_tensor_release(&second);
    CHECK_OK(devx_tensor_borrow(back, &view, NULL, &error));
    CHECK_INT(view.device.device_type, kDLCPU);
    CHECK(memcmp(view.data, six, sizeof six) == 0);
    devx_tensor_release(&back);
    CHECK_CALL(finish_releases());
    CHECK_INT(tally.releases, 1);
    CHECK_CALL(destroy_stream(stream));
}

static void export_for(const devx_tensor_t *tensor, int64_t stream, struct DLManagedTensorVersioned **out) {
    devx_dlpack_request const request = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, stream, DEVX_COPY_NEVER};
    CHECK_OK(devx_tensor_export_share(tensor, &request, out, &error));
}

TEST(an_export_is_ready_on_the_consumers_stream) {
    NEEDS_DRIVER();
    int64_t stream = 0, other = 0;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_stream(&other));
    int64_t const consumers[] = {1, 2, stream, other};
    for (size_t i = 0; i < sizeof consumers / sizeof *consumers; ++i) {
        devx_tensor_t *tensor = NULL;
        struct DLManagedTensorVersioned *exported = NULL;
        CHECK_CALL(queue_six(stream, &tensor));
        uint64_t const waits = driver.calls == NULL ? 0 : driver.calls("cuStreamSynchronize");
        uint64_t const records = driver.calls == NULL ? 0 : driver.calls("cuEventRecord");
        CHECK_CALL(export_for(tensor, consumers[i], &exported));
        if (driver.calls != NULL) {
            CHECK_INT(driver.calls("cuStreamSynchronize"), waits); /* the host never waits */
            CHECK_INT(driver.calls("cuEventRecord") - records, consumers[i] != stream);
        }
        CHECK_CALL(consume_six(exported->dl_tensor.data, consumers[i]));
        devx_dlpack_release(&exported);
        devx_tensor_release(&tensor);
    }
    CHECK_CALL(finish_releases());
    CHECK_CALL(destroy_stream(other));
    CHECK_CALL(destroy_stream(stream));
}

TEST(an_export_takes_every_stream_of_the_table_and_no_other) {
    NEEDS_DRIVER();
    int64_t stream = 0;
    devx_tensor_t *tensor = NULL;
    struct DLManagedTensorVersioned *exported = NULL;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_six(stream, &tensor));
    int64_t const taken[] = {-1, 1, 2, stream};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; ++i) {
        CHECK_CALL(export_for(tensor, taken[i], &exported));
        devx_dlpack_release(&exported);
    }
    int64_t const refused[] = {0, -2, INT64_MIN};
    const char *texts[] = {"stream is 0: ambiguous", "stream is -2", "stream is -9223372036854775808"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; ++i) {
        devx_dlpack_request const request = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, refused[i], DEVX_COPY_NEVER};
        exported = (struct DLManagedTensorVersioned *)UNWRITTEN;
        CHECK_REFUSED(devx_tensor_export_share(tensor, &request, &exported, &error), DEVX_INVALID_STREAM, texts[i]);
        CHECK_PTR(exported, UNWRITTEN);
        CHECK_REFUSED(devx_tensor_export_move(&tensor, &request, &exported, &error), DEVX_INVALID_STREAM, texts[i]);
        CHECK(tensor != NULL);
    }
    devx_tensor_release(&tensor);
    CHECK_CALL(finish_releases());
    CHECK_CALL(destroy_stream(stream));
}

TEST(an_import_is_ordered_by_its_stream) {
    NEEDS_DRIVER();
    int64_t stream = 0, mine = 0;
    devx_tensor_t *tensor = NULL, *taken = (devx_tensor_t *)UNWRITTEN;
    struct DLManagedTensorVersioned *exported = NULL;
    DLTensor view;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_stream(&mine));
    CHECK_CALL(queue_six(stream, &tensor));
    CHECK_CALL(export_for(tensor, mine, &exported));
    CHECK_REFUSED(devx_tensor_import_on(exported, 0, &taken, &error), DEVX_INVALID_STREAM, "stream is 0");
    CHECK_REFUSED(devx_tensor_import_on(exported, -2, &taken, &error), DEVX_INVALID_STREAM, "stream is -2");
    CHECK_PTR(taken, UNWRITTEN);
    uint64_t const calls = driver.calls == NULL ? 0 : driver.calls("*");
    CHECK_OK(devx_tensor_import_on(exported, mine, &taken, &error));
    if (driver.calls != NULL) {
        CHECK_INT(driver.calls("*"), calls); /* the driver is not needed */
    }
    /* The legacy default stream knows nothing of `mine`: it has to wait. */
    CHECK_OK(devx_tensor_wait(taken, 1, &error));
    CHECK_OK(devx_tensor_borrow(taken, &view, NULL, &error));
    CHECK_CALL(consume_six(view.data, 1));
    devx_tensor_release(&taken);
    devx_tensor_release(&tensor);
    CHECK_CALL(finish_releases());
    CHECK_CALL(destroy_stream(mine));
    CHECK_CALL(destroy_stream(stream));
}

TEST(the_legacy_struct_is_ordered_too) {
    NEEDS_DRIVER();
    int64_t stream = 0, mine = 0;
    devx_tensor_t *tensor = NULL, *taken = NULL;
    struct DLManagedTensor *exported = NULL;
    DLTensor view;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_stream(&mine));
    CHECK_CALL(queue_six(stream, &tensor));
    devx_dlpack_request const request = {0, 0, mine, DEVX_COPY_NEVER};
    CHECK_OK(devx_tensor_export_move_legacy(&tensor, &request, &exported, &error));
    CHECK_OK(devx_tensor_import_on_legacy(exported, mine, &taken, &error));
    /* The legacy default stream knows nothing of `mine`: it has to wait. */
    CHECK_OK(devx_tensor_wait(taken, 1, &error));
    CHECK_OK(devx_tensor_borrow(taken, &view, NULL, &error));
    CHECK_CALL(consume_six(view.data, 1));
    devx_tensor_release(&taken);
    CHECK_CALL(finish_releases());
    CHECK_CALL(destroy_stream(mine));
    CHECK_CALL(destroy_stream(stream));
}

/* --- bad input --- */

TEST(out_of_memory_is_an_error_with_the_drivers_code) {
    NEEDS_DRIVER();
    struct tally tally = {0};
    devx_device_info info;
    int64_t stream = 0;
    devx_tensor_t *tensor = (devx_tensor_t *)UNWRITTEN;
    CHECK_CALL(make_stream(&stream));
    CHECK_OK(devx_device_get_info(gpu, &info, &error));
    int64_t const too_much[] = {info.total_bytes / 8 + 1};
    int64_t const streams[] = {-1, 1, stream};
    for (size_t i = 0; i < 3; ++i) {
        CHECK_REFUSED(devx_tensor_allocate(gpu, float64, too_much, 1, streams[i], &tensor, &error), DEVX_OUT_OF_MEMORY,
                      "cuMemAlloc");
        CHECK_INT(error.driver_code, 2);
        CHECK_HAS(error.message, "CUDA_ERROR_OUT_OF_MEMORY");
        CHECK_PTR(tensor, UNWRITTEN);
    }
    int64_t const never[] = {INT64_MAX / 8};
    CHECK_REFUSED(devx_tensor_allocate(gpu, float64, never, 1, stream, &tensor, &error), DEVX_OUT_OF_MEMORY, "");
    /* A copy for which there is no room leaves its source as it was. */
    devx_owner const owner = counting_owner(&tally);
    int64_t shape[] = {too_much[0]};
    DLTensor const description = {(void *)(uintptr_t)4096, cpu, 1, float64, shape, NULL, 0}; /* never looked at */
    devx_tensor_t *large = NULL;
    CHECK_OK(devx_tensor_create(&description, 0, &owner, &large, &error));
    CHECK_REFUSED(devx_tensor_copy_to(large, gpu, stream, &tensor, &error), DEVX_OUT_OF_MEMORY, "cuMemAlloc");
    CHECK_PTR(tensor, UNWRITTEN);
    CHECK_INT(tally.releases, 0);
    devx_tensor_release(&large);
    CHECK_INT(tally.releases, 1);
    CHECK_CALL(finish_releases());
    CHECK_CALL(destroy_stream(stream));
}

static void describe_six(device_pointer address, DLDevice device, devx_tensor_t **out) {
    int64_t shape[] = {2, 3};
    DLTensor const description = {(void *)(uintptr_t)address, device, 2, float64, shape, NULL, 0};
    CHECK_OK(devx_tensor_create(&description, 0, NULL, out, &error));
}

TEST(memory_that_is_not_where_it_claims_is_found_out) {
    NEEDS_DRIVER();
    device_pointer memory = 0;
    devx_tensor_t *tensor = NULL;
    int32_t devices = 0;
    CHECK_OK(devx_device_count(kDLCUDA, &devices, &error));
    CHECK_INT(driver.allocate(&memory, sizeof six), 0);
    CHECK_CALL(describe_six(memory, gpu, &tensor));
    CHECK_OK(devx_tensor_check_pointers(tensor, &error));
    devx_tensor_release(&tensor);
    /* 8 bytes too far */
    CHECK_CALL(describe_six(memory + 8, gpu, &tensor));
    CHECK_REFUSED(devx_tensor_check_pointers(tensor, &error), DEVX_DEVICE, "needs 48 bytes");
    devx_tensor_release(&tensor);
    if (devices > 1) {
        CHECK_CALL(describe_six(memory, (DLDevice){kDLCUDA, 1}, &tensor));
        CHECK_REFUSED(devx_tensor_check_pointers(tensor, &error), DEVX_DEVICE, "declared as cuda:1");
        devx_tensor_release(&tensor);
    }
    CHECK_CALL(describe_six(pointer_of(six), gpu, &tensor));
    CHECK_REFUSED(devx_tensor_check_pointers(tensor, &error), DEVX_DEVICE, "is not CUDA memory");
    devx_tensor_release(&tensor);
    CHECK_INT(driver.free(memory), 0);
    CHECK_CALL(describe_six(memory, gpu, &tensor));
    CHECK_REFUSED(devx_tensor_check_pointers(tensor, &error), DEVX_DEVICE, "(any more)");
    devx_tensor_release(&tensor);
    CHECK_CALL(finish_releases());
}

TEST(a_device_that_is_not_there_is_refused) {
    NEEDS_DRIVER();
    int32_t devices = 0;
    int64_t stream = 0;
    devx_tensor_t *tensor = (devx_tensor_t *)UNWRITTEN;
    CHECK_OK(devx_device_count(kDLCUDA, &devices, &error));
    DLDevice const absent = {kDLCUDA, devices};
    CHECK_REFUSED(devx_stream_create(absent, &stream, &error), DEVX_DEVICE, "cuda");
    CHECK_REFUSED(devx_tensor_allocate(absent, float64, shape_of_six, 2, -1, &tensor, &error), DEVX_DEVICE, "cuda");
    CHECK_PTR(tensor, UNWRITTEN);
}

TEST(a_stream_of_another_device_loses_nothing) {
    NEEDS_DRIVER();
    int32_t devices = 0;
    int64_t stream = 0;
    CHECK_OK(devx_device_count(kDLCUDA, &devices, &error));
    if (devices < 2) {
        SKIP("there is one device");
    }
    DLDevice const second = {kDLCUDA, 1};
    devx_tensor_t *tensor = NULL, *copy = NULL, *refused = (devx_tensor_t *)UNWRITTEN;
    CHECK_OK(devx_stream_create(second, &stream, &error));
    CHECK(devx_tensor_allocate(gpu, float64, shape_of_six, 2, stream, &refused, &error) != DEVX_OK);
    CHECK_PTR(refused, UNWRITTEN);
    /* Where a stream of another device may be used, the order holds across devices. */
    CHECK_CALL(make_six(1, &tensor));
    CHECK_OK(devx_tensor_wait(tensor, stream, &error));
    CHECK_OK(devx_tensor_used_on(tensor, stream, &error));
    CHECK_OK(devx_tensor_copy_to(tensor, second, stream, &copy, &error));
    devx_tensor_release(&tensor);
    CHECK_CALL(check_six(copy, stream));
    devx_tensor_release(&copy);
    CHECK_CALL(finish_releases());
    CHECK_OK(devx_stream_destroy(second, stream, &error));
}

CHECK_MAIN()
