"""Device memory, with cuda.core as producer and as consumer."""

import gc

import driver
import numpy
import pyarrow
import pytest
from cuda.core.utils import StridedMemoryView

import devexchange
from devexchange import from_arrow, from_buffer, from_cuda_array_interface, from_dlpack

CPU, CUDA = (1, 0), (2, 0)
VALUES = numpy.arange(1, 25, dtype="f4").reshape(4, 6)


def described(values, memory, stream, version, entries):
    """The dictionary of `version` over memory that the stream fills. An entry that is `...` is left out."""
    made = {
        "version": version,
        "shape": values.shape,
        "typestr": values.dtype.str,
        "data": (int(memory.handle), False),
    }
    if version == 3:
        made["stream"] = driver.number(stream)
    return {key: value for key, value in {**made, **dict(entries)}.items() if value is not Ellipsis}


class Array:
    """Device memory that the producer's stream has still to fill, with the CUDA Array Interface of `version`."""

    def __init__(self, cuda, version=3, **entries):
        self.stream, values = cuda.producer, VALUES
        self.memory = driver.pending(cuda.device, values, self.stream)
        self.entries = described(values, self.memory, self.stream, version, entries)

    @property
    def __cuda_array_interface__(self):
        return self.entries

    def __del__(self):
        self.memory.close(self.stream)


class Shared:
    """The same through DLPack, like a library that is told the consumer's stream and makes it wait.

    This is not the array itself: an array that held the tensor over it would be a cycle that Python's collector cannot
    see."""

    def __init__(self, cuda):
        self.asked = []
        self.tensor = from_cuda_array_interface(Array(cuda))

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **arguments):
        self.asked.append(arguments)
        return self.tensor.__dlpack__(**arguments)


def read(tensor, stream):
    """Reads the elements with a copy on a stream that waits for them."""
    return numpy.from_dlpack(tensor.copy_to(CPU, stream))


# --- in ---


def test_tensor_by_dlpack(cuda):
    producer = Shared(cuda)
    tensor = from_dlpack(producer, stream=cuda.consumer)
    assert (tensor.shape, tensor.dtype, tensor.device) == ((4, 6), "float32", CUDA)
    assert producer.asked == [{"stream": driver.number(cuda.consumer), "max_version": (1, 3)}]
    assert tensor.data_ptr == producer.tensor.data_ptr
    numpy.testing.assert_array_equal(read(tensor, cuda.consumer), VALUES)


def test_producer_is_always_told_a_stream(cuda):
    producer = Shared(cuda)
    tensor = from_dlpack(producer)
    assert producer.asked[0]["stream"] == 1
    numpy.testing.assert_array_equal(read(tensor, cuda.consumer), VALUES)


def test_old_producer_is_told_a_stream_too(cuda):
    class Old(Shared):
        def __dlpack__(self, stream):
            return super().__dlpack__(stream=stream)

    producer = Old(cuda)
    tensor = from_dlpack(producer, stream=cuda.consumer)
    assert producer.asked == [{"stream": driver.number(cuda.consumer)}]
    numpy.testing.assert_array_equal(read(tensor, cuda.consumer), VALUES)


def test_memory_of_cuda_core_by_dlpack(cuda):
    memory = driver.pending(cuda.device, VALUES, cuda.producer)
    # A Buffer of cuda.core has no order, so the test has to wait.
    cuda.producer.sync()
    tensor = from_dlpack(memory, stream=cuda.consumer)
    assert (tensor.device, tensor.data_ptr, tensor.nbytes) == (CUDA, int(memory.handle), VALUES.nbytes)
    raw = read(tensor, cuda.consumer)
    numpy.testing.assert_array_equal(raw.view("f4").reshape(4, 6), VALUES)
    tensor.close()
    memory.close()


def test_array_by_the_cuda_array_interface(cuda):
    producer = Array(cuda)
    tensor = from_cuda_array_interface(producer, stream=cuda.consumer)
    assert (tensor.shape, tensor.dtype, tensor.device, tensor.read_only) == ((4, 6), "float32", CUDA, False)
    assert tensor.data_ptr == int(producer.memory.handle)
    numpy.testing.assert_array_equal(read(tensor, cuda.consumer), VALUES)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("no_stream", ["legacy-default", "host-sync", "trust"])
