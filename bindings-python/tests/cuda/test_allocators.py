"""Other libraries allocate from our managers.

cuda.core is the real library. RMM, CuPy and PyTorch are tested as far as possible without a CUDA runtime, for which the
simulated driver is not enough."""

import ctypes
import gc
import os
import threading
import warnings
from pathlib import Path

import cuda.core
import driver
import pytest
from tables import compile_library

import devexchange
import devexchange.cuda_core
from devexchange import MemoryManager, _native
from devexchange.cuda_core import MemoryResource

BYTES = 4096
MAKERS = {
    "driver": MemoryManager.driver,
    "managed": MemoryManager.managed,
    "pool": MemoryManager.pool,
}


@pytest.fixture(params=MAKERS)
def manager(request, cuda):
    with MAKERS[request.param]() as manager:
        yield manager
        settle(manager)


def settle(manager):
    """Waits until memory has been given back, which happens soon after the work before it."""
    driver.wait_until(lambda: devexchange.from_buffer(b"").close() or manager.statistics().bytes == 0)


def fill(address, stream, value=7):
    driver.ok(driver.cuda.cuMemsetD8Async(address, value, BYTES, stream.handle))


# --- cuda.core ---


def test_buffers_of_cuda_core(cuda, manager):
    resource = MemoryResource(manager)
    assert (resource.device_id, resource.is_device_accessible) == (0, True)
    assert (resource.is_host_accessible, resource.is_managed) == (False, False)
    buffer = resource.allocate(BYTES, stream=cuda.producer)
    assert (buffer.size, buffer.device_id, manager.statistics().bytes) == (BYTES, 0, BYTES)
    buffer.fill(7, stream=cuda.producer)
    copy = buffer.copy_to(stream=cuda.producer)
    assert copy.memory_resource is resource and manager.statistics().bytes == 2 * BYTES
    buffer.close()
    assert set(driver.download(int(copy.handle), BYTES, cuda.producer)) == {7}
    copy.close()


def test_a_buffer_is_given_back_after_the_work_on_the_stream_it_is_closed_with(cuda, manager):
    resource = MemoryResource(manager)
    buffer = resource.allocate(BYTES, stream=cuda.producer)
    cuda.consumer.wait(cuda.producer)
    fill(int(buffer.handle), cuda.consumer)
    buffer.close(cuda.consumer)


def test_a_buffer_that_is_closed_while_its_stream_is_captured(cuda, manager):
    buffer = MemoryResource(manager).allocate(BYTES, stream=cuda.producer)
    cuda.producer.sync()
    mode = driver.cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    driver.ok(driver.cuda.cuStreamBeginCapture(cuda.consumer.handle, mode))
    buffer.close(cuda.consumer)
    assert manager.statistics().bytes == BYTES
    driver.ok(driver.cuda.cuGraphDestroy(driver.ok(driver.cuda.cuStreamEndCapture(cuda.consumer.handle))))


def test_a_buffer_that_nobody_closes(cuda, manager):
    MemoryResource(manager).allocate(BYTES, stream=cuda.producer).fill(1, stream=cuda.producer)
    gc.collect()


def test_a_device_of_cuda_core_takes_the_resource(cuda, manager):
    before = cuda.device.memory_resource
    cuda.device.memory_resource = MemoryResource(manager)
    try:
        with cuda.device.allocate(BYTES, stream=cuda.producer) as buffer:
            assert manager.statistics().bytes == BYTES
            buffer.fill(1, stream=cuda.producer)
    finally:
        cuda.device.memory_resource = before


def test_buffers_of_cuda_core_are_refused_beyond_the_limit(cuda):
    resource = MemoryResource(MemoryManager.pool(limit=BYTES))
    with pytest.raises(devexchange.OutOfMemory, match="8192 bytes with 0 in use are more than the limit of 4096"):
        resource.allocate(2 * BYTES, stream=cuda.producer)
    with pytest.raises(devexchange.Refused, match="device_id is 9"):
        MemoryResource(MemoryManager.pool(), 9).allocate(1, stream=cuda.producer)


