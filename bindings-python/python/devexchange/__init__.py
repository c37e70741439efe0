"""Hand memory from one runtime to another: no copy, released once, touched only when it is ready.

``from_dlpack``, ``from_cuda_array_interface``, ``from_buffer`` and ``empty`` give a ``Tensor``, ``from_arrow`` gives a
``RecordBatch``, a ``BatchStream`` or a ``Schema``; each of them goes on to whoever speaks the same protocols. What is
closed, or no longer referred to, is released when its last user is gone; ``outstanding`` counts what is not.
``AsyncReader`` and ``AsyncWriter`` are the two ends of an asynchronous stream of batches.

A stream is a number as the protocols write it (1 the legacy default stream, 2 the calling thread's, otherwise a handle), or
an object with ``__cuda_stream__``, whose 0 stands for 1. 1 and 2 are default streams of the data's device, of pinned and
managed memory those of the device that it was made for; one of another device is named with it:
``DeviceStream.of("cuda:1", 1)``. The driver cannot check a handle: its stream has to live as long as what is allocated,
copied, imported or produced on it, and what is handed on of that. Where it is only waited on, or named with ``used_on``, it is
needed for that call only.

Any thread may use any object; a ``BatchStream`` takes one call at a time. An object whose memory is held here may lose its
last user on a thread that knows nothing of Python: it is then given up by Python's main thread soon after, or by the next
call into this package.
"""

from ._async import AsyncReader, AsyncWriter
from ._native import (
    BatchStream,
    Column,
    DeviceStream,
    Error,
    Failed,
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
