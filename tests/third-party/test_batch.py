"""Arrow device arrays between nanoarrow and us.

nanoarrow's Python package makes arrays on the host, has views of arrays on a device, and exports their buffers; its C
library (nanoarrow_copy) brings arrays to a device, with an event, and back.
"""

import array
import ctypes

import nanoarrow
import numpy
import pytest
from cuda.core.utils import StridedMemoryView
from nanoarrow.c_buffer import CBuffer
from nanoarrow.device import DeviceType, c_array_from_buffers, c_device_array

import devexchange
import driver
import nanoarrow_copy
from devexchange import CPU, CUDA, Batch
from producer import Shared

HOST = (CPU, -1)
DEVICE = (CUDA, 0)


def words():
    return ["", "one", None, "drei", "päivä", "x" * 70]


def struct():
    schema = nanoarrow.struct({"number": nanoarrow.int32(), "text": nanoarrow.string()})
    numbers = nanoarrow.c_array([1, None, 3], nanoarrow.int32())
    children = [numbers, nanoarrow.c_array(["a", None, "cc"], nanoarrow.string())]
    return nanoarrow.c_array_from_buffers(schema, 3, [None], null_count=0, children=children)


def lists():
    values = nanoarrow.c_array([1, 2, None, 4, 5], nanoarrow.int64())
    offsets = array.array("i", [0, 2, 2, 5])
    return nanoarrow.c_array_from_buffers(nanoarrow.list_(nanoarrow.int64()), 3, [None, offsets], children=[values])


def sliced():
    return nanoarrow.c_array(words(), nanoarrow.string())[2:5]


ARRAYS = {
    "int32": lambda: nanoarrow.c_array([1, None, 3, 4], nanoarrow.int32()),
    "uint8": lambda: nanoarrow.c_array([1, 2, 255], nanoarrow.uint8()),
    "float64": lambda: nanoarrow.c_array([0.5, 1.5, None], nanoarrow.float64()),
    "bool": lambda: nanoarrow.c_array([True, False, None, True] * 3, nanoarrow.bool_()),
    "date": lambda: nanoarrow.c_array([1, None, 20000], nanoarrow.date32()),
    "text": lambda: nanoarrow.c_array(words(), nanoarrow.string()),
    "large text": lambda: nanoarrow.c_array(words(), nanoarrow.large_string()),
    "binary": lambda: nanoarrow.c_array([b"\0\1", None, b""], nanoarrow.binary()),
    "fixed-size binary": lambda: nanoarrow.c_array([b"abc", b"def"], nanoarrow.fixed_size_binary(3)),
    "struct": struct,
    "list": lists,
    "slice": sliced,
    "range": lambda: nanoarrow.c_array(range(24), nanoarrow.int64()),
    "no rows": lambda: nanoarrow.c_array([], nanoarrow.int32()),
    "no texts": lambda: nanoarrow.c_array([], nanoarrow.string()),
}
KINDS = pytest.mark.parametrize("kind", ARRAYS)


def rows(producer):
    return nanoarrow.Array(producer).to_pylist()


def brought(cuda, kind):
    """A nanoarrow array that is being copied to the device on the producer's stream, with an event."""
    return nanoarrow_copy.copy(c_device_array(ARRAYS[kind]()), DEVICE, driver.number(cuda.producer))


def fetched(producer, stream):
    """The rows that nanoarrow reads from a device array, on `stream` after the array's event."""
    copied = nanoarrow_copy.copy(producer, HOST, driver.number(stream))
    return rows(c_device_array(copied).array)


# --- nanoarrow to us ---


@KINDS
def test_device_array_of_nanoarrow(cuda, kind):
    foreign = brought(cuda, kind)
    event = devexchange.device_arrays.pointer(foreign.array).contents.sync_event
    assert bool(event)
    with Batch.from_arrow(foreign) as batch:
        info = batch.info
        assert (info.device_type, info.device_id, info.length) == (CUDA, 0, len(rows(ARRAYS[kind]())))
        with batch.copy_to((CPU, 0), driver.number(cuda.consumer)) as copy:
            assert rows(copy) == rows(ARRAYS[kind]())


@KINDS
def test_device_array_of_nanoarrow_that_is_never_read(cuda, kind):
    batch = Batch.from_arrow(brought(cuda, kind))
    # nanoarrow releases with cuMemFree and relies on that to wait for its own copies. This is not documented, so the
    # test waits here.
    cuda.producer.sync()
    batch.close()


@KINDS
def test_host_array_of_nanoarrow(cuda, kind):
    with Batch.from_arrow(c_device_array(ARRAYS[kind]())) as batch:
        assert (batch.info.device_type, batch.info.device_id) == (CPU, 0)
        assert rows(batch) == rows(ARRAYS[kind]())
    with Batch.from_host(ARRAYS[kind]()) as batch:
        assert rows(batch) == rows(ARRAYS[kind]())


