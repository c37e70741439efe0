"""Rows of a batch, single columns of it, and batches made of columns, compared with PyArrow."""

import nanoarrow
import numpy
import pyarrow
import pytest

import devexchange
from devexchange import Column, RecordBatch, from_arrow


def batch():
    columns = {
        "number": pyarrow.array([1, None, 3, 4], pyarrow.int64()),
        "text": pyarrow.array(["a", "b", None, "dd"]),
        "flag": pyarrow.array([True, None, False, True]),
        "list": pyarrow.array([[1, 2], [], None, [3]], pyarrow.list_(pyarrow.int32())),
        "struct": pyarrow.array([{"x": 1.5}, {"x": None}, None, {"x": 2.5}]),
        "whole": pyarrow.array([{"x": 1.5, "y": "a"}, {"x": None, "y": "b"}, {"x": 2.5, "y": None}, {"x": 3.5, "y": "d"}]),
        "dictionary": pyarrow.array(["u", "v", "u", None]).dictionary_encode(),
        "fixed": pyarrow.array([[1, 2], [3, 4], None, [7, 8]], pyarrow.list_(pyarrow.int16(), 2)),
        "view": pyarrow.array(["a", None, "a text that is too long", "d"], pyarrow.string_view()),
        "null": pyarrow.nulls(4),
    }
    return pyarrow.record_batch(columns)


RANGES = [(0, 4), (1, 2), (0, 0), (3, 1), (4, 0)]


