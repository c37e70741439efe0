/* Releases behind the work that uses the memory, and streams that are closed behind both. It is run like test_stream.c: the
 * simulated driver reports a release that comes too early as a finding.
 */
#include "streams.h"

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
        CHECK(tries < 12 * 1000);
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

/* The last test: what is lost stays lost. */
TEST(memory_that_the_driver_does_not_take_back_is_lost) {
    NEEDS_DRIVER();
    if (driver.fail == NULL) {
        SKIP("only the simulated driver fails on request");
    }
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_tensor_allocate(gpu, float64, shape_of_six, 2, -1, &tensor, &error));
    CHECK_INT(devx_releases_lost(), 0);
    CHECK_INT(driver.fail("cuMemFree_v2", 1, 999, 0), 0);
    devx_tensor_release(&tensor);
    CHECK_CALL(settle());
    CHECK_INT(devx_releases_lost(), 1);
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
