"""Matrices as record batches, columns of arrow.fixed_shape_tensor: compared with NumPy and PyArrow."""

import collections.abc
import sys
import threading
import time

import numpy
import pyarrow
import pytest
from peer import soon

import devexchange
from devexchange import InvalidType, RecordBatch, from_arrow, from_dlpack, ipc

TYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
MATRIX = numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3))


# --- matrix → batch → matrix ---


@pytest.mark.parametrize("dtype", TYPES)
def test_matrix_as_a_batch_and_back(dtype):
    source = MATRIX.astype(dtype)
    tensor = from_dlpack(source)
    assert tensor.plan_batch() == ("view", 0, "")
    ours = tensor.to_batch(["a", "b", "c"], copy=False)
    theirs = pyarrow.record_batch(ours)
    assert theirs.schema.names == ["a", "b", "c"]
    for index, column in enumerate(theirs.columns):
        numpy.testing.assert_array_equal(column.to_numpy(), source[:, index])
        assert column.buffers()[1].address == source[:, index].ctypes.data
    # PyArrow's columns lie in the same places as ours, and are a matrix again.
    again = from_arrow(theirs)
    assert again.plan_matrix() == ("view", 0, "")
    matrix = again.to_matrix(copy=False)
    assert (matrix.shape, matrix.strides, matrix.read_only, matrix.data_ptr) == (
        (2, 3),
        (1, 2),
        True,
        source.ctypes.data,
    )
    numpy.testing.assert_array_equal(numpy.from_dlpack(matrix), source)


def test_matrix_that_needs_a_copy():
    source = numpy.arange(6).reshape(2, 3)
    tensor = from_dlpack(source)
    plan = tensor.plan_batch()
    assert (plan.kind, plan.copy_bytes) == ("copy", source.nbytes) and "are apart" in plan.reason
    with pytest.raises(BufferError, match="a copy of 48 bytes is needed"):
        tensor.to_batch(copy=False)
    batch = tensor.to_batch()
    assert batch.names == ["0", "1", "2"]
    assert pyarrow.record_batch(batch).to_pydict() == {str(i): source[:, i].tolist() for i in range(3)}
    always = from_dlpack(MATRIX).to_batch(copy=True)
    assert pyarrow.record_batch(always).column(0).buffers()[1].address != MATRIX.ctypes.data


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (1, 3), (3, 1)])
def test_matrices_of_few_elements(shape):
    source = numpy.ones(shape, "f4", order="F")
    batch = from_dlpack(source).to_batch()
    assert (len(batch), batch.n_columns) == shape
    if shape[1]:
        matrix = batch.to_matrix()
        assert matrix.shape == shape
        numpy.testing.assert_array_equal(numpy.from_dlpack(matrix), source)


def test_batch_of_separate_columns_needs_a_copy():
    values = numpy.arange(8.0)
    source = pyarrow.record_batch({"a": values[:2], "b": values[2:4], "c": values[6:]})
    ours = from_arrow(source)
    assert ours.plan_matrix().kind == "copy" and ours.plan_matrix().copy_bytes == 48
    with pytest.raises(BufferError, match="equal distances"):
        ours.to_matrix(copy=False)
    matrix = ours.to_matrix()
    assert (matrix.is_copied, matrix.read_only) == (True, False)
    numpy.testing.assert_array_equal(numpy.from_dlpack(matrix), [[0, 2, 6], [1, 3, 7]])
    numpy.testing.assert_array_equal(numpy.from_dlpack(from_arrow(source.slice(1)).to_matrix()), [[1, 3, 7]])


@pytest.mark.parametrize(
    "make",
    [lambda batch, stream: batch.to_matrix(stream=stream), lambda batch, stream: RecordBatch.of({"b": batch}, stream=stream)],
    ids=["to_matrix", "of"],
)
def test_batches_on_the_cpu_have_no_streams(make):
    batch = from_arrow(pyarrow.record_batch({"a": [1], "b": [2]}))
    for none in (None, -1):
        make(batch, none).close()
    with pytest.raises(devexchange.Refused, match="stream is 1: device is cpu:0, which has no streams"):
        make(batch, 1)


def test_matrix_keeps_its_source():
    source = numpy.asfortranarray(numpy.random.default_rng(1).random((1000, 20)))
    kept = source.copy()
    batch = from_dlpack(source).to_batch()
    del source
    matrix = batch.to_matrix(copy=False)
    batch.close()
    numpy.testing.assert_array_equal(numpy.from_dlpack(matrix), kept)


