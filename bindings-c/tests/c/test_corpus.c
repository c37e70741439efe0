/* The corpus of bad input (tests/corpus) through the C API: a test for each case. The library of the corpus makes the cases and
 * checks what becomes of their structs; this program imports them and compares the errors. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <corpus.h>
#include <devexchange.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t const PATIENCE_NS = INT64_C(10000000000);

/* The result of an import. */
struct imported {
    devx_schema_t *schema;
    devx_batch_t *batch;
    devx_batch_stream_t *stream;
    devx_async_reader_t *reader;
    devx_tensor_t *tensor;
};

/* An output that was not written still says so. */
#define UNWRITTEN ((void *)(uintptr_t)0x5a5a5a5a)

static devx_error error;
static char why[1024];

/* How many allocations failed while a case was run. */
static int64_t failed;

#define WRONG(...) (snprintf(why, sizeof why, __VA_ARGS__), why)

/* --- reading, which finds what only the data shows --- */

static devx_status read_rows(devx_batch_t *batch, const devx_column *column);

/* Reads a row, wherever it is stored, as a list or as bytes; in any other row nothing can be wrong. */
static devx_status read_row(devx_batch_t *batch, const devx_column *column, int64_t row) {
    devx_column stored, values;
    const char *bytes;
    size_t length;
    int32_t valid;
    devx_status status = devx_column_resolve(batch, column, row, &valid, &stored, &row, &error);
    if (status != DEVX_OK || !valid) {
        return status;
    }
    status = devx_column_list(batch, &stored, row, &values, &error);
    if (status == DEVX_OK) {
        return read_rows(batch, &values);
    }
    if (status != DEVX_MISMATCH) {
        return status;
    }
    status = devx_column_bytes(batch, &stored, row, &bytes, &length, &error);
    return status == DEVX_MISMATCH ? DEVX_OK : status;
}

static devx_status read_rows(devx_batch_t *batch, const devx_column *column) {
    for (int64_t row = 0; row < column->length; ++row) {
        devx_status const status = read_row(batch, column, row);
        if (status != DEVX_OK) {
            return status;
        }
    }
    return DEVX_OK;
}

static devx_status read_batch(devx_batch_t *batch) {
    devx_column root;
    devx_status const status = devx_batch_root(batch, &root, &error);
    return status == DEVX_OK ? read_rows(batch, &root) : status;
}

/* Reads all batches until there are no more. */
static devx_status read_stream(const struct imported *from, int64_t *batches) {
    for (;;) {
        devx_batch_t *batch = NULL;
        devx_status const status = from->stream != NULL
                                       ? devx_batch_stream_next(from->stream, &batch, &error)
                                       : devx_async_reader_next(from->reader, PATIENCE_NS, &batch, NULL, &error);
        if (status != DEVX_OK || batch == NULL) {
            return status;
        }
        *batches += 1;
        devx_batch_release(&batch);
    }
}

static devx_status read_all(const struct imported *from, int64_t *batches) {
    if (from->batch != NULL) {
        return read_batch(from->batch);
    }
    return from->stream != NULL || from->reader != NULL ? read_stream(from, batches) : DEVX_OK;
}

/* --- the imports --- */

static devx_status import_array(corpus_made *made, int device, struct imported *out) {
    devx_status status = devx_schema_import(corpus_schema(made), &out->schema, &error);
    if (status == DEVX_OK) {
        status = device ? devx_batch_import_device(corpus_address(made), out->schema, &out->batch, &error)
                        : devx_batch_import(corpus_address(made), out->schema, &out->batch, &error);
    }
    return status;
}

static devx_status import_async(corpus_made *made, struct imported *out) {
    struct ArrowAsyncDeviceStreamHandler *handler = NULL;
    devx_status status = devx_async_reader_create(4, 1, NULL, &out->reader, &error);
    if (status != DEVX_OK) {
        corpus_drive(made, NULL);
        return status;
    }
    status = devx_async_reader_handler(out->reader, &handler, &error);
    if (status != DEVX_OK) {
        return status;
    }
    corpus_drive(made, handler);
    return devx_async_reader_schema(out->reader, PATIENCE_NS, &out->schema, &error);
}

static devx_status import_ipc(corpus_made *made, int batch, struct imported *out) {
    devx_ipc_client_t *client = NULL;
    devx_status status = devx_ipc_client_create(corpus_listens(made), DEVX_IPC_TIMEOUT_NS, &client, &error);
    if (status == DEVX_OK) {
        status = batch ? devx_ipc_client_import_batch(client, "t", &out->batch, &error)
                       : devx_ipc_client_import_tensor(client, "t", &out->tensor, &error);
    }
    devx_ipc_client_release(&client);
    return status;
}

