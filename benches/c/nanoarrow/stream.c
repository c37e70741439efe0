/* One batch of a stream, with nanoarrow. Its streams return arrays that were put into them before, so each stream is
 * filled with at most BATCHES arrays, which are all read.
 */
#include "../bench.h"
#include "../data.h"
#include "table.h"

enum { BATCHES = 100 };

static void *set_up(int columns) {
    return new_table(columns);
}

static void tear_down(void *state) {
    free_table(state);
}

static void make_stream(struct table *table, int64_t batches, struct ArrowArrayStream *out) {
    struct ArrowSchema schema;
    MUST(ArrowSchemaDeepCopy(&table->schema, &schema) == NANOARROW_OK);
    MUST(ArrowBasicArrayStreamInit(out, &schema, batches) == NANOARROW_OK);
    for (int64_t i = 0; i < batches; ++i) {
        struct ArrowArray array;
        export_array(table, &array);
        ArrowBasicArrayStreamSetArray(out, i, &array);
    }
}

static int64_t at_most(int64_t most, int64_t n) {
    return n < most ? n : most;
}

static void run_plain(void *state, int64_t times) {
    struct table *table = state;
    while (times > 0) {
        int64_t const batches = at_most(BATCHES, times);
        struct ArrowArrayStream stream;
        make_stream(table, batches, &stream);
        for (int64_t i = 0; i < batches; ++i) {
            struct ArrowArray array;
            MUST(ArrowArrayStreamGetNext(&stream, &array, NULL) == NANOARROW_OK && array.release != NULL);
            MUST(ArrowArrayViewSetArrayMinimal(&table->view.array_view, &array, NULL) == NANOARROW_OK);
            ArrowArrayRelease(&array);
        }
        ArrowArrayStreamRelease(&stream);
        times -= batches;
    }
}

static void run_device(void *state, int64_t times) {
    struct table *table = state;
    while (times > 0) {
        int64_t const batches = at_most(BATCHES, times);
        struct ArrowArrayStream plain;
        struct ArrowDeviceArrayStream stream;
        make_stream(table, batches, &plain);
        MUST(ArrowDeviceBasicArrayStreamInit(&stream, &plain, ArrowDeviceCpu()) == NANOARROW_OK);
        for (int64_t i = 0; i < batches; ++i) {
            struct ArrowDeviceArray array;
            MUST(stream.get_next(&stream, &array) == NANOARROW_OK && array.array.release != NULL);
            MUST(ArrowDeviceArrayViewSetArrayMinimal(&table->view, &array, NULL) == NANOARROW_OK);
            ArrowArrayRelease(&array.array);
        }
        stream.release(&stream);
        times -= batches;
    }
}

BENCHES {
    for (int i = 0; i < N_STREAM_WIDTHS; ++i) {
        bench_add("stream/plain", stream_widths[i], set_up, run_plain, tear_down);
        bench_add("stream/device", stream_widths[i], set_up, run_device, tear_down);
    }
}
