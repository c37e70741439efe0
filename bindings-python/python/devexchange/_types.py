"""Records that the native half fills in."""

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from ._native import RecordBatch


class DeviceType(IntEnum):
    """Kinds of devices, as DLPack and Arrow number them; only those that this library has a runtime for."""

    CPU = 1
    CUDA = 2
    CUDA_HOST = 3
    CUDA_MANAGED = 13


class Device(NamedTuple):
    """One device: its kind (``type``) and its number (``id``), as ``__dlpack_device__`` returns them.

    Arguments that take a device also take its name, as ``str`` returns it: ``"cuda:0"``."""

    type: int
    id: int = 0

    def __str__(self) -> str:
        from . import _native

        return _native.device_name(self)


class DeviceInfo(NamedTuple):
    """What a device is called and how much memory it has.

    ``name`` is as the driver reports it, "host memory" for the CPU. ``uuid`` is the same in every process, whatever the
    order of devices there; zero for the CPU. ``free_bytes`` (at the time of the call) and ``total_bytes`` are -1 for
    the CPU. ``driver_version`` is as CUDA writes it (12040 is 12.4); 0 for the CPU."""

    name: str
    uuid: UUID
    free_bytes: int
    total_bytes: int
    driver_version: int


class Plan(NamedTuple):
    """How a conversion can be done.

    ``kind`` is "view", "copy" or "impossible", ``copy_bytes`` how many bytes a copy writes, ``reason`` why the
    conversion cannot be a view."""

    kind: str
    copy_bytes: int
    reason: str


class Count(NamedTuple):
    """One kind of thing in the ledger: ``total`` is how many there have been so far, ``live`` how many of them are not
    released yet."""

    total: int
    live: int


class Received(NamedTuple):
    """A ``batch`` of an asynchronous stream, and the producer's ``metadata`` for it. Bytes of the metadata that are not
    UTF-8 become surrogates, as in file names."""

    batch: "RecordBatch"
    metadata: dict[str, str]


class ProducerError(NamedTuple):
    """What the producer of an asynchronous stream reported with its error, besides the text: ``code`` is an ``errno``
    code, ``metadata`` what the producer added to it."""

    code: int
    metadata: dict[str, str]


class MemoryRequest(NamedTuple):
    """A request to a memory manager that is written in Python.

    ``device`` is the kind of memory, and the device that it is for: a pair of numbers, as in DLPack. ``bytes`` is how
    much is wanted. ``stream`` is the stream in whose order device memory is given and taken back; None if it has to be
    ready at once. It is never 2, the calling thread's default stream, because memory may be given back on another
    thread: 1 stands for it.

    For pinned memory, ``mapped`` says whether devices can use it, ``portable`` whether it can be used in all contexts,
    ``write_combined`` whether it is fast for the host to write and slow to read."""

    device: Device
    bytes: int
    stream: int | None = None
    mapped: bool = False
    portable: bool = False
    write_combined: bool = False


class MemoryInfo(NamedTuple):
    """How much memory there is for a memory manager: ``free_bytes`` can still be allocated, of ``total_bytes``."""

    free_bytes: int
    total_bytes: int


class IpcHandle(NamedTuple):
    """The handle with which another process opens the allocation of an address (``cuIpcOpenMemHandle``).

    ``handle`` is the driver's, 64 bytes, and opens the whole allocation. The address is ``offset`` bytes from its
    beginning. It has ``bytes`` bytes, and is on the device ``device_id``."""

    handle: bytes
    offset: int
    bytes: int
    device_id: int


class Statistics(NamedTuple):
    """What a memory manager allocated and got back.

    ``bytes`` and ``allocations`` are in use now, ``peak_bytes`` is the most that was in use at one time.
    ``total_allocations`` and ``total_bytes`` count since the beginning, ``refused`` counts the requests that were
    refused for lack of memory."""

    bytes: int
    peak_bytes: int
    allocations: int
    total_allocations: int
    total_bytes: int
    refused: int


class Interval(NamedTuple):
    """A calendar interval, whose parts (``months``, ``days``, ``nanoseconds``) are not converted into each other."""

    months: int
    days: int
    nanoseconds: int
