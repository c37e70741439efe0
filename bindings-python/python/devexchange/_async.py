"""Asynchronous streams, for tasks of asyncio and for threads."""

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from errno import EIO
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn, Self, TypeVar

from . import _native
from ._types import ProducerError, Received

if TYPE_CHECKING:
    from ._native import RecordBatch, Schema, _AnyArrowArray, _ArrowSchema

_T = TypeVar("_T")


class _Tasks:
    """The waiting tasks of one loop."""

    __slots__ = ("events", "told")

    def __init__(self) -> None:
        # Touched only on the thread of the loop.
        self.events: set[asyncio.Event] = set()
        # Whether the loop has yet to call `tell`: a loop that does not run must not gather more and more calls.
        self.told = False

    def tell(self) -> None:
        # First, so that the loop calls this again for any ring from here on.
        self.told = False
        for event in self.events:
            event.set()


class _Bell:
    """Tells tasks that there may be something new.

    Events elsewhere ring the native half, on any thread. A loop watches it only while one of its tasks waits, so loops
    can come and go freely."""

    __slots__ = ("_waiting", "native")

    def __init__(self) -> None:
        self.native = _native.Bell()
        self._waiting: dict[asyncio.AbstractEventLoop, _Tasks] = {}

    async def until(self, ask: Callable[[], _T | None]) -> _T:
        """Calls `ask`, and again after each ring, until it returns something other than None; returns that.

        A task that is cancelled while it waits has not asked, so nothing is lost."""
        if (answer := ask()) is not None:
            return answer
        loop, rung = asyncio.get_running_loop(), asyncio.Event()
        tasks = self._waiting.get(loop)
        if tasks is None:
            loop.add_reader(self.native.fileno(), self._answer)
            tasks = self._waiting[loop] = _Tasks()
        tasks.events.add(rung)
        try:
            # Anything that comes after this check rings.
            while (answer := ask()) is None:
                await rung.wait()
                rung.clear()
            return answer
        finally:
            tasks.events.discard(rung)
            if not tasks.events:
                del self._waiting[loop]
                # In a child of `fork`, this is not the file that its parent watches.
                if not loop.is_closed():
                    loop.remove_reader(self.native.fileno())

    def _answer(self) -> None:
        # First, so that any task that checks afterwards sees what rang.
        self.native.clear()
        here = asyncio.get_running_loop()
        # Tell the tasks of all loops: no other loop will see this ring any more.
        for loop, tasks in self._waiting.copy().items():
            if loop is here:
                tasks.tell()
            elif not tasks.told:
                tasks.told = True
                # No task of a closed loop waits.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(tasks.tell)