def test_device_array_of_nanoarrows_python(cuda):
    """The Python package makes it over our tensor. It has no event, so the tensor is exported for the stream."""
    shared = Shared(cuda, "i4", "vector")
    buffer = CBuffer.from_dlpack(devexchange.Unversioned(shared.tensor), stream=driver.number(cuda.consumer))
    assert (buffer.device.device_type, buffer.device.device_id) == (DeviceType.CUDA, 0)
    made = c_array_from_buffers(nanoarrow.int32(), 24, [None, buffer], null_count=0, move=True, device=buffer.device)
    cuda.consumer.sync()
    with Batch.from_arrow(made) as batch, batch.copy_to((CPU, 0), driver.number(cuda.consumer)) as copy:
        assert rows(copy) == shared.elements.tolist()
    shared.tensor.close()
    assert shared.released == []
    del buffer, made
    driver.wait_until(lambda: shared.released == ["memory"])


def test_refused_import_leaves_the_array_to_nanoarrow(cuda):
    _, foreign = c_device_array(nanoarrow.c_array(["a"], nanoarrow.string())).__arrow_c_device_array__()
    wrong = nanoarrow.c_schema(nanoarrow.int32()).__arrow_c_schema__()
    with pytest.raises(devexchange.Error, match="DEVX_INVALID_BUFFERS: n_buffers is 3"):
        Batch.from_arrow(nanoarrow_copy.DeviceArray(wrong, foreign))
    right = nanoarrow.c_schema(nanoarrow.string()).__arrow_c_schema__()
    assert rows(c_device_array(nanoarrow_copy.DeviceArray(right, foreign)).array) == ["a"]


# --- us to nanoarrow ---


def exported(cuda, kind):
    """Our batch on the device, with a copy still queued on the producer's stream. This takes two copies, because a copy from
    pageable memory is waited for, and a copy on the device is not."""
    stream = driver.number(cuda.producer)
    with Batch.from_host(ARRAYS[kind]()) as host, host.copy_to(DEVICE, stream) as staging:
        return staging.copy_to(DEVICE, stream)


@KINDS
def test_nanoarrow_copies_a_device_array_of_ours(cuda, kind):
    with exported(cuda, kind) as batch:
        assert fetched(batch, cuda.consumer) == rows(ARRAYS[kind]())


@KINDS
def test_nanoarrows_python_describes_a_device_array_of_ours(cuda, kind):
    with exported(cuda, kind) as batch:
        seen, wanted = c_device_array(batch), ARRAYS[kind]()
        assert (seen.device_type, seen.device_id) == (DeviceType.CUDA, 0)
        assert (seen.array.length, seen.array.null_count) == (wanted.length, wanted.null_count)
        assert str(seen.array.schema) == str(wanted.schema)
        view, host = seen.array.view(), wanted.view()
        for name in ["storage_type", "n_buffers", "n_children"]:
            assert getattr(view, name) == getattr(host, name)


def test_nanoarrows_python_waits_for_our_event(cuda):
    """nanoarrow takes our array as a buffer, and passes it to cuda.core. One event orders all three libraries."""
    batch = exported(cuda, "range")
    buffer = c_device_array(batch).array.view().buffer(1)
    batch.close()
    view = StridedMemoryView.from_dlpack(buffer, stream_ptr=driver.number(cuda.consumer))
    assert (view.shape, view.dtype) == ((24,), numpy.dtype("i8"))
    assert driver.download(view.ptr, 24 * 8, cuda.consumer).view("i8").tolist() == list(range(24))


@KINDS
def test_host_array_of_ours(cuda, kind):
    with Batch.from_host(ARRAYS[kind]()) as batch:
        seen = c_device_array(batch)
        assert (seen.device_type, seen.array.device_type) == (DeviceType.CPU, DeviceType.CPU)
        assert rows(seen.array) == rows(ARRAYS[kind]())


def test_memory_is_released_after_the_work_that_uses_it(cuda):
    batch = exported(cuda, "text")
    copied = nanoarrow_copy.copy(batch, DEVICE, driver.number(cuda.consumer))
    batch.used_on(driver.number(cuda.consumer))
    batch.close()
    assert fetched(copied, cuda.consumer) == words()


def test_array_goes_to_us_and_back_to_nanoarrow(cuda):
    """Nothing waits on the host: our batch passes nanoarrow's event on, and nanoarrow's other stream waits for it."""
    batch = Batch.from_arrow(brought(cuda, "struct"))
    assert fetched(batch, cuda.consumer) == rows(struct())
    batch.close()


# --- without the event, the driver reports a race ---


def test_array_without_its_event_is_a_race(cuda):
    batch = exported(cuda, "int32")
    schema, exported_array = batch.__arrow_c_device_array__()
    struct = devexchange.device_arrays.pointer(exported_array).contents
    assert bool(struct.sync_event)
    struct.sync_event = ctypes.POINTER(ctypes.c_void_p)()
    fetched(nanoarrow_copy.DeviceArray(schema, exported_array), cuda.consumer)
    driver.assert_found("Race")


def test_array_of_nanoarrow_without_its_event_is_a_race(cuda):
    foreign = brought(cuda, "int32")
    devexchange.device_arrays.pointer(foreign.array).contents.sync_event = ctypes.POINTER(ctypes.c_void_p)()
    batch = Batch.from_arrow(foreign)
    batch.copy_to((CPU, 0), driver.number(cuda.consumer)).close()
    driver.assert_found("Race")
    cuda.producer.sync()
    batch.close()
