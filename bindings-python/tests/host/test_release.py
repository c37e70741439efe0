"""Foreign releases while an exception propagates, and while the producer waits for its threads."""

import ctypes
import gc
from ctypes import c_int, c_void_p

import pyarrow
import pytest
from structs import Producer, new_capsule
from tables import address, helper

from devexchange import BatchStream, Schema, from_arrow, from_dlpack

WORD = ctypes.sizeof(c_void_p)
Release = ctypes.CFUNCTYPE(None, c_void_p)


class Released:
    """An Arrow struct filled in by PyArrow, whose release counts in Python before it calls PyArrow's release."""

    def __init__(self, source, words, release_word):
        self.count = 0
        self.memory = (c_void_p * words)()
        self.address = ctypes.addressof(self.memory)
        source._export_to_c(self.address)
        self._inner = Release(self.memory[release_word])
        self._own = Release(self._release)
        self.memory[release_word] = address(self._own)

    def _release(self, struct):
        self.count += 1
        self._inner(struct)


def tensor(made):
    made.producer = Producer()
    return from_dlpack(made.producer), lambda: made.producer.deleted


def view(made):
    given, released = tensor(made)
    seen = memoryview(given)
    given.close()
    return seen, released


def batch(made):
    given, released = tensor(made)
    with given:
        return given.to_column(), released


def column(made):
    given, released = batch(made)
    with given:
        return given.root, released


def schema(made):
    made.struct = Released(pyarrow.schema([("x", pyarrow.int32())]), 9, 7)
    return Schema.import_arrow(made.struct.address), lambda: made.struct.count


def stream(made):
    reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("x", pyarrow.int32())]), [])
    made.struct = Released(reader, 5, 3)
    return BatchStream.import_arrow(made.struct.address), lambda: made.struct.count


def exported_stream(made):
    given, released = stream(made)
    with given:
        return given.__arrow_c_stream__(), released


class Made:
    """Holds objects that have to live as long as a test."""


@pytest.mark.parametrize("make", [tensor, view, batch, column, schema, stream, exported_stream])
def test_exception_that_ends_an_object_survives_a_release_in_python(make):
    made = Made()
    things, released = [], None

    def give_and_fail():
        yield things.pop()
        raise KeyError("mine")

    thing, released = make(made)
    things.append(thing)
    del thing
    assert released() == 0
    # The list holds the only reference, and is given up while the exception propagates.
    with pytest.raises(KeyError, match="mine"):
        list(give_and_fail())
    assert released() == 1


# ---- producers that wait for their own threads ----


def ints(*values):
    return pyarrow.record_batch({"x": pyarrow.array(values, pyarrow.int32())})


@pytest.fixture
def waiting():
    """A function that makes an `ArrowArrayStream` or `ArrowDeviceArrayStream` whose producer waits for a thread that runs
    Python."""

    def count(name):
        return c_int.in_dll(helper, name)

    def make(*batches, on_device=False):
        struct, reader = (c_void_p * 6)(), pyarrow.RecordBatchReader.from_batches(batches[0].schema, batches)
        if on_device:
            with from_arrow(reader) as stream:
                stream.export_arrow_device(ctypes.addressof(struct))
        else:
            reader._export_to_c(ctypes.addressof(struct))
        # The functions of a device stream follow its device type.
        helper.make_stream_wait(ctypes.byref(struct, WORD if on_device else 0))
        return struct

    count("stream_waits").value = count("stream_waits_in_vain").value = 0
    yield make
    gc.collect()
    # The producer waits for the schema, for at least one batch, and for the release.
    assert (count("stream_waits").value >= 2, count("stream_waits_in_vain").value) == (True, 0)


@pytest.mark.parametrize("on_device", [False, True])
def test_closing_a_stream_lets_its_producer_run_python(waiting, on_device):
    struct = waiting(ints(1, 2), on_device=on_device)
    take = BatchStream.import_arrow_device if on_device else BatchStream.import_arrow
    stream = take(ctypes.addressof(struct))
    assert next(stream).to_pylist() == [{"x": 1}, {"x": 2}]
    stream.close()


def test_forgetting_a_stream_lets_its_producer_run_python(waiting):
    struct = waiting(ints(1))
    with_it = BatchStream.import_arrow(ctypes.addressof(struct))
    del with_it


def test_stream_in_a_capsule_lets_its_producer_run_python(waiting):
    struct = waiting(ints(1), ints(2))

    class Offers:
        def __arrow_c_stream__(self, requested_schema=None):
            return new_capsule(ctypes.addressof(struct), b"arrow_array_stream", None)

    assert [batch.to_pylist() for batch in from_arrow(Offers())] == [[{"x": 1}], [{"x": 2}]]


@pytest.mark.parametrize("method", ["__arrow_c_stream__", "__arrow_c_device_stream__"])
def test_capsule_of_a_stream_that_nobody_takes_lets_its_producer_run_python(waiting, method):
    struct = waiting(ints(1))
    with BatchStream.import_arrow(ctypes.addressof(struct)) as stream:
        capsule = getattr(stream, method)()
    del capsule
