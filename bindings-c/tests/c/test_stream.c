/* Devices, streams and stream-ordered release. scripts/test-c.sh runs this twice: as it is, where there may be no
 * driver, and on the simulated driver, for which every missing wait and every early release is a finding that ends the
 * program badly. What belongs to other libraries here (a consumer's copy, a producer's memory) calls the driver itself.
 */
#include "test_driver.h"

/* --- short ways --- */

static const DLDevice gpu = {kDLCUDA, 0};

static void make_stream(int64_t *out) {
    CHECK_OK(devx_stream_create(gpu, out, &error));
    CHECK(*out > 2);
}

static void destroy_stream(int64_t stream) {
    CHECK_OK(devx_stream_destroy(gpu, stream, &error));
}

/* 2 x 3 float64 on the device, written on the stream. */
static void make_six(int64_t stream, devx_tensor_t **out) {
    CHECK_OK(devx_tensor_allocate(gpu, float64, shape_of_six, 2, stream, out, &error));
    CHECK_OK(devx_tensor_write(*out, six, sizeof six, stream, &error));
}

/* The same by a copy that is queued, and that nobody has waited for: a write the host waits for. */
static void queue_six(int64_t stream, devx_tensor_t **out) {
    devx_tensor_t *source = NULL;
    CHECK_CALL(make_six(stream, &source));
    CHECK_OK(devx_tensor_copy_to(source, gpu, stream, out, &error));
    devx_tensor_release(&source);
}

static void check_six(const devx_tensor_t *tensor, int64_t stream) {
    double values[SIX] = {0};
    CHECK_OK(devx_tensor_read(tensor, values, sizeof values, stream, &error));
    CHECK(memcmp(values, six, sizeof six) == 0);
}

/* What the consumer of an export does: work of its own on its stream, which nobody makes wait any more. */
static void consume_six(const void *memory, int64_t stream) {
    device_pointer copy = 0;
    double values[SIX] = {0};
    CHECK_INT(driver.allocate(&copy, sizeof values), 0);
    CHECK_INT(driver.copy(copy, pointer_of(memory), sizeof values, raw_stream(stream)), 0);
    CHECK_INT(driver.synchronize(raw_stream(stream)), 0);
    CHECK_INT(driver.read(values, copy, sizeof values), 0);
    CHECK_INT(driver.free(copy), 0);
    CHECK(memcmp(values, six, sizeof six) == 0);
}

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
    CHECK_REFUSED(devx_tensor_copy_to(again, cpu, 1, &refused, &error), DEVX_DEVICE, "which has no streams");
    CHECK_PTR(refused, UNWRITTEN);
    devx_tensor_release(&tensor);
    devx_tensor_release(&again);
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
    /* Nothing can take the simulated one for a GPU, and only that. */
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
    /* Another stream waits for the one that the memory is of, as far as that is known. */
    CHECK_CALL(check_six(tensor, 1));
    CHECK_CALL(check_six(tensor, 2));
    CHECK_OK(devx_tensor_check_pointers(tensor, &error));

    CHECK_REFUSED(devx_tensor_read(tensor, values, 40, stream, &error), DEVX_INVALID_ARGUMENT, "40 bytes");
    CHECK_REFUSED(devx_tensor_write(tensor, six, 56, stream, &error), DEVX_INVALID_ARGUMENT, "56 bytes");
    CHECK_REFUSED(devx_tensor_read(tensor, NULL, sizeof values, stream, &error), DEVX_NULL_ARGUMENT, "into is NULL");
    CHECK_REFUSED(devx_tensor_write(tensor, NULL, sizeof six, stream, &error), DEVX_NULL_ARGUMENT, "from is NULL");
    CHECK_REFUSED(devx_tensor_read(tensor, values, sizeof values, 0, &error), DEVX_INVALID_STREAM, "stream is 0");
    CHECK_REFUSED(devx_tensor_read(tensor, values, sizeof values, -1, &error), DEVX_INVALID_STREAM, "stream is -1");
    CHECK_REFUSED(devx_tensor_copy(tensor, &plain, &error), DEVX_DEVICE, "not host memory");
    devx_dlpack_request const always = {1, 0, -1, DEVX_COPY_ALWAYS};
    struct DLManagedTensorVersioned *managed = NULL;
    CHECK_REFUSED(devx_tensor_export_share(tensor, &always, &managed, &error), DEVX_DEVICE,
                  "an export copies nothing else; make a copy first (copy_to)");

    /* Memory that is not of the pool is ready at once. */
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
        CHECK_INT(driver.calls("*"), calls); /* there is nothing to ask */
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
    int64_t stream = 0;
    devx_tensor_t *tensor = NULL, *taken = NULL;
    struct DLManagedTensor *exported = NULL;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(queue_six(stream, &tensor));
    devx_dlpack_request const request = {0, 0, 1, DEVX_COPY_NEVER};
    CHECK_OK(devx_tensor_export_move_legacy(&tensor, &request, &exported, &error));
    CHECK_OK(devx_tensor_import_on_legacy(exported, 1, &taken, &error));
    CHECK_CALL(check_six(taken, 1));
    devx_tensor_release(&taken);
    CHECK_CALL(finish_releases());
    CHECK_CALL(destroy_stream(stream));
}

