"""Streams that are made here, used here and by cuda.core, and foreign streams together with their device."""

import ctypes
import gc
import re
import threading
import time

import driver
import numpy
import pytest
from cuda.core import Device, Stream

import devexchange
from devexchange import DeviceStream, MemoryManager, empty, from_buffer

CPU, CUDA = (1, 0), (2, 0)
VALUES = numpy.arange(24, dtype="i4")


def test_work_is_in_order(cuda):
    with DeviceStream() as first, DeviceStream(CUDA) as second:
        assert first.value != second.value and first.device == CUDA
        assert repr(first) == f"<devexchange.DeviceStream {first.value:#x} on cuda:0>"
        there = from_buffer(VALUES).copy_to(CUDA, first)
        here = there.copy_to(CPU, second)
        second.synchronize()
        assert numpy.array_equal(numpy.from_dlpack(here), VALUES)
        there.close()
        here.close()


def test_other_libraries_take_it(cuda):
    with DeviceStream() as stream:
        assert stream.__cuda_stream__() == (0, stream.value)
        theirs = Device(0).create_stream(stream)
        assert isinstance(theirs, Stream) and int(theirs.handle) == stream.value
        tensor = empty(24, "int32", device=CUDA, stream=stream)
        from_there = devexchange.from_dlpack(tensor, stream=theirs)
        theirs.sync()
        tensor.close()
        from_there.close()


def test_it_is_destroyed_after_releases(cuda):
    stream = DeviceStream()
    tensor = from_buffer(VALUES).copy_to(CUDA, stream)
    tensor.used_on(cuda.consumer)
    tensor.close()
    stream.close()
    stream.close()
    assert repr(stream) == "<devexchange.DeviceStream closed>"
    assert devexchange.releases_waiting() <= 1
    cuda.consumer.sync()
    driver.wait_until(lambda: devexchange.releases_waiting() == 0)
    assert devexchange.releases_lost() == 0
    # A new stream takes care of those that were closed while a release was waiting.
    DeviceStream().close()


def test_what_is_in_its_order_may_outlive_it(cuda):
    with DeviceStream() as stream:
        there = from_buffer(VALUES).copy_to(CUDA, stream)
        again = devexchange.from_dlpack(there, stream=stream)
        empty(24, "int32", device=CUDA, stream=stream)  # released at any time
    here = again.copy_to(CPU, cuda.consumer)
    assert numpy.array_equal(numpy.from_dlpack(here), VALUES)
    for tensor in there, again, here:
        tensor.close()


def test_closed_is_closed(cuda):
    stream = DeviceStream()
    stream.close()
    for use in (lambda: stream.value, stream.synchronize, stream.__cuda_stream__):
        with pytest.raises(devexchange.InvalidValue, match="the stream is closed"):
            use()
    gc.collect()


def test_a_stream_of_somebody_elses_is_not_destroyed(cuda):
    for theirs in (cuda.consumer, int(cuda.consumer.handle)):
        with DeviceStream.of("cuda:0", theirs) as stream:
            assert (stream.value, stream.device) == (int(cuda.consumer.handle), CUDA)
            stream.synchronize()
            tensor = from_buffer(VALUES).copy_to(CUDA, stream)
            assert numpy.array_equal(numpy.from_dlpack(tensor.copy_to(CPU, stream)), VALUES)
            tensor.close()
    assert repr(stream) == "<devexchange.DeviceStream closed>"
    cuda.consumer.sync()


def test_default_streams_have_a_device(cuda):
    for number in (1, 2):
        for device in (CUDA, (2, 1)):
            stream = DeviceStream.of(device, number)
            assert (stream.value, stream.__cuda_stream__(), stream.device) == (number, (0, number), device)
            assert repr(stream) == f"<devexchange.DeviceStream {number:#x} on cuda:{device[1]}>"
            stream.synchronize()
            stream.close()
            with pytest.raises(devexchange.InvalidValue, match="the stream is closed"):
                empty(1, device=CUDA, stream=stream)


def test_what_is_no_stream(cuda):
    for value in (0, -1):
        with pytest.raises(devexchange.InvalidValue, match=f"stream is {value}"):
            DeviceStream.of(CUDA, value)
    with pytest.raises(TypeError, match="neither an integer nor an object with __cuda_stream__"):
        DeviceStream.of(CUDA, "1")
    with pytest.raises(BufferError, match="device is cpu:0, which has no streams"):
        DeviceStream.of(CPU, 1)


@pytest.mark.parametrize("given", [None, 1, [0, 1], (0,), (0, 1, 2), (0, "1"), (0, True), ("0", 1)])
def test_protocol_that_gives_no_stream(cuda, given):
    class Broken:
        def __cuda_stream__(self):
            return given

    with pytest.raises(TypeError, match=re.escape(f"__cuda_stream__ gave {given}")):
        empty(1, device=CUDA, stream=Broken())


