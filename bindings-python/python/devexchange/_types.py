"""Records that the native half fills in."""

from enum import IntEnum
from typing import NamedTuple


class DeviceType(IntEnum):
    """Kinds of devices, as DLPack and Arrow number them. There are more; these this library has a runtime for."""

    CPU = 1
    CUDA = 2
    CUDA_HOST = 3
    CUDA_MANAGED = 13


class Device(NamedTuple):
    """One device: its kind and its number, as ``__dlpack_device__`` gives them."""

    type: int
    id: int = 0

    def __str__(self) -> str:
        return f"{DeviceType(self.type).name.lower()}:{self.id}"


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


class Interval(NamedTuple):
    """A span of the calendar, whose parts are not converted into each other."""

    months: int
    days: int
    nanoseconds: int
