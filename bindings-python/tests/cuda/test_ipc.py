"""Device memory shared with another process, which has its own driver."""

import os
from itertools import count

import driver
import numpy
import pyarrow
import pytest
from cuda.bindings import driver as cu
from peer import Peer, PeerError, soon
from test_cuda import CPU, CUDA, VALUES, read

import devexchange
from devexchange import MemoryManager, empty, from_arrow, from_cuda_array_interface, from_dlpack, ipc

_numbers = count()

SETUP = """
import gc, importlib.util, sys
import numpy
from cuda.core import Device
spec = importlib.util.spec_from_file_location("driver", {driver!r})
driver = sys.modules["driver"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(driver)
import devexchange
from devexchange import ipc
device = Device(0)
device.set_current()
def values(tensor):
    return numpy.from_dlpack(tensor.copy_to((1, 0), stream)).tolist()
def released():
    devexchange.from_buffer(b"").close()
    return devexchange.outstanding() == 0
always = set(globals())
"""

BEGIN = """
driver.set_seed({seed})
stream = device.create_stream()
client = ipc.Client({address!r})
"""

END = """
client.close()
for name in set(globals()) - always - {"stream", "always"}:
    del globals()[name]
gc.collect()
driver.wait_until(released)
stream.sync()
stream.close()
assert driver.take_findings() == []
"""


class Memory:
    """An array in an allocation of the driver or of a pool, which a stream has still to fill."""

    def __init__(self, cuda, values, pool=None):
        self.stream, self.pool = cuda.producer, pool
        if pool:
            self.address = int(driver.ok(cu.cuMemAllocFromPoolAsync(values.nbytes, pool, self.stream.handle)))
        else:
            self.address = int(driver.ok(cu.cuMemAlloc(values.nbytes)))
        # The copy is only queued, so its source lives longer than the array.
        self.staging = driver.pending(cuda.device, values, self.stream)
        driver.ok(cu.cuMemcpyDtoDAsync(self.address, int(self.staging.handle), values.nbytes, self.stream.handle))
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": values.shape,
            "typestr": values.dtype.str,
            "data": (self.address, False),
            "stream": driver.number(self.stream),
        }

    def __del__(self):
        self.staging.close(self.stream)
        if self.pool:
            driver.ok(cu.cuMemFreeAsync(self.address, self.stream.handle))
        else:
            self.stream.sync()
            driver.ok(cu.cuMemFree(self.address))


@pytest.fixture
def pool(cuda):
    properties = cu.CUmemPoolProps()
    properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.handleTypes = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    made = driver.ok(cu.cuMemPoolCreate(properties))
    yield made
    driver.wait_until(lambda: devexchange.from_buffer(b"").close() or devexchange.outstanding() == 0)
    cuda.producer.sync()
    driver.ok(cu.cuMemPoolDestroy(made))


@pytest.fixture
def server():
    with ipc.Server(f"@devexchange-python-cuda-{os.getpid()}-{next(_numbers)}") as server:
        yield server
        soon(lambda: server.leases == 0)


@pytest.fixture(scope="module")
def processes():
    """The other process. Its start takes a second, so all tests share it, unless one kills it."""
    running = []
    yield running
    for peer in running:
        with peer:
            pass


@pytest.fixture
def importer(seed, server, processes):
    if not processes or processes[0].process.returncode is not None:
        processes[:] = [Peer(SETUP.format(driver=driver.__file__))]
    peer = processes[0]
    peer.run(BEGIN.format(seed=seed, address=server.address))
    yield peer
    if peer.process.returncode is None:
        peer.run(END)


@pytest.mark.parametrize(("shareable", "kind"), [(True, "view"), (False, "copy")])
def test_pool_of_a_manager(cuda, shareable, kind):
    with MemoryManager.pool(shareable=shareable) as manager, empty(3, device=CUDA, manager=manager) as tensor:
        assert ipc.plan(tensor).kind == kind


def test_allocation_of_the_driver(cuda, server, importer):
    tensor = from_cuda_array_interface(Memory(cuda, VALUES))
    assert ipc.plan(tensor) == ("view", 0, "")
    server.offer("values", tensor, copy=False)
    importer.run("tensor = client.tensor('values')")
    assert importer.run("tensor.shape, tensor.dtype, tuple(tensor.device)") == ((4, 6), "float32", CUDA)
    # Only the importer holds the tensor now; its stream waits for the work that is queued here.
    server.withdraw("values")
    tensor.close()
    assert importer.run("values(tensor)") == VALUES.tolist()
    assert server.leases == 1
    importer.run("tensor.close()")
    soon(lambda: server.leases == 0)


def test_memory_of_a_pool_that_is_made_to_be_shared(cuda, pool, server, importer):
    tensor = from_cuda_array_interface(Memory(cuda, VALUES, pool))
    server.offer("values", tensor, copy=False)
    importer.run("held = [client.tensor('values') for _ in range(3)]")
    assert importer.run("len({tensor.data_ptr for tensor in held})") == 1
    assert importer.run("[values(tensor) for tensor in held]") == [VALUES.tolist()] * 3
    server.withdraw("values")
    tensor.close()
    importer.run("del held")