class AsyncReader:
    """Takes the batches of an Arrow asynchronous stream from its producer.

    The protocol (Arrow C device data interface, "Async Device Stream Interface") is experimental in Arrow. Give
    ``handler`` to the producer, then take the batches in tasks of asyncio or in threads::

        async with AsyncReader() as reader:
            start_the_producer(reader.handler())
            async for batch in reader:
                print(len(batch))

    The reader keeps ``limit`` batches requested: it requests that many once the producer has given the schema, and one
    more for each batch that is taken. With 0, batches come only after ``request``. ``abi_h_metadata`` says that the
    producer's struct is that of Arrow's ``abi.h`` (40 bytes), so that its ``metadata`` can be read; leave it false if
    that is not known, because the text of the specification has another struct.

    An error is raised once, after the batches that came before it: ``Failed`` if the producer failed, with its text, or
    broke the contract; the error of an import if an array or its metadata is invalid; TypeError or BufferError if a
    batch does not have the stream's schema or device type. Tasks of any loop and threads can wait, several at once;
    each batch goes to one of them. A task that is cancelled while it waits takes nothing.

    Raises ValueError for a negative limit.
    """

    __slots__ = ("__weakref__", "_bell", "_native")

    def __init__(self, *, limit: int = 4, abi_h_metadata: bool = False) -> None:
        self._bell = _Bell()
        self._native = _native.AsyncReader(self._bell.native, limit, abi_h_metadata)

    def handler(self) -> int:
        """Returns the address of the ``ArrowAsyncDeviceStreamHandler`` for a producer; can be called once.

        The producer that takes the handler calls its ``release`` exactly once. If no producer takes it, let an
        ``AsyncWriter`` take it, and close that. The handler is valid until its release, also after the reader was
        closed. The producer must not hold a lock during the release that its ``request`` or ``cancel`` takes, because
        the release waits for such a call on another thread.

        Raises ValueError the second time."""
        return self._native.handler()

    def request(self, n: int, /) -> None:
        """Asks the producer for ``n`` more batches, besides those that the limit keeps requested.

        Does nothing after the end of the stream.

        Raises ValueError unless ``n`` is positive, IndexError if the sum of all requests is too large to be counted."""
        self._native.request(n)

    def cancel(self) -> None:
        """Asks the producer to stop, and takes nothing any more.

        The stream ends here without an error, also for waiting tasks and threads. Cancelling again does nothing."""
        self._native.cancel()

    @property
    def device_type(self) -> int | None:
        """The kind of device that all batches lie on (1 the host, 2 CUDA, …); None before the schema has come."""
        return self._native.device_type

    @property
    def metadata(self) -> dict[str, str]:
        """The producer's metadata for the whole stream.

        Empty before the schema has come, and if it must not be read (see ``abi_h_metadata``)."""
        return self._native.metadata

    @property
    def producer_error(self) -> ProducerError | None:
        """What the producer reported with its error besides the text; None if it reported no error."""
        return self._native.producer_error

    async def schema(self) -> "Schema":
        """Waits for the schema of all batches and returns it.

        Raises the error that ended the stream before the schema came; ValueError if the stream was cancelled, or the
        reader is closed."""
        return await self._bell.until(self._native.try_schema)

    async def receive(self) -> Received | None:
        """Waits for the next batch and returns it with its metadata; None at the end, and when the reader is closed."""
        received: Received | Literal[False] = await self._bell.until(self._native.try_next)
        return received or None

    def wait_for_schema(self, timeout: float | None = None) -> "Schema":
        """Like ``schema``, but for a thread, which waits for at most ``timeout`` seconds.

        Python's main thread handles signals while it waits.

        Raises TimeoutError (``DEVX_NOT_READY``) if the schema has not come by then."""
        return self._native.schema(timeout)

    def wait_for_batch(self, timeout: float | None = None) -> Received | None:
        """Like ``receive``, but for a thread, which waits as in ``wait_for_schema``."""
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
        """Cancels what is left of the stream and closes the reader.

        The stream ends without an error, also for waiting tasks and threads. Batches outlive their reader. Closing
        again does nothing."""
        self._native.close()

    def __reduce__(self) -> NoReturn:
        """Refuses, for ``pickle`` and ``copy``."""
        raise TypeError("an AsyncReader cannot be pickled")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()


