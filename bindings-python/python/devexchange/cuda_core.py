"""cuda.core on the memory managers of this package: a memory resource for its buffers.

::

    import devexchange.cuda_core
    resource = devexchange.cuda_core.MemoryResource(devexchange.MemoryManager.pool(limit=1 << 30))
    buffer = resource.allocate(1 << 20, stream=stream)

This module imports cuda.core; the rest of the package never does.
"""

import cuda.core

from . import MemoryManager, Tensor, empty
from ._native import close_after
from ._types import DeviceType


class MemoryResource(cuda.core.MemoryResource):
    """Buffers in memory of ``manager`` for the device of a number.

    A buffer is allocated in the order of a stream, which must not be destroyed before it is closed. It goes back after what is
    queued on that stream and on the one that it is closed with.
    """

    def __init__(self, manager: MemoryManager, device_id: int = 0) -> None:
        self._manager, self._device_id = manager, device_id
        # By address: what cuda.core has.
        self._blocks: dict[int, Tensor] = {}

    def allocate(self, size: int, *, stream: "cuda.core.Stream") -> cuda.core.Buffer:
        """A buffer of ``size`` bytes, not initialised. Raises OutOfMemory."""
        device = (DeviceType.CUDA, self._device_id)
        tensor = empty(size, "uint8", device=device, stream=stream, manager=self._manager)
        self._blocks[tensor.data_ptr] = tensor
        return cuda.core.Buffer.from_handle(tensor.data_ptr, size, mr=self, stream=stream)

    def deallocate(self, ptr: int, size: int, *, stream: "cuda.core.Stream") -> None:
        """Called by cuda.core when a buffer is closed, or nobody refers to it any more."""
        address = int(ptr)
        close_after(self._blocks[address], stream)
        del self._blocks[address]

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
        return self._device_id
