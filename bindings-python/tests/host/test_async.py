"""Asynchronous streams: tasks of asyncio and threads at both ends, and peers that are none of ours."""

import asyncio
import ctypes
import errno
import gc
import importlib.util
import os
import resource
import selectors
import subprocess
import sys
import threading
import weakref

import corpus
import pyarrow
import pytest
from soak import soak

import devexchange
from devexchange import AsyncReader, AsyncWriter, InvalidValue, ProducerError, RecordBatch, Refused, from_arrow

SCHEMA = pyarrow.schema([("n", pyarrow.int64())])
DEVX_CALLBACK, DEVX_CLOSED, DEVX_NOT_READY, DEVX_BUSY = "DEVX_CALLBACK", "DEVX_CLOSED", "DEVX_NOT_READY", "DEVX_BUSY"
#: A wait that is not ended is a failure, and no hang.
PATIENCE = 20


def batch(*numbers):
    return pyarrow.record_batch({"n": list(numbers)}, schema=SCHEMA)


def numbers(batches):
    return [row["n"] for each in batches for row in each.to_pylist()]


def run(main):
    return asyncio.run(asyncio.wait_for(main, PATIENCE))


async def turns(n=5):
    """Lets the other tasks go on until they wait."""
    for _ in range(n):
        await asyncio.sleep(0)


def started(reader, **keywords):
    writer = AsyncWriter(reader.handler(), **keywords)
    writer.start(SCHEMA)
    return writer


async def produce(writer, stop):
    async with writer:
        for number in range(stop):
            await writer.ready()
            writer.send(batch(number))


def produce_in_thread(writer, stop):
    with writer:
        for number in range(stop):
            writer.wait_until_ready(PATIENCE)
            writer.send(batch(number))


def thread_of(function, *arguments):
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def descriptors():
    # Not those of what ended before.
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


# --- both ends ---


def test_tasks_at_both_ends():
    async def main():
        async with AsyncReader() as reader:
            writer = AsyncWriter(reader.handler())
            writer.start(SCHEMA)
            task = asyncio.create_task(produce(writer, 50))
            assert (await reader.schema()).names == ["n"]
            assert [type(each) async for each in reader] == [RecordBatch] * 50
            await task
            # The end stays the end.
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
    async def main():
        async with AsyncReader(limit=1) as reader:
            thread = thread_of(produce_in_thread, started(reader), 300)
            taken = [each.to_pylist()[0]["n"] async for each in reader]
            thread.join(PATIENCE)
            return taken

    assert run(main()) == list(range(300))


def test_thread_takes_what_a_task_sends():
    taken = []
    reader = AsyncReader(limit=2)
    thread = thread_of(lambda: taken.extend(numbers(reader)))
    run(produce(started(reader), 300))
    thread.join(PATIENCE)
    reader.close()
    assert taken == list(range(300))


def test_loop_goes_on_while_a_task_waits():
    """A ring is all that wakes it: nothing is asked again and again."""

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
            # A ring is over when it was heard.
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
    with pytest.raises(ValueError, match="limit is -1"):
        AsyncReader(limit=-1)


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
        # It is known, although the reader is closed.
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
    # What was ended within it stays so.
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
        # Not started, so the schema never comes.
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
        # This is fine.
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
        # A writer's, too.
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
        with pytest.raises(Refused) as refused:
            reader.wait_for_batch(0.01)
        assert refused.value.status_name == DEVX_NOT_READY
        writer.finish()
    with pytest.raises(InvalidValue, match="handler is NULL"):
        AsyncWriter(0)
    with AsyncReader() as reader:
        handler = reader.handler()
        with pytest.raises(Refused):
            AsyncWriter(handler, device_type=77)
        with pytest.raises(TypeError, match="a mapping"):
            AsyncWriter(handler, metadata=3)
        # It is untouched.
        AsyncWriter(handler).close()
        assert reader.producer_error.code == errno.EPIPE


# --- who waits, and where ---


