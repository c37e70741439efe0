"""Streams that Python feeds, matrices and fixed-shape tensors, in device memory."""

import asyncio

import driver
import numpy
import pyarrow
import pytest
from test_cuda import CPU, CUDA, VALUES, read

from devexchange import AsyncReader, AsyncWriter, BatchStream, RecordBatch, from_arrow, from_dlpack

MATRIX = numpy.asfortranarray(VALUES)


def read_columns(matrix, stream):
    """Reads the elements of a column-major matrix with work on a stream that waits for them."""
    matrix.wait(stream)
    elements = driver.download(matrix.data_ptr, matrix.nbytes, stream)
    matrix.used_on(stream)
    return elements.view("f4").reshape(matrix.shape, order="F")


def on_device(cuda, numbers):
    return from_arrow(pyarrow.record_batch({"n": numbers})).copy_to(CUDA, cuda.producer)


def test_stream_waits_for_a_batch_and_is_waited_for(cuda):
    batch = on_device(cuda, [1, 2, 3])
    column = batch["n"].to_tensor()
    batch.wait(cuda.consumer)
    numbers = driver.download(column.data_ptr, column.nbytes, cuda.consumer)
    batch.used_on(cuda.consumer)
    column.close()
    batch.close()
    assert numbers.view("i8").tolist() == [1, 2, 3]


def test_generator_of_batches_on_the_device(cuda):
    given = []

    def batches():
        for number in range(3):
            given.append(number)
            yield on_device(cuda, [number])

    schema = pyarrow.schema([("n", pyarrow.int64())])
    ours = BatchStream.of(schema, batches(), device_type=CUDA[0])
    assert (ours.device_type, given) == (2, [])
    again = from_arrow(ours)
    assert next(again).copy_to(CPU, cuda.consumer).to_pylist() == [{"n": 0}]
    assert given == [0]
    assert [each.copy_to(CPU, cuda.consumer).to_pylist() for each in again] == [[{"n": 1}], [{"n": 2}]]


def test_batch_on_another_device_than_its_stream_is_refused(cuda):
    batch = on_device(cuda, [1])
    with pytest.raises(BufferError, match=r"device_type is cuda .2.: the stream's is cpu"):
        next(BatchStream.of(batch.schema, [batch]))
    host = from_arrow(pyarrow.record_batch({"n": [1]}))
    with pytest.raises(BufferError, match=r"device_type is cpu .1.: the stream's is cuda"):
        next(BatchStream.of(batch.schema, [host], device_type=2))


def test_asynchronous_stream_on_the_device(cuda):
    schema = pyarrow.schema([("n", pyarrow.int64())])

    async def produce(handler):
        async with AsyncWriter(handler, device_type=CUDA[0]) as writer:
            writer.start(schema)
            with pytest.raises(BufferError, match=r"device_type is cpu .1.: the stream's is cuda"):
                writer.send(pyarrow.record_batch({"n": [1]}))
            for number in range(3):
                await writer.ready()
                # The work that fills the batch is still queued.
                writer.send(on_device(cuda, [number]))

    async def consume():
        async with AsyncReader(limit=1) as reader:
            producer = asyncio.create_task(produce(reader.handler()))
            rows = [each.copy_to(CPU, cuda.consumer).to_pylist() async for each in reader]
            await producer
            assert reader.device_type == CUDA[0]
            return rows

    assert asyncio.run(consume()) == [[{"n": 0}], [{"n": 1}], [{"n": 2}]]


def test_matrix_on_the_device_as_a_batch_and_back(cuda):
    host = from_dlpack(MATRIX).to_batch(list("abcdef"))
    there = host.copy_to(CUDA, cuda.producer)
    matrix = there.to_matrix(copy=True, stream=cuda.consumer)
    assert (matrix.device, matrix.shape, matrix.strides, matrix.is_copied) == (CUDA, (4, 6), (1, 4), True)
    batch = matrix.to_batch(list("abcdef"), copy=False)
    assert batch.device == CUDA
    assert batch.plan_matrix() == ("view", 0, "")
    again = batch.to_matrix(copy=False)
    assert again.data_ptr == matrix.data_ptr
    there.close()
    assert batch.copy_to(CPU, cuda.consumer).to_pylist() == host.to_pylist()
    numpy.testing.assert_array_equal(read_columns(again, cuda.consumer), VALUES)


def test_copy_of_columns_is_queued_on_the_legacy_stream_without_another(cuda):
    there = from_arrow(pyarrow.record_batch({"a": VALUES.ravel(), "b": -VALUES.ravel()})).copy_to(CUDA, cuda.producer)
    numpy.testing.assert_array_equal(
        read_columns(there.to_matrix(copy=True), cuda.consumer), numpy.stack([VALUES.ravel(), -VALUES.ravel()], 1)
    )


def test_fixed_shape_column_on_the_device(cuda):
    cube = numpy.arange(24, dtype="f4").reshape(2, 3, 4)
    there = from_dlpack(cube, device=CUDA, stream=cuda.producer)
    column = there.to_fixed_shape_column("tensors", copy=False)
    assert (column.device, column.root.format) == (CUDA, "+w:12")
    back = column.root.to_tensor(copy=False)
    there.close()
    column.close()
    numpy.testing.assert_array_equal(read(back, cuda.consumer), cube)


def test_part_of_a_tensor_on_the_device(cuda):
    there = from_dlpack(VALUES, device=CUDA, stream=cuda.producer)
    part = there.slice(0, 1).slice(0, 1)
    there.close()
    assert part.device == CUDA
    numpy.testing.assert_array_equal(read(part, cuda.consumer), VALUES[2:])


def test_parts_of_a_batch_on_the_device(cuda):
    there = from_arrow(pyarrow.record_batch({"n": [1, 2, 3, 4], "t": ["a", "b", None, "d"]}))
    there = there.copy_to(CUDA, cuda.producer)
    text = there["t"][1:3]
    assert from_arrow(text).device == CUDA
    with pytest.raises(BufferError, match="device is cuda:0: a plain ArrowArray is host memory"):
        text.__arrow_c_array__()
    with pytest.raises(BufferError, match="the columns are not ready, and there is no stream to order them"):
        RecordBatch.of({"t": text})
    both = RecordBatch.of({"t": text, "n": there.slice(2)["n"]}, stream=cuda.consumer)
    there.close()
    del there, text
    assert both.copy_to(CPU, cuda.consumer).to_pylist() == [{"t": "b", "n": 3}, {"t": None, "n": 4}]
