/*
 * The third party of the demo. It reads two CSV files into its own buffers and exports them as Arrow record batches and as
 * a DLPack tensor. It uses only the installed headers of devexchange.
 *
 * A table's buffers form one set with a reference count. `weather` itself holds one reference, and each export another
 * one: its owner gives it up. The last holder frees the set, so exports outlive weather_close(). With a device, the set
 * also has the copies there, and a reference to the stream that fills them.
 */
#include "weather.h"

#include "table.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MEASUREMENTS = 4, MONTHS = 12 };

/* --- errors and counts --- */

static atomic_llong live_sets;
static atomic_llong freed_sets;

static int fail_devx(const char *what, const devx_error *error) {
    return table_fail("%s: %s: %s", what, devx_status_name(error->status), error->message);
}

const char *weather_error(void) {
    return table_error();
}

int64_t weather_live_buffers(void) {
    return atomic_load(&live_sets);
}

int64_t weather_freed_buffers(void) {
    return atomic_load(&freed_sets);
}

int64_t weather_outstanding(void) {
    return devx_ledger_outstanding();
}

/* --- sets of buffers --- */

/* A device and this library's stream there, shared by the sets: the last one to give it up closes the stream. */
typedef struct place {
    atomic_int references;
    DLDevice device;
    int64_t stream;
} place;

/* A table with everything that is made from it. */
typedef struct set {
    atomic_int references;
    table table;
    double *matrix; /* the measurements, row by row; only in the set of the days */
    /* The copies on a device; all NULL if the tables stay in host memory. */
    place *place;
    devx_batch_t *on_device;
    devx_tensor_t *matrix_on_device;
} set;

enum { DATE_COLUMN = 0, FIRST_MEASUREMENT = 1 }; /* columns of the days */

static const column_kind airport_kinds[] = {
    {"iata", TEXT, 0},    {"name", TEXT, 0},       {"city", TEXT, 1},        {"state", TEXT, 1},
    {"country", TEXT, 0}, {"latitude", NUMBER, 0}, {"longitude", NUMBER, 0},
};
static const column_kind day_kinds[] = {
    {"date", DATE, 0},       {"precipitation", NUMBER, 0}, {"temp_max", NUMBER, 0},
    {"temp_min", NUMBER, 0}, {"wind", NUMBER, 0},          {"weather", CATEGORY, 0},
};

static set *set_new(const char *name, const column_kind *kinds, int n_columns) {
    set *s = calloc(1, sizeof *s);
    if (s == NULL) {
        table_fail("out of memory");
        return NULL;
    }
    atomic_init(&s->references, 1);
    s->table.name = name;
    s->table.kinds = kinds;
    s->table.n_columns = n_columns;
    atomic_fetch_add(&live_sets, 1);
    return s;
}

static void place_release(place *p) {
    if (p != NULL && atomic_fetch_sub_explicit(&p->references, 1, memory_order_acq_rel) == 1) {
        /* Queued work is still done, and releases that wait for it keep the stream. */
        devx_stream_close(p->device, p->stream, NULL);
        free(p);
    }
}