/* Imports the structs of a case. Returns 0 if there is no import of that kind. */
static int import(const char *kind, corpus_made *made, struct imported *out, devx_status *status) {
    void *const at = corpus_address(made);
    if (strcmp(kind, "schema") == 0) {
        *status = devx_schema_import(at, &out->schema, &error);
    } else if (strcmp(kind, "array") == 0 || strcmp(kind, "device_array") == 0) {
        *status = import_array(made, kind[0] == 'd', out);
    } else if (strcmp(kind, "stream") == 0) {
        *status = devx_batch_stream_import(at, &out->stream, &error);
    } else if (strcmp(kind, "device_stream") == 0) {
        *status = devx_batch_stream_import_device(at, &out->stream, &error);
    } else if (strcmp(kind, "async") == 0) {
        *status = import_async(made, out);
    } else if (strcmp(kind, "dlpack") == 0) {
        *status = devx_tensor_import(at, &out->tensor, &error);
    } else if (strcmp(kind, "dlpack_legacy") == 0) {
        *status = devx_tensor_import_legacy(at, &out->tensor, &error);
    } else if (strcmp(kind, "cuda_array") == 0) {
        *status = devx_cuda_array_import(at, NULL, &out->tensor, NULL, &error);
    } else if (strcmp(kind, "ipc_tensor") == 0 || strcmp(kind, "ipc_batch") == 0) {
        *status = import_ipc(made, kind[4] == 'b', out);
    } else {
        return 0;
    }
    return 1;
}

static void close_all(struct imported *all) {
    devx_batch_release(&all->batch);
    devx_batch_stream_release(&all->stream);
    devx_async_reader_release(&all->reader);
    devx_tensor_release(&all->tensor);
    devx_schema_release(&all->schema);
}

/* --- a case --- */

/* Says what is wrong with the error, or NULL. `status` is that of the call that failed, if one did. */
static const char *judge(int64_t i, devx_status status, const char *stage, int64_t batches) {
    const char *const expected = corpus_text(i, "status"), *const says = corpus_text(i, "says");
    if (batches != corpus_batches(i)) {
        return WRONG("%d batches came, not %d", (int)batches, (int)corpus_batches(i));
    }
    if (status == DEVX_OK) {
        return expected[0] == '\0' ? NULL : WRONG("it was accepted, but is %s: %s", expected, says);
    }
    /* A text is shorter if there is no memory for it. */
    int const said = failed > 0 || strstr(error.message, says) != NULL;
    if (strcmp(devx_status_name(status), expected) != 0 || !said ||
        strcmp(stage, corpus_text(i, "stage")) != 0) {
        return WRONG("%s at %s: %s; expected %s: %s", devx_status_name(status), stage, error.message, expected, says);
    }
    return error.status == status ? NULL : WRONG("the record says %s", devx_status_name(error.status));
}

/* The same, for a callback of the producer that failed. */
static const char *judge_callback(devx_status status) {
    int const right = status == corpus_callback_status() && error.status == status &&
                      strstr(error.message, corpus_callback_says()) != NULL;
    return right ? NULL
                 : WRONG("%s: %s; expected %s: %s", devx_status_name(status), error.message,
                         devx_status_name(corpus_callback_status()), corpus_callback_says());
}

/* What fails while a case runs: nothing; the nth allocation, alone or with all that follow; or the nth callback, in some
 * way. */
struct fault {
    enum { NOTHING, ALLOCATION, CALLBACK } what;
    int64_t nth;
    int how;
};

/* Runs a case with a fault. */
static const char *run(int64_t i, struct fault fault) {
    struct imported all = {NULL, NULL, NULL, NULL, NULL};
    corpus_made *const made = corpus_make(i);
    devx_status status = DEVX_OK;
    int64_t batches = 0;
    error = (devx_error){0, 0, ""};
    failed = 0;
    if (fault.what == ALLOCATION) {
        corpus_fault_arm(fault.nth, fault.how);
    } else if (fault.what == CALLBACK) {
        corpus_callback_arm(fault.nth, fault.how);
    }
    if (!import(corpus_text(i, "kind"), made, &all, &status)) {
        return WRONG("there is no import of a %s", corpus_text(i, "kind"));
    }
    const char *wrong = corpus_after(made, status != DEVX_OK);
    const char *stage = "import";
    if (status == DEVX_OK) {
        stage = "read";
        status = read_all(&all, &batches);
    }
    close_all(&all);
    failed = fault.what == CALLBACK ? corpus_callback_disarm() : corpus_fault_disarm();
    if (wrong == NULL && failed > 0 && fault.what == CALLBACK) {
        wrong = judge_callback(status);
    } else if (wrong == NULL && (failed == 0 || status != DEVX_OUT_OF_MEMORY)) {
        /* Missing memory is itself the error, wherever it happens. */
        wrong = judge(i, status, stage, batches);
    }
    const char *const left = corpus_end(made);
    if (wrong != NULL || left != NULL) {
        return wrong != NULL ? wrong : left;
    }
    int64_t const outstanding = devx_ledger_outstanding();
    return outstanding == 0 ? NULL : WRONG("%d things are outstanding", (int)outstanding);
}

