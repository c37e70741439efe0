"""Memory of cuda.core, imported as tensors."""

import weakref

import numpy
import pytest
from cuda.bindings.driver import CUmemAttach_flags, cuMemAllocManaged, cuMemFree
from cuda.core import Buffer, LegacyPinnedMemoryResource
from cuda.core.utils import StridedMemoryView

import driver
from devexchange import CPU, CUDA, NO_SYNCHRONIZATION, Tensor
from producer import elements, matrix

PINNED, MANAGED = 3, 13
VERSIONS = pytest.mark.parametrize("asked", [{"max_version": (1, 3)}, {}], ids=["versioned", "unversioned"])
DTYPES = ["?", "u1", "i2", "i8", "f2", "f4", "f8", "c8", "c16"]


class Owner:
    """The owner of foreign memory."""


def lent(cuda, stream):
    """Device memory that is still to be written on `stream`, as a Buffer over a foreign allocation; its values; and a list
    that gets an entry when the memory is freed, because nobody uses the Buffer any more."""
    values = matrix("u1").reshape(-1)
    memory = driver.pending(cuda.device, values, stream)
    owner, released = Owner(), []

    def release():
        released.append("memory")
        memory.close()

    weakref.finalize(owner, release)
    return Buffer.from_handle(int(memory.handle), values.nbytes, owner=owner), values, released


@VERSIONS
def test_buffer_has_what_its_owner_queued(cuda, asked):
    buffer, values, released = lent(cuda, cuda.producer)
    # A Buffer ignores the stream that the consumer names, so the test waits.
    cuda.consumer.wait(cuda.producer)
    tensor = Tensor.from_dlpack(buffer, driver.number(cuda.consumer), **asked)
    assert (tensor.address, tensor.shape, tensor.strides) == (int(buffer.handle), values.shape, (1,))
    assert (tensor.__dlpack_device__(), tensor.dtype) == ((CUDA, 0), numpy.dtype("i1"))
    numpy.testing.assert_array_equal(tensor.read(driver.number(cuda.consumer)).view("u1"), values)
    del buffer
    assert released == []
    tensor.close()
    # The read has been waited for, but the library may still release later, on another thread.
    driver.wait_until(lambda: released == ["memory"])


@VERSIONS
@pytest.mark.parametrize("dtype", DTYPES)
def test_view_of_a_buffer_keeps_shape_and_type(cuda, dtype, asked):
    values = matrix(dtype)
    memory = driver.pending(cuda.device, values, cuda.producer)
    view = StridedMemoryView.from_buffer(memory, values.shape, dtype=values.dtype)
    cuda.consumer.wait(cuda.producer)
    tensor = Tensor.from_dlpack(view, driver.number(cuda.consumer), **asked)
    assert (tensor.shape, tensor.dtype) == (values.shape, values.dtype)
    numpy.testing.assert_array_equal(tensor.read(driver.number(cuda.consumer)), values)


def test_strided_read_only_view(cuda):
    values = matrix("i4")
    memory = driver.pending(cuda.device, values, cuda.producer)
    view = StridedMemoryView.from_buffer(memory, (6, 4), (1, 6), dtype=values.dtype, is_readonly=True)
    cuda.consumer.wait(cuda.producer)
    tensor = Tensor.from_dlpack(view, driver.number(cuda.consumer), max_version=(1, 3))
    assert (tensor.strides, tensor.borrow()[1]) == ((1, 6), 1)
    seen = elements(tensor.address, tensor.shape, tensor.strides, tensor.dtype, cuda.consumer)
    numpy.testing.assert_array_equal(seen, values.T)


def test_empty_view(cuda):
    memory = cuda.device.allocate(8, stream=cuda.producer)
    view = StridedMemoryView.from_buffer(memory, (0, 3), dtype=numpy.dtype("f8"))
    tensor = Tensor.from_dlpack(view, driver.number(cuda.consumer), max_version=(1, 3))
    assert (tensor.shape, tensor.read(driver.number(cuda.consumer)).shape) == ((0, 3), (0, 3))


