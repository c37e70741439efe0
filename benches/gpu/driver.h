/* The CUDA driver as a program without a toolkit calls it: found at run time, a function pointer for each call. */
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
    /* Of the simulated driver only. */
    const char *(*simulated)(void);
} cu;

/* Finds the driver and makes the primary context of device 0 current, once. What is missing, or NULL. */
const char *gpu_open(void);

/* The same, for a bench: without a driver there is none. The device's default pool keeps what it has, as ours does: by
 * itself it gives everything back whenever a stream is waited for.
 */
void gpu_use(void);

#define CU(call) MUST((call) == 0)
#define OK(call) MUST((call) == DEVX_OK)

enum { EVENT_DISABLE_TIMING = 2, IPC_LAZY_PEER_ACCESS = 1, POOL_RELEASE_THRESHOLD = 4 };

static DLDevice const gpu = {kDLCUDA, 0};
static DLDataType const float32 = {kDLFloat, 32, 1};

/* A stream of devexchange's, as the driver has it. */
static inline void *raw(int64_t stream) {
    return (void *)(uintptr_t)stream;
}

int64_t gpu_stream(void);
void gpu_stream_end(int64_t stream);
void *gpu_event(void);

/* A tensor of so many bytes of float32, from the device's pool and in the order of a stream; plain memory for -1. */
devx_tensor_t *gpu_tensor(int64_t bytes, int64_t stream);
cu_memory gpu_address(const devx_tensor_t *tensor);

/* Waits, in time that does not count, until a stream is idle (none for -1) and no release is waiting. */
void gpu_settle(int64_t stream);

#endif
