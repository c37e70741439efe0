"""Function tables of the DLPack exchange API, made and read by hand.

A helper in C does what Python cannot do: fail without an exception, or call without the GIL."""

import ctypes
import os
import subprocess
import tempfile
from ctypes import CFUNCTYPE, POINTER, PYFUNCTYPE, Structure, c_char_p, c_int, c_int32, c_uint32, c_void_p, py_object
from ctypes import pythonapi as python
from pathlib import Path

NAME = b"dlpack_exchange_api"

new_capsule = PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", python))
pointer_of = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", python))

# The functions of a table that attached threads call; an exception that they set is raised.
FromObject = PYFUNCTYPE(c_int, c_void_p, POINTER(c_void_p))
WorkStream = PYFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))
# Functions that are called without the GIL.
SetError = CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)
Allocator = CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p), c_void_p, SetError)
WorkStreamUnattached = CFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))


class Table(Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("prev_api", c_void_p),
        ("allocator", c_void_p),
        ("from_object", c_void_p),
        ("to_object", c_void_p),
        ("borrow", c_void_p),
        ("work_stream", c_void_p),
    ]

    def capsule(self, name=NAME):
        return new_capsule(ctypes.addressof(self), name, None)


def table_of(kind):
    """The table that a type offers."""
    return Table.from_address(pointer_of(kind.__dlpack_c_exchange_api__, NAME))


def address(function):
    return ctypes.cast(function, c_void_p).value


def compile_library(source, directory, *libraries):
    """Builds a C or C++ file as a library in a directory, with the compiler of this machine."""
    library = Path(directory) / "helper.so"
    command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-pthread"]
    subprocess.run([*command, "-o", library, source, *libraries], check=True)
    return library


def build(source):
    """Builds such a library and loads it."""
    with tempfile.TemporaryDirectory() as directory:
        return ctypes.PyDLL(str(compile_library(source, directory)))


helper = build(Path(__file__).with_name("helper.c"))
for function in ("answer_from_object", "answer_to_object", "answer_work_stream"):
    getattr(helper, function).restype = c_int