def test_array_of_a_version_without_a_stream(cuda, version, no_stream):
    producer = Array(cuda, version=version)
    # Streams of cuda.core wait for no default stream, so these producers have to wait.
    cuda.producer.sync()
    tensor = from_cuda_array_interface(producer, no_stream=no_stream)
    numpy.testing.assert_array_equal(read(tensor, cuda.consumer), VALUES)


def test_array_that_needs_no_waiting(cuda):
    producer = Array(cuda)
    cuda.producer.sync()
    producer.entries["stream"] = None
    numpy.testing.assert_array_equal(read(from_cuda_array_interface(producer), cuda.consumer), VALUES)


def test_read_only_and_strides(cuda):
    producer = Array(cuda)
    address = int(producer.memory.handle)
    producer.entries.update(data=(address + 4, True), shape=(2, 3), strides=(48, 8))
    tensor = from_cuda_array_interface(producer)
    assert (tensor.read_only, tensor.strides, tensor.data_ptr) == (True, (12, 2), address + 4)
    view = StridedMemoryView.from_dlpack(tensor, stream_ptr=driver.number(cuda.consumer))
    assert (view.readonly, view.strides, view.ptr) == (True, (12, 2), address + 4)
    interface = tensor.__cuda_array_interface__
    assert (interface["data"], interface["strides"]) == ((address + 4, True), (48, 8))


def test_array_is_kept_until_the_last_user_is_gone(cuda):
    tensor = from_cuda_array_interface(Array(cuda))
    gc.collect()
    view = StridedMemoryView.from_dlpack(tensor, stream_ptr=driver.number(cuda.consumer))
    tensor.close()
    elements = driver.download(view.ptr, VALUES.nbytes, cuda.consumer)
    numpy.testing.assert_array_equal(elements.view("f4").reshape(4, 6), VALUES)


def test_memory_is_released_after_the_work_that_uses_it(cuda):
    tensor = from_cuda_array_interface(Array(cuda), stream=cuda.consumer)
    copied = driver.copy_on(cuda.device, tensor.data_ptr, VALUES.nbytes, cuda.consumer)
    tensor.used_on(cuda.consumer)
    tensor.close()
    elements = driver.download(int(copied.handle), VALUES.nbytes, cuda.consumer)
    numpy.testing.assert_array_equal(elements.view("f4").reshape(4, 6), VALUES)
    copied.close()


def test_numbers_of_numpy_in_a_dictionary(cuda):
    array = Array(cuda)
    entries = array.entries
    (address, read_only), shape = entries["data"], tuple(map(numpy.int64, VALUES.shape))
    entries.update(version=numpy.int32(3), data=(numpy.uint64(address), numpy.bool_(read_only)), shape=shape)
    entries.update(strides=tuple(map(numpy.int64, VALUES.strides)), stream=numpy.uint64(entries["stream"]))
    tensor = from_cuda_array_interface(array, stream=cuda.consumer)
    assert (tensor.shape, tensor.data_ptr) == (VALUES.shape, address)
    numpy.testing.assert_array_equal(read(tensor, cuda.consumer), VALUES)


def test_number_of_a_dictionary_that_raises(cuda):
    class Raises:
        def __index__(self):
            raise KeyError("mine")

    for entry in ({"version": Raises()}, {"shape": (Raises(), 6)}, {"data": (Raises(), False)}, {"stream": Raises()}):
        with pytest.raises(KeyError, match="mine"):
            from_cuda_array_interface(Array(cuda, **entry))


def test_empty_array(cuda):
    class Empty:
        __cuda_array_interface__ = {"version": 3, "shape": (0, 3), "typestr": "<f4", "data": (0, False)}

    tensor = from_cuda_array_interface(Empty())
    assert (tensor.shape, tensor.data_ptr) == ((0, 3), 0)


# --- out ---


