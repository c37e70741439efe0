/* Describes a tensor of two dimensions with a shape that has one: the library reads beyond the shape. If the library was
 * built with the address sanitizer, the sanitizer must report it. */
#include <devexchange.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    static float values[3];
    devx_error error;
    devx_tensor_t *tensor = NULL;
    int64_t *shape = malloc(sizeof *shape);
    if (shape == NULL) return 0;
    *shape = 3;
    DLTensor const description = {values, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0};
    printf("%d\n", devx_tensor_create(&description, 0, NULL, &tensor, &error));
    return 0;
}