@pytest.mark.parametrize(
    "batch, text",
    [
        (pyarrow.record_batch({"a": [1, None]}), "1 values of column .a. are null"),
        (pyarrow.record_batch({"a": ["x"]}), "is utf8, which is not a number"),
        (pyarrow.record_batch({"a": [1], "b": [1.5]}), "column .b. is float64, the first one is int64"),
        (pyarrow.record_batch({"a": [True]}), "not a number"),
        (pyarrow.record_batch({"a": pyarrow.array([1]).dictionary_encode()}), "column .a. are indices into a dictionary"),
        (pyarrow.record_batch({}), "no columns"),
        (pyarrow.array([1, 2]), "no columns"),
    ],
)
def test_batch_that_is_no_matrix(batch, text):
    ours = from_arrow(batch)
    plan = ours.plan_matrix()
    assert plan.kind == "impossible"
    with pytest.raises(BufferError, match=text):
        ours.to_matrix()


def test_array_without_columns_as_an_array_of_numpy():
    theirs = pyarrow.array([1, 2, 3])
    array = numpy.asarray(from_arrow(theirs))
    assert (array.tolist(), array.flags.writeable) == ([1, 2, 3], False)
    assert array.ctypes.data == theirs.buffers()[1].address
    assert numpy.array(from_arrow(theirs), dtype="f4").dtype == "f4"
    with pytest.raises(BufferError, match="1 of 2 values of int64 are null"):
        numpy.asarray(from_arrow(pyarrow.array([1, None])))


def test_column_as_a_tensor_of_anybody():
    theirs = pyarrow.record_batch({"n": [1, 2, 3], "b": [True, False, True], "t": ["a", "b", "c"]})
    ours = from_arrow(theirs)
    column = ours["n"]
    assert column.__dlpack_device__() == (1, 0)
    array = numpy.from_dlpack(column)
    assert (array.tolist(), array.flags.writeable) == ([1, 2, 3], False)
    assert array.ctypes.data == theirs["n"].buffers()[1].address
    assert numpy.from_dlpack(column, copy=True).flags.writeable
    assert from_dlpack(column[1:]).read_only
    assert numpy.from_dlpack(ours["b"]).tolist() == [True, False, True]
    with pytest.raises(BufferError, match="a copy of 3 bytes is needed"):
        numpy.from_dlpack(ours["b"], copy=False)
    with pytest.raises(BufferError, match="utf8 has no element type in DLPack"):
        numpy.from_dlpack(ours["t"])
    with pytest.raises(BufferError, match="READ_ONLY"):
        column.__dlpack__()
    with pytest.raises(ValueError, match="stream"):
        column.__dlpack__(stream=7)
    del theirs, ours, column, array
    assert devexchange.outstanding() == 0


def test_tensor_that_is_no_batch():
    for array in [numpy.arange(3), numpy.zeros((2, 2, 2)), numpy.zeros((2, 2), bool), numpy.zeros((2, 2), complex)]:
        tensor = from_dlpack(array)
        assert tensor.plan_batch().kind == "impossible"
        with pytest.raises(BufferError):
            tensor.to_batch()
    with pytest.raises(TypeError, match="2 names for 3 columns"):
        from_dlpack(MATRIX).to_batch(["a", "b"])
    with pytest.raises(ValueError, match="NUL"):
        from_dlpack(MATRIX).to_batch(["a", "b\0", "c"])
    for names in ["abc", [1, 2, 3], 3]:
        with pytest.raises(TypeError):
            from_dlpack(MATRIX).to_batch(names)


# --- arrow.fixed_shape_tensor ---

CUBE = numpy.arange(24, dtype="i4").reshape(2, 3, 4)


def tensors_of_pyarrow(array):
    return pyarrow.FixedShapeTensorArray.from_numpy_ndarray(array)


@pytest.mark.parametrize("dtype", TYPES)
def test_tensors_of_pyarrow(dtype):
    source = CUBE.astype(dtype)
    theirs = tensors_of_pyarrow(source)
    column = from_arrow(theirs).root
    assert column.plan_tensor() == ("view", 0, "")
    tensor = column.to_tensor(copy=False)
    assert (tensor.shape, tensor.data_ptr) == (source.shape, theirs.storage.values.buffers()[1].address)
    numpy.testing.assert_array_equal(numpy.from_dlpack(tensor), source)


