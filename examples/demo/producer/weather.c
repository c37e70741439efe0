/*
 * The third party of the demo. It reads two CSV files into buffers of its own and hands them out as Arrow record
 * batches and as a DLPack tensor. Of devexchange it knows the installed headers and nothing else.
 *
 * A table's buffers are one set with a reference count: one reference is that of `weather` itself, and each thing that
 * is handed out holds another one, as the owner that devexchange releases. Whoever comes last frees the set, so exports
 * outlive weather_close(). On a device the set has the copies there too, and a share in the stream that fills them.
 */
#define _POSIX_C_SOURCE 200809L /* newlocale, uselocale */

#include "weather.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEASUREMENTS = 4, MONTHS = 12, MAX_COLUMNS = 8, MAX_CATEGORIES = 127 };

/* --- errors and counts --- */

static _Thread_local char last_error[DEVX_ERROR_MESSAGE_BYTES + 128];
static atomic_llong live_sets;
static atomic_llong freed_sets;

#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
static int fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return 1;
}

static int fail_devx(const char *what, const devx_error *error) {
    return fail("%s: %s: %s", what, devx_status_name(error->status), error->message);
}

const char *weather_error(void) {
    return last_error;
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

/* --- growing memory --- */

typedef struct bytes {
    unsigned char *data;
    size_t length;
    size_t capacity;
} bytes;

static int append(bytes *to, const void *data, size_t length) {
    if (length > to->capacity - to->length) {
        size_t capacity = to->capacity < 256 ? 256 : to->capacity;
        while (capacity - to->length < length) {
            capacity *= 2;
        }
        unsigned char *grown = realloc(to->data, capacity);
        if (grown == NULL) {
            return fail("out of memory");
        }
        to->data = grown;
        to->capacity = capacity;
    }
    if (length > 0) {
        memcpy(to->data + to->length, data, length);
    }
    to->length += length;
    return 0;
}

/* --- tables --- */

typedef enum kind { TEXT, NUMBER, DATE, CATEGORY } kind;

typedef struct column_kind {
    const char *name;
    kind kind;
    int nullable; /* whether "NA" and an empty field mean that there is no value */
} column_kind;

/* Text: `offsets` and `values`; a category: int8 in `values`, its texts in `texts_offsets` and `texts`. */
typedef struct column {
    bytes validity;
    bytes offsets;
    bytes values;
    bytes texts_offsets;
    bytes texts;
    int64_t nulls;
    int32_t categories;
} column;

/* A device and the stream that this library works on there, for all that use it: whoever comes last destroys it. */
typedef struct place {
    atomic_int references;
    DLDevice device;
    int64_t stream;
} place;

typedef struct table {
    atomic_int references;
    const char *name;
    const column_kind *kinds;
    int n_columns;
    int64_t rows;
    column columns[MAX_COLUMNS];
    double *matrix; /* the measurements of each row side by side; only of the days */
    /* The same on a device; NULL if the tables stay in host memory. */
    place *place;
    devx_batch_t *on_device;
    devx_tensor_t *matrix_on_device;
} table;

enum { DATE_COLUMN = 0, FIRST_MEASUREMENT = 1 }; /* of the days */

static const column_kind airport_kinds[] = {
    {"iata", TEXT, 0},    {"name", TEXT, 0},       {"city", TEXT, 1},        {"state", TEXT, 1},
    {"country", TEXT, 0}, {"latitude", NUMBER, 0}, {"longitude", NUMBER, 0},
};
static const column_kind day_kinds[] = {
    {"date", DATE, 0},       {"precipitation", NUMBER, 0}, {"temp_max", NUMBER, 0},
    {"temp_min", NUMBER, 0}, {"wind", NUMBER, 0},          {"weather", CATEGORY, 0},
};

static table *table_new(const char *name, const column_kind *kinds, int n_columns) {
    table *t = calloc(1, sizeof *t);
    if (t == NULL) {
        fail("out of memory");
        return NULL;
    }
    atomic_init(&t->references, 1);
    t->name = name;
    t->kinds = kinds;
    t->n_columns = n_columns;
    atomic_fetch_add(&live_sets, 1);
    return t;
}

static void place_release(place *p) {
    if (p != NULL && atomic_fetch_sub_explicit(&p->references, 1, memory_order_acq_rel) == 1) {
        /* What is still queued there is done all the same. */
        devx_stream_destroy(p->device, p->stream, NULL);
        free(p);
    }
}

/* The release of an owner: called from whatever thread the last consumer is on. */
static void table_release(void *context) {
    table *t = context;
    if (t == NULL || atomic_fetch_sub_explicit(&t->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (int i = 0; i < t->n_columns; ++i) {
        column *c = &t->columns[i];
        free(c->validity.data);
        free(c->offsets.data);
        free(c->values.data);
        free(c->texts_offsets.data);
        free(c->texts.data);
    }
    free(t->matrix);
    devx_tensor_release(&t->matrix_on_device);
    devx_batch_release(&t->on_device);
    place_release(t->place); /* after the memory that is given back on its stream */
    free(t);
    atomic_fetch_sub(&live_sets, 1);
    atomic_fetch_add(&freed_sets, 1);
}

/* A reference for an export. If the call that is given it fails, the owner is still ours to release. */
static devx_owner table_owner(table *t) {
    atomic_fetch_add_explicit(&t->references, 1, memory_order_relaxed);
    devx_owner owner = {t, table_release};
    return owner;
}

/* --- CSV (RFC 4180) --- */

typedef struct field {
    char *text; /* not NUL-terminated */
    size_t length;
} field;

typedef struct reader {
    const char *path;
    char *next;
    char *end;
    long line;
} reader;

/* One field; a quoted one is unescaped in place. Returns what ended it: ',', '\n' or 0 at the end; -1 on error. */
static int read_field(reader *r, field *out) {
    if (r->next < r->end && *r->next == '"') {
        char *from = r->next + 1;
        char *to = from;
        out->text = from;
        for (;;) {
            if (from == r->end) {
                fail("%s, line %ld: a quote is not closed", r->path, r->line);
                return -1;
            }
            if (*from == '"') {
                if (from + 1 == r->end || from[1] != '"') {
                    break;
                }
                ++from; /* two quotes stand for one */
            }
            r->line += *from == '\n';
            *to++ = *from++;
        }
        out->length = (size_t)(to - out->text);
        r->next = from + 1;
        if (r->next < r->end && *r->next != ',' && *r->next != '\n' && *r->next != '\r') {
            fail("%s, line %ld: text after a closing quote", r->path, r->line);
            return -1;
        }
    } else {
        out->text = r->next;
        while (r->next < r->end && *r->next != ',' && *r->next != '\n' && *r->next != '\r') {
            ++r->next;
        }
        out->length = (size_t)(r->next - out->text);
    }
    if (r->next < r->end && *r->next == '\r') {
        ++r->next;
        if (r->next < r->end && *r->next != '\n') {
            fail("%s, line %ld: a carriage return within a line", r->path, r->line);
            return -1;
        }
    }
    if (r->next == r->end) {
        return 0;
    }
    return *r->next++;
}

/* One record of exactly `n` fields. Returns 1, 0 at the end of the file, or -1 on error. */
static int read_record(reader *r, field *fields, int n) {
    if (r->next == r->end) {
        return 0;
    }
    for (int i = 0; i < n; ++i) {
        int const ended_by = read_field(r, &fields[i]);
        if (ended_by < 0) {
            return -1;
        }
        if ((ended_by == ',') != (i + 1 < n)) {
            fail("%s, line %ld: there are not %d fields", r->path, r->line, n);
            return -1;
        }
    }
    r->line += 1;
    return 1;
}

static int read_file(const char *path, bytes *out) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return fail("%s: %s", path, strerror(errno));
    }
    char block[4096];
    size_t got;
    int failed = 0;
    while (!failed && (got = fread(block, 1, sizeof block, file)) > 0) {
        failed = append(out, block, got);
    }
    if (!failed && ferror(file)) {
        failed = fail("%s: %s", path, strerror(errno));
    }
    fclose(file);
    return failed;
}

/* --- one value --- */

static int is_text(const field *f, const char *text) {
    return f->length == strlen(text) && memcmp(f->text, text, f->length) == 0;
}

static int add_text(bytes *offsets, bytes *texts, const field *f) {
    int32_t const zero = 0;
    if (offsets->length == 0 && append(offsets, &zero, sizeof zero) != 0) {
        return 1;
    }
    if (f->length > (size_t)INT32_MAX - texts->length) {
        return fail("more text than 32-bit offsets can count");
    }
    if (append(texts, f->text, f->length) != 0) {
        return 1;
    }
    int32_t const end = (int32_t)texts->length;
    return append(offsets, &end, sizeof end);
}

static int parse_number(const field *f, double *out) {
    char text[64];
    if (f->length == 0 || f->length >= sizeof text) {
        return fail("\"%.*s\" is not a number", (int)(f->length < 80 ? f->length : 80), f->text);
    }
    memcpy(text, f->text, f->length);
    text[f->length] = '\0';
    char *end = text;
    double const value = strtod(text, &end);
    if (*end != '\0' || !isfinite(value)) {
        return fail("\"%s\" is not a number", text);
    }
    *out = value;
    return 0;
}

/* Days since 1970-01-01 in the Gregorian calendar. The year is taken to begin in March: then a leap day comes last. */
static int32_t days_from_civil(int year, int month, int day) {
    int const y = month > 2 ? year : year - 1;
    int const era = y / 400;
    int const year_of_era = y - era * 400;
    int const day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    int const day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

/* The month, 1 to 12, of a day since 1970-01-01; the other way round. */
static int month_of_day(int32_t day) {
    int const shifted = day + 719468;
    int const era = shifted / 146097;
    int const day_of_era = shifted - era * 146097;
    int const year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int const day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int const march_based = (5 * day_of_year + 2) / 153;
    return march_based < 10 ? march_based + 3 : march_based - 9;
}

/* YYYY/MM/DD, of the years from 1 on. */
static int parse_date(const field *f, int32_t *out) {
    static const int lengths[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int parts[3] = {0, 0, 0};
    int right = f->length == 10;
    for (int i = 0, part = 0; right && i < 10; ++i) {
        char const c = f->text[i];
        if (i == 4 || i == 7) {
            right = c == '/';
            ++part;
        } else {
            right = c >= '0' && c <= '9';
            parts[part] = parts[part] * 10 + (c - '0');
        }
    }
    int const year = parts[0], month = parts[1], day = parts[2];
    right = right && year >= 1 && month >= 1 && month <= 12 && day >= 1 && day <= lengths[month - 1];
    int const leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (!right || (month == 2 && day == 29 && !leap)) {
        return fail("\"%.*s\" is not a date YYYY/MM/DD", (int)(f->length < 80 ? f->length : 80), f->text);
    }
    *out = days_from_civil(year, month, day);
    return 0;
}

static int add_category(column *c, const field *f) {
    int8_t index = 0;
    const int32_t *offsets = (const int32_t *)(const void *)c->texts_offsets.data;
    while (index < c->categories) {
        size_t const start = (size_t)offsets[index];
        size_t const length = (size_t)offsets[index + 1] - start;
        if (length == f->length && (length == 0 || memcmp(c->texts.data + start, f->text, length) == 0)) {
            break;
        }
        ++index;
    }
    if (index == c->categories) {
        if (c->categories == MAX_CATEGORIES) {
            return fail("more than %d categories", MAX_CATEGORIES);
        }
        if (add_text(&c->texts_offsets, &c->texts, f) != 0) {
            return 1;
        }
        c->categories += 1;
    }
    return append(&c->values, &index, sizeof index);
}

/* Sets the bit of a row, 1 for a value. */
static int add_validity(column *c, int64_t row, int valid) {
    unsigned char const none = 0;
    if (row % 8 == 0 && append(&c->validity, &none, 1) != 0) {
        return 1;
    }
    c->validity.data[row / 8] |= (unsigned char)((valid != 0) << (row % 8));
    c->nulls += !valid;
    return 0;
}

static int add_value(column *c, const column_kind *k, int64_t row, const field *given) {
    static char nothing[] = "";
    field f = *given;
    int const missing = k->nullable && (f.length == 0 || is_text(&f, "NA"));
    if (missing) {
        f.text = nothing;
        f.length = 0;
    }
    if (k->nullable && add_validity(c, row, !missing) != 0) {
        return 1;
    }
    double number = 0;
    int32_t date = 0;
    switch (k->kind) {
    case TEXT:
        return add_text(&c->offsets, &c->values, &f);
    case NUMBER:
        return (!missing && parse_number(&f, &number) != 0) || append(&c->values, &number, sizeof number) != 0;
    case DATE:
        return (!missing && parse_date(&f, &date) != 0) || append(&c->values, &date, sizeof date) != 0;
    case CATEGORY:
        return add_category(c, &f);
    }
    return fail("a column of kind %d", (int)k->kind);
}

/* --- one file --- */

static int read_rows(reader *r, table *t) {
    field fields[MAX_COLUMNS];
    int got = read_record(r, fields, t->n_columns);
    if (got == 0) {
        return fail("%s is empty", r->path);
    }
    for (int i = 0; got > 0 && i < t->n_columns; ++i) {
        if (!is_text(&fields[i], t->kinds[i].name)) {
            return fail("%s: column %d is \"%.*s\", not \"%s\"", r->path, i + 1, (int)fields[i].length, fields[i].text,
                        t->kinds[i].name);
        }
    }
    while (got > 0 && (got = read_record(r, fields, t->n_columns)) > 0) {
        for (int i = 0; i < t->n_columns; ++i) {
            if (add_value(&t->columns[i], &t->kinds[i], t->rows, &fields[i]) != 0) {
                char why[sizeof last_error];
                memcpy(why, last_error, sizeof why);
                return fail("%s, line %ld, %s: %s", r->path, r->line - 1, t->kinds[i].name, why);
            }
        }
        t->rows += 1;
    }
    return got < 0;
}

/* A file of a directory as a table, or NULL. */
static table *read_table(const char *directory, const char *name, const char *file, const column_kind *kinds, int n) {
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, file) >= sizeof path) {
        fail("the path of %s is too long", file);
        return NULL;
    }
    bytes text = {NULL, 0, 0};
    table *t = NULL;
    if (read_file(path, &text) == 0 && (t = table_new(name, kinds, n)) != NULL) {
        char *start = (char *)text.data;
        reader r = {path, start, start == NULL ? start : start + text.length, 1};
        if (read_rows(&r, t) != 0) {
            table_release(t);
            t = NULL;
        }
    }
    free(text.data);
    return t;
}

static const double *numbers(const table *t, int i) {
    return (const double *)(const void *)t->columns[i].values.data;
}

static int make_matrix(table *days) {
    days->matrix = malloc((size_t)(days->rows > 0 ? days->rows : 1) * MEASUREMENTS * sizeof *days->matrix);
    if (days->matrix == NULL) {
        return fail("out of memory");
    }
    for (int64_t row = 0; row < days->rows; ++row) {
        for (int k = 0; k < MEASUREMENTS; ++k) {
            days->matrix[row * MEASUREMENTS + k] = numbers(days, FIRST_MEASUREMENT + k)[row];
        }
    }
    return 0;
}

/* --- the object --- */

struct weather {
    table *airports;
    table *days;
};

static int open_tables(weather *w, const char *directory) {
    w->airports = read_table(directory, "airports", "airports.csv", airport_kinds,
                             (int)(sizeof airport_kinds / sizeof *airport_kinds));
    if (w->airports == NULL) {
        return 1;
    }
    w->days =
        read_table(directory, "days", "seattle-weather.csv", day_kinds, (int)(sizeof day_kinds / sizeof *day_kinds));
    return w->days == NULL || make_matrix(w->days) != 0;
}

int weather_open(const char *directory, weather **out) {
    if (directory == NULL || out == NULL) {
        return fail("%s is NULL", directory == NULL ? "directory" : "out");
    }
    /* A host program, a JVM for one, may have set a locale in which a number has a comma. */
    locale_t const plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0) {
        return fail("the C locale: %s", strerror(errno));
    }
    locale_t const before = uselocale(plain);
    weather *w = calloc(1, sizeof *w);
    int const failed = w == NULL ? fail("out of memory") : open_tables(w, directory);
    uselocale(before);
    freelocale(plain);
    if (failed) {
        weather_close(w);
        return 1;
    }
    *out = w;
    return 0;
}

