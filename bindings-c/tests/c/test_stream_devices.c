/* Two devices in one exchange: copies from one to the other, a consumer whose stream is on the other device, and a release
 * after its work. scripts/test-c.sh runs this like test_stream.c: the simulated driver has two devices, and reports a missing
 * wait between them as a finding. */
#include "test_driver.h"

static const DLDevice devices[2] = {{kDLCUDA, 0}, {kDLCUDA, 1}};

#define NEEDS_TWO_DEVICES()                                                                                            \
    do {                                                                                                               \
        int32_t check_count_ = 0;                                                                                      \
        NEEDS_DRIVER();                                                                                                \
        CHECK_OK(devx_device_count(kDLCUDA, &check_count_, &error));                                                   \
        if (check_count_ < 2) {                                                                                        \
            SKIP("there is one device");                                                                               \
        }                                                                                                              \
    } while (0)

/* Makes a stream on each device. Device 0 is current, and no call changes that. */
static void make_streams(int64_t streams[2]) {
    for (int i = 0; i < 2; ++i) {
        CHECK_OK(devx_stream_create(devices[i], &streams[i], &error));
    }
}

static void end_streams(const int64_t streams[2]) {
    CHECK_CALL(finish_releases());
    for (int i = 0; i < 2; ++i) {
        CHECK_OK(devx_stream_destroy(devices[i], streams[i], &error));
    }
}

/* 2 x 3 float64 on a device, written by a copy that is queued on its stream and that nobody has waited for. */
static void queue_six(int at, const int64_t streams[2], devx_tensor_t **out) {
    devx_tensor_t *source = NULL;
    CHECK_OK(devx_tensor_allocate(devices[at], float64, shape_of_six, 2, streams[at], &source, &error));
    CHECK_OK(devx_tensor_write(source, six, sizeof six, streams[at], &error));
    CHECK_OK(devx_tensor_copy_to(source, devices[at], streams[at], out, &error));
    devx_tensor_release(&source);
}

static void check_place(const devx_tensor_t *tensor, int at) {
    DLTensor seen;
    CHECK_OK(devx_tensor_borrow(tensor, &seen, NULL, &error));
    CHECK_INT(seen.device.device_type, kDLCUDA);
    CHECK_INT(seen.device.device_id, at);
    CHECK_OK(devx_tensor_check_pointers(tensor, &error));
}

TEST(tensors_are_copied_both_ways_on_streams_of_either_device) {
    NEEDS_TWO_DEVICES();
    int64_t streams[2] = {0};
    CHECK_CALL(make_streams(streams));
    for (int ways = 0; ways < 4; ++ways) {
        int const there = ways & 1, back = ways >> 1;
        devx_tensor_t *first = NULL, *second = NULL, *again = NULL;
        double values[SIX] = {0};
        CHECK_CALL(queue_six(0, streams, &first));
        CHECK_OK(devx_tensor_copy_to(first, devices[1], streams[there], &second, &error));
        devx_tensor_release(&first);
        CHECK_CALL(check_place(second, 1));
        CHECK_OK(devx_tensor_copy_to(second, devices[0], streams[back], &again, &error));
        devx_tensor_release(&second);
        CHECK_CALL(check_place(again, 0));
        CHECK_OK(devx_tensor_read(again, values, sizeof values, streams[0], &error));
        CHECK(memcmp(values, six, sizeof six) == 0);
        devx_tensor_release(&again);
    }
    CHECK_CALL(end_streams(streams));
}