@pytest.mark.parametrize("dtype", TYPES)
def test_tensors_of_ours(dtype):
    source = CUBE.astype(dtype)
    tensor = from_dlpack(source)
    assert tensor.plan_fixed_shape_column() == ("view", 0, "")
    column = tensor.to_fixed_shape_column("tensors", copy=False)
    assert (column.schema.name, column.root.format) == ("tensors", "+w:12")
    theirs = pyarrow.array(column)
    assert isinstance(theirs, pyarrow.FixedShapeTensorArray)
    assert theirs.type == pyarrow.fixed_shape_tensor(pyarrow.from_numpy_dtype(source.dtype), (3, 4))
    numpy.testing.assert_array_equal(theirs.to_numpy_ndarray(), source)
    assert theirs.storage.values.buffers()[1].address == source.ctypes.data


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 1, 3, 2), (0, 2, 1, 3), (0, 2, 3, 1), (0, 3, 1, 2), (0, 3, 2, 1)])
def test_dimensions_in_any_order(order):
    source = numpy.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).transpose(order)
    ours = from_dlpack(source)
    column = ours.to_fixed_shape_column(copy=False)
    theirs = pyarrow.array(column)
    assert theirs.storage.values.buffers()[1].address == source.ctypes.data
    numpy.testing.assert_array_equal(as_specified(theirs), source)
    back = column.root.to_tensor(copy=False)
    assert (back.shape, back.strides) == (source.shape, tuple(s // source.itemsize for s in source.strides))
    # For permutations that are not their own inverse, PyArrow itself writes one array and reads another.
    if tuple(numpy.argsort(order)) == order:
        numpy.testing.assert_array_equal(theirs.to_numpy_ndarray(), source)
        assert theirs.type == tensors_of_pyarrow(source).type
    else:
        of_pyarrow = tensors_of_pyarrow(source)
        back = from_arrow(of_pyarrow).root.to_tensor(copy=False)
        numpy.testing.assert_array_equal(numpy.from_dlpack(back), as_specified(of_pyarrow))


def as_specified(array):
    """Dimension i is the dimension permutation[i] of those in memory (Arrow columnar format, "Fixed shape tensor")."""
    values = array.storage.values.to_numpy().reshape(-1, *array.type.shape)
    return values.transpose(0, *(1 + dimension for dimension in array.type.permutation or range(values.ndim - 1)))


def test_slices_and_columns_of_batches():
    theirs = tensors_of_pyarrow(CUBE).slice(1)
    numpy.testing.assert_array_equal(numpy.from_dlpack(from_arrow(theirs).root.to_tensor()), CUBE[1:])
    batch = from_arrow(pyarrow.record_batch({"t": tensors_of_pyarrow(CUBE), "n": [1, 2]}))
    numpy.testing.assert_array_equal(numpy.from_dlpack(batch["t"].to_tensor(copy=False)), CUBE)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (3,), (2, 1), (1, 1, 1)])
def test_tensors_of_few_elements(shape):
    source = numpy.arange(numpy.prod(shape), dtype="f8").reshape(shape)
    column = from_dlpack(source).to_fixed_shape_column()
    back = column.root.to_tensor()
    assert back.shape == shape if len(shape) > 1 else back.shape[0] == shape[0]
    numpy.testing.assert_array_equal(numpy.from_dlpack(back).reshape(shape), source)


def test_tensor_whose_elements_are_apart_needs_a_copy():
    for source in [CUBE[:, ::2], CUBE[::-1], CUBE.T, numpy.broadcast_to(CUBE[0], (2, 3, 4))]:
        tensor = from_dlpack(source)
        plan = tensor.plan_fixed_shape_column()
        assert (plan.kind, plan.copy_bytes) == ("copy", source.nbytes)
        with pytest.raises(BufferError, match="copy"):
            tensor.to_fixed_shape_column(copy=False)
        numpy.testing.assert_array_equal(pyarrow.array(tensor.to_fixed_shape_column()).to_numpy_ndarray(), source)
    copied = pyarrow.array(from_dlpack(CUBE).to_fixed_shape_column(copy=True))
    assert copied.storage.values.buffers()[1].address != CUBE.ctypes.data


