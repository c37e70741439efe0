/*
 * Reads CSV files (RFC 4180): texts, numbers, dates and categories become columns in Arrow's layout.
 */
#define _POSIX_C_SOURCE 200809L /* newlocale, uselocale */

#include "table.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CATEGORIES = 127 };

/* --- errors --- */

static _Thread_local char last_error[640];

int table_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return 1;
}

const char *table_error(void) {
    return last_error;
}

/* --- growing memory --- */

static int append(bytes *to, const void *data, size_t length) {
    if (length > to->capacity - to->length) {
        size_t capacity = to->capacity < 256 ? 256 : to->capacity;
        while (capacity - to->length < length) {
            capacity *= 2;
        }
        unsigned char *grown = realloc(to->data, capacity);
        if (grown == NULL) {
            return table_fail("out of memory");
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

/* Reads one field, and unescapes a quoted one in place. Returns the character that ends it: ',' or '\n'; 0 at the end of the
 * file, and -1 on error. */
static int read_field(reader *r, field *out) {
    if (r->next < r->end && *r->next == '"') {
        char *from = r->next + 1;
        char *to = from;
        out->text = from;
        for (;;) {
            if (from == r->end) {
                table_fail("%s, line %ld: a quote is not closed", r->path, r->line);
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
            table_fail("%s, line %ld: text after a closing quote", r->path, r->line);
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
            table_fail("%s, line %ld: a carriage return within a line", r->path, r->line);
            return -1;
        }
    }
    if (r->next == r->end) {
        return 0;
    }
    return *r->next++;
}

/* Reads one record of exactly `n` fields. Returns 1, 0 at the end of the file, or -1 on error. */
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
            table_fail("%s, line %ld: there are not %d fields", r->path, r->line, n);
            return -1;
        }
    }
    r->line += 1;
    return 1;
}

static int read_file(const char *path, bytes *out) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return table_fail("%s: %s", path, strerror(errno));
    }
    char block[4096];
    size_t got;
    int failed = 0;
    while (!failed && (got = fread(block, 1, sizeof block, file)) > 0) {
        failed = append(out, block, got);
    }
    if (!failed && ferror(file)) {
        failed = table_fail("%s: %s", path, strerror(errno));
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
        return table_fail("more text than 32-bit offsets can count");
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
        return table_fail("\"%.*s\" is not a number", (int)(f->length < 80 ? f->length : 80), f->text);
    }
    memcpy(text, f->text, f->length);
    text[f->length] = '\0';
    char *end = text;
    double const value = strtod(text, &end);
    if (*end != '\0' || !isfinite(value)) {
        return table_fail("\"%s\" is not a number", text);
    }
    *out = value;
    return 0;
}

/* Days since 1970-01-01 in the Gregorian calendar. It counts years from March, so that a leap day is the last day of a
 * year. */
static int32_t days_from_civil(int year, int month, int day) {
    int const y = month > 2 ? year : year - 1;
    int const era = y / 400;
    int const year_of_era = y - era * 400;
    int const day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    int const day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

/* The inverse of days_from_civil, as far as the month. */
int table_month_of_day(int32_t day) {
    int const shifted = day + 719468;
    int const era = shifted / 146097;
    int const day_of_era = shifted - era * 146097;
    int const year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int const day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int const march_based = (5 * day_of_year + 2) / 153;
    return march_based < 10 ? march_based + 3 : march_based - 9;
}

/* Parses YYYY/MM/DD. The year 0 is an error. */
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
        return table_fail("\"%.*s\" is not a date YYYY/MM/DD", (int)(f->length < 80 ? f->length : 80), f->text);
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
            return table_fail("more than %d categories", MAX_CATEGORIES);
        }
        if (add_text(&c->texts_offsets, &c->texts, f) != 0) {
            return 1;
        }
        c->categories += 1;
    }
    return append(&c->values, &index, sizeof index);
}

/* Appends the validity bit of a row: 1 for a value, 0 for a null. */
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
    return table_fail("a column of kind %d", (int)k->kind);
}

/* --- one file --- */

static int read_rows(reader *r, table *t) {
    field fields[MAX_COLUMNS];
    int got = read_record(r, fields, t->n_columns);
    if (got == 0) {
        return table_fail("%s is empty", r->path);
    }
    for (int i = 0; got > 0 && i < t->n_columns; ++i) {
        if (!is_text(&fields[i], t->kinds[i].name)) {
            return table_fail("%s: column %d is \"%.*s\", not \"%s\"", r->path, i + 1,
                              (int)fields[i].length, fields[i].text, t->kinds[i].name);
        }
    }
    while (got > 0 && (got = read_record(r, fields, t->n_columns)) > 0) {
        for (int i = 0; i < t->n_columns; ++i) {
            if (add_value(&t->columns[i], &t->kinds[i], t->rows, &fields[i]) != 0) {
                char why[sizeof last_error];
                memcpy(why, last_error, sizeof why);
                return table_fail("%s, line %ld, %s: %s", r->path, r->line - 1, t->kinds[i].name, why);
            }
        }
        t->rows += 1;
    }
    return got < 0;
}

static int read_all(table *t, const char *path) {
    bytes text = {NULL, 0, 0};
    int failed = read_file(path, &text);
    if (!failed) {
        char *start = (char *)text.data;
        reader r = {path, start, start == NULL ? start : start + text.length, 1};
        failed = read_rows(&r, t);
    }
    free(text.data);
    return failed;
}

int table_read(table *t, const char *directory, const char *file) {
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, file) >= sizeof path) {
        return table_fail("the path of %s is too long", file);
    }
    /* The program that loads this library, such as a JVM, may have set a locale in which numbers have a decimal comma. */
    locale_t const plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0) {
        return table_fail("the C locale: %s", strerror(errno));
    }
    locale_t const before = uselocale(plain);
    int const failed = read_all(t, path);
    uselocale(before);
    freelocale(plain);
    return failed;
}

void table_free(table *t) {
    for (int i = 0; i < t->n_columns; ++i) {
        column *c = &t->columns[i];
        free(c->validity.data);
        free(c->offsets.data);
        free(c->values.data);
        free(c->texts_offsets.data);
        free(c->texts.data);
    }
}
