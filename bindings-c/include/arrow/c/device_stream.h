/*
 * Arrow C device stream interface. May be used together with the official arrow/c/abi.h. Generated
 * by cbindgen from core/src/abi/arrow_device_stream.rs (DEVX_BLESS=1 cargo test -p devexchange-c).
 * Do not edit.
 */
#include "arrow/c/data.h"
#include "arrow/c/device.h"

#ifndef ARROW_C_DEVICE_STREAM_INTERFACE
#define ARROW_C_DEVICE_STREAM_INTERFACE

#ifdef __cplusplus
extern "C" {
#endif

/**
 * A source of arrays on one device; otherwise like `ArrowArrayStream`.
 *
 * The functions that return `int` return 0, or an `errno` code.
 */
struct ArrowDeviceArrayStream {
  /** Kind of the device that all arrays lie on, one of `ARROW_DEVICE_...`. */
  ArrowDeviceType device_type;
  /**
   * Writes the type that all arrays have, in main memory. The caller owns it, independently of the
   * stream.
   */
  int (*get_schema)(struct ArrowDeviceArrayStream *stream, struct ArrowSchema *out);
  /**
   * Writes the next array, or a released one at the end. The caller owns it, independently of the
   * stream.
   */
  int (*get_next)(struct ArrowDeviceArrayStream *stream, struct ArrowDeviceArray *out);
  /** Gives a text about the last call if that failed, or NULL. It is valid until the next call. */
  const char *(*get_last_error)(struct ArrowDeviceArrayStream *stream);
  /** Releases the stream, not the arrays that it gave; sets its own `release` to NULL. */
  void (*release)(struct ArrowDeviceArrayStream *stream);
  /** For the producer's own use. */
  void *private_data;
};

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ARROW_C_DEVICE_STREAM_INTERFACE */
