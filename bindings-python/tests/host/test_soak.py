"""Many exchanges in host memory, for each protocol."""

import ctypes
from types import SimpleNamespace

import numpy
import pyarrow
import pytest
import tvm_ffi
from soak import soak

from devexchange import BatchStream, RecordBatch, Tensor, from_arrow, from_buffer, from_dlpack

ARRAY = numpy.zeros(8, "f4")
BATCH = pyarrow.record_batch({"n": [1, None, 3], "s": ["a", "b", None]})
ECHO = tvm_ffi.get_global_func("testing.echo")


class Legacy:
    """Exports and imports the struct of DLPack before 1.0."""

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, stream=None):
        return ARRAY.__dlpack__()


def only(thing, method):
    """An object with only one of the protocols of `thing`."""
    return SimpleNamespace(**{method: getattr(thing, method)})


def stream():
    ours = from_arrow(BATCH)
    return BatchStream.of(ours.schema, [ours])


# Room for an ArrowArray and for an ArrowSchema.
STRUCTS = [(ctypes.c_void_p * 10)() for _ in range(2)]


def by_address():
    Tensor.import_dlpack(from_dlpack(ARRAY).export_share()).close()


def arrow_by_address():
    array, schema = map(ctypes.addressof, STRUCTS)
    ours = from_arrow(BATCH)
    ours.export_share(array)
    ours.schema.export_arrow(schema)
    RecordBatch.import_arrow(array, schema).close()


def pull(stream):
    for batch in stream:
        batch.close()


PROTOCOLS = {
    "DLPack capsule": lambda: numpy.from_dlpack(from_dlpack(ARRAY)),
    "DLPack capsule before 1.0": lambda: from_dlpack(Legacy()).__dlpack__(),
    "DLPack exchange API": lambda: ECHO(from_dlpack(from_dlpack(ARRAY))),
    "DLPack address": by_address,
    "buffer protocol": lambda: memoryview(from_buffer(ARRAY)).release(),
    "Arrow array": lambda: pyarrow.record_batch(only(from_arrow(BATCH), "__arrow_c_array__")),
    "Arrow device array": lambda: from_arrow(only(from_arrow(BATCH), "__arrow_c_device_array__")),
    "Arrow stream": lambda: pull(from_arrow(only(stream(), "__arrow_c_stream__"))),
    "Arrow device stream": lambda: pull(from_arrow(only(stream(), "__arrow_c_device_stream__"))),
    "Arrow schema": lambda: pyarrow.schema(from_arrow(BATCH.schema)),
    "Arrow addresses": arrow_by_address,
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_soak(protocol):
    soak(protocol, PROTOCOLS[protocol])
