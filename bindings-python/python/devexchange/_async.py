"""Asynchronous streams, for tasks of asyncio and for threads."""

import asyncio
import os
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from errno import EIO
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from . import _native
from ._types import ProducerError, Received

if TYPE_CHECKING:
    from ._native import RecordBatch, Schema, _AnyArrowArray, _ArrowSchema

_T = TypeVar("_T")


class _Bell:
    """Tells tasks that there may be something new. What happens elsewhere rings the native half, on any thread. Only a
    loop in which a task waits watches that, and only meanwhile: so loops come and go as they like."""

    __slots__ = ("_waiting", "native")

    def __init__(self) -> None:
        self.native = _native.Bell()
        # Of the tasks that wait, those of a loop; touched on the thread of the loop only.
        self._waiting: dict[asyncio.AbstractEventLoop, set[asyncio.Event]] = {}

    async def until(self, ask: Callable[[], _T | None]) -> _T:
        """What `ask` gives, which is asked again after each ring until that is not None. A task that is cancelled
        meanwhile has not asked, so nothing is lost."""
        if (answer := ask()) is not None:
            return answer
        loop, process, rung = asyncio.get_running_loop(), os.getpid(), asyncio.Event()
        events = self._waiting.get(loop)
        if events is None:
            loop.add_reader(self.native.fileno(), self._answer)
            events = self._waiting[loop] = set()
        events.add(rung)
        try:
            # What comes after this look rings.
            while (answer := ask()) is None:
                await rung.wait()
                rung.clear()
            return answer
        finally:
            events.discard(rung)
            if not events and self._waiting.get(loop) is events:
                del self._waiting[loop]
                # A child of `fork` has the loop of its parent, and would end what the parent watches.
                if not loop.is_closed() and os.getpid() == process:
                    loop.remove_reader(self.native.fileno())

    def _answer(self) -> None:
        # First: who looks after that sees what rang.
        self.native.clear()
        here = asyncio.get_running_loop()
        # All of them: this ring is nobody else's any more.
        for loop, events in self._waiting.copy().items():
            if loop is here:
                _tell(events)
            else:
                # Of a loop that is closed nobody waits.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(_tell, events)


def _tell(events: set[asyncio.Event]) -> None:
    for event in events:
        event.set()


