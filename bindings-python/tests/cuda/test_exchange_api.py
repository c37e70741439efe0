"""Function tables of types with device memory: they do not synchronise, so the taker of a tensor establishes the
order."""

import collections
import ctypes
from ctypes import byref, c_void_p

import driver
import numpy
import pytest
from cuda.core import Stream
from structs import Producer
from tables import Allocator, FromObject, SetError, Table, WorkStream, address, table_of
from test_cuda import CPU, CUDA, VALUES, Array, read

from devexchange import Tensor, from_cuda_array_interface, from_dlpack

OURS = table_of(Tensor)


class Offers:
    """A producer that works on its own stream, which its table names."""

    def __init__(self, cuda, names=None):
        self.tensor = from_cuda_array_interface(Array(cuda, stream=None))
        self.stream = driver.number(names or cuda.producer)
        self.asked = collections.deque(maxlen=4)
        self.functions = FromObject(self.share), WorkStream(self.work_stream)
        from_object, work_stream = map(address, self.functions)
        self.table = Table(major=1, minor=3, from_object=from_object, work_stream=work_stream)
        type(self).__dlpack_c_exchange_api__ = self.table.capsule()

    def share(self, _, out):
        out[0] = self.tensor.export_share(stream=-1)
        return 0

    def work_stream(self, kind, number, out):
        self.asked.append((kind, number))
        out[0] = self.stream
        return 0

    def close(self):
        # The functions refer to this object, in a cycle that Python's collector does not see.
        self.functions = self.table = None
        self.tensor.close()


@pytest.fixture
def offers(cuda):
    made = []

    def offer(**arguments):
        kind = type("Offers", (Offers,), {})
        made.append(kind(cuda, **arguments))
        return made[-1]

    yield offer
    for each in made:
        each.close()


@pytest.mark.parametrize("named", [True, False])
def test_order_of_the_producers_stream_is_kept(cuda, offers, named):
    producer = offers()
    tensor = from_dlpack(producer, stream=cuda.consumer if named else None)
    assert (tensor.device, tensor.data_ptr, list(producer.asked)) == (CUDA, producer.tensor.data_ptr, [CUDA])
    if named:
        # Without any call of ours in between: the consumer's stream waits already.
        elements = driver.download(tensor.data_ptr, VALUES.nbytes, cuda.consumer).view("f4").reshape(4, 6)
    else:
        elements = read(tensor, cuda.consumer)
    numpy.testing.assert_array_equal(elements, VALUES)


def test_stream_of_the_producer_may_end_after_the_exchange(cuda, offers):
    producer = offers()
    tensor = from_dlpack(producer, stream=cuda.consumer)
    producer.stream = 0
    numpy.testing.assert_array_equal(read(tensor, cuda.consumer), VALUES)


def test_producer_that_names_no_stream_works_on_the_default_one(cuda, offers):
    producer = offers()
    producer.stream = None
    cuda.producer.sync()
    numpy.testing.assert_array_equal(read(from_dlpack(producer, stream=cuda.consumer), cuda.consumer), VALUES)


def test_copies_and_other_devices(cuda, offers):
    there = from_dlpack(offers(), copy=True, stream=cuda.consumer)
    assert there.is_copied
    numpy.testing.assert_array_equal(read(there, cuda.consumer), VALUES)
    numpy.testing.assert_array_equal(numpy.from_dlpack(from_dlpack(offers(), device=CPU)), VALUES)
    with pytest.raises(BufferError, match="copy is False"):
        from_dlpack(offers(), device=CPU, copy=False)
    with pytest.raises(ValueError, match="stream is 0"):
        from_dlpack(offers(), stream=0)


def test_stream_that_cannot_be_asked_for_gives_the_tensor_back(cuda, offers):
    producer = offers()
    producer.work_stream = WorkStream(lambda *_: -1)
    producer.table.work_stream = address(producer.work_stream)
    with pytest.raises(RuntimeError, match="current_work_stream returned -1"):
        from_dlpack(producer)