/* Gives up a reference to a set. It is also the release function of the owners, which any thread may call. */
static void set_release(void *context) {
    set *s = context;
    if (s == NULL || atomic_fetch_sub_explicit(&s->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    table_free(&s->table);
    free(s->matrix);
    devx_tensor_release(&s->matrix_on_device);
    devx_batch_release(&s->on_device);
    place_release(s->place); /* last, because memory is given back in the order of its stream */
    free(s);
    atomic_fetch_sub(&live_sets, 1);
    atomic_fetch_add(&freed_sets, 1);
}

/* An owner with a new reference, for one export. If the call that gets it fails, the caller must release it. */
static devx_owner set_owner(set *s) {
    atomic_fetch_add_explicit(&s->references, 1, memory_order_relaxed);
    devx_owner owner = {s, set_release};
    return owner;
}

static const double *numbers(const table *t, int i) {
    return (const double *)(const void *)t->columns[i].values.data;
}

static int make_matrix(set *days) {
    days->matrix = malloc((size_t)(days->table.rows > 0 ? days->table.rows : 1) * MEASUREMENTS * sizeof *days->matrix);
    if (days->matrix == NULL) {
        return table_fail("out of memory");
    }
    for (int64_t row = 0; row < days->table.rows; ++row) {
        for (int k = 0; k < MEASUREMENTS; ++k) {
            days->matrix[row * MEASUREMENTS + k] = numbers(&days->table, FIRST_MEASUREMENT + k)[row];
        }
    }
    return 0;
}

/* --- the object --- */

struct weather {
    set *airports;
    set *days;
};

static int open_tables(weather *w, const char *directory) {
    w->airports = set_new("airports", airport_kinds, (int)(sizeof airport_kinds / sizeof *airport_kinds));
    w->days = set_new("days", day_kinds, (int)(sizeof day_kinds / sizeof *day_kinds));
    return w->airports == NULL || w->days == NULL || table_read(&w->airports->table, directory, "airports.csv") != 0 ||
           table_read(&w->days->table, directory, "seattle-weather.csv") != 0 || make_matrix(w->days) != 0;
}

int weather_open(const char *directory, weather **out) {
    if (directory == NULL || out == NULL) {
        return table_fail("%s is NULL", directory == NULL ? "directory" : "out");
    }
    weather *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return table_fail("out of memory");
    }
    if (open_tables(w, directory) != 0) {
        weather_close(w);
        return 1;
    }
    *out = w;
    return 0;
}

void weather_close(weather *w) {
    if (w != NULL) {
        set_release(w->airports);
        set_release(w->days);
        free(w);
    }
}

/* --- record batches --- */

static const char *format_of(kind k) {
    switch (k) {
    case TEXT: return "u";
    case NUMBER: return "g";
    case DATE: return "tdD";
    case CATEGORY: return "c"; /* the format of the indices */
    }
    return "";
}

/* The fields and nodes of a table in depth-first order: the root, then each column, followed by its dictionary. */
typedef struct description {
    devx_field fields[1 + 2 * MAX_COLUMNS];
    devx_node nodes[1 + 2 * MAX_COLUMNS];
    const void *buffers[1 + 2 * MAX_COLUMNS][3];
    size_t count;
} description;

static devx_node *describe_node(description *d, const char *format, const char *name, int64_t flags, int64_t length) {
    size_t const i = d->count++;
    d->fields[i] = (devx_field){format, name, NULL, flags, 0, 0};
    d->nodes[i] = (devx_node){length, 0, 0, d->buffers[i], 1};
    return &d->nodes[i];
}

static void set_buffers(description *d, devx_node *node, const bytes *validity, const bytes *second,
                        const bytes *third) {
    const void **to = d->buffers[node - d->nodes];
    to[0] = validity == NULL ? NULL : validity->data;
    to[1] = second->data;
    to[2] = third == NULL ? NULL : third->data;
    node->n_buffers = third == NULL ? 2 : 3;
}

static void describe_table(const table *t, description *d) {
    d->count = 0;
    describe_node(d, "+s", "", 0, t->rows);
    d->buffers[0][0] = NULL;
    d->fields[0].n_children = t->n_columns;
    for (int i = 0; i < t->n_columns; ++i) {
        const column *c = &t->columns[i];
        const column_kind *k = &t->kinds[i];
        devx_node *node = describe_node(d, format_of(k->kind), k->name, k->nullable ? DEVX_FIELD_NULLABLE : 0, t->rows);
        /* A column without nulls needs no validity. */
        const bytes *validity = c->nulls > 0 ? &c->validity : NULL;
        node->null_count = c->nulls;
        if (k->kind == TEXT) {
            set_buffers(d, node, validity, &c->offsets, &c->values);
        } else {
            set_buffers(d, node, validity, &c->values, NULL);
        }
        if (k->kind == CATEGORY) {
            d->fields[d->count - 1].has_dictionary = 1;
            set_buffers(d, describe_node(d, "u", "", 0, c->categories), NULL, &c->texts_offsets, &c->texts);
        }
    }
}

/* Sets the buffers of a node to those of a column on the device. */
static void set_device_buffers(description *d, size_t node, const devx_column *c) {
    for (int64_t i = 0; i < d->nodes[node].n_buffers; ++i) {
        d->buffers[node][i] = c->buffers[i];
    }
}

/* Describes the same table with its addresses on the device. */
static int describe_on_device(const set *s, description *d, devx_error *error) {
    describe_table(&s->table, d);
    size_t node = 1;
    for (int i = 0; i < s->table.n_columns; ++i) {
        devx_column column, dictionary;
        if (devx_batch_column(s->on_device, i, &column, error) != DEVX_OK) {
            return 1;
        }
        set_device_buffers(d, node++, &column);
        if (column.has_dictionary) {
            if (devx_column_dictionary(s->on_device, &column, &dictionary, error) != DEVX_OK) {
                return 1;
            }
            set_device_buffers(d, node++, &dictionary);
        }
    }
    return 0;
}

static const DLDevice cpu = {kDLCPU, 0};

/* Makes a batch over a set's buffers, and its schema, which the caller releases in any case. Returns NULL on failure. */
static devx_batch_t *make_batch(set *s, devx_schema_t **schema) {
    description d;
    devx_error error;
    devx_batch_t *batch = NULL;
    int described = 1;
    if (s->place == NULL) {
        describe_table(&s->table, &d);
    } else {
        described = describe_on_device(s, &d, &error) == 0;
    }
    if (!described || devx_schema_create(d.fields, d.count, schema, &error) != DEVX_OK) {
        fail_devx(s->table.name, &error);
        return NULL;
    }
    devx_owner const owner = set_owner(s);
    DLDevice const device = s->place == NULL ? cpu : s->place->device;
    if (devx_batch_create(*schema, device, d.nodes, d.count, &owner, &batch, &error) != DEVX_OK) {
        fail_devx(s->table.name, &error);
        owner.release(owner.context);
    } else if (s->place != NULL && devx_batch_produced_on(batch, s->place->stream, &error) != DEVX_OK) {
        fail_devx(s->table.name, &error);
        devx_batch_release(&batch);
    }
    return batch;
}

static int export_set(set *s, struct ArrowDeviceArray *array, struct ArrowSchema *schema) {
    devx_error error;
    struct ArrowSchema exported;
    devx_schema_t *described = NULL;
    devx_batch_t *batch = make_batch(s, &described);
    int failed = batch == NULL;
    if (!failed && devx_schema_export(described, &exported, &error) != DEVX_OK) {
        failed = fail_devx(s->table.name, &error);
    }
    if (!failed && devx_batch_export_move_device(&batch, array, &error) != DEVX_OK) {
        exported.release(&exported);
        failed = fail_devx(s->table.name, &error);
    }
    if (!failed) {
        *schema = exported;
    }
    devx_batch_release(&batch);
    devx_schema_release(&described);
    return failed;
}

int weather_airports(weather *w, struct ArrowDeviceArray *array, struct ArrowSchema *schema) {
    if (w == NULL || array == NULL || schema == NULL) {
        return table_fail("weather_airports: an argument is NULL");
    }
    return export_set(w->airports, array, schema);
}

int weather_days(weather *w, struct ArrowDeviceArray *array, struct ArrowSchema *schema) {
    if (w == NULL || array == NULL || schema == NULL) {
        return table_fail("weather_days: an argument is NULL");
    }
    return export_set(w->days, array, schema);
}

/* --- tensors --- */

static const DLDataType float64 = {kDLFloat, 64, 1};

/* Makes a tensor over a set's matrix. Returns NULL on failure. */
static devx_tensor_t *make_matrix_tensor(set *days) {
    int64_t shape[2] = {days->table.rows, MEASUREMENTS};
    DLTensor description = {days->matrix, cpu, 2, float64, shape, NULL, 0};
    devx_tensor_t *tensor = NULL;
    devx_error error;
    if (days->place != NULL && devx_tensor_borrow(days->matrix_on_device, &description, NULL, &error) != DEVX_OK) {
        fail_devx("measurements", &error);
        return NULL;
    }
    devx_owner const owner = set_owner(days);
    if (devx_tensor_create(&description, 0, &owner, &tensor, &error) != DEVX_OK) {
        fail_devx("measurements", &error);
        owner.release(owner.context);
    } else if (days->place != NULL && devx_tensor_produced_on(tensor, days->place->stream, &error) != DEVX_OK) {
        fail_devx("measurements", &error);
        devx_tensor_release(&tensor);
    }
    return tensor;
}

int weather_measurements(weather *w, int64_t stream, struct DLManagedTensorVersioned **out) {
    if (w == NULL || out == NULL) {
        return table_fail("weather_measurements: an argument is NULL");
    }
    devx_tensor_t *tensor = make_matrix_tensor(w->days);
    if (tensor == NULL) {
        return 1;
    }
    devx_dlpack_request const request = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, stream, DEVX_COPY_NEVER};
    devx_error error;
    if (devx_tensor_export_move(&tensor, &request, out, &error) != DEVX_OK) {
        devx_tensor_release(&tensor);
        return fail_devx("measurements", &error);
    }
    return 0;
}

