/* Export and import of a nested batch with the least work: one block for the exported arrays, one for the exported
 * schema, and one for the consumer's nodes.
 */
#include "../bench.h"
#include "../data.h"
#include "../owner.h"
#include "field.h"
#include "pool.h"

#include <arrow/c/device.h>

/* --- the producer: all nodes of a tree are in one block, which counts those that are not released --- */

enum { CHILDREN = N_NESTED };

struct arrays {
    struct block block;
    struct owner *owner;
    atomic_int_fast64_t live;
    struct ArrowArray nodes[N_NESTED];
    struct ArrowArray *children[CHILDREN];
};

struct schemas {
    struct block block;
    struct owner *owner;
    atomic_int_fast64_t live;
    struct ArrowSchema nodes[N_NESTED];
    struct ArrowSchema *children[CHILDREN];
};

static _Thread_local struct pool arrays_pool, schemas_pool;

/* Whether these nodes were the last ones. If no others are left, no other thread can change the count. */
static inline int are_last(atomic_int_fast64_t *live, int64_t nodes) {
    return atomic_load_explicit(live, memory_order_acquire) == nodes ||
           atomic_fetch_sub_explicit(live, nodes, memory_order_acq_rel) == nodes;
}

/* Marks a node, and the nodes below it that are still in place, as released. Returns how many these were. */
static int64_t end_array(struct ArrowArray *node) {
    int64_t ended = 1;
    node->release = NULL;
    for (int64_t i = 0; i < node->n_children; ++i) {
        if (node->children[i]->release != NULL) ended += end_array(node->children[i]);
    }
    if (node->dictionary != NULL && node->dictionary->release != NULL) ended += end_array(node->dictionary);
    return ended;
}

static int64_t end_schema(struct ArrowSchema *node) {
    int64_t ended = 1;
    node->release = NULL;
    for (int64_t i = 0; i < node->n_children; ++i) {
        if (node->children[i]->release != NULL) ended += end_schema(node->children[i]);
    }
    if (node->dictionary != NULL && node->dictionary->release != NULL) ended += end_schema(node->dictionary);
    return ended;
}

static void release_array(struct ArrowArray *node) {
    struct arrays *arrays = node->private_data;
    if (!are_last(&arrays->live, end_array(node))) return;
    struct owner *owner = arrays->owner;
    pool_give(&arrays_pool, arrays);
    owner_drop(owner);
}

static void release_schema(struct ArrowSchema *node) {
    struct schemas *schemas = node->private_data;
    if (!are_last(&schemas->live, end_schema(node))) return;
    struct owner *owner = schemas->owner;
    pool_give(&schemas_pool, schemas);
    owner_drop(owner);
}

/* The position in a tree that is being filled: the next node, and the next place for a pointer to a child. */
struct cursor {
    int node, child;
};

static struct ArrowArray *fill_array(struct arrays *arrays, struct cursor *at) {
    const struct nested_node *from = &nested[at->node];
    struct ArrowArray *to = &arrays->nodes[at->node++], **children = &arrays->children[at->child];
    at->child += (int)from->n_children;
    *to = (struct ArrowArray){ROWS, 0, 0, from->n_buffers, from->n_children, (const void **)from->buffers, children,
                              NULL, release_array, arrays};
    for (int64_t i = 0; i < from->n_children; ++i) children[i] = fill_array(arrays, at);
    if (from->has_dictionary) to->dictionary = fill_array(arrays, at);
    return to;
}

static struct ArrowSchema *fill_schema(struct schemas *schemas, struct cursor *at) {
    const struct nested_node *from = &nested[at->node];
    struct ArrowSchema *to = &schemas->nodes[at->node++], **children = &schemas->children[at->child];
    at->child += (int)from->n_children;
    *to = (struct ArrowSchema){from->format,   from->name, NULL, ARROW_FLAG_NULLABLE, from->n_children, children, NULL,
                               release_schema, schemas};
    for (int64_t i = 0; i < from->n_children; ++i) children[i] = fill_schema(schemas, at);
    if (from->has_dictionary) to->dictionary = fill_schema(schemas, at);
    return to;
}

static __attribute__((noinline)) void export_arrays(struct owner *owner, struct ArrowDeviceArray *out) {
    struct arrays *arrays = pool_take(&arrays_pool, sizeof *arrays);
    MUST(arrays != NULL);
    owner_share(owner);
    arrays->owner = owner;
    atomic_init(&arrays->live, N_NESTED);
    *out = (struct ArrowDeviceArray){*fill_array(arrays, &(struct cursor){0, 0}), -1, ARROW_DEVICE_CPU, NULL, {0}};
}

