#include <devexchange.h>
#include <stdio.h>

int main(void) {
    printf("%s\n", devx_version_string());
    return devx_version() != 0 ? 0 : 1;
}
