/* A producer's table of int32 columns, made and exported with nanoarrow. */
#ifndef TABLE_H_
#define TABLE_H_

#include "../owner.h"

#include <nanoarrow.h>
#include <nanoarrow_device.h>

struct table {
    struct owner owner;
    struct ArrowSchema schema;
    struct ArrowDeviceArrayView view; /* the consumer's view for the agreed schema, set to one array after the other */
};

/* A schema whose columns have the formats in turn. */
void make_schema(struct ArrowSchema *out, int columns, const char *const *formats, int n_formats);

struct table *new_table(int columns);
void free_table(struct table *table);

/* Exports an array over the same values. Each column has a share of the owner, as it may be released by itself. */
void export_array(struct table *table, struct ArrowArray *out);

#endif