/* --- release --- */

/* A producer's memory. That it is freed under running work is what the simulated driver would not forgive. */
struct foreign_memory {
    atomic_int releases;
    device_pointer address;
    driver_code freed;
};

static void free_foreign_memory(void *context) {
    struct foreign_memory *memory = (struct foreign_memory *)context;
    memory->freed = driver.free(memory->address);
    atomic_fetch_add(&memory->releases, 1);
}

static void make_foreign_memory(struct foreign_memory *memory, int64_t stream, devx_tensor_t **out) {
    devx_owner const owner = {memory, free_foreign_memory};
    int64_t shape[] = {2, 3};
    CHECK_INT(driver.allocate(&memory->address, sizeof six), 0);
    CHECK_INT(driver.fill(memory->address, 0, sizeof six, raw_stream(stream)), 0);
    DLTensor const description = {(void *)(uintptr_t)memory->address, gpu, 2, float64, shape, NULL, 0};
    CHECK_OK(devx_tensor_create(&description, 0, &owner, out, &error));
    CHECK_OK(devx_tensor_produced_on(*out, stream, &error));
}

TEST(a_release_comes_once_after_the_work_that_uses_the_memory) {
    NEEDS_DRIVER();
    struct foreign_memory memory = {0, 0, -1};
    int64_t producer = 0, first = 0, second = 0;
    device_pointer target = 0;
    devx_tensor_t *tensor = NULL;
    CHECK_CALL(make_stream(&producer));
    CHECK_CALL(make_stream(&first));
    CHECK_CALL(make_stream(&second));
    CHECK_INT(driver.allocate(&target, 2 * sizeof six), 0);
    CHECK_CALL(make_foreign_memory(&memory, producer, &tensor));
    int64_t const users[] = {first, second};
    for (size_t i = 0; i < 2; ++i) {
        CHECK_OK(devx_tensor_wait(tensor, users[i], &error));
        CHECK_INT(driver.copy(target + i * sizeof six, memory.address, sizeof six, raw_stream(users[i])), 0);
        CHECK_OK(devx_tensor_used_on(tensor, users[i], &error));
    }
    uint64_t const waits = driver.calls == NULL ? 0 : driver.calls("cuStreamSynchronize");
    devx_tensor_release(&tensor); /* the work is queued, the host does not wait for it */
    if (driver.calls != NULL) {
        CHECK_INT(driver.calls("cuStreamSynchronize"), waits);
    }
    CHECK_CALL(finish_releases());
    CHECK_INT(memory.releases, 1);
    CHECK_INT(memory.freed, 0);
    double values[SIX];
    CHECK_OK(devx_stream_synchronize(gpu, first, &error));
    CHECK_OK(devx_stream_synchronize(gpu, second, &error));
    CHECK_INT(driver.read(values, target, sizeof values), 0);
    CHECK_DOUBLE(values[5], 0, 0);
    CHECK_INT(driver.free(target), 0);
    CHECK_CALL(destroy_stream(first));
    CHECK_CALL(destroy_stream(second));
    CHECK_CALL(destroy_stream(producer));
    CHECK_CALL(finish_releases());
    CHECK_INT(memory.releases, 1);
}

