/* The process whose memory ipc.c imports, and a description of the GPU:
 *
 *   gpu-peer about        prints what the benches run on; without a GPU, prints the reason and ends with status 3
 *   gpu-peer ADDRESS      offers a tensor at an address of `devx_ipc_server_create`, writes the driver's handle of
 *                         another allocation to its standard output, and ends when its standard input does
 */
#define _GNU_SOURCE
#include "peer.h"
#include "driver.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NO_GPU = 3 };

/* These are in bench.c, but this program has a main of its own. */
int64_t bench_left_out;
int64_t bench_now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static int about(void) {
    devx_device_info info;
    devx_error error;
    char date[20];
    time_t const at = time(NULL);
    const char *missing = gpu_open();
    if (missing == NULL && devx_device_get_info(gpu, &info, &error) != DEVX_OK) missing = error.message;
    if (missing != NULL) {
        fprintf(stderr, "gpu-bench: nothing to measure on: %s\n", missing);
        return NO_GPU;
    }
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&at));
    if (cu.simulated != NULL) printf("SIMULATED: no GPU was used, and no time here says anything about one\n");
    printf("%s, CUDA driver %d.%d, devexchange %s, %s\n", info.name, info.driver_version / 1000,
           info.driver_version % 1000 / 10, devx_version_string(), date);
    return 0;
}

static int offer(const char *address) {
    struct cu_ipc_handle handle;
    cu_memory memory = 0;
    devx_ipc_server_t *server = NULL;
    char byte;
    gpu_use();
    devx_tensor_t *tensor = gpu_tensor(PEER_BYTES, -1);
    CU(cu.alloc(&memory, PEER_BYTES));
    CU(cu.ipc_get(&handle, memory));
    OK(devx_ipc_server_create(address, &server, NULL));
    OK(devx_ipc_server_offer_tensor(server, PEER_TENSOR, tensor, DEVX_COPY_NEVER, NULL));
    MUST(write(1, &handle, sizeof handle) == (ssize_t)sizeof handle);
    MUST(read(0, &byte, 1) == 0);
    devx_ipc_server_release(&server);
    devx_tensor_release(&tensor);
    CU(cu.free(memory));
    gpu_settle(-1);
    return 0;
}

int main(int argc, char **argv) {
    MUST(argc == 2);
    return strcmp(argv[1], "about") == 0 ? about() : offer(argv[1]);
}
