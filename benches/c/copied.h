/* Whether copies of the data in data.h are right, by the values at their ends: to look at each would cost as much as
 * the copy.
 */
#ifndef COPIED_H_
#define COPIED_H_

#include "data.h"

static inline int is_transposed(const void *values) {
    const double *copy = values;
    return copy[1] == square[SIDE] && copy[SIDE * SIDE - 2] == square[SIDE * (SIDE - 1) - 1];
}

static inline int has_channels(const void *values) {
    const uint8_t *copy = values;
    enum { PIXELS = PICTURE_HEIGHT * PICTURE_WIDTH };
    return copy[1] == picture[CHANNELS] && copy[CHANNELS * PIXELS - 2] == picture[CHANNELS * (PIXELS - 1) - 1];
}

static inline int is_reversed(const void *values) {
    const double *copy = values;
    return copy[0] == forwards[REVERSED - 1] && copy[REVERSED - 1] == forwards[0];
}

/* `offsets` are those of the slice. */
static inline int is_slice(const int32_t *offsets, const char *bytes) {
    enum { LAST = SLICE_LENGTH - 1 };
    return bytes[offsets[0]] == texts[SLICE_START * TEXT_BYTES] &&
           bytes[offsets[LAST]] == texts[(SLICE_START + LAST) * TEXT_BYTES] &&
           offsets[SLICE_LENGTH] - offsets[0] == SLICE_LENGTH * TEXT_BYTES;
}

static inline int are_bools(const void *values) {
    const uint8_t *copy = values;
    return copy[8] == (bits[1] & 1) && copy[BITS - 1] == bits[BITS / 8 - 1] >> 7;
}

#endif