/* --- devices --- */

/*
 * Copies through pinned memory, so that the copies to the device are queued and this library does not wait for them. The
 * pinned batch is released at once; devexchange frees its memory when the copies are done.
 */
static devx_batch_t *batch_on_device(const devx_batch_t *batch, const place *p, devx_error *error) {
    devx_batch_t *pinned = NULL;
    devx_batch_t *out = NULL;
    if (devx_batch_copy_to(batch, (DLDevice){kDLCUDAHost, 0}, p->stream, &pinned, error) == DEVX_OK) {
        devx_batch_copy_to(pinned, p->device, p->stream, &out, error);
    }
    devx_batch_release(&pinned);
    return out;
}

static devx_tensor_t *tensor_on_device(const devx_tensor_t *tensor, const place *p, devx_error *error) {
    devx_tensor_t *pinned = NULL;
    devx_tensor_t *out = NULL;
    if (devx_tensor_copy_to(tensor, (DLDevice){kDLCUDAHost, 0}, p->stream, &pinned, error) == DEVX_OK) {
        devx_tensor_copy_to(pinned, p->device, p->stream, &out, error);
    }
    devx_tensor_release(&pinned);
    return out;
}

/* Makes the copies of a set on the device. Sets nothing on failure. */
static int copy_to_device(set *s, const place *p) {
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = make_batch(s, &schema);
    devx_tensor_t *matrix = batch == NULL || s->matrix == NULL ? NULL : make_matrix_tensor(s);
    devx_error error;
    int failed = batch == NULL || (matrix == NULL && s->matrix != NULL);
    if (!failed && (s->on_device = batch_on_device(batch, p, &error)) == NULL) {
        failed = fail_devx(s->table.name, &error);
    }
    if (!failed && matrix != NULL && (s->matrix_on_device = tensor_on_device(matrix, p, &error)) == NULL) {
        failed = fail_devx(s->table.name, &error);
        devx_batch_release(&s->on_device);
    }
    devx_tensor_release(&matrix);
    devx_batch_release(&batch);
    devx_schema_release(&schema);
    return failed;
}