@pytest.mark.parametrize("way", ["dlpack", "cuda array"])
def test_tensor_of_ours_in_cuda_core(cuda, way):
    tensor = from_dlpack(VALUES, device=CUDA, stream=cuda.producer)
    stream = driver.number(cuda.consumer)
    if way == "dlpack":
        view = StridedMemoryView.from_dlpack(tensor, stream_ptr=stream)
    else:
        view = StridedMemoryView.from_cuda_array_interface(tensor, stream_ptr=stream)
    assert (view.shape, view.dtype, view.ptr, view.readonly) == ((4, 6), numpy.dtype("f4"), tensor.data_ptr, False)
    elements = driver.download(view.ptr, VALUES.nbytes, cuda.consumer)
    numpy.testing.assert_array_equal(elements.view("f4").reshape(4, 6), VALUES)


def test_cuda_array_interface_of_ours(cuda):
    tensor = from_dlpack(VALUES, device=CUDA, stream=cuda.producer)
    interface = tensor.__cuda_array_interface__
    assert {key: interface[key] for key in ["version", "shape", "typestr", "strides"]} == {
        "version": 3,
        "shape": (4, 6),
        "typestr": "<f4",
        "strides": None,
    }
    assert interface["data"] == (tensor.data_ptr, False)
    again = from_cuda_array_interface(tensor, stream=cuda.consumer)
    assert again.data_ptr == tensor.data_ptr
    numpy.testing.assert_array_equal(read(again, cuda.consumer), VALUES)


