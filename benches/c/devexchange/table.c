#include "table.h"
#include "../bench.h"
#include "../data.h"

static DLDevice const cpu = {kDLCPU, 0};

devx_schema_t *make_schema(int columns, const char *const *formats, int n_formats) {
    char *names = column_names(columns);
    devx_field *fields = calloc((size_t)columns + 1, sizeof *fields);
    devx_schema_t *schema = NULL;
    MUST(fields != NULL);
    fields[0] = (devx_field){"+s", "", NULL, 0, columns, 0};
    for (int i = 0; i < columns; ++i) {
        const char *name = names + (size_t)i * COLUMN_NAME_BYTES;
        fields[i + 1] = (devx_field){formats[i % n_formats], name, NULL, DEVX_FIELD_NULLABLE, 0, 0};
    }
    MUST(devx_schema_create(fields, (size_t)columns + 1, &schema, NULL) == DEVX_OK);
    free(fields);
    free(names);
    return schema;
}

devx_node *make_nodes(int columns) {
    static const void *const none[] = {NULL}, *const buffers[] = {NULL, column_values};
    devx_node *nodes = calloc((size_t)columns + 1, sizeof *nodes);
    MUST(nodes != NULL);
    nodes[0] = (devx_node){ROWS, 0, 0, none, 1};
    for (int i = 0; i < columns; ++i) nodes[i + 1] = (devx_node){ROWS, 0, 0, buffers, 2};
    return nodes;
}

struct table make_table(int columns) {
    devx_node *nodes = make_nodes(columns);
    struct table table = {make_schema(columns, &table_format, 1), NULL};
    MUST(devx_batch_create(table.schema, cpu, nodes, (size_t)columns + 1, NULL, &table.batch, NULL) == DEVX_OK);
    free(nodes);
    return table;
}

struct table make_nested_table(void) {
    devx_field fields[N_NESTED];
    devx_node nodes[N_NESTED];
    struct table table = {NULL, NULL};
    for (int i = 0; i < N_NESTED; ++i) {
        const struct nested_node *node = &nested[i];
        fields[i] = (devx_field){node->format,     node->name, NULL, DEVX_FIELD_NULLABLE, node->n_children,
                                 node->has_dictionary};
        nodes[i] = (devx_node){ROWS, 0, 0, node->buffers, node->n_buffers};
    }
    MUST(devx_schema_create(fields, N_NESTED, &table.schema, NULL) == DEVX_OK);
    MUST(devx_batch_create(table.schema, cpu, nodes, N_NESTED, NULL, &table.batch, NULL) == DEVX_OK);
    return table;
}

void release_table(struct table *table) {
    devx_batch_release(&table->batch);
    devx_schema_release(&table->schema);
    MUST(devx_ledger_outstanding() == 0);
}

struct table *new_one_column(const char *format, int64_t length, const void *const *buffers, int64_t n_buffers) {
    static const void *const none[] = {NULL};
    devx_node const nodes[] = {{length, 0, 0, none, 1}, {length, 0, 0, buffers, n_buffers}};
    struct table *table = malloc(sizeof *table);
    MUST(table != NULL);
    *table = (struct table){make_schema(1, &format, 1), NULL};
    MUST(devx_batch_create(table->schema, cpu, nodes, 2, NULL, &table->batch, NULL) == DEVX_OK);
    return table;
}

void free_one_column(void *table) {
    release_table(table);
    free(table);
}
