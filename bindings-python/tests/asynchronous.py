"""Helpers for the tests of asynchronous streams: both ends of a stream, and tasks and threads that use them."""

import asyncio
import threading

import pyarrow

from devexchange import AsyncReader, AsyncWriter

SCHEMA = pyarrow.schema([("n", pyarrow.int64())])
DEVX_CALLBACK, DEVX_CLOSED, DEVX_NOT_READY, DEVX_BUSY = "DEVX_CALLBACK", "DEVX_CLOSED", "DEVX_NOT_READY", "DEVX_BUSY"
#: A wait that never ends is a failure, not a hang.
PATIENCE = 120


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


async def take_from_a_thread(stop):
    """Returns what a task takes while a thread sends, one batch at a time."""
    async with AsyncReader(limit=1) as reader:
        thread = thread_of(produce_in_thread, started(reader), stop)
        taken = numbers([each async for each in reader])
        thread.join(PATIENCE)
        return taken
