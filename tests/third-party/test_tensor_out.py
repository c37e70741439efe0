"""Our tensors, seen by cuda.core's StridedMemoryView and by NumPy."""

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from cuda.core import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM
from cuda.core.utils import StridedMemoryView
from nanoarrow.c_buffer import CBuffer

import driver
from devexchange import CPU, LEGACY, NO_SYNCHRONIZATION, PER_THREAD, READ_ONLY, Tensor, Unversioned
from producer import LAYOUTS, Shared, element_strides, elements, matrix

DTYPES = ["?", "u1", "i2", "i8", "f2", "f8", "c8", "c16"]
CASES = [("f4", layout) for layout in LAYOUTS] + [(dtype, "matrix") for dtype in DTYPES]
PROTOCOLS = pytest.mark.parametrize("offered", [lambda tensor: tensor, Unversioned], ids=["versioned", "unversioned"])


def view_of(producer, stream):
    return StridedMemoryView.from_dlpack(producer, stream_ptr=driver.number(stream))


def seen(view, stream):
    """The elements of a view, as work on `stream` sees them. A view without strides is compact."""
    strides = view.strides if view.strides is not None else element_strides(numpy.empty(view.shape, "u1"))
    return elements(view.ptr, view.shape, strides, view.dtype, stream)


@PROTOCOLS
@pytest.mark.parametrize("dtype, layout", CASES)
def test_view_shows_what_the_producer_queued(cuda, dtype, layout, offered):
    shared = Shared(cuda, dtype, layout)
    view = view_of(offered(shared.tensor), cuda.consumer)
    assert (view.shape, view.dtype) == (shared.elements.shape, shared.elements.dtype)
    assert (view.device_id, view.is_device_accessible, view.readonly) == (0, True, False)
    if shared.elements.size:
        assert view.ptr == shared.tensor.address
    numpy.testing.assert_array_equal(seen(view, cuda.consumer), shared.elements)


@PROTOCOLS
def test_memory_lives_as_long_as_the_view(cuda, offered):
    shared = Shared(cuda)
    view = view_of(offered(shared.tensor), cuda.consumer)
    numpy.testing.assert_array_equal(seen(view, cuda.consumer), shared.elements)
    shared.tensor.close()
    assert shared.released == []
    del view
    assert shared.released == ["memory"]


@PROTOCOLS
def test_capsule_that_nobody_consumes_is_released(cuda, offered):
    shared = Shared(cuda)
    capsule = offered(shared.tensor).__dlpack__(stream=driver.number(cuda.consumer))
    shared.tensor.close()
    assert shared.released == []
    del capsule
    assert shared.released == ["memory"]


# For stream 0, cuda.core asks for `None`, which is the legacy default stream.
@pytest.mark.parametrize(
    "stream, work",
    [(0, LEGACY_DEFAULT_STREAM), (LEGACY, LEGACY_DEFAULT_STREAM), (PER_THREAD, PER_THREAD_DEFAULT_STREAM)],
)
def test_view_on_a_default_stream(cuda, stream, work):
    shared = Shared(cuda)
    view = StridedMemoryView.from_dlpack(shared.tensor, stream_ptr=stream)
    numpy.testing.assert_array_equal(seen(view, work), shared.elements)


def test_view_on_the_producers_own_stream(cuda):
    shared = Shared(cuda)
    view = view_of(shared.tensor, cuda.producer)
    numpy.testing.assert_array_equal(seen(view, cuda.producer), shared.elements)


def test_read_only_is_seen(cuda):
    shared = Shared(cuda, flags=READ_ONLY)
    view = view_of(shared.tensor, cuda.consumer)
    assert view.readonly
    numpy.testing.assert_array_equal(seen(view, cuda.consumer), shared.elements)


def test_memory_is_released_after_the_work_that_uses_it(cuda):
    shared = Shared(cuda)
    view = view_of(shared.tensor, cuda.consumer)
    copied = driver.copy_on(cuda.device, view.ptr, shared.elements.nbytes, cuda.consumer)
    shared.tensor.used_on(driver.number(cuda.consumer))
    shared.tensor.close()
    del view
    flat = driver.download(int(copied.handle), shared.elements.nbytes, cuda.consumer)
    numpy.testing.assert_array_equal(flat.view("f4").reshape(4, 6), shared.elements)
    copied.close()