TEST(a_view_holds_what_it_is_a_view_of) {
    NEEDS_DRIVER();
    struct foreign_memory memory = {0, 0, -1};
    int64_t stream = 0;
    device_pointer target = 0;
    devx_tensor_t *tensor = NULL;
    devx_batch_t *column = NULL;
    CHECK_CALL(make_stream(&stream));
    CHECK_INT(driver.allocate(&target, sizeof six), 0);
    CHECK_CALL(make_foreign_memory(&memory, stream, &tensor));
    CHECK_OK(devx_tensor_to_column(tensor, "pairs", DEVX_COPY_NEVER, &column, &error));
    devx_tensor_release(&tensor);
    CHECK_INT(driver.copy(target, memory.address, sizeof six, raw_stream(stream)), 0);
    CHECK_OK(devx_batch_used_on(column, stream, &error));
    devx_batch_release(&column);
    CHECK_CALL(finish_releases());
    CHECK_INT(memory.releases, 1);
    CHECK_INT(memory.freed, 0);
    CHECK_OK(devx_stream_synchronize(gpu, stream, &error));
    CHECK_INT(driver.free(target), 0);
    CHECK_CALL(destroy_stream(stream));
}

TEST(a_closed_stream_goes_after_the_releases_that_wait) {
    NEEDS_DRIVER();
    struct foreign_memory memory = {0, 0, -1};
    int64_t producer = 0, user = 0;
    device_pointer target = 0;
    devx_tensor_t *tensor = NULL;
    CHECK_CALL(make_stream(&producer));
    CHECK_CALL(make_stream(&user));
    CHECK_INT(driver.allocate(&target, sizeof six), 0);
    CHECK_CALL(make_foreign_memory(&memory, producer, &tensor));
    CHECK_OK(devx_tensor_wait(tensor, user, &error));
    CHECK_INT(driver.copy(target, memory.address, sizeof six, raw_stream(user)), 0);
    CHECK_OK(devx_tensor_used_on(tensor, user, &error));
    uint64_t const destroyed = driver.calls == NULL ? 0 : driver.calls("cuStreamDestroy_v2");
    devx_tensor_release(&tensor);
    CHECK_OK(devx_stream_close(gpu, user, &error));
    CHECK_CALL(finish_releases());
    CHECK_INT(memory.releases, 1);
    for (int tries = 0; driver.calls != NULL && driver.calls("cuStreamDestroy_v2") == destroyed; ++tries) {
        CHECK(tries < 1000);
        nanosleep(&(struct timespec){0, 10 * 1000 * 1000}, NULL);
    }
    CHECK_INT(driver.free(target), 0);
    CHECK_OK(devx_stream_close(gpu, producer, &error)); /* nothing waits */
    if (driver.calls != NULL) {
        CHECK_INT(driver.calls("cuStreamDestroy_v2"), destroyed + 2);
    }
    CHECK_REFUSED(devx_stream_close(gpu, 1, &error), DEVX_INVALID_STREAM, "default stream");
    CHECK_REFUSED(devx_stream_close(cpu, 7, &error), DEVX_DEVICE, "no streams");
}

TEST(a_closed_stream_goes_after_what_is_in_its_order) {
    NEEDS_DRIVER();
    int64_t stream = 0, other = 0;
    devx_tensor_t *tensor = NULL, *seen = NULL;
    struct DLManagedTensorVersioned *handed = NULL;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_stream(&other));
    CHECK_CALL(queue_six(stream, &tensor));
    uint64_t const destroyed = driver.calls == NULL ? 0 : driver.calls("cuStreamDestroy_v2");
    CHECK_OK(devx_stream_close(gpu, stream, &error));
    devx_dlpack_request const request = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, other, DEVX_COPY_NEVER};
    CHECK_OK(devx_tensor_export_move(&tensor, &request, &handed, &error));
    CHECK_OK(devx_tensor_import_on(handed, other, &seen, &error));
    CHECK_CALL(check_six(seen, other));
    if (driver.calls != NULL) {
        CHECK_INT(driver.calls("cuStreamDestroy_v2"), destroyed);
    }
    devx_tensor_release(&seen);
    CHECK_CALL(finish_releases());
    if (driver.calls != NULL) {
        CHECK_INT(driver.calls("cuStreamDestroy_v2"), destroyed + 1);
    }
    CHECK_OK(devx_stream_close(gpu, other, &error));
}

