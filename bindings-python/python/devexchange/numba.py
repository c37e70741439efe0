"""Numba on the memory managers of this package: a plugin for Numba's external memory management (EMM, version 1).

Either set ``NUMBA_CUDA_MEMORY_MANAGER=devexchange.numba``, or call ``use`` before Numba makes its first context::

    import devexchange.numba
    devexchange.numba.use(devexchange.MemoryManager.pool(limit=1 << 30))

Without ``use``, ``DEVEXCHANGE_NUMBA_MANAGER`` names the manager: ``driver`` (the default), ``managed`` or ``pool``,
each optionally with a limit in bytes: ``pool:2G``. The plugin works with the ``numba.cuda`` of Numba and with that of
``numba-cuda``. This module imports Numba; the rest of the package never does.

Until ``numba.cuda.defer_cleanup()`` ends, nothing is freed by a driver call that may wait for the device: neither
device memory of ``driver`` and ``managed`` nor pinned memory of any manager. Memory of a ``pool`` still goes back to
the pool, which costs nothing and makes it available to the next allocation. Arrays that were pinned
(``numba.cuda.pinned``, ``mapped``) are still unpinned, because Numba may pin them again. A manager that runs out of
memory may free what it holds back.

Memory is ready for every stream when Numba gets it. To ensure this, an allocation from a ``pool`` waits for the work on
the legacy default stream. The memory goes back in the order of that stream. Work on streams that do not wait for it
(made with ``CU_STREAM_NON_BLOCKING``) therefore has to be done before the last reference to an array goes.

``numba.cuda.close()`` and the reset of a context give back all memory that the manager has on that device, no matter
who asked for it. If others go on using their memory, give Numba a manager of its own.
"""

import contextlib
import ctypes
import itertools
import os
import weakref

try:
    from numba import cuda
except ImportError:  # numba-cuda alone, without its redirection of numba.cuda
    from numba_cuda.numba import cuda

from . import Error, MemoryManager, Refused
from ._types import DeviceType

_driver = cuda.cudadrv.driver
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_chosen = None


def use(manager: MemoryManager) -> None:
    """Makes this plugin Numba's memory manager, with ``manager`` for all contexts that Numba makes from now on."""
    global _chosen
    _chosen = manager
    cuda.set_memory_manager(_numba_memory_manager)


def _manager():
    """Returns the one manager of all contexts."""
    global _chosen
    if _chosen is None:
        _chosen = _named(os.environ.get("DEVEXCHANGE_NUMBA_MANAGER", "driver"))
    return _chosen


def _named(text):
    name, _, limit = text.partition(":")
    limit = _bytes(limit, text) if limit else None
    if name == "pool":
        return MemoryManager.pool(limit)
    if name not in ("driver", "managed"):
        raise ValueError(f"DEVEXCHANGE_NUMBA_MANAGER is {text!r}: driver, managed or pool was expected")
    manager = MemoryManager.driver() if name == "driver" else MemoryManager.managed()
    return MemoryManager.limited(manager, limit) if limit is not None else manager


def _bytes(limit, text):
    digits = limit.rstrip("".join(_UNITS))
    unit = limit[len(digits) :]
    if not digits.isdecimal() or unit not in _UNITS:
        raise ValueError(f"DEVEXCHANGE_NUMBA_MANAGER is {text!r}: a limit is a number, with K, M, G or T after it")
    return int(digits) << _UNITS[unit]


if getattr(_driver, "USE_NV_BINDING", True):  # numba-cuda, and Numba with NVIDIA's binding
    _device_pointer, _host_pointer = _driver.binding.CUdeviceptr, int

    def _ipc_bytes(handle):
        made = _driver.binding.CUipcMemHandle()
        made.reserved = handle
        return made

else:
    _device_pointer, _host_pointer = _driver.drvapi.cu_device_ptr, ctypes.c_void_p
    _ipc_bytes = _driver.drvapi.cu_ipc_mem_handle.from_buffer_copy


