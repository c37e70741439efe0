/* Releases on any thread, and threads that share one object. */
#define _POSIX_C_SOURCE 200809L /* barriers */
#include "test_support.h"

#include <limits.h>
#include <pthread.h>

enum { THREADS = 8, ROUNDS = 500, COLUMNS = 12 };

static int64_t const shape_2x3[2] = {2, 3};

/* Runs `body` on threads that start together, each with the element that has its number, and waits for them. */
static void run_together(void *(*body)(void *), void *elements, size_t size, int n) {
    pthread_t threads[COLUMNS + 1];
    for (int i = 0; i < n; ++i) {
        if (pthread_create(&threads[i], NULL, body, (char *)elements + (size_t)i * size) != 0) {
            abort();
        }
    }
    for (int i = 0; i < n; ++i) {
        pthread_join(threads[i], NULL);
    }
}

/* Runs `body` on one other thread. */
static void run_elsewhere(void *(*body)(void *), void *argument) {
    run_together(body, argument, 0, 1);
}

/* --- on a thread that the library has never seen --- */

static pthread_t released_on;

static void note_thread(void *context) {
    released_on = pthread_self();
    count_release(context);
}

static void *release_tensor(void *tensor) {
    devx_tensor_release(tensor);
    return NULL;
}
static void *release_batch(void *batch) {
    devx_batch_release(batch);
    return NULL;
}
static void *release_exported_tensor(void *managed) {
    devx_dlpack_release(managed);
    return NULL;
}
static void *release_exported_array(void *array) {
    release_array(array);
    return NULL;
}
static void *release_exported_schema(void *schema) {
    release_schema(schema);
    return NULL;
}

TEST(a_tensor_is_released_on_the_thread_that_lets_go_last) {
    static double values[6];
    struct tally tally = {0};
    int64_t shape[2] = {2, 3};
    DLTensor const description = {values, {kDLCPU, 0}, 2, {kDLFloat, 64, 1}, shape, NULL, 0};
    devx_owner const owner = {&tally, note_thread};
    devx_tensor_t *tensor = NULL;
    struct DLManagedTensorVersioned *managed = NULL;
    CHECK_OK(devx_tensor_create(&description, 0, &owner, &tensor, &error));
    CHECK_OK(devx_tensor_export_share(tensor, NULL, &managed, &error));
    run_elsewhere(release_tensor, &tensor);
    CHECK_PTR(tensor, NULL);
    CHECK_INT(tally.releases, 0);
    run_elsewhere(release_exported_tensor, &managed);
    CHECK_PTR(managed, NULL);
    CHECK_INT(tally.releases, 1);
    CHECK(!pthread_equal(released_on, pthread_self()));
    CHECK_NOTHING_OUTSTANDING();
}

TEST(a_batch_goes_part_by_part_on_other_threads) {
    struct tally tally = {0};
    struct ArrowSchema described, exported_schema;
    struct ArrowArray array, exported, child;
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = NULL;
    foreign_batch(&tally, 4, &described, &array);
    CHECK_OK(devx_schema_import(&described, &schema, &error));
    CHECK_OK(devx_batch_import(&array, schema, &batch, &error));
    CHECK_OK(devx_schema_export(schema, &exported_schema, &error));
    CHECK_OK(devx_batch_export_share(batch, &exported, &error));
    devx_schema_release(&schema);
    ARROW_MOVE(exported.children[1], &child);
    run_elsewhere(release_batch, &batch);
    run_elsewhere(release_exported_array, &exported);
    CHECK_INT(tally.releases, 0);
    CHECK(memcmp(child.buffers[2], "abb", 3) == 0);
    run_elsewhere(release_exported_array, &child);
    CHECK_INT(tally.releases, 3);
    run_elsewhere(release_exported_schema, &exported_schema);
    CHECK_INT(tally.releases, 6);
    CHECK_INT(tally.live, 0);
    CHECK_NOTHING_OUTSTANDING();
}

/* --- many at once --- */

struct worker {
    pthread_barrier_t *start;
    const devx_tensor_t *tensor;
    const devx_batch_t *batch;
    int failed;
};

/* Shares, exports, imports, moves and releases objects that all threads share. */
static void *use_tensor(void *argument) {
    struct worker *self = argument;
    pthread_barrier_wait(self->start);
    for (int i = 0; i < ROUNDS && !self->failed; ++i) {
        devx_tensor_t *shared = NULL, *imported = NULL;
        struct DLManagedTensorVersioned *managed = NULL;
        struct DLManagedTensor *legacy = NULL;
        self->failed = devx_tensor_share(self->tensor, &shared, NULL) != DEVX_OK ||
                       devx_tensor_export_share(shared, NULL, &managed, NULL) != DEVX_OK ||
                       devx_tensor_import(managed, &imported, NULL) != DEVX_OK ||
                       devx_tensor_export_move_legacy(&imported, NULL, &legacy, NULL) != DEVX_OK ||
                       ((double *)legacy->dl_tensor.data)[5] != 5.0;
        devx_tensor_release(&shared);
        devx_dlpack_release_legacy(&legacy);
    }
    return NULL;
}

