#include "table.h"
#include "../bench.h"
#include "../data.h"

void make_schema(struct ArrowSchema *out, int columns, const char *const *formats, int n_formats) {
    char *names = column_names(columns);
    ArrowSchemaInit(out);
    MUST(ArrowSchemaSetTypeStruct(out, columns) == NANOARROW_OK);
    for (int i = 0; i < columns; ++i) {
        struct ArrowSchema *child = out->children[i];
        MUST(ArrowSchemaSetFormat(child, formats[i % n_formats]) == NANOARROW_OK);
        MUST(ArrowSchemaSetName(child, names + (size_t)i * COLUMN_NAME_BYTES) == NANOARROW_OK);
    }
    free(names);
}

static void nothing(void *context) {
    (void)context;
}

struct table *new_table(int columns) {
    struct table *table = calloc(1, sizeof *table);
    MUST(table != NULL);
    atomic_init(&table->owner.users, 1);
    table->owner.release = nothing;
    make_schema(&table->schema, columns, &table_format, 1);
    ArrowDeviceArrayViewInit(&table->view);
    MUST(ArrowArrayViewInitFromSchema(&table->view.array_view, &table->schema, NULL) == NANOARROW_OK);
    return table;
}

void free_table(struct table *table) {
    MUST(atomic_load(&table->owner.users) == 1);
    ArrowDeviceArrayViewReset(&table->view);
    ArrowSchemaRelease(&table->schema);
    free(table);
}

static void drop_share(struct ArrowBufferAllocator *allocator, uint8_t *values, int64_t bytes) {
    (void)values, (void)bytes;
    owner_drop(allocator->private_data);
}

static void export_column(struct table *table, struct ArrowArray *out) {
    struct ArrowBuffer buffer;
    MUST(ArrowArrayInitFromType(out, NANOARROW_TYPE_INT32) == NANOARROW_OK);
    ArrowBufferInit(&buffer);
    owner_share(&table->owner);
    MUST(ArrowBufferSetAllocator(&buffer, ArrowBufferDeallocator(drop_share, &table->owner)) == NANOARROW_OK);
    buffer.data = (uint8_t *)column_values;
    buffer.size_bytes = buffer.capacity_bytes = sizeof column_values;
    MUST(ArrowArraySetBuffer(out, 1, &buffer) == NANOARROW_OK);
    out->length = ROWS;
    out->null_count = 0;
}

void export_array(struct table *table, struct ArrowArray *out) {
    int64_t const columns = table->schema.n_children;
    MUST(ArrowArrayInitFromType(out, NANOARROW_TYPE_STRUCT) == NANOARROW_OK);
    MUST(ArrowArrayAllocateChildren(out, columns) == NANOARROW_OK);
    for (int64_t i = 0; i < columns; ++i) export_column(table, out->children[i]);
    out->length = ROWS;
    out->null_count = 0;
    MUST(ArrowArrayFinishBuilding(out, NANOARROW_VALIDATION_LEVEL_NONE, NULL) == NANOARROW_OK);
}