@VERSIONS
def test_pinned_memory(cuda, asked):
    memory = LegacyPinnedMemoryResource().allocate(24, stream=cuda.producer)
    check_filled(cuda, memory, PINNED, asked)
    memory.close()


@VERSIONS
def test_managed_memory(cuda, asked):
    address = driver.ok(cuMemAllocManaged(24, CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL))
    check_filled(cuda, Buffer.from_handle(int(address), 24), MANAGED, asked)
    driver.ok(cuMemFree(address))


def check_filled(cuda, memory, device, asked):
    memory.fill(7, stream=cuda.producer)
    cuda.consumer.wait(cuda.producer)
    with Tensor.from_dlpack(memory, driver.number(cuda.consumer), **asked) as tensor:
        assert (tensor.address, tensor.__dlpack_device__()) == (int(memory.handle), (device, 0))
        assert set(tensor.read(driver.number(cuda.consumer))) == {7}


@VERSIONS
def test_host_array_of_numpy(cuda, asked):
    array = matrix("f8").T
    tensor = Tensor.from_dlpack(array, NO_SYNCHRONIZATION, **asked)
    assert (tensor.__dlpack_device__(), tensor.address, tensor.strides) == ((CPU, 0), array.ctypes.data, (1, 6))
    assert (tensor.shape, tensor.dtype) == (array.shape, array.dtype)
    numpy.testing.assert_array_equal(numpy.from_dlpack(tensor), array)


@VERSIONS
def test_deleter_is_called_after_the_work_that_uses_the_memory(cuda, asked):
    buffer, values, released = lent(cuda, cuda.producer)
    cuda.consumer.wait(cuda.producer)
    tensor = Tensor.from_dlpack(buffer, driver.number(cuda.consumer), **asked)
    del buffer
    copied = driver.copy_on(cuda.device, tensor.address, values.nbytes, cuda.consumer)
    tensor.used_on(driver.number(cuda.consumer))
    tensor.close()
    driver.wait_until(lambda: released == ["memory"])
    numpy.testing.assert_array_equal(driver.download(int(copied.handle), values.nbytes, cuda.consumer), values)
    copied.close()


def test_tensor_passes_on_from_cuda_core_to_cuda_core(cuda):
    """There are three streams: one writes, one imports, and one reads through our export."""
    buffer, values, released = lent(cuda, cuda.producer)
    between = cuda.device.create_stream()
    between.wait(cuda.producer)
    tensor = Tensor.from_dlpack(buffer, driver.number(between), max_version=(1, 3))
    view = StridedMemoryView.from_dlpack(tensor, stream_ptr=driver.number(cuda.consumer))
    del buffer
    tensor.close()
    between.close()
    numpy.testing.assert_array_equal(driver.download(view.ptr, values.nbytes, cuda.consumer), values)
    assert released == []
    del view
    driver.wait_until(lambda: released == ["memory"])


def test_refused_import_leaves_the_capsule_to_its_owner(cuda):
    buffer, _, released = lent(cuda, cuda.producer)
    capsule = buffer.__dlpack__(max_version=(1, 3))
    with pytest.raises(BufferError, match="DEVX_INVALID_STREAM: stream is 0"):
        Tensor.from_capsule(capsule, 0)
    del buffer
    assert released == []
    del capsule
    assert released == ["memory"]


# --- without the wait or `used_on`, the driver reports a race ---


def test_buffer_without_a_wait_is_a_race(cuda):
    buffer, _, _ = lent(cuda, cuda.producer)
    tensor = Tensor.from_dlpack(buffer, driver.number(cuda.consumer), max_version=(1, 3))
    tensor.read(driver.number(cuda.consumer))
    driver.assert_found("Race")


def test_deleter_before_the_work_that_uses_the_memory_is_a_race(cuda):
    buffer, values, _ = lent(cuda, cuda.producer)
    cuda.consumer.wait(cuda.producer)
    tensor = Tensor.from_dlpack(buffer, driver.number(cuda.consumer), max_version=(1, 3))
    del buffer
    copied = driver.copy_on(cuda.device, tensor.address, values.nbytes, cuda.consumer)
    tensor.close()
    cuda.consumer.sync()
    copied.close()
    driver.assert_found("FreeRace")