class DevexchangeMemoryManager(cuda.BaseCUDAMemoryManager):
    """The memory manager of one Numba context. Numba calls all methods.

    The finalizer of a Numba pointer is the ``close`` of its allocation's ``Memory``: it gives the memory back once, on
    any thread, and does nothing after a reset or when the driver is gone.
    """

    def __init__(self, context):
        super().__init__(context=context)
        # Numba makes an instance without a context to read its interface version.
        self._manager = None if context is None else _manager()
        self._device_id = None
        # Pointers to which Numba holds only weak references while it counts their users.
        self._counted = {}
        self._numbers = itertools.count()

    @property
    def interface_version(self):
        return 1

    def initialize(self):
        # Ask the current context, whatever number its device object claims.
        with _driver.driver.get_active_context() as active:
            self._device_id = active.devnum
        self._manager.initialize(self._id())

    def reset(self):
        self._counted.clear()
        self._manager.reset(self._id())

    @contextlib.contextmanager
    def defer_cleanup(self):
        with self._manager.defer_cleanup():
            yield

    def get_memory_info(self):
        try:
            free, total = self._manager.memory_info(self._id())
        except Error as error:
            raise RuntimeError(str(error)) from error
        return cuda.MemoryInfo(free=free, total=total)

    def memalloc(self, size):
        memory = self._allocate(size, DeviceType.CUDA)
        memory.synchronize()
        pointer = _device_pointer(memory.address)
        return cuda.MemoryPointer(self._context(), pointer, size, finalizer=memory.close)

    def memallocmanaged(self, size, attach_global):
        """Allocates managed memory, always attached globally.

        Not part of the interface, but ``numba.cuda.managed_array`` calls it."""
        try:
            memory = self._allocate(size, DeviceType.CUDA_MANAGED)
        except Refused:  # A pool has no managed memory.
            memory = MemoryManager.driver().allocate(size, (DeviceType.CUDA_MANAGED, self._id()))
        return self._count(_driver.ManagedMemory, _device_pointer(memory.address), size, memory)

    def memhostalloc(self, size, mapped=False, portable=False, wc=False):
        # Numba needs an address even for 0 bytes.
        flags = {"mapped": mapped, "portable": portable, "write_combined": wc}
        memory = self._allocate(max(size, 1), DeviceType.CUDA_HOST, **flags)
        return self._host(memory, size, mapped)

    def mempin(self, owner, pointer, size, mapped=False):
        address = getattr(pointer, "value", pointer)
        memory = self._manager.pin(address, size, device_id=self._id(), mapped=mapped)
        return self._host(memory, size, mapped, owner)

    def get_ipc_handle(self, memory):
        found = self._manager.ipc_handle(memory.device_pointer_value)
        identity = self.context.device.get_device_identity()
        return cuda.IpcHandle(memory, _ipc_bytes(found.handle), memory.size, identity, offset=found.offset)

    def _id(self):
        """Returns the number of the context's device, also before ``initialize``."""
        return self.context.device.id if self._device_id is None else self._device_id

    def _context(self):
        return weakref.proxy(self.context)

    def _allocate(self, size, kind, **flags):
        return self._manager.allocate(size, (kind, self._id()), **flags)

    def _host(self, memory, size, mapped, owner=None):
        pointer = _host_pointer(memory.address)
        if mapped:
            return self._count(cuda.MappedMemory, pointer, size, memory, owner)
        return cuda.PinnedMemory(self._context(), pointer, size, owner=owner, finalizer=memory.close)

    def _count(self, kind, pointer, size, memory, owner=None):
        """Makes a pointer that frees itself with its last counted reference, and returns the first reference."""
        counted, number = self._counted, next(self._numbers)

        def finalize():
            counted.pop(number, None)
            memory.close()

        made = kind(self._context(), pointer, size, owner=owner, finalizer=finalize)
        counted[number] = made
        return made.own()


_numba_memory_manager = DevexchangeMemoryManager
