"""The structs of DLPack and capsules around them, made by hand, for a producer that makes mistakes."""

import ctypes
from ctypes import CFUNCTYPE, POINTER, PYFUNCTYPE, Structure, c_char_p, c_int, c_void_p, py_object, pythonapi

VERSIONED, USED_VERSIONED = b"dltensor_versioned", b"used_dltensor_versioned"

new_capsule = PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", pythonapi))
is_valid = PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_IsValid", pythonapi))
pointer_of = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", pythonapi))
rename = PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_SetName", pythonapi))


class DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", POINTER(ctypes.c_int64)),
        ("strides", POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


Deleter = CFUNCTYPE(None, c_void_p)


class Managed(Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", Deleter),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", DLTensor),
    ]


class Producer:
    """A float32 matrix of 2 x 3, described as `fields` says; `deleted` counts the calls of its deleter."""

    def __init__(self, **fields):
        self.deleted = 0
        self.values = (ctypes.c_float * 6)(*range(6))
        shape, strides = fields.pop("shape", (2, 3)), fields.pop("strides", (3, 1))
        self.shape = (ctypes.c_int64 * 6)(*shape) if shape is not None else None
        self.strides = (ctypes.c_int64 * 6)(*strides) if strides is not None else None
        self.managed = managed = Managed(major=1, minor=3)
        no_deleter = fields.pop("no_deleter", False)
        if not no_deleter:
            managed.deleter = Deleter(self._delete)
        tensor = managed.dl_tensor
        tensor.data, tensor.device_type, tensor.ndim = ctypes.addressof(self.values), 1, 2
        tensor.code, tensor.bits, tensor.lanes = 2, 32, 1
        tensor.shape = ctypes.cast(self.shape, POINTER(ctypes.c_int64)) if self.shape else None
        tensor.strides = ctypes.cast(self.strides, POINTER(ctypes.c_int64)) if self.strides else None
        for name, value in fields.items():
            setattr(managed if name in ("major", "minor", "flags") else tensor, name, value)
        self.capsule = new_capsule(ctypes.addressof(managed), VERSIONED, None)

    def _delete(self, _):
        self.deleted += 1

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        return self.capsule

    def is_taken(self):
        return bool(is_valid(self.capsule, USED_VERSIONED))

    def is_untouched(self):
        return bool(is_valid(self.capsule, VERSIONED)) and self.deleted == 0
