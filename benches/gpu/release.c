/* What a release costs its caller while work that uses the memory is still queued on another stream. Only `used_on` and
 * `devx_tensor_release` count; making the tensors and waiting for the work do not.
 */
#include "driver.h"

enum { AT_ONCE = 64, FILLS = 16, BYTES = 4096 };

struct releases {
    int64_t stream, worker;
    size_t bytes; /* of the memory that the queued work fills */
    cu_memory memory;
    devx_tensor_t *tensors[AT_ONCE];
    cu_memory given[AT_ONCE];
    void *events[AT_ONCE];
};

static void *releases_up(int size) {
    (void)size;
    struct releases *releases = calloc(1, sizeof *releases);
    MUST(releases != NULL);
    releases->stream = gpu_stream();
    releases->worker = gpu_stream();
    /* Enough for some 0.2 ms of work on a GPU; the simulated driver fills with the processor, so it gets less. */
    releases->bytes = cu.simulated == NULL ? (size_t)64 << 20 : (size_t)64 << 10;
    CU(cu.alloc(&releases->memory, releases->bytes));
    for (int k = 0; k < AT_ONCE; ++k) releases->events[k] = gpu_event();
    return releases;
}

static void releases_down(void *state) {
    struct releases *releases = state;
    gpu_stream_end(releases->worker);
    gpu_stream_end(releases->stream);
    for (int k = 0; k < AT_ONCE; ++k) CU(cu.event_destroy(releases->events[k]));
    CU(cu.free(releases->memory));
    free(releases);
}

static void queue_work(const struct releases *releases) {
    for (int k = 0; k < FILLS; ++k) CU(cu.fill(releases->memory, 1, releases->bytes, raw(releases->worker)));
}

static void let_go(void *memory) {
    gpu_enter();
    CU(cu.free((cu_memory)(uintptr_t)memory));
}

/* A tensor over another producer's memory, whose owner the library releases when the work is done. */
static devx_tensor_t *foreign_tensor(void) {
    int64_t const shape[1] = {BYTES / 4};
    cu_memory memory = 0;
    devx_tensor_t *tensor = NULL;
    CU(cu.alloc(&memory, BYTES));
    void *const data = (void *)(uintptr_t)memory;
    DLTensor const description = {data, gpu, 1, float32, (int64_t *)shape, NULL, 0};
    devx_owner const owner = {data, let_go};
    OK(devx_tensor_create(&description, 0, &owner, &tensor, NULL));
    return tensor;
}

static devx_tensor_t *pool_tensor(int64_t stream) {
    return gpu_tensor(BYTES, stream);
}

static void release_all(struct releases *releases, int is_foreign, int64_t times) {
    while (times > 0) {
        int const n = times < AT_ONCE ? (int)times : AT_ONCE;
        int64_t const start = bench_now();
        for (int k = 0; k < n; ++k) {
            releases->tensors[k] = is_foreign ? foreign_tensor() : pool_tensor(releases->stream);
        }
        queue_work(releases);
        bench_left_out += bench_now() - start;
        for (int k = 0; k < n; ++k) {
            OK(devx_tensor_used_on(releases->tensors[k], releases->worker, NULL));
            devx_tensor_release(&releases->tensors[k]);
        }
        gpu_settle(releases->worker);
        gpu_settle(releases->stream);
        times -= n;
    }
}

static void run_pool(void *state, int64_t times) {
    release_all(state, 0, times);
}

static void run_foreign(void *state, int64_t times) {
    release_all(state, 1, times);
}

/* The floor: gives the memory back to the pool after the work, which takes an event. */
static void run_floor_pool(void *state, int64_t times) {
    struct releases *releases = state;
    while (times > 0) {
        int const n = times < AT_ONCE ? (int)times : AT_ONCE;
        int64_t const start = bench_now();
        for (int k = 0; k < n; ++k) CU(cu.alloc_async(&releases->given[k], BYTES, raw(releases->stream)));
        queue_work(releases);
        bench_left_out += bench_now() - start;
        for (int k = 0; k < n; ++k) {
            CU(cu.event_record(releases->events[k], raw(releases->worker)));
            CU(cu.stream_wait(raw(releases->stream), releases->events[k], 0));
            CU(cu.free_async(releases->given[k], raw(releases->stream)));
        }
        gpu_settle(releases->worker);
        gpu_settle(releases->stream);
        times -= n;
    }
}

/* The floor: records an event, which shows when the work is done. */
static void run_floor_foreign(void *state, int64_t times) {
    const struct releases *releases = state;
    while (times > 0) {
        int const n = times < AT_ONCE ? (int)times : AT_ONCE;
        int64_t const start = bench_now();
        queue_work(releases);
        bench_left_out += bench_now() - start;
        for (int k = 0; k < n; ++k) CU(cu.event_record(releases->events[k], raw(releases->worker)));
        gpu_settle(releases->worker);
        times -= n;
    }
}

BENCHES {
    bench_add("release/pool-pending", 0, releases_up, run_pool, releases_down);
    bench_add_as("floor", "release/pool-pending", 0, releases_up, run_floor_pool, releases_down);
    bench_add("release/foreign-pending", 0, releases_up, run_foreign, releases_down);
    bench_add_as("floor", "release/foreign-pending", 0, releases_up, run_floor_foreign, releases_down);
}
