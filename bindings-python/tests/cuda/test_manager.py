"""Memory managers of device, pinned and managed memory."""

import sys
import threading
import time

import driver
import numpy
import pyarrow
import pytest

import devexchange
from devexchange import Device, MemoryManager, empty

CPU, CUDA, HOST, MANAGED = (1, 0), (2, 0), (3, 0), (13, 0)
BYTES = 4096


class InPython:
    """A manager that hands on memory of another manager."""

    def __init__(self):
        self.inner = MemoryManager.pool()

    def allocate(self, request):
        return self.inner.allocate(request.bytes, request.device, stream=request.stream)


MAKERS = {
    "driver": MemoryManager.driver,
    "managed": MemoryManager.managed,
    "pool": MemoryManager.pool,
    "limited": lambda: MemoryManager.limited(MemoryManager.driver(), 1 << 20),
    "python": lambda: MemoryManager(InPython()),
}


@pytest.fixture(params=MAKERS)
def manager(request, cuda):
    with MAKERS[request.param]() as manager:
        yield manager


def fill(address, stream):
    driver.ok(driver.cuda.cuMemsetD8Async(address, 7, BYTES, stream.handle))


def live():
    return driver.stat("live_device") + driver.stat("live_managed")


def test_memory_in_the_order_of_a_stream(cuda, manager):
    before = live()
    memory = manager.allocate(BYTES, "cuda:0", stream=cuda.producer)
    assert memory.device.type in (2, 13) and memory.bytes == BYTES
    memory.wait(cuda.consumer)
    fill(memory.address, cuda.consumer)
    assert set(driver.download(memory.address, BYTES, cuda.consumer)) == {7}
    memory.close()
    cuda.producer.sync()
    driver.wait_until(lambda: live() == before)
    assert manager.statistics().bytes == 0


def test_memory_for_everybody(cuda, manager):
    with manager.allocate(BYTES) as memory:
        memory.synchronize()
        fill(memory.address, cuda.consumer)
        cuda.consumer.sync()


def test_tensor_of_a_manager(cuda, manager):
    tensor = empty((4, 8), "float32", device=CUDA, stream=cuda.producer, manager=manager)
    assert tensor.device.type in (2, 13)
    driver.ok(driver.cuda.cuMemsetD8Async(tensor.data_ptr, 0, tensor.nbytes, cuda.producer.handle))
    tensor.used_on(cuda.producer)
    assert manager.statistics().bytes == 128
    copy = tensor.copy_to(CPU, cuda.producer)
    tensor.close()
    assert not numpy.from_dlpack(copy).any()
    driver.wait_until(lambda: devexchange.from_buffer(b"").close() or manager.statistics().bytes == 0)


@pytest.mark.parametrize("stream", [True, False])
def test_tensor_of_the_library(cuda, stream):
    tensor = empty(8, "int64", device=CUDA, stream=cuda.producer if stream else None)
    assert (tensor.device, tensor.nbytes) == (CUDA, 64)
    on = cuda.producer if stream else cuda.consumer
    driver.ok(driver.cuda.cuMemsetD8Async(tensor.data_ptr, 0, 64, on.handle))
    tensor.used_on(on)


def test_memory_that_is_filled_on_another_stream(cuda):
    tensor = empty(8, "int64", device=CUDA)
    driver.ok(driver.cuda.cuMemsetD8Async(tensor.data_ptr, 1, 64, cuda.producer.handle))
    tensor.produced_on(cuda.producer)
    tensor.used_on(cuda.producer)
    assert (numpy.from_dlpack(tensor.copy_to(CPU, cuda.consumer)) == 0x0101010101010101).all()
    batch = tensor.to_column("numbers")
    driver.ok(driver.cuda.cuMemsetD8Async(tensor.data_ptr, 2, 64, cuda.producer.handle))
    batch.produced_on(cuda.producer)
    batch.used_on(cuda.producer)
    assert set(pyarrow.array(batch.copy_to(CPU, cuda.consumer)).to_pylist()) == {0x0202020202020202}
    with pytest.raises(ValueError, match="shared already"):
        tensor.produced_on(cuda.producer)
    batch.close()
    tensor.produced_on(cuda.producer)
    tensor.close()
    with pytest.raises(ValueError, match="closed"):
        tensor.produced_on(cuda.producer)


def test_memory_of_the_host_is_filled_on_no_stream(cuda):
    with pytest.raises(BufferError, match="no streams"):
        empty(8, "int64").produced_on(cuda.producer)


def test_other_kinds(cuda):
    manager = MemoryManager.driver()
    for device, kind in [(HOST, Device(3)), (MANAGED, Device(13)), (CPU, Device(1)), ((2, 1), Device(2, 1))]:
        with manager.allocate(BYTES, device, mapped=True, portable=True) as memory:
            assert memory.device == kind
    with pytest.raises(BufferError, match="the pool manager does not have it"):
        MemoryManager.pool().allocate(BYTES, MANAGED)
    with pytest.raises(BufferError, match="there are|device"):
        manager.allocate(BYTES, (2, 9))