def test_cancelled_task_loses_nothing():
    async def main():
        async with AsyncReader() as reader:
            writer = started(reader)
            for round in range(20):
                task = asyncio.create_task(reader.receive())
                await turns()
                # The ring is on its way, and so is the cancelling.
                writer.send(batch(round))
                if round % 2:
                    await turns(1)
                task.cancel()
                received = (await asyncio.gather(task, return_exceptions=True))[0]
                if isinstance(received, asyncio.CancelledError):
                    received = await reader.receive()
                assert numbers([received.batch]) == [round]
            writer.finish()

    run(main())


def test_several_tasks_share_the_batches():
    async def main():
        async with AsyncReader() as reader:
            writer, taken = started(reader), []

            async def take():
                async for each in reader:
                    taken.extend(numbers([each]))
                    await asyncio.sleep(0)

            # One that waits for something else takes no ring from them.
            schema = asyncio.create_task(reader.schema())
            tasks = [asyncio.create_task(take()) for _ in range(5)]
            await turns()
            await produce(writer, 200)
            await asyncio.gather(schema, *tasks)
            assert sorted(taken) == list(range(200))

    run(main())


def test_several_loops_and_threads_at_once():
    reader, taken, ended = AsyncReader(), [], []

    async def take():
        async for each in reader:
            taken.extend(numbers([each]))

    async def two():
        await asyncio.gather(take(), take())
        ended.append(1)

    def take_in_thread():
        taken.extend(numbers(reader))
        ended.append(1)

    threads = [thread_of(lambda: run(two())) for _ in range(3)] + [thread_of(take_in_thread)]
    produce_in_thread(started(reader), 2000)
    for thread in threads:
        thread.join(PATIENCE)
    reader.close()
    assert sorted(taken) == list(range(2000)) and len(ended) == 4


def test_ring_that_another_loop_hears():
    """Two loops wait for different things; whichever hears the ring tells the other."""

    async def receive(reader):
        return (await reader.receive()).batch

    async def schema(reader):
        return await reader.schema()

    waits = [receive, schema]
    for _ in range(30):
        reader, found = AsyncReader(), []
        threads = [thread_of(lambda wait, *it: it[1].append(run(wait(it[0]))), wait, reader, found) for wait in waits]
        while len(reader._bell._waiting) < 2:
            assert all(thread.is_alive() for thread in threads)
        writer = started(reader)
        writer.send(batch(1))
        for thread in threads:
            thread.join(PATIENCE)
        assert len(found) == 2
        writer.close()
        reader.close()


def test_loops_one_after_the_other():
    before = descriptors()
    with AsyncReader() as reader:
        writer = started(reader)
        for number in range(5):
            thread = threading.Timer(0.01, writer.send, [batch(number)])
            thread.start()
            assert numbers([run(reader.receive()).batch]) == [number]
            thread.join()
        writer.finish()
        assert run(reader.receive()) is None
    del reader, writer, thread
    assert descriptors() == before


@pytest.mark.parametrize("closed", [True, False])
def test_abandoned_loop(closed):
    """Its task is never told; the reader goes on elsewhere, and all of it ends."""
    before = descriptors()
    reader = AsyncReader()
    writer = started(reader)
    loop = asyncio.new_event_loop()
    task = loop.create_task(reader.receive())
    loop.run_until_complete(turns())
    assert not task.done()
    if closed:
        loop.close()
    writer.send(batch(1))
    assert numbers([run(reader.receive()).batch]) == [1]
    if not closed:
        # It is still good, and its task gets the next batch.
        writer.send(batch(2))
        assert numbers([loop.run_until_complete(task).batch]) == [2]
        task = loop.create_task(reader.receive())
        loop.run_until_complete(turns())
    seen = weakref.ref(reader)
    task._log_destroy_pending = False
    del task, reader
    if not closed:
        loop.close()
    del loop
    gc.collect()
    assert seen() is None and writer.is_cancelled
    writer.close()
    del writer
    assert descriptors() == before


