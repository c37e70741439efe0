"""Asynchronous streams between our own ends: batches, back-pressure, metadata, ends and errors."""

import asyncio
import errno

import pyarrow
import pytest
from asynchronous import (
    DEVX_CALLBACK,
    DEVX_CLOSED,
    DEVX_NOT_READY,
    PATIENCE,
    SCHEMA,
    batch,
    numbers,
    produce,
    produce_in_thread,
    run,
    started,
    take_from_a_thread,
    thread_of,
    turns,
)
from soak import soak

import devexchange
from devexchange import AsyncReader, AsyncWriter, InvalidValue, ProducerError, RecordBatch, Refused, TimedOut, from_arrow


def test_tasks_at_both_ends():
    async def main():
        async with AsyncReader() as reader:
            writer = AsyncWriter(reader.handler())
            writer.start(SCHEMA)
            task = asyncio.create_task(produce(writer, 50))
            assert (await reader.schema()).names == ["n"]
            assert [type(each) async for each in reader] == [RecordBatch] * 50
            await task
            # The stream stays at its end.
            assert await reader.receive() is None and [each async for each in reader] == []
            assert (reader.device_type, reader.metadata, reader.producer_error) == (1, {}, None)

    run(main())


def test_threads_at_both_ends():
    with AsyncReader() as reader:
        thread = thread_of(produce_in_thread, started(reader), 50)
        assert reader.wait_for_schema().names == ["n"]
        assert numbers(reader) == list(range(50))
        assert reader.wait_for_batch(0) is None and list(reader) == []
        thread.join(PATIENCE)


def test_task_takes_what_a_thread_sends():
    assert run(take_from_a_thread(300)) == list(range(300))


def test_thread_takes_what_a_task_sends():
    taken = []
    reader = AsyncReader(limit=2)
    thread = thread_of(lambda: taken.extend(numbers(reader)))
    run(produce(started(reader), 300))
    thread.join(PATIENCE)
    reader.close()
    assert taken == list(range(300))


def test_loop_goes_on_while_a_task_waits():
    """Only a ring wakes the task; nothing is polled."""

    async def main():
        async with AsyncReader() as reader:
            asked, native = [], reader._native
            ask = native.try_next
            task = asyncio.create_task(reader._bell.until(lambda: asked.append(1) or ask()))
            await asyncio.sleep(0.2)
            assert len(asked) == 2 and not task.done()
            writer = started(reader)
            writer.send(batch(7))
            assert numbers([(await task).batch]) == [7]
            assert len(asked) < 6
            # A ring that was heard does not wake anybody again.
            asked.clear()
            task = asyncio.create_task(reader._bell.until(lambda: asked.append(1) or ask()))
            await asyncio.sleep(0.1)
            assert len(asked) < 5 and not task.done()
            writer.finish()
            assert await task is False

    run(main())


def test_back_pressure():
    with AsyncReader() as reader:
        writer = started(reader)
        assert writer.demand == 4
        for number in range(4):
            writer.send(batch(number))
        assert writer.demand == 0
        with pytest.raises(Refused, match="has not requested another batch") as refused:
            writer.send(batch(4))
        assert refused.value.status_name == DEVX_NOT_READY
        assert numbers([next(reader)]) == [0]
        assert writer.demand == 1
        writer.close()
    with AsyncReader(limit=0) as reader, started(reader) as writer:
        assert writer.demand == 0
        reader.request(2)
        reader.request(3)
        assert writer.demand == 5
        for n in [0, -1]:
            with pytest.raises(ValueError, match=f"n is {n}: it must be positive"):
                reader.request(n)
        with pytest.raises(IndexError):
            reader.request((1 << 63) - 1)
        with pytest.raises(ValueError, match=f"n is {1 << 63}: it must be between"):
            reader.request(1 << 63)
    for limit in [-1, 2**63]:
        with pytest.raises(ValueError, match=f"limit is {limit}: "):
            AsyncReader(limit=limit)