class AsyncReader:
    """Takes the batches of a producer of an Arrow asynchronous stream (Arrow C device data interface, "Async Device
    Stream Interface"), which is experimental in Arrow. Give ``handler`` to the producer; then take what comes, in tasks
    of asyncio or in threads::

        async with AsyncReader() as reader:
            start_the_producer(reader.handler())
            async for batch in reader:
                print(len(batch))

    ``limit`` batches are kept requested: so many when the producer has told the schema, and one more for each that is
    taken. With 0 they come only after ``request``. ``abi_h_metadata`` says that the producer's struct is that of
    Arrow's ``abi.h`` (40 bytes), so that its ``metadata`` can be read; it is false if that is not known, as the
    specification's text has another struct.

    An error of the producer's comes after the batches before it, once, as ``Failed`` with its text; and so does that it
    broke the contract. Any task of any loop may wait, and any thread, several at once; a batch goes to one of them. A
    task that is cancelled while it waits takes nothing.

    Raises ValueError for a negative limit.
    """

    __slots__ = ("__weakref__", "_bell", "_native")

    def __init__(self, *, limit: int = 4, abi_h_metadata: bool = False) -> None:
        self._bell = _Bell()
        self._native = _native.AsyncReader(self._bell.native, limit, abi_h_metadata)

    def handler(self) -> int:
        """The address of the ``ArrowAsyncDeviceStreamHandler`` for a producer, once. Whoever has it calls its
        ``release`` exactly once: the producer that takes it. If none does, let an ``AsyncWriter`` take it, and close
        that. It is valid until then, also after the reader was closed.

        Raises ValueError the second time."""
        return self._native.handler()

    def request(self, n: int, /) -> None:
        """Asks the producer for ``n`` more batches, besides those that the limit keeps requested. After the end it does
        nothing.

        Raises ValueError unless ``n`` is positive, IndexError if all that is requested cannot be counted."""
        self._native.request(n)

    def cancel(self) -> None:
        """Asks the producer to stop, and takes nothing any more: the stream ends here, without an error, also for those
        who wait. Again it does nothing."""
        self._native.cancel()

    @property
    def device_type(self) -> int | None:
        """The kind of device that all batches lie on (1 the host, 2 CUDA, …); None before the schema has come."""
        return self._native.device_type

    @property
    def metadata(self) -> dict[str, str]:
        """What the producer says about the whole stream; nothing before the schema has come, and if it may not be
        read."""
        return self._native.metadata

    @property
    def producer_error(self) -> ProducerError | None:
        """What the producer said with its error besides the text; None if it told of none."""
        return self._native.producer_error

    async def schema(self) -> "Schema":
        """What all batches are. The task waits until the producer has told it.

        Raises what ended the stream before that; ValueError if it was cancelled, or the reader is closed."""
        return await self._bell.until(self._native.try_schema)

    async def receive(self) -> Received | None:
        """The next batch with its metadata; None at the end, and when the reader is closed. The task waits until one
        has come."""
        received: Received | Literal[False] = await self._bell.until(self._native.try_next)
        return received or None

    def wait_for_schema(self, timeout: float | None = None) -> "Schema":
        """As ``schema``, for a thread: it waits ``timeout`` seconds at most, and Python's main thread handles signals
        meanwhile.

        Raises TimeoutError (``DEVX_NOT_READY``) if it has not come by then."""
        return self._native.schema(timeout)

    def wait_for_batch(self, timeout: float | None = None) -> Received | None:
        """As ``receive``, for a thread, which waits as in ``wait_for_schema``."""
        return self._native.next(timeout) or None

    def __aiter__(self) -> AsyncIterator["RecordBatch"]:
        return self

    async def __anext__(self) -> "RecordBatch":
        received = await self.receive()
        if received is None:
            raise StopAsyncIteration
        return received.batch

    def __iter__(self) -> Iterator["RecordBatch"]:
        return self

    def __next__(self) -> "RecordBatch":
        received = self.wait_for_batch()
        if received is None:
            raise StopIteration
        return received.batch

    def close(self) -> None:
        """Cancels what is left of the stream, which ends without an error, also for those who wait. Batches outlive
        their reader. Closing again does nothing."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()


class AsyncWriter:
    """Gives batches to a consumer of an Arrow asynchronous stream (see ``AsyncReader``): takes the handler at this
    address, which is believed. ``start`` comes first; then a batch may be sent for each that the consumer requested,
    and ``finish`` or ``fail`` ends the stream, or the end of a block::

        with AsyncWriter(handler) as writer:
            writer.start(schema)
            for batch in batches:
                await writer.ready()
                writer.send(batch)

    The consumer's callbacks are called within these methods and nowhere else, one at a time; a call that needs one
    while another thread is in one is refused (``DEVX_BUSY``). If the consumer cancels, the handler is released in the
    next call of any of these methods: a task or a thread that waits until it is ready makes one by itself.

    The handler is released once: at the end, when the consumer cancelled or refused something, or when this is closed
    before, which the consumer is told (``EPIPE``). At the end of a block the stream is finished; if the block raised
    something, the consumer is told so (``EIO``, with the exception as text). ``device_type`` is the kind of device of
    all batches, and ``metadata`` is said about the whole stream.

    Raises ValueError for no address, a handler that was released, or one without all callbacks, BufferError for a
    device type that this library has no runtime for: then the handler is untouched.
    """

    __slots__ = ("__weakref__", "_bell", "_native", "_over")

    def __init__(self, handler: int, /, *, device_type: int = 1, metadata: Mapping[str, str] | None = None) -> None:
        self._over = False
        self._bell = _Bell()
        self._native = _native.AsyncWriter(self._bell.native, handler, device_type, metadata)

    def start(self, schema: "_ArrowSchema", /) -> None:
        """Tells the consumer what all batches are.

        Raises RuntimeError if the consumer refuses it, ValueError if it cancelled, or the second time."""
        self._native.start(schema)

    @property
    def demand(self) -> int:
        """How many batches the consumer requested that were not sent yet; 0 when none can be sent any more."""
        return self._native.demand

    @property
    def is_cancelled(self) -> bool:
        """Whether the consumer cancelled."""
        return self._native.is_cancelled

    async def ready(self) -> None:
        """The task waits until a batch can be sent.

        Raises why none can be any more: ValueError if the consumer cancelled or requested what cannot be, or the stream
        was ended or not started; RuntimeError if the consumer refused something."""
        await self._bell.until(lambda: self._native.try_ready() or None)

    def wait_until_ready(self, timeout: float | None = None) -> None:
        """As ``ready``, for a thread: it waits ``timeout`` seconds at most, and Python's main thread handles signals
        meanwhile.

        Raises TimeoutError (``DEVX_NOT_READY``) if the consumer has requested nothing by then."""
        self._native.ready(timeout)

    def send(self, batch: "_AnyArrowArray", /, metadata: Mapping[str, str] | None = None) -> None:
        """Gives the consumer a batch, and what is said about it. It is shared.

        Raises BufferError (``DEVX_NOT_READY``) if the consumer requested no more, or if the batch is on another device,
        TypeError if it is not of the stream's schema, RuntimeError if the consumer refuses it; otherwise as
        ``ready``."""
        self._native.send(batch, metadata)

    def finish(self) -> None:
        """Ends the stream, releases the handler and closes this. Fine too if the consumer cancelled.

        Raises RuntimeError if the consumer refused something, ValueError if the stream was ended already or not
        started."""
        self._end(self._native.finish)

    def fail(self, code: int, message: str, /, metadata: Mapping[str, str] | None = None) -> None:
        """Tells the consumer of an error (an ``errno`` code, a text, and more), releases the handler, started or not,
        and closes this. Fine too if the consumer cancelled; then it is not told.

        Raises ValueError for the code 0, or if the stream was ended already."""
        self._end(lambda: self._native.fail(code, message, metadata))

    def _end(self, end: Callable[[], None]) -> None:
        end()
        self._over = True
        self.close()

    def close(self) -> None:
        """Ends the stream, if it is not over: the consumer is told that the producer went away. Closing again does
        nothing."""
        self._native.close()
        # A call on another thread has the writer until it returns: those who wait hear it now.
        self._bell.native.ring()

    def _leave(self, exception: BaseException | None) -> None:
        try:
            if self._over:
                return
            if exception is None:
                self.finish()
            else:
                text = "".join(traceback.format_exception_only(exception)).strip()
                # The first error is the one to tell.
                with suppress(_native.Error):
                    self.fail(EIO, text.encode(errors="replace").decode())
        finally:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, where: TracebackType | None
    ) -> None:
        self._leave(exception)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, where: TracebackType | None
    ) -> None:
        self._leave(exception)
