/* Each allocation of the library fails once on the simulated driver: for device memory, order of streams, and pools.
 */
#include "faults.h"
#include "test_driver.h"

/* Releases wait for work, which the simulated driver does only when somebody waits for it. */
static void finish_work(void) {
    while (devx_releases_waiting() > 0) {
        (void)devx_stream_synchronize(gpu, 1, NULL);
    }
}

static void memory_of_device_managers(void) {
    devx_manager_t *plain = NULL, *pool = NULL;
    devx_tensor_t *tensor = NULL, *queued = NULL;
    (void)TRY(devx_manager_create_driver(&plain, &error));
    (void)TRY(devx_manager_create_managed(&pool, &error));
    if (plain != NULL && TRY(devx_tensor_allocate_with(plain, gpu, float64, shape, 2, -1, &tensor, &error))) {
        (void)TRY(devx_tensor_used_on(tensor, 2, &error));
    }
    if (pool != NULL && TRY(devx_tensor_allocate_with(pool, gpu, float64, shape, 2, -1, &queued, &error))) {
        (void)TRY(devx_tensor_used_on(queued, 2, &error));
    }
    /* Both wait for their stream. */
    devx_tensor_release(&queued);
    devx_tensor_release(&tensor);
    devx_manager_release(&pool);
    devx_manager_release(&plain);
}

static void memory_of_a_device(void) {
    devx_tensor_t *host = NULL, *there = NULL, *copied = NULL, *back = NULL, *seen = NULL;
    devx_batch_t *column = NULL, *far = NULL;
    devx_cuda_array array;
    struct ArrowDeviceArray device = {0};
    memset(&array, 0, sizeof array);
    (void)TRY(devx_tensor_allocate(cpu, float64, shape, 2, -1, &host, &error));
    (void)TRY(devx_tensor_allocate(gpu, float64, shape, 2, 1, &there, &error));
    (void)TRY(devx_tensor_copy_to(host, gpu, 1, &copied, &error));
    (void)TRY(devx_tensor_wait(copied, 2, &error));
    (void)TRY(devx_tensor_used_on(copied, 2, &error));
    (void)TRY(devx_tensor_export_share_cuda_array(copied, NULL, &array, &error));
    if (array.release != NULL) {
        (void)TRY(devx_cuda_array_import(&array, NULL, &seen, NULL, &error));
    }
    devx_cuda_array_release(&array);
    (void)TRY(devx_tensor_to_column(copied, "x", DEVX_COPY_NEVER, &column, &error));
    (void)TRY(devx_batch_copy_to(column, gpu, 2, &far, &error));
    (void)TRY(devx_batch_export_share_device(far, &device, &error));
    release_array(&device.array);
    (void)TRY(devx_tensor_copy_to(there, cpu, 1, &back, &error));
    memory_of_device_managers();
    devx_batch_release(&far);
    devx_batch_release(&column);
    devx_tensor_release(&seen);
    devx_tensor_release(&back);
    devx_tensor_release(&copied);
    devx_tensor_release(&there);
    devx_tensor_release(&host);
    finish_work();
}

