#include "table.h"
#include "../bench.h"
#include "../data.h"
#include "field.h"
#include "pool.h"

#include <errno.h>
#include <string.h>

/* --- the producer's table --- */

static void free_table(void *context) {
    struct table *table = context;
    free(table->name_block);
    free(table->names);
    free(table->values);
    free((void *)table->formats);
    free(table);
}

struct table *new_table(int columns, const char *const *formats, int n_formats) {
    struct table *table = calloc(1, sizeof *table);
    MUST(table != NULL);
    const char **own_formats = calloc((size_t)columns, sizeof *own_formats);
    table->names = calloc((size_t)columns, sizeof *table->names);
    table->values = calloc((size_t)columns, sizeof *table->values);
    table->name_block = column_names(columns);
    MUST(own_formats != NULL && table->names != NULL && table->values != NULL);
    for (int i = 0; i < columns; ++i) {
        own_formats[i] = formats[i % n_formats];
        table->names[i] = table->name_block + (size_t)i * COLUMN_NAME_BYTES;
        table->values[i] = column_values;
    }
    atomic_init(&table->owner.users, 1);
    table->owner.release = free_table;
    table->owner.context = table;
    table->rows = ROWS;
    table->columns = columns;
    table->formats = own_formats;
    return table;
}

/* --- exported trees: one block each ---
 *
 * A consumer may move a child out and release it later than the root. Therefore the block counts the nodes that are not
 * released. The root releases all children that are still in place in one step.
 */

struct tree {
    struct block block;
    struct table *table;
    atomic_int_fast64_t live;
};

struct array_tree {
    struct tree tree;
    const void *no_buffer;
    /* then the children, the pointers to them, and two buffers for each */
};

struct schema_tree {
    struct tree tree;
    /* then the children and the pointers to them */
};

static _Thread_local struct pool array_pool, schema_pool;

static void drop_nodes(struct tree *tree, struct pool *pool, int64_t nodes) {
    /* If no other nodes are left, no other thread can change the count. */
    if (atomic_load_explicit(&tree->live, memory_order_acquire) != nodes &&
        atomic_fetch_sub_explicit(&tree->live, nodes, memory_order_acq_rel) != nodes) {
        return;
    }
    struct table *table = tree->table;
    pool_give(pool, tree);
    owner_drop(&table->owner);
}

static struct tree *new_tree(struct table *table, struct pool *pool, size_t bytes) {
    struct tree *tree = pool_take(pool, bytes);
    if (tree == NULL) return NULL;
    owner_share(&table->owner);
    tree->table = table;
    atomic_init(&tree->live, table->columns + 1);
    return tree;
}

static void release_array_child(struct ArrowArray *child) {
    child->release = NULL;
    drop_nodes(child->private_data, &array_pool, 1);
}

static void release_array(struct ArrowArray *root) {
    int64_t nodes = 1;
    for (int64_t i = 0; i < root->n_children; ++i) {
        struct ArrowArray *child = root->children[i];
        nodes += child->release != NULL;
        child->release = NULL;
    }
    root->release = NULL;
    drop_nodes(root->private_data, &array_pool, nodes);
}

int export_array(struct table *table, struct ArrowArray *out) {
    int64_t const n = table->columns;
    size_t const each = sizeof(struct ArrowArray) + sizeof(struct ArrowArray *) + 2 * sizeof(void *);
    struct array_tree *tree =
        (struct array_tree *)new_tree(table, &array_pool, sizeof(struct array_tree) + (size_t)n * each);
    if (tree == NULL) return ENOMEM;
    struct ArrowArray *child = (struct ArrowArray *)(tree + 1);
    struct ArrowArray **children = (struct ArrowArray **)(child + n);
    const void **buffers = (const void **)(children + n);
    tree->no_buffer = NULL;
    *out = (struct ArrowArray){table->rows, 0, 0, 1, n, &tree->no_buffer, children, NULL, release_array, tree};
    for (int64_t i = 0; i < n; ++i, ++child, buffers += 2) {
        children[i] = child;
        buffers[0] = NULL;
        buffers[1] = table->values[i];
        *child = (struct ArrowArray){table->rows, 0, 0, 2, 0, buffers, NULL, NULL, release_array_child, tree};
    }
    return 0;
}

int export_device_array(struct table *table, struct ArrowDeviceArray *out) {
    out->device_id = -1;
    out->device_type = ARROW_DEVICE_CPU;
    out->sync_event = NULL;
    memset(out->reserved, 0, sizeof out->reserved);
    return export_array(table, &out->array);
}

static void release_schema_child(struct ArrowSchema *child) {
    child->release = NULL;
    drop_nodes(child->private_data, &schema_pool, 1);
}

