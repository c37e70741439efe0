/* Rounds of everything besides DLPack and Arrow (test_rounds.c): managers, CUDA arrays and sharing between processes. Nothing
 * is left over, and the memory of the process stays the same. */
#include "test_driver.h"

#include "leases.h"
#include "rounds.h"

static int64_t const shape_8[1] = {8};

/* This program's own manager over malloc. */
static void give_back(void *block) {
    free(block);
}

static devx_status allocate(void *context, const devx_memory_request *request, devx_memory *out, devx_error *say) {
    (void)context;
    (void)say;
    out->address = malloc((size_t)request->bytes);
    out->device_type = kDLCPU;
    out->owner = (devx_owner){out->address, give_back};
    return DEVX_OK;
}

static void rounds_of(devx_manager_t *manager, char const *what) {
    int const n = rounds();
    devx_memory_request const request = {kDLCPU, 0, 64, -1, 0, 0};
    devx_manager_statistics now;
    for (int i = 0; i < n; ++i) {
        devx_memory memory;
        devx_tensor_t *tensor = NULL;
        note_round(i, n);
        CHECK_OK(devx_manager_allocate(manager, &request, &memory, &error));
        CHECK_OK(devx_tensor_allocate_with(manager, cpu, int32, shape_8, 1, -1, &tensor, &error));
        memory.owner.release(memory.owner.context);
        devx_tensor_release(&tensor);
    }
    CHECK_CALL(check_flat(what, n));
    CHECK_OK(devx_manager_get_statistics(manager, &now, &error));
    CHECK_INT(now.bytes, 0);
    CHECK_INT(now.total_allocations, 2 * (int64_t)n);
}

TEST(rounds_of_managers) {
    devx_manager_table const table = {.version = DEVX_MANAGER_VERSION, .allocate = allocate};
    devx_manager_t *host = NULL, *limited = NULL, *own = NULL;
    CHECK_OK(devx_manager_create_host_only(&host, &error));
    CHECK_OK(devx_manager_create_limited(host, 1 << 20, &limited, &error));
    CHECK_OK(devx_manager_create(&table, &own, &error));
    CHECK_CALL(rounds_of(limited, "a manager of the library's"));
    CHECK_CALL(rounds_of(own, "a manager of one's own"));
    devx_manager_release(&host);
    devx_manager_release(&limited);
    devx_manager_release(&own);
    CHECK_NOTHING_OUTSTANDING();
}

/* Out and in again, with and without a stream. */
TEST(rounds_of_cuda_arrays) {
    int const n = rounds();
    devx_tensor_t *tensor = NULL;
    devx_cuda_array_request request = {3, DEVX_NO_STREAM_LEGACY_DEFAULT, DEVX_CUDA_ARRAY_NO_STREAM};
    if (!has_driver()) {
        SKIP("there is no CUDA driver");
    }
    CHECK_OK(devx_tensor_allocate(gpu, int32, shape_8, 1, -1, &tensor, &error));
    for (int i = 0; i < n; ++i) {
        devx_cuda_array array;
        devx_tensor_t *again = NULL;
        note_round(i, n);
        request.stream = i % 2 == 0 ? DEVX_CUDA_ARRAY_NO_STREAM : 1;
        CHECK_OK(devx_tensor_export_share_cuda_array(tensor, &request, &array, &error));
        CHECK_OK(devx_cuda_array_import(&array, &request, &again, NULL, &error));
        devx_tensor_release(&again);
        if (i % 1000 == 0) {
            /* Queued work takes memory that is not ours: the simulated driver does it only when somebody waits. */
            CHECK_OK(devx_stream_synchronize(gpu, 1, &error));
        }
    }
    CHECK_CALL(check_flat("CUDA arrays", n));
    devx_tensor_release(&tensor);
    CHECK_CALL(finish_releases());
}

/* Over one connection; each round offers and imports something new. */
TEST(rounds_of_sharing) {
    int const n = rounds();
    char address[64];
    devx_ipc_server_t *server = NULL;
    devx_ipc_client_t *client = NULL;
    snprintf(address, sizeof address, "@devexchange-c-rounds-%ld", (long)getpid());
    CHECK_OK(devx_ipc_server_create(address, &server, &error));
    CHECK_OK(devx_ipc_client_create(address, DEVX_IPC_TIMEOUT_NS, &client, &error));
    for (int i = 0; i < n; ++i) {
        devx_tensor_t *tensor = NULL, *imported = NULL;
        DLTensor seen;
        note_round(i, n);
        CHECK_OK(devx_tensor_allocate_shared(int32, shape_8, 1, &tensor, &error));
        CHECK_OK(devx_tensor_borrow(tensor, &seen, NULL, &error));
        ((int32_t *)seen.data)[7] = i;
        CHECK_OK(devx_ipc_server_offer_tensor(server, "t", tensor, DEVX_COPY_NEVER, &error));
        CHECK_OK(devx_ipc_client_import_tensor(client, "t", &imported, &error));
        devx_tensor_release(&tensor);
        CHECK_OK(devx_tensor_borrow(imported, &seen, NULL, &error));
        CHECK_INT(((int32_t *)seen.data)[7], i);
        devx_tensor_release(&imported);
    }
    CHECK_CALL(check_flat("sharing between processes", n));
    CHECK_OK(devx_ipc_server_withdraw(server, "t", NULL, &error));
    CHECK_CALL(check_leases_end(server));
    devx_ipc_client_release(&client);
    devx_ipc_server_release(&server);
    CHECK_NOTHING_OUTSTANDING();
}

CHECK_MAIN()
