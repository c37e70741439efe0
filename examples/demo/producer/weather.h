/*
 * A library in the role of a third party, the producer: it reads two tables into its own buffers and exports them through
 * Arrow C Device and DLPack. It knows nothing about its consumers' languages.
 *
 * A function that returns `int` returns 0 on success. On failure it returns another number and writes no output, and
 * weather_error() gives the reason.
 */
#ifndef WEATHER_H
#define WEATHER_H

#include <devexchange.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weather weather;

/* Reads airports.csv and seattle-weather.csv from a directory. */
int weather_open(const char *directory, weather **out);

/*
 * Copies the tables to a device: from then on, the exports are in memory of `device`. They name the work that a consumer
 * has to wait for, which this library queues on its own stream. weather_address then gives addresses of device memory. To
 * be called once, before the first export; {kDLCPU, 0} changes nothing.
 */
int weather_use_device(weather *w, DLDevice device);

/* Gives up the tables. Each export keeps its buffers until it is released, so it stays valid. */
void weather_close(weather *w);

/*
 * Exports the airports, a record batch of 3,376 rows:
 *   iata, name, city, state, country : utf8 (city and state are null where the file has NA)
 *   latitude, longitude              : float64
 */
int weather_airports(weather *w, struct ArrowDeviceArray *array, struct ArrowSchema *schema);

/*
 * Exports the weather of Seattle, a record batch of 1,461 rows:
 *   date                                        : date32
 *   precipitation, temp_max, temp_min, wind     : float64
 *   weather                                     : utf8 dictionary, int8 indices
 */
int weather_days(weather *w, struct ArrowDeviceArray *array, struct ArrowSchema *schema);

/*
 * Exports the four measurements of each day, float64 of shape 1461 x 4, in the order of the columns above. The caller owns
 * the tensor. On a device, its data is ready for work that the caller queues on `stream`, which is -1 on the CPU.
 */
int weather_measurements(weather *w, int64_t stream, struct DLManagedTensorVersioned **out);

/*
 * The address of a buffer, so that a consumer can check that nothing was copied. `what` is "measurements", or "TABLE.COLUMN"
 * for the values of a column, for example "airports.name" or "days.temp_max"; the values of text are its bytes, those of a
 * dictionary column the indices. NULL for anything else.
 */
const void *weather_address(const weather *w, const char *what);

/*
 * Checks the monthly means that a consumer computed, float64 of shape 12 x 4, with a row for each month and the columns as
 * above: compares every value with the library's own (to 1e-9), and takes the tensor if all agree. The tensor may be on any
 * device. Its data is ready for work on `stream`, or already if `stream` is -1.
 */
int weather_check_means(weather *w, struct DLManagedTensorVersioned *means, int64_t stream);

/* The number of sets of buffers that are not freed yet, in all weather objects. */
int64_t weather_live_buffers(void);

/* The number of sets of buffers that were freed. */
int64_t weather_freed_buffers(void);

/* The number of things that the libdevexchange of this library has not released yet. */
int64_t weather_outstanding(void);

/* The text of the last error on this thread. */
const char *weather_error(void);

#ifdef __cplusplus
}
#endif

#endif /* WEATHER_H */