def test_object_of_a_consumer_is_ready_on_the_stream_that_its_table_names(cuda):
    """The consumer does nothing for it: its stream waits already."""
    taken, asked = [], []

    def take(managed, out):
        taken.append(managed)
        out[0] = id(taken)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(taken))
        return 0

    def work_stream(kind, number, out):
        asked.append((kind, number))
        out[0] = driver.number(cuda.consumer)
        return 0

    functions = FromObject(take), WorkStream(work_stream)
    theirs = Table(major=1, minor=3, from_object=1, to_object=address(functions[0]), work_stream=address(functions[1]))
    kind = type("Consumer", (), {"__dlpack_c_exchange_api__": theirs.capsule()})
    tensor = from_cuda_array_interface(Array(cuda))
    assert tensor.to(kind) is taken and asked == [CUDA]
    elements = driver.download(tensor.data_ptr, VALUES.nbytes, cuda.consumer).view("f4").reshape(4, 6)
    numpy.testing.assert_array_equal(elements, VALUES)
    Tensor.import_dlpack(taken.pop(), stream=-1).close()


# --- our table ---


def test_what_our_table_shares_is_ready_on_the_stream_that_it_names(cuda):
    tensor = from_cuda_array_interface(Array(cuda))
    out, stream = c_void_p(), c_void_p()
    assert FromObject(OURS.from_object)(id(tensor), byref(out)) == 0
    assert WorkStream(OURS.work_stream)(*CUDA, byref(stream)) == 0
    tensor.close()
    # Like a consumer that goes on working on the producer's stream.
    taken = Tensor.import_dlpack(out.value, stream=stream.value)
    numpy.testing.assert_array_equal(read(taken, cuda.consumer), VALUES)


def test_what_our_table_lends_is_ready_on_the_stream_that_it_names(cuda):
    tensor = from_cuda_array_interface(Array(cuda))
    lent = (c_void_p * 6)()
    assert FromObject(OURS.borrow)(id(tensor), ctypes.cast(lent, ctypes.POINTER(c_void_p))) == 0
    elements = driver.download(lent[0], VALUES.nbytes, Stream.from_handle(1))
    numpy.testing.assert_array_equal(elements.view("f4").reshape(4, 6), VALUES)


def test_what_our_table_takes_is_in_the_order_of_the_stream_that_it_names(cuda):
    tensor, out = from_cuda_array_interface(Array(cuda)), ctypes.py_object()
    exported = tensor.export_share(stream=1)
    tensor.close()
    raw = ctypes.cast(byref(out), ctypes.POINTER(c_void_p))
    assert FromObject(OURS.to_object)(exported, raw) == 0
    taken = out.value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(taken))
    numpy.testing.assert_array_equal(read(taken, cuda.consumer), VALUES)


@pytest.mark.parametrize("kind", [2, 3, 13])
def test_memory_of_our_allocator(cuda, kind):
    like, out = Producer(device_type=kind, data=None), c_void_p()
    described = ctypes.addressof(like.managed.dl_tensor)
    assert Allocator(OURS.allocator)(described, byref(out), None, SetError()) == 0
    tensor = Tensor.import_dlpack(out.value)
    assert (tensor.shape, tensor.dtype, tensor.device.type) == ((2, 3), "float32", kind)
    if kind == 2:
        filled = from_dlpack(tensor, stream=cuda.consumer)
        driver.download(filled.data_ptr, filled.nbytes, cuda.consumer)


def test_tensor_of_ours_by_our_table(cuda):
    tensor = from_dlpack(from_cuda_array_interface(Array(cuda)), stream=cuda.consumer)
    elements = driver.download(tensor.data_ptr, VALUES.nbytes, cuda.consumer)
    numpy.testing.assert_array_equal(elements.view("f4").reshape(4, 6), VALUES)


# --- the same without the right order: the driver notices ---


def test_producer_that_names_another_stream_is_a_race(cuda, offers):
    read(from_dlpack(offers(names=cuda.consumer), stream=cuda.consumer), cuda.consumer)
    driver.assert_found("Race")


def test_consumer_that_asks_for_no_order_is_a_race(cuda, offers):
    tensor = from_dlpack(offers(), stream=-1)
    driver.download(tensor.data_ptr, VALUES.nbytes, cuda.consumer)
    driver.assert_found("Race")
