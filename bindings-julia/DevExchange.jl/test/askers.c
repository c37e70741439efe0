/*
 * A foreign caller of a memory manager, on a thread that Julia did not start, and the release of a CUDA array, which
 * such a thread may call. The functions of the C API come as addresses, because this library does not link to
 * libdevexchange.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "devexchange/cuda_array.h"
#include "devexchange/types.h"

typedef devx_status (*allocate_fn)(const void *, const devx_memory_request *, devx_memory *, devx_error *);
typedef devx_status (*pin_fn)(const void *, int32_t, void *, size_t, uint32_t, devx_owner *, devx_error *);
typedef devx_status (*device_fn)(const void *, int32_t, devx_error *);
typedef devx_status (*info_fn)(const void *, int32_t, devx_memory_info *, devx_error *);
typedef devx_status (*handle_fn)(const void *, const void *, devx_ipc_handle *, devx_error *);
typedef devx_status (*trim_fn)(const void *, int32_t, size_t, devx_error *);
typedef devx_status (*defer_fn)(const void *, devx_error *);

struct asker {
    const void *manager;
    int64_t rounds; /* allocations, one after the other */
    int64_t bytes; /* of each allocation */
    int64_t all; /* 1: also calls every other function, once */
    int64_t got; /* allocations whose memory could be written and read */
    int64_t free_bytes, total_bytes, handle_bytes; /* results of memory_info and ipc_handle */
    int64_t code; /* status of the first call that failed; no call follows it */
    int64_t done;
    allocate_fn allocate;
    pin_fn pin;
    device_fn initialize, reset;
    info_fn memory_info;
    handle_fn ipc_handle;
    trim_fn trim;
    defer_fn defer_cleanup, resume_cleanup;
    char text[512];
    pthread_t thread;
};

/* Allocates host memory, writes it, reads it and gives it back on this thread. */
static devx_status one_round(struct asker *own, int64_t round, devx_error *error) {
    devx_memory_request const request = {1, 0, own->bytes, -1, 0, 0};
    devx_memory memory;
    devx_status const status = own->allocate(own->manager, &request, &memory, error);
    if (status != 0) return status;
    unsigned char *const bytes = (unsigned char *)memory.address;
    memset(bytes, (int)(round % 251), (size_t)own->bytes);
    own->got += bytes[0] == round % 251 && bytes[own->bytes - 1] == round % 251;
    if (memory.owner.release) memory.owner.release(memory.owner.context);
    return 0;
}

static devx_status everything_else(struct asker *own, devx_error *error) {
    devx_memory_info info;
    devx_ipc_handle handle;
    devx_owner owner;
    static char pinned[64];
    devx_status status = own->initialize(own->manager, 3, error);
    if (status == 0) status = own->memory_info(own->manager, 4, &info, error);
    if (status == 0) status = own->ipc_handle(own->manager, pinned, &handle, error);
    if (status == 0) status = own->pin(own->manager, 5, pinned, sizeof pinned, 2, &owner, error);
    if (status == 0 && owner.release) owner.release(owner.context);
    if (status == 0) status = own->defer_cleanup(own->manager, error);
    if (status == 0) status = own->resume_cleanup(own->manager, error);
    if (status == 0) status = own->trim(own->manager, 6, 77, error);
    if (status == 0) status = own->reset(own->manager, 7, error);
    if (status != 0) return status;
    own->free_bytes = info.free_bytes;
    own->total_bytes = info.total_bytes;
    own->handle_bytes = handle.handle[0] + handle.handle[63] + handle.offset + handle.bytes + handle.device_id;
    return 0;
}

int foreign_ask(struct asker *own) {
    devx_error error;
    memset(&error, 0, sizeof error);
    for (int64_t round = 0; own->code == 0 && round < own->rounds; ++round) own->code = one_round(own, round, &error);
    if (own->code == 0 && own->all) own->code = everything_else(own, &error);
    snprintf(own->text, sizeof own->text, "%s", error.message);
    __atomic_store_n(&own->done, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static void *ask_on_thread(void *own) {
    foreign_ask((struct asker *)own);
    return NULL;
}

/* Runs foreign_ask on a thread of its own, which sets `done` at the end. */
int foreign_ask_on_thread(struct asker *own) {
    int const code = pthread_create(&own->thread, NULL, ask_on_thread, own);
    return code ? code : pthread_detach(own->thread);
}

/* Runs foreign_ask on a thread of its own, and waits for that thread. */
int foreign_ask_and_join(struct asker *own) {
    int const code = pthread_create(&own->thread, NULL, ask_on_thread, own);
    return code ? code : pthread_join(own->thread, NULL);
}

/* The release of a CUDA array. It counts its calls where `private_data` points to. */
void foreign_release_cuda_array(devx_cuda_array *array) {
    __atomic_add_fetch((int64_t *)array->private_data, 1, __ATOMIC_SEQ_CST);
    array->release = NULL;
}