TEST(a_closed_stream_that_is_held_goes_after_that) {
    NEEDS_DRIVER();
    int64_t stream = 0;
    devx_owner hold = {NULL, NULL};
    CHECK_CALL(make_stream(&stream));
    CHECK_REFUSED(devx_stream_hold(stream, NULL, &error), DEVX_NULL_ARGUMENT, "out");
    CHECK_OK(devx_stream_hold(stream, &hold, &error));
    uint64_t const destroyed = driver.calls == NULL ? 0 : driver.calls("cuStreamDestroy_v2");
    CHECK_OK(devx_stream_close(gpu, stream, &error));
    CHECK_INT(driver.synchronize(raw_stream(stream)), 0);
    hold.release(hold.context);
    if (driver.calls != NULL) {
        CHECK_INT(driver.calls("cuStreamDestroy_v2"), destroyed + 1);
    }
    int64_t const nothing[] = {-1, 1, 2};
    for (int i = 0; i < 3; ++i) {
        CHECK_OK(devx_stream_hold(nothing[i], &hold, &error));
        CHECK(hold.context == NULL && hold.release == NULL);
    }
    CHECK_REFUSED(devx_stream_hold(0, &hold, &error), DEVX_INVALID_STREAM, "stream is 0: ");
    CHECK_REFUSED(devx_stream_hold(-7, &hold, &error), DEVX_INVALID_STREAM, "stream is -7: ");
}

TEST(a_tensor_that_nobody_used_is_released_at_once) {
    NEEDS_DRIVER();
    struct foreign_memory memory = {0, 0, -1};
    devx_tensor_t *tensor = NULL;
    int64_t stream = 0;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_foreign_memory(&memory, stream, &tensor));
    CHECK_OK(devx_stream_synchronize(gpu, stream, &error));
    devx_tensor_release(&tensor);
    CHECK_INT(memory.releases, 1);
    CHECK_INT(memory.freed, 0);
    CHECK_CALL(destroy_stream(stream));
    CHECK_CALL(finish_releases());
}

/* --- batches --- */

enum { ROWS = 5 };

/* {number: int32 with nulls, text: utf8 with nulls, kind: dictionary}. Everything is static. */
static void make_batch(struct tally *tally, devx_batch_t **out) {
    static const uint8_t validity[] = {0x1b}; /* row 2 is null */
    static const int32_t numbers[ROWS] = {10, 11, 0, 13, 14};
    static const int32_t offsets[ROWS + 1] = {0, 1, 1, 1, 4, 9};
    static const char bytes[] = "abcdefghi";
    static const int8_t indices[ROWS] = {1, 0, 1, 1, 0};
    static const int32_t text_offsets[] = {0, 3, 7};
    static const char texts[] = "sunrain";
    static const void *const none[] = {NULL};
    static const void *const of_numbers[] = {validity, numbers};
    static const void *const of_texts[] = {validity, offsets, bytes};
    static const void *const of_indices[] = {NULL, indices};
    static const void *const of_dictionary[] = {NULL, text_offsets, texts};
    devx_field const fields[] = {
        {"+s", "", NULL, 0, 3, 0},
        {"i", "number", NULL, DEVX_FIELD_NULLABLE, 0, 0},
        {"u", "text", NULL, DEVX_FIELD_NULLABLE, 0, 0},
        {"c", "kind", NULL, 0, 0, 1},
        {"u", "", NULL, 0, 0, 0},
    };
    devx_node const nodes[] = {
        {ROWS, 0, 0, none, 1},        {ROWS, 1, 0, of_numbers, 2}, {ROWS, 1, 0, of_texts, 3},
        {ROWS, 0, 0, of_indices, 2}, {2, 0, 0, of_dictionary, 3},
    };
    devx_owner const owner = counting_owner(tally);
    devx_schema_t *schema = NULL;
    CHECK_OK(devx_schema_create(fields, 5, &schema, &error));
    CHECK_OK(devx_batch_create(schema, cpu, nodes, 5, &owner, out, &error));
    devx_schema_release(&schema);
}

