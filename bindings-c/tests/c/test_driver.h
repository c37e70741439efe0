/* The CUDA driver as a foreign program uses it, for tests with a foreign producer or consumer. Included first.
 */
#ifndef DEVEXCHANGE_TESTS_TEST_DRIVER_H_
#define DEVEXCHANGE_TESTS_TEST_DRIVER_H_

#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include <dlfcn.h>
#include <time.h>

#include "test_support.h"

typedef uint64_t device_pointer;
typedef int32_t driver_code;

static struct {
    void *context; /* the primary one of device 0 */
    driver_code (*init)(uint32_t flags);
    driver_code (*retain)(void **context, int32_t device);
    driver_code (*set_current)(void *context);
    driver_code (*allocate)(device_pointer *out, size_t bytes);
    driver_code (*free)(device_pointer memory);
    driver_code (*copy)(device_pointer to, device_pointer from, size_t bytes, void *stream);
    driver_code (*read)(void *to, device_pointer from, size_t bytes);
    driver_code (*fill)(device_pointer to, uint8_t value, size_t bytes, void *stream);
    driver_code (*wait)(void *stream, void *event, uint32_t flags);
    driver_code (*synchronize)(void *stream);
    /* Only the simulated driver has these. */
    uint64_t (*calls)(const char *function);
    size_t (*findings)(void);
    int32_t (*fail)(const char *function, uint64_t nth, uint32_t code, int32_t sticky);
} driver;

static inline int has_driver(void) {
    int32_t count = 0;
    return devx_device_count(kDLCUDA, &count, NULL) == DEVX_OK;
}

#define NEEDS_DRIVER()                                                                                                 \
    do {                                                                                                               \
        if (!has_driver()) {                                                                                           \
            SKIP("there is no CUDA driver");                                                                           \
        }                                                                                                              \
        CHECK_CALL(use_driver());                                                                                      \
    } while (0)

#define NEEDS_NO_DRIVER()                                                                                              \
    do {                                                                                                               \
        if (has_driver()) {                                                                                            \
            SKIP("there is a CUDA driver");                                                                            \
        }                                                                                                              \
    } while (0)

#define FIND(library, member, name)                                                                                    \
    do {                                                                                                               \
        *(void **)&driver.member = dlsym((library), (name));                                                           \
        CHECK_MSG(driver.member != NULL, "%s is not there", (name));                                                   \
    } while (0)

/* Makes the primary context of device 0 current, as programs that use the driver do. */
static inline void use_driver(void) {
    if (driver.init == NULL) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        CHECK(library != NULL);
        FIND(library, retain, "cuDevicePrimaryCtxRetain");
        FIND(library, set_current, "cuCtxSetCurrent");
        FIND(library, allocate, "cuMemAlloc_v2");
        FIND(library, free, "cuMemFree_v2");
        FIND(library, copy, "cuMemcpyDtoDAsync_v2");
        FIND(library, read, "cuMemcpyDtoH_v2");
        FIND(library, fill, "cuMemsetD8Async");
        FIND(library, wait, "cuStreamWaitEvent");
        FIND(library, synchronize, "cuStreamSynchronize");
        FIND(library, init, "cuInit");
        *(void **)&driver.calls = dlsym(library, "simcuda_calls");
        *(void **)&driver.findings = dlsym(library, "simcuda_findings");
        *(void **)&driver.fail = dlsym(library, "simcuda_fail");
        CHECK_INT(driver.init(0), 0);
        CHECK_INT(driver.retain(&driver.context, 0), 0);
        CHECK_INT(driver.set_current(driver.context), 0);
    }
}

static inline void *raw_stream(int64_t stream) {
    return (void *)(uintptr_t)stream;
}

static inline device_pointer pointer_of(const void *memory) {
    return (device_pointer)(uintptr_t)memory;
}

/* --- short ways --- */

static const DLDevice gpu = {kDLCUDA, 0};

enum { SIX = 6 };
static const double six[SIX] = {0, 1, 2, 3, 4, 5};
static const int64_t shape_of_six[] = {2, 3};

/* A producer's memory. The simulated driver reports a finding if it is freed under running work. */
struct foreign_memory {
    atomic_int releases;
    device_pointer address;
    driver_code freed;
};

/* On a thread of the library there may be no current context, and a driver may not free without one. */
static inline void free_foreign_memory(void *context) {
    struct foreign_memory *memory = (struct foreign_memory *)context;
    memory->freed = driver.set_current(driver.context);
    if (memory->freed == 0) {
        memory->freed = driver.free(memory->address);
    }
    atomic_fetch_add(&memory->releases, 1);
}

/* Waits for releases that wait for work, or for the device: they come on a thread of the library. */
static inline void settle(void) {
    struct timespec const pause = {0, 1000 * 1000};
    for (int i = 0; devx_releases_waiting() > 0 && i < 120 * 1000; ++i) {
        nanosleep(&pause, NULL);
    }
    CHECK_INT(devx_releases_waiting(), 0);
}

/* The same, and checks that nothing is left over. */
static inline void finish_releases(void) {
    CHECK_CALL(settle());
    CHECK_INT(devx_releases_lost(), 0);
    CHECK_NOTHING_OUTSTANDING();
    if (driver.findings != NULL) {
        CHECK_INT(driver.findings(), 0);
    }
}

#endif