def test_allocation_is_opened_once(cuda, server, importer):
    server.offer("values", from_cuda_array_interface(Memory(cuda, VALUES)))
    importer.run("import ctypes; calls = ctypes.CDLL('libcuda.so.1').simcuda_calls")
    importer.run("opened = lambda: calls(b'cuIpcOpenMemHandle_v2'); before = opened()")
    importer.run("held = [client.tensor('values') for _ in range(10)]")
    assert importer.run("len({tensor.data_ptr for tensor in held}), opened() - before") == (1, 1)
    importer.run("del held")
    server.withdraw("values")


def test_importer_writes_for_the_exporter(cuda, server, importer):
    tensor = from_cuda_array_interface(Memory(cuda, VALUES))
    server.offer("values", tensor)
    importer.run("from cuda.bindings import driver as cu; tensor = client.tensor('values'); tensor.wait(stream)")
    importer.run("driver.ok(cu.cuMemsetD8Async(tensor.data_ptr, 0, tensor.nbytes, stream.handle)); stream.sync()")
    importer.run("tensor.used_on(stream); tensor.close()")
    soon(lambda: server.leases == 0)
    assert not read(tensor, cuda.consumer).any()
    server.withdraw("values")


def test_memory_is_released_after_the_work_of_the_importer(cuda, server, importer):
    server.offer("values", from_cuda_array_interface(Memory(cuda, VALUES)))
    importer.run("tensor = client.tensor('values'); tensor.wait(stream)")
    server.withdraw("values")
    importer.run("copied = driver.copy_on(device, tensor.data_ptr, tensor.nbytes, stream)")
    importer.run("tensor.used_on(stream); tensor.close()")
    importer.run("seen = driver.download(int(copied.handle), 96, stream).view('f4').tolist(); copied.close()")
    assert importer.run("seen") == VALUES.ravel().tolist()
    soon(lambda: server.leases == 0)


def test_batch(cuda, server, importer):
    class Rows:
        """A column of ours over memory of the driver, as an Arrow device array."""

        def __init__(self):
            self.tensor = from_cuda_array_interface(Memory(cuda, VALUES.T.copy()))
            self.batch = from_dlpack(self.tensor).to_column("rows")

        def __arrow_c_device_array__(self, requested_schema=None, **_):
            return self.batch.__arrow_c_device_array__(requested_schema)

    server.offer("rows", Rows(), copy=False)
    importer.run("batch = client.batch('rows')")
    assert importer.run("batch.copy_to((1, 0), stream).to_pylist()") == VALUES.T.tolist()
    server.withdraw("rows")
    importer.run("batch.close()")


def test_killed_importer_gives_device_memory_back(cuda, server, importer):
    server.offer("values", from_cuda_array_interface(Memory(cuda, VALUES)))
    server.offer("again", from_cuda_array_interface(Memory(cuda, VALUES)))
    importer.run("held = [client.tensor('values'), client.tensor('again'), client.tensor('values')]")
    server.withdraw("values")
    server.withdraw("again")
    assert server.leases == 2
    importer.kill()
    soon(lambda: server.leases == 0)


def test_host_memory_needs_no_device(cuda, server, importer):
    server.offer("values", VALUES)
    assert importer.run("numpy.from_dlpack(client.tensor('values')).tolist()") == VALUES.tolist()


def test_memory_that_cannot_be_shared_as_it_is(cuda, server):
    # A copy is in a pool that is not made to be shared.
    tensor = from_dlpack(VALUES, device=CUDA, stream=cuda.producer)
    assert ipc.plan(tensor).kind != "view"
    with pytest.raises(BufferError, match="pool that was not made to be shared"):
        server.offer("values", tensor, copy=False)
    batch = from_arrow(pyarrow.record_batch({"n": [1, 2]})).copy_to(CUDA, cuda.producer)
    with pytest.raises(BufferError, match="pool that was not made to be shared"):
        server.offer("batch", batch, copy=False)
    # Through host memory it can be shared.
    server.offer("values", tensor.copy_to(CPU, cuda.producer))
    with ipc.Client(server.address) as client:
        numpy.testing.assert_array_equal(numpy.from_dlpack(client.tensor("values")), VALUES)
    tensor.close()
    batch.close()


def test_memory_of_this_very_process_is_not_opened(cuda, server):
    server.offer("values", from_cuda_array_interface(Memory(cuda, VALUES)))
    with ipc.Client(server.address) as client, pytest.raises(BufferError, match="this process's own"):
        client.tensor("values")
    server.withdraw("values")


def test_device_that_the_importer_does_not_see(cuda, server):
    server.offer("values", from_cuda_array_interface(Memory(cuda, VALUES)))
    program = f"from devexchange import ipc; client = ipc.Client({server.address!r})"
    with Peer(program, SIMCUDA_DEVICES="0") as peer:
        with pytest.raises(PeerError) as caught:
            peer.run("client.tensor('values')")
        assert caught.value.args[0] == "Refused", caught.value
    server.withdraw("values")
