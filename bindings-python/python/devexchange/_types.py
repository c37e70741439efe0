"""Records that the native half fills in."""

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from ._native import RecordBatch


class DeviceType(IntEnum):
    """Kinds of devices, as DLPack and Arrow number them. There are more; these this library has a runtime for."""

    CPU = 1
    CUDA = 2
    CUDA_HOST = 3
    CUDA_MANAGED = 13


class Device(NamedTuple):
    """One device: its kind and its number, as ``__dlpack_device__`` gives them. Where a device is asked for, its name, as
    ``str`` gives it, does as well: ``"cuda:0"``."""

    type: int
    id: int = 0

    def __str__(self) -> str:
        from . import _native

        return _native.device_name(self)


class DeviceInfo(NamedTuple):
    """What a device is called and how much memory it has."""

    #: As the driver says it; "host memory" for the CPU.
    name: str
    #: The same in every process, whatever the order of devices there; zero for the CPU.
    uuid: UUID
    #: Free when it was asked for; -1 for the CPU.
    free_bytes: int
    #: -1 for the CPU.
    total_bytes: int
    #: The driver's version as CUDA writes it (12040 is 12.4); 0 for the CPU.
    driver_version: int


class Plan(NamedTuple):
    """How a conversion can be done."""

    #: "view", "copy" or "impossible"
    kind: str
    #: What a copy writes.
    copy_bytes: int
    #: Why it cannot be a view.
    reason: str


class Count(NamedTuple):
    """One kind of thing in the ledger."""

    #: All there ever were.
    total: int
    #: Those that are not released yet.
    live: int


class Received(NamedTuple):
    """A batch of an asynchronous stream."""

    batch: "RecordBatch"
    #: What the producer said about it. Bytes that are not UTF-8 are surrogates, as in names of files.
    metadata: dict[str, str]


class ProducerError(NamedTuple):
    """What the producer of an asynchronous stream said with its error, besides the text."""

    #: An ``errno`` code.
    code: int
    metadata: dict[str, str]


class MemoryRequest(NamedTuple):
    """What a memory manager that is written in Python is asked for."""

    #: Kind of memory, and the device that it is for: a pair of numbers, as in DLPack.
    device: Device
    bytes: int
    #: The stream in whose order device memory is given and taken back; None if it has to be ready at once. It is never 2,
    #: the calling thread's, as memory may be given back on another one: 1 stands for it.
    stream: int | None = None
    #: Of pinned memory: devices can use it; in all contexts; fast to write for the host and slow to read.
    mapped: bool = False
    portable: bool = False
    write_combined: bool = False


class MemoryInfo(NamedTuple):
    """How much memory there is for a memory manager."""

    #: That can still be had.
    free_bytes: int
    #: In all.
    total_bytes: int


class IpcHandle(NamedTuple):
    """By what another process opens the allocation that an address lies in (``cuIpcOpenMemHandle``)."""

    #: The driver's handle, 64 bytes.
    handle: bytes
    #: Where the address is, in bytes from the beginning of the allocation, which is what the handle opens.
    offset: int
    #: Bytes of the allocation.
    bytes: int
    #: The device that the allocation is on.
    device_id: int


class Statistics(NamedTuple):
    """What a memory manager allocated and got back."""

    #: In use now.
    bytes: int
    #: Most bytes that were in use at a time.
    peak_bytes: int
    #: In use now.
    allocations: int
    #: Since the beginning.
    total_allocations: int
    #: Since the beginning.
    total_bytes: int
    #: Requests that were refused for want of memory.
    refused: int


class Interval(NamedTuple):
    """A span of the calendar, whose parts are not converted into each other."""

    months: int
    days: int
    nanoseconds: int
