/* A table with the least work: trees of Arrow structs in one block each, which is used again. */
#ifndef TABLE_H_
#define TABLE_H_

#include "../owner.h"

#include <arrow/c/device.h>

/* The producer's: columns over memory that `owner` keeps alive. */
struct table {
    struct owner owner;
    int64_t rows;
    int64_t columns;
    const char *const *formats; /* one for each column */
    const char **names;
    const void **values;
    char *name_block;
};

/* With the formats by turns. Whoever has it drops its owner. */
struct table *new_table(int columns, const char *const *formats, int n_formats);

/* Both take a share of the owner; 0, or ENOMEM. */
int export_array(struct table *table, struct ArrowArray *out);
int export_schema(struct table *table, struct ArrowSchema *out);
int export_device_array(struct table *table, struct ArrowDeviceArray *out);

/* The consumer's: what it took, and its columns. */
struct seen;
struct seen_schema;

/* Both move the source into what they return, or leave it alone and return NULL. A table's columns have to be of known
 * types; as many as `schema` has, which is kept by the caller.
 */
struct seen_schema *import_schema(struct ArrowSchema *source);
struct seen *import_array(struct ArrowArray *source, const struct seen_schema *schema);
struct seen *import_device_array(struct ArrowDeviceArray *source, const struct seen_schema *schema);
const void *seen_values(const struct seen *seen, int64_t column);

/* What a consumer asks a column for; 0, or EINVAL. */
struct seen_column {
    const void *validity;
    const void *values;
    int64_t length;
};
int seen_column(const struct seen *seen, int64_t column, struct seen_column *out);
void release_seen(struct seen *seen);
void release_seen_schema(struct seen_schema *schema);

#endif