TEST(batches_are_copied_between_devices) {
    NEEDS_TWO_DEVICES();
    int64_t streams[2] = {0};
    struct tally tally = {0};
    struct ArrowSchema schema;
    struct ArrowArray array;
    devx_batch_t *batches[4] = {NULL};
    devx_batch_info info;
    devx_column column;
    const void *values = NULL;
    CHECK_CALL(make_streams(streams));
    foreign_batch(&tally, 3, &schema, &array);
    CHECK_OK(devx_batch_import_pair(&array, &schema, &batches[0], &error));
    CHECK_OK(devx_batch_copy_to(batches[0], devices[0], streams[0], &batches[1], &error));
    CHECK_OK(devx_batch_copy_to(batches[1], devices[1], streams[1], &batches[2], &error));
    CHECK_OK(devx_batch_copy_to(batches[2], cpu, streams[1], &batches[3], &error));
    int const device_types[] = {kDLCPU, kDLCUDA, kDLCUDA, kDLCPU}, device_ids[] = {0, 0, 1, 0};
    for (int i = 0; i < 4; ++i) {
        CHECK_OK(devx_batch_get_info(batches[i], &info, &error));
        CHECK_INT(info.device_type, device_types[i]);
        CHECK_INT(info.device_id == -1 ? 0 : info.device_id, device_ids[i]);
    }
    CHECK_OK(devx_batch_column(batches[3], 0, &column, &error));
    CHECK_OK(devx_column_values(batches[3], &column, int32, &values, &error));
    for (int i = 0; i < 3; ++i) {
        devx_batch_release(&batches[i]);
    }
    CHECK_INT(((const int32_t *)values)[0], 0);
    devx_batch_release(&batches[3]);
    CHECK_CALL(end_streams(streams));
    CHECK_INT(tally.live, 0);
}

/* Foreign memory on device 0, filled by work that is queued there, used by work on device 1, and released at once: the
 * consumer's stream waits for the producer's, and the release waits for the consumer's. */
TEST(a_consumer_on_the_other_device_comes_after_the_producer_and_before_the_release) {
    NEEDS_TWO_DEVICES();
    int64_t streams[2] = {0};
    struct foreign_memory memory = {0, 0, -1};
    devx_owner const owner = {&memory, free_foreign_memory};
    devx_tensor_t *tensor = NULL, *imported = NULL, *target = NULL;
    struct DLManagedTensorVersioned *exported = NULL;
    DLTensor view;
    uint8_t values[sizeof six], expected[sizeof six];
    CHECK_CALL(make_streams(streams));
    CHECK_INT(driver.allocate(&memory.address, sizeof six), 0);
    CHECK_INT(driver.fill(memory.address, 0x5a, sizeof six, raw_stream(streams[0])), 0);
    int64_t shape[] = {2, 3};
    DLTensor const description = {(void *)(uintptr_t)memory.address, devices[0], 2, float64, shape, NULL, 0};
    CHECK_OK(devx_tensor_create(&description, 0, &owner, &tensor, &error));
    CHECK_OK(devx_tensor_produced_on(tensor, streams[0], &error));
    CHECK_OK(devx_tensor_allocate(devices[1], float64, shape_of_six, 2, streams[1], &target, &error));
    CHECK_OK(devx_tensor_borrow(target, &view, NULL, &error));

    devx_dlpack_request const request = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, streams[1], DEVX_COPY_NEVER};
    CHECK_OK(devx_tensor_export_move(&tensor, &request, &exported, &error));
    CHECK_OK(devx_tensor_import_on(exported, streams[1], &imported, &error));
    CHECK_INT(driver.copy(pointer_of(view.data), memory.address, sizeof six, raw_stream(streams[1])), 0);
    CHECK_OK(devx_tensor_used_on(imported, streams[1], &error));
    devx_tensor_release(&imported);

    CHECK_OK(devx_tensor_read(target, values, sizeof values, streams[1], &error));
    memset(expected, 0x5a, sizeof expected);
    CHECK(memcmp(values, expected, sizeof expected) == 0);
    devx_tensor_release(&target);
    CHECK_CALL(end_streams(streams));
    CHECK_INT(memory.releases, 1);
    CHECK_INT(memory.freed, 0);
}

/* Pinned memory that was made for device 1, in whose context its owner works. */
struct pinned_memory {
    void *contexts[2];
    void *address;
    driver_code (*allocate)(void **out, size_t bytes, uint32_t flags);
    driver_code (*free)(void *memory);
    atomic_int releases;
};

