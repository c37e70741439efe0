/*
 * A library in the role of a third party: it reads two tables into buffers of its own and hands them out through the
 * standards. It knows nothing of its consumers' languages.
 *
 * Every function returns 0 on success. On failure it returns non-zero, writes nothing, and weather_error() says why.
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
 * Puts the tables onto a device: from now on the exports are memory of `device`, filled in the order of a stream of the
 * library's own, and carry what a consumer has to wait for. weather_address then gives addresses of that memory. To be
 * called once, before the first export; {kDLCPU, 0} changes nothing.
 */
int weather_use_device(weather *w, DLDevice device);

/* What is left of the exports stays valid: each holds on to the buffers until it is released. */
void weather_close(weather *w);

/*
 * The airports, a record batch of 3,376 rows:
 *   iata, name, city, state, country : utf8 (city and state with nulls where the file says NA)
 *   latitude, longitude              : float64
 */
int weather_airports(weather *w, struct ArrowDeviceArray *array, struct ArrowSchema *schema);

/*
 * The weather of Seattle, a record batch of 1,461 rows:
 *   date                                        : date32
 *   precipitation, temp_max, temp_min, wind     : float64
 *   weather                                     : utf8 dictionary, int8 indices
 */
int weather_days(weather *w, struct ArrowDeviceArray *array, struct ArrowSchema *schema);

/*
 * The four measurements of each day, float64 of shape 1461 x 4 in the order above; the caller owns the tensor. On a device
 * its data is ready for work that the caller queues on `stream` (-1 on the CPU).
 */
int weather_measurements(weather *w, int64_t stream, struct DLManagedTensorVersioned **out);

/*
 * The address of a buffer, so that a consumer can see that nothing was copied: "measurements", or "TABLE.COLUMN" for
 * the values (text: the bytes; dictionary: the indices) of a column, for example "airports.name", "days.temp_max".
 * NULL for anything else.
 */
const void *weather_address(const weather *w, const char *what);

/*
 * A consumer's answer: the monthly means of the measurements, float64 of shape 12 x 4 (row: month, column: as above).
 * Takes the tensor on success and checks every value against its own computation (to 1e-9). It may be on any device; its
 * data is ready for work on `stream` (-1: ready already).
 */
int weather_check_means(weather *w, struct DLManagedTensorVersioned *means, int64_t stream);

/* How many sets of buffers are not freed yet, over all weather objects: 0 when everything was given back. */
int64_t weather_live_buffers(void);

/* How often a set of buffers was freed. */
int64_t weather_freed_buffers(void);

/* What libdevexchange, as this library uses it, has not released yet. */
int64_t weather_outstanding(void);

/* Why the last call on this thread failed. */
const char *weather_error(void);

#ifdef __cplusplus
}
#endif

#endif /* WEATHER_H */
