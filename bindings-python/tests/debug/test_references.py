"""The number of references in the process stays the same over many exchanges: a debug build of CPython counts them.

No other library takes part, because release builds do not count their references.
"""

import array
import ctypes
import gc
import sys
from types import SimpleNamespace

import pytest

import devexchange
from devexchange import BatchStream, RecordBatch, Tensor, from_arrow, from_buffer, from_dlpack

NUMBERS = array.array("f", range(6))
ROUNDS = 2_000
#: How many references the interpreter's caches may take, whatever the number of rounds.
SLACK = 100
# Room for an ArrowArray and for an ArrowSchema.
STRUCTS = [(ctypes.c_void_p * 10)() for _ in range(2)]


def batch():
    return from_buffer(NUMBERS).to_column("x")


def only(thing, method):
    """An object with only one of the protocols of `thing`."""
    return SimpleNamespace(**{method: getattr(thing, method)})


def arrow_by_address():
    array_at, schema_at = map(ctypes.addressof, STRUCTS)
    ours = batch()
    ours.export_share(array_at)
    ours.schema.export_arrow(schema_at)
    RecordBatch.import_arrow(array_at, schema_at).close()


def stream():
    ours = batch()
    return BatchStream.of(ours.schema, [ours, ours])


def pull(source):
    for pulled in source:
        pulled.to_pylist()
        pulled.close()


def refused():
    for wrong in (from_dlpack, from_arrow, from_buffer):
        with pytest.raises((TypeError, devexchange.Error)):
            wrong(object())


def callback_that_raises():
    def batches():
        yield batch()
        raise KeyError("x")

    with pytest.raises(Exception, match="x"):
        pull(from_arrow(only(BatchStream.of(batch().schema, batches()), "__arrow_c_stream__")))


EXCHANGES = {
    "buffer": lambda: memoryview(from_buffer(NUMBERS)).release(),
    "DLPack capsule": lambda: from_dlpack(from_buffer(NUMBERS)).close(),
    "DLPack capsule that nobody takes": lambda: from_buffer(NUMBERS).__dlpack__(max_version=(1, 0)),
    "DLPack address": lambda: Tensor.import_dlpack(from_buffer(NUMBERS).export_share()).close(),
    "Arrow array": lambda: from_arrow(only(batch(), "__arrow_c_array__")),
    "Arrow device array": lambda: from_arrow(only(batch(), "__arrow_c_device_array__")),
    "Arrow schema": lambda: from_arrow(only(batch(), "__arrow_c_schema__")),
    "Arrow addresses": arrow_by_address,
    "Arrow stream": lambda: pull(from_arrow(only(stream(), "__arrow_c_stream__"))),
    "Arrow device stream": lambda: pull(from_arrow(only(stream(), "__arrow_c_device_stream__"))),
    "refusals": refused,
    "a source that raises": callback_that_raises,
}


def references(exchange):
    """How many more references there are after `ROUNDS` exchanges."""
    for _ in range(ROUNDS // 10):
        exchange()
    gc.collect()
    before = sys.gettotalrefcount()
    for _ in range(ROUNDS):
        exchange()
    gc.collect()
    return sys.gettotalrefcount() - before


@pytest.mark.parametrize("name", EXCHANGES)
def test_references_stay_as_many(name):
    assert abs(references(EXCHANGES[name])) < SLACK
    assert devexchange.outstanding() == 0


def test_one_that_is_kept_is_seen():
    kept = []
    assert references(lambda: kept.append(from_buffer(NUMBERS))) >= ROUNDS