static void free_pinned_memory(void *context) {
    struct pinned_memory *memory = context;
    if (memory->free(memory->address) == 0) {
        atomic_fetch_add(&memory->releases, 1);
    }
}

static void make_pinned_memory(struct pinned_memory *memory) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&memory->allocate = dlsym(library, "cuMemHostAlloc");
    *(void **)&memory->free = dlsym(library, "cuMemFreeHost");
    CHECK(memory->allocate != NULL && memory->free != NULL);
    for (int i = 0; i < 2; ++i) {
        CHECK_INT(driver.retain(&memory->contexts[i], i), 0);
    }
    CHECK_INT(driver.set_current(memory->contexts[1]), 0);
    CHECK_INT(memory->allocate(&memory->address, sizeof six, 1), 0);
    CHECK_INT(driver.set_current(memory->contexts[0]), 0);
}

/* Queues the work on the legacy default stream of device 1, which is stream 1 while that device's context is current. */
static void fill_pinned_memory(const struct pinned_memory *memory) {
    CHECK_INT(driver.set_current(memory->contexts[1]), 0);
    CHECK_INT(driver.fill(pointer_of(memory->address), 0x5a, sizeof six, raw_stream(1)), 0);
    CHECK_INT(driver.set_current(memory->contexts[0]), 0);
}

/* Stream 1 of pinned memory is that of the device that the memory was made for, in every call. */
TEST(a_default_stream_of_pinned_memory_is_that_of_the_device_it_was_made_for) {
    NEEDS_TWO_DEVICES();
    DLDevice const pinned = {kDLCUDAHost, 0};
    int64_t streams[2] = {0}, shape[] = {2, 3};
    uint8_t values[sizeof six], expected[sizeof six];
    memset(expected, 0x5a, sizeof expected);
    CHECK_CALL(make_streams(streams));
    for (int way = 0; way < 3; ++way) {
        struct pinned_memory memory = {0};
        devx_owner const owner = {&memory, free_pinned_memory};
        devx_tensor_t *tensor = NULL, *copy = NULL;
        devx_batch_t *batch = NULL;
        CHECK_CALL(make_pinned_memory(&memory));
        DLTensor const description = {memory.address, pinned, 2, float64, shape, NULL, 0};
        CHECK_OK(devx_tensor_create(&description, 0, &owner, &tensor, &error));
        CHECK_OK(devx_tensor_produced_on(tensor, streams[0], &error));
        CHECK_CALL(fill_pinned_memory(&memory));
        if (way == 0) { /* the release comes after the work there */
            CHECK_OK(devx_tensor_used_on(tensor, 1, &error));
        } else if (way == 1) { /* so does a copy */
            CHECK_OK(devx_tensor_produced_on(tensor, 1, &error));
            CHECK_OK(devx_tensor_copy_to(tensor, devices[0], streams[0], &copy, &error));
            CHECK_OK(devx_tensor_read(copy, values, sizeof values, streams[0], &error));
            CHECK(memcmp(values, expected, sizeof expected) == 0);
        } else { /* the same for a batch */
            CHECK_OK(devx_tensor_to_column(tensor, "item", DEVX_COPY_NEVER, &batch, &error));
            CHECK_OK(devx_batch_used_on(batch, 1, &error));
        }
        devx_tensor_release(&copy);
        devx_tensor_release(&tensor);
        devx_batch_release(&batch);
        CHECK_CALL(finish_releases());
        CHECK_INT(memory.releases, 1);
    }
    CHECK_CALL(end_streams(streams));
}

/* A default stream of device 1, named with its device, for memory of device 0: as the stream of a consumer, and as one to
 * release behind. */