def test_an_address_is_another_threads_as_soon_as_it_is_given_back(cuda, monkeypatch):
    inner, there = MemoryManager.driver(), []
    memory = inner.allocate(BYTES)

    class OneBlock:
        def allocate(self, request):
            return memory.address, lambda: there.append("back")

    manager = MemoryManager(OneBlock())
    resource, again = MemoryResource(manager), []

    def close_after(tensor, stream):
        _native.close_after(tensor, stream)
        settle(manager)
        again.append(resource.allocate(BYTES, stream=cuda.producer))

    buffer = resource.allocate(BYTES, stream=cuda.producer)
    with monkeypatch.context() as patch:
        patch.setattr(devexchange._blocks, "close_after", close_after)
        buffer.close()
    devexchange.from_buffer(b"").close()  # gives back what is due
    assert (there, manager.statistics().bytes) == (["back"], BYTES)
    again.pop().close()
    settle(manager)
    memory.close()


def test_what_a_buffer_cannot_be_closed_with(cuda, manager):
    resource = MemoryResource(manager)
    buffer = resource.allocate(BYTES, stream=cuda.producer)
    with pytest.raises(TypeError, match="stream"):
        resource.deallocate(int(buffer.handle), BYTES, stream="none")
    fill(int(buffer.handle), cuda.producer)
    buffer.close()


def test_stream_that_cuda_core_does_not_take(cuda, manager):
    """This package takes it, so that there is memory to give back."""
    resource = MemoryResource(manager)
    with devexchange.DeviceStream() as stream:
        for other in (1, int(cuda.producer.handle), stream):
            with pytest.raises(TypeError, match="Stream"):
                resource.allocate(BYTES, stream=other)
        settle(manager)
        with pytest.raises(TypeError, match="Stream"):
            resource.allocate(0, stream=stream)
    # Nothing is kept under the address, which can be given again.
    resource.allocate(BYTES, stream=cuda.producer).close()


def test_end_of_the_program_while_a_buffer_is_made(cuda, manager, monkeypatch):
    def from_handle(*arguments, **options):
        raise KeyboardInterrupt("now")

    resource = MemoryResource(manager)
    monkeypatch.setattr(devexchange.cuda_core.cuda.core, "Buffer", type("Buffer", (), {"from_handle": staticmethod(from_handle)}))
    for stream in (cuda.producer, None):
        with pytest.raises(KeyboardInterrupt, match="now"):
            resource.allocate(BYTES, stream=stream)


def test_buffers_of_no_bytes(cuda, manager):
    resource = MemoryResource(manager)
    for _ in range(2):
        assert int(resource.allocate(0, stream=cuda.producer).handle) == 0
    resource.deallocate(0, 0, stream=cuda.producer)
    gc.collect()


# --- RMM: its resources and buffers, each with a stream and a resource ---


@pytest.fixture
def on_rmm(cuda):
    from rmm.pylibrmm.stream import Stream

    return Stream(cuda.producer)


def test_buffers_of_rmm(cuda, manager, on_rmm):
    import rmm

    import devexchange.rmm

    resource = devexchange.rmm.resource(manager)
    buffer = rmm.DeviceBuffer(size=BYTES, stream=on_rmm, mr=resource)
    nothing = rmm.DeviceBuffer(size=0, stream=on_rmm, mr=resource)
    assert (buffer.size, nothing.size, manager.statistics().bytes) == (BYTES, 0, BYTES)
    fill(buffer.ptr, cuda.producer)
    assert set(driver.download(buffer.ptr, BYTES, cuda.producer)) == {7}
    fill(buffer.ptr, cuda.producer, 8)


def test_memory_of_rmm_is_given_back_after_the_work_on_the_stream_it_is_freed_with(cuda, manager, on_rmm):
    from rmm.pylibrmm.stream import Stream

    import devexchange.rmm

    resource = devexchange.rmm.resource(manager)
    address = resource.allocate(BYTES, on_rmm)
    cuda.consumer.wait(cuda.producer)
    fill(address, cuda.consumer)
    resource.deallocate(address, BYTES, Stream(cuda.consumer))


def test_a_device_of_rmm_takes_the_resource(cuda, manager, on_rmm):
    import rmm

    import devexchange.rmm

    before = rmm.mr.get_per_device_resource(0)
    devexchange.rmm.use(manager)
    try:
        counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.get_per_device_resource(0))
        address = counted.allocate(BYTES, on_rmm)
        assert manager.statistics().bytes == counted.allocation_counts.current_bytes == BYTES
        fill(address, cuda.producer)
        counted.deallocate(address, BYTES, on_rmm)
    finally:
        rmm.mr.set_per_device_resource(0, before)


def test_the_default_streams_of_rmm(cuda, manager):
    from rmm.pylibrmm.stream import DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM

    import devexchange.rmm

    resource = devexchange.rmm.resource(manager)
    for stream in (DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM):
        address = resource.allocate(BYTES, stream)
        driver.ok(driver.cuda.cuMemsetD8Async(address, 7, BYTES, stream.__cuda_stream__()[1]))
        resource.deallocate(address, BYTES, stream)


