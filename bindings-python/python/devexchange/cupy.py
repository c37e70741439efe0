"""An allocator with which CuPy takes the memory of its arrays from the memory managers of this package.

::

    import devexchange.cupy
    devexchange.cupy.use(devexchange.MemoryManager.pool(limit=1 << 30))

Memory is allocated on CuPy's current device, in the order of its current stream. It goes back when no array refers to
it any more, after the work queued on that stream until then. As with CuPy's own pools, work on other streams has to be
ordered before that. The manager's ``statistics`` say what is in use. This module imports CuPy; the rest of the package
never does.
"""

from collections.abc import Callable

import cupy

from . import MemoryManager, empty
from ._native import close_after
from ._types import DeviceType


def use(manager: MemoryManager) -> None:
    """Makes CuPy allocate from ``manager`` from now on, on all threads."""
    cupy.cuda.set_allocator(allocator(manager))


def allocator(manager: MemoryManager) -> "Callable[[int], cupy.cuda.MemoryPointer]":
    """Returns an allocator for CuPy, for example for ``with cupy.cuda.using_allocator(allocator(manager)):``."""

    def allocate(size):
        device_id, stream = cupy.cuda.runtime.getDevice(), cupy.cuda.get_current_stream()
        block = _Block(manager, size, device_id, stream)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(block.address, size, block, device_id), 0)

    return allocate


class _Block:
    """Memory that lives as long as CuPy refers to it, with the stream of its order, which outlives it."""

    __slots__ = ("_stream", "_tensor", "address")

    def __init__(self, manager, size, device_id, stream):
        self._stream = stream
        self._tensor = empty(size, "uint8", device=(DeviceType.CUDA, device_id), stream=stream, manager=manager)
        self.address = self._tensor.data_ptr

    def __del__(self):
        tensor = getattr(self, "_tensor", None)
        if tensor is not None:
            close_after(tensor, self._stream)
