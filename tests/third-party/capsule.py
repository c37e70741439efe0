"""PyCapsules around C structs: how Python libraries exchange the structs of DLPack and Arrow (capsules.c)."""

import ctypes
import os
from ctypes import POINTER, PYFUNCTYPE, c_char_p, c_int, c_void_p, cast, py_object, pythonapi

_library = ctypes.PyDLL(os.environ["THIRD_PARTY_LIB"])
for _name in ["versioned", "unversioned"]:
    _function = getattr(_library, f"new_{_name}")
    _function.argtypes, _function.restype = [c_void_p], py_object
for _name in ["schema", "array", "device_array"]:
    _function = getattr(_library, f"new_{_name}")
    _function.argtypes, _function.restype = [], py_object

_pointer = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", pythonapi))
_is_valid = PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_IsValid", pythonapi))
_rename = PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_SetName", pythonapi))


class Kind:
    """Capsules of one name, around one struct."""

    def __init__(self, name, new, struct):
        self._name, self._used, self._new, self._struct = name, b"used_" + name, new, struct

    def is_in(self, capsule):
        """Whether this is a capsule of this kind that nobody has consumed."""
        return bool(_is_valid(capsule, self._name))

    def pointer(self, capsule):
        """A pointer to the struct, which lives as long as the capsule."""
        return cast(_pointer(capsule, self._name), POINTER(self._struct))

    def consume(self, capsule):
        """Marks a DLPack capsule as consumed. From then on, the consumer owns the struct and must call its deleter."""
        _rename(capsule, self._used)

    def around(self, struct):
        """A capsule that owns a producer's DLPack struct."""
        return self._new(cast(struct, c_void_p))

    def filled(self, fill):
        """A capsule with an Arrow struct, which `fill` writes through a pointer."""
        capsule = self._new()
        fill(self.pointer(capsule))
        return capsule


def kinds(versioned, unversioned, schema, array, device_array):
    """The kinds of capsules around the given ctypes structs."""
    return (
        Kind(b"dltensor_versioned", _library.new_versioned, versioned),
        Kind(b"dltensor", _library.new_unversioned, unversioned),
        Kind(b"arrow_schema", _library.new_schema, schema),
        Kind(b"arrow_array", _library.new_array, array),
        Kind(b"arrow_device_array", _library.new_device_array, device_array),
    )
