#include <devexchange.h>

/* A tensor made by the plugin, which may be released after the plugin was closed. */
struct DLManagedTensorVersioned *plugin_tensor(void);

struct DLManagedTensorVersioned *plugin_tensor(void) {
    DLDevice const cpu = {kDLCPU, 0};
    DLDataType const float32 = {kDLFloat, 32, 1};
    int64_t const shape[] = {2, 3};
    devx_tensor_t *tensor = NULL;
    struct DLManagedTensorVersioned *handed = NULL;
    if (devx_tensor_allocate(cpu, float32, shape, 2, -1, &tensor, NULL) == DEVX_OK) {
        devx_tensor_export_move(&tensor, NULL, &handed, NULL);
    }
    devx_tensor_release(&tensor);
    return handed;
}