def test_batch_is_shared_and_outlives_the_stream():
    ours = from_arrow(batch(1, 2))
    address = ours["n"].to_tensor().data_ptr
    with AsyncReader() as reader, started(reader) as writer:
        writer.send(ours)
        received = reader.wait_for_batch(PATIENCE)
    assert received.batch["n"].to_tensor().data_ptr == address
    ours.close()
    assert numbers([received.batch]) == [1, 2]


def test_metadata():
    pairs = {"key": "value", "ключ": "", "": "\0", "bytes": b"\xff\x00\xfe".decode(errors="surrogateescape")}
    with AsyncReader(abi_h_metadata=True) as reader:
        assert (reader.device_type, reader.metadata) == (None, {})
        with AsyncWriter(reader.handler(), metadata=pairs) as writer:
            writer.start(SCHEMA)
            assert (reader.device_type, reader.metadata) == (1, pairs)
            writer.send(batch(1), pairs)
            writer.send(batch(2), metadata={})
            writer.send(batch(3))
        assert [reader.wait_for_batch(0).metadata for _ in range(3)] == [pairs, {}, {}]
    with AsyncReader() as reader, AsyncWriter(reader.handler(), metadata=pairs) as writer:
        writer.start(SCHEMA)
        assert reader.metadata == {}
        for wrong, kind, text in [
            ([("a", "b")], TypeError, "metadata is of <class 'list'>: a mapping of texts is needed"),
            ({"a": 1}, TypeError, "metadata has <class 'int'>: a str is needed"),
            ({b"a": "b"}, TypeError, "metadata has <class 'bytes'>: a str is needed"),
            ({"a": "\ud800"}, InvalidValue, "metadata has .*: not valid Unicode"),
        ]:
            with pytest.raises(kind, match=text):
                writer.send(batch(1), wrong)
            with pytest.raises(kind, match=text):
                writer.fail(5, "why", wrong)
        assert writer.demand == 4


def test_soak_of_both_ends():
    """Nothing is left after many exchanges."""
    rows = from_arrow(batch(1))

    def exchange():
        with AsyncReader() as reader:
            with started(reader) as writer:
                writer.send(rows, {"a": "b"})
            assert len(list(reader)) == 1

    soak("asynchronous stream", exchange, 3000)


# --- ends and errors ---


def test_error_comes_after_the_batches_once():
    async def main():
        async with AsyncReader() as reader:
            writer = started(reader)
            writer.send(batch(1))
            writer.fail(errno.ENOSPC, "the disk is füll", {"disk": "sda"})
            assert reader.producer_error == ProducerError(errno.ENOSPC, {"disk": "sda"})
            assert numbers([await anext(reader)]) == [1]
            with pytest.raises(devexchange.Failed, match="error 28: the disk is füll") as caught:
                await anext(reader)
            assert caught.value.status_name == DEVX_CALLBACK
            assert await reader.receive() is None
        # The error is still known, although the reader is closed.
        assert reader.producer_error.code == errno.ENOSPC and reader.device_type == 1

    run(main())


@pytest.mark.parametrize("how", ["await", "thread"])
def test_error_before_the_schema(how):
    async def main():
        with AsyncReader() as reader:
            writer = AsyncWriter(reader.handler())
            task = asyncio.create_task(reader.schema() if how == "await" else asyncio.to_thread(reader.wait_for_schema))
            await turns()
            with pytest.raises(ValueError, match="code is 0"):
                writer.fail(0, "nothing")
            writer.fail(5, "no schema")
            with pytest.raises(devexchange.Failed, match="no schema"):
                await task

    run(main())


