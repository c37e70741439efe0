/* The CUDA driver for a program without the toolkit: found at run time, with a function pointer for each call. */
#ifndef GPU_DRIVER_H_
#define GPU_DRIVER_H_

#include "../c/bench.h"

#include <devexchange.h>

typedef uint64_t cu_memory; /* CUdeviceptr */
typedef int cu_result;      /* CUresult: 0 is success */

struct cu_ipc_handle {
    char bytes[64];
};

extern struct driver {
    cu_result (*init)(unsigned flags);
    cu_result (*device_count)(int *out);
    cu_result (*driver_version)(int *out);
    cu_result (*retain)(void **context, int device);
    cu_result (*set_current)(void *context);
    cu_result (*alloc)(cu_memory *out, size_t bytes);
    cu_result (*free)(cu_memory memory);
    cu_result (*alloc_async)(cu_memory *out, size_t bytes, void *stream);
    cu_result (*free_async)(cu_memory memory, void *stream);
    cu_result (*default_pool)(void **pool, int device);
    cu_result (*pool_set)(void *pool, int attribute, void *value);
    cu_result (*host_alloc)(void **out, size_t bytes, unsigned flags);
    cu_result (*host_free)(void *memory);
    cu_result (*fill)(cu_memory to, unsigned char value, size_t bytes, void *stream);
    cu_result (*to_device)(cu_memory to, const void *from, size_t bytes, void *stream);
    cu_result (*from_device)(void *to, cu_memory from, size_t bytes, void *stream);
    cu_result (*on_device)(cu_memory to, cu_memory from, size_t bytes, void *stream);
    cu_result (*event_create)(void **out, unsigned flags);
    cu_result (*event_destroy)(void *event);
    cu_result (*event_record)(void *event, void *stream);
    cu_result (*event_query)(void *event);
    cu_result (*stream_wait)(void *stream, void *event, unsigned flags);
    cu_result (*synchronize)(void *stream);
    cu_result (*ipc_get)(struct cu_ipc_handle *out, cu_memory memory);
    cu_result (*ipc_open)(cu_memory *out, struct cu_ipc_handle handle, unsigned flags);
    cu_result (*ipc_close)(cu_memory memory);
    /* NULL, except in the simulated driver. */
    const char *(*simulated)(void);
} cu;

/* Finds the driver and makes the primary context of device 0 current, once. Returns what is missing, or NULL. */
const char *gpu_open(void);

/* Same as gpu_open, but ends the program if something is missing. Also makes the device's default pool keep its memory,
 * as ours does: otherwise that pool gives its unused memory back whenever a stream is waited for.
 */
void gpu_use(void);

#define CU(call) MUST((call) == 0)
#define OK(call) MUST((call) == DEVX_OK)

enum { EVENT_DISABLE_TIMING = 2, IPC_LAZY_PEER_ACCESS = 1, POOL_RELEASE_THRESHOLD = 4 };

static DLDevice const gpu = {kDLCUDA, 0};
static DLDataType const float32 = {kDLFloat, 32, 1};

/* The driver's handle of a stream of devexchange. */
static inline void *raw(int64_t stream) {
    return (void *)(uintptr_t)stream;
}

/* Makes the context current on a thread of the library, where a driver may not free without one. */
void gpu_enter(void);

int64_t gpu_stream(void);
void gpu_stream_end(int64_t stream);
void *gpu_event(void);

/* A float32 tensor, from the device's pool and in the order of the stream; plain memory for -1. */
devx_tensor_t *gpu_tensor(int64_t bytes, int64_t stream);
cu_memory gpu_address(const devx_tensor_t *tensor);

/* Waits until the stream is idle (-1: no stream) and no release is waiting. This time does not count. */
void gpu_settle(int64_t stream);

#endif
