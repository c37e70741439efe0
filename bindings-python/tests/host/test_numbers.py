"""Objects that stand for numbers: what their ``__index__`` raises goes on, and what is no number is refused."""

import re

import numpy
import pytest

import devexchange
from devexchange import MemoryManager, Refused, _native, empty, from_dlpack


class Number:
    """A number that is asked for its value, or raises."""

    def __init__(self, value):
        self.value, self.asked = value, 0

    def __index__(self):
        self.asked += 1
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value

    def __repr__(self):
        return "Number"


class OfCuda:
    def __init__(self, *given):
        self.given = given

    def __cuda_stream__(self):
        return self.given


class Producer:
    def __init__(self, *device):
        self.device = device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **arguments):
        return numpy.arange(3.0).__dlpack__(**arguments)


class Gives:
    """A manager in Python whose only answer is this address."""

    def __init__(self, address):
        self.address = address

    def allocate(self, request):
        return self.address, None


def export(**arguments):
    return from_dlpack(numpy.arange(3.0)).__dlpack__(**arguments)


#: Calls with a number, and a number of theirs that is not refused without a driver.
CALLS = {
    "stream": (lambda number: export(stream=number), -1),
    "version of a stream": (lambda number: from_dlpack(numpy.arange(3.0), stream=OfCuda(number, -1)), None),
    "handle of a stream": (lambda number: from_dlpack(numpy.arange(3.0), stream=OfCuda(0, number)), None),
    "type in dl_device": (lambda number: export(dl_device=(number, 0)), 1),
    "number in dl_device": (lambda number: export(dl_device=(1, number)), 0),
    "major in max_version": (lambda number: export(max_version=(number, 0)), 1),
    "minor in max_version": (lambda number: export(max_version=(1, number)), 3),
    "type of a producer": (lambda number: from_dlpack(Producer(number, 0)), 1),
    "number of a producer": (lambda number: from_dlpack(Producer(1, number)), 0),
    "type in device": (lambda number: empty(1, device=(number, 0)), 1),
    "number in device": (lambda number: empty(1, device=(1, number)), 0),
    "type for memory": (lambda number: MemoryManager.host_only().allocate(1, (number, 0)), 1),
    "number for memory": (lambda number: MemoryManager.host_only().allocate(1, (1, number)), 0),
    "type to be named": (lambda number: _native.device_name((number, 0)), 1),
    "number to be named": (lambda number: _native.device_name((2, number)), 5),
}


@pytest.mark.parametrize("call", [call for call, _ in CALLS.values()], ids=CALLS)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError, TypeError, ValueError])
def test_what_a_number_raises_goes_on(call, kind):
    with pytest.raises(kind) as raised:
        call(Number(kind("mine")))
    assert str(raised.value) == "mine"


@pytest.mark.parametrize("call, value", [given for given in CALLS.values() if given[1] is not None])
def test_number_is_asked_once(call, value):
    number = Number(value)
    call(number)
    assert number.asked == 1
    beyond = Number(2**70)
    with pytest.raises((TypeError, ValueError), match="is .*Number|returned .*Number"):
        call(beyond)
    assert beyond.asked == 1


def test_number_of_a_device_beyond_all_is_asked_once():
    number = Number(2**40)
    with pytest.raises(Refused, match="device_id is 1099511627776: the cpu is 0 or -1"):
        MemoryManager.host_only().allocate(1, (1, number))
    assert number.asked == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_end_of_the_program_in_an_address_of_a_manager(kind):
    with pytest.raises(kind, match="^mine$"):
        MemoryManager(Gives(Number(kind("mine")))).allocate(5, (1, 0))


def test_what_an_address_of_a_manager_raises_is_the_cause():
    raised = RuntimeError("mine")
    with pytest.raises(devexchange.Failed, match="allocate: RuntimeError: mine") as failed:
        MemoryManager(Gives(Number(raised))).allocate(5, (1, 0))
    assert failed.value.__cause__ is raised
    # The exception outlives the test, and would keep its frames alive.
    raised.__traceback__ = None


@pytest.mark.parametrize("address", [Number(-1), Number(2**64), 1.5, "x"])
def test_address_of_a_manager_that_is_none(address):
    with pytest.raises(devexchange.Failed, match=re.escape(f"it gave ({address!r}, None): memory, or a pair")):
        MemoryManager(Gives(address)).allocate(5, (1, 0))


@pytest.mark.parametrize(
    "device", [(1,), (1, 0, 0), [1, 0], (1.0, 0), (1, "0"), (1, None), (None, 0), (2**31, 0), (1, 2**63)]
)
def test_device_that_is_no_pair(device):
    text = re.escape(repr(device))
    for call in (
        lambda: export(dl_device=device),
        lambda: empty(1, device=device),
        lambda: MemoryManager.host_only().allocate(1, device),
        lambda: _native.device_name(device),
    ):
        with pytest.raises(TypeError, match=f"device is {text}: .*a pair"):
            call()


@pytest.mark.parametrize("device", [(1,), [1, 0], (1.0, 0), (1, "0"), (2, None), (2**31, 0), (1, 2**63)])
def test_device_of_a_producer_that_is_no_pair(device):
    class Odd(Producer):
        def __dlpack_device__(self):
            return device

    with pytest.raises(TypeError, match=f"__dlpack_device__ returned {re.escape(repr(device))}: a pair"):
        from_dlpack(Odd())


@pytest.mark.parametrize("handle", [-1, -2, -(2**63), -(2**70), 2**63, numpy.int64(-1)])
def test_handle_that_is_none(handle):
    """-1 is a number of DLPack for no synchronisation, which no object with a handle can mean."""
    stream = OfCuda(0, handle)
    text = f"__cuda_stream__ gave {stream.given!r}: {handle} is not a stream handle"
    for call in (
        lambda: export(stream=stream),
        lambda: from_dlpack(numpy.arange(3.0), stream=stream),
        lambda: from_dlpack(numpy.arange(3.0)).copy_to("cpu", stream),
        lambda: empty(1, stream=stream),
        lambda: from_dlpack(numpy.arange(3.0)).wait(stream),
    ):
        with pytest.raises(devexchange.InvalidValue, match=re.escape(text)):
            call()


@pytest.mark.parametrize("version", [1, -1, 2**70, Number(1)])
def test_version_of_a_stream_that_is_not_known(version):
    with pytest.raises(Refused, match=f"__cuda_stream__ is of version {version}: this library knows version 0"):
        export(stream=OfCuda(version, 1))


def test_version_of_a_stream_that_stands_for_a_number():
    with pytest.raises(devexchange.InvalidValue, match="stream is 7: the cpu takes -1"):
        export(stream=OfCuda(Number(0), Number(7)))
