/* The C program of pairs.py. */
#define _DEFAULT_SOURCE
#include <devexchange.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static devx_error error;

static void must(devx_status status) {
    if (status == DEVX_OK) return;
    fprintf(stderr, "peer.c: %s: %s\n", devx_status_name(status), error.message);
    exit(1);
}

static const DLDevice cpu = {kDLCPU, 0}, gpu = {kDLCUDA, 0};
static const DLDataType int32 = {kDLInt, 32, 1}, float64 = {kDLFloat, 64, 1};
static const double halves[] = {1.5, 2.5};
static int64_t two[] = {2};
static int cuda;
static int64_t stream = -1;

/* --- exports --- */

#define FIELD(format, name, children, dictionary) {format, name, NULL, DEVX_FIELD_NULLABLE, children, dictionary}
#define BUFFERS(...) (const void *const[]){__VA_ARGS__}

static devx_batch_t *make_batch(int64_t rows) {
    static const int64_t n[] = {9, 1, 0, 3}, item[] = {1, 2}, a[] = {1, 2, 3};
    static const double b[] = {0.5, 1.5, 2.5};
    static const int32_t text[] = {0, 1, 1, 8}, lists[] = {0, 2, 2, 2}, letters[] = {0, 1, 2};
    static const int8_t indices[] = {0, 1, 0};
    static const uint8_t only_0[] = {1}, not_1[] = {5}, not_2[] = {3}, not_2_from_1[] = {11};
    const devx_field fields[] = {
        FIELD("+s", "", 6, 0),   FIELD("l", "n", 0, 0), FIELD("u", "s", 0, 0),   FIELD("+l", "l", 1, 0),
        FIELD("l", "item", 0, 0), FIELD("c", "d", 0, 1), FIELD("u", "", 0, 0),    FIELD("+s", "st", 2, 0),
        FIELD("l", "a", 0, 0),   FIELD("g", "b", 0, 0), FIELD("b", "m", 0, 0),
    };
    const devx_node nodes[] = {
        {rows, 0, 0, BUFFERS(NULL), 1},
        {rows, -1, 1, BUFFERS(not_2_from_1, n), 2},
        {rows, -1, 0, BUFFERS(not_1, text, "aZürich"), 3},
        {rows, -1, 0, BUFFERS(not_2, lists), 2},
        {2, 0, 0, BUFFERS(NULL, item), 2},
        {rows, 0, 0, BUFFERS(NULL, indices), 2},
        {2, 0, 0, BUFFERS(NULL, letters, "xy"), 3},
        {rows, 0, 0, BUFFERS(NULL), 1},
        {rows, 0, 0, BUFFERS(NULL, a), 2},
        {rows, 0, 0, BUFFERS(NULL, b), 2},
        {rows, -1, 0, BUFFERS(not_1, only_0), 2},
    };
    const size_t count = sizeof nodes / sizeof *nodes;
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = NULL;
    must(devx_schema_create(fields, count, &schema, &error));
    must(devx_batch_create(schema, cpu, nodes, count, NULL, &batch, &error));
    devx_schema_release(&schema);
    return batch;
}

static void offer_tensor(devx_ipc_server_t *server, const char *name, devx_tensor_t *tensor) {
    must(devx_ipc_server_offer_tensor(server, name, tensor, DEVX_COPY_IF_NEEDED, &error));
    devx_tensor_release(&tensor);
}

static void offer_batch(devx_ipc_server_t *server, const char *name, devx_batch_t *batch) {
    must(devx_ipc_server_offer_batch(server, name, batch, DEVX_COPY_IF_NEEDED, &error));
    devx_batch_release(&batch);
}

static devx_tensor_t *over(const void *data, DLDataType dtype, int64_t stride, uint64_t flags) {
    const DLTensor description = {(void *)data, cpu, 1, dtype, two, &stride, 0};
    devx_tensor_t *tensor = NULL;
    must(devx_tensor_create(&description, flags, NULL, &tensor, &error));
    return tensor;
}

static void offer_all(devx_ipc_server_t *server, int32_t *shared) {
    const int64_t none[] = {0, 3};
    devx_tensor_t *tensor = NULL;
    offer_tensor(server, "view", over(shared + 1, int32, 2, DLPACK_FLAG_BITMASK_READ_ONLY));
    offer_tensor(server, "copied", over(halves, float64, 1, 0));
    must(devx_tensor_allocate_shared(int32, none, 2, &tensor, &error));
    offer_tensor(server, "none", tensor);
    offer_batch(server, "rows", make_batch(3));
    offer_batch(server, "no rows", make_batch(0));
    if (!cuda) return;
    must(devx_tensor_allocate(gpu, float64, two, 1, stream, &tensor, &error));
    must(devx_tensor_write(tensor, halves, sizeof halves, stream, &error));
    must(devx_tensor_produced_on(tensor, stream, &error));
    offer_tensor(server, "device", tensor);
}

/* --- imports --- */

enum { TENSORS = 5, BATCHES = 2, PEERS = 8 };
static const char *const tensor_names[TENSORS] = {"shared", "view", "copied", "none", "device"};
static const char *const batch_names[BATCHES] = {"rows", "no rows"};

static struct imported {
    char address[128];
    devx_tensor_t *tensors[TENSORS];
    devx_batch_t *batches[BATCHES];
} held[PEERS];
static int n_held;

