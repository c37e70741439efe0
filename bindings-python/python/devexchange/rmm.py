"""RMM, the memory manager of RAPIDS, on the memory managers of this package: a memory resource for cuDF and its like.

::

    import devexchange.rmm
    devexchange.rmm.use(devexchange.MemoryManager.pool(limit=1 << 30))

Memory is allocated and freed in the order of RMM's streams: it goes back after what is queued on the stream that it was
allocated with, which must not be destroyed before, and on the one that it is freed with. A resource of RMM's may be over
this one, for example one that counts. The manager's ``statistics`` say what is in use. This module imports RMM; the rest of
the package never does.
"""

import rmm

from . import MemoryManager
from ._blocks import Blocks


def use(manager: MemoryManager, device_id: int = 0) -> None:
    """Gives RMM ``manager`` for what it allocates on a device from now on. Buffers of before go back to where they are from."""
    rmm.mr.set_per_device_resource(device_id, resource(manager, device_id))


def resource(manager: MemoryManager, device_id: int = 0) -> rmm.mr.CallbackMemoryResource:
    """A memory resource that allocates from ``manager`` on a device, also below other resources of RMM's. Where there
    is no more memory RMM raises MemoryError with the manager's text, otherwise RuntimeError."""
    blocks = Blocks(manager, device_id)
    return rmm.mr.CallbackMemoryResource(blocks.allocate, lambda address, size, stream: blocks.give_back(address, stream))
