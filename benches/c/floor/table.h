/* Export and import of a table with the least work: each tree of Arrow structs is one block, which is used again. */
#ifndef TABLE_H_
#define TABLE_H_

#include "../owner.h"

#include <arrow/c/device.h>

/* The producer's table: columns over memory that `owner` keeps alive. */
struct table {
    struct owner owner;
    int64_t rows;
    int64_t columns;
    const char *const *formats; /* one for each column */
    const char **names;
    const void **values;
    char *name_block;
};

/* A table whose columns have the formats in turn. The caller drops the table's owner. */
struct table *new_table(int columns, const char *const *formats, int n_formats);

/* Each export takes a share of the owner, and returns 0 or ENOMEM. */
int export_array(struct table *table, struct ArrowArray *out);
int export_schema(struct table *table, struct ArrowSchema *out);
int export_device_array(struct table *table, struct ArrowDeviceArray *out);

/* What the consumer keeps of an array and of a schema. */
struct seen;
struct seen_schema;

/* Each import moves the source into its result, or leaves it alone and returns NULL. The columns must be of known
 * types, and as many as `schema` has, which the caller keeps.
 */
struct seen_schema *import_schema(struct ArrowSchema *source);
struct seen *import_array(struct ArrowArray *source, const struct seen_schema *schema);
struct seen *import_device_array(struct ArrowDeviceArray *source, const struct seen_schema *schema);
const void *seen_values(const struct seen *seen, int64_t column);

/* What a consumer needs of a column. `seen_column` returns 0, or EINVAL if there is no such column. */
struct seen_column {
    const void *validity;
    const void *values;
    int64_t length;
};
int seen_column(const struct seen *seen, int64_t column, struct seen_column *out);
void release_seen(struct seen *seen);
void release_seen_schema(struct seen_schema *schema);

#endif
