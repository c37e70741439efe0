"""Our tensors in other libraries, through DLPack."""

import contextlib
import ctypes
import gc
import operator
import os
import re
import sys
import threading
from functools import partial
from pathlib import Path

import numpy
import pyarrow
import pytest
import tvm_ffi
from peer import soon
from programs import run
from soak import resident_bytes
from structs import USED_VERSIONED, VERSIONED, Managed, Producer, is_valid, pointer_of, rename

from devexchange import (
    AsyncReader,
    InvalidValue,
    MemoryManager,
    Refused,
    Tensor,
    empty,
    from_arrow,
    from_buffer,
    from_dlpack,
    ipc,
    outstanding,
)


def tensor_of(*values):
    return from_dlpack(numpy.array(values, "f4"))


def struct_in(capsule):
    return Managed.from_address(pointer_of(capsule, VERSIONED))


def test_capsule_by_version():
    tensor = tensor_of(1, 2, 3)
    for version, name in [(None, b"dltensor"), ((0, 8), b"dltensor"), ((1, 0), VERSIONED), ((2, 0), VERSIONED)]:
        assert is_valid(tensor.__dlpack__(max_version=version), name)
    assert struct_in(tensor.__dlpack__(max_version=(1, 1))).minor == 1
    assert struct_in(tensor.__dlpack__(max_version=(1, 9))).minor == 3
    assert struct_in(tensor.__dlpack__(max_version=(2, 0))).major == 1


@pytest.mark.parametrize("flags", [0, 1, 4, 5])
def test_flags_of_the_producer_go_on(flags):
    """The flags for read-only memory, and for elements of less than a byte that take a byte each."""
    producer = Producer(code=0, bits=4, flags=flags, shape=(3, 2), strides=(2, 1))
    tensor = from_dlpack(producer)
    assert (tensor.read_only, tensor.is_copied, tensor.nbytes) == (flags & 1 != 0, False, 6 if flags & 4 else 3)
    assert struct_in(tensor.__dlpack__(max_version=(1, 3))).flags == flags
    # The struct before version 1 has no flags: its reader would take each byte for two elements, or write.
    with pytest.raises(BufferError, match="flags") if flags else contextlib.nullcontext():
        tensor.__dlpack__()


def test_capsule_that_nobody_consumes_is_released():
    producer = Producer()
    tensor = from_dlpack(producer)
    capsules = [tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 3))]
    tensor.close()
    assert producer.deleted == 0
    capsules.clear()
    assert producer.deleted == 1


def test_capsule_is_dropped_while_an_exception_is_on_its_way():
    array = numpy.zeros(3)

    def consume(capsule):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        consume(from_dlpack(array).__dlpack__())
    assert outstanding() == 0


def test_device():
    assert tensor_of(1).__dlpack_device__() == (1, 0)


def test_read_only_memory_is_refused_to_a_consumer_that_cannot_know():
    tensor = from_buffer(b"abc")
    for copy in [None, False]:
        with pytest.raises(BufferError, match="READ_ONLY") as caught:
            tensor.__dlpack__(copy=copy)
        assert (type(caught.value), caught.value.status, caught.value.driver_code) == (Refused, 20, 0)
    assert numpy.from_dlpack(KeepsLegacy(tensor)).tolist() == [97, 98, 99]