class AsyncWriter:
    """Gives batches to the consumer of an Arrow asynchronous stream (see ``AsyncReader``).

    It takes the struct at the address ``handler``. The address is not checked. Call ``start`` first; then send one
    batch for each that the consumer requested. ``finish``, ``fail`` or the end of a ``with`` block ends the stream::

        with AsyncWriter(handler) as writer:
            writer.start(schema)
            for batch in batches:
                await writer.ready()
                writer.send(batch)

    The consumer's callbacks are called within these methods and nowhere else, one at a time. A call that needs a
    callback while another thread is in one is refused (``DEVX_BUSY``). If the consumer cancels, the next call of any of
    these methods releases the handler; a task or thread that waits until a batch can be sent makes such a call by
    itself.

    The handler is released once: at the end of the stream, when the consumer has cancelled or refused something, or
    when the writer is closed before the end, which the consumer sees as an error (``EPIPE``). The end of a ``with``
    block finishes the stream; if the block raised an exception, the consumer gets an error instead (``EIO``, with the
    exception as text). ``device_type`` is the kind of device of all batches; ``metadata`` describes the whole stream.

    Raises ValueError for the address 0, a handler that was released, or one that lacks a callback, BufferError for a
    device type that this library has no runtime for. Then the handler is untouched.
    """

    __slots__ = ("__weakref__", "_bell", "_native", "_over")

    def __init__(self, handler: int, /, *, device_type: int = 1, metadata: Mapping[str, str] | None = None) -> None:
        self._over = False
        self._bell = _Bell()
        self._native = _native.AsyncWriter(self._bell.native, handler, device_type, metadata)

    def start(self, schema: "_ArrowSchema", /) -> None:
        """Gives the consumer the schema of all batches.

        Raises RuntimeError if the consumer refuses it, ValueError if the consumer cancelled, or the second time."""
        self._native.start(schema)

    @property
    def demand(self) -> int:
        """How many requested batches have not been sent yet; 0 when no more can be sent."""
        return self._native.demand

    @property
    def is_cancelled(self) -> bool:
        """Whether the consumer cancelled."""
        return self._native.is_cancelled

    async def ready(self) -> None:
        """Waits until a batch can be sent.

        Raises an error if no more can be sent: ValueError if the consumer cancelled or made an invalid request, or if
        the stream was ended or not started; RuntimeError if the consumer refused something."""
        await self._bell.until(lambda: self._native.try_ready() or None)

    def wait_until_ready(self, timeout: float | None = None) -> None:
        """Like ``ready``, but for a thread, which waits for at most ``timeout`` seconds.

        Python's main thread handles signals while it waits.

        Raises TimeoutError (``DEVX_NOT_READY``) if the consumer has requested nothing by then."""
        self._native.ready(timeout)

    def send(self, batch: "_AnyArrowArray", /, metadata: Mapping[str, str] | None = None) -> None:
        """Gives the consumer a batch, which is shared, and metadata about it.

        Raises BufferError (``DEVX_NOT_READY``) if the consumer requested no more, or if the batch is on another device,
        TypeError if the batch does not have the stream's schema, RuntimeError if the consumer refuses it; otherwise the
        same errors as ``ready``."""
        self._native.send(batch, metadata)

    def finish(self) -> None:
        """Ends the stream, releases the handler and closes the writer; also allowed if the consumer cancelled.

        Raises RuntimeError if the consumer refused something, ValueError if the stream was ended already or not
        started."""
        self._end(self._native.finish)

    def fail(self, code: int, message: str, /, metadata: Mapping[str, str] | None = None) -> None:
        """Ends the stream with an error, releases the handler and closes the writer.

        The consumer gets an ``errno`` code, a text and metadata, whether or not the stream was started. Also allowed if
        the consumer cancelled; then it gets no error.

        Raises ValueError for the code 0, or if the stream was ended already."""
        self._end(lambda: self._native.fail(code, message, metadata))

    def _end(self, end: Callable[[], None]) -> None:
        end()
        self._over = True
        self.close()

    def close(self) -> None:
        """Closes the writer; if the stream has not ended, tells the consumer that the producer went away.

        Closing again does nothing."""
        self._native.close()
        # A call on another thread keeps the writer open until it returns; waiting tasks learn of the end now.
        self._bell.native.ring()

    def _leave(self, exception: BaseException | None) -> None:
        try:
            if self._over:
                return
            if exception is None:
                self.finish()
            else:
                text = "".join(traceback.format_exception_only(exception)).strip()
                # The exception of the block is the one to report.
                with suppress(_native.Error):
                    self.fail(EIO, text.encode(errors="replace").decode())
        finally:
            self.close()

    def __reduce__(self) -> NoReturn:
        """Refuses, for ``pickle`` and ``copy``."""
        raise TypeError("an AsyncWriter cannot be pickled")

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
