/* Allocation and release by memory managers, and by the driver's own calls. */
#include "driver.h"

struct memory {
    int64_t stream, bytes;
    devx_manager_t *manager;
};

static struct memory *memory_up(int bytes) {
    struct memory *memory = calloc(1, sizeof *memory);
    MUST(memory != NULL);
    memory->stream = gpu_stream();
    memory->bytes = bytes;
    return memory;
}

static void *pool_up(int bytes) {
    struct memory *memory = memory_up(bytes);
    OK(devx_manager_create_pool(-1, -1, &memory->manager, NULL));
    return memory;
}

static void *driver_up(int bytes) {
    struct memory *memory = memory_up(bytes);
    OK(devx_manager_create_driver(&memory->manager, NULL));
    return memory;
}

static void *floor_up(int bytes) {
    return memory_up(bytes);
}

static void memory_down(void *state) {
    struct memory *memory = state;
    gpu_stream_end(memory->stream);
    devx_manager_release(&memory->manager);
    free(memory);
}

/* The library frees plain memory on a thread of its own, because the driver may wait for the device. After this many
 * allocations, the bench waits until all of them are freed. This time does not count. */
enum { AT_ONCE = 64 };

static void allocate(const struct memory *memory, int64_t stream, int64_t times) {
    devx_memory_request const request = {gpu.device_type, gpu.device_id, memory->bytes, stream, 0, 0};
    for (int64_t i = 1; i <= times; ++i) {
        devx_memory given;
        OK(devx_manager_allocate(memory->manager, &request, &given, NULL));
        given.owner.release(given.owner.context);
        if (i % AT_ONCE == 0) gpu_settle(-1);
    }
    gpu_settle(memory->stream);
}

static void run_pool(void *state, int64_t times) {
    const struct memory *memory = state;
    allocate(memory, memory->stream, times);
}

static void run_driver(void *state, int64_t times) {
    allocate(state, -1, times);
}

static void run_floor_pool(void *state, int64_t times) {
    const struct memory *memory = state;
    for (int64_t i = 0; i < times; ++i) {
        cu_memory given = 0;
        CU(cu.alloc_async(&given, (size_t)memory->bytes, raw(memory->stream)));
        CU(cu.free_async(given, raw(memory->stream)));
    }
    gpu_settle(memory->stream);
}

static void run_floor_driver(void *state, int64_t times) {
    const struct memory *memory = state;
    for (int64_t i = 0; i < times; ++i) {
        cu_memory given = 0;
        CU(cu.alloc(&given, (size_t)memory->bytes));
        CU(cu.free(given));
    }
}

BENCHES {
    static int const sizes[] = {4096, 1 << 20, 64 << 20};
    for (int i = 0; i < 3; ++i) {
        bench_add("memory/pool", sizes[i], pool_up, run_pool, memory_down);
        bench_add_as("floor", "memory/pool", sizes[i], floor_up, run_floor_pool, memory_down);
        bench_add("memory/driver", sizes[i], driver_up, run_driver, memory_down);
        bench_add_as("floor", "memory/driver", sizes[i], floor_up, run_floor_driver, memory_down);
    }
}
