/* The floor of Java: the C floor behind native methods (JNI) that take and return numbers. A method with several
 * results writes them to the caller's memory.
 */
#include "../c/allocations.h"
#include "../c/data.h"
#include "../c/floor/table.h"
#include "../c/floor/tensor.h"

#include <jni.h>
#include <stdlib.h>

#define FLOOR(type, name, ...)                                                                                         \
    JNIEXPORT type JNICALL Java_dev_devexchange_Floor_##name(JNIEnv *env, jclass self, ##__VA_ARGS__)
#define UNUSED (void)env, (void)self

/* In the preloaded library; NULL without it. */
#pragma weak bench_allocations

FLOOR(jlong, allocations) {
    UNUSED;
    return bench_allocations == NULL ? -1 : bench_allocations();
}

FLOOR(jlong, nothing) {
    UNUSED;
    return 0;
}

FLOOR(void, eightLongs, jlong out) {
    UNUSED;
    for (jlong i = 0; i < 8; ++i) ((jlong *)out)[i] = i;
}

/* --- a tensor --- */

FLOOR(jlong, producer) {
    UNUSED;
    struct producer *producer = malloc(sizeof *producer);
    if (producer != NULL) make_producer(producer);
    return (jlong)producer;
}

FLOOR(void, endProducer, jlong producer) {
    UNUSED;
    free((void *)producer);
}

FLOOR(jlong, exportTensor, jlong producer) {
    UNUSED;
    return (jlong)export_tensor((struct producer *)producer);
}

FLOOR(jlong, importTensor, jlong handed) {
    UNUSED;
    return (jlong)import_tensor((struct DLManagedTensorVersioned *)handed);
}

FLOOR(void, releaseTensor, jlong seen) {
    UNUSED;
    release_tensor((struct DLManagedTensorVersioned *)seen);
}

/* --- a batch --- */

FLOOR(jlong, table, jint columns) {
    UNUSED;
    return (jlong)new_table(columns, &table_format, 1);
}

FLOOR(void, endTable, jlong table) {
    UNUSED;
    owner_drop(&((struct table *)table)->owner);
}

FLOOR(void, exportBatch, jlong table, jlong array, jlong schema) {
    UNUSED;
    if (export_array((struct table *)table, (struct ArrowArray *)array) != 0 ||
        export_schema((struct table *)table, (struct ArrowSchema *)schema) != 0) {
        abort();
    }
}

struct held {
    struct seen *seen;
    struct seen_schema *schema;
};

/* Writes two numbers to `out`, after which there is room for one number per column. */
FLOOR(void, importBatch, jlong array, jlong schema, jlong out) {
    UNUSED;
    struct held *held = (struct held *)out;
    held->schema = import_schema((struct ArrowSchema *)schema);
    held->seen = held->schema == NULL ? NULL : import_array((struct ArrowArray *)array, held->schema);
    if (held->seen == NULL) abort();
}

/* Writes the address of each column's values. */
FLOOR(void, readBatch, jlong out, jint columns) {
    UNUSED;
    struct held *held = (struct held *)out;
    const void **addresses = (const void **)(held + 1);
    for (int64_t i = 0; i < columns; ++i) addresses[i] = seen_values(held->seen, i);
}

FLOOR(void, releaseBatch, jlong out) {
    UNUSED;
    struct held *held = (struct held *)out;
    release_seen(held->seen);
    release_seen_schema(held->schema);
}