static __attribute__((noinline)) void export_schemas(struct owner *owner, struct ArrowSchema *out) {
    struct schemas *schemas = pool_take(&schemas_pool, sizeof *schemas);
    MUST(schemas != NULL);
    owner_share(owner);
    schemas->owner = owner;
    atomic_init(&schemas->live, N_NESTED);
    *out = *fill_schema(schemas, &(struct cursor){0, 0});
}

/* --- the consumer, which takes trees of at most MOST_NODES nodes --- */

enum { MOST_NODES = 32 };

struct seen_nodes {
    struct block block;
    struct ArrowArray array;
    struct ArrowSchema schema;
    int64_t n;
    struct seen_node {
        int64_t length;
        const void *buffers[3];
        const char *name;
        enum type type;
    } nodes[MOST_NODES];
};

static _Thread_local struct pool seen_pool;

/* How many buffers an array of each type has. */
static int64_t const buffers_of[] = {[INT32] = 2, [INT64] = 2, [FLOAT32] = 2, [FLOAT64] = 2, [TEXT] = 3, [BOOL] = 2,
                                     [BINARY] = 3, [DATE32] = 2, [LIST] = 2, [STRUCT] = 1};

static enum type nested_type_of(const char *format) {
    if (format[0] == '+' && format[1] != '\0' && format[2] == '\0') {
        return format[1] == 's' ? STRUCT : format[1] == 'l' ? LIST : UNKNOWN;
    }
    return type_of(format);
}

static int see(struct seen_nodes *seen, const struct ArrowArray *array, const struct ArrowSchema *schema,
               int64_t rows) {
    enum type const type = nested_type_of(schema->format);
    if (seen->n == MOST_NODES || type == UNKNOWN || !is_name(schema->name)) return 0;
    if (array->release == NULL || schema->release == NULL || array->n_buffers != buffers_of[type]) return 0;
    if (array->n_children != schema->n_children || (type == LIST && array->n_children != 1)) return 0;
    if (type != LIST && type != STRUCT && array->n_children != 0) return 0;
    if (array->offset < 0 || array->length < rows || array->null_count < -1) return 0;
    if ((array->dictionary == NULL) != (schema->dictionary == NULL)) return 0;
    if (array->null_count > 0 && array->buffers[0] == NULL) return 0;
    struct seen_node *node = &seen->nodes[seen->n++];
    *node = (struct seen_node){array->length, {array->buffers[0]}, schema->name, type};
    for (int64_t i = 1; i < array->n_buffers; ++i) {
        if (array->buffers[i] == NULL) return 0;
        node->buffers[i] = array->buffers[i];
    }
    for (int64_t i = 0; i < array->n_children; ++i) {
        if (!see(seen, array->children[i], schema->children[i], type == STRUCT ? array->length : 0)) return 0;
    }
    return array->dictionary == NULL || see(seen, array->dictionary, schema->dictionary, 0);
}

static __attribute__((noinline)) struct seen_nodes *import(struct ArrowDeviceArray *array, struct ArrowSchema *schema) {
    if (array->device_type != ARROW_DEVICE_CPU || array->sync_event != NULL) return NULL;
    struct seen_nodes *seen = pool_take(&seen_pool, sizeof *seen);
    if (seen == NULL) return NULL;
    seen->n = 0;
    if (!see(seen, &array->array, schema, 0) || seen->nodes[0].type != STRUCT) {
        pool_give(&seen_pool, seen);
        return NULL;
    }
    seen->array = array->array;
    seen->schema = *schema;
    array->array.release = NULL;
    schema->release = NULL;
    return seen;
}

static __attribute__((noinline)) void release(struct seen_nodes *seen) {
    seen->array.release(&seen->array);
    seen->schema.release(&seen->schema);
    pool_give(&seen_pool, seen);
}

/* --- the bench --- */

static void nothing(void *context) {
    (void)context;
}

static void *set_up(int size) {
    (void)size;
    struct owner *owner = malloc(sizeof *owner);
    MUST(owner != NULL);
    atomic_init(&owner->users, 1);
    owner->release = nothing;
    return owner;
}

static void run(void *state, int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
        struct ArrowDeviceArray array;
        struct ArrowSchema schema;
        export_arrays(state, &array);
        export_schemas(state, &schema);
        struct seen_nodes *seen = import(&array, &schema);
        MUST(seen != NULL && seen->n == N_NESTED);
        release(seen);
    }
}

static void tear_down(void *state) {
    struct owner *owner = state;
    MUST(atomic_load(&owner->users) == 1);
    free(owner);
}

BENCHES {
    bench_add("device-array/nested", 0, set_up, run, tear_down);
}
