"""The simulated CUDA driver (tests/simcuda): its schedule, its findings, and work that is still queued."""

import ctypes
import os
import time
from functools import partial

import numpy
from cuda.bindings import driver as cuda
from cuda.core import Buffer

MODE = os.environ.get("SIMCUDA_MODE", "lazy")

_library = ctypes.CDLL("libcuda.so.1")
_library.simcuda_seed.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
_library.simcuda_stat.argtypes, _library.simcuda_stat.restype = [ctypes.c_char_p], ctypes.c_int64
_library.simcuda_calls.argtypes, _library.simcuda_calls.restype = [ctypes.c_char_p], ctypes.c_uint64
_library.simcuda_findings.restype = _library.simcuda_findings_clear.restype = ctypes.c_size_t
for _name in ["simcuda_finding", "simcuda_ledger"]:
    getattr(_library, _name).restype = ctypes.c_size_t
_library.simcuda_finding.argtypes = [ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
_library.simcuda_ledger.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def set_seed(seed):
    if _library.simcuda_seed(MODE.encode(), seed) != 0:
        raise ValueError(f"SIMCUDA_MODE is {MODE!r}: lazy, adversarial or threads was expected")


def stat(name):
    return _library.simcuda_stat(name.encode())


def calls(function):
    """How often a function of the driver has been called."""
    return _library.simcuda_calls(function.encode())


def _text(write):
    room = ctypes.create_string_buffer(1 << 16)
    write(room, len(room))
    return room.value.decode()


def ledger():
    """The driver's list of what is not freed or destroyed, one per line."""
    return _text(_library.simcuda_ledger)


def take_findings():
    """Returns the driver's findings and clears them."""
    count = _library.simcuda_findings()
    found = [_text(partial(_library.simcuda_finding, index)) for index in range(count)]
    _library.simcuda_findings_clear()
    return found


def wait_until(done):
    """Waits until `done` returns true, for what another thread does after queued work."""
    end = time.monotonic() + 120
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)


def assert_found(kind):
    """Expects findings of the driver, the first one of this kind."""
    findings = take_findings()
    assert findings and findings[0].startswith(f"{kind}: "), findings


def ok(result):
    """The result of a call of cuda.bindings, which must succeed."""
    code, *values = result
    assert code == cuda.CUresult.CUDA_SUCCESS, code
    return values[0] if values else None


def number(stream):
    """The number that a stream of cuda.core has in DLPack."""
    return int(stream.handle)


def pending(device, values, stream):
    """New device memory that contains `values` only after the work that is queued on `stream` now."""
    values = numpy.ascontiguousarray(values)
    memory, staging = (device.allocate(max(values.nbytes, 1), stream=stream) for _ in range(2))
    if values.nbytes:
        ok(cuda.cuMemcpyHtoDAsync(int(staging.handle), values.ctypes.data, values.nbytes, stream.handle))
        memory.copy_from(staging, stream=stream)
    staging.close(stream)
    return memory


def download(address, nbytes, stream):
    """Copies bytes of device memory to the host, as work on `stream` sees them."""
    host = numpy.zeros(nbytes, numpy.uint8)
    if nbytes:
        ok(cuda.cuMemcpyDtoHAsync(host.ctypes.data, address, nbytes, stream.handle))
    stream.sync()
    return host


def copy_on(device, address, nbytes, stream):
    """Queues a copy from device memory, as work that uses the memory."""
    target = device.allocate(nbytes, stream=stream)
    target.copy_from(Buffer.from_handle(address, nbytes), stream=stream)
    return target


def copy_between(target, source, nbytes, stream):
    """Queues a copy from device memory to device memory, of any devices."""
    ok(cuda.cuMemcpyDtoDAsync(target, source, nbytes, stream.handle))