static void check_text(const devx_batch_t *batch, const devx_column *column, int64_t row, const char *expected) {
    const char *bytes = NULL;
    size_t length = 0;
    CHECK_OK(devx_column_bytes(batch, column, row, &bytes, &length, &error));
    CHECK_INT(length, strlen(expected));
    CHECK(memcmp(bytes, expected, length) == 0);
}

static void check_batch(const devx_batch_t *batch) {
    devx_column number, text, kind, dictionary;
    const void *values = NULL;
    CHECK_OK(devx_batch_column_named(batch, "number", &number, &error));
    CHECK_OK(devx_batch_column_named(batch, "text", &text, &error));
    CHECK_OK(devx_batch_column_named(batch, "kind", &kind, &error));
    CHECK_OK(devx_column_dictionary(batch, &kind, &dictionary, &error));
    CHECK_INT(number.length, ROWS);
    CHECK_OK(devx_column_values(batch, &number, int32, &values, &error));
    static const char *const expected[ROWS] = {"a", "", NULL, "bcd", "efghi"};
    static const int64_t kinds[ROWS] = {1, 0, 1, 1, 0};
    for (int64_t row = 0; row < ROWS; ++row) {
        int32_t number_valid = -1, text_valid = -1;
        int64_t index = -1;
        CHECK_OK(devx_column_is_valid(batch, &number, row, &number_valid, &error));
        CHECK_OK(devx_column_is_valid(batch, &text, row, &text_valid, &error));
        CHECK_INT(number_valid, row != 2);
        CHECK_INT(text_valid, row != 2);
        if (row != 2) {
            CHECK_INT(((const int32_t *)values)[row], 10 + row);
            CHECK_CALL(check_text(batch, &text, row, expected[row]));
        }
        CHECK_OK(devx_column_dictionary_index(batch, &kind, row, &index, &error));
        CHECK_INT(index, kinds[row]);
    }
    CHECK_CALL(check_text(batch, &dictionary, 0, "sun"));
    CHECK_CALL(check_text(batch, &dictionary, 1, "rain"));
}

TEST(a_batch_with_texts_and_nulls_goes_to_the_device_and_back) {
    NEEDS_DRIVER();
    struct tally tally = {0};
    int64_t stream = 0, other = 0;
    devx_batch_t *batch = NULL, *device = NULL, *second = NULL, *host = NULL;
    devx_batch_info info;
    devx_column number;
    const void *values = NULL;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_stream(&other));
    CHECK_CALL(make_batch(&tally, &batch));
    CHECK_CALL(check_batch(batch));
    CHECK_OK(devx_batch_copy_to(batch, gpu, stream, &device, &error));
    devx_batch_release(&batch);
    CHECK_OK(devx_batch_get_info(device, &info, &error));
    CHECK_INT(info.device_type, kDLCUDA);
    CHECK_INT(info.length, ROWS);
    /* The host does not read it where it is. */
    CHECK_OK(devx_batch_column_named(device, "number", &number, &error));
    CHECK_REFUSED(devx_column_values(device, &number, int32, &values, &error), DEVX_DEVICE, "not host memory");
    CHECK_OK(devx_batch_copy_to(device, gpu, other, &second, &error));
    devx_batch_release(&device);
    CHECK_OK(devx_batch_copy_to(second, cpu, other, &host, &error));
    devx_batch_release(&second);
    CHECK_CALL(check_batch(host));
    devx_batch_release(&host);
    CHECK_CALL(finish_releases());
    CHECK_INT(tally.releases, 1);
    CHECK_CALL(destroy_stream(other));
    CHECK_CALL(destroy_stream(stream));
}

