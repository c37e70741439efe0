"""The part of the C API of devexchange that these tests need, through ctypes, with the protocols that Python libraries use
among each other. A client of the library for tests, not a binding.

Streams are numbers, as in the C API; devices are pairs of type and id, as in DLPack.
"""

import ctypes
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from itertools import count

import numpy

import capsule

CPU, CUDA = 1, 2
READ_ONLY = 1
NO_SYNCHRONIZATION = -1
LEGACY, PER_THREAD = 1, 2


# --- structs: DLPack, Arrow C Device, devexchange/types.h ---


class DLDevice(Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DLDataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class DLManagedTensor(Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", c_void_p)]


class DLPackVersion(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32)]


class DLManagedTensorVersioned(Structure):
    _fields_ = [
        ("version", DLPackVersion),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("dl_tensor", DLTensor),
    ]


Release = CFUNCTYPE(None, c_void_p)


class ArrowSchema(Structure):
    _fields_ = [
        ("format", c_char_p),
        ("name", c_char_p),
        ("metadata", c_char_p),
        ("flags", c_int64),
        ("n_children", c_int64),
        ("children", c_void_p),
        ("dictionary", c_void_p),
        ("release", Release),
        ("private_data", c_void_p),
    ]


class ArrowArray(Structure):
    _fields_ = [
        ("length", c_int64),
        ("null_count", c_int64),
        ("offset", c_int64),
        ("n_buffers", c_int64),
        ("n_children", c_int64),
        ("buffers", POINTER(c_void_p)),
        ("children", c_void_p),
        ("dictionary", c_void_p),
        ("release", Release),
        ("private_data", c_void_p),
    ]


class ArrowDeviceArray(Structure):
    _fields_ = [
        ("array", ArrowArray),
        ("device_id", c_int64),
        ("device_type", c_int32),
        ("sync_event", POINTER(c_void_p)),
        ("reserved", c_int64 * 3),
    ]


class devx_error(Structure):
    _fields_ = [("status", c_int32), ("driver_code", c_int32), ("message", c_char * 496)]


class devx_owner(Structure):
    _fields_ = [("context", c_void_p), ("release", Release)]


class devx_dlpack_request(Structure):
    _fields_ = [("max_major", c_uint32), ("max_minor", c_uint32), ("stream", c_int64), ("copy", c_int32)]


class devx_batch_info(Structure):
    _fields_ = [
        ("length", c_int64),
        ("n_columns", c_int64),
        ("n_nodes", c_int64),
        ("device_type", c_int32),
        ("device_id", c_int32),
    ]


# --- functions ---

library = ctypes.CDLL(os.environ["DEVX_LIB_C"])
_handle = c_void_p
_handle_out = POINTER(c_void_p)

_FALLIBLE = {
    "devx_tensor_create": [POINTER(DLTensor), c_uint64, POINTER(devx_owner), _handle_out],
    "devx_tensor_borrow": [_handle, POINTER(DLTensor), POINTER(c_uint64)],
    "devx_tensor_size": [_handle, POINTER(c_int64), POINTER(c_int64), POINTER(c_int32)],
    "devx_tensor_read": [_handle, c_void_p, c_size_t, c_int64],
    "devx_tensor_produced_on": [_handle, c_int64],
    "devx_tensor_used_on": [_handle, c_int64],
    "devx_tensor_wait": [_handle, c_int64],
    "devx_tensor_export_share": [_handle, POINTER(devx_dlpack_request), POINTER(POINTER(DLManagedTensorVersioned))],
    "devx_tensor_export_share_legacy": [_handle, POINTER(devx_dlpack_request), POINTER(POINTER(DLManagedTensor))],
    "devx_tensor_import_on": [POINTER(DLManagedTensorVersioned), c_int64, _handle_out],
    "devx_tensor_import_on_legacy": [POINTER(DLManagedTensor), c_int64, _handle_out],
    "devx_batch_import_pair": [POINTER(ArrowArray), POINTER(ArrowSchema), _handle_out],
    "devx_batch_import_pair_device": [POINTER(ArrowDeviceArray), POINTER(ArrowSchema), _handle_out],
    "devx_batch_export_share": [_handle, POINTER(ArrowArray)],
    "devx_batch_export_share_device": [_handle, POINTER(ArrowDeviceArray)],
    "devx_batch_get_info": [_handle, POINTER(devx_batch_info)],
    "devx_batch_schema": [_handle, _handle_out],
    "devx_batch_copy_to": [_handle, DLDevice, c_int64, _handle_out],
    "devx_batch_used_on": [_handle, c_int64],
    "devx_schema_export": [_handle, POINTER(ArrowSchema)],
}
for _name, _arguments in _FALLIBLE.items():
    _function = getattr(library, _name)
    _function.argtypes, _function.restype = [*_arguments, POINTER(devx_error)], c_int32

for _name in ["devx_tensor_release", "devx_batch_release", "devx_schema_release"]:
    getattr(library, _name).argtypes, getattr(library, _name).restype = [_handle_out], None
library.devx_status_name.argtypes, library.devx_status_name.restype = [c_int32], c_char_p
for _name in ["devx_ledger_outstanding", "devx_releases_waiting", "devx_releases_lost"]:
    getattr(library, _name).argtypes, getattr(library, _name).restype = [], c_int64


class Error(BufferError):
    """An error of the library, of the type that consumers of DLPack expect."""

    def __init__(self, error):
        self.status = library.devx_status_name(error.status).decode()
        super().__init__(f"{self.status}: {error.message.decode()}")


def call(name, *arguments):
    error = devx_error()
    if getattr(library, name)(*arguments, byref(error)) != 0:
        raise Error(error)


def outstanding():
    return library.devx_ledger_outstanding()


def releases_waiting():
    return library.devx_releases_waiting()


def releases_lost():
    return library.devx_releases_lost()


# --- owners: Python functions as release callbacks ---

_owned = {}
_keys = count(1)


@Release
def _release(key):
    _owned.pop(key)()


# --- capsules ---

versioned, unversioned, schemas, arrays, device_arrays = capsule.kinds(
    DLManagedTensorVersioned, DLManagedTensor, ArrowSchema, ArrowArray, ArrowDeviceArray
)


# --- tensors ---

_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_KINDS = {code: kind for kind, code in _CODES.items()}


def _to_dltype(dtype):
    dtype = numpy.dtype(dtype)
    return DLDataType(_CODES[dtype.kind], dtype.itemsize * 8, 1)


def _from_dltype(dtype):
    return numpy.dtype("?" if _KINDS[dtype.code] == "b" else f"{_KINDS[dtype.code]}{dtype.bits // 8}")


class _Handle:
    """One reference to an object of the library. It is closed by `with`, or when the Python object is deleted."""

    def __init__(self, make):
        self.handle = c_void_p()
        make(byref(self.handle))

    def close(self):
        self._close(byref(self.handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()


class Tensor(_Handle):
    _close = library.devx_tensor_release

    @classmethod
    def over(cls, address, shape, dtype, device=(CUDA, 0), strides=None, flags=0, release=lambda: None):
        """A tensor over foreign memory; `release` is called when nobody uses the memory any more."""
        ndim = len(shape)
        strides = (c_int64 * ndim)(*strides) if strides is not None else None
        description = DLTensor(
            address, DLDevice(*device), ndim, _to_dltype(dtype), (c_int64 * ndim)(*shape), strides, 0
        )
        owner = devx_owner(next(_keys), _release)
        _owned[owner.context] = release
        try:
            return cls(lambda out: call("devx_tensor_create", byref(description), flags, byref(owner), out))
        except Error:
            del _owned[owner.context]
            raise

    @classmethod
    def from_dlpack(cls, producer, stream, **arguments):
        """Imports a producer's export for `stream`, in the struct that the producer returns."""
        given = producer.__dlpack__(stream=None if stream == NO_SYNCHRONIZATION else stream, **arguments)
        return cls.from_capsule(given, stream)

    @classmethod
    def from_capsule(cls, given, stream):
        kind, function = (
            (versioned, "devx_tensor_import_on")
            if versioned.is_in(given)
            else (unversioned, "devx_tensor_import_on_legacy")
        )
        tensor = cls(lambda out: call(function, kind.pointer(given), stream, out))
        kind.consume(given)
        return tensor

    def borrow(self):
        view, flags = DLTensor(), c_uint64()
        call("devx_tensor_borrow", self.handle, byref(view), byref(flags))
        return view, flags.value

    @property
    def address(self):
        return self.borrow()[0].data or 0

    @property
    def shape(self):
        view, _ = self.borrow()
        return tuple(view.shape[: view.ndim])

    @property
    def strides(self):
        view, _ = self.borrow()
        return tuple(view.strides[: view.ndim])

    @property
    def dtype(self):
        return _from_dltype(self.borrow()[0].dtype)

    def read(self, stream):
        """All elements, in a new NumPy array."""
        elements = numpy.empty(self.shape, self.dtype)
        call("devx_tensor_read", self.handle, elements.ctypes.data, elements.nbytes, stream)
        return elements

    def produced_on(self, stream):
        call("devx_tensor_produced_on", self.handle, stream)
        return self

    def used_on(self, stream):
        call("devx_tensor_used_on", self.handle, stream)

    def wait(self, stream):
        call("devx_tensor_wait", self.handle, stream)

    def __dlpack_device__(self):
        device = self.borrow()[0].device
        return device.device_type, device.device_id

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if stream is None:
            stream = NO_SYNCHRONIZATION if self.__dlpack_device__()[0] == CPU else LEGACY
        copy = {None: 1, False: 0, True: 2}[copy]
        request = devx_dlpack_request(*(max_version or (0, 0)), stream, copy)
        if request.max_major >= 1:
            tensor = POINTER(DLManagedTensorVersioned)()
            call("devx_tensor_export_share", self.handle, byref(request), byref(tensor))
            return versioned.around(tensor)
        tensor = POINTER(DLManagedTensor)()
        call("devx_tensor_export_share_legacy", self.handle, byref(request), byref(tensor))
        return unversioned.around(tensor)


class Unversioned:
    """A producer from before DLPack 1.0: its `__dlpack__` takes only a stream, and makes no copies."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, stream=None):
        return self._tensor.__dlpack__(stream=stream, copy=False)


# --- batches ---


class Batch(_Handle):
    _close = library.devx_batch_release

    @classmethod
    def from_arrow(cls, producer):
        """Imports a device array."""
        schema, array = producer.__arrow_c_device_array__()
        source = device_arrays.pointer(array), schemas.pointer(schema)
        return cls(lambda out: call("devx_batch_import_pair_device", *source, out))

    @classmethod
    def from_host(cls, producer):
        """Imports an array in host memory."""
        schema, array = producer.__arrow_c_array__()
        source = arrays.pointer(array), schemas.pointer(schema)
        return cls(lambda out: call("devx_batch_import_pair", *source, out))

    def copy_to(self, device, stream):
        return Batch(lambda out: call("devx_batch_copy_to", self.handle, DLDevice(*device), stream, out))

    @property
    def info(self):
        info = devx_batch_info()
        call("devx_batch_get_info", self.handle, byref(info))
        return info

    def used_on(self, stream):
        call("devx_batch_used_on", self.handle, stream)

    def __arrow_c_schema__(self):
        schema = _Schema(lambda out: call("devx_batch_schema", self.handle, out))
        return schemas.filled(lambda out: call("devx_schema_export", schema.handle, out))

    def __arrow_c_array__(self, requested_schema=None):
        return self.__arrow_c_schema__(), arrays.filled(lambda out: call("devx_batch_export_share", self.handle, out))

    def __arrow_c_device_array__(self, requested_schema=None, **_):
        export = device_arrays.filled(lambda out: call("devx_batch_export_share_device", self.handle, out))
        return self.__arrow_c_schema__(), export


class _Schema(_Handle):
    _close = library.devx_schema_release
