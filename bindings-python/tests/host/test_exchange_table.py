"""Our own function table, `Tensor.__dlpack_c_exchange_api__`: called by hand, and by tvm-ffi."""

import ctypes
import threading
from ctypes import byref, c_void_p, py_object

import numpy
import pytest
import tvm_ffi
from structs import Managed, Producer
from tables import Allocator, FromObject, SetError, WorkStream, WorkStreamUnattached, helper, table_of

import devexchange
from devexchange import Tensor, from_buffer, from_dlpack

OURS = table_of(Tensor)
share = FromObject(OURS.from_object)
borrow = FromObject(OURS.borrow)
take = FromObject(OURS.to_object)
work_stream = WorkStream(OURS.work_stream)
allocate = Allocator(OURS.allocator)
UNTOUCHED = 0x5A


def address_of(thing):
    return id(thing)


def refused(function, argument, kind, text):
    """Calls a function of the table, which sets an exception and leaves its output alone."""
    out = c_void_p(UNTOUCHED)
    with pytest.raises(kind, match=text):
        function(argument, byref(out))
    assert out.value == UNTOUCHED


def delete(managed):
    Managed.from_address(managed).deleter(managed)


def test_table_is_on_the_type():
    assert (OURS.major, OURS.minor, OURS.prev_api) == (1, 3, None)
    assert "__dlpack_c_exchange_api__" in vars(Tensor)
    assert all(getattr(OURS, name) for name in ("allocator", "from_object", "to_object", "borrow", "work_stream"))


def test_share():
    array = numpy.arange(6.0).reshape(2, 3)[:, ::2]
    array.flags.writeable = False
    tensor, out = from_dlpack(array), c_void_p()
    assert share(address_of(tensor), byref(out)) == 0
    tensor.close()
    managed = Managed.from_address(out.value)
    described = managed.dl_tensor
    assert (managed.major, managed.minor, managed.flags) == (1, 3, 1)
    assert (described.data, described.shape[:2], described.strides[:2]) == (array.ctypes.data, [2, 2], [3, 2])
    assert devexchange.ledger()["tensor_exports"].live == 1
    delete(out.value)


def test_share_refuses():
    closed = from_dlpack(numpy.zeros(1))
    closed.close()
    refused(share, address_of(closed), ValueError, "closed")
    other = []
    refused(share, address_of(other), TypeError, "py_object is a <class 'list'>")
    refused(share, None, ValueError, "py_object is NULL")
    with pytest.raises(ValueError, match="out is NULL"):
        share(address_of(closed), None)


def test_borrow():
    array = numpy.arange(6.0).reshape(2, 3)
    tensor, out = from_dlpack(array), (c_void_p * 6)()
    before = devexchange.outstanding()
    assert borrow(address_of(tensor), ctypes.cast(out, ctypes.POINTER(c_void_p))) == 0
    assert out[0] == array.ctypes.data and devexchange.outstanding() == before


def test_borrow_refuses_what_it_cannot_say():
    read_only = from_buffer(b"abc")
    refused(borrow, address_of(read_only), BufferError, "READ_ONLY")
    refused(borrow, address_of(1), TypeError, "not a devexchange.Tensor")


def test_take():
    producer, out = Producer(flags=1), py_object()
    raw = ctypes.cast(byref(out), ctypes.POINTER(c_void_p))
    assert take(ctypes.addressof(producer.managed), raw) == 0
    tensor = out.value
    assert type(tensor) is Tensor and tensor.shape == (2, 3) and tensor.read_only and producer.deleted == 0
    # The caller owns the reference that the table returned.
    ctypes.pythonapi.Py_DecRef(py_object(tensor))
    del out, raw, tensor
    assert producer.deleted == 1


@pytest.mark.parametrize("fields", [{"major": 2}, {"ndim": -1}, {"code": 99}, {"device_type": 99}])
def test_take_refuses_and_the_tensor_stays_its_owners(fields):
    producer = Producer(**fields)
    refused(take, ctypes.addressof(producer.managed), (BufferError, ValueError), "is")
    assert producer.deleted == 0
    refused(take, None, ValueError, "tensor is NULL")


def refuses_stream(device_type, number, text):
    out = c_void_p(UNTOUCHED)
    with pytest.raises(BufferError, match=text):
        work_stream(device_type, number, byref(out))
    assert out.value == UNTOUCHED


def test_work_stream_without_a_driver(no_driver):
    refuses_stream(2, 0, "no CUDA driver")