/* On the device, by a copy that is queued: of a copy from host memory the host waits for. */
static void make_device_batch(int64_t stream, devx_batch_t **out) {
    struct tally tally = {0};
    devx_batch_t *host = NULL, *device = NULL;
    CHECK_CALL(make_batch(&tally, &host));
    CHECK_OK(devx_batch_copy_to(host, gpu, stream, &device, &error));
    devx_batch_release(&host);
    CHECK_INT(tally.releases, 1);
    CHECK_OK(devx_batch_copy_to(device, gpu, stream, out, &error));
    devx_batch_release(&device);
}

TEST(the_event_of_an_array_outlives_the_handle) {
    NEEDS_DRIVER();
    int64_t stream = 0, consumer = 0;
    devx_batch_t *batch = NULL;
    struct ArrowDeviceArray array;
    int32_t numbers[ROWS] = {0};
    device_pointer copy = 0;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_stream(&consumer));
    CHECK_CALL(make_device_batch(stream, &batch));
    CHECK_OK(devx_batch_export_share_device(batch, &array, &error));
    devx_batch_release(&batch);
    CHECK_INT(array.device_type, kDLCUDA);
    CHECK_INT(array.device_id, 0);
    CHECK(array.sync_event != NULL);
    void *event = *(void **)array.sync_event;
    CHECK(event != NULL);
    CHECK_INT(driver.wait(raw_stream(consumer), event, 0), 0);
    CHECK_INT(driver.allocate(&copy, sizeof numbers), 0);
    CHECK_INT(driver.copy(copy, pointer_of(array.array.children[0]->buffers[1]), sizeof numbers, raw_stream(consumer)),
              0);
    CHECK_INT(driver.synchronize(raw_stream(consumer)), 0);
    CHECK_INT(driver.read(numbers, copy, sizeof numbers), 0);
    CHECK_INT(numbers[4], 14);
    CHECK_INT(driver.free(copy), 0);
    release_array(&array.array);
    CHECK_CALL(finish_releases());
    CHECK_CALL(destroy_stream(consumer));
    CHECK_CALL(destroy_stream(stream));
}

TEST(an_array_is_imported_with_its_event_and_waited_for_on_a_stream) {
    NEEDS_DRIVER();
    int64_t stream = 0, mine = 0;
    devx_batch_t *batch = NULL, *taken = NULL, *host = NULL;
    devx_schema_t *schema = NULL;
    struct ArrowDeviceArray array;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_stream(&mine));
    CHECK_CALL(make_device_batch(stream, &batch));
    CHECK_OK(devx_batch_schema(batch, &schema, &error));
    CHECK_OK(devx_batch_export_move_device(&batch, &array, &error));
    CHECK_OK(devx_batch_import_device(&array, schema, &taken, &error));
    CHECK_REFUSED(devx_batch_wait(taken, 0, &error), DEVX_INVALID_STREAM, "stream is 0");
    CHECK_OK(devx_batch_wait(taken, mine, &error));
    CHECK_OK(devx_batch_used_on(taken, mine, &error));
    /* An export of the import carries the same event on. */
    CHECK_OK(devx_batch_export_share_device(taken, &array, &error));
    CHECK(array.sync_event != NULL);
    CHECK_OK(devx_batch_copy_to(taken, cpu, mine, &host, &error));
    devx_batch_release(&taken);
    CHECK_CALL(check_batch(host));
    devx_batch_release(&host);
    release_array(&array.array);
    devx_schema_release(&schema);
    CHECK_CALL(finish_releases());
    CHECK_CALL(destroy_stream(mine));
    CHECK_CALL(destroy_stream(stream));
}

