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
    """One device: its kind and its number, as ``__dlpack_device__`` returns them.

    Arguments that take a device also take its name, as ``str`` returns it: ``"cuda:0"``."""

    type: int
    id: int = 0

    def __str__(self) -> str:
        from . import _native

        return _native.device_name(self)


class DeviceInfo(NamedTuple):
    """What a device is called and how much memory it has."""

    #: As the driver reports it; "host memory" for the CPU.
    name: str
    #: The same in every process, whatever the order of devices there; zero for the CPU.
    uuid: UUID
    #: Free bytes at the time of the call; -1 for the CPU.
    free_bytes: int
    #: -1 for the CPU.
    total_bytes: int
    #: The driver's version as CUDA writes it (12040 is 12.4); 0 for the CPU.
    driver_version: int


class Plan(NamedTuple):
    """How a conversion can be done."""

    #: "view", "copy" or "impossible"
    kind: str
    #: How many bytes a copy writes.
    copy_bytes: int
    #: Why the conversion cannot be a view.
    reason: str


class Count(NamedTuple):
    """One kind of thing in the ledger."""

    #: How many there have been so far.
    total: int
    #: How many of them are not released yet.
    live: int


class Received(NamedTuple):
    """A batch of an asynchronous stream."""

    batch: "RecordBatch"
    #: The producer's metadata for this batch. Bytes that are not UTF-8 become surrogates, as in file names.
    metadata: dict[str, str]


class ProducerError(NamedTuple):
    """What the producer of an asynchronous stream reported with its error, besides the text."""

    #: An ``errno`` code.
    code: int
    metadata: dict[str, str]


class MemoryRequest(NamedTuple):
    """A request to a memory manager that is written in Python."""

    #: The kind of memory, and the device that it is for: a pair of numbers, as in DLPack.
    device: Device
    bytes: int
    #: The stream in whose order device memory is given and taken back; None if it has to be ready at once. It is never
    #: 2, the calling thread's default stream, because memory may be given back on another thread: 1 stands for it.
    stream: int | None = None
    # For pinned memory:
    #: Whether devices can use it.
    mapped: bool = False
    #: Whether it can be used in all contexts.
    portable: bool = False
    #: Whether it is fast for the host to write and slow to read.
    write_combined: bool = False


class MemoryInfo(NamedTuple):
    """How much memory there is for a memory manager."""

    #: Bytes that can still be allocated.
    free_bytes: int
    #: All bytes.
    total_bytes: int


class IpcHandle(NamedTuple):
    """The handle with which another process opens the allocation of an address (``cuIpcOpenMemHandle``)."""

    #: The driver's handle, 64 bytes. It opens the whole allocation.
    handle: bytes
    #: Where the address is, in bytes from the beginning of the allocation.
    offset: int
    #: Size of the allocation in bytes.
    bytes: int
    #: The device that the allocation is on.
    device_id: int


class Statistics(NamedTuple):
    """What a memory manager allocated and got back."""

    #: Bytes in use now.
    bytes: int
    #: Most bytes that were in use at one time.
    peak_bytes: int
    #: Allocations in use now.
    allocations: int
    #: Allocations since the beginning.
    total_allocations: int
    #: Bytes allocated since the beginning.
    total_bytes: int
    #: Requests that were refused for lack of memory.
    refused: int


class Interval(NamedTuple):
    """A calendar interval, whose parts are not converted into each other."""

    months: int
    days: int
    nanoseconds: int