def test_work_stream():
    out = c_void_p(UNTOUCHED)
    assert work_stream(1, 0, byref(out)) == 0 and out.value is None
    refuses_stream(99, 0, "device_type is 99")
    refuses_stream(1, 5, "device_id is 5")
    unattached = WorkStreamUnattached(OURS.work_stream)
    assert unattached(1, 0, byref(out)) == 0 and out.value is None

    class Asks:
        def __dlpack_device__(self):
            return helper.ask_work_stream(c_void_p(OURS.work_stream), 99, 0, byref(out))

    # Within a call into this package, for which the thread is attached.
    with pytest.raises(BufferError, match="device_type is 99"):
        from_dlpack(Asks())


def prototype(**fields):
    return Producer(data=None, strides=None, byte_offset=3, **fields)


def on_a_thread(call):
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


def test_allocator_needs_no_gil():
    told, out, like = [], c_void_p(), prototype()
    set_error = SetError(lambda *error: told.append(error))
    described = ctypes.addressof(like.managed.dl_tensor)
    assert on_a_thread(lambda: allocate(described, byref(out), 7, set_error)) == 0 and told == []
    made = Managed.from_address(out.value).dl_tensor
    assert (made.shape[:2], made.strides[:2], made.byte_offset, made.device_type) == ([2, 3], [3, 1], 0, 1)
    assert made.data % 16 == 0
    ctypes.memset(made.data, 1, 24)
    delete(out.value)


REFUSED = {
    "extent": ({"shape": (-1, 3)}, b"ValueError", b"shape"),
    "device": ({"device_type": 99}, b"BufferError", b"device_type is 99"),
    "dtype": ({"code": 99}, b"ValueError", b"dtype.code is 99"),
    "too much": ({"shape": (1 << 45, 1 << 10)}, b"MemoryError", b"bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_allocator_refuses(name):
    refuses_allocation(*REFUSED[name])


def test_allocator_without_a_driver_refuses(no_driver):
    refuses_allocation({"device_type": 2}, b"BufferError", b"no CUDA driver")


def refuses_allocation(fields, kind, text):
    told, out, like = [], c_void_p(UNTOUCHED), prototype(**fields)
    set_error = SetError(lambda *error: told.append(error))
    assert allocate(ctypes.addressof(like.managed.dl_tensor), byref(out), 7, set_error) == -1
    assert [error[:2] for error in told] == [(7, kind)] and text in told[0][2] and out.value == UNTOUCHED
    assert allocate(ctypes.addressof(like.managed.dl_tensor), byref(out), None, SetError()) == -1


# --- tvm-ffi, which knows the table ---

echo = tvm_ffi.get_global_func("testing.echo")


def test_tvm_ffi_takes_by_the_table():
    tensor = from_dlpack(numpy.arange(6, dtype="f4").reshape(2, 3))
    exports = devexchange.ledger()["tensor_exports"].total
    seen = tvm_ffi.from_dlpack(tensor)
    assert (tuple(seen.shape), devexchange.ledger()["tensor_exports"].total) == ((2, 3), exports + 1)
    tensor.close()
    numpy.testing.assert_array_equal(numpy.from_dlpack(seen), [[0, 1, 2], [3, 4, 5]])


def test_function_of_tvm_ffi_gets_and_gives_our_tensor():
    tensor = from_dlpack(numpy.arange(6, dtype="f4").reshape(2, 3))
    given = echo(tensor)
    assert type(given) is Tensor and given is not tensor
    assert (given.shape, given.dtype, given.data_ptr) == ((2, 3), "float32", tensor.data_ptr)


def test_tensor_that_tvm_ffi_gives_by_its_table():
    wrapped = tvm_ffi.core.DLTensorTestWrapper(tvm_ffi.from_dlpack(numpy.arange(4, dtype="i8")))
    assert hasattr(type(wrapped), "__dlpack_c_exchange_api__")
    tensor = from_dlpack(wrapped)
    assert (tensor.shape, tensor.dtype) == ((4,), "int64")
    assert numpy.from_dlpack(tensor).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("layout", ["transposed", "empty", "scalar"])
def test_layouts_through_tvm_ffi(layout):
    matrix = numpy.arange(24.0).reshape(4, 6)
    array = {"transposed": matrix.T, "empty": matrix[:0], "scalar": matrix[1, 1:2].reshape(())}[layout]
    given = echo(from_dlpack(array))
    assert given.shape == array.shape and (not array.size or given.data_ptr == array.ctypes.data)
    numpy.testing.assert_array_equal(numpy.from_dlpack(given), array)
