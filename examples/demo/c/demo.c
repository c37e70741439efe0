/*
 * The demo's consumer in C: imports two record batches and a tensor from libweather without a copy, computes a few
 * figures, exports a tensor to libweather, and releases everything.
 *
 *   demo DATADIR
 *
 * With DEVX_DEVICE=cuda in the environment, the tables come in the memory of a CUDA device. Then this program queues its
 * work on its own stream, computes the figures from copies in host memory, and exports the means in device memory.
 *
 * Prints KEY=VALUE lines for examples/demo/run.sh; every language prints the same keys. Any error ends the program with
 * status 1 and a message on stderr.
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include <devexchange.h>
#include <weather.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MEASUREMENTS = 4, MONTHS = 12, TOP = 3 };

/* Releases nothing, because the program ends. */
static _Noreturn void give_up(const char *what, const char *why) {
    fprintf(stderr, "demo: %s: %s\n", what, why);
    exit(1);
}

static devx_error error;

/* Calls devexchange, and ends the program if the call fails. */
#define DEVX(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != DEVX_OK) {                                                                                       \
            give_up(devx_status_name(error.status), error.message);                                                    \
        }                                                                                                              \
    } while (0)

/* Calls libweather, and ends the program if the call fails. */
#define WEATHER(call)                                                                                                  \
    do {                                                                                                               \
        if ((call) != 0) {                                                                                             \
            give_up("libweather", weather_error());                                                                    \
        }                                                                                                              \
    } while (0)

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) {
        give_up("demo", "out of memory");
    }
    return memory;
}

/* --- the device --- */

static const DLDevice cpu = {kDLCPU, 0};

static DLDevice device = {kDLCPU, 0};
static int64_t stream = -1; /* no stream: host memory is always ready */

static int on_device(void) {
    return device.device_type != kDLCPU;
}

static void choose_device(void) {
    const char *name = getenv("DEVX_DEVICE");
    devx_device_info info;
    if (name != NULL && strcmp(name, "cuda") == 0) {
        device = (DLDevice){kDLCUDA, 0};
        DEVX(devx_stream_create(device, &stream, &error));
    } else if (name != NULL && strcmp(name, "host") != 0) {
        give_up("DEVX_DEVICE is neither host nor cuda", name);
    }
    DEVX(devx_device_get_info(device, &info, &error));
    printf("device=%s\n", info.name);
}

/* Waits for releases: memory that work on the stream uses is released after that work, on a thread of devexchange. */
static void finish_releases(void) {
    struct timespec const pause = {0, 1000 * 1000};
    for (int i = 0; devx_releases_waiting() > 0; ++i) {
        if (i == 10 * 1000) {
            give_up("the releases", "they still wait after 10 s");
        }
        nanosleep(&pause, NULL);
    }
    if (devx_releases_lost() != 0) {
        give_up("the releases", "some were never called");
    }
}

/* --- importing --- */

/* Takes the batch that libweather exported: the imports move its contents out of the two structs. */
static devx_batch_t *take_batch(struct ArrowDeviceArray *array, struct ArrowSchema *exported) {
    devx_schema_t *schema = NULL;
    devx_batch_t *batch = NULL;
    DEVX(devx_schema_import(exported, &schema, &error));
    DEVX(devx_batch_import_device(array, schema, &batch, &error));
    devx_schema_release(&schema); /* the batch has a reference of its own */
    return batch;
}

/* The batch in host memory, for computing: a copy if it is on a device. The caller releases it. */
static devx_batch_t *host_batch(const devx_batch_t *batch) {
    devx_batch_t *host = NULL;
    DEVX(on_device() ? devx_batch_copy_to(batch, cpu, stream, &host, &error) : devx_batch_share(batch, &host, &error));
    return host;
}

static devx_tensor_t *host_tensor(const devx_tensor_t *tensor) {
    devx_tensor_t *host = NULL;
    DEVX(on_device() ? devx_tensor_copy_to(tensor, cpu, stream, &host, &error)
                     : devx_tensor_share(tensor, &host, &error));
    return host;
}

static devx_column column_named(const devx_batch_t *batch, const char *name) {
    devx_column column;
    DEVX(devx_batch_column_named(batch, name, &column, &error));
    return column;
}

static const double *doubles(const devx_batch_t *batch, const char *name) {
    const void *values = NULL;
    devx_column const column = column_named(batch, name);
    DEVX(devx_column_values(batch, &column, (DLDataType){kDLFloat, 64, 1}, &values, &error));
    return values;
}

