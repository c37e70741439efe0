/* Device arrays with and without their schema, and schemas by themselves, with nanoarrow. */
#include "../bench.h"
#include "../data.h"
#include "table.h"

/* --- arrays --- */

static void *set_up_table(int columns) {
    return new_table(columns);
}

static void tear_down_table(void *state) {
    free_table(state);
}

static void export_device_array(struct table *table, struct ArrowDeviceArray *out) {
    struct ArrowArray array;
    export_array(table, &array);
    MUST(ArrowDeviceArrayInit(ArrowDeviceCpu(), out, &array, NULL) == NANOARROW_OK);
}

static void run_with_schema(void *state, int64_t times) {
    struct table *table = state;
    for (int64_t i = 0; i < times; ++i) {
        struct ArrowDeviceArray array;
        struct ArrowSchema schema;
        struct ArrowDeviceArrayView seen;
        export_device_array(table, &array);
        MUST(ArrowSchemaDeepCopy(&table->schema, &schema) == NANOARROW_OK);
        ArrowDeviceArrayViewInit(&seen);
        MUST(ArrowArrayViewInitFromSchema(&seen.array_view, &schema, NULL) == NANOARROW_OK);
        MUST(ArrowDeviceArrayViewSetArrayMinimal(&seen, &array, NULL) == NANOARROW_OK);
        ArrowDeviceArrayViewReset(&seen);
        ArrowArrayRelease(&array.array);
        ArrowSchemaRelease(&schema);
    }
}

/* nanoarrow's structs are the array itself, so each export makes a new one. */
static void run_schema_agreed(void *state, int64_t times) {
    struct table *table = state;
    for (int64_t i = 0; i < times; ++i) {
        struct ArrowDeviceArray array;
        export_device_array(table, &array);
        MUST(ArrowDeviceArrayViewSetArrayMinimal(&table->view, &array, NULL) == NANOARROW_OK);
        ArrowArrayRelease(&array.array);
    }
}

/* nanoarrow has no call that returns a column: its view is a struct with public fields. */
struct reading {
    struct table *table;
    struct ArrowDeviceArray array;
};

static void *set_up_reading(int columns) {
    struct reading *reading = malloc(sizeof *reading);
    MUST(reading != NULL);
    reading->table = new_table(columns);
    export_device_array(reading->table, &reading->array);
    MUST(ArrowDeviceArrayViewSetArrayMinimal(&reading->table->view, &reading->array, NULL) == NANOARROW_OK);
    return reading;
}

static void tear_down_reading(void *state) {
    struct reading *reading = state;
    ArrowArrayRelease(&reading->array.array);
    free_table(reading->table);
    free(reading);
}

static void run_columns(void *state, int64_t times) {
    const struct reading *reading = state;
    const struct ArrowArrayView *view = &reading->table->view.array_view;
    uintptr_t seen = 0;
    for (int64_t i = 0; i < times; ++i) {
        for (int64_t j = 0; j < READ_WIDTH; ++j) {
            MUST(j < view->n_children);
            seen += (uintptr_t)view->children[j]->buffer_views[1].data.data;
        }
    }
    MUST(seen == (uintptr_t)column_values * (uintptr_t)times * READ_WIDTH);
}

/* --- schemas --- */

struct schemas {
    struct ArrowSchema own;
    struct ArrowSchema foreign; /* the producer's struct, whose release does nothing during the bench */
};

static void release_nothing(struct ArrowSchema *schema) {
    schema->release = NULL;
}

static void *set_up_schemas(int columns) {
    struct schemas *schemas = malloc(sizeof *schemas);
    MUST(schemas != NULL);
    make_schema(&schemas->own, columns, mixed_formats, N_MIXED_FORMATS);
    schemas->foreign = schemas->own;
    schemas->foreign.release = release_nothing;
    return schemas;
}

static void tear_down_schemas(void *state) {
    struct schemas *schemas = state;
    ArrowSchemaRelease(&schemas->own);
    free(schemas);
}

static void run_schema_export(void *state, int64_t times) {
    const struct schemas *schemas = state;
    for (int64_t i = 0; i < times; ++i) {
        struct ArrowSchema exported;
        MUST(ArrowSchemaDeepCopy(&schemas->own, &exported) == NANOARROW_OK);
        ArrowSchemaRelease(&exported);
    }
}

/* nanoarrow keeps the struct and parses a field only on request, so the consumer requests each field once. */
static void run_schema_import(void *state, int64_t times) {
    const struct schemas *schemas = state;
    for (int64_t i = 0; i < times; ++i) {
        struct ArrowSchema source = schemas->foreign, taken;
        struct ArrowSchemaView seen;
        ArrowSchemaMove(&source, &taken);
        MUST(ArrowSchemaViewInit(&seen, &taken, NULL) == NANOARROW_OK && seen.type == NANOARROW_TYPE_STRUCT);
        for (int64_t j = 0; j < taken.n_children; ++j) {
            MUST(ArrowSchemaViewInit(&seen, taken.children[j], NULL) == NANOARROW_OK);
        }
        ArrowSchemaRelease(&taken);
    }
}

BENCHES {
    for (int i = 0; i < N_ARRAY_WIDTHS; ++i) {
        bench_add("device-array/with-schema", array_widths[i], set_up_table, run_with_schema, tear_down_table);
        bench_add("device-array/schema-agreed", array_widths[i], set_up_table, run_schema_agreed, tear_down_table);
        bench_add("device-array/made", array_widths[i], set_up_table, run_schema_agreed, tear_down_table);
    }
    bench_add("batch-columns", READ_WIDTH, set_up_reading, run_columns, tear_down_reading);
    bench_add("schema/export", SCHEMA_WIDTH, set_up_schemas, run_schema_export, tear_down_schemas);
    bench_add("schema/import", SCHEMA_WIDTH, set_up_schemas, run_schema_import, tear_down_schemas);
}
