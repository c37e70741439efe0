/* Batches of this library, made from fields and nodes.
 */
#ifndef DEVEXCHANGE_TESTS_OWN_BATCH_H_
#define DEVEXCHANGE_TESTS_OWN_BATCH_H_

#include "test_support.h"

static inline devx_field field(const char *format, const char *name, int64_t n_children) {
    devx_field const made = {format, name, NULL, DEVX_FIELD_NULLABLE, n_children, 0};
    return made;
}

static inline devx_node node(int64_t length, int64_t offset, int64_t null_count, const void *const *buffers, int64_t n) {
    devx_node const made = {length, null_count, offset, buffers, n};
    return made;
}

/* A batch of these fields and nodes, or NULL. */
static inline devx_batch_t *create(const devx_field *fields, const devx_node *nodes, size_t n, struct tally *tally) {
    devx_owner const owner = counting_owner(tally);
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = NULL;
    if (devx_schema_create(fields, n, &schema, &error) != DEVX_OK) {
        return NULL;
    }
    if (devx_batch_create(schema, cpu, nodes, n, &owner, &batch, &error) != DEVX_OK) {
        batch = NULL;
    }
    devx_schema_release(&schema);
    return batch;
}

/* Exports the batch as a device array and a schema, and imports both again. */
static inline devx_batch_t *round_trip(devx_batch_t *batch) {
    devx_schema_t *schema = NULL, *imported = NULL;
    struct ArrowSchema described;
    struct ArrowDeviceArray array;
    devx_batch_t *back = NULL;
    if (devx_batch_schema(batch, &schema, &error) != DEVX_OK) {
        return NULL;
    }
    if (devx_schema_export(schema, &described, &error) == DEVX_OK &&
        devx_schema_import(&described, &imported, &error) == DEVX_OK &&
        devx_batch_export_move_device(&batch, &array, &error) == DEVX_OK &&
        devx_batch_import_device(&array, imported, &back, &error) != DEVX_OK) {
        back = NULL;
    }
    devx_schema_release(&schema);
    devx_schema_release(&imported);
    return back;
}

static inline void check_bytes(const devx_batch_t *batch, const devx_column *column, int64_t row, const char *expected) {
    const char *bytes = NULL;
    size_t length = 0;
    CHECK_OK(devx_column_bytes(batch, column, row, &bytes, &length, &error));
    CHECK_INT(length, strlen(expected));
    CHECK(length == 0 || memcmp(bytes, expected, length) == 0);
}

#endif