/* In the order of a stream that the library made, which is held, closed, and destroyed behind all of it. */
static void orders_of_a_device(void) {
    int64_t stream = -1, named = 0, nulls = 0;
    devx_owner hold = {NULL, NULL};
    devx_tensor_t *tensor = NULL, *taken = NULL;
    devx_batch_t *column = NULL;
    devx_column root;
    struct DLManagedTensorVersioned *managed = NULL;
    double read[6];
    if (!TRY(devx_stream_create(gpu, &stream, &error))) {
        return;
    }
    (void)TRY(devx_stream_hold(stream, &hold, &error));
    (void)TRY(devx_stream_of_device(gpu, stream, &named, &error));
    if (TRY(devx_tensor_allocate(gpu, float64, shape, 2, stream, &tensor, &error))) {
        (void)TRY(devx_tensor_stream(tensor, stream, &named, &error));
        (void)TRY(devx_tensor_write(tensor, values, sizeof values, stream, &error));
        (void)TRY(devx_tensor_produced_on(tensor, 2, &error));
        (void)TRY(devx_tensor_check_pointers(tensor, &error));
        (void)TRY(devx_tensor_read(tensor, read, sizeof read, stream, &error));
        devx_dlpack_request const request = {1, 3, stream, DEVX_COPY_NEVER};
        (void)TRY(devx_tensor_export_share(tensor, &request, &managed, &error));
        if (managed != NULL && TRY(devx_tensor_import_on(managed, stream, &taken, &error))) {
            managed = NULL;
        }
        devx_dlpack_release(&managed);
        (void)TRY(devx_tensor_to_column(tensor, "x", DEVX_COPY_NEVER, &column, &error));
    }
    if (column != NULL) {
        CHECK_OK(devx_batch_root(column, &root, &error));
        (void)TRY(devx_batch_produced_on(column, stream, &error));
        (void)TRY(devx_batch_wait(column, 1, &error));
        (void)TRY(devx_batch_used_on(column, 2, &error));
        (void)TRY(devx_batch_check_pointers(column, &error));
        (void)TRY(devx_column_null_count_on(column, &root, stream, &nulls, &error));
    }
    devx_batch_release(&column);
    devx_tensor_release(&taken);
    devx_tensor_release(&tensor);
    if (!TRY(devx_stream_close(gpu, stream, &error))) {
        CHECK_OK(devx_stream_synchronize(gpu, stream, NULL));
        CHECK_OK(devx_stream_destroy(gpu, stream, NULL));
    }
    if (hold.release != NULL) {
        hold.release(hold.context);
    }
    finish_work();
}

static void memory_of_pools(void) {
    static double pinned[6];
    devx_manager_t *pools[2] = {NULL, NULL};
    (void)TRY(devx_manager_create_pool(-1, 0, &pools[0], &error));
    (void)TRY(devx_manager_create_shareable_pool(1000, -1, &pools[1], &error));
    for (int i = 0; i < 2; ++i) {
        devx_owner unpin = {NULL, NULL};
        devx_tensor_t *tensor = NULL;
        devx_memory_info about;
        devx_manager_statistics now;
        if (pools[i] == NULL) {
            continue;
        }
        (void)TRY(devx_manager_initialize(pools[i], 0, &error));
        (void)TRY(devx_tensor_allocate_with(pools[i], gpu, float64, shape, 2, 2, &tensor, &error));
        (void)TRY(devx_manager_pin(pools[i], 0, pinned, sizeof pinned, 0, &unpin, &error));
        (void)TRY(devx_manager_memory_info(pools[i], 0, &about, &error));
        (void)TRY(devx_manager_get_statistics(pools[i], &now, &error));
        if (unpin.release != NULL) {
            unpin.release(unpin.context);
        }
        devx_tensor_release(&tensor);
        (void)TRY(devx_manager_trim(pools[i], 0, 0, &error));
        (void)TRY(devx_manager_reset(pools[i], 0, &error));
        devx_manager_release(&pools[i]);
    }
}

/* --- the sweeps --- */

static void one_exchange(void) {
    devx_tensor_t *tensor = made_tensor();
    devx_tensor_release(&tensor);
}

TEST(allocations_can_fail) {
    CHECK_CALL(make_allocations_fail(one_exchange));
}

#define NEEDS_A_DEVICE()                                                                                               \
    do {                                                                                                               \
        if (!has_driver()) {                                                                                           \
            SKIP("there is no CUDA driver");                                                                           \
        }                                                                                                              \
    } while (0)

#define SWEEP_ON_A_DEVICE(played)                                                                                      \
    TEST(every_allocation_of_##played) {                                                                               \
        NEEDS_A_DEVICE();                                                                                              \
        played();                                                                                                      \
        struct scene const all = {NULL, played, NULL};                                                                 \
        CHECK_CALL(sweep(&all));                                                                                       \
    }

SWEEP_ON_A_DEVICE(memory_of_a_device)
SWEEP_ON_A_DEVICE(orders_of_a_device)
SWEEP_ON_A_DEVICE(memory_of_pools)

TEST(there_were_many) {
    NEEDS_A_DEVICE();
    printf("# %d faults\n", (int)injected);
    CHECK(injected > 1200);
}

CHECK_MAIN()