TEST(a_default_stream_that_is_named_with_its_device_is_of_that_device) {
    NEEDS_TWO_DEVICES();
    int64_t streams[2] = {0}, named = 0, shape[] = {2, 3};
    struct foreign_memory memory = {0, 0, -1};
    devx_owner const owner = {&memory, free_foreign_memory};
    devx_tensor_t *tensor = NULL, *target = NULL, *refused = NULL;
    struct DLManagedTensorVersioned *exported = NULL;
    uint8_t values[sizeof six], expected[sizeof six];
    void *contexts[2];
    DLTensor view;
    CHECK_CALL(make_streams(streams));
    for (int i = 0; i < 2; ++i) {
        CHECK_INT(driver.retain(&contexts[i], i), 0);
    }
    CHECK_OK(devx_stream_of_device(devices[1], 1, &named, &error));
    CHECK_INT(driver.allocate(&memory.address, sizeof six), 0);
    CHECK_INT(driver.fill(memory.address, 0x5a, sizeof six, raw_stream(streams[0])), 0);
    DLTensor const description = {(void *)(uintptr_t)memory.address, devices[0], 2, float64, shape, NULL, 0};
    CHECK_OK(devx_tensor_create(&description, 0, &owner, &tensor, &error));
    CHECK_OK(devx_tensor_produced_on(tensor, streams[0], &error));
    CHECK_OK(devx_tensor_allocate(devices[1], float64, shape_of_six, 2, named, &target, &error));
    CHECK_OK(devx_tensor_borrow(target, &view, NULL, &error));

    devx_dlpack_request const request = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, named, DEVX_COPY_NEVER};
    CHECK_OK(devx_tensor_export_share(tensor, &request, &exported, &error));
    CHECK_INT(driver.set_current(contexts[1]), 0);
    CHECK_INT(driver.copy(pointer_of(view.data), memory.address, sizeof six, raw_stream(1)), 0);
    CHECK_INT(driver.set_current(contexts[0]), 0);
    CHECK_OK(devx_tensor_used_on(tensor, named, &error));
    devx_tensor_release(&tensor);
    devx_dlpack_release(&exported);
    CHECK_OK(devx_tensor_read(target, values, sizeof values, named, &error));
    memset(expected, 0x5a, sizeof expected);
    CHECK(memcmp(values, expected, sizeof expected) == 0);

    CHECK_REFUSED(devx_tensor_allocate(devices[0], float64, shape_of_six, 2, named, &refused, &error),
                DEVX_INVALID_STREAM, "stream is 0x1: of cuda:1, not of cuda:0");
    devx_tensor_release(&target);
    CHECK_OK(devx_stream_synchronize(devices[0], named, &error));
    CHECK_CALL(end_streams(streams));
    CHECK_INT(memory.releases, 1);
    CHECK_INT(memory.freed, 0);
}

static devx_status give_none(void *context, const devx_memory_request *request, devx_memory *out, devx_error *why) {
    (void)out;
    (void)why;
    *(devx_memory_request *)context = *request;
    return DEVX_OUT_OF_MEMORY;
}

/* Memory that belongs to no device is requested from a manager for the device of the stream, however the stream is named. */
TEST(managers_are_asked_for_the_device_of_the_stream) {
    NEEDS_TWO_DEVICES();
    DLDevice const kinds[] = {{kDLCUDAHost, 0}, {kDLCUDAManaged, 0}};
    int64_t streams[2] = {0}, legacy = 0;
    devx_memory_request asked;
    devx_manager_table table;
    devx_manager_t *manager = NULL;
    memset(&table, 0, sizeof table);
    table.version = DEVX_MANAGER_VERSION;
    table.context = &asked;
    table.allocate = give_none;
    CHECK_CALL(make_streams(streams));
    CHECK_OK(devx_stream_of_device(devices[1], 1, &legacy, &error));
    CHECK_OK(devx_manager_create(&table, &manager, &error));
    for (int way = 0; way < 4; ++way) {
        DLDevice const device = kinds[way & 1];
        int64_t const stream = way >> 1 == 0 ? streams[1] : legacy;
        devx_tensor_t *tensor = NULL;
        memset(&asked, 0, sizeof asked);
        CHECK_REFUSED(
            devx_tensor_allocate_with(manager, device, float64, shape_of_six, 2, stream, &tensor, &error),
            DEVX_OUT_OF_MEMORY, "allocate");
        CHECK_INT(asked.device_type, device.device_type);
        CHECK_INT(asked.device_id, 1);
    }
    devx_manager_release(&manager);
    CHECK_CALL(end_streams(streams));
}