class Recorder:
    """A manager that records for which devices it is asked."""

    def __init__(self):
        self.inner, self.devices = MemoryManager.driver(), []

    def allocate(self, request):
        self.devices.append(request.device)
        return self.inner.allocate(request.bytes, request.device, stream=request.stream)


def test_another_device_of_rmm_takes_the_resource(cuda):
    import rmm
    from rmm.pylibrmm.stream import LEGACY_DEFAULT_STREAM

    import devexchange.rmm

    recorder, before = Recorder(), [rmm.mr.get_per_device_resource(device) for device in (0, 1)]
    devexchange.rmm.use(MemoryManager(recorder), 1)
    try:
        ours = rmm.mr.get_per_device_resource(1)
        ours.deallocate(ours.allocate(BYTES, LEGACY_DEFAULT_STREAM), BYTES, LEGACY_DEFAULT_STREAM)
        assert type(rmm.mr.get_per_device_resource(0)) is type(before[0])
    finally:
        for device in (0, 1):
            rmm.mr.set_per_device_resource(device, before[device])
    assert recorder.devices == [(2, 1)]


def test_rmm_is_refused_beyond_the_limit(cuda, on_rmm):
    import devexchange.rmm

    with pytest.raises(MemoryError, match="8192 bytes with 0 in use are more than the limit of 4096"):
        devexchange.rmm.resource(MemoryManager.pool(limit=BYTES)).allocate(2 * BYTES, on_rmm)
    with pytest.raises(RuntimeError, match="device_id is 9"):
        devexchange.rmm.resource(MemoryManager.pool(), 9).allocate(1, on_rmm)


# --- CuPy: its arrays and pointers, on a stream and a device that are said to be the current ones ---


@pytest.fixture
def cupy(cuda, monkeypatch):
    import cupy

    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: 0)
    monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda: cuda.producer)
    return cupy


def test_arrays_of_cupy(cuda, manager, cupy):
    import devexchange.cupy

    devexchange.cupy.use(manager)
    try:
        array = cupy.ndarray((BYTES,), "uint8")
        part = array[10:]
        nothing = cupy.ndarray((0,), "uint8")
    finally:
        cupy.cuda.set_allocator(None)
    fill(array.data.ptr, cuda.producer)
    assert (part.data.ptr, array.data.device_id) == (array.data.ptr + 10, 0)
    del array, nothing
    assert manager.statistics().bytes == BYTES
    assert set(driver.download(part.data.ptr, BYTES - 10, cuda.producer)) == {7}
    fill(part.data.ptr - 10, cuda.producer, 8)
    del part


def test_an_allocator_of_cupy_for_a_while(cuda, manager, cupy):
    from devexchange.cupy import allocator

    with cupy.cuda.using_allocator(allocator(manager)):
        pointer = cupy.cuda.alloc(BYTES)
    fill(pointer.ptr, cuda.producer)
    assert manager.statistics().bytes == BYTES
    del pointer


def test_another_device_of_cupy(cuda, cupy, monkeypatch):
    from devexchange.cupy import allocator

    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: 1)
    monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda: cupy.cuda.Stream.null)
    recorder = Recorder()
    pointer = allocator(MemoryManager(recorder))(BYTES)
    assert (pointer.device_id, recorder.devices) == (1, [(2, 1)])
    del pointer


def test_cupy_is_refused_beyond_the_limit(cuda, cupy):
    from devexchange.cupy import allocator

    with (
        cupy.cuda.using_allocator(allocator(MemoryManager.pool(limit=BYTES))),
        pytest.raises(MemoryError, match="8192 bytes with 0 in use are more than the limit of 4096"),
    ):
        cupy.ndarray((2 * BYTES,), "uint8")


def test_the_default_stream_of_cupy(cuda, cupy):
    null = cupy.cuda.Stream.null
    assert null.__cuda_stream__() == (0, 0)
    tensor = devexchange.empty(BYTES, "uint8", device=(2, 0), stream=null)
    tensor.used_on(null)
    tensor.close()


# --- PyTorch: the functions that its allocator calls, called in the same way (tests/pytorch has the real one) ---