/* Days since 1970-01-01. */
static const int32_t *dates_of(const devx_batch_t *days) {
    const void *values = NULL;
    devx_column const column = column_named(days, "date");
    DEVX(devx_column_values(days, &column, (DLDataType){kDLInt, 32, 1}, &values, &error));
    return values;
}

static int64_t rows_of(const devx_batch_t *batch) {
    devx_batch_info info;
    DEVX(devx_batch_get_info(batch, &info, &error));
    return info.length;
}

/* --- zero copy --- */

static int addresses_checked;
static int addresses_equal;

static void check_address(const weather *w, const char *what, const void *address) {
    const void *expected = weather_address(w, what);
    addresses_checked += 1;
    if (expected != NULL && address == expected) {
        addresses_equal += 1;
    } else {
        fprintf(stderr, "demo: %s is at %p, the producer's is at %p\n", what, address, expected);
    }
}

static void check_addresses(const weather *w, const devx_batch_t *airports, const devx_batch_t *days,
                            const void *tensor) {
    /* The buffers of text are validity, offsets and bytes; those of other types are validity and values. The values of
     * a dictionary column are its indices. */
    check_address(w, "airports.iata", column_named(airports, "iata").buffers[2]);
    check_address(w, "airports.name", column_named(airports, "name").buffers[2]);
    check_address(w, "airports.latitude", column_named(airports, "latitude").buffers[1]);
    check_address(w, "days.date", column_named(days, "date").buffers[1]);
    check_address(w, "days.temp_max", column_named(days, "temp_max").buffers[1]);
    check_address(w, "days.weather", column_named(days, "weather").buffers[1]);
    check_address(w, "measurements", tensor);
    printf("zero_copy=%d of %d\n", addresses_equal, addresses_checked);
    if (addresses_equal != addresses_checked) {
        give_up("zero copy", "something was copied");
    }
}

/* --- counting texts --- */

typedef struct tally {
    const char *text; /* in the producer's memory, not NUL-terminated */
    size_t length;
    int64_t count;
} tally;

static int compare_texts(const tally *left, const tally *right) {
    size_t const shorter = left->length < right->length ? left->length : right->length;
    int const order = memcmp(left->text, right->text, shorter);
    return order != 0 ? order : (left->length > right->length) - (left->length < right->length);
}

static int by_text(const void *left, const void *right) {
    return compare_texts(left, right);
}

/* The most frequent text comes first; texts of equal frequency are in the order of names. */
static int by_count(const void *left, const void *right) {
    const tally *l = left, *r = right;
    int const order = (l->count < r->count) - (l->count > r->count);
    return order != 0 ? order : compare_texts(l, r);
}

/* Counts how often each text of a column occurs, without nulls. Returns the texts in the order of names; `*n` gets their
 * number. */
static tally *count_texts(const devx_batch_t *batch, const char *name, size_t *n) {
    devx_column const column = column_named(batch, name);
    tally *tallies = allocate((size_t)column.length, sizeof *tallies);
    size_t found = 0;
    for (int64_t row = 0; row < column.length; ++row) {
        int32_t valid = 0;
        DEVX(devx_column_is_valid(batch, &column, row, &valid, &error));
        if (valid) {
            tally *t = &tallies[found++];
            DEVX(devx_column_bytes(batch, &column, row, &t->text, &t->length, &error));
            t->count = 1;
        }
    }
    qsort(tallies, found, sizeof *tallies, by_text);
    *n = 0;
    for (size_t i = 0; i < found; ++i) {
        if (*n > 0 && compare_texts(&tallies[*n - 1], &tallies[i]) == 0) {
            tallies[*n - 1].count += 1;
        } else {
            tallies[(*n)++] = tallies[i];
        }
    }
    return tallies;
}

static void print_tallies(const char *key, const tally *tallies, size_t n) {
    printf("%s=", key);
    for (size_t i = 0; i < n; ++i) {
        printf("%s%.*s:%" PRId64, i == 0 ? "" : ",", (int)tallies[i].length, tallies[i].text, tallies[i].count);
    }
    printf("\n");
}

/* --- figures --- */

static void print_top_states(const devx_batch_t *airports) {
    size_t n = 0;
    tally *states = count_texts(airports, "state", &n);
    qsort(states, n, sizeof *states, by_count);
    print_tallies("top_states", states, n < TOP ? n : TOP);
    free(states);
}

