"""Tensors from other libraries, through DLPack."""

import ctypes
import threading

import numpy
import pyarrow
import pytest
import tvm_ffi
from structs import Producer, new_capsule

import devexchange
from devexchange import from_dlpack

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
LAYOUTS = {
    "vector": lambda array: array.reshape(-1),
    "matrix": lambda array: array,
    "transposed": lambda array: array.T,
    "every second": lambda array: array[::2, 1::2],
    "backwards": lambda array: array[::-1],
    "repeated": lambda array: numpy.broadcast_to(array[0], (3, 6)),
    "empty": lambda array: array[:0],
    "scalar": lambda array: array[1:2, 1:2].reshape(()),
}


def matrix(dtype="f8"):
    return numpy.arange(24).astype(dtype).reshape(4, 6)


def element_strides(array):
    return tuple(stride // array.itemsize for stride in array.strides)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_array_of_numpy_and_back(dtype, layout):
    array = LAYOUTS[layout](matrix(dtype))
    tensor = from_dlpack(array)
    assert (tensor.shape, tensor.dtype, tensor.device) == (array.shape, array.dtype.name, (1, 0))
    assert tensor.data_ptr == (array.ctypes.data if array.size else 0)
    if array.size:
        assert tensor.strides == element_strides(array)
    assert tensor.nbytes == array.nbytes
    seen = numpy.from_dlpack(tensor)
    numpy.testing.assert_array_equal(seen, array)
    assert seen.dtype == array.dtype
    if array.size:
        assert seen.ctypes.data == array.ctypes.data
        assert seen.flags.writeable == array.flags.writeable


def test_writes_are_seen_on_both_sides():
    array = matrix()
    numpy.from_dlpack(from_dlpack(array))[1, 2] = 77
    assert array[1, 2] == 77


def test_read_only_is_kept():
    array = matrix()
    array.flags.writeable = False
    tensor = from_dlpack(array)
    assert tensor.read_only
    assert not numpy.from_dlpack(tensor).flags.writeable


def test_tensor_of_tvm_ffi():
    array = matrix("f4")
    tensor = from_dlpack(tvm_ffi.from_dlpack(array))
    assert (tensor.shape, tensor.data_ptr) == (array.shape, array.ctypes.data)
    numpy.testing.assert_array_equal(numpy.from_dlpack(tensor), array)


def test_array_of_pyarrow():
    array = pyarrow.array([1, 2, 3], pyarrow.int32())
    tensor = from_dlpack(array)
    assert (tensor.shape, tensor.dtype, tensor.read_only) == ((3,), "int32", True)
    assert numpy.from_dlpack(tensor).tolist() == [1, 2, 3]


def test_memory_lives_as_long_as_the_tensor():
    producer = Producer()
    tensor = from_dlpack(producer)
    assert producer.is_taken() and producer.deleted == 0
    seen = numpy.from_dlpack(tensor)
    tensor.close()
    assert producer.deleted == 0
    assert seen.tolist() == [[0, 1, 2], [3, 4, 5]]
    del seen
    assert producer.deleted == 1


# --- producers that know fewer arguments ---


class Old:
    """A producer of DLPack before 1.0, which raises TypeError for arguments that it does not know."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return (1, 0)


class KnowsStream(Old):
    def __dlpack__(self, stream=None):
        assert stream is None
        return self.array.__dlpack__()


class KnowsNothing(Old):
    def __dlpack__(self):
        return self.array.__dlpack__()


class KnowsVersion(Old):
    def __dlpack__(self, *, stream=None, max_version=None):
        return self.array.__dlpack__(max_version=max_version)


@pytest.mark.parametrize("kind", [KnowsStream, KnowsNothing, KnowsVersion])
@pytest.mark.parametrize("copy", [None, True, False])
def test_old_producer(kind, copy):
    array = matrix()
    tensor = from_dlpack(kind(array), copy=copy)
    assert (tensor.data_ptr == array.ctypes.data) is (copy is not True)
    numpy.testing.assert_array_equal(numpy.from_dlpack(tensor), array)


@pytest.mark.parametrize("copy", [None, False])
@pytest.mark.parametrize("known", [{"copy", "max_version"}, {"max_version"}, set()])
def test_producer_is_asked_for_the_newest_first(copy, known):
    asked = []

    class Records(Old):
        def __dlpack__(self, **arguments):
            asked.append(arguments)
            if arguments.keys() - known:
                raise TypeError("not known")
            return self.array.__dlpack__(max_version=(1, 0))

    from_dlpack(Records(matrix()), copy=copy).close()
    tried = [{"max_version": (1, 3)}, {}]
    if copy is False:
        tried.insert(0, {"copy": False, "max_version": (1, 3)})
    accepted = [arguments.keys() <= known for arguments in tried].index(True)
    assert asked == tried[: accepted + 1]


def test_error_of_a_producer_comes_through():
    class Broken(Old):
        def __dlpack__(self, **_):
            raise TypeError("broken")

    with pytest.raises(TypeError, match="broken"):
        from_dlpack(Broken(None))


class Derived(TypeError):
    """A derived exception as in PyArrow, which a call with an unknown argument never raises."""


@pytest.mark.parametrize(
    "newest, older, raised",
    [
        (TypeError("no numbers"), BufferError("needs a version"), "no numbers"),
        (TypeError("no numbers"), TypeError("older"), "no numbers"),
        (TypeError("unexpected keyword argument 'max_version'"), BufferError("is read-only"), "is read-only"),
        (TypeError("unexpected keyword argument 'max_version'"), TypeError("no numbers"), "no numbers"),
        (TypeError("takes no keyword arguments"), TypeError("no numbers"), "no numbers"),
        (Derived("has nulls"), None, "has nulls"),
        (TypeError("no numbers"), KeyboardInterrupt("now"), "now"),
    ],
)
@pytest.mark.parametrize("copy", [None, False])
def test_error_of_a_producer_is_not_that_of_the_second_try(newest, older, raised, copy):
    class Failing(Old):
        def __dlpack__(self, **arguments):
            asked.append(arguments)
            raise newest if arguments else older or newest

    asked = []
    with pytest.raises((newest if raised in str(newest) else older).__class__, match=raised):
        from_dlpack(Failing(None), copy=copy)
    # Without `older` it is asked once.
    assert older or len(asked) == 1


# --- copies and devices ---


def test_copy_is_made_if_it_was_asked_for():
    array = matrix()[::2]
    tensor = from_dlpack(array, copy=True)
    assert tensor.is_copied and tensor.data_ptr != array.ctypes.data
    numpy.testing.assert_array_equal(numpy.from_dlpack(tensor), array)


MISALIGNED = {
    "odd address": lambda: numpy.ndarray(2, "f8", bytearray(17), 1),
    "packed structure of 8 bytes": lambda: numpy.zeros(3, [("kind", "i1"), ("value", "f4"), ("rest", "V3")])["value"],
    "packed structure of 5 bytes": lambda: numpy.zeros(3, [("kind", "i1"), ("value", "f4")])["value"],
}


@pytest.mark.parametrize("make", MISALIGNED.values(), ids=MISALIGNED)
def test_array_that_is_not_aligned_is_copied_by_its_producer(make):
    array = make()
    array[:] = range(len(array))
    ours = "is not aligned to . bytes, as float.. needs: its producer has to copy it"
    with pytest.raises((ValueError, BufferError), match=f"{ours}|strides which are a multiple of itemsize"):
        from_dlpack(array)
    tensor = from_dlpack(array, copy=True)
    assert tensor.is_copied and numpy.from_dlpack(tensor).tolist() == array.tolist()
    array[0] = 5
    assert numpy.from_dlpack(tensor)[0] == 0
    assert numpy.from_dlpack(from_dlpack(array.copy())).tolist() == array.tolist()


class Misaligned:
    """Makes a copy, or not: a producer of before DLPack 1.0 knows nothing of copies."""

    def __init__(self, marks=True, older=False):
        self.marks, self.older, self.asked = marks, older, []

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **arguments):
        if self.older and "copy" in arguments:
            raise TypeError("unexpected keyword argument 'copy'")
        self.asked.append(arguments.get("copy"))
        copies = arguments.get("copy") is True
        self.last = Producer(byte_offset=0 if copies else 1, flags=2 if copies and self.marks else 0)
        return self.last.capsule


def test_producer_of_misaligned_memory_is_asked_for_a_copy():
    producer = Misaligned()
    tensor = from_dlpack(producer, copy=True)
    assert producer.asked == [None, True] and tensor.data_ptr == ctypes.addressof(producer.last.values)
    # Without the mark, nobody knows whether it is a copy.
    producer = Misaligned(marks=False)
    tensor = from_dlpack(producer, copy=True)
    assert tensor.is_copied and tensor.data_ptr != ctypes.addressof(producer.last.values) and producer.last.deleted == 1


def test_older_producer_of_misaligned_memory():
    producer = Misaligned(older=True)
    with pytest.raises(ValueError, match="is not aligned to 4 bytes.*its producer has to copy it"):
        from_dlpack(producer, copy=True)
    assert producer.asked == [None, None] and producer.last.is_untouched()


def test_array_that_its_producer_does_not_copy_either():
    """The request for a copy is not what failed."""
    with pytest.raises(BufferError, match="native byte order") as raised:
        from_dlpack(numpy.zeros(2, ">f8"), copy=True)
    assert raised.value.__cause__ is None


def test_copy_of_a_producer_is_refused_if_none_was_allowed():
    with pytest.raises(BufferError, match="the producer made a copy"):
        from_dlpack(Producer(flags=2), copy=False)


class Metal:
    """Elements on a device that this library has no runtime for. Its producer brings them to the host if it is asked to."""

    def __init__(self, marks=True, known=frozenset({"copy", "dl_device", "max_version"})):
        self.marks, self.known, self.asked = marks, known, []

    def __dlpack_device__(self):
        return (8, 0)

    def __dlpack__(self, **arguments):
        if arguments.keys() - self.known:
            raise TypeError("unexpected keyword argument")
        self.asked.append(arguments)
        place = {} if arguments.get("dl_device") == (1, 0) else {"device_type": 8}
        self.last = Producer(flags=2 if self.marks else 0, **place)
        return self.last.capsule


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("marks", [True, False])
def test_producer_brings_elements_of_another_device_to_the_host(copy, marks):
    producer = Metal(marks)
    tensor = from_dlpack(producer, device="cpu", copy=copy)
    asked = {"dl_device": (1, 0), "max_version": (1, 3)} | ({} if copy is None else {"copy": True})
    assert producer.asked == [asked] and tensor.device == (1, 0)
    # A copy is made only of what may not be one.
    assert (tensor.data_ptr == ctypes.addressof(producer.last.values)) is (copy is None or marks)
    assert numpy.from_dlpack(tensor).tolist() == [[0, 1, 2], [3, 4, 5]]
    tensor.close()
    assert producer.last.deleted == 1


def test_producer_that_brings_nothing_to_the_host():
    refused = "^device_type is metal"
    for arguments in [{}, {"device": "cpu", "copy": False}, {"copy": True}]:
        producer = Metal()
        with pytest.raises(BufferError, match=refused):
            from_dlpack(producer, **arguments)
        assert producer.asked == []
    older = Metal(known={"max_version"})
    with pytest.raises(BufferError, match=refused):
        from_dlpack(older, device="cpu")
    assert older.asked == []

    class Stays(Metal):
        def __dlpack__(self, **arguments):
            return super().__dlpack__(max_version=arguments["max_version"])

    stays = Stays()
    with pytest.raises(BufferError, match=refused):
        from_dlpack(stays, device="cpu")
    assert stays.last.is_untouched()


def test_host_is_a_device_under_both_numbers():
    array = matrix()
    for device in [(1, 0), (1, -1), devexchange.Device(devexchange.DeviceType.CPU)]:
        assert from_dlpack(array, device=device).data_ptr == array.ctypes.data


def test_device_without_a_driver_is_refused(no_driver):
    with pytest.raises(BufferError, match="device_type is cuda"):
        from_dlpack(matrix(), device=(2, 0))


def test_device_that_nothing_is_copied_to_is_refused():
    with pytest.raises(BufferError, match="device_type is vulkan"):
        from_dlpack(matrix(), device=(7, 0))


def test_stream_that_raises():
    class Closed:
        @property
        def __cuda_stream__(self):
            raise LookupError("the stream is closed")

    with pytest.raises(LookupError, match="the stream is closed"):
        from_dlpack(matrix(), stream=Closed())


def test_stream_for_the_host_is_refused():
    with pytest.raises(ValueError, match="stream is 7"):
        from_dlpack(matrix(), stream=7)
    with pytest.raises(TypeError, match="^stream is '7': neither an integer nor an object"):
        from_dlpack(matrix(), stream="7")
    assert from_dlpack(matrix(), stream=-1).shape == (4, 6)


# --- objects that are not producers ---


class HasOnlyDevice:
    def __dlpack_device__(self):
        return (1, 0)


class HasOnlyMethod:
    def __dlpack__(self, **_):
        raise AssertionError("asked without a device")


@pytest.mark.parametrize("thing", [None, 1, "text", [1, 2], object(), HasOnlyDevice(), HasOnlyMethod()])
def test_object_without_the_protocol(thing):
    with pytest.raises(TypeError, match="has no __dlpack__"):
        from_dlpack(thing)


@pytest.mark.parametrize("method", ["__dlpack_device__", "__dlpack__"])
def test_attribute_that_a_method_misses_is_its_own_error(method):
    producer = type("Misses", (Producer,), {method: lambda self, **_: self.nothing})()
    with pytest.raises(AttributeError, match="nothing"):
        from_dlpack(producer)


class Gives(Old):
    def __dlpack__(self, **_):
        return self.array


def test_thing_that_is_no_capsule_of_dlpack():
    for thing in [None, 1, new_capsule(1, b"something else", None), new_capsule(1, None, None)]:
        with pytest.raises(TypeError, match="not a capsule with the name"):
            from_dlpack(Gives(thing))


def says(device):
    class Says(Producer):
        def __dlpack_device__(self):
            return device

    return Says()


@pytest.mark.parametrize("device", [None, 1, (1,), ("cpu", 0), (1, 0, 0), (2, None), (None, 0)])
def test_device_that_is_no_pair(device):
    with pytest.raises(TypeError, match=r"^__dlpack_device__ returned .*: a pair"):
        from_dlpack(says(device))


def test_cpu_without_a_number():
    # As Paddle writes it.
    tensor = from_dlpack(says((1, None)))
    assert (tensor.device, numpy.from_dlpack(tensor).tolist()) == ((1, 0), [[0, 1, 2], [3, 4, 5]])


def test_capsule_in_place_of_its_producer():
    producer = Producer()
    with pytest.raises(TypeError, match="^a capsule is not a producer"):
        from_dlpack(producer.capsule)
    assert producer.is_untouched()


def test_used_capsule_is_refused():
    producer = Producer()
    tensor = from_dlpack(producer)
    with pytest.raises(ValueError, match="used"):
        from_dlpack(producer)
    assert producer.deleted == 0
    tensor.close()
    assert producer.deleted == 1


def test_capsule_that_many_threads_want_has_one_winner():
    for _ in range(50):
        producer, taken, refused = Producer(), [], []
        start = threading.Barrier(4)

        def take(producer=producer, taken=taken, refused=refused, start=start):
            start.wait()
            try:
                taken.append(from_dlpack(producer))
            except ValueError as error:
                refused.append(error)

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(taken), len(refused)) == (1, 3)
        taken.pop().close()
        assert producer.deleted == 1


# --- bad inputs: an error that names the field, and the capsule as it was ---

HUGE = 1 << 62
BAD = {
    "major 0": ({"major": 0}, BufferError, "version is 0.3"),
    "major 2": ({"major": 2}, BufferError, "version is 2.3"),
    "ndim negative": ({"ndim": -1}, ValueError, "ndim is -1"),
    "ndim huge": ({"ndim": 2**31 - 1}, ValueError, "ndim is 2147483647"),
    "shape missing": ({"shape": None}, ValueError, "shape is NULL"),
    "extent negative": ({"shape": (-2, 3)}, ValueError, "shape"),
    "shape overflows": ({"shape": (HUGE, HUGE)}, ValueError, "shape"),
    "strides overflow": ({"strides": (HUGE, HUGE)}, ValueError, "strides|shape"),
    "data missing": ({"data": None}, ValueError, "data is NULL"),
    "byte_offset overflows": ({"byte_offset": 2**64 - 4}, ValueError, "byte_offset is"),
    "misaligned": ({"byte_offset": 1}, ValueError, "not aligned"),
    "code unknown": ({"code": 99}, ValueError, "dtype.code is 99"),
    "opaque handle": ({"code": 3, "bits": 64}, BufferError, "dtype.code is 3"),
    "bits unknown": ({"bits": 3}, ValueError, "dtype.bits is 3"),
    "bool of 32 bits": ({"code": 6}, ValueError, "dtype.bits is 32"),
    "no lanes": ({"lanes": 0}, ValueError, "dtype.lanes is 0"),
    "device unknown": ({"device_type": 99}, BufferError, "device_type is 99"),
    "device 0": ({"device_type": 0}, BufferError, "device_type is 0"),
    "another CPU": ({"device_id": 3}, BufferError, "device_id is 3"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("copy", [None, True])
def test_bad_tensor_is_refused_and_stays_the_producers(name, copy):
    fields, kind, text = BAD[name]
    producer = Producer(**fields)
    with pytest.raises(kind, match=text) as caught:
        from_dlpack(producer, copy=copy)
    assert isinstance(caught.value, devexchange.Error) and caught.value.status > 0
    assert producer.is_untouched()


GOOD = {
    "newer minor": {"minor": 99},
    "unknown flag": {"flags": 1 << 40},
    "no strides": {"strides": None},
    "strides of both signs": {"strides": (-3, 1), "byte_offset": 12},
    "overlapping": {"strides": (0, 1)},
}


@pytest.mark.parametrize("name", GOOD)
def test_unusual_tensor_is_taken(name):
    producer = Producer(**GOOD[name])
    tensor = from_dlpack(producer)
    assert tensor.shape == (2, 3)
    tensor.close()
    assert producer.deleted == 1


def test_tensor_without_a_deleter_is_taken():
    producer = Producer(no_deleter=True)
    assert numpy.from_dlpack(from_dlpack(producer)).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_empty_tensor_without_an_address_is_taken():
    producer = Producer(shape=(0, HUGE), data=None)
    tensor = from_dlpack(producer)
    assert (tensor.shape, tensor.data_ptr, tensor.nbytes) == ((0, HUGE), 0, 0)