void weather_close(weather *w) {
    if (w != NULL) {
        table_release(w->airports);
        table_release(w->days);
        free(w);
    }
}

/* --- record batches --- */

static const char *format_of(kind k) {
    switch (k) {
    case TEXT: return "u";
    case NUMBER: return "g";
    case DATE: return "tdD";
    case CATEGORY: return "c"; /* the indices */
    }
    return "";
}

/* Fields and nodes of a table in depth-first order: the root, and each column with its dictionary behind it. */
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
        /* Without nulls there need not be a bitmap. */
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

/* The buffers of the next node are those of a column on the device. */
static void set_device_buffers(description *d, size_t node, const devx_column *c) {
    for (int64_t i = 0; i < d->nodes[node].n_buffers; ++i) {
        d->buffers[node][i] = c->buffers[i];
    }
}

/* The same table, with the addresses that it has on the device. */
static int describe_on_device(const table *t, description *d, devx_error *error) {
    describe_table(t, d);
    size_t node = 1;
    for (int i = 0; i < t->n_columns; ++i) {
        devx_column column, dictionary;
        if (devx_batch_column(t->on_device, i, &column, error) != DEVX_OK) {
            return 1;
        }
        set_device_buffers(d, node++, &column);
        if (column.has_dictionary) {
            if (devx_column_dictionary(t->on_device, &column, &dictionary, error) != DEVX_OK) {
                return 1;
            }
            set_device_buffers(d, node++, &dictionary);
        }
    }
    return 0;
}

