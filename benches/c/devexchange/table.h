/* A producer's table: a schema and a batch, made once and exported many times. */
#ifndef TABLE_H_
#define TABLE_H_

#include <devexchange.h>

struct table {
    devx_schema_t *schema;
    devx_batch_t *batch;
};

/* A schema whose columns have the formats in turn. */
devx_schema_t *make_schema(int columns, const char *const *formats, int n_formats);
struct table make_table(int columns);
/* The nodes of such a table, which the caller frees. */
devx_node *make_nodes(int columns);
struct table make_nested_table(void);
/* A batch of one column. */
struct table *new_one_column(const char *format, int64_t length, const void *const *buffers, int64_t n_buffers);
void free_one_column(void *table);
/* The last call of a bench: also checks that nothing else is outstanding. */
void release_table(struct table *table);

#endif