/* Runs a case again and again, while each of its allocations fails, alone or with all that follow, or while each callback of
 * its producer fails in each way. Returns NULL, or what is wrong. */
static const char *sweep(int64_t i, int what, int ways, int64_t *faults) {
    for (int how = 0; how < ways; ++how) {
        struct fault fault = {what, 0, how};
        do {
            fault.nth += 1;
            const char *const wrong = run(i, fault);
            if (wrong != NULL) {
                static char which[sizeof why + 100];
                snprintf(which, sizeof which, "%s %d, %d: %s", what == ALLOCATION ? "without allocation" : "callback",
                         (int)fault.nth, how, wrong);
                return which;
            }
            *faults += failed;
        } while (failed > 0);
    }
    return NULL;
}

/* Whether the case is good input from which batches are pulled through callbacks. */
static int has_callbacks(int64_t i) {
    const char *const kind = corpus_text(i, "kind");
    return (strstr(kind, "stream") != NULL || strcmp(kind, "async") == 0) && corpus_text(i, "status")[0] == '\0';
}

/* Checks that a refused import does not write its output. The outputs of the cases themselves are NULL before. */
static const char *run_outputs(void) {
    devx_schema_t *schema = UNWRITTEN;
    for (int64_t i = 0; i < corpus_count(); ++i) {
        if (strcmp(corpus_text(i, "kind"), "schema") != 0 || corpus_text(i, "status")[0] == '\0') {
            continue;
        }
        corpus_made *const made = corpus_make(i);
        devx_status const status = devx_schema_import(corpus_address(made), &schema, NULL);
        const char *const after = corpus_after(made, status != DEVX_OK);
        const char *const left = corpus_end(made);
        if (status == DEVX_OK || schema != UNWRITTEN || after != NULL || left != NULL) {
            return WRONG("%s, without a place for its text", corpus_text(i, "name"));
        }
    }
    return NULL;
}

static int passed;

static int report(const char *name, const char *wrong) {
    if (wrong == NULL) {
        passed += 1;
        printf("ok - %s\n", name);
        return 0;
    }
    printf("not ok - %s: %s\n", name, wrong);
    return 1;
}

int main(void) {
    /* Otherwise a block that was given back once is not allocated again. */
    setenv("DEVEXCHANGE_KEEP_BLOCKS", "0", 1);
    int64_t ran = 0, of_cuda = 0, faults = 0, callbacks = 0;
    int bad = report("nobody has to want the text", run_outputs());
    int const changed = corpus_fault_install("libdevexchange.so");
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int64_t i = 0; i < corpus_count(); ++i) {
        if (corpus_is_for(i, "c")) {
            ran += 1;
            of_cuda += strcmp(corpus_text(i, "needs"), "cuda") == 0;
            const char *wrong = run(i, (struct fault){NOTHING, 0, 0});
            if (wrong == NULL) {
                wrong = sweep(i, ALLOCATION, 2, &faults);
            }
            if (wrong == NULL && has_callbacks(i)) {
                wrong = sweep(i, CALLBACK, 3, &callbacks);
            }
            bad += report(corpus_text(i, "name"), wrong);
        }
    }
    printf("# %d allocations and %d callbacks failed\n", (int)faults, (int)callbacks);
    bad += report("allocations can fail", changed > 0 && faults > 20000 ? NULL : "they do not");
    bad += report("callbacks can fail", callbacks > 150 ? NULL : "they do not");
    bad += report("every case was run", ran == corpus_count_for("c") && ran > 300 ? NULL : "some were not");
    /* scripts/test-c.sh sets this variable if it has put the simulated driver in place. */
    if (getenv("SIMCUDA_DEVICES") != NULL) {
        bad += report("there is a driver", of_cuda > 0 ? NULL : "these were the cases of a machine without one");
    }
    printf("# %d passed, %d failed, 0 skipped\n", passed, bad);
    return bad == 0 ? 0 : 1;
}