def test_writer_that_goes_away_tells_the_consumer():
    for end in ["closed", "dropped", "closed unstarted"]:
        with AsyncReader() as reader:
            writer = AsyncWriter(reader.handler())
            if end != "closed unstarted":
                writer.start(SCHEMA)
            if end == "dropped":
                del writer
            else:
                writer.close()
                writer.close()
                for call in [writer.finish, lambda w=writer: w.send(batch(1)), lambda w=writer: w.demand]:
                    with pytest.raises(InvalidValue, match="the writer is closed"):
                        call()
            assert reader.producer_error == (errno.EPIPE, {})
            with pytest.raises(devexchange.Failed, match="the producer went away"):
                next(reader)


def test_end_of_a_block():
    with AsyncReader() as reader:
        with pytest.raises(OSError, match="the disk is gone"), started(reader):
            raise OSError("the disk is gone")
        assert reader.producer_error.code == errno.EIO
        with pytest.raises(devexchange.Failed, match="OSError: the disk is gone"):
            next(reader)
    # A stream that was ended within the block stays ended.
    with AsyncReader() as reader:
        with started(reader) as writer:
            writer.finish()
        assert list(reader) == []
    with AsyncReader() as reader:
        with pytest.raises(ZeroDivisionError), started(reader) as writer:
            writer.fail(7, "mine")
            raise ZeroDivisionError
        assert reader.producer_error.code == 7
    with AsyncReader() as reader, pytest.raises(InvalidValue, match="was not started"), AsyncWriter(reader.handler()):
        pass
    assert reader.producer_error.code == errno.EPIPE

    class Unprintable(Exception):
        def __str__(self):
            raise ValueError("\ud800")

    with AsyncReader() as reader:
        with pytest.raises(Unprintable), started(reader):
            raise Unprintable
        with pytest.raises(devexchange.Failed, match="Unprintable"):
            next(reader)
    # The consumer gets the text of the exception and nothing around it.
    with AsyncReader() as reader:
        with pytest.raises(RuntimeError, match="half"), started(reader):
            raise RuntimeError("half a pair: \ud800")
        with pytest.raises(devexchange.Failed, match=r"error 5: RuntimeError: half a pair: \?\Z"):
            next(reader)
    # What is no Exception ends the stream with an error, too.
    with AsyncReader() as reader:
        with pytest.raises(asyncio.CancelledError), started(reader):
            raise asyncio.CancelledError
        assert reader.producer_error.code == errno.EIO
        reader.cancel()
    # The exception of the block goes on, although the stream cannot be ended with an error.
    with AsyncReader() as reader, pytest.raises(ZeroDivisionError), started(reader) as writer:
        writer.close()
        raise ZeroDivisionError


def test_end_of_a_block_closes():
    async def main():
        async with AsyncReader() as reader:
            return reader

    with AsyncReader() as reader:
        pass
    for each in [reader, run(main())]:
        with pytest.raises(InvalidValue, match="the reader is closed"):
            each.handler()
    with AsyncReader() as reader:
        with pytest.raises(InvalidValue, match="was not started"), AsyncWriter(reader.handler()) as writer:
            pass
        with pytest.raises(InvalidValue, match="the writer is closed"):
            _ = writer.demand


def test_cancelled_producer():
    async def main():
        with AsyncReader() as reader:
            writer = started(reader)
            task = asyncio.create_task(produce(writer, 1000))
            assert numbers([await anext(reader)]) == [0]
            reader.cancel()
            reader.cancel()
            assert await reader.receive() is None
            with pytest.raises(InvalidValue, match="the consumer cancelled") as caught:
                await task
            assert caught.value.status_name == DEVX_CLOSED
            assert reader.producer_error is None
        # The writer is not started, so the schema never comes.
        with AsyncReader() as reader:
            reader.cancel()
            with pytest.raises(InvalidValue, match="cancelled before its schema came"):
                await reader.schema()
            writer = AsyncWriter(reader.handler())
            with pytest.raises(devexchange.Error):
                writer.start(SCHEMA)

    run(main())


