/* Batches of ours, made of fields and nodes.
 */
#ifndef DEVEXCHANGE_TESTS_OWN_BATCH_H_
#define DEVEXCHANGE_TESTS_OWN_BATCH_H_

#include "test_support.h"

static inline devx_field field(const char *format, const char *name, int64_t n_children) {
    devx_field const made = {format, name, NULL, DEVX_FIELD_NULLABLE, n_children, 0};
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

#endif
