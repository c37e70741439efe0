"""PyTorch's pluggable allocator on our managers.

No device is initialised, so the allocator is called through those functions of `torch._C` that are for other libraries.
The simulated driver does the work on streams, and ends the process if memory goes back before that work is done."""

import ctypes
import subprocess
import sys
from ctypes import byref, c_void_p

import pytest
import torch

import devexchange
import devexchange.torch
from devexchange import MemoryManager

BYTES = 4096

allocate = torch._C._cuda_cudaCachingAllocator_raw_alloc
free = torch._C._cuda_cudaCachingAllocator_raw_delete


@pytest.fixture(scope="module", autouse=True)
def in_use():
    devexchange.torch.use(MemoryManager.host_only())


@pytest.fixture
def stream():
    cuda, context, stream = ctypes.CDLL("libcuda.so.1"), c_void_p(), c_void_p()
    for code in (
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(byref(context), 0),
        cuda.cuCtxSetCurrent(context),
        cuda.cuStreamCreate(byref(stream), 1),
    ):
        assert code == 0
    yield stream
    assert cuda.cuStreamSynchronize(stream) == 0
    assert cuda.cuStreamDestroy_v2(stream) == 0
    assert cuda.simcuda_findings() == 0


def fill(address, stream):
    cuda = ctypes.CDLL("libcuda.so.1")
    assert cuda.cuMemsetD8Async(c_void_p(address), 7, ctypes.c_size_t(BYTES), stream) == 0


def in_use_now(manager):
    devexchange.from_buffer(b"").close()
    return manager.statistics().bytes


@pytest.mark.parametrize("make", [MemoryManager.driver, MemoryManager.managed, MemoryManager.pool])
def test_memory_comes_from_the_manager(stream, make):
    with make() as manager:
        devexchange.torch.use(manager)
        address = allocate(BYTES, stream.value)
        assert in_use_now(manager) == BYTES
        fill(address, stream)
        free(address)
        ctypes.CDLL("libcuda.so.1").cuStreamSynchronize(stream)
        while in_use_now(manager):
            pass


def test_an_error_of_the_manager_is_raised(stream):
    devexchange.torch.use(MemoryManager.pool(limit=BYTES))
    with pytest.raises(RuntimeError, match="^8192 bytes with 0 in use are more than the limit of 4096$"):
        allocate(2 * BYTES, stream.value)
    address = allocate(BYTES, 0)
    free(address)


def test_the_allocator_is_one_for_all_managers(stream):
    with MemoryManager.driver() as first, MemoryManager.driver() as second:
        allocator = devexchange.torch.allocator(first)
        assert isinstance(allocator, torch.cuda.memory.CUDAPluggableAllocator)
        here = allocate(BYTES, stream.value)
        assert devexchange.torch.allocator(second) is allocator
        there = allocate(BYTES, stream.value)
        assert (in_use_now(first), in_use_now(second)) == (BYTES, BYTES)
        free(here)
        free(there)


def test_it_is_too_late_after_another_allocator():
    program = """
import torch
import devexchange, devexchange.torch
torch.cuda.memory.change_current_allocator(devexchange.torch.allocator(devexchange.MemoryManager.driver()))
torch._C._cuda_cudaCachingAllocator_raw_delete(torch._C._cuda_cudaCachingAllocator_raw_alloc(8, 0))
try:
    devexchange.torch.use(devexchange.MemoryManager.driver())
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "swap" in output, output
