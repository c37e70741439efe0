"""Our tensors over memory of cuda.core, as made by a library that exports its own memory."""

import numpy

import driver
from devexchange import Tensor

LAYOUTS = {
    "vector": lambda array: array.reshape(-1),
    "matrix": lambda array: array,
    "transposed": lambda array: array.T,
    "every second": lambda array: array[::2, 1::2],
    "repeated": lambda array: numpy.broadcast_to(array[0], (3, array.shape[1])),
    "empty": lambda array: array[:0],
    "scalar": lambda array: array[1:2, 1:2].reshape(()),
}


def matrix(dtype):
    return numpy.arange(1, 25).astype(dtype).reshape(4, 6)


def element_strides(array):
    return tuple(stride // array.itemsize for stride in array.strides)


class Shared:
    """A tensor over a part of a matrix in device memory, which `stream` still has to fill."""

    def __init__(self, cuda, dtype="f4", layout="matrix", flags=0, stream=None):
        stream = stream or cuda.producer
        whole = matrix(dtype)
        self.elements = LAYOUTS[layout](whole)
        memory = driver.pending(cuda.device, whole, stream)
        self.released = released = []

        def release():
            released.append("memory")
            memory.close()

        self.tensor = Tensor.over(
            int(memory.handle) + self.elements.ctypes.data - whole.ctypes.data,
            self.elements.shape,
            self.elements.dtype,
            strides=element_strides(self.elements),
            flags=flags,
            release=release,
        ).produced_on(driver.number(stream))


def elements(address, shape, strides, dtype, stream):
    """A strided array in device memory, as work on `stream` sees it."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if 0 not in shape else 0
    flat = driver.download(address, extent * dtype.itemsize, stream).view(dtype)
    return numpy.lib.stride_tricks.as_strided(flat, shape, [stride * dtype.itemsize for stride in strides])
