"""PyTorch on the memory managers of this package: an allocator for its memory on GPUs.

::

    import devexchange.torch
    devexchange.torch.use(devexchange.MemoryManager.pool(limit=1 << 30))

Memory is allocated and freed in the order of PyTorch's streams. What ``Tensor.record_stream`` names is waited for, too:
memory goes back to the manager after all that was queued on those streams when PyTorch frees it.

PyTorch's own cache is out of use then: ``torch.cuda.memory_allocated`` and its like are refused by PyTorch, the manager's
``statistics`` say what is in use. To keep that cache, and take only its segments from a manager::

    pool = torch.cuda.MemPool(devexchange.torch.allocator(manager).allocator())
    with torch.cuda.use_mem_pool(pool):
        ...

PyTorch has one manager at a time: another one is asked for what is allocated from then on. An error of the manager is a
``RuntimeError`` with its text. This module imports PyTorch; the rest of the package never does.
"""

import ctypes
import functools

from torch.cuda import memory as _memory

from . import MemoryManager, _native


def use(manager: MemoryManager) -> None:
    """Gives PyTorch ``manager`` for all memory on GPUs. The first time has to come before PyTorch allocates any itself."""
    _install()
    _native.give_torch(manager)


def allocator(manager: MemoryManager) -> _memory.CUDAPluggableAllocator:
    """The allocator that asks ``manager``, and whoever is named here or to ``use`` later on."""
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