def test_cancelled_producer_that_does_not_wait():
    with AsyncReader() as reader:
        writer = started(reader)
        reader.close()
        assert writer.is_cancelled and writer.demand == 0
        with pytest.raises(InvalidValue, match="the consumer cancelled"):
            writer.send(batch(1))
        # Finishing is allowed.
        writer.finish()
        with pytest.raises(InvalidValue, match="the writer is closed"):
            writer.finish()


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_end_reaches_those_who_wait(end):
    async def main():
        reader = AsyncReader()
        writer = started(reader)
        tasks = [asyncio.create_task(reader.receive()) for _ in range(3)]
        tasks.append(asyncio.create_task(asyncio.to_thread(reader.wait_for_batch)))
        await asyncio.sleep(0.05)
        getattr(reader, end)()
        assert await asyncio.gather(*tasks) == [None] * 4
        reader.close()
        writer.close()
        # The same for tasks that wait for a writer.
        reader = AsyncReader(limit=0)
        writer = started(reader)
        tasks = [asyncio.create_task(writer.ready()), asyncio.create_task(asyncio.to_thread(writer.wait_until_ready))]
        await asyncio.sleep(0.05)
        (reader.cancel if end == "cancel" else writer.close)()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [each.status_name for each in ends] == [DEVX_CLOSED] * 2
        writer.close()
        reader.close()

    run(main())


def test_closed_reader():
    reader = AsyncReader()
    repr(reader)
    writer = started(reader)
    writer.send(batch(1))
    reader.close()
    reader.close()
    reader.cancel()
    writer.close()
    assert list(reader) == [] and reader.wait_for_batch() is None and run(reader.receive()) is None
    for call in [reader.handler, lambda: reader.request(1), reader.wait_for_schema, lambda: run(reader.schema())]:
        with pytest.raises(InvalidValue, match="the reader is closed"):
            call()


def test_timeouts():
    with AsyncReader(limit=0) as reader:
        writer = AsyncWriter(reader.handler())
        with pytest.raises(TimedOut, match="timeout is 0.01: the schema has not come"):
            reader.wait_for_schema(0.01)
        writer.start(from_arrow(SCHEMA))
        nothing = [
            (reader.wait_for_batch, "no batch has come"),
            (writer.wait_until_ready, "the consumer has requested no batch"),
        ]
        for wait, text in nothing:
            with pytest.raises(TimeoutError, match=f"timeout is 0.01: {text}") as late:
                wait(0.01)
            assert (type(late.value), late.value.status_name) == (TimedOut, DEVX_NOT_READY)
        writer.finish()


def test_misuse():
    with AsyncReader() as reader:
        writer = AsyncWriter(reader.handler())
        with pytest.raises(InvalidValue, match="handed out already"):
            reader.handler()
        for early in [writer.finish, lambda: writer.send(batch(1)), lambda: run(writer.ready())]:
            with pytest.raises(InvalidValue, match="was not started"):
                early()
        with pytest.raises(TypeError, match="no __arrow_c_schema__"):
            writer.start(3)
        writer.start(from_arrow(SCHEMA))
        with pytest.raises(InvalidValue, match="started already"):
            writer.start(SCHEMA)
        with pytest.raises(TypeError, match="batch is of <class 'int'>"):
            writer.send(3)
        with pytest.raises(TypeError):
            writer.send(pyarrow.record_batch({"other": ["text"]}))
        for timeout in [-1.0, float("nan")]:
            with pytest.raises(InvalidValue, match=r"timeout is (-1|NaN): not a number of seconds"):
                reader.wait_for_batch(timeout)
        writer.finish()
    with pytest.raises(InvalidValue, match="handler is NULL"):
        AsyncWriter(0)
    with AsyncReader() as reader:
        handler = reader.handler()
        with pytest.raises(Refused):
            AsyncWriter(handler, device_type=77)
        with pytest.raises(TypeError, match="a mapping"):
            AsyncWriter(handler, metadata=3)
        # The handler is untouched.
        AsyncWriter(handler).close()
        assert reader.producer_error.code == errno.EPIPE