def test_host_tensor_has_no_cuda_array_interface(cuda):
    assert not hasattr(from_dlpack(VALUES), "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="memory that a CUDA device can access"):
        _ = from_dlpack(VALUES).__cuda_array_interface__


def test_elements_that_numpy_has_not_have_no_cuda_array_interface(cuda):
    with devexchange.empty(3, "bfloat16", device=CUDA) as tensor:
        assert not hasattr(tensor, "__cuda_array_interface__")


def test_numpy_asks_for_the_host(cuda):
    tensor = from_dlpack(VALUES, device=CUDA, stream=cuda.producer)
    numpy.testing.assert_array_equal(numpy.from_dlpack(tensor, device="cpu"), VALUES)
    with pytest.raises(BufferError, match="copy is False"):
        numpy.from_dlpack(tensor, device="cpu", copy=False)


@pytest.mark.parametrize("kind", [3, 13], ids=["pinned", "managed"])
def test_numpy_names_no_stream_and_reads_at_once(cuda, kind):
    source = from_dlpack(VALUES, device=CUDA, stream=cuda.producer)
    tensor = source.copy_to((kind, 0), cuda.producer)
    assert tensor.__dlpack_device__() == (kind, 0)
    array = numpy.from_dlpack(tensor)
    assert array.ctypes.data == tensor.data_ptr
    numpy.testing.assert_array_equal(array, VALUES)
    # If the consumer names a stream, only that stream waits, not the host.
    other = source.copy_to((kind, 0), cuda.producer)
    view = from_dlpack(other, stream=cuda.consumer)
    numpy.testing.assert_array_equal(read(view, cuda.consumer), VALUES)


def test_copy_on_the_device(cuda):
    tensor = from_dlpack(VALUES, device=CUDA, stream=cuda.producer)
    other = from_dlpack(tensor, copy=True, stream=cuda.consumer)
    assert other.device == CUDA and other.data_ptr != tensor.data_ptr and other.is_copied
    numpy.testing.assert_array_equal(read(other, cuda.consumer), VALUES)
    with pytest.raises(BufferError, match="copy is False"):
        from_dlpack(VALUES, device=CUDA, copy=False)


def test_device_memory_is_no_buffer(cuda):
    with pytest.raises(BufferError, match="not host memory"):
        memoryview(from_dlpack(VALUES, device=CUDA, stream=cuda.producer))


def test_numpy_is_told_where_the_memory_is(cuda):
    tensor = from_dlpack(VALUES, device=CUDA, stream=cuda.producer)
    batch = from_arrow(pyarrow.array(VALUES.ravel())).copy_to(CUDA, cuda.producer)
    for thing in (tensor, batch, batch.root):
        with pytest.raises(BufferError, match="^device is cuda:0, not host memory: copy_to copies it, on a stream$"):
            numpy.asarray(thing)


def test_array_that_says_why_there_is_none():
    class Why:
        @property
        def __cuda_array_interface__(self):
            raise AttributeError("it was given away")

    with pytest.raises(TypeError, match="Why'> has no __cuda_array_interface__") as raised:
        from_cuda_array_interface(Why())
    assert str(raised.value.__cause__) == "it was given away"


def test_streams_that_are_refused(cuda):
    tensor = from_dlpack(VALUES, device=CUDA, stream=cuda.producer)
    with pytest.raises(ValueError, match="stream is 0"):
        tensor.__dlpack__(stream=0, max_version=(1, 3))
    with pytest.raises(ValueError, match="stream is 0"):
        from_dlpack(Shared(cuda), stream=0)
    with pytest.raises(BufferError, match="has no streams"):
        from_dlpack(VALUES).used_on(cuda.consumer)


# --- Arrow ---


def test_batch_on_the_device(cuda):
    source = pyarrow.record_batch({"number": [1, None, 3], "text": ["a", "b", None]})
    host = from_arrow(source)
    there = host.copy_to(CUDA, cuda.producer)
    assert (there.device, len(there)) == (CUDA, 3)
    again = from_arrow(there)
    there.close()
    with pytest.raises(BufferError, match="cuda"):
        again.to_pylist()
    assert again.copy_to(CPU, cuda.consumer).to_pylist() == source.to_pylist()
    with pytest.raises(BufferError, match="host memory"):
        again.__arrow_c_array__()


@pytest.mark.parametrize("given", [lambda column: column.to_tensor(copy=False), lambda column: column])
def test_column_on_the_device_as_a_tensor(cuda, given):
    there = from_arrow(pyarrow.array(VALUES.ravel())).copy_to(CUDA, cuda.producer)
    producer = given(there.root)
    assert producer.__dlpack_device__() == CUDA
    there.close()
    view = StridedMemoryView.from_dlpack(producer, stream_ptr=driver.number(cuda.consumer))
    elements = driver.download(view.ptr, VALUES.nbytes, cuda.consumer)
    numpy.testing.assert_array_equal(elements.view("f4"), VALUES.ravel())


# --- bad dictionaries ---

MISSING = Ellipsis
BAD = {
    "no version": ({"version": MISSING}, ValueError, "has no version"),
    "version 4": ({"version": 4}, BufferError, "version is 4"),
    "version negative": ({"version": -1}, BufferError, "version is -1"),
    "version is a bool": ({"version": True}, TypeError, "version is True"),
    "no shape": ({"shape": MISSING}, ValueError, "has no shape"),
    "shape is a list": ({"shape": [4, 6]}, TypeError, "shape is"),
    "shape is a number": ({"shape": 24}, TypeError, "shape is"),
    "extent is a float": ({"shape": (4.0, 6)}, TypeError, "shape is"),
    "extent is a bool": ({"shape": (True, 6)}, TypeError, "shape is"),
    "extent negative": ({"shape": (-4, 6)}, ValueError, "shape"),
    "extent of 65 bits": ({"shape": (1 << 64,)}, ValueError, "shape is"),
    "shape overflows": ({"shape": (1 << 40, 1 << 40)}, ValueError, "shape"),
    "too many dimensions": ({"shape": (1,) * 65}, ValueError, "ndim is 65"),
    "more than there is": ({"shape": (1 << 20,)}, BufferError, "data"),
    "no typestr": ({"typestr": MISSING}, ValueError, "has no typestr"),
    "typestr is no str": ({"typestr": b"<f4"}, TypeError, "typestr"),
    "typestr unknown": ({"typestr": "zz"}, ValueError, "typestr is"),
    "foreign order": ({"typestr": ">f4"}, BufferError, "order of this machine"),
    "objects": ({"typestr": "|O8"}, BufferError, "cannot have such elements"),
    "structured": ({"typestr": "|V8"}, BufferError, "cannot have such elements"),
    "no data": ({"data": MISSING}, ValueError, "has no data"),
    "data is a number": ({"data": 0}, TypeError, "data"),
    "data of three": ({"data": (0, False, 1)}, ValueError, "data has 3"),
    "address negative": ({"data": (-1, False)}, ValueError, "data.0. is -1"),
    "address of 65 bits": ({"data": (1 << 64, False)}, ValueError, "data.0. is"),
    "address is a bool": ({"data": (True, False)}, TypeError, "data.0. is"),
    "address missing": ({"data": (0, False)}, ValueError, "data is NULL"),
    "flag is a number": ({"data": (0, 1)}, TypeError, "data.1. is 1"),
    "strides too few": ({"strides": (24,)}, ValueError, "1 strides for 2"),
    "strides are a list": ({"strides": [24, 4]}, TypeError, "strides is"),
    "strides between elements": ({"strides": (24, 3)}, ValueError, "strides.1. is 3"),
    "strides overflow": ({"strides": (1 << 62, 4)}, ValueError, "strides|shape"),
    "stream 0": ({"stream": 0}, ValueError, "stream is 0"),
    "stream negative": ({"stream": -1}, ValueError, "stream is -1"),
    "stream is a bool": ({"stream": True}, TypeError, "stream is True"),
    "stream is a str": ({"stream": "1"}, TypeError, "stream is '1'"),
    "masked": ({"mask": object()}, BufferError, "mask"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_dictionary_is_refused(cuda, name):
    entries, kind, text = BAD[name]
    producer = Array(cuda, **entries)
    with pytest.raises(kind, match=text):
        from_cuda_array_interface(producer)
    assert devexchange.outstanding() == 0


def test_producer_that_names_another_device_is_refused(cuda):
    class Elsewhere:
        def __dlpack_device__(self):
            return CUDA

        def __dlpack__(self, **asked):
            return VALUES.__dlpack__(max_version=asked["max_version"])

    with pytest.raises(BufferError, match="the tensor is on cpu:0: __dlpack_device__ said cuda:0"):
        from_dlpack(Elsewhere(), stream=-1)
    assert devexchange.outstanding() == 0


class PinnedTorch:
    """Pinned memory as PyTorch hands it out: its struct says CPU, and it takes no stream for it."""

    takes = (None, -1)

    def __init__(self):
        self.array, self.told = VALUES.copy(), []

    def __dlpack_device__(self):
        return (3, 0)

    def __dlpack__(self, *, stream=-1, max_version=None):
        self.told.append(stream)
        assert stream in self.takes, "stream should be None on cpu."
        return self.array.__dlpack__(max_version=max_version)


class OlderPinnedTorch(PinnedTorch):
    """The same of an older PyTorch, which does not look at the stream."""

    takes = (None, -1, 1)


@pytest.mark.parametrize("stream", [None, -1, 1])
@pytest.mark.parametrize("kind", [PinnedTorch, OlderPinnedTorch])
def test_pinned_memory_that_is_taken_for_memory_of_the_cpu(cuda, kind, stream):
    producer = kind()
    with from_dlpack(producer, stream=stream) as tensor:
        assert (tensor.device, tensor.data_ptr) == (CPU, producer.array.ctypes.data)
        numpy.testing.assert_array_equal(numpy.from_dlpack(tensor), VALUES)
    assert producer.told[0] == (1 if stream is None else stream)
    copy = from_dlpack(producer, device=CUDA, stream=cuda.consumer if stream is None else 1)
    numpy.testing.assert_array_equal(numpy.from_dlpack(copy.copy_to(CPU, 1)), VALUES)


@pytest.mark.parametrize("stream", [None, -1, "consumer"])
def test_pinned_memory_of_a_producer_that_takes_no_stream(cuda, stream):
    pinned = from_dlpack(VALUES, device=CUDA, stream=cuda.producer).copy_to((3, 0), cuda.producer)

    class NoStream:
        def __dlpack_device__(self):
            return (3, 0)

        def __dlpack__(self, *, max_version):
            return pinned.__dlpack__(max_version=max_version)

    with from_dlpack(NoStream(), stream=cuda.consumer if stream == "consumer" else stream) as tensor:
        assert (tensor.device, tensor.data_ptr) == ((3, 0), pinned.data_ptr)
        numpy.testing.assert_array_equal(read(tensor, cuda.consumer), VALUES)


def test_error_of_a_producer_of_pinned_memory_is_the_first_one(cuda):
    class Failing:
        def __dlpack_device__(self):
            return (3, 0)

        def __dlpack__(self, *, stream="none", max_version=None):
            raise BufferError(f"stream {stream}")

    with pytest.raises(BufferError, match="^stream 1$"):
        from_dlpack(Failing())


def test_host_memory_is_no_cuda_array(cuda):
    with pytest.raises(BufferError):
        from_cuda_array_interface(Array(cuda, data=(VALUES.ctypes.data, False)))


def test_thing_without_the_interface(cuda):
    class NoDict:
        __cuda_array_interface__ = [1]

    for thing in [1, VALUES, NoDict()]:
        with pytest.raises(TypeError, match="__cuda_array_interface__"):
            from_cuda_array_interface(thing)
    with pytest.raises(ValueError, match=r"no_stream is .other"):
        from_cuda_array_interface(Array(cuda), no_stream="other")


def test_interface_that_raises(cuda):
    class Raises:
        @property
        def __cuda_array_interface__(self):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        from_cuda_array_interface(Raises())


# --- the same without the waiting: the driver notices ---


def test_consumer_that_asks_for_no_order_is_a_race(cuda):
    tensor = from_cuda_array_interface(Array(cuda))
    view = StridedMemoryView.from_dlpack(tensor, stream_ptr=-1)
    driver.download(view.ptr, VALUES.nbytes, cuda.consumer)
    driver.assert_found("Race")


def test_trust_in_a_producer_that_is_not_ready_is_a_race(cuda):
    tensor = from_cuda_array_interface(Array(cuda, version=2), no_stream="trust")
    read(tensor, cuda.consumer)
    driver.assert_found("Race")


def test_memory_that_is_not_said_to_be_used_is_released_too_early(cuda):
    tensor = from_cuda_array_interface(Array(cuda), stream=cuda.consumer)
    copied = driver.copy_on(cuda.device, tensor.data_ptr, VALUES.nbytes, cuda.consumer)
    tensor.close()
    cuda.consumer.sync()
    copied.close()
    driver.assert_found("FreeRace")


def test_elements_on_the_device_are_read_and_written(cuda):
    tensor = from_cuda_array_interface(Array(cuda))
    into = numpy.zeros_like(VALUES)
    tensor.read(into, cuda.consumer)
    numpy.testing.assert_array_equal(into, VALUES)
    tensor.write(2 * VALUES, stream=cuda.consumer)
    tensor.used_on(cuda.consumer)
    tensor.read(into, cuda.consumer)
    numpy.testing.assert_array_equal(into, 2 * VALUES)
    fresh = devexchange.empty(3, "int32", device=CUDA)
    fresh.write(numpy.arange(3, dtype="i4"))
    fresh.read(raw := bytearray(12))
    assert bytes(raw) == numpy.arange(3, dtype="i4").tobytes()


def test_host_memory_is_read_and_written_without_a_stream(cuda):
    tensor = from_buffer(bytearray(4))
    queued = ("cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyAsync", "cuStreamSynchronize")
    before = [driver.calls(name) for name in queued]
    tensor.write(b"abcd")
    tensor.read(into := bytearray(4))
    assert into == b"abcd"
    assert [driver.calls(name) for name in queued] == before
    tensor.read(into, cuda.consumer)
    assert [driver.calls(name) for name in queued] != before


def test_buffer_of_the_host_goes_to_the_device_and_back(cuda):
    tensor = from_buffer(bytearray(b"abcd")).copy_to(CUDA, cuda.producer)
    assert bytes(tensor.copy_to(CPU, cuda.consumer)) == b"abcd"
