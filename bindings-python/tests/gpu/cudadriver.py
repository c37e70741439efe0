"""The few calls that tests make to the CUDA driver, and whether that is the simulated one."""

import contextlib
import ctypes
import os
from ctypes import byref, c_int, c_void_p

#: Whether this is a rehearsal on the simulated driver, which makes a program fail that touches memory too early.
SIMULATED = os.environ.get("DEVX_GPU") == "rehearsal"

NOT_READY = 600
RELAXED = 2

_cuda = ctypes.CDLL("libcuda.so.1")
if hasattr(_cuda, "simcuda_stat") != SIMULATED:
    raise RuntimeError("the driver is the simulated one in a run that is no rehearsal, or the other way round")


def _call(name, *arguments):
    code = getattr(_cuda, name)(*arguments)
    if code:
        raise RuntimeError(f"{name} returned {code}")


def _handle(number):
    return c_void_p(number)


def _enter():
    """Makes the context that all libraries share current on this thread: not all libraries leave it current."""
    device, context = c_int(), c_void_p()
    _call("cuInit", 0)
    _call("cuDeviceGet", byref(device), 0)
    _call("cuDevicePrimaryCtxRetain", byref(context), device)
    _call("cuCtxSetCurrent", context)


def device_count():
    count = c_int()
    _call("cuDeviceGetCount", byref(count))
    return count.value


def synchronize():
    """Waits for all work of the current context."""
    _call("cuCtxSynchronize")


class Stream:
    """A stream of the driver that waits for no default stream."""

    def __init__(self):
        made = c_void_p()
        _call("cuStreamCreate", byref(made), 1)
        self.number = made.value


def is_busy(stream):
    """Whether work is still queued on a stream, given by its number."""
    code = _cuda.cuStreamQuery(_handle(stream))
    if code not in (0, NOT_READY):
        raise RuntimeError(f"cuStreamQuery returned {code}")
    return code == NOT_READY


@contextlib.contextmanager
def captured(stream):
    """Captures the work queued on a stream meanwhile as a graph, and runs it once. Raises if the capture was broken."""
    graph, executable = c_void_p(), c_void_p()
    _call("cuStreamBeginCapture_v2", _handle(stream), RELAXED)
    try:
        yield
    finally:
        _call("cuStreamEndCapture", _handle(stream), byref(graph))
    if not SIMULATED:
        _call("cuGraphInstantiateWithFlags", byref(executable), graph, ctypes.c_ulonglong(0))
        _call("cuGraphLaunch", executable, _handle(stream))
        _call("cuStreamSynchronize", _handle(stream))
        _call("cuGraphExecDestroy", executable)
    _call("cuGraphDestroy", graph)


_enter()
