/* Each allocation of the library fails once: in exports, and in everything that is made over host memory. Imports are tested in
 * test_corpus.c, the rest in test_faults_managers.c, test_faults_device.c and test_faults_async.c.
 */
#include "faults.h"

#include <unistd.h>

#include "leases.h"

/* --- the scenes --- */

static void exports_of_a_tensor(void) {
    devx_tensor_t *tensor = made_tensor(), *shared = NULL, *again = NULL;
    struct DLManagedTensorVersioned *managed = NULL;
    struct DLManagedTensor *legacy = NULL;
    (void)TRY(devx_tensor_export_share(tensor, NULL, &managed, &error));
    if (managed != NULL && TRY(devx_tensor_import(managed, &again, &error))) {
        managed = NULL;
    }
    devx_dlpack_release(&managed);
    (void)TRY(devx_tensor_share(tensor, &shared, &error));
    if (shared != NULL && !TRY(devx_tensor_export_move(&shared, NULL, &managed, &error))) {
        CHECK(shared != NULL);
    }
    devx_dlpack_release(&managed);
    (void)TRY(devx_tensor_export_share_legacy(tensor, NULL, &legacy, &error));
    devx_dlpack_release_legacy(&legacy);
    if (again != NULL) {
        (void)TRY(devx_tensor_export_move_legacy(&again, NULL, &legacy, &error));
    }
    devx_dlpack_release_legacy(&legacy);
    devx_tensor_release(&shared);
    devx_tensor_release(&again);
    devx_tensor_release(&tensor);
}

static void memory_of_the_library(void) {
    devx_tensor_t *tensor = NULL, *copy = NULL, *strided = NULL, *more = NULL, *part = NULL;
    int64_t const strides[2] = {1, 2};
    DLTensor const described = {values, cpu, 2, float64, (int64_t *)(uintptr_t)shape, (int64_t *)(uintptr_t)strides, 0};
    (void)TRY(devx_tensor_allocate(cpu, float64, shape, 2, -1, &tensor, &error));
    (void)TRY(devx_tensor_copy(tensor, &copy, &error));
    (void)TRY(devx_tensor_slice(tensor, 0, 0, 1, &part, &error));
    devx_tensor_release(&part);
    (void)TRY(devx_tensor_create(&described, 0, NULL, &strided, &error));
    (void)TRY(devx_tensor_copy(strided, &more, &error));
    devx_tensor_release(&more);
    devx_tensor_release(&strided);
    devx_tensor_release(&copy);
    devx_tensor_release(&tensor);
}

static void exports_of_a_batch(void) {
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = made_batch(&schema), *pair = NULL, *more = NULL;
    struct ArrowSchema described = {0};
    struct ArrowArray array = {0};
    struct ArrowDeviceArray device = {0};
    (void)TRY(devx_schema_export(schema, &described, &error));
    (void)TRY(devx_batch_export_share(batch, &array, &error));
    if (described.release != NULL && array.release != NULL) {
        int const taken = TRY(devx_batch_import_pair(&array, &described, &pair, &error));
        CHECK((array.release == NULL) == taken && (described.release == NULL) == taken);
    }
    release_array(&array);
    release_schema(&described);
    (void)TRY(devx_batch_export_share_device(batch, &device, &error));
    if (device.array.release != NULL) {
        (void)TRY(devx_batch_import_device(&device, schema, &more, &error));
    }
    release_array(&device.array);
    if (pair != NULL && !TRY(devx_batch_export_move(&pair, &array, &error))) {
        CHECK(pair != NULL);
    }
    release_array(&array);
    devx_batch_release(&more);
    devx_batch_release(&pair);
    devx_batch_release(&batch);
    devx_schema_release(&schema);
}

static void columns_and_tensors(void) {
    devx_tensor_t *tensor = made_tensor(), *back = NULL, *matrix = NULL;
    devx_batch_t *column = NULL, *table = NULL, *both = NULL, *shaped = NULL;
    devx_column root;
    const char *names[2] = {"x", "y"};
    char text[64];
    size_t length;
    (void)TRY(devx_tensor_to_column(tensor, "x", DEVX_COPY_IF_NEEDED, &column, &error));
    if (column != NULL) {
        const devx_batch_t *columns[2] = {column, column};
        (void)TRY(devx_batch_root(column, &root, &error));
        (void)TRY(devx_column_text(column, &root, 0, text, sizeof text, &length, &error));
        (void)TRY(devx_column_to_tensor(column, &root, DEVX_COPY_NEVER, &back, &error));
        (void)TRY(devx_batch_of_columns(names, columns, 2, -1, &both, &error));
    }
    (void)TRY(devx_tensor_to_batch(tensor, NULL, 0, DEVX_COPY_IF_NEEDED, &table, &error));
    (void)TRY(devx_batch_to_matrix(table, DEVX_COPY_ALWAYS, -1, &matrix, &error));
    (void)TRY(devx_tensor_to_fixed_shape_column(tensor, "x", DEVX_COPY_NEVER, &shaped, &error));
    devx_batch_release(&shaped);
    devx_batch_release(&both);
    devx_batch_release(&table);
    devx_batch_release(&column);
    devx_tensor_release(&matrix);
    devx_tensor_release(&back);
    devx_tensor_release(&tensor);
}