class KeepsLegacy:
    """Asks a tensor for a copy in the legacy struct."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **_):
        return self.tensor.__dlpack__(copy=True)


def test_copy():
    array = numpy.arange(6.0)[::2]
    tensor = from_dlpack(array)
    copied = struct_in(tensor.__dlpack__(max_version=(1, 3), copy=True))
    assert copied.flags & 2 and copied.dl_tensor.data != array.ctypes.data
    for copy in [None, False]:
        same = struct_in(tensor.__dlpack__(max_version=(1, 3), copy=copy))
        assert not same.flags & 2 and same.dl_tensor.data == array.ctypes.data


def test_copy_that_is_shared_is_nobodys_own():
    tensor = from_dlpack(numpy.arange(3), copy=True)
    assert tensor.is_copied
    assert not struct_in(tensor.__dlpack__(max_version=(1, 3))).flags & 2
    # These imports make no other copy.
    for copy in [None, False]:
        view = from_dlpack(tensor, copy=copy)
        assert view.data_ptr == tensor.data_ptr and not view.is_copied
    assert from_dlpack(tensor, copy=True).is_copied


def test_device_that_is_asked_for():
    tensor = tensor_of(1)
    assert struct_in(tensor.__dlpack__(max_version=(1, 3), dl_device=(1, 0), copy=False))
    with pytest.raises(BufferError, match="device_type is cuda|dl_device is cuda:0"):
        tensor.__dlpack__(max_version=(1, 3), dl_device=(2, 0), copy=False)
    with pytest.raises(BufferError, match="device_type is vulkan"):
        tensor.__dlpack__(max_version=(1, 3), dl_device=(7, 0))


def test_device_that_is_asked_for_without_a_driver(no_driver):
    with pytest.raises(BufferError, match="no CUDA driver"):
        tensor_of(1).__dlpack__(max_version=(1, 3), dl_device=(2, 0))


@pytest.mark.parametrize("stream", [0, 1, 2, 99, -2])
def test_stream_for_the_host_is_refused(stream):
    with pytest.raises(ValueError, match=f"stream is {stream}"):
        tensor_of(1).__dlpack__(stream=stream)


def test_stream_that_stands_for_a_number():
    tensor = tensor_of(1, 2)
    assert is_valid(tensor.__dlpack__(stream=numpy.int64(-1)), b"dltensor")
    with pytest.raises(ValueError, match="stream is 5"):
        tensor.__dlpack__(stream=numpy.int64(5))


@pytest.mark.parametrize("version", [(-1, 0), (2**40, 0), (1, 2**32)])
def test_version_that_is_none(version):
    with pytest.raises(ValueError, match=re.escape(f"max_version is {version}: its numbers must be between 0 and")):
        tensor_of(1, 2).__dlpack__(max_version=version)


@pytest.mark.parametrize("version", [1, "1.0", [1, 0], (1,), (1, 0, 0), (1.0, 0)])
def test_version_that_is_no_pair(version):
    with pytest.raises(TypeError, match="max_version is .*: a pair"):
        tensor_of(1, 2).__dlpack__(max_version=version)


def test_keyword_that_is_no_text():
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        tensor_of(1, 2).__dlpack__(**{"\ud800": None})


def test_stream_that_is_no_number():
    for stream in ["1", 1.0, True, object()]:
        with pytest.raises(TypeError, match="stream is"):
            tensor_of(1).__dlpack__(stream=stream)
    with pytest.raises(ValueError, match="stream is"):
        tensor_of(1).__dlpack__(stream=1 << 70)


def test_strides_are_always_filled_in():
    managed = struct_in(tensor_of(1, 2).__dlpack__(max_version=(1, 3)))
    assert (managed.dl_tensor.ndim, managed.dl_tensor.strides[0], managed.dl_tensor.byte_offset) == (1, 1, 0)


def test_tvm_ffi_sees_the_same_memory():
    tensor = from_dlpack(numpy.arange(6, dtype="f4").reshape(2, 3))
    seen = tvm_ffi.from_dlpack(tensor)
    assert (tuple(seen.shape), seen.data_ptr() if callable(seen.data_ptr) else seen.data_ptr) == (
        (2, 3),
        tensor.data_ptr,
    )
    numpy.testing.assert_array_equal(numpy.from_dlpack(seen), [[0, 1, 2], [3, 4, 5]])


def test_closed_tensor():
    with tensor_of(1) as tensor:
        assert repr(tensor) == "<devexchange.Tensor float32 [1] on cpu:0>"
    assert repr(tensor) == "<devexchange.Tensor closed>"
    tensor.close()
    for use in [lambda: tensor.shape, tensor.__dlpack__, tensor.__dlpack_device__, lambda: memoryview(tensor)]:
        with pytest.raises((InvalidValue, BufferError), match="closed"):
            use()
    # Libraries look for this attribute on any object.
    assert not hasattr(tensor, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="the tensor is closed"):
        tensor.__cuda_array_interface__


def test_tensors_are_made_by_functions_only():
    with pytest.raises(TypeError):
        Tensor()


# --- releases on threads that know nothing of Python ---

libc = ctypes.CDLL(None)


class Kept:
    """An object with a buffer that can tell whether the buffer is held."""

    def __init__(self):
        self.memory = bytearray(b"0123")

    def is_free(self):
        try:
            self.memory.append(0)
        except BufferError:
            return False
        return True


def delete_on_a_foreign_thread(capsule):
    """Takes the capsule, and calls its deleter on a thread that Python has never seen; returns when that is over."""
    managed = pointer_of(capsule, VERSIONED)
    rename(capsule, USED_VERSIONED)
    thread = ctypes.c_void_p()
    deleter = ctypes.cast(Managed.from_address(managed).deleter, ctypes.c_void_p)
    assert libc.pthread_create(ctypes.byref(thread), None, deleter, ctypes.c_void_p(managed)) == 0
    assert libc.pthread_join(thread, None) == 0


def test_release_on_a_foreign_thread_comes_to_python():
    kept = Kept()
    tensor = from_buffer(kept.memory)
    capsule = tensor.__dlpack__(max_version=(1, 3))
    tensor.close()
    assert not kept.is_free()
    delete_on_a_foreign_thread(capsule)
    soon(kept.is_free)


def stream_of(values):
    return from_arrow(pyarrow.RecordBatchReader.from_batches(values.schema, [values]))


def server():
    return ipc.Server(f"@devexchange-gives-up-{os.getpid()}")


ROWS = pyarrow.record_batch({"n": [1, 2]})
#: Functions that prepare a call into the package, and return it.
CALLS = {
    "close": lambda: tensor_of(1).close,
    "close of a stream": lambda: stream_of(ROWS).close,
    "the last reference to a tensor": lambda: [tensor_of(1)].clear,
    "the last reference to a batch": lambda: [from_arrow(ROWS)].clear,
    "from_dlpack": lambda: partial(from_dlpack, numpy.zeros(1)),
    "from_arrow": lambda: partial(from_arrow, ROWS),
    "from_buffer": lambda: partial(from_buffer, b"123"),
    "empty": lambda: partial(empty, 3, "int8"),
    "next": lambda: stream_of(ROWS).__next__,
    "close of a reader": lambda: AsyncReader()._native.close,
    "offer": lambda: partial(server().offer, "values", ipc.empty_shared(3, "int8")),
    "withdraw": lambda: partial(server().withdraw, "nothing"),
    "the end of a block": lambda: partial(MemoryManager.host_only().defer_cleanup().__enter__().__exit__, None, None, None),
    "allocate": lambda: partial(MemoryManager.host_only().allocate, 100, (1, 0)),
}


@pytest.mark.parametrize("prepare", CALLS.values(), ids=CALLS.keys())
def test_any_call_gives_up_what_foreign_threads_released(prepare):
    call, memory, thread = prepare(), bytearray(b"0123"), ctypes.c_void_p()
    with from_buffer(memory) as tensor:
        capsule = tensor.__dlpack__(max_version=(1, 3))
    managed = pointer_of(capsule, VERSIONED)
    rename(capsule, USED_VERSIONED)
    deleter = ctypes.cast(Managed.from_address(managed).deleter, ctypes.c_void_p)
    count = partial(sys.getrefcount, memory)
    steps = [
        partial(libc.pthread_create, ctypes.byref(thread), None, deleter, ctypes.c_void_p(managed)),
        partial(libc.pthread_join, thread, None),
        count,
        call,
        count,
    ]
    # Between these steps the main thread runs no Python, so it does not give anything up by itself.
    done = list(map(operator.call, steps))
    assert (done[:2], done[4] - done[2]) == ([0, 0], -1)


def test_many_releases_on_foreign_threads():
    kept = [Kept() for _ in range(200)]
    capsules = [from_buffer(each.memory).__dlpack__(max_version=(1, 3)) for each in kept]

    def delete(part):
        for capsule in part:
            delete_on_a_foreign_thread(capsule)

    threads = [threading.Thread(target=delete, args=(capsules[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    from_dlpack(numpy.zeros(1)).close()
    assert all(each.is_free() for each in kept)


# --- the end of the interpreter ---


def test_interpreter_ends_with_things_alive():
    run("""
        import numpy, pyarrow, devexchange
        tensor = devexchange.from_dlpack(numpy.zeros(3))
        capsule = devexchange.from_buffer(bytearray(9)).__dlpack__(max_version=(1, 3))
        seen = numpy.from_dlpack(devexchange.from_buffer(bytearray(9)))
        batch = devexchange.from_arrow(pyarrow.record_batch({"a": [1, 2]}))
        view = memoryview(devexchange.from_buffer(b"abc"))
        cycle = [tensor, capsule, seen, batch, view]
        cycle.append(cycle)
    """)


def test_interpreter_ends_while_threads_exchange():
    run("""
        import threading, time, numpy, devexchange
        def exchange():
            while True:
                numpy.from_dlpack(devexchange.from_buffer(bytearray(9)))
        for _ in range(4):
            threading.Thread(target=exchange, daemon=True).start()
        time.sleep(0.3)
    """)


def test_interpreter_ends_before_a_foreign_thread_releases():
    """A thread of the C library calls the deleter when Python is gone: Python's objects are left to the process."""
    program = """
        import ctypes, sys
        sys.path.insert(0, sys.argv[1])
        from structs import VERSIONED, USED_VERSIONED, Managed, pointer_of, rename
        import devexchange
        capsule = devexchange.from_buffer(bytearray(9)).__dlpack__(max_version=(1, 3))
        managed = pointer_of(capsule, VERSIONED)
        rename(capsule, USED_VERSIONED)
        deleter = ctypes.cast(Managed.from_address(managed).deleter, ctypes.c_void_p)
        # The process calls this at its end, after Python.
        assert ctypes.CDLL(None).__cxa_atexit(deleter, ctypes.c_void_p(managed), None) == 0
    """
    run(program, str(Path(__file__).parents[1]))


# --- a hundred thousand exchanges ---


@pytest.mark.parametrize("way", ["numpy", "buffer", "legacy", "refused"])
def test_memory_stays_flat(way):
    array = numpy.zeros(8)
    ours = from_dlpack(array)
    read_only = from_buffer(b"abcd")

    def exchange():
        if way == "numpy":
            numpy.from_dlpack(from_dlpack(array))
        elif way == "buffer":
            memoryview(from_buffer(array)).release()
        elif way == "legacy":
            ours.__dlpack__()
        else:
            with contextlib.suppress(BufferError):
                read_only.__dlpack__()

    for _ in range(2_000):
        exchange()
    gc.collect()
    before = resident_bytes()
    for _ in range(100_000):
        exchange()
    gc.collect()
    assert resident_bytes() - before < 2 << 20
