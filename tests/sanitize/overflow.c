/* Overflows an int: the sanitizer of undefined behaviour must report it. */
#include <limits.h>
#include <stdio.h>

int main(int argc, char **argv) {
    (void)argv;
    int sum = INT_MAX;
    sum += argc;
    printf("%d\n", sum);
    return 0;
}
