"""Asynchronous streams from and to foreign peers: those of the corpus, and some written with ctypes."""

import asyncio
import ctypes
import errno
import gc
import threading

import corpus
import pytest
from asynchronous import DEVX_BUSY, PATIENCE, SCHEMA, batch, run, thread_of, turns
from tables import address, helper

import devexchange
from devexchange import AsyncReader, AsyncWriter, InvalidValue, from_arrow

ASYNC_CASES = {name: i for name, i in corpus.cases().items() if corpus.text(i, "kind") == "async"}
# A reader that takes batches while they come has requested more of them.
del ASYNC_CASES["async: more tasks than were requested"]


@pytest.mark.parametrize("i", ASYNC_CASES.values(), ids=ASYNC_CASES.keys())
def test_foreign_producer_and_a_task(i):
    """The cases of the corpus with a task that waits before the producer begins; test_corpus.py reads them without a
    loop."""

    async def main():
        reader, loop = AsyncReader(abi_h_metadata=True), asyncio.get_running_loop()
        made = corpus._make(i)

        async def read():
            await reader.schema()
            return [len(each) async for each in reader]

        task = asyncio.create_task(read())
        await turns()
        # On another thread, like a real producer.
        await loop.run_in_executor(None, corpus._drive, made, reader.handler())
        found = (await asyncio.gather(task, return_exceptions=True))[0]
        wrong = corpus._after(made, bool(status) and corpus.text(i, "stage") == "import")
        reader.close()
        return made, found, wrong

    status = corpus.text(i, "status")
    made, found, wrong = run(main())
    if status:
        assert isinstance(found, devexchange.Error) and found.status_name == status, found
        assert corpus.text(i, "says") in str(found)
        found = None
    else:
        assert len(found) == corpus._batches(i)
    gc.collect()
    left = corpus._end(made)
    assert wrong is None and left is None, (wrong or left).decode()


@pytest.mark.parametrize("how", [0, 2, 3], ids=["refuses", "asks for what cannot be", "cancels"])
@pytest.mark.parametrize("waits", ["in a task", "in a thread"])
def test_foreign_consumer_that_fails(how, waits):
    """Each callback of the consumer fails once."""
    schema, rows = from_arrow(SCHEMA), from_arrow(batch(1, 2))

    async def give(writer):
        async with writer:
            writer.start(schema)
            for _ in range(3):
                await writer.ready()
                writer.send(rows)

    def give_in_thread(writer):
        with writer:
            writer.start(schema)
            for _ in range(3):
                writer.wait_until_ready(PATIENCE)
                writer.send(rows)

    failed, nth = 1, 0
    while failed:
        nth += 1
        consumer = corpus.consumer_make()
        writer = AsyncWriter(corpus.consumer_handler(consumer))
        corpus._callback_arm(nth, how)
        told = None
        try:
            if waits == "in a task":
                run(give(writer))
            else:
                give_in_thread(writer)
        except devexchange.Error as error:
            told = error.with_traceback(None)
        failed = corpus._callback_disarm()
        wrong = corpus.consumer_end(consumer)
        assert wrong is None, wrong.decode()
        if failed and corpus._callback_status():
            # After the end nobody is told of a cancel.
            assert told is None or told.status == corpus._callback_status(), (nth, told)
            assert told is not None or how == 3
            if told is not None:
                assert corpus._callback_says().decode() in str(told)
        else:
            assert told is None
    assert nth > 3