def test_host_memory_is_pinned_for_a_while(cuda):
    manager = MemoryManager.driver()
    array = numpy.zeros(BYTES, numpy.uint8)
    with manager.pin(array, mapped=True) as pinned:
        assert (pinned.address, pinned.bytes) == (array.ctypes.data, BYTES)
        with pytest.raises(devexchange.Failed) as twice:
            manager.pin(array)
        assert twice.value.driver_code == 712
    with manager.defer_cleanup():
        manager.pin(array.ctypes.data, BYTES).close()
        manager.pin(array).close()


def test_handles_for_other_processes(cuda):
    with MemoryManager.driver() as manager, manager.allocate(BYTES) as memory:
        found = manager.ipc_handle(memory.address + 100)
        assert len(found.handle) == 64
        assert (found.offset, found.bytes, found.device_id) == (100, BYTES, 0)
    pool = MemoryManager.pool()
    with pool.allocate(BYTES) as memory, pytest.raises(BufferError, match="a pool that was not made to be shared"):
        pool.ipc_handle(memory.address)


def test_memory_info(cuda):
    free, total = MemoryManager.driver().memory_info()
    assert 0 < free <= total
    pool = MemoryManager.pool(limit=BYTES)
    memory = pool.allocate(BYTES // 4)
    assert pool.memory_info() == (BYTES * 3 // 4, BYTES)
    with pytest.raises(MemoryError):
        pool.allocate(BYTES)
    memory.close()


def test_reset_gives_the_driver_everything_back_before_it_returns(cuda, manager):
    before = live()
    held = [manager.allocate(BYTES) for _ in range(3)]
    held[0].close()
    manager.reset()
    assert manager.statistics().bytes == 0
    # Memory of a pool is given back in the order of its stream.
    driver.ok(driver.cuda.cuCtxSynchronize())
    assert live() == before
    for memory in held:
        memory.close()
    assert live() == before


def test_reset_before_anything_else(cuda, manager):
    manager.reset()
    manager.reset(1)


def test_deferred_cleanup(cuda):
    manager = MemoryManager.driver()
    before = live()
    with manager.defer_cleanup():
        manager.allocate(BYTES).close()
        assert live() == before + 1
    driver.wait_until(lambda: live() == before)


def test_pool_is_trimmed(cuda):
    pool = MemoryManager.pool()
    pool.initialize()
    pool.allocate(BYTES, stream=cuda.producer).close()
    cuda.producer.sync()
    before = driver.calls("cuMemPoolTrimTo")
    pool.trim()
    assert driver.calls("cuMemPoolTrimTo") == before + 1
    with pool.allocate(BYTES, stream=cuda.producer) as memory:
        assert (pool.statistics().bytes, memory.bytes) == (BYTES, BYTES)


def test_memory_is_given_back_by_threads_without_a_context(cuda, manager):
    held = [manager.allocate(BYTES) for _ in range(8)]
    threads = [threading.Thread(target=lambda: [held.pop() for _ in range(4)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert manager.statistics().allocations == 0


# Memory of a pool holds the stream by itself.
@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_memory_of_python_goes_back_on_a_stream_that_was_closed(cuda, monkeypatch, fails, pooled):
    raised, there = [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda failure: raised.append(failure.exc_type))
    inner = MemoryManager.pool() if pooled else MemoryManager.driver()
    streams = driver.stat("live_streams")

    class GivenBackLater:
        def allocate(self, request):
            stream = request.stream if pooled else None
            memory = inner.allocate(request.bytes, request.device, stream=stream)

            def release():
                # If the stream could be destroyed already, another thread would do so within this time.
                end = time.monotonic() + 0.05
                while driver.stat("live_streams") > streams and time.monotonic() < end:
                    time.sleep(0.001)
                there.append(driver.stat("live_streams") - streams)
                memory.close()
                if fails:
                    raise ValueError

            return memory.address, release

    stream = devexchange.DeviceStream()
    with MemoryManager(GivenBackLater()) as manager:
        tensor = empty(BYTES, "uint8", device=CUDA, stream=stream, manager=manager)
    tensor.wait(cuda.consumer)
    fill(tensor.data_ptr, cuda.consumer)
    tensor.used_on(cuda.consumer)
    tensor.close()
    stream.close()
    cuda.consumer.sync()
    driver.wait_until(lambda: devexchange.from_buffer(b"").close() or there)
    assert there == [1]
    driver.wait_until(lambda: driver.stat("live_streams") == streams)
    assert raised == [ValueError] * fails
