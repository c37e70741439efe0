/* Adds beyond the largest int: a run with the sanitizer of undefined behaviour must end with a report. */
#include <limits.h>
#include <stdio.h>

int main(int argc, char **argv) {
    (void)argv;
    int sum = INT_MAX;
    sum += argc;
    printf("%d\n", sum);
    return 0;
}
