/* Streams of device 0, and six numbers in their order: shared by the tests of tensors, batches and releases there.
 */
#ifndef DEVEXCHANGE_TESTS_STREAMS_H_
#define DEVEXCHANGE_TESTS_STREAMS_H_

#include "test_driver.h"

static inline void make_stream(int64_t *out) {
    CHECK_OK(devx_stream_create(gpu, out, &error));
    CHECK(*out > 2);
}

static inline void destroy_stream(int64_t stream) {
    CHECK_OK(devx_stream_destroy(gpu, stream, &error));
}

/* 2 x 3 float64 on the device, written on the stream. */
static inline void make_six(int64_t stream, devx_tensor_t **out) {
    CHECK_OK(devx_tensor_allocate(gpu, float64, shape_of_six, 2, stream, out, &error));
    CHECK_OK(devx_tensor_write(*out, six, sizeof six, stream, &error));
}

/* The same, by a copy that is queued and that nobody has waited for. (A write would be waited for by the host.) */
static inline void queue_six(int64_t stream, devx_tensor_t **out) {
    devx_tensor_t *source = NULL;
    CHECK_CALL(make_six(stream, &source));
    CHECK_OK(devx_tensor_copy_to(source, gpu, stream, out, &error));
    devx_tensor_release(&source);
}

static inline void check_six(const devx_tensor_t *tensor, int64_t stream) {
    double values[SIX] = {0};
    CHECK_OK(devx_tensor_read(tensor, values, sizeof values, stream, &error));
    CHECK(memcmp(values, six, sizeof six) == 0);
}

/* What the consumer of an export does: its own work on its stream, which nobody makes wait any more. */
static inline void consume_six(const void *memory, int64_t stream) {
    device_pointer copy = 0;
    double values[SIX] = {0};
    CHECK_INT(driver.allocate(&copy, sizeof values), 0);
    CHECK_INT(driver.copy(copy, pointer_of(memory), sizeof values, raw_stream(stream)), 0);
    CHECK_INT(driver.synchronize(raw_stream(stream)), 0);
    CHECK_INT(driver.read(values, copy, sizeof values), 0);
    CHECK_INT(driver.free(copy), 0);
    CHECK(memcmp(values, six, sizeof six) == 0);
}

#endif