TEST(what_is_shared_has_its_order_already) {
    NEEDS_DRIVER();
    int64_t stream = 0;
    devx_batch_t *batch = NULL, *batch_too = NULL;
    devx_tensor_t *tensor = NULL, *tensor_too = NULL;
    CHECK_CALL(make_stream(&stream));
    CHECK_CALL(make_device_batch(stream, &batch));
    CHECK_CALL(make_six(stream, &tensor));
    CHECK_OK(devx_batch_produced_on(batch, stream, &error));
    CHECK_OK(devx_tensor_produced_on(tensor, stream, &error));
    CHECK_OK(devx_batch_share(batch, &batch_too, &error));
    CHECK_OK(devx_tensor_share(tensor, &tensor_too, &error));
    CHECK_REFUSED(devx_batch_produced_on(batch, 1, &error), DEVX_INVALID_ARGUMENT, "shared already");
    CHECK_REFUSED(devx_tensor_produced_on(tensor, 1, &error), DEVX_INVALID_ARGUMENT, "shared already");
    devx_batch_release(&batch_too);
    devx_batch_release(&batch);
    devx_tensor_release(&tensor_too);
    devx_tensor_release(&tensor);
    CHECK_CALL(finish_releases());
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
    /* A copy that does not find room leaves its source as it was. */
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
    CHECK_REFUSED(devx_tensor_check_pointers(tensor, &error), DEVX_DEVICE, "no memory of CUDA");
    devx_tensor_release(&tensor);
    CHECK_INT(driver.free(memory), 0);
    CHECK_CALL(describe_six(memory, gpu, &tensor));
    CHECK_REFUSED(devx_tensor_check_pointers(tensor, &error), DEVX_DEVICE, "(any more)");
    devx_tensor_release(&tensor);
    CHECK_CALL(finish_releases());
}

static void describe_numbers(device_pointer memory, int64_t length, devx_batch_t **out) {
    devx_field const field = {"l", "", NULL, 0, 0, 0};
    const void *buffers[] = {NULL, (const void *)(uintptr_t)memory};
    devx_node const node = {length, 0, 0, buffers, 2};
    devx_schema_t *schema = NULL;
    CHECK_OK(devx_schema_create(&field, 1, &schema, &error));
    CHECK_OK(devx_batch_create(schema, gpu, &node, 1, NULL, out, &error));
    devx_schema_release(&schema);
}

TEST(buffers_that_are_not_where_they_claim_are_found_out) {
    NEEDS_DRIVER();
    device_pointer memory = 0;
    devx_batch_t *batch = NULL;
    CHECK_INT(driver.allocate(&memory, 64), 0);
    CHECK_CALL(describe_numbers(memory, 8, &batch));
    CHECK_OK(devx_batch_check_pointers(batch, &error));
    devx_batch_release(&batch);
    CHECK_CALL(describe_numbers(memory, 9, &batch));
    CHECK_REFUSED(devx_batch_check_pointers(batch, &error), DEVX_DEVICE, "buffers[1]: data 0x");
    devx_batch_release(&batch);
    CHECK_CALL(describe_numbers(pointer_of(six), 6, &batch));
    CHECK_REFUSED(devx_batch_check_pointers(batch, &error), DEVX_DEVICE, "no memory of CUDA");
    devx_batch_release(&batch);
    CHECK_INT(driver.free(memory), 0);
    CHECK_CALL(describe_numbers(memory, 8, &batch));
    CHECK_REFUSED(devx_batch_check_pointers(batch, &error), DEVX_DEVICE, "(any more)");
    devx_batch_release(&batch);
    CHECK_REFUSED(devx_batch_check_pointers(batch, &error), DEVX_NULL_ARGUMENT, "batch is NULL");
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
    /* Where it may be used, the order holds across devices. */
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

TEST(a_null_event_is_refused_and_the_array_is_still_the_producers) {
    NEEDS_DRIVER();
    struct tally tally = {0};
    struct ArrowSchema schema;
    struct ArrowDeviceArray array;
    void *no_event = NULL;
    devx_batch_t *batch = (devx_batch_t *)UNWRITTEN;
    memset(&array, 0, sizeof array);
    foreign_batch(&tally, 3, &schema, &array.array);
    array.device_type = kDLCUDA;
    array.sync_event = &no_event;
    CHECK_REFUSED(devx_batch_import_pair_device(&array, &schema, &batch, &error), DEVX_NULL_ARGUMENT, "sync_event");
    CHECK_PTR(batch, UNWRITTEN);
    CHECK(array.array.release != NULL && schema.release != NULL);
    array.device_type = kDLCPU;
    CHECK_REFUSED(devx_batch_import_pair_device(&array, &schema, &batch, &error), DEVX_DEVICE, "sync_event");
    release_array(&array.array);
    release_schema(&schema);
    CHECK_INT(tally.live, 0);
    CHECK_CALL(finish_releases());
}

CHECK_MAIN()
