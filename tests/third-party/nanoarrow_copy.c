/* A copy of a device array to another device, with nanoarrow's C library: its Python package has views of arrays on
 * CUDA devices, but can neither copy them nor record an event. Compiled together with nanoarrow's own sources.
 */
#include "nanoarrow_device.h"

/* Queues the copy on the CUDA stream at `stream` (of either device), after the source's event. `out` is the caller's to
 * release; on a CUDA device it has an event. Returns 0, or an errno with a text in `error`.
 */
int nanoarrow_copy(struct ArrowDeviceArray *source, const struct ArrowSchema *schema, int32_t device_type,
                   int64_t device_id, void *stream, struct ArrowDeviceArray *out, struct ArrowError *error);

int nanoarrow_copy(struct ArrowDeviceArray *source, const struct ArrowSchema *schema, int32_t device_type,
                   int64_t device_id, void *stream, struct ArrowDeviceArray *out, struct ArrowError *error) {
    struct ArrowDevice *device = ArrowDeviceResolve(device_type, device_id);
    struct ArrowDeviceArrayView view;
    /* nanoarrow accepts no stream for the CPU. */
    void *source_stream = source->device_type == ARROW_DEVICE_CPU ? NULL : stream;
    int code;

    if (device == NULL) {
        ArrowErrorSet(error, "nanoarrow has no device of type %d with id %d", (int)device_type, (int)device_id);
        return EINVAL;
    }
    ArrowDeviceArrayViewInit(&view);
    code = ArrowArrayViewInitFromSchema(&view.array_view, schema, error);
    if (code == NANOARROW_OK) {
        code = ArrowDeviceArrayViewSetArrayAsync(&view, source, source_stream, error);
    }
    if (code == NANOARROW_OK) {
        code = view.device->synchronize_event(view.device, source->sync_event, source_stream, error);
    }
    if (code == NANOARROW_OK) {
        code = ArrowDeviceArrayViewCopyAsync(&view, device, out, stream);
    }
    ArrowDeviceArrayViewReset(&view);
    return code;
}