static void *use_batch(void *argument) {
    struct worker *self = argument;
    pthread_barrier_wait(self->start);
    for (int i = 0; i < ROUNDS && !self->failed; ++i) {
        devx_batch_t *shared = NULL, *imported = NULL;
        devx_schema_t *schema = NULL;
        struct ArrowDeviceArray exported;
        struct ArrowArray child;
        self->failed = devx_batch_share(self->batch, &shared, NULL) != DEVX_OK ||
                       devx_batch_schema(shared, &schema, NULL) != DEVX_OK ||
                       devx_batch_export_share_device(shared, &exported, NULL) != DEVX_OK ||
                       devx_batch_import_device(&exported, schema, &imported, NULL) != DEVX_OK ||
                       devx_batch_export_move_device(&imported, &exported, NULL) != DEVX_OK;
        if (!self->failed) {
            ARROW_MOVE(exported.array.children[i % 2], &child);
            exported.array.release(&exported.array);
            self->failed = child.length != 4;
            child.release(&child);
        }
        devx_schema_release(&schema);
        devx_batch_release(&shared);
    }
    return NULL;
}

static int start_workers(void *(*body)(void *), const devx_tensor_t *tensor, const devx_batch_t *batch) {
    pthread_barrier_t start;
    struct worker workers[THREADS];
    int failed = 0;
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; ++i) {
        workers[i] = (struct worker){&start, tensor, batch, 0};
    }
    run_together(body, workers, sizeof *workers, THREADS);
    pthread_barrier_destroy(&start);
    for (int i = 0; i < THREADS; ++i) {
        failed += workers[i].failed;
    }
    return failed;
}

TEST(threads_share_a_tensor) {
    struct tally tally = {0};
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_tensor_import(foreign_tensor(&tally, 2, shape_2x3, NULL), &tensor, &error));
    CHECK_INT(start_workers(use_tensor, tensor, NULL), 0);
    CHECK_INT(tally.releases, 0);
    CHECK_INT(devx_ledger_outstanding(), 1);
    devx_tensor_release(&tensor);
    CHECK_INT(tally.releases, 1);
    CHECK_NOTHING_OUTSTANDING();
}

TEST(threads_share_a_batch) {
    struct tally tally = {0};
    struct ArrowSchema described;
    struct ArrowArray array;
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = NULL;
    foreign_batch(&tally, 4, &described, &array);
    CHECK_OK(devx_schema_import(&described, &schema, &error));
    CHECK_OK(devx_batch_import(&array, schema, &batch, &error));
    devx_schema_release(&schema);
    CHECK_INT(start_workers(use_batch, NULL, batch), 0);
    CHECK_INT(tally.releases, 0);
    CHECK_INT(devx_ledger_outstanding(), 2);
    devx_batch_release(&batch);
    CHECK_INT(tally.releases, 6);
    CHECK_NOTHING_OUTSTANDING();
}

/* --- the parts of one tree, each on a thread of its own, at the same time --- */

struct part {
    pthread_barrier_t *start;
    struct ArrowArray array;
};

static void *release_part(void *argument) {
    struct part *part = argument;
    pthread_barrier_wait(part->start);
    part->array.release(&part->array);
    return NULL;
}

static devx_batch_t *wide_batch(struct tally *tally) {
    struct ArrowSchema described = foreign_schema(tally, "+s", "");
    struct ArrowArray array = foreign_array(tally, 3, 1);
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = NULL;
    for (int i = 0; i < COLUMNS; ++i) {
        add_schema_child(&described, foreign_schema(tally, "i", "x"));
        add_array_child(&array, foreign_numbers(tally, 3));
    }
    if (devx_schema_import(&described, &schema, &error) == DEVX_OK &&
        devx_batch_import(&array, schema, &batch, &error) != DEVX_OK) {
        batch = NULL;
    }
    devx_schema_release(&schema);
    return batch;
}

TEST(the_children_of_a_tree_go_at_the_same_time) {
    for (int round = 0; round < 50; ++round) {
        struct tally tally = {0};
        struct part parts[COLUMNS + 1];
        pthread_barrier_t start;
        devx_batch_t *batch = wide_batch(&tally);
        CHECK_MADE(batch);
        pthread_barrier_init(&start, NULL, COLUMNS + 1);
        CHECK_OK(devx_batch_export_move(&batch, &parts[COLUMNS].array, &error));
        for (int i = 0; i < COLUMNS; ++i) {
            ARROW_MOVE(parts[COLUMNS].array.children[i], &parts[i].array);
        }
        for (int i = 0; i <= COLUMNS; ++i) {
            parts[i].start = &start;
        }
        run_together(release_part, parts, sizeof *parts, COLUMNS + 1);
        pthread_barrier_destroy(&start);
        CHECK_INT(tally.releases, 2 * (COLUMNS + 1));
        CHECK_INT(tally.live, 0);
        CHECK_NOTHING_OUTSTANDING();
    }
}

