"""Calls that are done without PyO3's machinery: how much they allocate, and that they behave the same otherwise."""

import gc
import inspect
import os
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
from tables import compile_library

import devexchange
from devexchange import Tensor, from_dlpack

ALLOCATIONS = Path(__file__).parents[3] / "benches" / "c" / "allocations.c"
MATRIX = numpy.zeros((2, 3), "f4")
HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()

# Counts the calls of malloc on this thread, after a warm-up that fills lists and caches.
COUNT = textwrap.dedent("""
    import ctypes, gc, itertools
    import numpy, tvm_ffi
    from devexchange import from_dlpack

    count = ctypes.CDLL(None).bench_allocations
    count.restype = ctypes.c_int64
    matrix = numpy.zeros((2, 3), "f4")
    table = tvm_ffi.core.DLTensorTestWrapper(tvm_ffi.from_dlpack(matrix))
    ours = from_dlpack(matrix)

    def allocated(function, argument, times=1000):
        for _ in itertools.repeat(None, times):
            function(argument)
        before = count()
        for _ in itertools.repeat(None, times):
            function(argument)
        return (count() - before) / times

    gc.disable()
    for function, argument in (from_dlpack, matrix), (numpy.from_dlpack, ours), (from_dlpack, table):
        print(round(allocated(function, argument), 1))
""")


def test_an_exchange_allocates_nothing_of_its_own(tmp_path):
    counting = compile_library(ALLOCATIONS, tmp_path)
    environment = {**os.environ, "LD_PRELOAD": str(counting), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    # The one allocation is the struct of the library that has a function table. Without a GIL NumPy caches no memory
    # for shapes.
    assert done.stdout.split() == ["0.0", "0.0" if HAS_GIL else "1.0", "1.0"]


def test_objects_are_out_of_the_collectors_sight():
    tensors = [from_dlpack(MATRIX), from_dlpack(MATRIX)]
    assert not [tensor for tensor in tensors if gc.is_tracked(tensor)]
    tensors.clear()
    # An object in the memory of an earlier one; the collector must not find such memory without an object either.
    assert not gc.is_tracked(from_dlpack(MATRIX))
    assert not [thing for thing in gc.get_objects() if type(thing) is Tensor]


def test_an_object_ends_before_its_memory_is_used_again():
    first = from_dlpack(MATRIX)
    gone = weakref.ref(first)
    del first
    assert gone() is None
    second = from_dlpack(MATRIX)
    assert gone() is None
    assert second.shape == (2, 3)


def test_several_objects_end_at_once():
    types = sys.getrefcount(Tensor)
    references = sys.getrefcount(MATRIX)
    tensors = [from_dlpack(MATRIX) for _ in range(10)]
    assert sys.getrefcount(MATRIX) == references + 10
    assert len({id(tensor) for tensor in tensors}) == 10
    tensors.clear()
    assert sys.getrefcount(MATRIX) == references
    # Without a GIL the references to a type are not counted.
    assert sys.getrefcount(Tensor) == types or not HAS_GIL


def test_an_object_whose_tensor_is_closed_is_used_again():
    for _ in range(3):
        tensor = from_dlpack(MATRIX)
        tensor.close()
        with pytest.raises(devexchange.Error, match="the tensor is closed"):
            tensor.__dlpack__()
        with pytest.raises(devexchange.Error, match="the tensor is closed"):
            tensor.__dlpack_device__()
        del tensor
        assert from_dlpack(MATRIX).data_ptr == MATRIX.ctypes.data


def test_programs_make_no_tensors():
    with pytest.raises(TypeError, match="Tensor has no constructor: from_dlpack,"):
        Tensor()
    with pytest.raises(TypeError):

        class Mine(Tensor):
            pass


def test_signatures_and_texts_are_there():
    assert list(inspect.signature(from_dlpack).parameters) == ["obj", "device", "copy", "stream"]
    names = ["self", "stream", "max_version", "dl_device", "copy"]
    assert list(inspect.signature(Tensor.__dlpack__).parameters) == names
    for thing in from_dlpack, Tensor, Tensor.__dlpack__, Tensor.__dlpack_device__, Tensor.to:
        assert thing.__doc__


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({}, "dltensor"),
        ({"max_version": None}, "dltensor"),
        ({"max_version": (0, 8)}, "dltensor"),
        ({"max_version": (1, 0)}, "dltensor_versioned"),
        ({"max_version": (True, 0)}, "dltensor_versioned"),
        ({"copy": None, "stream": None, "max_version": (9, 9), "dl_device": None}, "dltensor_versioned"),
        ({"max_version": (1, 0), "stream": -1, "dl_device": (1, 0), "copy": False}, "dltensor_versioned"),
    ],
)
def test_what_is_asked_for(asked, name):
    assert f'"{name}"' in repr(from_dlpack(MATRIX).__dlpack__(**asked))


