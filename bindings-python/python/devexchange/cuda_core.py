"""cuda.core on the memory managers of this package: a memory resource for its buffers.

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
    """Buffers in memory of ``manager`` for the device of a number.

    A buffer is allocated in the order of a stream, which must not be destroyed before it is closed. It goes back after what is
    queued on that stream and on the one that it is closed with.
    """

    def __init__(self, manager: MemoryManager, device_id: int = 0) -> None:
        self._blocks = Blocks(manager, device_id)

    def allocate(self, size: int, *, stream: "cuda.core.Stream") -> cuda.core.Buffer:
        """A buffer of ``size`` bytes, not initialised. Raises OutOfMemory."""
        return cuda.core.Buffer.from_handle(self._blocks.allocate(size, stream), size, mr=self, stream=stream)

    def deallocate(self, ptr: int, size: int, *, stream: "cuda.core.Stream") -> None:
        """Called by cuda.core when a buffer is closed, or nobody refers to it any more."""
        self._blocks.give_back(int(ptr), stream)

    @property
    def is_device_accessible(self) -> bool:
        """True: the memory is a device's."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """False, also of a manager that gives managed memory for a device's."""
        return False

    @property
    def is_managed(self) -> bool:
        """As ``is_host_accessible``."""
        return False

    @property
    def device_id(self) -> int:
        """The device's number."""
        return self._blocks.device_id