def test_unclosed_ends_are_collected():
    before = descriptors()
    for _ in range(20):
        reader = AsyncReader()
        writer = started(reader)
        writer.send(batch(1))
        # A cycle.
        cycle = [reader, writer]
        cycle.append(cycle)
        del reader, writer, cycle
    assert descriptors() == before and devexchange.outstanding() == 0


def test_nobody_watches_a_stream_without_waiting():
    async def main():
        async with AsyncReader() as reader:
            writer = started(reader)
            watched = len(asyncio.get_running_loop()._selector.get_map())
            task = asyncio.create_task(reader.receive())
            await turns()
            assert len(asyncio.get_running_loop()._selector.get_map()) == watched + 1
            writer.send(batch(1))
            await task
            assert len(asyncio.get_running_loop()._selector.get_map()) == watched
            assert not reader._bell._waiting
            writer.finish()

    run(main())


def test_no_descriptor_left():
    limit, before, made = resource.getrlimit(resource.RLIMIT_NOFILE), descriptors(), []
    # The directory of them was one of those.
    highest = max(map(int, os.listdir("/proc/self/fd")))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 3, limit[1]))
        with pytest.raises(OSError, match="Too many open files"):
            for _ in range(highest + 4):
                made.append(AsyncReader())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert made
    made.clear()
    assert descriptors() == before


