/* Finds the driver's functions, and does with them what all benches on a GPU need. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <time.h>

struct driver cu;

static void *context; /* the primary one of device 0 */

static const struct {
    const char *name;
    void **place;
} functions[] = {
    {"cuInit", (void **)&cu.init},
    {"cuDeviceGetCount", (void **)&cu.device_count},
    {"cuDriverGetVersion", (void **)&cu.driver_version},
    {"cuDevicePrimaryCtxRetain", (void **)&cu.retain},
    {"cuCtxSetCurrent", (void **)&cu.set_current},
    {"cuMemAlloc_v2", (void **)&cu.alloc},
    {"cuMemFree_v2", (void **)&cu.free},
    {"cuMemAllocAsync", (void **)&cu.alloc_async},
    {"cuMemFreeAsync", (void **)&cu.free_async},
    {"cuDeviceGetDefaultMemPool", (void **)&cu.default_pool},
    {"cuMemPoolSetAttribute", (void **)&cu.pool_set},
    {"cuMemHostAlloc", (void **)&cu.host_alloc},
    {"cuMemFreeHost", (void **)&cu.host_free},
    {"cuMemsetD8Async", (void **)&cu.fill},
    {"cuMemcpyHtoDAsync_v2", (void **)&cu.to_device},
    {"cuMemcpyDtoHAsync_v2", (void **)&cu.from_device},
    {"cuMemcpyDtoDAsync_v2", (void **)&cu.on_device},
    {"cuEventCreate", (void **)&cu.event_create},
    {"cuEventDestroy_v2", (void **)&cu.event_destroy},
    {"cuEventRecord", (void **)&cu.event_record},
    {"cuEventQuery", (void **)&cu.event_query},
    {"cuStreamWaitEvent", (void **)&cu.stream_wait},
    {"cuStreamSynchronize", (void **)&cu.synchronize},
    {"cuIpcGetMemHandle", (void **)&cu.ipc_get},
    {"cuIpcOpenMemHandle_v2", (void **)&cu.ipc_open},
    {"cuIpcCloseMemHandle", (void **)&cu.ipc_close},
};

const char *gpu_open(void) {
    int devices = 0;
    if (context != NULL) return NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) return "there is no CUDA driver (libcuda.so.1)";
    for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i) {
        *functions[i].place = dlsym(library, functions[i].name);
        if (*functions[i].place == NULL) return functions[i].name;
    }
    *(void **)&cu.simulated = dlsym(library, "simcuda_version");
    if (cu.init(0) != 0) return "the CUDA driver does not start (cuInit)";
    if (cu.device_count(&devices) != 0 || devices == 0) return "there is no CUDA device";
    if (cu.retain(&context, 0) != 0 || cu.set_current(context) != 0) return "device 0 has no context";
    return NULL;
}

void gpu_enter(void) {
    CU(cu.set_current(context));
}

void gpu_use(void) {
    const char *missing = gpu_open();
    if (missing != NULL) {
        fprintf(stderr, "gpu-bench: %s\n", missing);
        exit(1);
    }
    void *pool = NULL;
    uint64_t all = UINT64_MAX;
    CU(cu.default_pool(&pool, 0));
    CU(cu.pool_set(pool, POOL_RELEASE_THRESHOLD, &all));
}

int64_t gpu_stream(void) {
    int64_t stream = -1;
    gpu_use();
    OK(devx_stream_create(gpu, &stream, NULL));
    return stream;
}

void gpu_stream_end(int64_t stream) {
    gpu_settle(stream);
    OK(devx_stream_destroy(gpu, stream, NULL));
}

void *gpu_event(void) {
    void *event = NULL;
    CU(cu.event_create(&event, EVENT_DISABLE_TIMING));
    return event;
}

devx_tensor_t *gpu_tensor(int64_t bytes, int64_t stream) {
    int64_t const shape[1] = {bytes / 4};
    devx_tensor_t *tensor = NULL;
    OK(devx_tensor_allocate(gpu, float32, shape, 1, stream, &tensor, NULL));
    return tensor;
}

cu_memory gpu_address(const devx_tensor_t *tensor) {
    DLTensor view;
    OK(devx_tensor_borrow(tensor, &view, NULL, NULL));
    return (cu_memory)(uintptr_t)view.data;
}

void gpu_settle(int64_t stream) {
    struct timespec const pause = {0, 20 * 1000};
    int64_t const start = bench_now();
    if (stream != -1) CU(cu.synchronize(raw(stream)));
    while (devx_releases_waiting() > 0) nanosleep(&pause, NULL);
    bench_left_out += bench_now() - start;
}
