/* What Julia calls for the floor: the floor of C, and a function that does nothing. */
#include "../c/floor/tensor.h"

#include <stdlib.h>

void floor_nothing(void) {}

struct producer *floor_producer(void) {
    struct producer *producer = malloc(sizeof *producer);
    if (producer != NULL) make_producer(producer);
    return producer;
}