@pytest.mark.parametrize("wait", ["wait_for_batch()", "wait_for_schema()", "__next__()"])
def test_interrupt_ends_a_wait(wait):
    program = f"""if True:
        import os, signal, threading, time
        import devexchange
        signal.signal(signal.SIGINT, signal.default_int_handler)
        reader = devexchange.AsyncReader()
        writer = devexchange.AsyncWriter(reader.handler())
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        try:
            reader.{wait}
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - start < 5)
        writer.close()
        reader.close()
        print(devexchange.outstanding())
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["interrupted", "True", "0"]


@pytest.mark.parametrize("thread", ["reader.wait_for_batch()", "produce()", "asyncio.run(receive_all())"])
def test_end_of_the_interpreter(thread):
    """While a thread waits, or a producer rings on: nothing is said, and nothing hangs."""
    program = f"""if True:
        import asyncio, threading, time
        import devexchange, pyarrow
        batch = devexchange.from_arrow(pyarrow.record_batch({{"n": [1]}}))
        reader = devexchange.AsyncReader(limit=1 << 20)
        writer = devexchange.AsyncWriter(reader.handler())
        writer.start(batch.schema)

        def produce():
            while True:
                writer.wait_until_ready()
                writer.send(batch)

        async def receive_all():
            async for _ in reader:
                pass

        threading.Thread(target=lambda: {thread}, daemon=True).start()
        time.sleep(0.2)
        print("end")
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_fork():
    """The child listens to a file of its own: rings of the parent's are the parent's."""
    program = """if True:
        import asyncio, os, sys
        import devexchange, pyarrow
        batch = pyarrow.record_batch({"n": [1]})
        reader = devexchange.AsyncReader()
        writer = devexchange.AsyncWriter(reader.handler())
        writer.start(batch.schema)

        async def exchange(who):
            task = asyncio.create_task(reader.receive())
            await asyncio.sleep(0.2)
            writer.send(batch)
            assert len((await asyncio.wait_for(task, 5)).batch) == 1, who

        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            asyncio.run(exchange("child"))
            # What is left in the file that both have is not its to take.
            reader._bell.native.ring()
            reader._bell.native.clear()
            os.write(write, b"x")
            asyncio.run(exchange("child, again"))
            os._exit(0)
        os.read(read, 1)
        asyncio.run(exchange("parent"))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        writer.finish()
        reader.close()
        print(devexchange.outstanding())
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_ring_of_the_parent_is_not_taken_by_a_child():
    bell = devexchange._native.Bell()
    descriptor = bell.fileno()
    bell.ring()
    child = os.fork()
    if child == 0:
        own = bell.fileno() == descriptor
        bell.clear()
        bell.clear()
        os._exit(0 if own else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.eventfd_read(descriptor) == 1
    # Nothing is left, and to look does not wait.
    bell.clear()
    with pytest.raises(BlockingIOError):
        os.eventfd_read(descriptor)
    for _ in range(3):
        bell.ring()
    assert os.eventfd_read(descriptor) == 1


# --- peers that are none of ours ---


ASYNC_CASES = {name: i for name, i in corpus.cases().items() if corpus.text(i, "kind") == "async"}
# Who takes batches while they come has requested more.
del ASYNC_CASES["async: more tasks than were requested"]


@pytest.mark.parametrize("i", ASYNC_CASES.values(), ids=ASYNC_CASES.keys())
def test_foreign_producer_and_a_task(i):
    """The cases of the corpus, which test_corpus.py reads without a loop: a task waits before the producer begins."""

    async def main():
        reader, loop = AsyncReader(abi_h_metadata=True), asyncio.get_running_loop()
        made = corpus._make(i)

        async def read():
            await reader.schema()
            return [len(each) async for each in reader]

        task = asyncio.create_task(read())
        await turns()
        # On another thread, as producers do.
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
    """Each of its callbacks once."""
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
            # At the end nobody hears of a cancel.
            assert told is None or told.status == corpus._callback_status(), (nth, told)
            assert told is not None or how == 3
            if told is not None:
                assert corpus._callback_says().decode() in str(told)
        else:
            assert told is None
    assert nth > 3


class Producer(ctypes.Structure):
    """As in ``abi.h``."""

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
    """Written in Python, with callbacks that run whatever a test wants while the writer calls them."""

    def __init__(self, demand=8, during=lambda: None):
        self.said, self.threads = [], set()
        request = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        extract = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

        def on_schema(_, schema):
            self.said.append("schema")
            producer = self.handler.producer
            request(producer.contents.request)(ctypes.addressof(producer.contents), demand)
            return 0

        def on_next_task(_, task, metadata):
            self.threads.add(threading.get_ident())
            if task is None:
                self.said.append("end")
                return 0
            self.said.append("task")
            during()
            return extract(ctypes.c_void_p.from_address(task).value)(task, None)

        def on_error(_, code, text, metadata):
            self.said.append((code, text))

        def release(_):
            self.said.append("release")

        callbacks = [on_schema, on_next_task, on_error, release]
        self.handler = Handler(*(kind(each) for (_, kind), each in zip(Handler._fields_, callbacks, strict=False)))

    @property
    def address(self):
        return ctypes.addressof(self.handler)


def test_consumer_that_waits_for_a_thread_in_python():
    """The writer does not keep the interpreter while it calls."""

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
    """A consumer that cancels on a thread of its own rings without the GIL."""
    consumer = Consumer(demand=1)
    writer = AsyncWriter(consumer.address)
    writer.start(SCHEMA)
    writer.send(batch(1))

    async def main():
        task = asyncio.create_task(writer.ready())
        await turns()
        producer = consumer.handler.producer.contents
        # Neither call returns before it has rung, and this thread keeps the GIL meanwhile.
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


def test_soak_of_both_ends():
    """What is left after many: nothing."""
    rows = from_arrow(batch(1))

    def exchange():
        with AsyncReader() as reader:
            with started(reader) as writer:
                writer.send(rows, {"a": "b"})
            assert len(list(reader)) == 1

    soak("asynchronous stream", exchange, 3000)


LOOPS = {
    each.__name__: lambda each=each: asyncio.SelectorEventLoop(each())
    for each in [selectors.SelectSelector, selectors.PollSelector, selectors.EpollSelector]
}
if importlib.util.find_spec("uvloop"):
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS.keys())
def test_loops_of_each_kind(loop):
    async def main():
        async with AsyncReader(limit=1) as reader:
            thread = thread_of(produce_in_thread, started(reader), 200)
            taken = [each.to_pylist()[0]["n"] async for each in reader]
            thread.join(PATIENCE)
            return taken

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(main()) == list(range(200))