/* Makes a set export its copies on the device from here on. */
static void set_place(set *s, place *p) {
    atomic_fetch_add_explicit(&p->references, 1, memory_order_relaxed);
    s->place = p;
}

int weather_use_device(weather *w, DLDevice device) {
    if (w == NULL) {
        return table_fail("weather_use_device: the argument is NULL");
    }
    if (w->days->place != NULL) {
        return table_fail("weather_use_device: the tables are on a device already");
    }
    if (device.device_type == kDLCPU) {
        return 0;
    }
    devx_error error;
    place *p = malloc(sizeof *p);
    if (p == NULL) {
        return table_fail("out of memory");
    }
    atomic_init(&p->references, 1);
    p->device = device;
    if (devx_stream_create(device, &p->stream, &error) != DEVX_OK) {
        free(p);
        return fail_devx("weather_use_device", &error);
    }
    int failed = copy_to_device(w->airports, p);
    if (!failed && copy_to_device(w->days, p) != 0) {
        devx_batch_release(&w->airports->on_device);
        failed = 1;
    }
    if (!failed) {
        set_place(w->airports, p);
        set_place(w->days, p);
    }
    place_release(p);
    return failed;
}

/* --- the consumer's means --- */

/* The means as this library computes them. */
static void monthly_means(const set *days, double means[MONTHS][MEASUREMENTS]) {
    const int32_t *dates = (const int32_t *)(const void *)days->table.columns[DATE_COLUMN].values.data;
    int64_t counts[MONTHS] = {0};
    memset(means, 0, sizeof(double[MONTHS][MEASUREMENTS]));
    for (int64_t row = 0; row < days->table.rows; ++row) {
        int const month = table_month_of_day(dates[row]) - 1;
        counts[month] += 1;
        for (int k = 0; k < MEASUREMENTS; ++k) {
            means[month][k] += days->matrix[row * MEASUREMENTS + k];
        }
    }
    for (int month = 0; month < MONTHS; ++month) {
        for (int k = 0; counts[month] > 0 && k < MEASUREMENTS; ++k) {
            means[month][k] /= (double)counts[month];
        }
    }
}

