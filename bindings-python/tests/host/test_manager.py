"""Memory managers of host memory: those of the library, and those that are written in Python."""

import ctypes
import gc
import sys
import threading
import time
import weakref

import ml_dtypes
import numpy
import pytest

import devexchange
from devexchange import Device, IpcHandle, MemoryInfo, MemoryManager, MemoryRequest, Statistics, empty

CPU = (1, 0)


class Arena:
    """A manager in Python that allocates with ctypes and notes every request."""

    def __init__(self):
        self.asked, self.blocks = [], {}

    def allocate(self, request):
        self.asked.append(request)
        block = ctypes.create_string_buffer(max(request.bytes, 1))
        address = ctypes.addressof(block)
        self.blocks[address] = block
        return address, lambda: self.blocks.pop(address)


class Everything(Arena):
    def initialize(self, device_id):
        self.asked.append(("initialize", device_id))

    def pin(self, request, address):
        self.asked.append(("pin", request, address))
        return lambda: self.asked.append("unpinned")

    def memory_info(self, device_id):
        return 10 + device_id, 20

    def ipc_handle(self, address):
        return IpcHandle(bytes(range(64)), address % 16, 16, 3)

    def reset(self, device_id):
        self.asked.append(("reset", device_id))

    def trim(self, device_id, keep):
        self.asked.append(("trim", device_id, keep))

    def defer_cleanup(self, begin):
        self.asked.append(("defer", begin))

    def close(self):
        self.asked.append("closed")


def test_buffer_that_cannot_be_pinned_is_free():
    """At once, also on another thread than the main one, which gives up what is queued."""
    memory = bytearray(8)

    def pin():
        with pytest.raises(devexchange.Refused):
            manager.pin(memory)
        memory.append(1)

    with MemoryManager(Arena()) as manager:
        thread = threading.Thread(target=pin)
        thread.start()
        thread.join()
    assert len(memory) == 9


def test_memory_is_given_back_once():
    manager = MemoryManager.host_only()
    with manager.allocate(100, CPU) as memory:
        assert repr(manager) == "<devexchange.MemoryManager with 100 bytes in use>"
        assert (memory.device, memory.bytes, memory.address % 16) == (Device(1), 100, 0)
        ctypes.memset(memory.address, 7, 100)
        memory.synchronize()
        assert manager.statistics() == Statistics(100, 100, 1, 1, 100, 0)
    memory.close()
    assert manager.statistics() == Statistics(0, 100, 0, 1, 100, 0)
    assert repr(memory) == "<devexchange.Memory closed>"
    manager.close()
    assert repr(manager) == "<devexchange.MemoryManager closed>"
    with pytest.raises(ValueError, match="the memory is closed"):
        _ = memory.address


