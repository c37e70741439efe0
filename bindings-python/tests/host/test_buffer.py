"""The buffer protocol, both ways."""

import array
import ctypes
import gc
import hashlib
import io
import weakref
import zlib

import ml_dtypes  # noqa: F401 - names its types to NumPy
import numpy
import pytest
import structs
from peer import soon
from test_dlpack_in import DTYPES, LAYOUTS, element_strides, matrix

import devexchange
from devexchange import empty, from_buffer, from_dlpack


class View(ctypes.Structure):
    """Py_buffer."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


def described(thing, flags):
    """The fields of a view, and which of its tables are there."""
    view = View()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(thing), ctypes.byref(view), flags)
    tables = view.shape is not None, view.strides is not None, view.suboffsets is not None
    said = view.len, view.itemsize, view.readonly, view.format, *tables
    ndim = view.ndim
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return said, ndim


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
@pytest.mark.parametrize("flags", [0, 0x1, 0x4, 0x8, 0x18, 0x1C, 0x38, 0x98, 0x118, 0x11D])
def test_view_says_what_numpys_does(shape, flags):
    """PyBUF_SIMPLE, WRITABLE, FORMAT, ND, STRIDES, with a format, C_CONTIGUOUS, ANY_CONTIGUOUS, INDIRECT, FULL."""
    array = numpy.zeros(shape)
    said, ndim = described(from_dlpack(array), flags)
    assert said == described(array, flags)[0]
    # As for a memoryview: a view without a shape (PyBUF_ND) has plain bytes.
    assert ndim == (len(shape) if flags & 0x8 else 1)


@pytest.mark.parametrize("shape", [(), (0, 3), (6,), (2, 3)])
def test_bytes_of_any_shape_go_where_bytes_go(shape):
    array = numpy.ones(shape)
    assert hashlib.sha256(from_dlpack(array)).digest() == hashlib.sha256(array.tobytes()).digest()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_array_of_numpy_and_back(dtype, layout):
    source = LAYOUTS[layout](matrix(dtype))
    tensor = from_buffer(source)
    assert (tensor.shape, tensor.dtype, tensor.read_only) == (
        source.shape,
        source.dtype.name,
        not source.flags.writeable,
    )
    if source.size:
        assert (tensor.data_ptr, tensor.strides) == (source.ctypes.data, element_strides(source))
    seen = numpy.asarray(tensor)
    numpy.testing.assert_array_equal(seen, source)
    assert (seen.dtype, seen.flags.writeable) == (source.dtype, source.flags.writeable)
    if source.size:
        assert (seen.ctypes.data, seen.strides) == (source.ctypes.data, source.strides)


@pytest.mark.parametrize("code", "bBhHiIlLqQfd")
def test_array_of_the_standard_library(code):
    source = array.array(code, [1, 2, 3])
    tensor = from_buffer(source)
    assert (tensor.shape, tensor.ndim, tensor.nbytes) == ((3,), 1, 3 * source.itemsize)
    assert not tensor.read_only
    assert memoryview(tensor).tolist() == [1, 2, 3]


@pytest.mark.parametrize("values", [(ctypes.c_int * 3)(1, 2, 3), ((ctypes.c_double * 3) * 2)((1, 2, 3), (4, 5, 6))])
def test_array_of_ctypes(values):
    tensor = from_buffer(values)
    assert (tensor.data_ptr, tensor.nbytes) == (ctypes.addressof(values), ctypes.sizeof(values))
    numpy.testing.assert_array_equal(numpy.from_dlpack(tensor), numpy.asarray(values))


@pytest.mark.parametrize("source", [b"42", numpy.array(3.5), numpy.array(3), numpy.arange(3)])
@pytest.mark.parametrize("number", [float, int])
def test_elements_are_no_text_of_a_number(source, number):
    """Python parses the bytes of a buffer as text if the object has no conversion to a number."""
    with pytest.raises(TypeError, match=r"a Tensor is not a number: .* numpy.from_dlpack\(tensor\).item\(\)"):
        number(from_buffer(source))


def test_numpy_takes_nothing_for_an_object():
    """`numpy.asarray` would make an array of one object of anything without a buffer or `__array__`."""
    tensor = from_buffer(array.array("d", [1, 2, 3]))
    assert tensor.__array__().ctypes.data == tensor.data_ptr
    assert (tensor.__array__("int8").tolist(), tensor.__array__(copy=True).tolist()) == ([1, 2, 3], [1, 2, 3])
    with pytest.raises(ValueError, match="copy"):
        tensor.__array__("int8", copy=False)
    with pytest.raises((BufferError, RuntimeError), match="dtype"):
        numpy.asarray(empty(3, "bfloat16"))
    tensor.close()
    with pytest.raises(ValueError, match="the tensor is closed"):
        numpy.asarray(tensor)


def test_bytes_are_read_only():
    tensor = from_buffer(b"abc")
    assert (tensor.dtype, tensor.read_only) == ("uint8", True)
    assert bytes(tensor) == b"abc"
    with pytest.raises(TypeError):
        memoryview(tensor)[0] = 1
    with pytest.raises(TypeError, match="not writable"):
        (ctypes.c_char * 3).from_buffer(tensor)


def is_free(source):
    try:
        source.append(0)
    except BufferError:
        return False
    return True


def test_object_is_locked_as_long_as_it_is_used():
    source = bytearray(b"abc")
    tensor = from_buffer(source)
    seen = numpy.from_dlpack(tensor)
    tensor.close()
    with pytest.raises(BufferError):
        source.append(0)
    del seen
    # NumPy's release does not call this package, so Python's main thread does the rest soon.
    soon(lambda: is_free(source))


def test_object_is_free_if_its_view_is_refused():
    source = bytearray(8)
    with pytest.raises(BufferError, match="format"):
        # The view of a view: of pointers, which no tensor has.
        from_buffer(memoryview(source).cast("P"))
    gc.collect()
    source.append(0)


def test_lent_view_outlives_the_tensor():
    source = bytearray(b"abc")
    tensor = from_buffer(source)
    view = memoryview(tensor)
    tensor.close()
    assert view.tobytes() == b"abc"
    view.release()
    source.append(0)


class Memory(bytearray):
    """A buffer that can keep the tensor over it."""


@pytest.mark.parametrize("take", [from_buffer, lambda source: from_dlpack(numpy.frombuffer(source))])
def test_object_that_keeps_the_tensor_over_it_ends_once_the_tensor_is_closed(take):
    source = Memory(8)
    source.tensor = take(source)
    source.tensor.close()
    gone = weakref.ref(source)
    del source
    gc.collect()
    assert gone() is None


def test_contiguous_view_that_was_asked_for():
    rows = numpy.arange(6.0).reshape(2, 3)
    for source, order in [(rows, "C"), (rows.T, "F")]:
        tensor = from_dlpack(source)
        assert memoryview(tensor).contiguous
        assert memoryview(tensor).tobytes(order) == source.tobytes(order)
    # A consumer that asks for no strides cannot be told that the memory is column-major.
    assert zlib.crc32(from_dlpack(rows)) == zlib.crc32(rows)
    with pytest.raises(BufferError, match=r"strides \[1, 3\] of shape \[3, 2\] are not row-major, which was asked for"):
        zlib.crc32(from_dlpack(rows.T))
    with pytest.raises(BufferError, match="are not column-major, "):
        described(from_dlpack(rows), 0x58)
    with pytest.raises(BufferError, match="are not row-major or column-major, "):
        described(from_dlpack(rows[:, ::2]), 0x98)
    # PyBUF_ANY_CONTIGUOUS and PyBUF_F_CONTIGUOUS, also without elements, and along a single element.
    assert described(from_dlpack(rows.T), 0x98)[0] == described(rows.T, 0x98)[0]
    nothing, single = numpy.zeros((2, 0, 3)), numpy.lib.stride_tricks.as_strided(rows, (1, 3), (8, 8))
    for array in [nothing, single]:
        assert described(from_dlpack(array), 0x58)[0] == described(array, 0x58)[0]


def test_view_without_elements_has_an_address():
    with empty(0, "int8") as tensor:
        assert ctypes.addressof((ctypes.c_char * 0).from_buffer(tensor)) != 0


@pytest.mark.parametrize("dtype", [">i4", "S3", "U2", "O", [("a", "i4"), ("b", "f4")], "g"])
def test_elements_that_are_no_numbers_are_refused(dtype):
    with pytest.raises(BufferError, match="a tensor cannot have such elements|not in the order of this machine"):
        from_buffer(numpy.zeros(2, dtype))


def test_read_only_memory_is_not_lent_to_a_writer():
    memory = b"abcd"
    with from_buffer(memory) as tensor, pytest.raises(TypeError, match="read-write"):
        io.BytesIO(b"wxyz").readinto(tensor)
    assert memory == b"abcd"


def test_stride_along_a_single_element():
    """Such a stride is never used, so it may be any number of bytes."""
    base = numpy.arange(40, dtype="u1").view("f4")
    source = numpy.lib.stride_tricks.as_strided(base, (1, 3), (5, 8))
    assert memoryview(source).strides == (5, 8)
    numpy.testing.assert_array_equal(from_buffer(source), source)
    with pytest.raises(BufferError, match="strides has 5 bytes"):
        from_buffer(numpy.lib.stride_tricks.as_strided(base, (2, 3), (5, 8)))


def test_object_without_a_buffer():
    with pytest.raises(TypeError):
        from_buffer([1, 2])


def test_element_type_without_a_format():
    class Bfloat:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            return self.producer.capsule

    thing = Bfloat()
    thing.producer = structs.Producer(code=4, bits=16)
    tensor = from_dlpack(thing)
    assert tensor.dtype == "bfloat16"
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(tensor)


def test_elements_are_read_and_written():
    tensor = from_dlpack(numpy.arange(6.0).reshape(2, 3))
    into, raw = numpy.zeros((2, 3)), bytearray(48)
    tensor.read(into)
    tensor.read(raw, stream=1)
    assert into.tolist() == [[0, 1, 2], [3, 4, 5]] and bytes(raw) == into.tobytes()
    raw.extend(b"free again")
    tensor.write(into[::-1].copy())
    tensor.write(into.tobytes(), 2)
    tensor.write(array.array("d", [6, 5, 4, 3, 2, 1]))
    assert numpy.from_dlpack(tensor).tolist() == [[6, 5, 4], [3, 2, 1]]
    nothing = empty((0, 3))
    nothing.read(bytearray())
    nothing.write(b"")


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_elements_that_only_a_package_beside_numpy_knows(dtype):
    values = numpy.array([[1.5, -2.0], [0.0, 4.0]]).astype(dtype)
    tensor = empty(values.shape, values.dtype)
    assert tensor.dtype == dtype
    text = f'^dtype is {dtype}: buffers have no format for it; array.view."u1". gives its bytes$'
    for call in (from_buffer, tensor.write, tensor.read):
        with pytest.raises(BufferError, match=text) as refused:
            call(values)
        assert type(refused.value.__cause__) is ValueError
    tensor.write(values.view("u1"))
    back = numpy.zeros_like(values)
    tensor.read(back.view("u1"))
    assert back.tolist() == values.tolist()


@pytest.mark.parametrize(
    ("into", "error", "text"),
    [
        (bytearray(47), ValueError, "there are 47 bytes, the elements are 48"),
        (numpy.zeros((2, 3), "f4"), TypeError, "into has elements of float32, the tensor of float64"),
        (numpy.zeros((2, 6))[:, ::2], BufferError, "are not row-major"),
        (bytes(48), BufferError, "into is read-only"),
        ([0.0] * 6, TypeError, "buffer|bytes-like"),
    ],
)
def test_what_elements_are_not_read_into(into, error, text):
    tensor = from_dlpack(numpy.arange(6.0).reshape(2, 3))
    with pytest.raises(error, match=text):
        tensor.read(into)
    with pytest.raises(ValueError, match="stream is 0"):
        tensor.read(bytearray(48), 0)


def test_what_is_not_written():
    values = numpy.arange(6.0).reshape(2, 3)
    tensor = from_dlpack(values)
    with pytest.raises(TypeError, match="source has elements of int64, the tensor of float64"):
        tensor.write(numpy.arange(6))
    with pytest.raises(ValueError, match="there are 40 bytes, the elements are 48"):
        tensor.write(bytes(40))
    with pytest.raises(BufferError, match="READ_ONLY"):
        from_buffer(values.tobytes()).write(bytes(48))
    with pytest.raises(BufferError, match="are not row-major"):
        from_dlpack(values.T).write(bytes(48))
    assert values.tolist() == [[0, 1, 2], [3, 4, 5]]
    tensor.close()
    with pytest.raises(ValueError, match="closed"):
        tensor.read(bytearray(48))


def test_long_chain_of_views_ends():
    """Each view holds the one before it: nested releases would use up the stack."""
    tensor = empty(3)
    for _ in range(20_000):
        tensor = from_buffer(tensor)
    assert devexchange.outstanding() > 20_000
    del tensor
    assert devexchange.outstanding() == 0