static int compare_means(const set *days, const DLTensor *given) {
    double expected[MONTHS][MEASUREMENTS];
    if (given->ndim != 2 || given->shape[0] != MONTHS || given->shape[1] != MEASUREMENTS) {
        return table_fail("the means are not of shape %d x %d", MONTHS, MEASUREMENTS);
    }
    if (memcmp(&given->dtype, &float64, sizeof float64) != 0) {
        return table_fail("the means are not float64");
    }
    monthly_means(days, expected);
    const double *values = given->data;
    for (int64_t month = 0; month < MONTHS; ++month) {
        for (int64_t k = 0; k < MEASUREMENTS; ++k) {
            double const value = values[month * given->strides[0] + k * given->strides[1]];
            /* Written so that a NaN fails, too. */
            if (!(fabs(value - expected[month][k]) <= 1e-9)) {
                return table_fail("the mean of %s in month %d is %.12g, not %.12g",
                                  day_kinds[FIRST_MEASUREMENT + k].name, (int)month + 1, value, expected[month][k]);
            }
        }
    }
    return 0;
}

/* The means in host memory, copied in the order of the stream. NULL on failure. */
static devx_tensor_t *means_on_host(const struct DLManagedTensorVersioned *means, int64_t stream) {
    devx_tensor_t *view = NULL;
    devx_tensor_t *host = NULL;
    devx_error error;
    if (devx_tensor_create(&means->dl_tensor, means->flags, NULL, &view, &error) != DEVX_OK) {
        fail_devx("the means", &error);
        return NULL;
    }
    if (means->dl_tensor.device.device_type == kDLCPU) {
        return view;
    }
    /* Data that is ready already is ready for the legacy default stream, 1, too. */
    int64_t const order = stream == -1 ? 1 : stream;
    if (devx_tensor_produced_on(view, order, &error) != DEVX_OK ||
        devx_tensor_copy_to(view, cpu, order, &host, &error) != DEVX_OK) {
        fail_devx("the means", &error);
    }
    devx_tensor_release(&view);
    return host;
}

/*
 * Takes the tensor only if its values are right. So the values are read first, through a view that owns nothing and has
 * strides, or through a copy in host memory, and the tensor is imported last.
 */
int weather_check_means(weather *w, struct DLManagedTensorVersioned *means, int64_t stream) {
    devx_tensor_t *taken = NULL;
    devx_error error;
    DLTensor given;
    if (w == NULL || means == NULL) {
        return table_fail("weather_check_means: an argument is NULL");
    }
    if (means->version.major != DLPACK_MAJOR_VERSION) {
        return table_fail("the means are of DLPack %u, not %u", (unsigned)means->version.major,
                          (unsigned)DLPACK_MAJOR_VERSION);
    }
    devx_tensor_t *host = means_on_host(means, stream);
    if (host == NULL) {
        return 1;
    }
    int failed = 0;
    if (devx_tensor_borrow(host, &given, NULL, &error) != DEVX_OK) {
        failed = fail_devx("the means", &error);
    }
    failed = failed || compare_means(w->days, &given) != 0;
    devx_tensor_release(&host);
    if (!failed && devx_tensor_import_on(means, stream, &taken, &error) != DEVX_OK) {
        failed = fail_devx("the means", &error);
    }
    devx_tensor_release(&taken);
    return failed;
}

/* --- addresses --- */

static const void *column_address(const set *s, const char *name) {
    for (int i = 0; i < s->table.n_columns; ++i) {
        if (strcmp(name, s->table.kinds[i].name) != 0) {
            continue;
        }
        devx_column column;
        if (s->place == NULL) {
            return s->table.columns[i].values.data;
        }
        if (devx_batch_column(s->on_device, i, &column, NULL) == DEVX_OK) {
            return column.buffers[s->table.kinds[i].kind == TEXT ? 2 : 1];
        }
    }
    return NULL;
}

static const void *matrix_address(const set *days) {
    DLTensor on_device;
    if (days->place == NULL) {
        return days->matrix;
    }
    return devx_tensor_borrow(days->matrix_on_device, &on_device, NULL, NULL) == DEVX_OK ? on_device.data : NULL;
}

const void *weather_address(const weather *w, const char *what) {
    if (w == NULL || what == NULL) {
        return NULL;
    }
    if (strcmp(what, "measurements") == 0) {
        return matrix_address(w->days);
    }
    if (strncmp(what, "airports.", 9) == 0) {
        return column_address(w->airports, what + 9);
    }
    return strncmp(what, "days.", 5) == 0 ? column_address(w->days, what + 5) : NULL;
}
