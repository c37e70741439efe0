/* Threads keep blocks that they gave back: after the first round, no exchange allocates anything, whatever it is. */
#define _GNU_SOURCE
#include "counting.h"

#include <malloc.h>
#include <pthread.h>

enum { ROUNDS = 100, WARM = 2 };

static int64_t const shape_2x3[2] = {2, 3};
static int const widths[] = {1, 10, 100, 1000, 10000};
static int32_t const numbers[2] = {1, 2};

static void make_table(int columns, devx_schema_t **schema, devx_batch_t **batch) {
    size_t const n = (size_t)columns + 1;
    devx_field *fields = calloc(n, sizeof *fields);
    devx_node *nodes = calloc(n, sizeof *nodes);
    const void *const validity[1] = {NULL}, *const buffers[2] = {NULL, numbers};
    fields[0] = (devx_field){.format = "+s", .n_children = columns};
    nodes[0] = (devx_node){.length = 2, .buffers = validity, .n_buffers = 1};
    for (size_t i = 1; i < n; ++i) {
        fields[i] = (devx_field){.format = "i", .name = "column", .flags = DEVX_FIELD_NULLABLE};
        nodes[i] = (devx_node){.length = 2, .buffers = buffers, .n_buffers = 2};
    }
    CHECK_OK(devx_schema_create(fields, n, schema, &error));
    CHECK_OK(devx_batch_create(*schema, cpu, nodes, n, NULL, batch, &error));
    free(fields);
    free(nodes);
}

static void tensor_round(devx_tensor_t *tensor) {
    struct DLManagedTensorVersioned *handed = NULL;
    struct DLManagedTensor *legacy = NULL;
    devx_tensor_t *seen = NULL;
    CHECK_OK(devx_tensor_export_share(tensor, NULL, &handed, &error));
    CHECK_OK(devx_tensor_import(handed, &seen, &error));
    CHECK_OK(devx_tensor_export_move_legacy(&seen, NULL, &legacy, &error));
    CHECK_OK(devx_tensor_import_legacy(legacy, &seen, &error));
    devx_tensor_release(&seen);
}

TEST(tensors_allocate_nothing) {
    NEEDS_COUNTS();
    float values[6];
    DLTensor const description = {values, cpu, 2, {kDLFloat, 32, 1}, (int64_t *)shape_2x3, NULL, 0};
    devx_tensor_t *tensor = NULL;
    CHECK_OK(devx_tensor_create(&description, 0, NULL, &tensor, &error));
    for (int i = 0; i < ROUNDS; ++i) {
        int allocated = 0;
        COUNT_ALLOCATIONS(allocated, tensor_round(tensor));
        CHECK(allocated == 0 || i < WARM);
    }
    devx_tensor_release(&tensor);
    CHECK_NOTHING_OUTSTANDING();
}

static void batch_round(devx_batch_t *batch, devx_schema_t *schema) {
    struct ArrowDeviceArray array;
    struct ArrowSchema exported;
    devx_batch_t *seen = NULL;
    CHECK_OK(devx_schema_export(schema, &exported, &error));
    CHECK_OK(devx_batch_export_share_device(batch, &array, &error));
    CHECK_OK(devx_batch_import_pair_device(&array, &exported, &seen, &error));
    devx_batch_release(&seen);
}

TEST(batches_of_any_width_allocate_nothing) {
    NEEDS_COUNTS();
    for (size_t w = 0; w < sizeof widths / sizeof *widths; ++w) {
        devx_schema_t *schema = NULL;
        devx_batch_t *batch = NULL;
        make_table(widths[w], &schema, &batch);
        for (int i = 0; i < 10; ++i) {
            int allocated = 0;
            COUNT_ALLOCATIONS(allocated, batch_round(batch, schema));
            CHECK(allocated == 0 || i < WARM);
        }
        devx_batch_release(&batch);
        devx_schema_release(&schema);
    }
    CHECK_NOTHING_OUTSTANDING();
}

/* A thread that only gives blocks back keeps no more than the limit, and nothing when it ends. */
enum { HANDED = 3000 };

static struct ArrowDeviceArray handed[HANDED];

static void *give_back(void *unused) {
    (void)unused;
    for (int i = 0; i < HANDED; ++i) handed[i].array.release(&handed[i].array);
    return NULL;
}

TEST(what_another_thread_gives_back_is_bounded) {
    NEEDS_COUNTS();
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = NULL;
    int64_t before = 0;
    make_table(100, &schema, &batch);
    for (int round = 0; round < 3; ++round) {
        pthread_t thread;
        for (int i = 0; i < HANDED; ++i) CHECK_OK(devx_batch_export_share_device(batch, &handed[i], &error));
        CHECK_INT(pthread_create(&thread, NULL, give_back, NULL), 0);
        CHECK_INT(pthread_join(thread, NULL), 0);
        /* All of it is freed there; otherwise it would grow with each round. */
        if (round == 0) before = mallinfo2().uordblks;
        CHECK(mallinfo2().uordblks < (size_t)before + (1 << 16));
    }
    devx_batch_release(&batch);
    devx_schema_release(&schema);
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
