"""Exchanges with other libraries in both directions: values, addresses, strides, flags, and their refusals.

test_dlpack_in.py has more of NumPy, test_exchange_table.py of tvm-ffi, test_arrow.py of Arrow; PyTorch is in
tests/pytorch."""

import jax
import jax.numpy
import numpy
import pyarrow
import pytest
import tvm_ffi
from nanoarrow.c_buffer import CBuffer

import devexchange
from devexchange import from_arrow, from_buffer, from_dlpack

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)

MATRIX = numpy.arange(24.0).reshape(4, 6)
LAYOUTS = {
    "rows": MATRIX,
    "columns": MATRIX.T,
    "every second": MATRIX[:, ::2],
    "backwards": MATRIX[::-1],
    "empty": MATRIX[:0],
    "scalar": MATRIX[1, 1:2].reshape(()),
}
OF_JAX = ["bool", "bfloat16", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"]
NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


class ReadOnly:
    """Memory that must not be written."""

    def __init__(self):
        self.memory = bytes(range(16))
        self.tensor = from_buffer(self.memory)


# --- JAX: arrays that are never written; before 0.12 it asks for the struct before 1.0 ---


@pytest.mark.parametrize("dtype", [*NUMBERS, *OF_JAX])
def test_array_of_jax_and_back(dtype):
    array = jax.numpy.arange(6).astype(dtype).reshape(2, 3)
    tensor = from_dlpack(array)
    assert (tensor.shape, tensor.dtype, tensor.device) == ((2, 3), dtype, (1, 0))
    assert tensor.data_ptr == array.unsafe_buffer_pointer()
    seen = jax.dlpack.from_dlpack(tensor)
    assert (seen.dtype, seen.unsafe_buffer_pointer()) == (array.dtype, tensor.data_ptr)
    assert (seen == array).all()


@pytest.mark.parametrize("layout", ["rows", "columns", "empty", "scalar"])
def test_layout_in_jax(layout):
    array = LAYOUTS[layout]
    seen = jax.dlpack.from_dlpack(from_dlpack(array))
    assert seen.shape == array.shape
    numpy.testing.assert_array_equal(numpy.asarray(seen), array)


def test_call_of_jax_that_takes_no_tensor():
    ours = from_dlpack(numpy.arange(6, dtype="f4").reshape(2, 3))
    with pytest.raises(ValueError, match="dtype"):
        jax.numpy.asarray(ours)
    assert jax.numpy.from_dlpack(ours).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("layout", ["every second", "backwards"])
def test_layout_that_jax_refuses(layout):
    with pytest.raises(jax.errors.JaxRuntimeError, match="strid"):
        jax.dlpack.from_dlpack(from_dlpack(LAYOUTS[layout]))


def test_jax_and_memory_that_is_read_only():
    read_only = ReadOnly()
    if jax.__version_info__ < (0, 12):
        with pytest.raises(BufferError, match="READ_ONLY"):
            jax.dlpack.from_dlpack(read_only.tensor)
    else:
        assert jax.dlpack.from_dlpack(read_only.tensor).tolist() == list(read_only.memory)
        assert from_dlpack(jax.numpy.zeros(3)).read_only


def test_empty_and_scalar_arrays_of_jax():
    assert from_dlpack(jax.numpy.zeros((0, 3))).shape == (0, 3)
    scalar = from_dlpack(jax.numpy.array(5.0))
    assert (scalar.shape, numpy.from_dlpack(scalar).item()) == ((), 5.0)


def test_jax_keeps_the_memory():
    # JAX copies memory that is not aligned to 64 bytes.
    room = numpy.zeros(1024 + 8)
    array = room[(-room.ctypes.data % 64) // 8 :][:1024]
    seen = jax.dlpack.from_dlpack(from_dlpack(array))
    assert seen.unsafe_buffer_pointer() == array.ctypes.data and devexchange.outstanding() > 0
    seen.delete()


@pytest.mark.parametrize("length", [1, 10, 100, 1000, 100000])
def test_jax_copies_no_memory_of_this_library(length):
    made = [devexchange.empty(length, "float32") for _ in range(4)]
    made += [tensor.copy_to("cpu") for tensor in made]
    for tensor in made:
        assert jax.dlpack.from_dlpack(tensor).unsafe_buffer_pointer() == tensor.data_ptr


# --- PyArrow: tensors, and arrays that are never written ---


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("layout", ["rows", "columns", "every second", "empty", "scalar"])
def test_tensor_of_pyarrow_and_back(dtype, layout):
    array = LAYOUTS[layout] if layout in ("columns", "every second") else LAYOUTS[layout].astype(dtype)
    theirs = pyarrow.Tensor.from_numpy(array)
    tensor = from_dlpack(theirs)
    assert (tensor.shape, tensor.dtype) == (array.shape, array.dtype.name)
    if array.size:
        assert tensor.data_ptr == array.ctypes.data
        assert tensor.strides == tuple(stride // array.itemsize for stride in array.strides)
    seen = pyarrow.Tensor.from_dlpack(tensor)
    numpy.testing.assert_array_equal(seen.to_numpy(), array)
    assert not array.size or seen.to_numpy().ctypes.data == array.ctypes.data


def test_pyarrow_keeps_read_only():
    read_only = ReadOnly()
    theirs = pyarrow.Tensor.from_dlpack(read_only.tensor)
    assert not theirs.is_mutable
    assert from_dlpack(theirs).read_only


@pytest.mark.parametrize("dtype", NUMBERS)
def test_array_of_pyarrow(dtype):
    array = pyarrow.array(numpy.arange(5).astype(dtype))[1:]
    tensor = from_dlpack(array)
    assert (tensor.shape, tensor.dtype, tensor.read_only) == ((4,), dtype, True)
    assert tensor.data_ptr == array.buffers()[1].address + numpy.dtype(dtype).itemsize
    assert from_dlpack(array[:0]).shape == (0,)


@pytest.mark.parametrize("values", [[True], [1, None], ["a"]])
def test_array_that_pyarrow_refuses(values):
    with pytest.raises(TypeError, match="DLPack"):
        from_dlpack(pyarrow.array(values))


def test_tensors_that_pyarrow_refuses():
    for array in [numpy.zeros(2, "bool"), numpy.zeros(2, "complex64"), LAYOUTS["backwards"]]:
        with pytest.raises(ValueError, match="supported"):
            pyarrow.Tensor.from_dlpack(from_dlpack(array))


def test_buffer_of_pyarrow_and_back():
    theirs = pyarrow.py_buffer(from_buffer(bytearray(b"abcd")))
    assert (theirs.to_pybytes(), theirs.is_mutable) == (b"abcd", True)
    assert not pyarrow.py_buffer(from_buffer(b"abcd")).is_mutable
    ours = from_buffer(theirs)
    assert (ours.data_ptr, ours.nbytes) == (theirs.address, 4)


# --- nanoarrow: buffers ---

NANOARROW = {"int8": "int8", "int32": "int32", "uint64": "uint64", "float16": "half_float", "float64": "double"}


@pytest.mark.parametrize("dtype", NANOARROW)
def test_buffer_of_nanoarrow_and_back(dtype):
    array = numpy.arange(1, 7).astype(dtype)
    theirs = CBuffer.from_dlpack(from_dlpack(array))
    assert (theirs.data_type, theirs.n_elements) == (NANOARROW[dtype], 6)
    ours = from_dlpack(theirs.view())
    assert (ours.shape, ours.dtype, ours.data_ptr) == ((6,), dtype, array.ctypes.data)
    numpy.testing.assert_array_equal(numpy.from_dlpack(ours), array)
    # After one view the object lends no more buffers; a second object does.
    again = CBuffer.from_dlpack(from_dlpack(array))
    assert (from_buffer(again).data_ptr, bytes(again)) == (array.ctypes.data, array.tobytes())


def test_tensors_that_nanoarrow_refuses():
    for array in [MATRIX, MATRIX[0, ::2]]:
        with pytest.raises((ValueError, NotImplementedError)):
            CBuffer.from_dlpack(from_dlpack(array))
    with pytest.raises(BufferError, match="READ_ONLY"):
        CBuffer.from_dlpack(ReadOnly().tensor)


# --- tvm-ffi ---


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_tensor_of_tvm_ffi_and_back(dtype):
    array = (numpy.arange(6) % 2).astype(dtype).reshape(2, 3)
    theirs = tvm_ffi.from_dlpack(from_dlpack(array))
    assert (str(theirs.dtype), tuple(theirs.shape), tuple(theirs.strides)) == (dtype, (2, 3), (3, 1))
    ours = from_dlpack(theirs)
    assert (ours.data_ptr, ours.dtype) == (array.ctypes.data, dtype)
    numpy.testing.assert_array_equal(numpy.from_dlpack(ours), array)


def test_element_types_of_jax_in_tvm_ffi():
    for dtype in ["bfloat16", "complex64", "float8_e5m2"]:
        tensor = from_dlpack(jax.numpy.ones(3, dtype))
        given = from_dlpack(tvm_ffi.from_dlpack(tensor))
        assert (given.dtype, given.data_ptr) == (dtype, tensor.data_ptr)


# --- all in a row ---


def test_one_memory_through_all_of_them():
    array = numpy.arange(8, dtype="int32")
    array.flags.writeable = True
    ours = from_dlpack(pyarrow.Tensor.from_dlpack(from_dlpack(tvm_ffi.from_dlpack(from_dlpack(array)))))
    ours = from_dlpack(CBuffer.from_dlpack(ours).view())
    rows = pyarrow.array(ours.to_column())
    column = from_arrow(rows).root.to_tensor()
    assert column.data_ptr == array.ctypes.data
    array[3] = 77
    assert rows.to_pylist() == [0, 1, 2, 77, 4, 5, 6, 7]