static void release_schema(struct ArrowSchema *root) {
    int64_t nodes = 1;
    for (int64_t i = 0; i < root->n_children; ++i) {
        struct ArrowSchema *child = root->children[i];
        nodes += child->release != NULL;
        child->release = NULL;
    }
    root->release = NULL;
    drop_nodes(root->private_data, &schema_pool, nodes);
}

int export_schema(struct table *table, struct ArrowSchema *out) {
    int64_t const n = table->columns;
    size_t const each = sizeof(struct ArrowSchema) + sizeof(struct ArrowSchema *);
    struct schema_tree *tree =
        (struct schema_tree *)new_tree(table, &schema_pool, sizeof(struct schema_tree) + (size_t)n * each);
    if (tree == NULL) return ENOMEM;
    struct ArrowSchema *child = (struct ArrowSchema *)(tree + 1);
    struct ArrowSchema **children = (struct ArrowSchema **)(child + n);
    *out = (struct ArrowSchema){"+s", "", NULL, 0, n, children, NULL, release_schema, tree};
    for (int64_t i = 0; i < n; ++i, ++child) {
        children[i] = child;
        *child = (struct ArrowSchema){table->formats[i],   table->names[i], NULL, ARROW_FLAG_NULLABLE, 0, NULL, NULL,
                                      release_schema_child, tree};
    }
    return 0;
}

/* --- the consumer --- */

struct seen_schema {
    struct block block;
    struct ArrowSchema source; /* keeps the names alive */
    int64_t columns;
    uint8_t types[];
};

struct seen {
    struct block block;
    struct ArrowArray source;
    struct seen_column columns[];
};

static _Thread_local struct pool seen_schema_pool, seen_pool;

struct seen_schema *import_schema(struct ArrowSchema *source) {
    int64_t const n = source->n_children;
    if (source->release == NULL || strcmp(source->format, "+s") != 0 || n < 0 || n > 1 << 20) return NULL;
    struct seen_schema *seen = pool_take(&seen_schema_pool, sizeof *seen + (size_t)n);
    if (seen == NULL) return NULL;
    for (int64_t i = 0; i < n; ++i) {
        const struct ArrowSchema *child = source->children[i];
        seen->types[i] = (uint8_t)type_of(child->format);
        if (seen->types[i] == UNKNOWN || !is_name(child->name) || child->release == NULL || child->n_children != 0 ||
            child->dictionary != NULL) {
            pool_give(&seen_schema_pool, seen);
            return NULL;
        }
    }
    seen->source = *source;
    seen->columns = n;
    source->release = NULL;
    return seen;
}

void release_seen_schema(struct seen_schema *seen) {
    seen->source.release(&seen->source);
    pool_give(&seen_schema_pool, seen);
}

/* Takes a column of a type that has one buffer of values. */
static inline int take_column(const struct ArrowArray *child, int64_t rows, struct seen_column *out) {
    if (child->release == NULL || child->n_buffers != 2) return 0;
    if (child->n_children != 0 || child->dictionary != NULL) return 0;
    if (child->offset < 0 || child->length < rows || child->null_count < -1) return 0;
    if (child->buffers[1] == NULL || (child->null_count > 0 && child->buffers[0] == NULL)) return 0;
    *out = (struct seen_column){child->buffers[0], child->buffers[1], child->length};
    return 1;
}

struct seen *import_array(struct ArrowArray *source, const struct seen_schema *schema) {
    int64_t const n = schema->columns;
    if (source->release == NULL || source->n_children != n || source->n_buffers != 1) return NULL;
    if (source->length < 0 || source->offset != 0 || source->null_count > 0) return NULL;
    struct seen *seen = pool_take(&seen_pool, sizeof *seen + (size_t)n * sizeof *seen->columns);
    if (seen == NULL) return NULL;
    for (int64_t i = 0; i < n; ++i) {
        if (!take_column(source->children[i], source->length, &seen->columns[i])) {
            pool_give(&seen_pool, seen);
            return NULL;
        }
    }
    seen->source = *source;
    source->release = NULL;
    return seen;
}

struct seen *import_device_array(struct ArrowDeviceArray *source, const struct seen_schema *schema) {
    /* Host memory has no event to wait for. */
    if (source->device_type != ARROW_DEVICE_CPU || source->sync_event != NULL) return NULL;
    return import_array(&source->array, schema);
}

const void *seen_values(const struct seen *seen, int64_t column) {
    return seen->columns[column].values;
}

int seen_column(const struct seen *seen, int64_t column, struct seen_column *out) {
    if (column < 0 || column >= seen->source.n_children) return EINVAL;
    *out = seen->columns[column];
    return 0;
}

void release_seen(struct seen *seen) {
    seen->source.release(&seen->source);
    pool_give(&seen_pool, seen);
}