static const DLDevice cpu = {kDLCPU, 0};

/* The batch over a table's buffers, or NULL. */
static devx_batch_t *make_batch(table *t, devx_schema_t **schema) {
    description d;
    devx_error error;
    devx_batch_t *batch = NULL;
    int described = 1;
    if (t->place == NULL) {
        describe_table(t, &d);
    } else {
        described = describe_on_device(t, &d, &error) == 0;
    }
    if (!described || devx_schema_create(d.fields, d.count, schema, &error) != DEVX_OK) {
        fail_devx(t->name, &error);
        return NULL;
    }
    devx_owner const owner = table_owner(t);
    DLDevice const device = t->place == NULL ? cpu : t->place->device;
    if (devx_batch_create(*schema, device, d.nodes, d.count, &owner, &batch, &error) != DEVX_OK) {
        fail_devx(t->name, &error);
        owner.release(owner.context);
    } else if (t->place != NULL && devx_batch_produced_on(batch, t->place->stream, &error) != DEVX_OK) {
        fail_devx(t->name, &error);
        devx_batch_release(&batch);
    }
    return batch;
}

static int export_table(table *t, struct ArrowDeviceArray *array, struct ArrowSchema *schema) {
    devx_error error;
    struct ArrowSchema exported;
    devx_schema_t *described = NULL;
    devx_batch_t *batch = make_batch(t, &described);
    int failed = batch == NULL;
    if (!failed && devx_schema_export(described, &exported, &error) != DEVX_OK) {
        failed = fail_devx(t->name, &error);
    }
    if (!failed && devx_batch_export_move_device(&batch, array, &error) != DEVX_OK) {
        exported.release(&exported);
        failed = fail_devx(t->name, &error);
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
        return fail("weather_airports: an argument is NULL");
    }
    return export_table(w->airports, array, schema);
}

