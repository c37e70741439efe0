"""A memory resource with which cuda.core allocates its buffers from the memory managers of this package.

::

    import devexchange.cuda_core
    resource = devexchange.cuda_core.MemoryResource(devexchange.MemoryManager.pool(limit=1 << 30))
    buffer = resource.allocate(1 << 20, stream=stream)

This module imports cuda.core; the rest of the package never does.
"""

import cuda.core

from . import MemoryManager
from ._blocks import Blocks


class MemoryResource(cuda.core.MemoryResource):
    """Buffers in memory of ``manager`` on the device ``device_id``.

    A buffer is allocated in the order of a stream, which must not be destroyed before the buffer is closed. The memory
    goes back after the work queued on that stream and on the stream that the buffer is closed with.
    """

    def __init__(self, manager: MemoryManager, device_id: int = 0) -> None:
        self._blocks = Blocks(manager, device_id)

    def allocate(self, size: int, *, stream: "cuda.core.Stream") -> cuda.core.Buffer:
        """Returns a buffer of ``size`` uninitialised bytes. Raises OutOfMemory."""
        address = self._blocks.allocate(size, stream)
        try:
            return cuda.core.Buffer.from_handle(address, size, mr=self, stream=stream)
        except BaseException:
            # For example, because cuda.core takes fewer kinds of streams than this package.
            self._blocks.give_back_unused(address)
            raise

    def deallocate(self, ptr: int, size: int, *, stream: "cuda.core.Stream") -> None:
        """Gives memory back; cuda.core calls this when a buffer is closed or no longer referred to."""
        self._blocks.give_back(int(ptr), stream)

    @property
    def is_device_accessible(self) -> bool:
        """True: it is device memory."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """False, even if the manager gives managed memory for device memory."""
        return False

    @property
    def is_managed(self) -> bool:
        """False, like ``is_host_accessible``."""
        return False

    @property
    def device_id(self) -> int:
        """The number of the device."""
        return self._blocks.device_id