/* The call is refused for this reason, or for lack of memory to say so. */
#define REFUSES(call, why)                                                                                             \
    do {                                                                                                               \
        devx_status const refused = call;                                                                              \
        CHECK(refused == (why) || refused == DEVX_OUT_OF_MEMORY);                                                      \
        (void)note(#call, refused == (why) ? DEVX_OK : refused);                                                       \
    } while (0)

static void what_is_not_there(void) {
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = made_batch(&schema);
    devx_column root, column;
    char text[4];
    if (batch != NULL) {
        CHECK_OK(devx_batch_root(batch, &root, &error));
        REFUSES(devx_batch_column(batch, 4, &column, &error), DEVX_OUT_OF_RANGE);
        REFUSES(devx_batch_column_named(batch, "none", &column, &error), DEVX_OUT_OF_RANGE);
        REFUSES(devx_column_child(batch, &root, 4, &column, &error), DEVX_OUT_OF_RANGE);
    }
    REFUSES(devx_dtype_name((DLDataType){kDLFloat, 64, 1}, text, sizeof text, &error), DEVX_INVALID_ARGUMENT);
    devx_batch_release(&batch);
    devx_schema_release(&schema);
}

/* Questions about a batch that are refused: the texts of errors need memory, too. */
static void what_a_batch_says(void) {
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = made_batch(&schema), *copy = NULL, *pair = NULL, *part = NULL;
    struct ArrowSchema described = {0};
    struct ArrowDeviceArray device = {0};
    devx_column root, column, list;
    devx_plan plan;
    const char *bytes;
    const void *elements;
    size_t length;
    int32_t valid;
    int64_t number;
    if (batch == NULL) {
        devx_schema_release(&schema);
        return;
    }
    CHECK_OK(devx_batch_root(batch, &root, &error));
    CHECK_OK(devx_batch_column(batch, 2, &list, &error));
    CHECK_OK(devx_batch_column(batch, 1, &column, &error));
    (void)TRY(devx_batch_plan_matrix(batch, &plan, &error));
    (void)TRY(devx_column_plan_tensor(batch, &list, &plan, &error));
    (void)TRY(devx_column_null_count(batch, &column, &number, &error));
    (void)TRY(devx_column_is_valid(batch, &column, 0, &valid, &error));
    (void)TRY(devx_column_bytes(batch, &column, 1, &bytes, &length, &error));
    (void)TRY(devx_column_list(batch, &list, 1, &column, &error));
    (void)TRY(devx_column_values(batch, &column, float64, &elements, &error));
    (void)TRY(devx_column_fixed(batch, &column, 0, &bytes, &length, &error));
    CHECK_OK(devx_batch_column(batch, 3, &column, &error));
    (void)TRY(devx_column_dictionary_index(batch, &column, 0, &number, &error));
    (void)TRY(devx_column_resolve(batch, &column, 0, &valid, &list, &number, &error));
    REFUSES(devx_column_is_valid(batch, &column, 2, &valid, &error), DEVX_OUT_OF_RANGE);
    REFUSES(devx_column_bool(batch, &column, 0, &valid, &error), DEVX_MISMATCH);
    REFUSES(devx_column_run(batch, &column, 0, &number, &error), DEVX_MISMATCH);
    REFUSES(devx_column_union(batch, &column, 0, &valid, &list, &number, &error), DEVX_MISMATCH);
    (void)TRY(devx_batch_check_pointers(batch, &error));
    REFUSES(devx_batch_slice(batch, 1, 2, &part, &error), DEVX_OUT_OF_RANGE);
    (void)TRY(devx_batch_slice(batch, 1, 1, &part, &error));
    devx_batch_release(&part);
    (void)TRY(devx_column_share(batch, &list, &part, &error));
    devx_batch_release(&part);
    (void)TRY(devx_batch_copy(batch, &copy, &error));
    (void)TRY(devx_schema_export(schema, &described, &error));
    if (copy != NULL && !TRY(devx_batch_export_move_device(&copy, &device, &error))) {
        CHECK(copy != NULL);
    }
    if (described.release != NULL && device.array.release != NULL) {
        (void)TRY(devx_batch_import_pair_device(&device, &described, &pair, &error));
    }
    release_array(&device.array);
    release_schema(&described);
    devx_batch_release(&pair);
    devx_batch_release(&copy);
    devx_batch_release(&batch);
    devx_schema_release(&schema);
}

/* Two batches, then the end. */
struct source {
    devx_batch_t *batch;
    int given;
};

static devx_status next_of_source(void *context, struct devx_batch **out, devx_error *say) {
    struct source *source = context;
    if (source->given == 2) {
        *out = NULL;
        return DEVX_OK;
    }
    source->given += 1;
    return devx_batch_share(source->batch, out, say);
}

static void end_of_source(void *context) {
    struct source *source = context;
    devx_batch_release(&source->batch);
    free(source);
    atomic_fetch_sub(&tally.live, 1);
}

static void streams_of_batches(void) {
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = made_batch(&schema);
    struct source *source = support_memory(sizeof *source);
    devx_batch_source const record = {source, next_of_source, end_of_source};
    devx_batch_stream_t *stream = NULL, *again = NULL;
    struct ArrowArrayStream exported = {0};
    source->batch = batch;
    atomic_fetch_add(&tally.live, 1);
    if (!TRY(devx_batch_stream_create(schema, kDLCPU, &record, &stream, &error))) {
        end_of_source(source);
    }
    if (stream != NULL && TRY(devx_batch_stream_export(&stream, &exported, &error))) {
        (void)TRY(devx_batch_stream_import(&exported, &again, &error));
    }
    if (exported.release != NULL) {
        exported.release(&exported);
    }
    for (devx_batch_t *next = NULL; again != NULL && TRY(devx_batch_stream_next(again, &next, &error));) {
        if (next == NULL) {
            break;
        }
        devx_batch_release(&next);
    }
    devx_batch_stream_release(&again);
    devx_batch_stream_release(&stream);
    devx_schema_release(&schema);
}

/* --- with another process, which is this one --- */

static devx_ipc_server_t *server;

static const char *address_of_server(void) {
    static char address[64];
    snprintf(address, sizeof address, "@devexchange-c-faults-%ld", (long)getpid());
    return address;
}

/* Makes the server where no allocation fails, because it starts a thread. */
static void make_server(void) {
    CHECK_OK(devx_ipc_server_create(address_of_server(), &server, &error));
}

static void tensors_of_an_exporter(void) {
    devx_tensor_t *shared = NULL, *plain = made_tensor(), *there = NULL, *again = NULL, *copied = NULL;
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = made_batch(&schema), *far = NULL;
    devx_ipc_client_t *client = NULL;
    devx_plan plan;
    (void)TRY(devx_tensor_allocate_shared(float64, shape, 2, &shared, &error));
    (void)TRY(devx_ipc_plan_tensor(plain, &plan, &error));
    (void)TRY(devx_ipc_plan_batch(batch, &plan, &error));
    (void)TRY(devx_ipc_server_offer_tensor(server, "shared", shared, DEVX_COPY_NEVER, &error));
    (void)TRY(devx_ipc_server_offer_tensor(server, "copied", plain, DEVX_COPY_IF_NEEDED, &error));
    (void)TRY(devx_ipc_server_offer_batch(server, "batch", batch, DEVX_COPY_IF_NEEDED, &error));
    (void)TRY(devx_ipc_client_create(address_of_server(), DEVX_IPC_TIMEOUT_NS, &client, &error));
    (void)TRY(devx_ipc_client_import_tensor(client, "shared", &there, &error));
    (void)TRY(devx_ipc_client_import_tensor(client, "shared", &again, &error));
    (void)TRY(devx_ipc_client_import_tensor(client, "copied", &copied, &error));
    (void)TRY(devx_ipc_client_import_batch(client, "batch", &far, &error));
    (void)TRY(devx_ipc_server_withdraw(server, "copied", NULL, &error));
    devx_ipc_client_release(&client);
    devx_batch_release(&far);
    devx_tensor_release(&copied);
    devx_tensor_release(&again);
    devx_tensor_release(&there);
    devx_batch_release(&batch);
    devx_schema_release(&schema);
    devx_tensor_release(&plain);
    devx_tensor_release(&shared);
}

/* Checks that all leases come back, whatever failed. */
static void release_server(void) {
    CHECK_CALL(check_leases_end(server));
    devx_ipc_server_release(&server);
}

/* --- the sweeps --- */

TEST(allocations_can_fail) {
    CHECK_CALL(make_allocations_fail(exports_of_a_tensor));
}

SWEEP(exports_of_a_tensor)
SWEEP(memory_of_the_library)
SWEEP(exports_of_a_batch)
SWEEP(columns_and_tensors)
SWEEP(what_is_not_there)
SWEEP(what_a_batch_says)
SWEEP(streams_of_batches)

TEST(every_allocation_of_sharing_with_another_process) {
    struct scene const all = {make_server, tensors_of_an_exporter, release_server};
    CHECK_CALL(sweep(&all));
}

TEST(there_were_many) {
    printf("# %d faults\n", (int)injected);
    CHECK(injected > 4000);
}

CHECK_MAIN()