static void show_tensor(const char *name, const devx_tensor_t *tensor) {
    DLTensor view;
    uint64_t flags = 0;
    double copy[2];
    must(devx_tensor_borrow(tensor, &view, &flags, &error));
    const int64_t rows = view.ndim == 2 ? view.shape[0] : 1, columns = view.shape[view.ndim - 1];
    if (view.device.device_type != kDLCPU) {
        must(devx_tensor_read(tensor, copy, sizeof copy, stream, &error));
        view.data = copy;
    }
    printf("%s %d%d ", name, view.dtype.code, view.dtype.bits);
    if (view.ndim == 2) printf("%" PRId64 "x", rows);
    printf("%" PRId64 "%s [", columns, flags & DLPACK_FLAG_BITMASK_READ_ONLY ? " read-only" : "");
    for (int64_t i = 0; i < rows * columns; i++) {
        const int64_t row = i / columns, column = i % columns;
        const int64_t at = (view.ndim == 2 ? row * view.strides[0] : 0) + column * view.strides[view.ndim - 1];
        const int whole = view.dtype.code == kDLInt;
        printf("%s%g", i > 0 ? " " : "", whole ? ((int32_t *)view.data)[at] : ((double *)view.data)[at]);
    }
    printf("]; ");
}

static void show_batch(const char *name, const devx_batch_t *batch) {
    static const char *const columns[] = {"n", "s", "l", "d", "st", "m"};
    devx_batch_info info;
    must(devx_batch_get_info(batch, &info, &error));
    printf("%s %" PRId64, name, info.length);
    for (int64_t i = 0; i < info.n_columns; i++) {
        devx_column column;
        must(devx_batch_column_named(batch, columns[i], &column, &error));
        printf(" %s:", columns[i]);
        for (int64_t row = 0; row < info.length; row++) {
            char text[64];
            size_t length;
            must(devx_column_text(batch, &column, row, text, sizeof text, &length, &error));
            printf("%s%s", row > 0 ? "," : "", text);
        }
    }
    printf("; ");
}

static void import_all(const char *address) {
    struct imported *here = &held[n_held++];
    devx_ipc_client_t *client = NULL;
    must(devx_ipc_client_create(address, DEVX_IPC_TIMEOUT_NS, &client, &error));
    snprintf(here->address, sizeof here->address, "%s", address);
    for (int i = 0; i < TENSORS - !cuda; i++) {
        must(devx_ipc_client_import_tensor(client, tensor_names[i], &here->tensors[i], &error));
        show_tensor(tensor_names[i], here->tensors[i]);
    }
    for (int i = 0; i < BATCHES; i++) {
        must(devx_ipc_client_import_batch(client, batch_names[i], &here->batches[i], &error));
        show_batch(batch_names[i], here->batches[i]);
    }
    devx_ipc_client_release(&client);
    puts("");
}

static void write_first(const char *address) {
    for (int i = 0; i < n_held; i++) {
        DLTensor view;
        if (strcmp(held[i].address, address) != 0) continue;
        must(devx_tensor_borrow(held[i].tensors[0], &view, NULL, &error));
        ((int32_t *)view.data)[0]++;
    }
    puts("written");
}

static void release_all(void) {
    for (; n_held > 0; n_held--) {
        struct imported *here = &held[n_held - 1];
        if (cuda) must(devx_tensor_used_on(here->tensors[TENSORS - 1], stream, &error));
        for (int i = 0; i < TENSORS; i++) devx_tensor_release(&here->tensors[i]);
        for (int i = 0; i < BATCHES; i++) devx_batch_release(&here->batches[i]);
    }
    puts("released");
}

int main(int argc, char **argv) {
    const int64_t shape[] = {2, 3};
    devx_ipc_server_t *server = NULL;
    devx_tensor_t *shared = NULL;
    DLTensor view;
    char line[256], verb[16], address[128];
    if (argc < 2) return 2;
    cuda = argc > 2;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    must(devx_ipc_server_create(argv[1], &server, &error));
    if (cuda) must(devx_stream_create(gpu, &stream, &error));
    must(devx_tensor_allocate_shared(int32, shape, 2, &shared, &error));
    must(devx_tensor_borrow(shared, &view, NULL, &error));
    int32_t *values = view.data;
    for (int32_t i = 0; i < 6; i++) values[i] = i + 1;
    must(devx_ipc_server_offer_tensor(server, "shared", shared, DEVX_COPY_NEVER, &error));
    offer_all(server, values);
    puts("ready");
    while (fgets(line, sizeof line, stdin) != NULL) {
        address[0] = '\0';
        if (sscanf(line, "%15s %127s", verb, address) < 1) return 2;
        if (strcmp(verb, "import") == 0) {
            import_all(address);
        } else if (strcmp(verb, "write") == 0) {
            write_first(address);
        } else if (strcmp(verb, "look") == 0) {
            int64_t leases = -1;
            must(devx_ipc_server_leases(server, &leases, &error));
            printf("%d %" PRId64 " %" PRId64 "\n", values[0], leases, devx_ledger_outstanding());
        } else if (strcmp(verb, "release") == 0) {
            release_all();
        } else {
            return 2;
        }
    }
    devx_tensor_release(&shared);
    devx_ipc_server_release(&server);
    for (int i = 0; i < 120000 && devx_ledger_outstanding() != 0; i++) usleep(1000);
    printf("outstanding %" PRId64 "\n", devx_ledger_outstanding());
    return 0;
}
