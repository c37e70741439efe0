/* Reads memory that was freed: a run with the address sanitizer must end with a report. */
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    volatile char *place = malloc(16);
    if (place == NULL) return 0;
    free((void *)place);
    printf("%d\n", place[3]);
    return 0;
}