def test_tensors_that_are_null_or_wrong():
    type_ = pyarrow.fixed_shape_tensor(pyarrow.int32(), (2,))
    storage = pyarrow.array([[1, 2], None], pyarrow.list_(pyarrow.int32(), 2))
    column = from_arrow(pyarrow.ExtensionArray.from_storage(type_, storage)).root
    assert column.plan_tensor().kind == "impossible"
    with pytest.raises(BufferError, match="null"):
        column.to_tensor()
    with pytest.raises(BufferError):
        from_dlpack(numpy.zeros((2, 2), complex)).to_fixed_shape_column()
    with pytest.raises(ValueError, match="NUL"):
        from_dlpack(CUBE).to_fixed_shape_column("a\0b")


@pytest.mark.parametrize(
    "parameters, text",
    [
        ('{"shape":[3]}', "has shape .3., but lists of 2"),
        ('{"shape":[2],"permutation":[1]}', "permutation"),
        ('{"shape":"2"}', "no shape of numbers"),
        ("nonsense", "no shape of numbers"),
        ("", "no shape of numbers"),
    ],
)
def test_parameters_that_are_wrong(parameters, text):
    metadata = {"ARROW:extension:name": "arrow.fixed_shape_tensor", "ARROW:extension:metadata": parameters}
    values = pyarrow.array([[1, 2]], pyarrow.list_(pyarrow.int32(), 2))

    class Wrong:
        def __arrow_c_array__(self, requested_schema=None):
            field = pyarrow.field("t", values.type, metadata=metadata)
            return field.__arrow_c_schema__(), values.__arrow_c_array__()[1]

    column = from_arrow(Wrong()).root
    assert column.plan_tensor().kind == "impossible"
    with pytest.raises(BufferError, match=text):
        column.to_tensor()


class Endless(collections.abc.Sequence):
    """A sequence of the greatest possible length, which needs no memory for it."""

    def __init__(self, value):
        self.value = value

    def __len__(self):
        return sys.maxsize

    def __getitem__(self, index):
        return self.value


@pytest.mark.parametrize("names", [Endless("a"), ["a"] * 4])
def test_more_names_than_columns(names):
    with pytest.raises(InvalidType, match="more than 3 names for 3 columns"):
        from_dlpack(MATRIX).to_batch(names)


def test_no_more_names_are_read_than_a_batch_can_have_columns():
    with devexchange.empty((0, 2**21), "int8") as matrix:
        with pytest.raises(InvalidType, match=f"more than {2**20} names for {2**21} columns"):
            matrix.to_batch(Endless("a"))


@pytest.mark.parametrize("names", [range(10**13), range(9 * 10**18), Endless(1), [1], "abc", 1, {"a": 1}])
def test_names_that_are_none(names):
    with pytest.raises(TypeError, match="names (is|has) .*str was expected"):
        from_dlpack(MATRIX).to_batch(names)


@pytest.mark.parametrize("shape", [range(10**12), range(9 * 10**18), range(10**30), Endless(1), [1] * 65])
def test_shape_without_an_end(shape):
    for make in [devexchange.empty, ipc.empty_shared]:
        with pytest.raises(ValueError, match="shape has (.* extents: )?more than 64"):
            make(shape, "int8")


# --- threads ---

LARGE = numpy.ones((2048, 2048), "f4")


@pytest.mark.parametrize(
    "make, copy",
    [
        (lambda: from_dlpack(LARGE), lambda tensor: tensor.to_column(copy=True)),
        (lambda: from_dlpack(LARGE), lambda tensor: tensor.to_batch(copy=True)),
        (lambda: from_dlpack(LARGE), lambda tensor: tensor.to_fixed_shape_column(copy=True)),
        (lambda: from_arrow(pyarrow.array(LARGE.ravel())), lambda batch: batch.root.to_tensor(copy=True)),
        (lambda: from_arrow(pyarrow.array(LARGE.ravel() > 0)), lambda batch: numpy.asarray(batch.root)),
        (lambda: from_arrow(pyarrow.record_batch({"n": LARGE.ravel()})), lambda batch: batch.to_matrix(copy=True)),
    ],
    ids=["to_column", "to_batch", "to_fixed_shape_column", "to_tensor", "asarray", "to_matrix"],
)
def test_other_threads_run_while_a_copy_is_made(make, copy):
    """With a very long switch interval the other thread runs only where this one lets it."""
    source = make()
    turns, stop = 0, False

    def count():
        nonlocal turns
        while not stop:
            turns += 1
            time.sleep(0)

    def lets_it_run():
        before = turns
        copy(source)
        return turns > before

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    other = threading.Thread(target=count)
    other.start()
    try:
        # The other thread may be too late for one copy.
        soon(lets_it_run)
    finally:
        stop = True
        sys.setswitchinterval(interval)
        other.join()
