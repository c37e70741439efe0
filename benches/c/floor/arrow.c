/* Device arrays with and without their schema, and schemas by themselves, with the least work. */
#include "../bench.h"
#include "../data.h"
#include "table.h"

/* --- arrays --- */

struct arrays {
    struct table *table;
    struct seen_schema *agreed;
};

static void *set_up_arrays(int columns) {
    struct arrays *arrays = calloc(1, sizeof *arrays);
    struct ArrowSchema schema;
    MUST(arrays != NULL);
    arrays->table = new_table(columns, &table_format, 1);
    MUST(export_schema(arrays->table, &schema) == 0);
    arrays->agreed = import_schema(&schema);
    MUST(arrays->agreed != NULL);
    return arrays;
}

static void tear_down_arrays(void *state) {
    struct arrays *arrays = state;
    release_seen_schema(arrays->agreed);
    MUST(atomic_load(&arrays->table->owner.users) == 1);
    owner_drop(&arrays->table->owner);
    free(arrays);
}

/* Exports and imports the array and the schema. Always inline, so that it costs no call. */
__attribute__((always_inline)) static inline struct seen *there_and_back(const struct arrays *arrays,
                                                                         struct seen_schema **seen_schema) {
    struct ArrowDeviceArray array;
    struct ArrowSchema schema;
    MUST(export_device_array(arrays->table, &array) == 0);
    MUST(export_schema(arrays->table, &schema) == 0);
    *seen_schema = import_schema(&schema);
    MUST(*seen_schema != NULL);
    struct seen *seen = import_device_array(&array, *seen_schema);
    MUST(seen != NULL);
    return seen;
}

static void run_with_schema(void *state, int64_t times) {
    const struct arrays *arrays = state;
    for (int64_t i = 0; i < times; ++i) {
        struct seen_schema *seen_schema;
        struct seen *seen = there_and_back(arrays, &seen_schema);
        release_seen(seen);
        release_seen_schema(seen_schema);
    }
}

/* Same as with-schema, but also reads the address of each column's values. */
static void run_read(void *state, int64_t times) {
    const struct arrays *arrays = state;
    uintptr_t sum = 0;
    for (int64_t i = 0; i < times; ++i) {
        struct seen_schema *seen_schema;
        struct seen *seen = there_and_back(arrays, &seen_schema);
        for (int64_t j = 0; j < arrays->table->columns; ++j) {
            struct seen_column column;
            MUST(seen_column(seen, j, &column) == 0);
            sum += (uintptr_t)column.values;
        }
        release_seen(seen);
        release_seen_schema(seen_schema);
    }
    MUST(sum == (uintptr_t)column_values * (uintptr_t)times * (uintptr_t)arrays->table->columns);
}

static void run_schema_agreed(void *state, int64_t times) {
    const struct arrays *arrays = state;
    for (int64_t i = 0; i < times; ++i) {
        struct ArrowDeviceArray array;
        MUST(export_device_array(arrays->table, &array) == 0);
        struct seen *seen = import_device_array(&array, arrays->agreed);
        MUST(seen != NULL);
        release_seen(seen);
    }
}

static void count_release(void *context) {
    *(int64_t *)context += 1;
}

/* As long as it runs, the exported array has the only share of the owner, and releases it. */
static void run_made(void *state, int64_t times) {
    struct table *table = ((const struct arrays *)state)->table;
    int64_t const users = atomic_exchange(&table->owner.users, 0);
    void (*const release)(void *context) = table->owner.release;
    int64_t released = 0;
    table->owner.release = count_release;
    table->owner.context = &released;
    run_schema_agreed(state, times);
    MUST(released == times);
    table->owner.release = release;
    table->owner.context = table;
    atomic_store(&table->owner.users, users);
}

struct reading {
    struct arrays *arrays;
    struct seen *seen;
};

static void *set_up_reading(int columns) {
    struct reading *reading = malloc(sizeof *reading);
    struct ArrowDeviceArray array;
    MUST(reading != NULL);
    reading->arrays = set_up_arrays(columns);
    MUST(export_device_array(reading->arrays->table, &array) == 0);
    reading->seen = import_device_array(&array, reading->arrays->agreed);
    MUST(reading->seen != NULL);
    return reading;
}

static void tear_down_reading(void *state) {
    struct reading *reading = state;
    release_seen(reading->seen);
    tear_down_arrays(reading->arrays);
    free(reading);
}

static void run_columns(void *state, int64_t times) {
    const struct reading *reading = state;
    uintptr_t seen = 0;
    for (int64_t i = 0; i < times; ++i) {
        for (int64_t j = 0; j < READ_WIDTH; ++j) {
            struct seen_column column;
            MUST(seen_column(reading->seen, j, &column) == 0);
            seen += (uintptr_t)column.values;
        }
    }
    MUST(seen == (uintptr_t)column_values * (uintptr_t)times * READ_WIDTH);
}

/* --- schemas --- */

struct schemas {
    struct table *table;
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
    schemas->table = new_table(columns, mixed_formats, N_MIXED_FORMATS);
    MUST(export_schema(schemas->table, &schemas->foreign) == 0);
    schemas->release_foreign = schemas->foreign.release;
    schemas->foreign.release = release_nothing;
    return schemas;
}

static void tear_down_schemas(void *state) {
    struct schemas *schemas = state;
    schemas->foreign.release = schemas->release_foreign;
    schemas->foreign.release(&schemas->foreign);
    MUST(atomic_load(&schemas->table->owner.users) == 1);
    owner_drop(&schemas->table->owner);
    free(schemas);
}

static void run_schema_export(void *state, int64_t times) {
    const struct schemas *schemas = state;
    for (int64_t i = 0; i < times; ++i) {
        struct ArrowSchema exported;
        MUST(export_schema(schemas->table, &exported) == 0);
        exported.release(&exported);
    }
}

static void run_schema_import(void *state, int64_t times) {
    const struct schemas *schemas = state;
    for (int64_t i = 0; i < times; ++i) {
        struct ArrowSchema source = schemas->foreign;
        struct seen_schema *seen = import_schema(&source);
        MUST(seen != NULL);
        release_seen_schema(seen);
    }
}

BENCHES {
    for (int i = 0; i < N_ARRAY_WIDTHS; ++i) {
        bench_add("device-array/with-schema", array_widths[i], set_up_arrays, run_with_schema, tear_down_arrays);
        bench_add("device-array/schema-agreed", array_widths[i], set_up_arrays, run_schema_agreed, tear_down_arrays);
        bench_add("device-array/made", array_widths[i], set_up_arrays, run_made, tear_down_arrays);
    }
    for (int i = 0; i < N_RUST_WIDTHS; ++i) {
        bench_add("rust/batch-read", rust_widths[i], set_up_arrays, run_read, tear_down_arrays);
    }
    bench_add("batch-columns", READ_WIDTH, set_up_reading, run_columns, tear_down_reading);
    bench_add("schema/export", SCHEMA_WIDTH, set_up_schemas, run_schema_export, tear_down_schemas);
    bench_add("schema/import", SCHEMA_WIDTH, set_up_schemas, run_schema_import, tear_down_schemas);
}
