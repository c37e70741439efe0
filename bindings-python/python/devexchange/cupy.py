"""CuPy on the memory managers of this package: an allocator for its arrays.

::

    import devexchange.cupy
    devexchange.cupy.use(devexchange.MemoryManager.pool(limit=1 << 30))

Memory is allocated in the order of CuPy's current stream, on its current device. It goes back when no array refers to it
any more, after what is queued on that stream until then: work on other streams has to come before that, as with CuPy's own
pools. The manager's ``statistics`` say what is in use. This module imports CuPy; the rest of the package never does.
"""

from collections.abc import Callable

import cupy

from . import MemoryManager, empty
from ._native import close_after
from ._types import DeviceType


def use(manager: MemoryManager) -> None:
    """Gives CuPy ``manager`` for all that it allocates from now on, on any thread."""
    cupy.cuda.set_allocator(allocator(manager))


def allocator(manager: MemoryManager) -> "Callable[[int], cupy.cuda.MemoryPointer]":
    """An allocator as CuPy takes it, for example for a while: ``with cupy.cuda.using_allocator(allocator(manager)):``"""

    def allocate(size):
        device_id, stream = cupy.cuda.runtime.getDevice(), cupy.cuda.get_current_stream()
        block = _Block(manager, size, device_id, stream)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(block.address, size, block, device_id), 0)

    return allocate


class _Block:
    """Memory as long as CuPy refers to it, and the stream in whose order it is, which is destroyed after it."""

    __slots__ = ("_stream", "_tensor", "address")

    def __init__(self, manager, size, device_id, stream):
        self._stream = stream
        self._tensor = empty(size, "uint8", device=(DeviceType.CUDA, device_id), stream=stream, manager=manager)
        self.address = self._tensor.data_ptr

    def __del__(self):
        tensor = getattr(self, "_tensor", None)
        if tensor is not None:
            close_after(tensor, self._stream)
