"""The libraries that memory is exchanged with, each behind the same few methods.

A *way out* makes our tensor of an array, whose stream is the current one. A *way in* makes an array of our tensor, for
work on the current stream. `late` queues slow work on a stream and then the values: a reader that does not wait for
that stream reads other values.
"""

import contextlib
import os
import unittest
from ctypes import POINTER, PYFUNCTYPE, byref, c_int, c_void_p, py_object, pythonapi

import cudadriver
import numpy
from structs import pointer_of

from devexchange import from_cuda_array_interface, from_dlpack

TABLE = b"dlpack_exchange_api"
ToObject = PYFUNCTYPE(c_int, c_void_p, POINTER(py_object))

COPIES, BYTES = (8, 1 << 16) if cudadriver.SIMULATED else (200, 256 << 20)


class ByMethod:
    """An array without the function table and the CUDA Array Interface of its type."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)


def by_dlpack(array, stream):
    return from_dlpack(ByMethod(array), stream=stream)


def by_cuda_array(array, stream):
    return from_cuda_array_interface(array, stream=stream)


def strided(interface, stream):
    """Reads an array with gaps by copying the memory from its first to its last element."""
    dtype = numpy.dtype(interface["typestr"])
    last = sum((extent - 1) * step for extent, step in zip(interface["shape"], interface["strides"], strict=True))

    class Flat:
        __cuda_array_interface__ = dict(interface, shape=(last // dtype.itemsize + 1,), strides=None)

    flat = numpy.from_dlpack(from_cuda_array_interface(Flat()).copy_to((1, 0), stream))
    return numpy.lib.stride_tricks.as_strided(flat, interface["shape"], interface["strides"])


class Library:
    #: The name of the library; and, by the name of a test, the reason why that test is not possible with it.
    name = ""
    cannot = {}
    #: Whether it takes -1 as the stream of a DLPack consumer, which then waits for nothing.
    unordered = False
    #: Element types, by our names.
    dtypes = ["uint8", "int32", "int64", "float16", "float32", "float64", "complex64"]
    #: Ways in that refuse memory which must not be written.
    writes = ()
    #: Ways in that do not keep the memory alive: our tensor has to.
    borrows = ("cuda array",)
    #: Views of a matrix that are not compact.
    layouts = {"columns": lambda a: a.T, "every second": lambda a: a[::2, 1::2]}
    out, into = {}, {}

    def __init__(self):
        self.big = self.source = None

    def refuses(self, way, tensor):
        return tensor.read_only and way in self.writes

    def stream(self):
        """Makes a stream of the library that is not the default stream."""
        raise NotImplementedError

    def number(self, stream):
        return stream.number

    def on(self, stream):
        """Makes a stream the current one."""
        raise NotImplementedError

    def array(self, values):
        """Makes an array with these values, which are ready."""
        raise NotImplementedError

    def copy(self, target, source, stream):
        """Queues a copy between arrays of one shape."""
        raise NotImplementedError

    def copied(self, source, stream):
        """Allocates memory and queues a copy into it."""
        raise NotImplementedError

    def values(self, array, stream):
        """Reads the elements with work on the stream."""
        raise NotImplementedError

    def slow(self, stream):
        """Queues work that takes the device some 20 ms."""
        if self.big is None:
            self.big = [self.array(numpy.zeros(BYTES, "u1")) for _ in range(2)]
        for _ in range(COPIES):
            self.copy(*self.big, stream)

    def late(self, values, stream):
        """Makes an array that gets its values after the work queued before it; until then it has other values."""
        source, target = self.array(values), self.array(numpy.full_like(values, -1))
        cudadriver.synchronize()
        # The queued copy needs the source; keep it until the next call.
        self.source = source
        self.slow(stream)
        self.copy(target, source, stream)
        return target

    def is_late(self, array, stream):
        """Whether the work that `late` queued is still going on."""
        return cudadriver.is_busy(self.number(stream))


class Torch(Library):
    name = "PyTorch"
    unordered = True
    writes = ("cuda array",)
    dtypes = [*Library.dtypes, "bool", "bfloat16", "float8_e4m3fn", "float8_e5m2"]

    def __init__(self):
        super().__init__()
        try:
            import torch
        except ImportError as error:
            raise unittest.SkipTest(f"PyTorch is not there: {error}") from None
        if not torch.cuda.is_available():
            raise unittest.SkipTest(f"PyTorch {torch.__version__} sees no GPU")
        self.torch = torch
        self.dtypes = [dtype for dtype in self.dtypes if self.exports(dtype)]
        self.out = {"method": by_dlpack, "cuda array": self.by_cuda_array}
        if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
            self.out["table"] = lambda array, stream: from_dlpack(array, stream=stream)
        self.into = {"dlpack": self.from_dlpack, "cuda array": self.from_cuda_array}
        if "table" in self.out:
            self.into["table"] = self.from_table

    def exports(self, dtype):
        # Floats of 8 bits came to PyTorch's DLPack later than to PyTorch.
        try:
            self.torch.empty(0, dtype=getattr(self.torch, dtype)).__dlpack__()
        except (BufferError, RuntimeError):
            return False
        return True

    def by_cuda_array(self, array, stream):
        # PyTorch's interface has version 2, which names no stream, and PyTorch's streams wait for no default stream.
        return from_cuda_array_interface(array, stream=stream, no_stream="host-sync")

    def from_dlpack(self, tensor, stream):
        return self.torch.from_dlpack(tensor)

    def from_table(self, tensor, stream):
        functions = (c_void_p * 7).from_address(pointer_of(self.torch.Tensor.__dlpack_c_exchange_api__, TABLE))
        managed_tensor_to_py_object = ToObject(functions[4])
        out = py_object()
        if managed_tensor_to_py_object(tensor.export_share(stream=self.number(stream)), byref(out)) != 0:
            raise RuntimeError("the table of torch.Tensor took no tensor")
        seen = out.value
        pythonapi.Py_DecRef(py_object(seen))
        return seen

    def from_cuda_array(self, tensor, stream):
        # PyTorch does not look at the stream.
        tensor.wait(self.number(stream))
        return self.torch.as_tensor(tensor, device="cuda")

    def stream(self):
        return self.torch.cuda.Stream()

    def number(self, stream):
        return stream.cuda_stream

    def on(self, stream):
        return self.torch.cuda.stream(stream)

    def array(self, values):
        array = self.torch.from_numpy(numpy.ascontiguousarray(values)).cuda()
        self.torch.cuda.synchronize()
        return array

    def copy(self, target, source, stream):
        with self.on(stream):
            target.copy_(source, non_blocking=True)

    def copied(self, source, stream):
        with self.on(stream):
            return source.clone()

    def values(self, array, stream):
        with self.on(stream):
            return array.cpu().numpy()

    def typed(self, dtype):
        array = self.torch.arange(24).to(getattr(self.torch, dtype)).reshape(4, 6).cuda()
        self.torch.cuda.synchronize()
        return array

    def raw(self, array):
        return array.contiguous().view(self.torch.uint8).cpu().numpy().tobytes()

    def managed(self, values):
        return None


class CuPy(Library):
    name = "CuPy"
    unordered = True
    dtypes = [*Library.dtypes, "bool"]

    def __init__(self):
        super().__init__()
        try:
            import cupy
        except ImportError as error:
            raise unittest.SkipTest(f"CuPy is not there: {error}") from None
        try:
            cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise unittest.SkipTest(f"CuPy {cupy.__version__} sees no GPU: {error}") from None
        self.cupy = cupy
        self.out = {"method": by_dlpack, "cuda array": by_cuda_array}
        self.into = {
            "dlpack": lambda tensor, stream: cupy.from_dlpack(tensor),
            "cuda array": lambda tensor, stream: cupy.asarray(tensor),
        }

    def stream(self):
        return self.cupy.cuda.Stream(non_blocking=True)

    def number(self, stream):
        return stream.ptr

    def on(self, stream):
        return stream

    def array(self, values):
        array = self.cupy.asarray(values)
        cudadriver.synchronize()
        return array

    def copy(self, target, source, stream):
        target.data.copy_from_device_async(source.data, source.nbytes, stream)

    def copied(self, source, stream):
        with self.on(stream):
            return source.copy()

    def values(self, array, stream):
        values = array.get(stream=stream)
        stream.synchronize()
        return values

    def typed(self, dtype):
        return self.array(numpy.arange(24).astype(dtype).reshape(4, 6))

    def raw(self, array):
        return array.get().tobytes()

    def managed(self, values):
        memory = self.cupy.cuda.malloc_managed(values.nbytes)
        array = self.cupy.ndarray(values.shape, values.dtype, memory)
        array.set(values)
        cudadriver.synchronize()
        return array


class Jax(Library):
    name = "JAX"
    # It asks for the struct without flags. Its own arrays must not be written, which only its CUDA arrays say.
    writes = ("dlpack",)
    dtypes = ["uint8", "int32", "float16", "float32", "complex64", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
    layouts = {}
    cannot = {
        "release": "JAX names no stream that its work is on, so nobody can say what a release has to wait for",
        "capture": "JAX has no streams that a program could capture",
    }

    def __init__(self):
        super().__init__()
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        try:
            import jax
        except ImportError as error:
            raise unittest.SkipTest(f"JAX is not there: {error}") from None
        try:
            jax.devices("cuda")
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise unittest.SkipTest(f"JAX {jax.__version__} sees no GPU: {reason}") from None
        self.jax, self.numpy = jax, jax.numpy
        self.out = {"method": by_dlpack, "cuda array": self.by_cuda_array}
        self.into = {
            "dlpack": lambda tensor, stream: jax.dlpack.from_dlpack(tensor),
            "cuda array": self.from_cuda_array,
        }
        self.square = self.numpy.eye(2048, dtype="float32")
        self.after = jax.jit(self.slowly)

    def slowly(self, values, square):
        done = self.jax.lax.fori_loop(0, 300, lambda _, product: product @ square, square)
        # This adds 0, but only once the product exists.
        return values + self.numpy.minimum(self.numpy.abs(done[0, 0]), 0).astype(values.dtype)

    def by_cuda_array(self, array, stream):
        # JAX's interface names no stream.
        array.block_until_ready()
        return from_cuda_array_interface(array, stream=stream, no_stream="trust")

    def from_cuda_array(self, tensor, stream):
        # JAX does not look at the stream.
        tensor.wait(1)
        cudadriver.synchronize()
        return self.numpy.asarray(tensor)

    def stream(self):
        return cudadriver.Stream()

    def on(self, stream):
        return contextlib.nullcontext()

    def array(self, values):
        return self.numpy.asarray(values).block_until_ready()

    def values(self, array, stream):
        return numpy.asarray(array)

    def slow(self, stream):
        pass

    def late(self, values, stream):
        source = self.array(values)
        return self.after(source, self.square)

    def is_late(self, array, stream):
        return not array.is_ready()

    def typed(self, dtype):
        return self.numpy.arange(24).astype(dtype).reshape(4, 6).block_until_ready()

    def raw(self, array):
        return numpy.asarray(array).tobytes()

    def managed(self, values):
        return None


class Numba(Library):
    name = "Numba"
    dtypes = [*Library.dtypes, "bool"]
    # Transposing is a kernel that copies.
    layouts = {"every second": Library.layouts["every second"]}

    def __init__(self):
        super().__init__()
        if cudadriver.SIMULATED:
            # Numba holds back what it frees, so that nobody would see the use of freed memory.
            os.environ.setdefault("NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT", "0")
        try:
            from numba import cuda
        except ImportError as error:
            raise unittest.SkipTest(f"Numba is not there: {error}") from None
        try:
            cuda.current_context()
        except cuda.cudadrv.error.CudaSupportError as error:
            raise unittest.SkipTest(f"Numba sees no GPU: {error}") from None
        self.cuda = cuda
        self.out = {"cuda array": self.by_cuda_array}
        self.into = {"cuda array": lambda tensor, stream: cuda.as_cuda_array(tensor)}
        self.current = None

    def by_cuda_array(self, array, stream):
        # An array names the stream that it is used on. Binding an array that the host can also read would copy it.
        if self.current is not None and type(array) is self.cuda.cudadrv.devicearray.DeviceNDArray:
            array = array.bind(self.current)
        return from_cuda_array_interface(array, stream=stream)

    def stream(self):
        return self.cuda.stream()

    def number(self, stream):
        handle = stream.handle
        return int(getattr(handle, "value", handle))

    @contextlib.contextmanager
    def on(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def array(self, values):
        array = self.cuda.to_device(numpy.ascontiguousarray(values))
        self.cuda.synchronize()
        return array

    def copy(self, target, source, stream):
        target.copy_to_device(source, stream=stream)

    def copied(self, source, stream):
        target = self.cuda.device_array(source.shape, source.dtype, stream=stream)
        self.copy(target, source, stream)
        return target

    def values(self, array, stream):
        if not array.is_c_contiguous():
            # Numba copies only contiguous arrays to the host.
            return strided(array.__cuda_array_interface__, self.number(stream))
        values = array.copy_to_host(stream=stream)
        stream.synchronize()
        return values

    def typed(self, dtype):
        return self.array(numpy.arange(24).astype(dtype).reshape(4, 6))

    def raw(self, array):
        return array.copy_to_host().tobytes()

    def managed(self, values):
        array = self.cuda.managed_array(values.shape, values.dtype)
        array[...] = values
        return array
