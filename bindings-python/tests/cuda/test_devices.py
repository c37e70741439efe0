"""Two devices in one exchange: copies between them, and a consumer whose stream is on the other device."""

import driver
import numpy
import pyarrow
import pytest
from cuda.core import Device
from structs import Producer

from devexchange import (
    DeviceStream,
    MemoryManager,
    Refused,
    device_count,
    device_info,
    empty,
    from_arrow,
    from_cuda_array_interface,
    from_dlpack,
)

CPU = (1, 0)
DEVICES = [(2, 0), (2, 1)]
VALUES = numpy.arange(1, 25, dtype="f4").reshape(4, 6)


@pytest.fixture
def streams(cuda):
    """One stream on each device; device 0 is current before and after."""
    other = Device(1)
    other.set_current()
    streams = [cuda.consumer, other.create_stream()]
    cuda.device.set_current()
    yield streams
    streams[1].sync()
    streams[1].close()


def test_devices_say_what_they_are():
    assert device_count() == len(DEVICES)
    first, second = map(device_info, ["cuda:0", DEVICES[1]])
    assert "Simulated" in first.name and first.uuid != second.uuid
    assert 0 < first.free_bytes <= first.total_bytes and first.driver_version >= 11000
    with pytest.raises(Refused, match="there are 2 CUDA devices"):
        device_info("cuda:2")
    with pytest.raises(Refused, match="device is cuda_managed:0: it must be cpu or cuda"):
        device_info("cuda_managed")


@pytest.mark.parametrize("there", [0, 1])
@pytest.mark.parametrize("back", [0, 1])
def test_tensors_are_copied_both_ways_on_streams_of_either(streams, there, back):
    first = from_dlpack(VALUES, device=DEVICES[0], stream=streams[0])
    second = first.copy_to(DEVICES[1], streams[there])
    first.close()
    again = second.copy_to(DEVICES[0], streams[back])
    assert (second.device, again.device) == (DEVICES[1], DEVICES[0])
    second.check_pointers()
    again.check_pointers()
    second.close()
    numpy.testing.assert_array_equal(numpy.from_dlpack(again.copy_to(CPU, streams[0])), VALUES)


def test_batches_are_copied_between_devices(streams):
    table = pyarrow.record_batch({"n": [1, None, 3], "s": ["a", None, "c"]})
    first = from_arrow(table).copy_to(DEVICES[0], streams[0])
    second = first.copy_to(DEVICES[1], streams[1])
    assert (first.device, second.device) == tuple(DEVICES)
    second.check_pointers()
    first.close()
    host = second.copy_to(CPU, streams[1])
    second.close()
    assert pyarrow.record_batch(host).to_pylist() == table.to_pylist()


class Filling:
    """Memory of device 0 that the producer's stream has still to fill."""

    def __init__(self, cuda):
        self.memory, self.stream = driver.pending(cuda.device, VALUES, cuda.producer), cuda.producer

    @property
    def __cuda_array_interface__(self):
        return {
            "version": 3,
            "shape": VALUES.shape,
            "typestr": VALUES.dtype.str,
            "data": (int(self.memory.handle), False),
            "stream": driver.number(self.stream),
        }

    def __del__(self):
        self.memory.close(self.stream)


@pytest.mark.parametrize("way", [from_cuda_array_interface, from_dlpack])
def test_a_consumer_on_the_other_device_comes_after_the_producer_and_before_the_release(cuda, streams, way):
    producer = from_cuda_array_interface(Filling(cuda))
    target = from_dlpack(numpy.zeros_like(VALUES), device=DEVICES[1], stream=streams[1])
    seen = way(producer, stream=streams[1])
    del producer
    assert seen.device == DEVICES[0]
    driver.copy_between(target.data_ptr, seen.data_ptr, VALUES.nbytes, streams[1])
    seen.used_on(streams[1])
    seen.close()
    numpy.testing.assert_array_equal(numpy.from_dlpack(target.copy_to(CPU, streams[1])), VALUES)


class Pinned(Producer):
    """Pinned memory that was made for device 1, and is released with the tensor."""

    def __init__(self):
        self.memory = MemoryManager.driver().allocate(24, (3, 1))
        super().__init__(device_type=3, data=self.memory.address)

    def __dlpack_device__(self):
        return (3, 0)

    def _delete(self, context):
        super()._delete(context)
        self.memory.close()


def test_a_default_stream_of_pinned_memory_is_that_of_the_device_it_was_made_for(cuda, streams):
    producer = Pinned()
    tensor = from_dlpack(producer, stream=streams[0])
    Device(1).set_current()
    driver.ok(driver.cuda.cuMemsetD8Async(tensor.data_ptr, 1, 24, 1))
    cuda.device.set_current()
    tensor.produced_on(1)
    copy = tensor.copy_to(DEVICES[0], streams[0])
    tensor.used_on(1)
    tensor.close()
    assert numpy.from_dlpack(copy.copy_to(CPU, streams[0])).tobytes() == b"\1" * 24
    driver.wait_until(lambda: producer.deleted == 1)


class ByMethods:
    """A producer without a function table, which gets the stream as a number."""

    def __init__(self, tensor):
        self.tensor, self.told = tensor, []

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream, max_version):
        self.told.append(stream)
        return self.tensor.__dlpack__(stream=stream, max_version=max_version)


@pytest.mark.parametrize("by_methods", [False, True])
def test_a_default_stream_is_that_of_the_device_it_is_named_with(cuda, streams, by_methods):
    named = DeviceStream.of(DEVICES[1], 1)
    target = empty(VALUES.shape, "float32", device=DEVICES[1])
    source = from_dlpack(VALUES, device=DEVICES[0], stream=streams[0])
    producer = ByMethods(source) if by_methods else source
    seen = from_dlpack(producer, stream=named)
    assert not by_methods or producer.told == [1]
    source.close()
    Device(1).set_current()
    driver.ok(driver.cuda.cuMemcpyAsync(target.data_ptr, seen.data_ptr, VALUES.nbytes, 1))
    cuda.device.set_current()
    seen.used_on(named)
    seen.close()
    target.produced_on(1)
    numpy.testing.assert_array_equal(numpy.from_dlpack(target.copy_to(CPU, streams[1])), VALUES)


@pytest.mark.parametrize("kind", [3, 13])
def test_memory_of_no_device_is_asked_for_the_device_of_the_stream(cuda, streams, kind):
    asked = []

    class Asking:
        def allocate(self, request):
            asked.append(request)
            return manager.allocate(request.bytes, request.device)

    with MemoryManager.driver() as manager, MemoryManager(Asking()) as written:
        for stream in (streams[1], DeviceStream.of(DEVICES[1], 1)):
            with empty(24, "uint8", device=(kind, 0), stream=stream, manager=written) as tensor:
                assert tensor.device == (kind, 0)
    assert [(request.device, request.stream) for request in asked] == [((kind, 1), None)] * 2


def test_memory_that_is_not_where_it_is_said_to_be(cuda):
    class Elsewhere(Producer):
        """Host memory, declared as that of a device."""

        def __dlpack_device__(self):
            return DEVICES[0]

    tensor = from_dlpack(Elsewhere(device_type=2), stream=cuda.consumer)
    with pytest.raises(BufferError, match=r"is not CUDA memory \(any more\), but declared as cuda:0"):
        tensor.check_pointers()
    with pytest.raises(BufferError, match=r'array "item": buffers\[1\]: data 0x.* is not CUDA memory'):
        tensor.to_column("n").check_pointers()
    from_dlpack(VALUES).check_pointers()
    from_arrow(pyarrow.record_batch({"n": [1]})).check_pointers()
