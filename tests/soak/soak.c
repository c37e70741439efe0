/* C in the soak (soak.py): makes things, takes them and hands them on, and takes them for good, as languages.py says.
 *
 * Every function returns 0, or 1 after a line on stderr.
 */
#include <devexchange.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* As in languages.py. */
enum { DLPACK, DLPACK_LEGACY, CUDA_ARRAY, ARRAY, DEVICE_ARRAY, STREAM, DEVICE_STREAM };
enum { SHARE = 1 };
enum { SCHEMA_AT = 128, BATCHES = 2, ON_DEVICE = 2 };

typedef struct spec {
    int64_t dtype, ndim, shape[3], base, read_only, device_type;
} spec;

typedef union address {
    int64_t number;
    void *pointer;
} address;

static const DLDataType TYPES[] = {{kDLInt, 64, 1}, {kDLFloat, 64, 1}, {kDLInt, 32, 1}};
static const DLDevice CPU = {kDLCPU, 0};
static const int64_t LEGACY_STREAM = 1;

/* What a thread was told last. */
static _Thread_local devx_error error;

static int failed(char const *what, char const *text) {
    fprintf(stderr, "C: %s: %s\n", what, text);
    return 1;
}

#define TRY(call)                                  \
    do {                                           \
        if ((call) != DEVX_OK) {                   \
            return failed(#call, error.message);   \
        }                                          \
    } while (0)
#define CHECK(fact)                                \
    do {                                           \
        if (!(fact)) {                             \
            return failed(#fact, "is not so");     \
        }                                          \
    } while (0)

static void *at(int64_t number) { return ((address){.number = number}).pointer; }
static int64_t number_of(void *pointer) { return ((address){.pointer = pointer}).number; }

static int64_t elements(spec const *s) {
    int64_t total = 1;
    for (int64_t k = 0; k < s->ndim; k++) {
        total *= s->shape[k];
    }
    return total;
}

/* --- what C makes --- */

/* Elements base, base + 1, ... in row-major order. */
static void *values(spec const *s, int64_t dtype, int64_t n) {
    void *memory = malloc((size_t)n * 8);
    for (int64_t k = 0; memory != NULL && k < n; k++) {
        switch (dtype) {
        case 0: ((int64_t *)memory)[k] = s->base + k; break;
        case 1: ((double *)memory)[k] = (double)(s->base + k); break;
        default: ((int32_t *)memory)[k] = (int32_t)(s->base + k);
        }
    }
    return memory;
}

static int make_tensor(spec const *s, devx_tensor_t **out) {
    void *memory = values(s, s->dtype, elements(s));
    CHECK(memory != NULL);
    int64_t shape[3] = {s->shape[0], s->shape[1], s->shape[2]};
    DLTensor const description = {memory, CPU, (int32_t)s->ndim, TYPES[s->dtype], shape, NULL, 0};
    devx_owner const owner = {memory, free};
    TRY(devx_tensor_create(&description, s->read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0, &owner, out, &error));
    if (s->device_type == ON_DEVICE) {
        devx_tensor_t *host = *out;
        TRY(devx_tensor_copy_to(host, (DLDevice){kDLCUDA, 0}, LEGACY_STREAM, out, &error));
        devx_tensor_release(&host);
    }
    return 0;
}

static int make_batch(spec const *s, devx_batch_t **out) {
    static devx_field const fields[] = {
        {"+s", NULL, NULL, 0, 2, 0}, {"l", "n", NULL, DEVX_FIELD_NULLABLE, 0, 0}, {"g", "x", NULL, 0, 0, 0}};
    int64_t const rows = elements(s);
    int64_t *memory = malloc((size_t)rows * 16);
    CHECK(memory != NULL);
    for (int64_t k = 0; k < rows; k++) {
        memory[k] = s->base + k;
        ((double *)(memory + rows))[k] = (double)k;
    }
    void const *none[] = {NULL}, *n[] = {NULL, memory}, *x[] = {NULL, memory + rows};
    devx_node const nodes[] = {{rows, 0, 0, none, 1}, {rows, 0, 0, n, 2}, {rows, 0, 0, x, 2}};
    devx_owner const owner = {memory, free};
    devx_schema_t *schema;
    TRY(devx_schema_create(fields, 3, &schema, &error));
    TRY(devx_batch_create(schema, CPU, nodes, 3, &owner, out, &error));
    devx_schema_release(&schema);
    if (s->device_type == ON_DEVICE) {
        devx_batch_t *host = *out;
        TRY(devx_batch_copy_to(host, (DLDevice){kDLCUDA, 0}, LEGACY_STREAM, out, &error));
        devx_batch_release(&host);
    }
    return 0;
}

/* A stream that gives one batch BATCHES times. */
typedef struct source {
    devx_batch_t *batch;
    int left;
} source;

static devx_status next_batch(void *context, devx_batch **out, devx_error *why) {
    source *of = context;
    return of->left-- > 0 ? devx_batch_share(of->batch, out, why) : DEVX_OK;
}

static void release_source(void *context) {
    devx_batch_release(&((source *)context)->batch);
    free(context);
}

static int make_stream(spec const *s, devx_batch_stream_t **out) {
    source *of = calloc(1, sizeof *of);
    CHECK(of != NULL);
    of->left = BATCHES;
    if (make_batch(s, &of->batch)) {
        return 1;
    }
    devx_schema_t *schema;
    TRY(devx_batch_schema(of->batch, &schema, &error));
    devx_batch_source const record = {of, next_batch, release_source};
    TRY(devx_batch_stream_create(schema, (int32_t)s->device_type, &record, out, &error));
    devx_schema_release(&schema);
    return 0;
}

/* --- what C sees --- */

static int check_tensor(spec const *s, devx_tensor_t *tensor) {
    devx_tensor_t *copy = NULL;
    if (s->device_type == ON_DEVICE) {
        TRY(devx_tensor_copy_to(tensor, CPU, LEGACY_STREAM, &copy, &error));
    }
    DLTensor view;
    uint64_t flags;
    TRY(devx_tensor_borrow(tensor, &view, &flags, &error));
    CHECK(!s->read_only == !(flags & DLPACK_FLAG_BITMASK_READ_ONLY));
    if (copy != NULL) {
        TRY(devx_tensor_borrow(copy, &view, NULL, &error));
    }
    CHECK(view.ndim == s->ndim && view.dtype.code == TYPES[s->dtype].code && view.dtype.bits == TYPES[s->dtype].bits);
    int64_t last = 0;
    for (int64_t k = 0; k < s->ndim; k++) {
        CHECK(view.shape[k] == s->shape[k]);
        last += (s->shape[k] - 1) * view.strides[k];
    }
    double const found = s->dtype == 0   ? (double)((int64_t *)view.data)[last]
                         : s->dtype == 1 ? ((double *)view.data)[last]
                                         : (double)((int32_t *)view.data)[last];
    CHECK(found == (double)(s->base + elements(s) - 1));
    devx_tensor_release(&copy);
    return 0;
}

static int check_batch(spec const *s, devx_batch_t *batch) {
    devx_batch_t *copy = NULL;
    if (s->device_type == ON_DEVICE) {
        TRY(devx_batch_copy_to(batch, CPU, LEGACY_STREAM, &copy, &error));
    }
    devx_column n;
    TRY(devx_batch_column_named(copy != NULL ? copy : batch, "n", &n, &error));
    CHECK(n.length == elements(s));
    CHECK(((int64_t const *)n.buffers[1])[n.offset + n.length - 1] == s->base + n.length - 1);
    devx_batch_release(&copy);
    return 0;
}

static int check_stream(spec const *s, devx_batch_stream_t *stream) {
    for (int left = BATCHES; left >= 0; left--) {
        devx_batch_t *batch = NULL;
        TRY(devx_batch_stream_next(stream, &batch, &error));
        CHECK((batch != NULL) == (left > 0));
        if (batch != NULL && check_batch(s, batch)) {
            return 1;
        }
        devx_batch_release(&batch);
    }
    return 0;
}

/* --- one thing, whatever it is --- */

typedef struct thing {
    devx_tensor_t *tensor;
    devx_batch_t *batch;
    devx_batch_stream_t *stream;
} thing;

static void give_up(thing *it) {
    devx_tensor_release(&it->tensor);
    devx_batch_release(&it->batch);
    devx_batch_stream_release(&it->stream);
}

static devx_status take(int protocol, spec const *s, int64_t from, thing *out) {
    void *source = at(from);
    struct ArrowSchema *schema = (struct ArrowSchema *)((char *)source + SCHEMA_AT);
    int64_t const stream = s->device_type == ON_DEVICE ? LEGACY_STREAM : -1;
    devx_cuda_array_request const request = {3, DEVX_NO_STREAM_LEGACY_DEFAULT, LEGACY_STREAM};
    switch (protocol) {
    case DLPACK: return devx_tensor_import_on(source, stream, &out->tensor, &error);
    case DLPACK_LEGACY: return devx_tensor_import_on_legacy(source, stream, &out->tensor, &error);
    case CUDA_ARRAY: return devx_cuda_array_import(source, &request, &out->tensor, NULL, &error);
    case ARRAY: return devx_batch_import_pair(source, schema, &out->batch, &error);
    case DEVICE_ARRAY: return devx_batch_import_pair_device(source, schema, &out->batch, &error);
    case STREAM: return devx_batch_stream_import(source, &out->stream, &error);
    default: return devx_batch_stream_import_device(source, &out->stream, &error);
    }
}

static int give_tensor(int protocol, spec const *s, thing *it, int share, int64_t *out) {
    devx_dlpack_request const request = {1, 3, s->device_type == ON_DEVICE ? LEGACY_STREAM : -1, DEVX_COPY_NEVER};
    devx_dlpack_request legacy = request;
    legacy.max_major = legacy.max_minor = 0;
    devx_cuda_array_request const array = {3, DEVX_NO_STREAM_LEGACY_DEFAULT, LEGACY_STREAM};
    struct DLManagedTensorVersioned *versioned;
    struct DLManagedTensor *unversioned;
    if (protocol == DLPACK) {
        TRY(share ? devx_tensor_export_share(it->tensor, &request, &versioned, &error)
                  : devx_tensor_export_move(&it->tensor, &request, &versioned, &error));
        *out = number_of(versioned);
    } else if (protocol == DLPACK_LEGACY) {
        TRY(share ? devx_tensor_export_share_legacy(it->tensor, &legacy, &unversioned, &error)
                  : devx_tensor_export_move_legacy(&it->tensor, &legacy, &unversioned, &error));
        *out = number_of(unversioned);
    } else {
        TRY(share ? devx_tensor_export_share_cuda_array(it->tensor, &array, at(*out), &error)
                  : devx_tensor_export_move_cuda_array(&it->tensor, &array, at(*out), &error));
    }
    return 0;
}

static int give(int protocol, spec const *s, thing *it, int share, int64_t *out) {
    if (protocol <= CUDA_ARRAY) {
        return give_tensor(protocol, s, it, share, out);
    }
    void *target = at(*out);
    if (protocol == STREAM) {
        TRY(devx_batch_stream_export(&it->stream, target, &error));
    } else if (protocol == DEVICE_STREAM) {
        TRY(devx_batch_stream_export_device(&it->stream, target, &error));
    } else {
        devx_schema_t *schema;
        TRY(devx_batch_schema(it->batch, &schema, &error));
        if (protocol == ARRAY) {
            TRY(share ? devx_batch_export_share(it->batch, target, &error)
                      : devx_batch_export_move(&it->batch, target, &error));
        } else {
            TRY(share ? devx_batch_export_share_device(it->batch, target, &error)
                      : devx_batch_export_move_device(&it->batch, target, &error));
        }
        TRY(devx_schema_export(schema, (struct ArrowSchema *)((char *)target + SCHEMA_AT), &error));
        devx_schema_release(&schema);
    }
    return 0;
}

static int check(spec const *s, thing *it) {
    return it->tensor != NULL  ? check_tensor(s, it->tensor)
           : it->batch != NULL ? check_batch(s, it->batch)
                               : check_stream(s, it->stream);
}

/* --- what soak.py calls --- */

int soak_make(int protocol, spec const *s, int64_t n, int64_t *out, int flags) {
    for (int64_t i = 0; i < n; i++) {
        thing it = {NULL, NULL, NULL};
        if (protocol <= CUDA_ARRAY ? make_tensor(s, &it.tensor)
            : protocol < STREAM    ? make_batch(s, &it.batch)
                                   : make_stream(s, &it.stream)) {
            return 1;
        }
        if (give(protocol, s, &it, flags & SHARE, &out[i])) {
            return 1;
        }
        give_up(&it);
    }
    return 0;
}

int soak_pass(int from, int to, spec const *s, int64_t n, int64_t const *in, int64_t *out, int flags) {
    for (int64_t i = 0; i < n; i++) {
        thing it = {NULL, NULL, NULL};
        TRY(take(from, s, in[i], &it));
        if ((it.stream == NULL && check(s, &it)) || give(to, s, &it, flags & SHARE, &out[i])) {
            return 1;
        }
        give_up(&it);
    }
    return 0;
}

int soak_end(int from, spec const *s, int64_t n, int64_t const *in, int flags) {
    (void)flags;
    for (int64_t i = 0; i < n; i++) {
        thing it = {NULL, NULL, NULL};
        TRY(take(from, s, in[i], &it));
        if (check(s, &it)) {
            return 1;
        }
        give_up(&it);
    }
    return 0;
}

/* Things that must not be taken. */
int soak_refuse(int from, spec const *s, int64_t n, int64_t const *in) {
    for (int64_t i = 0; i < n; i++) {
        thing it = {NULL, NULL, NULL};
        CHECK(take(from, s, in[i], &it) != DEVX_OK);
    }
    return 0;
}

/* A consumer that looks at nothing and only releases. */
int soak_drop(int from, int64_t n, int64_t const *in) {
    for (int64_t i = 0; i < n; i++) {
        void *source = at(in[i]);
        struct ArrowArray *array = source;
        struct ArrowSchema *schema = (struct ArrowSchema *)((char *)source + SCHEMA_AT);
        struct ArrowArrayStream *stream = source;
        struct ArrowDeviceArrayStream *device_stream = source;
        struct DLManagedTensorVersioned *versioned = source;
        struct DLManagedTensor *legacy = source;
        switch (from) {
        case DLPACK: devx_dlpack_release(&versioned); break;
        case DLPACK_LEGACY: devx_dlpack_release_legacy(&legacy); break;
        case CUDA_ARRAY: devx_cuda_array_release(source); break;
        case STREAM: stream->release(stream); break;
        case DEVICE_STREAM: device_stream->release(device_stream); break;
        default: schema->release(schema), array->release(array);
        }
    }
    return 0;
}
