"""Streams of record batches from other libraries, and ours in those libraries."""

import threading

import nanoarrow
import pyarrow
import pytest
from test_arrow import batch, stream_of, table

import devexchange
from devexchange import BatchStream, from_arrow


def test_stream_of_pyarrow_and_back():
    ours = stream_of(batch(), batch().slice(2))
    assert isinstance(ours, BatchStream)
    assert (ours.device_type, ours.schema.names) == (1, table().schema.names)
    assert [each.to_pylist() for each in ours] == [batch().to_pylist(), batch().slice(2).to_pylist()]
    assert list(ours) == []
    for theirs in [pyarrow.RecordBatchReader.from_stream(stream_of(batch())), pyarrow.table(stream_of(batch()))]:
        assert (theirs.read_all() if hasattr(theirs, "read_all") else theirs).equals(table())


def test_batch_goes_as_a_stream_of_one():
    ours = from_arrow(batch())
    assert isinstance(from_arrow(ours), devexchange.RecordBatch)
    assert pyarrow.RecordBatchReader.from_stream(ours).read_all().equals(table())
    assert pyarrow.chunked_array(from_arrow(pyarrow.array([1, 2]))).to_pylist() == [1, 2]

    class DeviceOnly:
        def __arrow_c_device_stream__(self, requested_schema=None, **kwargs):
            return ours.__arrow_c_device_stream__(requested_schema, **kwargs)

    assert [each.to_pylist() for each in from_arrow(DeviceOnly())] == [batch().to_pylist()]


def test_columns_in_another_order_are_refused():
    """A consumer relies on the column names of the stream."""
    schema = pyarrow.schema([("price", pyarrow.int64()), ("cost", pyarrow.int64())])
    other = pyarrow.record_batch({"cost": [1], "price": [9]})
    stream = BatchStream.of(from_arrow(schema), [from_arrow(other)])
    with pytest.raises(devexchange.Error, match='column 0 is named "cost", the stream\'s "price"'):
        next(stream)


def test_table_and_chunked_array():
    assert next(from_arrow(table())).to_pylist() == table().to_pylist()
    chunks = pyarrow.chunked_array([[1, 2], [3]])
    assert [each.to_pylist() for each in from_arrow(chunks)] == [[1, 2], [3]]


def test_stream_of_nanoarrow_and_back():
    theirs = nanoarrow.ArrayStream(stream_of(batch(), batch()).__arrow_c_stream__.__self__)
    assert [len(each) for each in theirs.iter_chunks()] == [4, 4]
    ours = from_arrow(nanoarrow.c_array_stream(nanoarrow.c_array([1, 2], nanoarrow.int32())))
    assert [each.to_pylist() for each in ours] == [[1, 2]]


def test_device_stream_of_ours():
    class DeviceOnly:
        def __init__(self, stream):
            self.stream = stream

        def __arrow_c_device_stream__(self, requested_schema=None, **kwargs):
            return self.stream.__arrow_c_device_stream__(requested_schema, **kwargs)

    ours = from_arrow(DeviceOnly(stream_of(batch())))
    assert [each.to_pylist() for each in ours] == [batch().to_pylist()]
    with pytest.raises(NotImplementedError):
        stream_of().__arrow_c_device_stream__(stream=1)


def test_stream_of_batches_that_are_there():
    schema = from_arrow(table().schema)
    batches = [from_arrow(batch()), from_arrow(batch().slice(1))]
    stream = BatchStream.of(schema, batches)
    assert pyarrow.table(stream).num_rows == 7
    assert list(BatchStream.of(schema, [])) == []
    wrong = from_arrow(pyarrow.array([1]))
    with pytest.raises(devexchange.Error):
        list(BatchStream.of(schema, [wrong]))


def test_error_of_a_stream_stays_an_error():
    def batches():
        yield batch()
        raise OSError("the disk is gone")

    ours = from_arrow(pyarrow.RecordBatchReader.from_batches(table().schema, batches()))
    assert len(next(ours)) == 4
    for _ in range(2):
        with pytest.raises(devexchange.Failed, match="the disk is gone") as caught:
            next(ours)
        assert isinstance(caught.value, RuntimeError) and caught.value.status == 27


def test_stream_is_pulled_by_many_threads():
    ours, counted = stream_of(*[batch()] * 200), []

    def pull():
        while True:
            try:
                counted.append(len(next(ours)))
            except StopIteration:
                return
            except devexchange.Failed:
                pass

    threads = [threading.Thread(target=pull) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted == [4] * 200