def test_stream_of_another_version_of_the_protocol(cuda):
    class Newer:
        def __cuda_stream__(self):
            return 1, 1

    with pytest.raises(BufferError, match="__cuda_stream__ is of version 1"):
        empty(1, device=CUDA, stream=Newer())


def test_copy_without_a_stream_is_in_the_order_of_the_default_one(cuda):
    with from_buffer(VALUES).copy_to(CUDA, -1) as there, there.copy_to(CPU, -1) as here:
        assert numpy.array_equal(numpy.from_dlpack(here), VALUES)


def test_the_default_stream_as_an_object_of_other_libraries(cuda):
    class Null:
        def __cuda_stream__(self):
            return 0, 0

    with DeviceStream.of(CUDA, Null()) as stream:
        assert stream.value == 1
    tensor = empty(24, "int32", device=CUDA, stream=Null())
    tensor.wait(Null())
    tensor.used_on(Null())
    from_there = devexchange.from_dlpack(tensor, stream=Null())
    from_there.close()


def test_devices_that_have_none():
    with pytest.raises(BufferError, match="device is cpu:0, which has no streams"):
        DeviceStream(CPU)
    with pytest.raises(BufferError, match="device_id is 9|device_type is cuda"):
        DeviceStream((2, 9))


class Older:
    """An array of a version that names no stream."""

    def __init__(self, tensor):
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, "version": 2}


@pytest.mark.parametrize(
    "call",
    [
        lambda stream, tensor, column: stream.synchronize(),
        lambda stream, tensor, column: tensor.copy_to(CPU, stream),
        lambda stream, tensor, column: column.copy_to(CPU, stream),
        lambda stream, tensor, column: tensor.read(bytearray(VALUES.nbytes), stream),
        lambda stream, tensor, column: MemoryManager.driver().allocate(24, CUDA, stream=stream).synchronize(),
        lambda stream, tensor, column: devexchange.from_cuda_array_interface(Older(tensor), no_stream="host-sync").close(),
    ],
    ids=["synchronize", "copy", "copy of a batch", "read", "synchronize memory", "wait for the host"],
)
def test_stream_that_is_closed_during_a_call(cuda, call):
    driver = ctypes.CDLL("libcuda.so.1")
    at_work, go_on = threading.Event(), threading.Event()

    # Runs on a thread of the driver, in the order of the stream.
    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def work(_):
        at_work.set()
        go_on.wait(120)

    stream, tensor = DeviceStream(CUDA), from_buffer(VALUES).copy_to(CUDA)
    column = tensor.to_column()
    assert driver.cuLaunchHostFunc(ctypes.c_void_p(stream.value), work, None) == 0
    failures = []

    def run():
        try:
            call(stream, tensor, column)
        except Exception as failure:
            # On a busy machine the call may come too late.
            if str(failure) != "the stream is closed":
                failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    assert at_work.wait(120)
    time.sleep(0.1)
    stream.close()
    go_on.set()
    thread.join()
    assert failures == []


class Closing:
    """A producer whose methods close a stream, as another thread might while Python runs."""

    def __init__(self, stream, tensor):
        self.stream, self.tensor = stream, tensor

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **options):
        self.stream.close()
        return self.tensor.__dlpack__(**options)

    @property
    def __cuda_array_interface__(self):
        self.stream.close()
        return self.tensor.__cuda_array_interface__


@pytest.mark.parametrize("device", [CPU, CUDA])
def test_stream_that_is_closed_by_a_producer(cuda, device):
    stream, tensor = DeviceStream(), from_buffer(VALUES).copy_to(device)
    taken = devexchange.from_dlpack(Closing(stream, tensor), device=CUDA, stream=stream)
    with taken, taken.copy_to(CPU) as here:
        assert numpy.array_equal(numpy.from_dlpack(here), VALUES)
    tensor.close()


def test_stream_that_is_closed_by_a_cuda_array(cuda):
    stream, tensor = DeviceStream(), from_buffer(VALUES).copy_to(CUDA)
    taken = devexchange.from_cuda_array_interface(Closing(stream, tensor), stream=stream)
    with taken, taken.copy_to(CPU) as here:
        assert numpy.array_equal(numpy.from_dlpack(here), VALUES)
    tensor.close()


def test_stream_that_is_closed_by_a_release(cuda):
    stream, place = DeviceStream(), ctypes.create_string_buffer(24)

    class Own:
        def allocate(self, request):
            return ctypes.addressof(place), stream.close

    with MemoryManager(Own()) as manager, empty(24, "uint8", manager=manager) as tensor:
        arrays = [numpy.from_dlpack(tensor)]
    failures = []

    def run():
        # The release waits for the next call, because the main thread runs nothing meanwhile.
        arrays.clear()
        try:
            MemoryManager.driver().allocate(24, CUDA, stream=stream).close()
        except Exception as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert failures == []