class Torch:
    """A caller in C++, which catches exceptions."""

    def __init__(self, caller):
        self.library = ctypes.CDLL(_native.__file__)
        self.library.devexchange_torch_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.library.devexchange_torch_free.restype = None
        self.caller = ctypes.CDLL(caller)
        self.caller.allocate.restype = ctypes.c_void_p
        self.caller.caught.restype = ctypes.c_char_p

    def allocate(self, stream, size=BYTES, device=0):
        function = self.library.devexchange_torch_allocate
        address = self.caller.allocate(function, ctypes.c_ssize_t(size), device, ctypes.c_void_p(number(stream)))
        error = self.caller.caught()
        assert not error or address is None
        return error.decode() if error else address

    def free(self, address, stream, size=BYTES, device=0):
        self.library.devexchange_torch_free(address, size, device, number(stream))

    def record_stream(self, address, stream):
        function = self.library.devexchange_torch_record_stream
        self.caller.record_stream(function, ctypes.c_void_p(address), ctypes.c_void_p(number(stream)))
        return (self.caller.caught() or b"").decode()


def number(stream):
    return None if stream is None else int(stream.handle)


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    return compile_library(Path(__file__).parents[1] / "caught.cpp", tmp_path_factory.mktemp("caller"), "-lstdc++")


@pytest.fixture
def torch(cuda, caller):
    yield Torch(caller)
    # The allocator keeps the last manager, so give it one that holds nothing.
    _native.give_torch(MemoryManager.host_only())


def test_memory_of_pytorch(cuda, manager, torch):
    _native.give_torch(manager)
    address = torch.allocate(cuda.producer)
    assert manager.statistics().bytes == BYTES
    fill(address, cuda.producer)
    torch.free(address, cuda.producer)


def test_streams_that_pytorch_recorded_are_waited_for_until_it_frees(cuda, manager, torch):
    _native.give_torch(manager)
    address = torch.allocate(cuda.producer)
    fill(address, cuda.producer)
    cuda.consumer.wait(cuda.producer)
    assert torch.record_stream(address, cuda.consumer) == torch.record_stream(address, cuda.consumer) == ""
    fill(address, cuda.consumer, 8)
    torch.free(address, cuda.producer)


def test_the_default_stream_of_pytorch(cuda, manager, torch):
    _native.give_torch(manager)
    address = torch.allocate(None)
    fill(address, cuda.device.default_stream)
    assert torch.record_stream(address, None) == ""
    torch.free(address, None)
    cuda.device.default_stream.sync()


def test_memory_that_pytorch_frees_on_another_thread(cuda, manager, torch):
    _native.give_torch(manager)
    address = torch.allocate(cuda.producer)
    fill(address, cuda.producer)
    thread = threading.Thread(target=torch.free, args=(address, cuda.producer))
    thread.start()
    thread.join()


def test_what_pytorch_cannot_have(cuda, torch):
    with MemoryManager.pool(limit=BYTES) as manager:
        _native.give_torch(manager)
        assert torch.allocate(cuda.producer, 0) is None
        torch.free(None, cuda.producer, 0)
        refused = "8192 bytes with 0 in use are more than the limit of 4096"
        assert torch.allocate(cuda.producer, 2 * BYTES) == refused
        assert "device_id is 9" in torch.allocate(cuda.producer, device=9)
        assert "-5" in torch.allocate(cuda.producer, -5)
        torch.free(0x123450, cuda.producer)
        assert torch.record_stream(0x123450, cuda.consumer) == ""
        assert manager.statistics().bytes == 0


def test_a_manager_in_python_for_pytorch(cuda, torch):
    class Fails:
        def allocate(self, request):
            raise KeyError("not today")

    with MemoryManager(Fails()) as manager:
        _native.give_torch(manager)
        assert "not today" in torch.allocate(cuda.producer)


def test_a_child_of_a_fork_frees_what_pytorch_had(cuda, torch):
    """The workers of a DataLoader do so: they end with the tensors that their parent had."""
    with MemoryManager.driver() as manager:
        _native.give_torch(manager)
        address = torch.allocate(cuda.producer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            torch.free(address, cuda.producer)
            os._exit(0 if torch.allocate(cuda.producer).endswith("it cannot be used here") else 1)
        assert os.waitpid(pid, 0)[1] == 0
        torch.free(address, cuda.producer)


def test_memory_of_pytorch_outlives_its_manager(cuda, torch):
    with MemoryManager.pool() as manager:
        _native.give_torch(manager)
        address = torch.allocate(cuda.producer)
    _native.give_torch(MemoryManager.driver())
    fill(address, cuda.producer)
    torch.free(address, cuda.producer)