class Producer(ctypes.Structure):
    """The struct of ``abi.h``."""

    _fields_ = [
        ("device_type", ctypes.c_int32),
        ("request", ctypes.c_void_p),
        ("cancel", ctypes.c_void_p),
        ("additional_metadata", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    ]


class Handler(ctypes.Structure):
    _fields_ = [
        ("on_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)),
        ("on_next_task", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)),
        ("on_error", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)),
        ("release", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("producer", ctypes.POINTER(Producer)),
        ("private_data", ctypes.c_void_p),
    ]


class Consumer:
    """A consumer written in Python, whose callbacks run whatever a test wants while the writer calls them."""

    def __init__(self, demand=8, during=lambda: None):
        self.said, self.metadata, self.threads = [], [], set()
        request = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        extract = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

        def on_schema(_, schema):
            self.said.append("schema")
            producer = self.handler.producer
            self.metadata.append(producer.contents.additional_metadata)
            request(producer.contents.request)(ctypes.addressof(producer.contents), demand)
            return 0

        def on_next_task(_, task, metadata):
            self.threads.add(threading.get_ident())
            if task is None:
                self.said.append("end")
                return 0
            self.said.append("task")
            self.metadata.append(metadata)
            during()
            return extract(ctypes.c_void_p.from_address(task).value)(task, None)

        def on_error(_, code, text, metadata):
            self.said.append((code, text))
            self.metadata.append(metadata)

        def release(_):
            self.said.append("release")

        callbacks = [on_schema, on_next_task, on_error, release]
        self.handler = Handler(*(kind(each) for (_, kind), each in zip(Handler._fields_, callbacks, strict=False)))

    @property
    def address(self):
        return ctypes.addressof(self.handler)


def test_consumer_that_waits_for_a_thread_in_python():
    """The writer does not keep the GIL while it calls the consumer."""

    def during():
        thread = thread_of(lambda: None)
        thread.join(PATIENCE)
        assert not thread.is_alive()

    consumer = Consumer(during=during)
    with AsyncWriter(consumer.address) as writer:
        writer.start(SCHEMA)
        writer.send(batch(1))
    assert consumer.said == ["schema", "task", "end", "release"]
    assert consumer.threads == {threading.get_ident()}


def test_metadata_without_pairs_is_null():
    consumer = Consumer()
    with AsyncWriter(consumer.address, metadata={}) as writer:
        writer.start(SCHEMA)
        writer.send(batch(1), {})
        writer.fail(5, "why", {})
    assert consumer.metadata == [None, None, None]


@pytest.fixture
def waits():
    """The address of a callback that waits for a thread that runs Python, and the number of its calls."""
    count, in_vain = (ctypes.c_int.in_dll(helper, name) for name in ["stream_waits", "stream_waits_in_vain"])
    count.value = in_vain.value = 0
    yield address(helper.wait_for_python), count
    assert in_vain.value == 0


@pytest.mark.parametrize("end", ["cancel", "close", "forget"])
def test_reader_lets_its_producer_run_python(waits, end):
    wait, count = waits
    producer, schema = Producer(1, wait, wait, None, None), (ctypes.c_void_p * 9)()
    reader = AsyncReader(limit=0)
    handler = Handler.from_address(reader.handler())
    handler.producer = ctypes.pointer(producer)
    from_arrow(SCHEMA).export_arrow(ctypes.addressof(schema))
    assert handler.on_schema(ctypes.addressof(handler), ctypes.addressof(schema)) == 0
    reader.request(1)
    assert count.value == 1
    if end == "forget":
        del reader
    else:
        getattr(reader, end)()
    assert count.value == 2
    handler.release(ctypes.addressof(handler))


@pytest.mark.parametrize("end", [["finish"], ["fail", 5, "no"], ["close"], None], ids=["finish", "fail", "close", "forget"])
def test_writer_lets_its_consumer_run_python(waits, end):
    wait, count = waits
    callbacks = [address(helper.wait_and_take_schema), address(helper.wait_and_take_task), wait, wait]
    handler = Handler(*(kind(each) for (_, kind), each in zip(Handler._fields_, callbacks, strict=False)))
    writer = AsyncWriter(ctypes.addressof(handler))
    writer.start(SCHEMA)
    producer = handler.producer
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(producer.contents.request)(ctypes.addressof(producer.contents), 2)
    writer.send(batch(1))
    assert count.value == 2
    if end:
        getattr(writer, end[0])(*end[1:])
    del writer
    # The end or the error, and the release.
    assert count.value == 4


def within_a_callback():
    """A consumer whose callback runs on a thread of its writer until `go_on` is set."""
    entered, go_on = threading.Event(), threading.Event()

    def during():
        entered.set()
        assert go_on.wait(PATIENCE)

    consumer = Consumer(during=during)
    writer = AsyncWriter(consumer.address)
    writer.start(SCHEMA)
    thread = thread_of(writer.send, batch(1))
    assert entered.wait(PATIENCE)
    return consumer, writer, thread, go_on


def test_one_call_of_the_consumer_at_a_time():
    consumer, writer, thread, go_on = within_a_callback()
    for call in [lambda: writer.send(batch(2)), writer.finish, lambda: writer.fail(5, "no")]:
        with pytest.raises(devexchange.Failed, match="a callback of the consumer's is running") as busy:
            call()
        assert busy.value.status_name == DEVX_BUSY

    async def wait():
        task = asyncio.create_task(writer.ready())
        await asyncio.sleep(0.05)
        assert not task.done()
        go_on.set()
        await task

    run(wait())
    thread.join(PATIENCE)
    writer.send(batch(2))
    writer.finish()
    writer.close()
    assert consumer.said == ["schema", "task", "task", "end", "release"]


def test_writer_closed_while_it_calls_ends_after_that():
    consumer, writer, thread, go_on = within_a_callback()

    async def close():
        task = asyncio.create_task(writer.ready())
        await asyncio.sleep(0.05)
        writer.close()
        with pytest.raises(InvalidValue, match="the writer is closed"):
            await task

    run(close())
    assert consumer.said == ["schema", "task"]
    go_on.set()
    thread.join(PATIENCE)
    told = (errno.EPIPE, b"the producer went away before the end of the stream")
    assert consumer.said == ["schema", "task", told, "release"]


def test_wake_on_a_thread_that_python_does_not_know_while_python_is_busy():
    """A consumer that cancels on its own thread rings without the GIL."""
    consumer = Consumer(demand=1)
    writer = AsyncWriter(consumer.address)
    writer.start(SCHEMA)
    writer.send(batch(1))

    async def main():
        task = asyncio.create_task(writer.ready())
        await turns()
        producer = consumer.handler.producer.contents
        # Both calls return only after they have rung, and this thread keeps the GIL meanwhile.
        ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(producer.request)(ctypes.addressof(producer), 1)
        await task
        writer.send(batch(2))
        task = asyncio.create_task(writer.ready())
        await turns()
        ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(producer.cancel)(ctypes.addressof(producer))
        with pytest.raises(InvalidValue, match="the consumer cancelled"):
            await task

    run(main())
    writer.close()
    assert consumer.said == ["schema", "task", "task", "release"]
