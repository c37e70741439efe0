"""An allocator with which PyTorch takes its GPU memory from the memory managers of this package.

::

    import devexchange.torch
    devexchange.torch.use(devexchange.MemoryManager.pool(limit=1 << 30))

Memory is allocated and freed in the order of PyTorch's streams, including those named with ``Tensor.record_stream``: it
goes back to the manager after the work that is queued on all these streams when PyTorch frees it.

PyTorch's own cache is then out of use. PyTorch refuses ``torch.cuda.memory_allocated`` and its like; the manager's
``statistics`` say what is in use. To keep that cache and take only its segments from a manager::

    pool = torch.cuda.MemPool(devexchange.torch.allocator(manager).allocator())
    with torch.cuda.use_mem_pool(pool):
        ...

PyTorch has one manager at a time. A new one is used for everything that is allocated from then on. An error of the
manager is raised as a ``RuntimeError`` with its text. This module imports PyTorch; the rest of the package never does.
"""

import ctypes
import functools

from torch.cuda import memory as _memory

from . import MemoryManager, _native


def use(manager: MemoryManager) -> None:
    """Makes PyTorch take all its GPU memory from ``manager``.

    The first call has to come before PyTorch allocates any GPU memory itself."""
    _install()
    _native.give_torch(manager)


def allocator(manager: MemoryManager) -> _memory.CUDAPluggableAllocator:
    """Returns the allocator, which asks ``manager``, or whichever manager is later named here or in ``use``."""
    _native.give_torch(manager)
    return _allocator()


@functools.cache
def _install():
    _memory.change_current_allocator(_allocator())


@functools.cache
def _allocator():
    functions = ctypes.CDLL(_native.__file__)
    made = _memory.CUDAPluggableAllocator(_native.__file__, "devexchange_torch_allocate", "devexchange_torch_free")
    record_stream = ctypes.cast(functions.devexchange_torch_record_stream, ctypes.c_void_p).value
    made.allocator().set_record_stream_fn(record_stream)
    return made
