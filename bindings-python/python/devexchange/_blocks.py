"""Memory for libraries that give back addresses: cuda.core and RMM."""

from typing import Any

from . import MemoryManager, Tensor, empty
from ._native import close_after
from ._types import DeviceType


class Blocks:
    """Memory of ``manager`` for one device, found by its address while it is in use."""

    def __init__(self, manager: MemoryManager, device_id: int) -> None:
        self.device_id = device_id
        self._manager = manager
        self._tensors: dict[int, Tensor] = {}

    def allocate(self, size: int, stream: Any) -> int:
        """Returns the address of ``size`` bytes in the order of ``stream``, or 0 for 0 bytes. Raises OutOfMemory."""
        device = (DeviceType.CUDA, self.device_id)
        tensor = empty(size, "uint8", device=device, stream=stream, manager=self._manager)
        address = tensor.data_ptr
        if address:
            self._tensors[address] = tensor
        return address

    def give_back_unused(self, address: int) -> None:
        """Gives memory back that nobody has used, so that the order of the stream it was allocated with will do."""
        self._tensors.pop(address, None)

    def give_back(self, address: int, stream: Any) -> None:
        """Gives memory back after the work queued so far on ``stream`` and on the stream it was allocated with."""
        if not address:
            return
        # Before it is given back: from then on, another thread may be given the same address.
        tensor = self._tensors.pop(address)
        try:
            close_after(tensor, stream)
        except BaseException:
            self._tensors[address] = tensor
            raise
