/* Import of another process's memory: the first import of an allocation, which opens it, and another one while it is
 * open. The other process runs gpu-peer, which is in the directory of this program.
 */
#define _GNU_SOURCE
#include "driver.h"
#include "peer.h"

#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct shared {
    pid_t peer;
    int to_peer;
    struct cu_ipc_handle handle;
    devx_ipc_client_t *client;
    devx_tensor_t *held;
    cu_memory open;
};

static void peer_path(char *out, size_t size) {
    ssize_t const n = readlink("/proc/self/exe", out, size - 1);
    MUST(n > 0);
    out[n] = '\0';
    char *const slash = strrchr(out, '/');
    MUST(slash != NULL && (size_t)(slash - out) + sizeof "/gpu-peer" <= size);
    strcpy(slash, "/gpu-peer");
}

/* Starts gpu-peer. When it is ready, it writes the driver's handle of its memory; it ends when its input does. */
static void start_peer(struct shared *shared, const char *address) {
    char path[4096];
    int in[2], out[2];
    posix_spawn_file_actions_t files;
    peer_path(path, sizeof path);
    MUST(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    MUST(posix_spawn_file_actions_init(&files) == 0);
    MUST(posix_spawn_file_actions_adddup2(&files, in[0], 0) == 0);
    MUST(posix_spawn_file_actions_adddup2(&files, out[1], 1) == 0);
    char *const arguments[] = {path, (char *)address, NULL};
    MUST(posix_spawn(&shared->peer, path, &files, NULL, arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&files);
    close(in[0]);
    close(out[1]);
    MUST(read(out[0], &shared->handle, sizeof shared->handle) == (ssize_t)sizeof shared->handle);
    close(out[0]);
    shared->to_peer = in[1];
}

static void *first_up(int size) {
    (void)size;
    static int count;
    char address[100];
    struct shared *shared = calloc(1, sizeof *shared);
    MUST(shared != NULL);
    gpu_use();
    snprintf(address, sizeof address, "@devexchange-gpu-bench-%ld-%d", (long)getpid(), ++count);
    start_peer(shared, address);
    OK(devx_ipc_client_create(address, DEVX_IPC_TIMEOUT_NS, &shared->client, NULL));
    return shared;
}

static void *again_up(int size) {
    struct shared *shared = first_up(size);
    OK(devx_ipc_client_import_tensor(shared->client, PEER_TENSOR, &shared->held, NULL));
    return shared;
}

static void *floor_again_up(int size) {
    struct shared *shared = first_up(size);
    CU(cu.ipc_open(&shared->open, shared->handle, IPC_LAZY_PEER_ACCESS));
    return shared;
}

static void shared_down(void *state) {
    struct shared *shared = state;
    int status = 0;
    if (shared->open != 0) CU(cu.ipc_close(shared->open));
    devx_tensor_release(&shared->held);
    gpu_settle(-1);
    devx_ipc_client_release(&shared->client);
    close(shared->to_peer);
    MUST(waitpid(shared->peer, &status, 0) == shared->peer && status == 0);
    free(shared);
}

/* Waits until each import is released before the next one. */
static void run_import(void *state, int64_t times) {
    const struct shared *shared = state;
    for (int64_t i = 0; i < times; ++i) {
        devx_tensor_t *seen = NULL;
        OK(devx_ipc_client_import_tensor(shared->client, PEER_TENSOR, &seen, NULL));
        devx_tensor_release(&seen);
        gpu_settle(-1);
    }
}

static void run_floor(void *state, int64_t times) {
    const struct shared *shared = state;
    for (int64_t i = 0; i < times; ++i) {
        cu_memory memory = 0;
        CU(cu.ipc_open(&memory, shared->handle, IPC_LAZY_PEER_ACCESS));
        CU(cu.ipc_close(memory));
    }
}

BENCHES {
    bench_add("ipc/first-import", 0, first_up, run_import, shared_down);
    bench_add_as("floor", "ipc/first-import", 0, first_up, run_floor, shared_down);
    bench_add("ipc/import-again", 0, again_up, run_import, shared_down);
    bench_add_as("floor", "ipc/import-again", 0, floor_again_up, run_floor, shared_down);
}