def test_cuda_array_interface_over_a_tensor_is_ordered_by_its_stream(cuda):
    """The dictionary is made here, from what the library reports about the tensor: the test checks that cuda.core
    understands its address, shape, strides and type."""
    shared = Shared(cuda, "i4", "every second")

    class Described:
        __cuda_array_interface__ = {
            "version": 3,
            "data": (shared.tensor.address, False),
            "shape": shared.tensor.shape,
            "strides": tuple(stride * shared.tensor.dtype.itemsize for stride in shared.tensor.strides),
            "typestr": shared.tensor.dtype.str,
            "stream": driver.number(cuda.producer),
        }

    view = StridedMemoryView.from_cuda_array_interface(Described(), stream_ptr=driver.number(cuda.consumer))
    assert (view.ptr, view.shape, view.dtype) == (shared.tensor.address, shared.elements.shape, shared.elements.dtype)
    assert view.strides == shared.tensor.strides
    numpy.testing.assert_array_equal(seen(view, cuda.consumer), shared.elements)


# --- host memory ---


@pytest.mark.parametrize("layout", LAYOUTS)
def test_host_tensor_is_the_same_memory_in_cuda_core_and_numpy(cuda, layout):
    whole = matrix("f8")
    array = LAYOUTS[layout](whole)
    tensor = Tensor.over(array.ctypes.data, array.shape, array.dtype, (CPU, 0), element_strides(array))
    view = StridedMemoryView.from_dlpack(tensor, stream_ptr=NO_SYNCHRONIZATION)
    assert (view.shape, view.dtype, view.is_device_accessible) == (array.shape, array.dtype, False)
    seen = numpy.from_dlpack(tensor)
    numpy.testing.assert_array_equal(seen, array)
    if array.size:
        assert view.ptr == seen.ctypes.data == array.ctypes.data


# --- exports that the library refuses ---


def test_read_only_memory_is_refused_to_a_consumer_that_cannot_know(cuda):
    shared = Shared(cuda, flags=READ_ONLY)
    with pytest.raises(BufferError, match="DEVX_READ_ONLY: flags has READ_ONLY"):
        view_of(Unversioned(shared.tensor), cuda.consumer)
    shared.tensor.close()
    assert shared.released == ["memory"]


def test_error_of_a_consumer_comes_through_the_release(cuda):
    """nanoarrow takes only vectors, and drops our capsule while its exception is pending."""
    shared = Shared(cuda)
    with pytest.raises(NotImplementedError, match="ndim"):
        CBuffer.from_dlpack(Unversioned(shared.tensor), stream=driver.number(cuda.consumer))
    shared.tensor.close()
    assert shared.released == ["memory"]


def test_stream_0_is_refused(cuda):
    shared = Shared(cuda)
    with pytest.raises(BufferError, match="DEVX_INVALID_STREAM: stream is 0"):
        shared.tensor.__dlpack__(stream=0, max_version=(1, 3))
    shared.tensor.close()
    assert shared.released == ["memory"]


def test_stream_for_host_memory_is_refused(cuda):
    array = matrix("f4")
    tensor = Tensor.over(array.ctypes.data, array.shape, array.dtype, (CPU, 0))
    with pytest.raises(BufferError, match="DEVX_INVALID_STREAM: stream is 7"):
        tensor.__dlpack__(stream=7, max_version=(1, 3))


# --- without the stream or `used_on`, the driver reports a race ---


def read_unordered(cuda):
    """A consumer that claims to need no order, and works on another stream than the producer."""
    shared = Shared(cuda)
    view = StridedMemoryView.from_dlpack(shared.tensor, stream_ptr=NO_SYNCHRONIZATION)
    seen(view, cuda.consumer)


def test_view_without_a_stream_is_a_race(cuda):
    read_unordered(cuda)
    driver.assert_found("Race")


def test_memory_released_before_the_work_that_uses_it_is_a_race(cuda):
    shared = Shared(cuda)
    view = view_of(shared.tensor, cuda.consumer)
    copied = driver.copy_on(cuda.device, view.ptr, shared.elements.nbytes, cuda.consumer)
    shared.tensor.close()
    del view
    cuda.consumer.sync()
    copied.close()
    driver.assert_found("FreeRace")


def test_cuda_array_interface_without_a_stream_is_a_race(cuda):
    shared = Shared(cuda)

    class Described:
        __cuda_array_interface__ = {
            "version": 3,
            "data": (shared.tensor.address, False),
            "shape": shared.tensor.shape,
            "strides": None,
            "typestr": shared.tensor.dtype.str,
            "stream": None,
        }

    view = StridedMemoryView.from_cuda_array_interface(Described(), stream_ptr=driver.number(cuda.consumer))
    seen(view, cuda.consumer)
    driver.assert_found("Race")


def test_race_that_nobody_looks_at_ends_the_process_badly():
    program = "import scenes, test_tensor_out; test_tensor_out.read_unordered(scenes.Cuda())"
    child = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        env={**os.environ, "SIMCUDA_FATAL": "exit"},
        capture_output=True,
        text=True,
    )
    assert child.returncode != 0
    assert "Race: read after write" in child.stderr