def test_memory_is_given_back_when_nobody_refers_to_it_on_any_thread():
    manager = MemoryManager.host_only()
    held = [manager.allocate(8, CPU) for _ in range(100)]
    threads = [threading.Thread(target=lambda: [held.pop() for _ in range(25)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert manager.statistics()[:4] == (0, 800, 0, 100)


def test_nothing_is_memory_too():
    with MemoryManager.host_only().allocate(0, CPU) as memory:
        assert memory.bytes == 0


def test_memory_outlives_its_manager():
    manager = MemoryManager.host_only()
    memory = manager.allocate(4, CPU)
    manager.close()
    with pytest.raises(ValueError, match="the manager is closed"):
        manager.allocate(4, CPU)
    ctypes.memset(memory.address, 1, 4)
    memory.close()


def test_limit():
    with MemoryManager.host_only() as inner:
        manager = MemoryManager.limited(inner, 100)
    memory = manager.allocate(60, CPU)
    with pytest.raises(
        devexchange.OutOfMemory, match="41 bytes with 60 in use are more than the limit of 100"
    ) as refused:
        manager.allocate(41, CPU)
    assert isinstance(refused.value, MemoryError)
    assert manager.statistics().refused == 1
    memory.close()
    manager.allocate(100, CPU).close()


def test_what_a_manager_does_not_have():
    manager = MemoryManager.host_only()
    with pytest.raises(BufferError, match="the host-only manager does not have it"):
        manager.allocate(4, (2, 0))
    with pytest.raises(BufferError, match="memory_info|how much memory"):
        manager.memory_info()
    for address in (1234, True, numpy.int64(1234), numpy.uint64(1234), numpy.int8(12)):
        with pytest.raises(TypeError, match="^memory is an address: bytes is needed, too$"):
            manager.pin(address)
    with pytest.raises(TypeError, match="no method allocate"):
        MemoryManager(object())


def test_number_of_a_device_that_host_memory_has_not():
    manager = MemoryManager.host_only()
    with pytest.raises(BufferError, match="device_id is 7: the cpu is 0 or -1"):
        manager.allocate(10, (1, 7))
    with manager.allocate(10, (1, -1)) as memory:
        assert memory.device == Device(1, 0)


@pytest.mark.parametrize(
    "handle, text",
    [
        (range(10**15), "handle is range.*: bytes are needed"),
        (b"short", "handle has 5 bytes: it must have 64"),
    ],
)
def test_handle_that_is_none(handle, text):
    refuses_handle((handle, 0, 10, 0), text)


@pytest.mark.parametrize(
    "given, text",
    [
        (None, "it gave None: an IpcHandle is needed"),
        ((b"", 0, 10), "it gave .*: an IpcHandle is needed"),
        ((bytes(64), -1, 10, 0), "offset is -1: it must be between 0 and"),
        ((bytes(64), 0, 2**63, 0), f"bytes is {2**63}: it must be between 0 and"),
        ((bytes(64), 0, 10, 2**31), f"device_id is {2**31}: it must be between"),
        ((bytes(64), "x", 10, 0), "offset is 'x': an int was expected"),
    ],
)
def test_numbers_of_a_handle_that_are_none(given, text):
    refuses_handle(given, text)


def refuses_handle(given, text):
    class Gives(Arena):
        def ipc_handle(self, address):
            return given

    with pytest.raises(devexchange.Failed, match=text):
        MemoryManager(Gives()).ipc_handle(5)


@pytest.mark.parametrize(
    "given, text",
    [
        (5, r"it gave 5: a pair \(free bytes, all bytes\) is needed"),
        ((-1, 5), "free is -1: it must be between 0 and"),
        ((1, 2**63), f"total is {2**63}: it must be between 0 and"),
    ],
)
def test_memory_info_that_is_none(given, text):
    class Gives(Arena):
        def memory_info(self, device_id):
            return given

    with pytest.raises(devexchange.Failed, match=text):
        MemoryManager(Gives()).memory_info()


@pytest.mark.parametrize("value", [-1, 2**64])
def test_number_of_bytes_that_is_none(value):
    manager = MemoryManager.host_only()
    for call, name in [
        (lambda: MemoryManager.limited(manager, value), "limit"),
        (lambda: manager.allocate(value, CPU), "bytes"),
        (lambda: manager.pin(4096, value), "bytes"),
        (lambda: manager.trim(keep=value), "keep"),
    ]:
        with pytest.raises(ValueError, match=f"{name} is {value}: it must be between 0 and"):
            call()
    with pytest.raises(TypeError, match="limit is 'x': an int was expected"):
        MemoryManager.limited(manager, "x")


@pytest.mark.parametrize("value", [-(2**40), 2**31, 10**30])
def test_number_of_a_device_beyond_all(value):
    manager = MemoryManager.host_only()
    for call in [manager.initialize, manager.memory_info, manager.reset, manager.trim]:
        with pytest.raises(ValueError, match=f"device_id is {value}: it must be between"):
            call(value)
    with pytest.raises(TypeError, match="device_id is 1.5: an int was expected"):
        manager.initialize(1.5)
    for device in [(2, 10**30), (value, 0), value]:
        with pytest.raises(TypeError, match=r'device is .*: a name such as "cuda:0" or a pair \(device type, number\)'):
            manager.allocate(8, device)


def test_device_of_memory_by_its_name():
    manager = MemoryManager.host_only()
    with manager.allocate(8, "cpu") as memory:
        assert memory.device == CPU
    with pytest.raises(devexchange.Refused, match="device_type is cuda"):
        manager.allocate(8, "cuda:0")
    with pytest.raises(devexchange.Refused, match='device is "gpu": not the name of a device'):
        manager.allocate(8, "gpu")


def test_reset_leaves_host_memory_alone():
    manager = MemoryManager.host_only()
    memory = manager.allocate(8, CPU)
    manager.reset()
    assert manager.statistics().bytes == 8
    memory.close()
    assert manager.statistics().allocations == 0


def test_deferred_cleanup():
    arena = Arena()
    manager = MemoryManager(arena)
    with manager.defer_cleanup(), manager.defer_cleanup():
        manager.allocate(8, CPU).close()
        assert len(arena.blocks) == 1
        assert manager.statistics().bytes == 0
    assert not arena.blocks


def test_deferral_that_is_never_ended_ends_with_its_object():
    arena = Arena()
    manager = MemoryManager(arena)
    manager.defer_cleanup().__enter__()
    manager.allocate(8, CPU).close()
    assert not arena.blocks


@pytest.mark.parametrize("at_begin", [True, False], ids=["at the begin", "at the end"])
def test_interrupt_of_a_deferral_reaches_the_program(at_begin, interruptible, monkeypatch):
    seen, entered = [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: seen.append(raised.exc_type))

    class Interrupted(Arena):
        def defer_cleanup(self, begin):
            if begin == at_begin:
                raise KeyboardInterrupt("enough")

    arena = Interrupted()
    manager = MemoryManager(arena)
    with pytest.raises(KeyboardInterrupt):
        with manager.defer_cleanup():
            entered.append(True)
            manager.allocate(8, CPU).close()
        # The interrupt comes soon, not at once.
        time.sleep(10)
    gc.collect()
    devexchange.from_buffer(b"").close()
    # Memory that was held back is still given back.
    assert not arena.blocks and seen == [KeyboardInterrupt]
    assert at_begin or entered


def test_tensor_of_new_memory():
    manager = MemoryManager.host_only()
    for dtype in ["float32", numpy.dtype("float32"), numpy.float32]:
        tensor = empty((2, 3), dtype, manager=manager)
        assert (tensor.shape, tensor.dtype, tensor.device) == ((2, 3), "float32", CPU)
        assert manager.statistics().bytes == 24
        array = numpy.from_dlpack(tensor)
        array[:] = 1
        tensor.close()
        assert manager.statistics().bytes == 24
        del array
        assert manager.statistics().bytes == 0
    with empty(5) as tensor:
        assert (tensor.shape, tensor.dtype) == ((5,), "float64")
    with pytest.raises(ValueError, match="dtype is .float33"):
        empty(1, "float33")
    with pytest.raises(TypeError, match="dtype is 3"):
        empty(1, 3)
    foreign = numpy.dtype("float32").newbyteorder()
    with pytest.raises(ValueError, match="dtype is [<>]f4: not in the byte order of this machine"):
        empty(1, foreign)
    for long_double in [numpy.dtype("g"), numpy.dtype("G")]:
        with pytest.raises(ValueError, match="the format of a long double differs between machines"):
            empty(1, long_double)
    with pytest.raises(ValueError, match="-1"):
        empty((2, -1))


class TorchDType:
    """An element type like `torch.float32`: only its text says which it is."""

    def __init__(self, name):
        self.name_of_it = name

    def __repr__(self):
        return f"torch.{self.name_of_it}"


@pytest.mark.parametrize(
    "dtype, name",
    [
        (bool, "bool"),
        (int, "int64"),
        (float, "float64"),
        (complex, "complex128"),
        *[(kind, numpy.dtype(kind).name) for kind in [numpy.longlong, numpy.ulonglong, numpy.intc, numpy.half]],
        *[
            (numpy.dtype(kind), kind.__name__)
            for kind in [ml_dtypes.float8_e4m3fnuz, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4]
        ],
        *[(TorchDType(name), name) for name in ["float32", "bool", "bfloat16", "float8_e4m3fnuz"]],
    ],
)
def test_element_types_of_others(dtype, name):
    assert empty(2, dtype).dtype == name


@pytest.mark.parametrize("dtype", [numpy.longdouble, numpy.clongdouble, str, object, TorchDType("quint8"), numpy.str_])
def test_element_types_that_are_none(dtype):
    with pytest.raises(ValueError, match="dtype is .*: not the name of an element type"):
        empty(2, dtype)


# --- in Python ---


def test_manager_in_python():
    arena = Arena()
    manager = MemoryManager(arena)
    tensor = empty(4, "int32", manager=manager)
    assert arena.asked == [MemoryRequest(Device(1), 16)]
    assert tensor.data_ptr in arena.blocks
    tensor.close()
    assert not arena.blocks
    manager.initialize()
    manager.trim()
    assert manager.statistics().total_bytes == 16


@pytest.mark.parametrize("value", [numpy.array(5), numpy.zeros(()), numpy.ones(3, "u1")], ids=["int", "float", "vector"])
def test_pins_of_arrays_and_of_addresses(value):
    manager = MemoryManager(Everything())
    address = value.ctypes.data
    for pinned in (manager.pin(value), manager.pin(numpy.uint64(address), numpy.int8(value.nbytes))):
        assert (pinned.address, pinned.bytes) == (address, value.nbytes)
        pinned.close()


def test_manager_in_python_with_everything():
    arena = Everything()
    manager = MemoryManager(arena)
    manager.initialize(2)
    host = bytearray(8)
    with manager.pin(host, device_id=1, mapped=True) as pinned:
        address = pinned.address
        assert (pinned.bytes, pinned.device) == (8, Device(3))
        with pytest.raises(BufferError):
            host.append(1)
    host.append(1)
    manager.pin(address, 4, portable=True).close()
    assert manager.memory_info(1) == MemoryInfo(free_bytes=11, total_bytes=20)
    assert manager.ipc_handle(address) == IpcHandle(bytes(range(64)), address % 16, 16, 3)
    with manager.defer_cleanup():
        pass
    manager.trim(1, 5)
    manager.reset(1)
    memory = manager.allocate(1, CPU)
    manager.close()
    assert arena.asked[-1] == MemoryRequest(Device(1), 1)
    memory.close()
    pins = [MemoryRequest(Device(3, 1), 8, mapped=True), MemoryRequest(Device(3), 4, portable=True)]
    assert arena.asked == [
        ("initialize", 2),
        ("pin", pins[0], address),
        "unpinned",
        ("pin", pins[1], address),
        "unpinned",
        ("defer", True),
        ("defer", False),
        ("trim", 1, 5),
        ("reset", 1),
        MemoryRequest(Device(1), 1),
        "closed",
    ]


def test_manager_in_python_that_hands_on_memory_of_another_one():
    class Counting:
        def __init__(self):
            self.inner, self.bytes = MemoryManager.host_only(), 0

        def allocate(self, request):
            self.bytes += request.bytes
            return self.inner.allocate(request.bytes, request.device)

    counting = Counting()
    manager = MemoryManager(counting)
    memory = manager.allocate(12, CPU)
    assert (counting.bytes, counting.inner.statistics().bytes) == (12, 12)
    memory.close()
    assert counting.inner.statistics().bytes == 0


def test_objects_that_are_no_manager_or_array():
    with pytest.raises(TypeError, match=r"^manager is .*: a MemoryManager is needed, which MemoryManager\(object\) makes"):
        empty(1, manager=object())
    with pytest.raises(TypeError, match="^inner is 5: a MemoryManager is needed"):
        MemoryManager.limited(5)
    with pytest.raises(TypeError, match="^Memory has no constructor: MemoryManager.allocate"):
        devexchange.Memory()
    memory = MemoryManager.host_only().allocate(8, CPU)
    for act in (numpy.asarray, numpy.array, lambda memory: numpy.array(memory, dtype="f4")):
        with pytest.raises(TypeError, match="^Memory has no elements: empty"):
            act(memory)


@pytest.mark.parametrize(
    "raised, kind, text",
    [
        (KeyError("mine"), devexchange.Failed, "allocate: KeyError: 'mine'"),
        (MemoryError("full"), devexchange.OutOfMemory, "allocate: MemoryError: full"),
        (NotImplementedError("no"), devexchange.Refused, "allocate: NotImplementedError: no"),
        (devexchange.Refused("no"), devexchange.Refused, "^allocate: no$"),
        (devexchange.OutOfMemory(), devexchange.OutOfMemory, "^allocate returned DEVX_OUT_OF_MEMORY$"),
        (devexchange.InvalidValue("odd", 8, 3), devexchange.InvalidValue, "allocate: .*odd"),
    ],
)
def test_exceptions_of_a_manager_in_python(raised, kind, text):
    class Raises:
        def allocate(self, request):
            raise raised

    manager = MemoryManager(Raises())
    with pytest.raises(kind, match=text) as error:
        manager.allocate(1, CPU)
    assert error.value.driver_code == getattr(raised, "driver_code", 0)
    assert error.value.__cause__ is raised
    assert manager.statistics().bytes == 0
    # The exception outlives the test, and would keep its frames alive.
    raised.__traceback__ = None


@pytest.mark.parametrize("ask", [lambda manager: manager.allocate(1, CPU), lambda manager: empty(1, manager=manager)])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_end_of_the_program_is_no_error_of_a_manager(kind, ask):
    class Raises:
        def allocate(self, request):
            raise kind("enough")

    manager = MemoryManager(Raises())
    for each in [manager, MemoryManager.limited(manager, 1 << 20)]:
        with pytest.raises(kind, match="enough"):
            ask(each)
    assert manager.statistics().bytes == 0


@pytest.mark.parametrize("given", [None, 5, (1,), ("a", None), (5, 6), (0, None)])
def test_nonsense_of_a_manager_in_python(given):
    class Odd:
        def allocate(self, request):
            return given

    with pytest.raises(devexchange.Failed, match="allocate: "):
        MemoryManager(Odd()).allocate(1, CPU)


def test_what_gives_memory_back_may_raise(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: seen.append(raised.exc_type))

    class Odd:
        def allocate(self, request):
            return 16, lambda: 1 / 0

        def close(self):
            raise KeyError

    manager = MemoryManager(Odd())
    manager.allocate(1, CPU).close()
    manager.close()
    assert seen == [ZeroDivisionError, KeyError]


def test_object_goes_with_its_manager():
    arena = Arena()
    gone = weakref.ref(arena)
    manager = MemoryManager(arena)
    memory = manager.allocate(1, CPU)
    del arena, manager
    gc.collect()
    assert gone() is not None
    memory.close()
    assert gone() is None


def test_many_threads_at_once():
    manager = MemoryManager(Arena())

    def work():
        for size in range(200):
            manager.allocate(size, CPU).close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert manager.statistics()[0] == 0
    assert manager.statistics().total_allocations == 800


def test_object_that_does_not_say_what_it_has_is_not_kept():
    class Undecided:
        def allocate(self, request):
            raise AssertionError

        @property
        def trim(self):
            raise KeyError("not yet")

    undecided = Undecided()
    seen = weakref.ref(undecided)
    with pytest.raises(KeyError, match="not yet"):
        MemoryManager(undecided)
    del undecided
    gc.collect()
    assert seen() is None


def test_nobody_is_asked_for_more_bytes_than_can_be():
    everything = Everything()
    with MemoryManager(everything) as manager:
        with pytest.raises(devexchange.OutOfMemory, match=f"{2**63} bytes could not be allocated"):
            manager.allocate(2**63, (1, 0))
        with pytest.raises(devexchange.OutOfRange, match=f"bytes is {2**63}"):
            manager.pin(4096, 2**63)
        assert everything.asked == []
        # The amount to keep exceeds what a manager can be passed: it gets the largest number.
        manager.trim(0, 2**63)
        assert everything.asked == [("trim", 0, 2**63 - 1)]


def test_memory_of_another_manager_has_to_be_large_enough():
    host = MemoryManager.host_only()

    class Short:
        def allocate(self, request):
            return host.allocate(request.bytes - 1, (1, 0))

    with pytest.raises(devexchange.Failed, match="it gave memory of 7 bytes, not 8"):
        MemoryManager(Short()).allocate(8, (1, 0))
    assert host.statistics().bytes == 0
