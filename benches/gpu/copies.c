/* Copies between host and device, and on the device. Each one is waited for: bytes divided by nanoseconds are GB/s. */
#include "driver.h"

#include <string.h>

struct copy {
    int64_t stream;
    size_t bytes;
    int is_pinned;
    void *host;
    devx_tensor_t *tensor;
    cu_memory memory; /* the tensor's */
};

static void *copy_up(int bytes, int is_pinned) {
    struct copy *copy = calloc(1, sizeof *copy);
    MUST(copy != NULL);
    copy->stream = gpu_stream();
    copy->bytes = (size_t)bytes;
    copy->is_pinned = is_pinned;
    if (is_pinned) {
        CU(cu.host_alloc(&copy->host, copy->bytes, 0));
    } else {
        copy->host = malloc(copy->bytes);
        MUST(copy->host != NULL);
    }
    memset(copy->host, 1, copy->bytes); /* makes the pages present */
    copy->tensor = gpu_tensor(bytes, copy->stream);
    copy->memory = gpu_address(copy->tensor);
    OK(devx_tensor_write(copy->tensor, copy->host, copy->bytes, copy->stream, NULL));
    CU(cu.synchronize(raw(copy->stream)));
    return copy;
}

static void *pageable_up(int bytes) {
    return copy_up(bytes, 0);
}

static void *pinned_up(int bytes) {
    return copy_up(bytes, 1);
}

static void copy_down(void *state) {
    struct copy *copy = state;
    devx_tensor_release(&copy->tensor);
    gpu_stream_end(copy->stream);
    if (copy->is_pinned) CU(cu.host_free(copy->host));
    else free(copy->host);
    free(copy);
}

static void run_to_device(void *state, int64_t times) {
    const struct copy *copy = state;
    for (int64_t i = 0; i < times; ++i) {
        OK(devx_tensor_write(copy->tensor, copy->host, copy->bytes, copy->stream, NULL));
        CU(cu.synchronize(raw(copy->stream)));
    }
}

static void run_from_device(void *state, int64_t times) {
    const struct copy *copy = state;
    for (int64_t i = 0; i < times; ++i) {
        OK(devx_tensor_read(copy->tensor, copy->host, copy->bytes, copy->stream, NULL));
    }
}

/* Copies into new memory, and releases that. */
static void run_on_device(void *state, int64_t times) {
    const struct copy *copy = state;
    for (int64_t i = 0; i < times; ++i) {
        devx_tensor_t *made = NULL;
        OK(devx_tensor_copy_to(copy->tensor, gpu, copy->stream, &made, NULL));
        devx_tensor_release(&made);
        CU(cu.synchronize(raw(copy->stream)));
    }
    gpu_settle(copy->stream);
}

static void run_floor_to_device(void *state, int64_t times) {
    const struct copy *copy = state;
    for (int64_t i = 0; i < times; ++i) {
        CU(cu.to_device(copy->memory, copy->host, copy->bytes, raw(copy->stream)));
        CU(cu.synchronize(raw(copy->stream)));
    }
}

static void run_floor_from_device(void *state, int64_t times) {
    const struct copy *copy = state;
    for (int64_t i = 0; i < times; ++i) {
        CU(cu.from_device(copy->host, copy->memory, copy->bytes, raw(copy->stream)));
        CU(cu.synchronize(raw(copy->stream)));
    }
}

static void run_floor_on_device(void *state, int64_t times) {
    const struct copy *copy = state;
    for (int64_t i = 0; i < times; ++i) {
        cu_memory made = 0;
        CU(cu.alloc_async(&made, copy->bytes, raw(copy->stream)));
        CU(cu.on_device(made, copy->memory, copy->bytes, raw(copy->stream)));
        CU(cu.free_async(made, raw(copy->stream)));
        CU(cu.synchronize(raw(copy->stream)));
    }
}

static void add(const char *operation, int bytes, void *(*set_up)(int), void (*ours)(void *, int64_t),
                void (*floor)(void *, int64_t)) {
    bench_add(operation, bytes, set_up, ours, copy_down);
    bench_add_as("floor", operation, bytes, set_up, floor, copy_down);
}

BENCHES {
    static int const sizes[] = {4096, 1 << 20, 64 << 20};
    for (int i = 0; i < 3; ++i) {
        add("copy/pageable-to-device", sizes[i], pageable_up, run_to_device, run_floor_to_device);
        add("copy/pinned-to-device", sizes[i], pinned_up, run_to_device, run_floor_to_device);
        add("copy/device-to-pageable", sizes[i], pageable_up, run_from_device, run_floor_from_device);
        add("copy/device-to-pinned", sizes[i], pinned_up, run_from_device, run_floor_from_device);
        add("copy/on-device", sizes[i], pageable_up, run_on_device, run_floor_on_device);
    }
}