@pytest.mark.parametrize(("offset", "length"), RANGES)
def test_rows_of_a_batch(offset, length):
    theirs = batch()
    ours = from_arrow(theirs).slice(offset, length)
    assert isinstance(ours, RecordBatch)
    # PyArrow does not accept a record batch with an offset.
    back = pyarrow.record_batch(ours)
    back.validate(full=True)
    assert back.equals(theirs.slice(offset, length))
    assert ours.to_pylist() == theirs.slice(offset, length).to_pylist()
    assert pyarrow.record_batch(ours.slice(length // 2)).equals(theirs.slice(offset + length // 2, length - length // 2))


@pytest.mark.parametrize(("offset", "length"), RANGES)
def test_columns_by_themselves(offset, length):
    theirs = batch()
    for name, column in zip(theirs.schema.names, from_arrow(theirs), strict=True):
        rows = column.slice(offset, length)
        assert isinstance(rows, Column)
        for array in (pyarrow.array(rows), pyarrow.array(rows.share())):
            array.validate(full=True)
            assert array.equals(theirs[name].slice(offset, length)), name
        assert rows.to_pylist() == theirs[name].slice(offset, length).to_pylist()
        # nanoarrow 0.9 does not read dictionaries, and crashes on views, even those of PyArrow.
        if name not in ("dictionary", "view"):
            assert nanoarrow.Array(rows).to_pylist() == rows.to_pylist()


def test_exception_of_a_number_goes_on():
    class Broken:
        def __index__(self):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        from_arrow(batch()).slice(Broken())


def test_nothing_is_copied_and_the_memory_is_kept():
    theirs = pyarrow.record_batch({"n": pyarrow.array(range(1000))})
    column = from_arrow(theirs)["n"][10:20]
    address = theirs["n"].buffers()[1].address
    del theirs
    array = pyarrow.array(column)
    del column
    assert array.buffers()[1].address == address
    assert array.to_pylist() == list(range(10, 20))
    del array
    assert devexchange.outstanding() == 0


def test_slices_as_of_any_sequence():
    column = from_arrow(pyarrow.record_batch({"n": [10, 11, 12, 13]}))["n"]
    values = [10, 11, 12, 13]
    for rows in (slice(None), slice(1, 3), slice(-2, None), slice(3, 1), slice(2, 99), slice(0, 4, 1), slice(None, -1)):
        assert list(column[rows]) == values[rows]
    assert numpy.asarray(column[1:3]).tolist() == [11, 12]
    with pytest.raises(ValueError, match="step is 2: the rows of a column follow each other"):
        column[::2]
    with pytest.raises(TypeError):
        column["n"]


def test_rows_of_a_batch_as_of_any_sequence():
    theirs = pyarrow.record_batch({"n": [10, 11, 12, 13]})
    ours = from_arrow(theirs)
    for rows in (slice(None), slice(1, 3), slice(-2, None), slice(3, 1), slice(2, 99), slice(None, -1)):
        assert isinstance(ours[rows], RecordBatch)
        assert ours[rows].to_pylist() == theirs.to_pylist()[rows]
    with pytest.raises(ValueError, match="step is -1: the rows of a batch follow each other"):
        ours[::-1]
    for wrong in (["n"], 1.5, None):
        with pytest.raises(TypeError, match="^column is .*: an int or a str was expected; RecordBatch.of makes"):
            ours[wrong]


def test_rows_that_are_not_there():
    ours = from_arrow(pyarrow.record_batch({"n": [10, 11, 12, 13]}))
    for part in (ours, ours["n"]):
        assert len(part.slice()) == 4
        assert len(part.slice(3)) == 1
        assert len(part.slice(length=2)) == 2
        with pytest.raises(IndexError, match="offset is 3 and length is 2: there are 4 rows"):
            part.slice(3, 2)
        with pytest.raises(IndexError, match="offset is 9 and length is 0: there are 4 rows"):
            part.slice(9)
        with pytest.raises(ValueError, match="offset is -1"):
            part.slice(-1)
        with pytest.raises(ValueError, match="length is 9223372036854775808"):
            part.slice(0, 2**63)
        with pytest.raises(TypeError, match="offset is 'a': an int was expected"):
            part.slice("a")
    ours.close()
    with pytest.raises(devexchange.Error, match="closed"):
        ours.slice(0, 1)


def test_parts_of_a_tensor():
    values = numpy.arange(24, dtype="f4").reshape(2, 3, 4)
    whole = devexchange.from_dlpack(values)
    for dimension, offset, length in [(0, 1, 1), (1, 0, 2), (2, 2, None), (2, 4, 0), (1, 0, 3)]:
        part = whole.slice(dimension, offset, length)
        stop = None if length is None else offset + length
        expected = values[(slice(None),) * dimension + (slice(offset, stop),)]
        seen = numpy.from_dlpack(part)
        numpy.testing.assert_array_equal(seen, expected)
        assert part.shape == expected.shape
        assert not seen.size or (numpy.shares_memory(seen, values) and seen.ctypes.data == expected.ctypes.data)
    last = whole.slice(0, 1).slice(1, 2).slice(-1, 3)
    address = values.ctypes.data
    del values, whole, part, expected, seen
    assert (numpy.from_dlpack(last).item(), last.data_ptr) == (23.0, address + 23 * 4)


def test_parts_that_a_tensor_has_not():
    whole = devexchange.empty((2, 3), "int32")
    with pytest.raises(IndexError, match="dimension is 2: the tensor has 2"):
        whole.slice(2)
    for beyond in (-3, -(2**63)):
        with pytest.raises(IndexError, match=f"dimension is {beyond}: the tensor has 2"):
            whole.slice(beyond)
    with pytest.raises(IndexError, match="offset is 1 and length is 2: dimension 0 has an extent of 2"):
        whole.slice(0, 1, 2)
    with pytest.raises(IndexError, match="offset is 4 and length is 0: dimension 1 has an extent of 3"):
        whole.slice(1, 4)


def test_some_columns_of_a_batch():
    theirs = batch()
    ours = from_arrow(theirs)
    some = RecordBatch.of({name: ours[name] for name in ("view", "number", "whole")})
    ours.close()
    assert pyarrow.record_batch(some).equals(theirs.select(["view", "number", "whole"]))


def test_a_batch_of_columns_of_anybody():
    number = pyarrow.array([1, 2, 3])
    ours = from_arrow(pyarrow.record_batch({"t": ["a", "b", "c"]}))
    both = RecordBatch.of([("n", number), ("", ours), ("n", ours["t"])])
    assert both.names == ["n", "", "n"]
    assert [column.to_pylist() for column in both] == [[1, 2, 3], [{"t": "a"}, {"t": "b"}, {"t": "c"}], ["a", "b", "c"]]


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ({}, ValueError, "there is no column"),
        ({"n": pyarrow.array([1]), "m": pyarrow.array([1, 2])}, ValueError, 'column "m" has length 2, the first one has 1'),
        ({"n": numpy.arange(2)}, TypeError, "column \"n\" is of <class 'numpy.ndarray'>: .* to_column of a Tensor makes one"),
        ({"n": [1, 2]}, TypeError, "column \"n\" is of <class 'list'>: neither a RecordBatch nor"),
        ({"n": pyarrow.chunked_array([[1]])}, TypeError, "ChunkedArray'>: it has only __arrow_c_stream__, of which from_arrow"),
        ({1: pyarrow.array([1])}, TypeError, "columns has 1: a str was expected"),
        ([pyarrow.array([1, 2, 3])], TypeError, "columns has "),
        (7, TypeError, "not iterable"),
        ({"n\0": pyarrow.array([1])}, ValueError, "has a NUL byte in it"),
    ],
)
def test_columns_that_make_no_batch(columns, error, text):
    with pytest.raises(error, match=text):
        RecordBatch.of(columns)
    assert devexchange.outstanding() == 0


def test_tensor_is_no_column_by_itself():
    tensor = devexchange.from_dlpack(numpy.arange(3))
    with pytest.raises(TypeError, match="is of <class 'devexchange.Tensor'>: .*; to_column of a Tensor makes one"):
        RecordBatch.of({"n": tensor})
    assert RecordBatch.of({"n": tensor.to_column()})["n"].to_pylist() == [0, 1, 2]
