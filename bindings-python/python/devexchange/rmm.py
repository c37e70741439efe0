"""A memory resource with which RMM (and so cuDF and its like) allocates from the memory managers of this package.

::

    import devexchange.rmm
    devexchange.rmm.use(devexchange.MemoryManager.pool(limit=1 << 30))

Memory is allocated and freed in the order of RMM's streams. It goes back after the work queued on the stream that it
was allocated with, which must not be destroyed before, and on the stream that it is freed with. RMM resources can be
stacked on this one, for example one that counts. The manager's ``statistics`` say what is in use. This module imports
RMM; the rest of the package never does.
"""

import rmm

from . import MemoryManager
from ._blocks import Blocks


def use(manager: MemoryManager, device_id: int = 0) -> None:
    """Makes RMM allocate from ``manager`` on a device from now on.

    Buffers allocated before go back to where they came from."""
    rmm.mr.set_per_device_resource(device_id, resource(manager, device_id))


def resource(manager: MemoryManager, device_id: int = 0) -> rmm.mr.CallbackMemoryResource:
    """Returns a memory resource that allocates from ``manager`` on a device; other RMM resources can be stacked on it.

    If there is no more memory, RMM raises MemoryError with the manager's text; for other errors, RuntimeError."""
    blocks = Blocks(manager, device_id)
    return rmm.mr.CallbackMemoryResource(blocks.allocate, lambda address, size, stream: blocks.give_back(address, stream))