@pytest.mark.parametrize(
    ("asked", "kind", "says"),
    [
        ({"max_version": [1, 0]}, TypeError, r"max_version is \[1, 0\]: a pair"),
        ({"max_version": (1, -1)}, ValueError, r"max_version is \(1, -1\): its numbers must be between"),
        ({"max_version": (1, 1 << 70)}, ValueError, r"max_version is \(1, 1180591620717411303424\): its numbers"),
        ({"max_version": (1, 0, 0)}, TypeError, r"max_version is \(1, 0, 0\): a pair"),
        ({"nothing": None}, TypeError, "unexpected keyword argument 'nothing'"),
    ],
)
def test_what_cannot_be_asked_for(asked, kind, says):
    with pytest.raises(kind, match=says):
        from_dlpack(MATRIX).__dlpack__(**asked)


def test_what_was_asked_for_before_is_no_answer():
    tensor = from_dlpack(MATRIX)

    def name(**asked):
        return repr(tensor.__dlpack__(**asked)).split('"')[1]

    def ask(version, copy):
        return repr(tensor.__dlpack__(max_version=version, copy=copy)).split('"')[1]

    def copies(give):
        source = SimpleNamespace(__dlpack__=lambda **_: give(), __dlpack_device__=tensor.__dlpack_device__)
        return numpy.from_dlpack(source).ctypes.data != MATRIX.ctypes.data

    new, old = (1, 0), (0, 8)
    for _ in range(2):
        # The same names with other values, and the same values under other names.
        assert [ask(new, None), ask(old, None), ask(None, None)] == ["dltensor_versioned", "dltensor", "dltensor"]
        assert [ask(new, False), ask(new, None), name(max_version=new)] == ["dltensor_versioned"] * 3
        with pytest.raises(TypeError):
            ask(None, new)
        with pytest.raises(TypeError, match="nothing"):
            name(nothing=new, copy=None)
        assert copies(lambda: tensor.__dlpack__(max_version=new, copy=True))
        assert not copies(lambda: tensor.__dlpack__(max_version=new, copy=None))
    # Objects that take the addresses of others.
    for i in range(100):
        assert ask(tuple([i % 2, i]), None) == ("dltensor_versioned" if i % 2 else "dltensor")
        assert name(**{"copy": None, "max_version": tuple([1, i])}) == "dltensor_versioned"


def test_what_numpy_cannot_give_is_its_own_error():
    with pytest.raises(BufferError, match="DLPack only supports"):
        from_dlpack(numpy.array(["text"]))
    read_only = numpy.zeros(3)
    read_only.flags.writeable = False
    assert from_dlpack(read_only).read_only


def test_what_is_wrong_with_a_call_is_said():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        from_dlpack()
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        from_dlpack(MATRIX, nothing=1)
    with pytest.raises(TypeError, match="kind is 1: a type is needed"):
        from_dlpack(MATRIX).to(1)


# --- producers whose type no program can change, which are asked in fewer steps ---


def producer(device, array=MATRIX):
    return SimpleNamespace(__dlpack_device__=device, __dlpack__=array.__dlpack__)


class Number(int):
    """A number of a derived class, like a member of an enumeration."""


@pytest.mark.parametrize("device", [(1, 0), (Number(1), Number(0)), (Number(1), None), (True, False)])
def test_a_producer_says_where_it_is(device):
    tensor = from_dlpack(producer(lambda: device))
    assert (tensor.data_ptr, tensor.device) == (MATRIX.ctypes.data, (1, 0))


@pytest.mark.parametrize("device", [None, 1, (), (1,), ("cpu", 0), (2, None), (1, 0, 0)])
def test_a_device_that_is_no_pair(device):
    with pytest.raises(TypeError, match="a pair"):
        from_dlpack(producer(lambda: device))


@pytest.mark.parametrize(
    ("device", "kind", "says"),
    [
        ((1, 1), BufferError, "device_id is 1: the cpu is 0 or -1"),
        ((99, 0), BufferError, "device_type is 99: not a device type"),
        ((1 << 80, 0), TypeError, "a pair .* is needed"),
        ((1, -(1 << 80)), TypeError, "a pair .* is needed"),
        ((-1, 0), BufferError, "device_type is -1: not a device type"),
    ],
)
def test_a_device_that_is_not_the_tensors(device, kind, says):
    with pytest.raises(kind, match=says):
        from_dlpack(producer(lambda: device))
    assert devexchange.outstanding() == 0


def test_what_a_producer_raises_is_its_own_error():
    def fails(**_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        from_dlpack(producer(fails))
    with pytest.raises(KeyError, match="mine"):
        from_dlpack(SimpleNamespace(__dlpack_device__=lambda: (1, 0), __dlpack__=fails))
    with pytest.raises(TypeError, match="has no __dlpack__"):
        from_dlpack(SimpleNamespace())


class Watched(tuple):
    """A version whose end can be observed."""


class Number(int):
    """A part of a version whose end can be observed."""


@pytest.mark.parametrize("make", [lambda: Watched((1, 0)), lambda: (Number(1), 0), lambda: (1, Number(0))])
def test_version_of_a_consumer_is_not_kept(make):
    tensor, version = from_dlpack(numpy.arange(3)), make()
    for each in [version, *version]:
        if hasattr(each, "__dict__"):
            each.keeps = kept = from_dlpack(numpy.arange(3))
    ended = weakref.ref(kept)
    tensor.__dlpack__(max_version=version)
    del version, each, kept
    assert ended() is None