int weather_days(weather *w, struct ArrowDeviceArray *array, struct ArrowSchema *schema) {
    if (w == NULL || array == NULL || schema == NULL) {
        return fail("weather_days: an argument is NULL");
    }
    return export_table(w->days, array, schema);
}

/* --- tensors --- */

static const DLDataType float64 = {kDLFloat, 64, 1};

/* The tensor over a table's matrix, or NULL. */
static devx_tensor_t *make_matrix_tensor(table *days) {
    int64_t shape[2] = {days->rows, MEASUREMENTS};
    DLTensor description = {days->matrix, cpu, 2, float64, shape, NULL, 0};
    devx_tensor_t *tensor = NULL;
    devx_error error;
    if (days->place != NULL && devx_tensor_borrow(days->matrix_on_device, &description, NULL, &error) != DEVX_OK) {
        fail_devx("measurements", &error);
        return NULL;
    }
    devx_owner const owner = table_owner(days);
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
        return fail("weather_measurements: an argument is NULL");
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
 * Through pinned memory, so that the copies to the device are queued and this library does not wait for them. The
 * pinned memory is given up here and now; devexchange releases it when the copies are done.
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

/* What a table has on the device; on failure nothing is set. */
static int copy_to_device(table *t, const place *p) {
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = make_batch(t, &schema);
    devx_tensor_t *matrix = batch == NULL || t->matrix == NULL ? NULL : make_matrix_tensor(t);
    devx_error error;
    int failed = batch == NULL || (matrix == NULL && t->matrix != NULL);
    if (!failed && (t->on_device = batch_on_device(batch, p, &error)) == NULL) {
        failed = fail_devx(t->name, &error);
    }
    if (!failed && matrix != NULL && (t->matrix_on_device = tensor_on_device(matrix, p, &error)) == NULL) {
        failed = fail_devx(t->name, &error);
        devx_batch_release(&t->on_device);
    }
    devx_tensor_release(&matrix);
    devx_batch_release(&batch);
    devx_schema_release(&schema);
    return failed;
}

/* From now on the exports are those of the device. */
static void set_place(table *t, place *p) {
    atomic_fetch_add_explicit(&p->references, 1, memory_order_relaxed);
    t->place = p;
}

int weather_use_device(weather *w, DLDevice device) {
    if (w == NULL) {
        return fail("weather_use_device: the argument is NULL");
    }
    if (w->days->place != NULL) {
        return fail("weather_use_device: the tables are on a device already");
    }
    if (device.device_type == kDLCPU) {
        return 0;
    }
    devx_error error;
    place *p = malloc(sizeof *p);
    if (p == NULL) {
        return fail("out of memory");
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

/* --- the consumer's answer --- */

/* The means as this library computes them. */
static void monthly_means(const table *days, double means[MONTHS][MEASUREMENTS]) {
    const int32_t *dates = (const int32_t *)(const void *)days->columns[DATE_COLUMN].values.data;
    int64_t counts[MONTHS] = {0};
    memset(means, 0, sizeof(double[MONTHS][MEASUREMENTS]));
    for (int64_t row = 0; row < days->rows; ++row) {
        int const month = month_of_day(dates[row]) - 1;
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

static int compare_means(const table *days, const DLTensor *given) {
    double expected[MONTHS][MEASUREMENTS];
    if (given->ndim != 2 || given->shape[0] != MONTHS || given->shape[1] != MEASUREMENTS) {
        return fail("the means are not of shape %d x %d", MONTHS, MEASUREMENTS);
    }
    if (memcmp(&given->dtype, &float64, sizeof float64) != 0) {
        return fail("the means are not float64");
    }
    monthly_means(days, expected);
    const double *values = given->data;
    for (int64_t month = 0; month < MONTHS; ++month) {
        for (int64_t k = 0; k < MEASUREMENTS; ++k) {
            double const value = values[month * given->strides[0] + k * given->strides[1]];
            /* Not "apart by more than": a NaN has to fail too. */
            if (!(fabs(value - expected[month][k]) <= 1e-9)) {
                return fail("the mean of %s in month %d is %.12g, not %.12g", day_kinds[FIRST_MEASUREMENT + k].name,
                            (int)month + 1, value, expected[month][k]);
            }
        }
    }
    return 0;
}

/* The means in host memory, in the order of the stream, or NULL. */
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
    /* What is ready already is so for the legacy default stream, 1, too. */
    int64_t const order = stream == -1 ? 1 : stream;
    if (devx_tensor_produced_on(view, order, &error) != DEVX_OK ||
        devx_tensor_copy_to(view, cpu, order, &host, &error) != DEVX_OK) {
        fail_devx("the means", &error);
    }
    devx_tensor_release(&view);
    return host;
}

/*
 * The tensor is taken only if it is right. So it is looked at through a view first, which owns nothing and has the
 * strides filled in, or through a copy in host memory, and imported last.
 */
int weather_check_means(weather *w, struct DLManagedTensorVersioned *means, int64_t stream) {
    devx_tensor_t *taken = NULL;
    devx_error error;
    DLTensor given;
    if (w == NULL || means == NULL) {
        return fail("weather_check_means: an argument is NULL");
    }
    if (means->version.major != DLPACK_MAJOR_VERSION) {
        return fail("the means are of DLPack %u, not %u", (unsigned)means->version.major,
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

static const void *column_address(const table *t, const char *name) {
    for (int i = 0; i < t->n_columns; ++i) {
        if (strcmp(name, t->kinds[i].name) != 0) {
            continue;
        }
        devx_column column;
        if (t->place == NULL) {
            return t->columns[i].values.data;
        }
        if (devx_batch_column(t->on_device, i, &column, NULL) == DEVX_OK) {
            return column.buffers[t->kinds[i].kind == TEXT ? 2 : 1];
        }
    }
    return NULL;
}

static const void *matrix_address(const table *days) {
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
