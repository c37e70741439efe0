/* Device memory shared with another process, which was forked before the driver was used. It is run like test_stream.c;
 * findings in the other process show in how that process ends. */
#include "test_driver.h"

#include "leases.h"

#include <sys/wait.h>
#include <unistd.h>

static const double sevens[SIX] = {7, 7, 7, 7, 7, 7};

/* The importer: sees what is queued in the exporter, through the tensor and through the batch, and writes to the same memory.
 * Returns 0 if everything was right, otherwise the number of the step that was not.
 */
static int import_all(char const *address) {
    devx_ipc_client_t *client = NULL;
    devx_tensor_t *tensor = NULL, *column = NULL;
    devx_batch_t *batch = NULL;
    devx_column root;
    DLTensor seen;
    int64_t stream = 0;
    double values[SIX] = {0};
    devx_error why;
    if (devx_ipc_client_create(address, DEVX_IPC_TIMEOUT_NS, &client, &why) != DEVX_OK) return 1;
    if (devx_ipc_client_import_tensor(client, "t", &tensor, &why) != DEVX_OK) return 2;
    if (devx_ipc_client_import_batch(client, "b", &batch, &why) != DEVX_OK) return 3;
    if (devx_tensor_borrow(tensor, &seen, NULL, &why) != DEVX_OK || seen.device.device_type != kDLCUDA) return 4;
    if (devx_stream_create(gpu, &stream, &why) != DEVX_OK) return 5;
    if (devx_tensor_read(tensor, values, sizeof values, stream, &why) != DEVX_OK) return 6;
    if (memcmp(values, six, sizeof six) != 0) return 7;
    memset(values, 0, sizeof values);
    if (devx_batch_root(batch, &root, &why) != DEVX_OK) return 8;
    if (devx_column_to_tensor(batch, &root, DEVX_COPY_NEVER, &column, &why) != DEVX_OK) return 9;
    if (devx_tensor_read(column, values, sizeof values, stream, &why) != DEVX_OK) return 10;
    if (memcmp(values, six, sizeof six) != 0) return 11;
    if (devx_tensor_write(tensor, sevens, sizeof sevens, stream, &why) != DEVX_OK) return 12;
    devx_tensor_release(&column);
    devx_tensor_release(&tensor);
    devx_batch_release(&batch);
    devx_ipc_client_release(&client);
    if (devx_stream_close(gpu, stream, &why) != DEVX_OK) return 13;
    /* What was written to is given up by a thread of the library, when the write is done. */
    for (int i = 0; i < 120 * 1000 && devx_ledger_outstanding() > 0; ++i) {
        struct timespec const pause = {0, 1000 * 1000};
        nanosleep(&pause, NULL);
    }
    return devx_ledger_outstanding() == 0 ? 0 : 14;
}

TEST(a_tensor_and_a_batch_of_a_device_go_to_another_process) {
    int ready[2], status = 0;
    char address[64];
    devx_ipc_server_t *server = NULL;
    devx_tensor_t *source = NULL, *tensor = NULL;
    devx_batch_t *batch = NULL;
    DLTensor from, to;
    int64_t const shape[] = {SIX};
    int64_t stream = 0;
    double values[SIX] = {0};
    CHECK(pipe(ready) == 0);
    snprintf(address, sizeof address, "@devexchange-c-cuda-%ld", (long)getpid());
    pid_t const child = fork();
    if (child == 0) {
        char byte;
        close(ready[1]);
        _exit(read(ready[0], &byte, 1) == 1 ? import_all(address) : 0);
    }
    close(ready[0]);
    if (!has_driver()) {
        close(ready[1]);
        CHECK(waitpid(child, &status, 0) == child);
        SKIP("there is no CUDA driver");
    }
    CHECK_CALL(use_driver());
    CHECK_OK(devx_stream_create(gpu, &stream, &error));
    CHECK_OK(devx_tensor_allocate(gpu, float64, shape, 1, -1, &source, &error));
    CHECK_OK(devx_tensor_write(source, six, sizeof six, stream, &error));
    CHECK_OK(devx_tensor_allocate(gpu, float64, shape, 1, -1, &tensor, &error));
    CHECK_OK(devx_tensor_borrow(source, &from, NULL, &error));
    CHECK_OK(devx_tensor_borrow(tensor, &to, NULL, &error));
    CHECK_INT(driver.copy(pointer_of(to.data), pointer_of(from.data), sizeof six, raw_stream(stream)), 0);
    CHECK_OK(devx_tensor_used_on(source, stream, &error));
    CHECK_OK(devx_tensor_produced_on(tensor, stream, &error));
    CHECK_OK(devx_tensor_to_column(tensor, "x", DEVX_COPY_NEVER, &batch, &error));
    CHECK_OK(devx_ipc_server_create(address, &server, &error));
    CHECK_OK(devx_ipc_server_offer_tensor(server, "t", tensor, DEVX_COPY_NEVER, &error));
    CHECK_OK(devx_ipc_server_offer_batch(server, "b", batch, DEVX_COPY_NEVER, &error));
    CHECK(write(ready[1], "!", 1) == 1);
    close(ready[1]);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    CHECK_CALL(check_leases_end(server));
    CHECK_OK(devx_tensor_read(tensor, values, sizeof values, stream, &error));
    CHECK(memcmp(values, sevens, sizeof sevens) == 0);
    devx_ipc_server_release(&server);
    devx_batch_release(&batch);
    devx_tensor_release(&tensor);
    devx_tensor_release(&source);
    CHECK_CALL(finish_releases());
    CHECK_OK(devx_stream_destroy(gpu, stream, &error));
}

CHECK_MAIN()