/* Counts the days of each category: each day holds an index into the dictionary, which holds the texts. */
static void print_categories(const devx_batch_t *days) {
    devx_column const column = column_named(days, "weather");
    devx_column dictionary;
    DEVX(devx_column_dictionary(days, &column, &dictionary, &error));
    tally *tallies = allocate((size_t)dictionary.length, sizeof *tallies);
    for (int64_t i = 0; i < dictionary.length; ++i) {
        DEVX(devx_column_bytes(days, &dictionary, i, &tallies[i].text, &tallies[i].length, &error));
    }
    for (int64_t row = 0; row < column.length; ++row) {
        int32_t valid = 0;
        int64_t index = 0;
        DEVX(devx_column_is_valid(days, &column, row, &valid, &error));
        if (valid) {
            DEVX(devx_column_dictionary_index(days, &column, row, &index, &error));
            tallies[index].count += 1;
        }
    }
    qsort(tallies, (size_t)dictionary.length, sizeof *tallies, by_text);
    print_tallies("categories", tallies, (size_t)dictionary.length);
    free(tallies);
}

static double mean(const double *values, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
        sum += values[i];
    }
    return n > 0 ? sum / (double)n : 0;
}

typedef struct civil {
    int year;
    int month;
    int day;
} civil;

/* The Gregorian date of a day, a number of days since 1970-01-01. It counts years from March, so that a leap day is the
 * last day of a year. */
static civil civil_of(int32_t day) {
    int const shifted = day + 719468;
    int const era = shifted / 146097;
    int const day_of_era = shifted % 146097;
    int const year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int const day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int const from_march = (5 * day_of_year + 2) / 153;
    civil date;
    date.month = from_march < 10 ? from_march + 3 : from_march - 9;
    date.day = day_of_year - (153 * from_march + 2) / 5 + 1;
    date.year = era * 400 + year_of_era + (date.month <= 2);
    return date;
}

static void print_wettest_day(const devx_batch_t *days) {
    const double *precipitation = doubles(days, "precipitation");
    int64_t const n = rows_of(days);
    int64_t wettest = 0;
    for (int64_t row = 1; row < n; ++row) {
        if (precipitation[row] > precipitation[wettest]) {
            wettest = row;
        }
    }
    if (n == 0) {
        give_up("the wettest day", "there are no days");
    }
    civil const date = civil_of(dates_of(days)[wettest]);
    printf("wettest_day=%04d-%02d-%02d %.1f\n", date.year, date.month, date.day, precipitation[wettest]);
}

static void print_figures(const devx_batch_t *airports, const devx_batch_t *days) {
    int64_t const n = rows_of(days);
    printf("airports=%" PRId64 "\n", rows_of(airports));
    print_top_states(airports);
    printf("mean_temp_max=%.4f\n", mean(doubles(days, "temp_max"), n));
    printf("mean_temp_min=%.4f\n", mean(doubles(days, "temp_min"), n));
    print_wettest_day(days);
    print_categories(days);
}

/* --- exporting --- */

/* A row for each month, a column for each measurement. The caller frees the matrix. */
static double *monthly_means(const DLTensor *measurements, const int32_t *dates) {
    double *means = allocate((size_t)MONTHS * MEASUREMENTS, sizeof *means);
    int64_t days_in[MONTHS] = {0};
    const double *values = measurements->data;
    for (int64_t row = 0; row < measurements->shape[0]; ++row) {
        int const month = civil_of(dates[row]).month - 1;
        days_in[month] += 1;
        for (int k = 0; k < MEASUREMENTS; ++k) {
            means[month * MEASUREMENTS + k] += values[row * measurements->strides[0] + k * measurements->strides[1]];
        }
    }
    for (int i = 0; i < MONTHS * MEASUREMENTS; ++i) {
        int64_t const n = days_in[i / MEASUREMENTS];
        means[i] = n > 0 ? means[i] / (double)n : 0;
    }
    return means;
}

static int means_freed;

/* The release function of the means: devexchange calls it when nobody uses them any more. */
static void free_means(void *memory) {
    free(memory);
    means_freed += 1;
}

