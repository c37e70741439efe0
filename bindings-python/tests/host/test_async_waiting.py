"""Waiting for asynchronous streams: in tasks, threads, loops of each kind, forks and an ending interpreter."""

import asyncio
import gc
import importlib.util
import os
import resource
import selectors
import subprocess
import sys
import threading
import weakref

import pytest
from asynchronous import (
    PATIENCE,
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

import devexchange
from devexchange import AsyncReader, _async


def descriptors():
    # Do not count the descriptors of objects that ended before.
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_cancelled_task_loses_nothing():
    async def main():
        async with AsyncReader() as reader:
            writer = started(reader)
            for round in range(20):
                task = asyncio.create_task(reader.receive())
                await turns()
                # Both the ring and the cancelling are still on their way.
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

            # A task that waits for something else takes no ring from the others.
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
def test_abandoned_loop(closed, monkeypatch):
    """The task of an abandoned loop is never told; the reader goes on elsewhere, and everything ends."""
    before = descriptors()
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    reader = AsyncReader()
    writer = started(reader)
    loop = asyncio.new_event_loop()
    task = loop.create_task(reader.receive())
    loop.run_until_complete(turns())
    assert not task.done()
    if closed:
        loop.close()

    async def wait():
        received = asyncio.create_task(reader.receive())
        await turns()
        writer.send(batch(1))
        return await received

    assert numbers([run(wait()).batch]) == [1]
    if not closed:
        # The loop still works, and its task gets the next batch.
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
    assert seen() is None and writer.is_cancelled and not ignored
    writer.close()
    del writer
    assert descriptors() == before


def test_loop_that_does_not_run_is_told_once():
    async def take(n):
        for number in range(n):
            received = asyncio.create_task(reader.receive())
            await turns()
            writer.send(batch(number))
            assert numbers([(await received).batch]) == [number]

    with AsyncReader() as reader, asyncio.Runner() as runner:
        writer, loop = started(reader), runner.get_loop()
        task = loop.create_task(reader.receive())
        runner.run(turns())
        # Another thread, because this loop goes on running on its own.
        thread_of(lambda: run(take(100))).join(PATIENCE)
        assert len(loop._ready) < 10
        writer.send(batch(100))

        async def rest():
            return await task

        assert numbers([runner.run(rest()).batch]) == [100]
        writer.close()


def test_loop_that_goes_on_while_it_is_told():
    """Before this loop goes on, the other one answers the ring, hears of the next and stops waiting."""

    class Other:
        def call_soon_threadsafe(self, tell):
            del bell._waiting[self]
            tell()
            bell.native.ring()

    async def main():
        here, other = _async._Tasks(), _async._Tasks()
        here.events.add(rung := asyncio.Event())
        bell._waiting.update({Other(): other, asyncio.get_running_loop(): here})
        bell.native.ring()
        bell._answer()
        assert rung.is_set() and not other.told
        # The ring in between is not taken.
        assert os.eventfd_read(bell.native.fileno()) == 1

    bell = _async._Bell()
    run(main())


def test_unclosed_ends_are_collected():
    before = descriptors()
    for _ in range(20):
        reader = AsyncReader()
        writer = started(reader)
        writer.send(batch(1))
        # Put both into a cycle.
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
    # One of these was the descriptor of the directory itself.
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
        start = time.monotonic()
        try:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            reader.{wait}
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - start < 30)
        writer.close()
        reader.close()
        print(devexchange.outstanding())
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split() == ["interrupted", "True", "0"]


@pytest.mark.parametrize("thread", ["reader.wait_for_batch()", "produce()", "asyncio.run(receive_all())"])
def test_end_of_the_interpreter(thread):
    """The interpreter ends while a thread waits or a producer still rings: without output, and without a hang."""
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
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


BOTH_ENDS = """
import asyncio, os
import devexchange, pyarrow
batch = pyarrow.record_batch({"n": [1]})
reader = devexchange.AsyncReader()
writer = devexchange.AsyncWriter(reader.handler())
writer.start(batch.schema)
"""


def said_with_both_ends(program):
    """What a program prints that begins with both ends of a stream."""
    command = [sys.executable, "-c", BOTH_ENDS + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_fork():
    """The child listens to its own file: rings for the parent stay with the parent."""
    program = """if True:
        async def exchange(who):
            task = asyncio.create_task(reader.receive())
            await asyncio.sleep(0.2)
            writer.send(batch)
            assert len((await asyncio.wait_for(task, 120)).batch) == 1, who

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
    assert said_with_both_ends(program) == "0\n"


def test_child_that_gives_up_a_task_of_its_parent():
    """The child has the parent's loop: the parent's task is still woken."""
    program = """if True:
        async def exchange():
            task = asyncio.create_task(reader.receive())
            await asyncio.sleep(0)
            child = os.fork()
            if child == 0:
                task.get_coro().close()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            writer.send(batch)
            return await asyncio.wait_for(task, 60)

        print(len(asyncio.run(exchange()).batch))
    """
    assert said_with_both_ends(program) == "1\n"


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
    # No ring is left, and reading does not wait.
    bell.clear()
    with pytest.raises(BlockingIOError):
        os.eventfd_read(descriptor)
    for _ in range(3):
        bell.ring()
    assert os.eventfd_read(descriptor) == 1


LOOPS = {
    each.__name__: lambda each=each: asyncio.SelectorEventLoop(each())
    for each in [selectors.SelectSelector, selectors.PollSelector, selectors.EpollSelector]
}
if importlib.util.find_spec("uvloop"):
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS.keys())
def test_loops_of_each_kind(loop):
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(take_from_a_thread(200)) == list(range(200))
