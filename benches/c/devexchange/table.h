/* A producer's table: a schema and a batch that stays prepared. */
#ifndef TABLE_H_
#define TABLE_H_

#include <devexchange.h>

struct table {
    devx_schema_t *schema;
    devx_batch_t *batch;
};

/* A schema with so many columns; the formats by turns. */
devx_schema_t *make_schema(int columns, const char *const *formats, int n_formats);
struct table make_table(int columns);
struct table make_nested_table(void);
/* The last thing of a bench: nothing may be outstanding then. */
void release_table(struct table *table);

#endif
