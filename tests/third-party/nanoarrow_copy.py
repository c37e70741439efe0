"""Copies of Arrow device arrays by nanoarrow's C library (nanoarrow_copy.c)."""

import ctypes
import os
from ctypes import POINTER, byref, c_int32, c_int64, c_void_p

import devexchange
from devexchange import ArrowDeviceArray, ArrowSchema

_library = ctypes.CDLL(os.environ["THIRD_PARTY_LIB"])
_copy = _library.nanoarrow_copy
_copy.argtypes = [
    POINTER(ArrowDeviceArray),
    POINTER(ArrowSchema),
    c_int32,
    c_int64,
    POINTER(c_void_p),
    POINTER(ArrowDeviceArray),
    ctypes.c_char_p,
]


class DeviceArray:
    """A producer of one device array, which can be imported once."""

    def __init__(self, schema, array):
        self._schema, self.array = schema, array

    def __arrow_c_schema__(self):
        return self._schema

    def __arrow_c_device_array__(self, requested_schema=None, **_):
        return self._schema, self.array


def copy(producer, device, stream):
    """A copy on `device`, queued on `stream`; the array from `producer` is released once the copy is done."""
    schema, array = producer.__arrow_c_device_array__()
    source = devexchange.device_arrays.pointer(array), devexchange.schemas.pointer(schema)
    why = ctypes.create_string_buffer(1024)

    def fill(out):
        code = _copy(*source, *device, byref(c_void_p(stream)), out, why)
        assert code == 0, f"{os.strerror(code)}: {why.value.decode()}"

    return DeviceArray(schema, devexchange.device_arrays.filled(fill))