TEST(memory_of_a_manager_says_where_it_is) {
    NEEDS_TWO_DEVICES();
    devx_manager_t *manager = NULL;
    CHECK_OK(devx_manager_create_driver(&manager, &error));
    for (int32_t at = 0; at < 2; ++at) {
        devx_memory_request const request = {kDLCUDA, at, 64, -1, 0, 0};
        devx_memory memory;
        CHECK_OK(devx_manager_allocate(manager, &request, &memory, &error));
        CHECK_INT(memory.device_type, kDLCUDA);
        CHECK_INT(memory.device_id, at);
        memory.owner.release(memory.owner.context);
    }
    devx_manager_release(&manager);
    CHECK_CALL(finish_releases());
}

/* A stream that needs no device to be named keeps its number; a number that is no stream is refused. */
TEST(streams_of_devices_are_numbers) {
    NEEDS_TWO_DEVICES();
    DLDevice const pinned = {kDLCUDAHost, 0}, third = {kDLCUDA, 2};
    int64_t streams[2] = {0}, out = 7, of_memory = 0, named = 0;
    struct pinned_memory memory = {0};
    int64_t shape[] = {2, 3};
    devx_owner const owner = {&memory, free_pinned_memory};
    devx_tensor_t *tensor = NULL;
    CHECK_CALL(make_streams(streams));
    for (int64_t wrong = -1; wrong <= 0; ++wrong) {
        CHECK_REFUSED(devx_stream_of_device(devices[0], wrong, &out, &error), DEVX_INVALID_STREAM, "stream is");
    }
    CHECK_REFUSED(devx_stream_of_device(cpu, 1, &out, &error), DEVX_DEVICE, "which has no streams");
    CHECK_REFUSED(devx_stream_of_device(third, 1, &out, &error), DEVX_DEVICE, "there are 2 CUDA devices");
    CHECK_REFUSED(devx_stream_of_device(devices[0], 1, NULL, &error), DEVX_NULL_ARGUMENT, "out is NULL");
    CHECK_INT(out, 7);
    CHECK_OK(devx_stream_of_device(devices[0], streams[1], &out, &error));
    CHECK_INT(out, streams[1]);
    /* A handle with the wrong device is refused: the caller may mean another stream. */
    CHECK_REFUSED(devx_stream_close(devices[0], streams[1], &error), DEVX_INVALID_STREAM, "of cuda:1, not of cuda:0");
    CHECK_REFUSED(devx_stream_destroy(devices[0], streams[1], &error), DEVX_INVALID_STREAM, "of cuda:1, not of cuda:0");
    CHECK_OK(devx_stream_of_device(pinned, 1, &out, &error));
    CHECK_INT(out, 1);

    CHECK_CALL(make_pinned_memory(&memory));
    DLTensor const description = {memory.address, pinned, 2, float64, shape, NULL, 0};
    CHECK_OK(devx_tensor_create(&description, 0, &owner, &tensor, &error));
    CHECK_OK(devx_stream_of_device(devices[1], 1, &named, &error));
    CHECK_OK(devx_tensor_stream(tensor, 1, &of_memory, &error));
    CHECK_INT(of_memory, named);
    CHECK_OK(devx_tensor_stream(tensor, streams[0], &of_memory, &error));
    CHECK_INT(of_memory, streams[0]);
    devx_tensor_release(&tensor);
    CHECK_CALL(end_streams(streams));
    CHECK_INT(memory.releases, 1);
}

CHECK_MAIN()