/* --- a small stack --- */

enum { LEVELS = 64, STACK = 64 * 1024 };

/* Lists of lists, down to a number, in a column: 64 levels with the one of the root. */
static devx_batch_t *deep_batch(void) {
    static int32_t const offsets[2] = {0, 1};
    static void const *const list[2] = {NULL, offsets}, *const number[2] = {NULL, offsets}, *const batch[1] = {NULL};
    devx_field fields[LEVELS];
    devx_node nodes[LEVELS];
    devx_schema_t *schema = NULL;
    devx_batch_t *out = NULL;
    for (int i = 0; i < LEVELS; ++i) {
        fields[i] = (devx_field){i == LEVELS - 1 ? "i" : "+l", "l", NULL, DEVX_FIELD_NULLABLE, i < LEVELS - 1, 0};
        nodes[i] = (devx_node){1, 0, 0, i == LEVELS - 1 ? number : list, 2};
    }
    fields[0].format = "+s";
    nodes[0] = (devx_node){1, 0, 0, batch, 1};
    if (devx_schema_create(fields, LEVELS, &schema, &error) == DEVX_OK &&
        devx_batch_create(schema, (DLDevice){kDLCPU, 0}, nodes, LEVELS, NULL, &out, &error) != DEVX_OK) {
        out = NULL;
    }
    devx_schema_release(&schema);
    return out;
}

static void *use_deep_batch(void *batch) {
    char text[8 * LEVELS];
    size_t length;
    devx_error say;
    devx_column column;
    devx_batch_t *copy = NULL, *imported = NULL;
    devx_schema_t *schema = NULL;
    struct ArrowSchema described;
    struct ArrowArray array;
    int const failed = devx_batch_root(batch, &column, &say) ||
                       devx_column_text(batch, &column, 0, text, sizeof text, &length, &say) ||
                       devx_batch_copy(batch, &copy, &say) || devx_batch_schema(copy, &schema, &say) ||
                       devx_schema_export(schema, &described, &say) || devx_batch_export_move(&copy, &array, &say) ||
                       devx_batch_import_pair(&array, &described, &imported, &say);
    devx_batch_release(&imported);
    devx_schema_release(&schema);
    return failed || length != strlen("{\"l\": }0") + 2 * (LEVELS - 2) ? batch : NULL;
}

/* The README says that this stack is enough. */
TEST(the_deepest_batch_needs_little_stack) {
    devx_batch_t *batch = deep_batch();
    pthread_attr_t attributes;
    pthread_t thread;
    void *failed = batch;
    CHECK_MADE(batch);
    pthread_attr_init(&attributes);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK_INT(pthread_attr_setstacksize(&attributes, STACK > PTHREAD_STACK_MIN ? STACK : PTHREAD_STACK_MIN), 0);
#endif
    CHECK_INT(pthread_create(&thread, &attributes, use_deep_batch, batch), 0);
    pthread_join(thread, &failed);
    CHECK_PTR(failed, NULL);
    pthread_attr_destroy(&attributes);
    devx_batch_release(&batch);
    CHECK_NOTHING_OUTSTANDING();
}

/* --- errors --- */

struct refusal {
    int number;
    int wrong;
};

/* Each thread makes its own mistake, and gets the error for that one. */
static void *make_mistakes(void *argument) {
    struct refusal *self = argument;
    char expected[32];
    devx_error record;
    int64_t shape[1] = {-self->number};
    DLTensor const description = {NULL, {kDLCPU, 0}, 1, {kDLFloat, 64, 1}, shape, NULL, 0};
    snprintf(expected, sizeof expected, "shape[0] is %d", -self->number);
    for (int i = 0; i < ROUNDS; ++i) {
        devx_tensor_t *tensor = NULL;
        self->wrong += devx_tensor_create(&description, 0, NULL, &tensor, &record) != DEVX_INVALID_SHAPE ||
                       strstr(record.message, expected) == NULL || tensor != NULL;
    }
    return NULL;
}

TEST(each_thread_is_told_of_its_own_mistakes) {
    struct refusal refusals[THREADS];
    for (int i = 0; i < THREADS; ++i) {
        refusals[i] = (struct refusal){100 + i, 0};
    }
    run_together(make_mistakes, refusals, sizeof *refusals, THREADS);
    for (int i = 0; i < THREADS; ++i) {
        CHECK_INT(refusals[i].wrong, 0);
    }
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
