/* Device arrays with and without their schema, and schemas by themselves, through libdevexchange. */
#include "../bench.h"
#include "../data.h"
#include "table.h"

/* --- arrays --- */

static void *set_up_table(int columns) {
    struct table *table = malloc(sizeof *table);
    MUST(table != NULL);
    *table = make_table(columns);
    return table;
}

static void *set_up_nested(int size) {
    (void)size;
    struct table *table = malloc(sizeof *table);
    MUST(table != NULL);
    *table = make_nested_table();
    return table;
}

static void tear_down_table(void *state) {
    release_table(state);
    free(state);
}

static void run_with_schema(void *state, int64_t times) {
    const struct table *table = state;
    for (int64_t i = 0; i < times; ++i) {
        struct ArrowDeviceArray array;
        struct ArrowSchema schema;
        devx_batch_t *seen = NULL;
        MUST(devx_batch_export_share_device(table->batch, &array, NULL) == DEVX_OK);
        MUST(devx_schema_export(table->schema, &schema, NULL) == DEVX_OK);
        MUST(devx_batch_import_pair_device(&array, &schema, &seen, NULL) == DEVX_OK);
        devx_batch_release(&seen);
    }
}

static void run_schema_agreed(void *state, int64_t times) {
    const struct table *table = state;
    for (int64_t i = 0; i < times; ++i) {
        struct ArrowDeviceArray array;
        devx_batch_t *seen = NULL;
        MUST(devx_batch_export_share_device(table->batch, &array, NULL) == DEVX_OK);
        MUST(devx_batch_import_device(&array, table->schema, &seen, NULL) == DEVX_OK);
        devx_batch_release(&seen);
    }
}

/* A producer of batches of one schema over memory with an owner. */
struct producer {
    devx_schema_t *schema;
    devx_node *nodes;
    size_t n_nodes;
    int64_t released;
};

static void count_release(void *context) {
    ((struct producer *)context)->released += 1;
}

static void *set_up_producer(int columns) {
    struct producer *producer = malloc(sizeof *producer);
    MUST(producer != NULL);
    *producer = (struct producer){make_schema(columns, &table_format, 1), make_nodes(columns), (size_t)columns + 1, 0};
    return producer;
}

static void tear_down_producer(void *state) {
    struct producer *producer = state;
    devx_schema_release(&producer->schema);
    MUST(devx_ledger_outstanding() == 0);
    free(producer->nodes);
    free(producer);
}

static void run_made(void *state, int64_t times) {
    struct producer *producer = state;
    int64_t const before = producer->released;
    for (int64_t i = 0; i < times; ++i) {
        devx_owner const owner = {producer, count_release};
        devx_batch_t *batch = NULL, *seen = NULL;
        struct ArrowDeviceArray array;
        MUST(devx_batch_create(producer->schema, (DLDevice){kDLCPU, 0}, producer->nodes, producer->n_nodes, &owner,
                               &batch, NULL) == DEVX_OK);
        MUST(devx_batch_export_move_device(&batch, &array, NULL) == DEVX_OK);
        MUST(devx_batch_import_device(&array, producer->schema, &seen, NULL) == DEVX_OK);
        devx_batch_release(&seen);
    }
    MUST(producer->released == before + times);
}

static void run_columns(void *state, int64_t times) {
    const struct table *table = state;
    uintptr_t seen = 0;
    for (int64_t i = 0; i < times; ++i) {
        devx_column columns[READ_WIDTH];
        MUST(devx_batch_columns(table->batch, 0, READ_WIDTH, columns, NULL) == DEVX_OK);
        for (int64_t j = 0; j < READ_WIDTH; ++j) seen += (uintptr_t)columns[j].buffers[1];
    }
    MUST(seen == (uintptr_t)column_values * (uintptr_t)times * READ_WIDTH);
}

/* --- schemas --- */

struct schemas {
    devx_schema_t *own;
    /* The producer's struct, whose release does nothing during the bench. */
    struct ArrowSchema foreign;
    void (*release_foreign)(struct ArrowSchema *schema);
};

static void release_nothing(struct ArrowSchema *schema) {
    schema->release = NULL;
}

static void *set_up_schemas(int columns) {
    struct schemas *schemas = calloc(1, sizeof *schemas);
    MUST(schemas != NULL);
    schemas->own = make_schema(columns, mixed_formats, N_MIXED_FORMATS);
    MUST(devx_schema_export(schemas->own, &schemas->foreign, NULL) == DEVX_OK);
    schemas->release_foreign = schemas->foreign.release;
    schemas->foreign.release = release_nothing;
    return schemas;
}

static void tear_down_schemas(void *state) {
    struct schemas *schemas = state;
    schemas->foreign.release = schemas->release_foreign;
    schemas->foreign.release(&schemas->foreign);
    devx_schema_release(&schemas->own);
    MUST(devx_ledger_outstanding() == 0);
    free(schemas);
}

static void run_schema_export(void *state, int64_t times) {
    const struct schemas *schemas = state;
    for (int64_t i = 0; i < times; ++i) {
        struct ArrowSchema exported;
        MUST(devx_schema_export(schemas->own, &exported, NULL) == DEVX_OK);
        exported.release(&exported);
    }
}

static void run_schema_import(void *state, int64_t times) {
    const struct schemas *schemas = state;
    for (int64_t i = 0; i < times; ++i) {
        struct ArrowSchema source = schemas->foreign;
        devx_schema_t *seen = NULL;
        MUST(devx_schema_import(&source, &seen, NULL) == DEVX_OK);
        devx_schema_release(&seen);
    }
}

BENCHES {
    for (int i = 0; i < N_ARRAY_WIDTHS; ++i) {
        bench_add("device-array/with-schema", array_widths[i], set_up_table, run_with_schema, tear_down_table);
        bench_add("device-array/schema-agreed", array_widths[i], set_up_table, run_schema_agreed, tear_down_table);
        bench_add("device-array/made", array_widths[i], set_up_producer, run_made, tear_down_producer);
    }
    bench_add("device-array/nested", 0, set_up_nested, run_with_schema, tear_down_table);
    bench_add("batch-columns", READ_WIDTH, set_up_table, run_columns, tear_down_table);
    bench_add("schema/export", SCHEMA_WIDTH, set_up_schemas, run_schema_export, tear_down_schemas);
    bench_add("schema/import", SCHEMA_WIDTH, set_up_schemas, run_schema_import, tear_down_schemas);
}
