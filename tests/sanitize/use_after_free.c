/* Reads memory after it was freed: the address sanitizer must report it. */
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    volatile char *place = malloc(16);
    if (place == NULL) return 0;
    free((void *)place);
    printf("%d\n", place[3]);
    return 0;
}
