"""Memory for libraries that give back addresses: cuda.core and RMM."""

from typing import Any

from . import MemoryManager, Tensor, empty
from ._native import close_after
from ._types import DeviceType


class Blocks:
    """Memory of ``manager`` for one device, by its address as long as it is in use."""

    def __init__(self, manager: MemoryManager, device_id: int) -> None:
        self.device_id = device_id
        self._manager = manager
        self._tensors: dict[int, Tensor] = {}

    def allocate(self, size: int, stream: Any) -> int:
        """The address of ``size`` bytes in the order of ``stream``, 0 of none. Raises OutOfMemory."""
        device = (DeviceType.CUDA, self.device_id)
        tensor = empty(size, "uint8", device=device, stream=stream, manager=self._manager)
        address = tensor.data_ptr
        if address:
            self._tensors[address] = tensor
        return address

    def give_back(self, address: int, stream: Any) -> None:
        """After what is queued on ``stream`` until now, and on the one that it was allocated with."""
        if not address:
            return
        # First, as the same address may be another thread's as soon as it is given back.
        tensor = self._tensors.pop(address)
        try:
            close_after(tensor, stream)
        except BaseException:
            self._tensors[address] = tensor
            raise
