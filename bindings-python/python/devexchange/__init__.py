"""Hand memory from one runtime to another: no copy, released once, touched only when it is ready.

``from_dlpack``, ``from_cuda_array_interface``, ``from_buffer`` and ``empty`` return a ``Tensor``; ``from_arrow``
returns a ``RecordBatch``, a ``BatchStream`` or a ``Schema``. Each of these can be handed on to any consumer of the same
protocols. Memory whose object was closed, or is no longer referred to, is released when its last user is gone;
``outstanding`` counts what has not been released yet. A ``Field`` of a schema says what the values of a column are.
``AsyncReader`` and ``AsyncWriter`` are the two ends of an asynchronous stream of batches.

A stream is a number as the protocols write it (1 is the legacy default stream, 2 the calling thread's default stream,
anything else a handle), or an object with ``__cuda_stream__``, whose handle 0 stands for 1. 1 and 2 are default streams
of the data's device, or, for pinned and managed memory, of the device that the memory was made for.
``DeviceStream.of("cuda:1", 1)`` names a default stream of another device. The driver cannot check a handle: the stream
must outlive everything that is allocated, copied, imported, produced or made of columns on it, and everything handed on
from that. A stream that is only waited on, or named with ``used_on``, is needed for that call only.

Any thread can use any object; a ``BatchStream`` takes one call at a time. The last user of a Python object that is held
here may be a thread that knows nothing of Python. The object is then given up soon after by Python's main thread, or by
the next call into this package.
"""

from typing import TYPE_CHECKING, Any

from ._native import (
    BatchStream,
    Column,
    DeviceStream,
    Error,
    Failed,
    Field,
    InvalidType,
    InvalidValue,
    Memory,
    MemoryManager,
    OutOfMemory,
    OutOfRange,
    RecordBatch,
    Refused,
    Schema,
    SystemFailed,
    Tensor,
    TimedOut,
    __version__,
    device_count,
    device_info,
    empty,
    from_arrow,
    from_buffer,
    from_cuda_array_interface,
    from_dlpack,
    ledger,
    outstanding,
    releases_lost,
    releases_waiting,
)
from ._types import (
    Count,
    Device,
    DeviceInfo,
    DeviceType,
    Interval,
    IpcHandle,
    MemoryInfo,
    MemoryRequest,
    Plan,
    ProducerError,
    Received,
    Statistics,
)

if TYPE_CHECKING:
    from ._async import AsyncReader, AsyncWriter

__all__ = [
    "AsyncReader",
    "AsyncWriter",
    "BatchStream",
    "Column",
    "Count",
    "Device",
    "DeviceInfo",
    "DeviceStream",
    "DeviceType",
    "Error",
    "Failed",
    "Field",
    "Interval",
    "InvalidType",
    "InvalidValue",
    "IpcHandle",
    "Memory",
    "MemoryInfo",
    "MemoryManager",
    "MemoryRequest",
    "OutOfMemory",
    "OutOfRange",
    "Plan",
    "ProducerError",
    "Received",
    "RecordBatch",
    "Refused",
    "Schema",
    "Statistics",
    "SystemFailed",
    "Tensor",
    "TimedOut",
    "__version__",
    "device_count",
    "device_info",
    "empty",
    "from_arrow",
    "from_buffer",
    "from_cuda_array_interface",
    "from_dlpack",
    "ledger",
    "outstanding",
    "releases_lost",
    "releases_waiting",
]

# Not for type checkers: they would take any name for an attribute of the package.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # These import asyncio, which takes longer than all the rest of the package.
        if name not in ("AsyncReader", "AsyncWriter"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import _async

        globals().update(AsyncReader=_async.AsyncReader, AsyncWriter=_async.AsyncWriter)
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