static void hand_back_means(weather *w, const DLTensor *measurements, const int32_t *dates) {
    double *means = monthly_means(measurements, dates);
    int64_t shape[2] = {MONTHS, MEASUREMENTS};
    DLTensor const description = {means, cpu, 2, {kDLFloat, 64, 1}, shape, NULL, 0};
    devx_owner const owner = {means, free_means};
    devx_tensor_t *tensor = NULL;
    struct DLManagedTensorVersioned *exported = NULL;
    devx_dlpack_request const request = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, stream, DEVX_COPY_NEVER};
    DEVX(devx_tensor_create(&description, 0, &owner, &tensor, &error));
    if (on_device()) {
        devx_tensor_t *copy = NULL;
        DEVX(devx_tensor_copy_to(tensor, device, stream, &copy, &error));
        devx_tensor_release(&tensor);
        tensor = copy;
    }
    DEVX(devx_tensor_export_move(&tensor, &request, &exported, &error));
    WEATHER(weather_check_means(w, exported, stream));
    if (means_freed != 1) {
        give_up("the means", means_freed == 0 ? "they were not freed" : "they were freed more than once");
    }
    printf("means_checked=yes\n");
}

/* --- the program --- */

static void print_ledger(void) {
    int64_t const outstanding = devx_ledger_outstanding();
    int64_t const of_producer = weather_outstanding();
    int64_t const live = weather_live_buffers();
    printf("outstanding=%" PRId64 "\n", outstanding);
    printf("producer_outstanding=%" PRId64 "\n", of_producer);
    printf("producer_live_buffers=%" PRId64 "\n", live);
    if (outstanding != 0 || of_producer != 0 || live != 0) {
        give_up("the ledger", "something was not released");
    }
}

/* Names our stream to libweather, which makes it wait, on the device, until the data is ready. */
static devx_tensor_t *take_measurements(weather *w) {
    struct DLManagedTensorVersioned *exported = NULL;
    devx_tensor_t *tensor = NULL;
    WEATHER(weather_measurements(w, stream, &exported));
    DEVX(devx_tensor_import_on(exported, stream, &tensor, &error));
    return tensor;
}

static void check_measurements(const DLTensor *measurements, int64_t days) {
    if (measurements->ndim != 2 || measurements->shape[0] != days || measurements->shape[1] != MEASUREMENTS ||
        measurements->dtype.code != kDLFloat || measurements->dtype.bits != 64 || measurements->dtype.lanes != 1) {
        give_up("the measurements", "they are not float64 of shape days x 4");
    }
    if (measurements->device.device_type != device.device_type || measurements->device.device_id != device.device_id) {
        give_up("the measurements", "they are on another device");
    }
}

/* Computes everything, from memory that the host can read. */
static void compute(weather *w, const devx_batch_t *airports, const devx_batch_t *days, const devx_tensor_t *tensor) {
    devx_batch_t *host_airports = host_batch(airports);
    devx_batch_t *host_days = host_batch(days);
    devx_tensor_t *host_measurements = host_tensor(tensor);
    DLTensor values;
    DEVX(devx_tensor_borrow(host_measurements, &values, NULL, &error));
    print_figures(host_airports, host_days);
    hand_back_means(w, &values, dates_of(host_days));
    devx_tensor_release(&host_measurements);
    devx_batch_release(&host_days);
    devx_batch_release(&host_airports);
}

int main(int argc, char **argv) {
    weather *w = NULL;
    struct ArrowDeviceArray array;
    struct ArrowSchema schema;
    DLTensor measurements;
    if (argc != 2) {
        give_up("usage", "demo DATADIR");
    }

    choose_device();
    WEATHER(weather_open(argv[1], &w));
    WEATHER(weather_use_device(w, device));
    WEATHER(weather_airports(w, &array, &schema));
    devx_batch_t *airports = take_batch(&array, &schema);
    WEATHER(weather_days(w, &array, &schema));
    devx_batch_t *days = take_batch(&array, &schema);
    devx_tensor_t *tensor = take_measurements(w);
    DEVX(devx_tensor_borrow(tensor, &measurements, NULL, &error));
    check_measurements(&measurements, rows_of(days));

    check_addresses(w, airports, days, measurements.data);
    compute(w, airports, days, tensor);

    /* We close the producer first: our imports stay valid until we release them. */
    weather_close(w);
    if (weather_live_buffers() != 2) {
        give_up("libweather", "its buffers were freed although they are in use");
    }
    devx_tensor_release(&tensor);
    devx_batch_release(&days);
    devx_batch_release(&airports);
    finish_releases();
    if (on_device()) {
        DEVX(devx_stream_close(device, stream, &error));
    }
    print_ledger();
    return 0;
}
