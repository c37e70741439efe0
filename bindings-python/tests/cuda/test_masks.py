"""Masks of the CUDA Array Interface, and more wrong dictionaries."""

import gc

import driver
import numpy
import pytest
from cuda.bindings import driver as cuda_driver
from test_cuda import CPU, VALUES, Array, described, read

import devexchange
from devexchange import from_cuda_array_interface

VALID = VALUES % 3 != 0


class Masked(Array):
    """An array whose mask another stream has still to fill."""

    def __init__(self, cuda, valid=VALID, version=3, stream=None, entries=()):
        super().__init__(cuda, version)
        self.mask_stream = stream or cuda.other
        self.mask_memory = driver.pending(cuda.device, valid, self.mask_stream)
        self.mask = described(valid, self.mask_memory, self.mask_stream, version, entries)
        self.entries["mask"] = Interface(self.mask)

    def __del__(self):
        self.mask_memory.close(self.mask_stream)
        super().__del__()


class Interface:
    def __init__(self, entries):
        self.__cuda_array_interface__ = entries


def test_array_and_mask(cuda):
    tensor, mask = from_cuda_array_interface(Masked(cuda), stream=cuda.consumer, mask=True)
    assert (tensor.shape, tensor.dtype, mask.shape, mask.dtype) == ((4, 6), "float32", (4, 6), "bool")
    numpy.testing.assert_array_equal(read(tensor, cuda.consumer), VALUES)
    numpy.testing.assert_array_equal(read(mask, cuda.consumer), VALID)


def test_array_without_a_mask(cuda):
    for entries in [{}, {"mask": None}]:
        tensor, mask = from_cuda_array_interface(Array(cuda, **entries), mask=True)
        assert mask is None
        numpy.testing.assert_array_equal(read(tensor, cuda.consumer), VALUES)
        assert from_cuda_array_interface(Array(cuda, **entries)).shape == (4, 6)


def test_mask_that_nobody_asked_for_is_refused(cuda):
    producer = Masked(cuda)
    for arguments in [{}, {"mask": False}, {"stream": cuda.consumer}]:
        with pytest.raises(BufferError, match="mask is there: .*mask=True gives the mask"):
            from_cuda_array_interface(producer, **arguments)
    assert devexchange.outstanding() == 0


@pytest.mark.parametrize("first", [0, 1])
def test_each_of_both_keeps_the_producer(cuda, first):
    pair = list(from_cuda_array_interface(Masked(cuda), mask=True))
    pair.pop(first).close()
    gc.collect()
    left = pair.pop()
    numpy.testing.assert_array_equal(read(left, cuda.consumer), [VALID, VALUES][first])
    left.close()


def test_mask_may_have_its_own_order_and_uses(cuda):
    """The release of both, and the stream that fills the mask, wait for work that uses the mask."""
    tensor, mask = from_cuda_array_interface(Masked(cuda, stream=cuda.producer), stream=cuda.consumer, mask=True)
    copied = driver.copy_on(cuda.device, mask.data_ptr, VALID.nbytes, cuda.consumer)
    mask.used_on(cuda.consumer)
    mask.close()
    tensor.close()
    elements = driver.download(int(copied.handle), VALID.nbytes, cuda.consumer)
    numpy.testing.assert_array_equal(elements.view(bool).reshape(4, 6), VALID)
    copied.close()


def test_mask_that_is_used_unsaid_is_released_too_early(cuda):
    tensor, mask = from_cuda_array_interface(Masked(cuda, stream=cuda.producer), stream=cuda.consumer, mask=True)
    copied = driver.copy_on(cuda.device, mask.data_ptr, VALID.nbytes, cuda.consumer)
    mask.close()
    tensor.close()
    cuda.consumer.sync()
    copied.close()
    driver.assert_found("FreeRace")


@pytest.mark.parametrize("shape, strides", [((6,), (0, 1)), ((1,), (0, 0)), ((), (0, 0)), ((4, 1), (1, 0))])
def test_mask_is_broadcast_to_its_array(cuda, shape, strides):
    valid = numpy.ones(shape, "?")
    _, mask = from_cuda_array_interface(Masked(cuda, valid), mask=True)
    assert (mask.shape, mask.strides, mask.read_only) == ((4, 6), strides, True)


@pytest.mark.parametrize("dtype", ["u1", "i4", "f4"])
def test_mask_of_numbers(cuda, dtype):
    _, mask = from_cuda_array_interface(Masked(cuda, VALID.astype(dtype)), mask=True)
    numpy.testing.assert_array_equal(read(mask, cuda.consumer), VALID)


@pytest.mark.parametrize("version", [1, 2])
def test_masks_of_versions_without_a_stream(cuda, version):
    producer = Masked(cuda, version=version)
    cuda.producer.sync()
    cuda.other.sync()
    _, mask = from_cuda_array_interface(producer, mask=True)
    numpy.testing.assert_array_equal(read(mask, cuda.consumer), VALID)


BAD_MASKS = {
    "smaller": ({"shape": (4, 5)}, TypeError, r"mask has shape \[4, 5\], the array \[4, 6\]"),
    "more dimensions": ({"shape": (1, 4, 6)}, TypeError, "mask has shape"),
    "empty": ({"shape": (0,)}, TypeError, "mask has shape"),
    "no shape": ({"shape": ...}, ValueError, "mask: .*has no shape"),
    "version 4": ({"version": 4}, BufferError, "mask: version is 4"),
    "stream 0": ({"stream": 0}, ValueError, "mask: .*stream is 0"),
    "typestr": ({"typestr": "|O8"}, BufferError, "mask: typestr"),
    "data": ({"data": (0, False)}, ValueError, "mask: data is NULL"),
    "past the end": ({"shape": (4, 6), "strides": (1 << 30, 1)}, BufferError, "mask: "),
    "a mask of its own": ({"mask": Interface({})}, BufferError, "mask: a mask has no mask of its own"),
}


@pytest.mark.parametrize("name", BAD_MASKS)
def test_bad_mask_is_refused(cuda, name):
    entries, kind, text = BAD_MASKS[name]
    with pytest.raises(kind, match=text):
        from_cuda_array_interface(Masked(cuda, entries=entries), mask=True)
    assert devexchange.outstanding() == 0


class Raises:
    @property
    def __cuda_array_interface__(self):
        raise LookupError("mine")


@pytest.mark.parametrize(
    "thing, kind, text",
    [
        (object(), TypeError, "has no __cuda_array_interface__"),
        (True, TypeError, "has no __cuda_array_interface__"),
        (VALID, TypeError, "has no __cuda_array_interface__"),
        (Interface([]), TypeError, "not a dict"),
        (Interface({}), ValueError, "mask: .*has no version"),
        (Raises(), LookupError, "mine"),
    ],
)
def test_thing_that_is_no_mask(cuda, thing, kind, text):
    with pytest.raises(kind, match=text):
        from_cuda_array_interface(Array(cuda, mask=thing), mask=True)
    assert devexchange.outstanding() == 0


# --- more wrong entries, besides those of test_cuda.py ---

BAD = {
    "version is a float": ({"version": 3.0}, TypeError, "version is 3.0"),
    "version is a str": ({"version": "3"}, TypeError, "version is '3'"),
    "version of 65 bits": ({"version": 1 << 64}, BufferError, "version is"),
    "version is None": ({"version": None}, TypeError, "version is None"),
    "typestr empty": ({"typestr": ""}, ValueError, "typestr is"),
    "typestr of another size": ({"typestr": "<f3"}, ValueError, "typestr is"),
    "typestr without an order": ({"typestr": "f4"}, ValueError, "typestr is"),
    "typestr huge": ({"typestr": "<f" + "4" * 1000}, ValueError, "typestr has no end"),
    "typestr with a NUL": ({"typestr": "<f4\0"}, ValueError, "typestr has a NUL"),
    "typestr is None": ({"typestr": None}, TypeError, "typestr"),
    "typestr of dates": ({"typestr": "<M8"}, BufferError, "cannot have such elements"),
    "typestr of surrogates": ({"typestr": "\ud800f4"}, ValueError, "typestr is"),
    "structured by descr": (
        {"typestr": "|V8", "descr": [("a", "<f4"), ("b", "<f4")]},
        BufferError,
        "cannot have such elements",
    ),
    "shape is None": ({"shape": None}, TypeError, "shape is None"),
    "shape of strs": ({"shape": ("4", "6")}, TypeError, "shape is '4'"),
    "strides too many": ({"strides": (24, 4, 1)}, ValueError, "3 strides for 2"),
    "strides are none at all": ({"strides": ()}, ValueError, "0 strides for 2"),
    "strides are a number": ({"strides": 4}, TypeError, "strides is 4"),
    "strides of floats": ({"strides": (24.0, 4)}, TypeError, "strides is 24.0"),
    "strides of 65 bits": ({"strides": (1 << 64, 4)}, ValueError, "strides is"),
    "strides go past the end": ({"strides": (1 << 30, 4)}, BufferError, "data"),
    "strides go before the beginning": ({"strides": (-(1 << 30), 4)}, BufferError, "data"),
    "data is None": ({"data": None}, TypeError, "data"),
    "data is a list": ({"data": [0, False]}, TypeError, "data"),
    "data of one": ({"data": (0,)}, ValueError, "data has 1"),
    "data of none": ({"data": ()}, ValueError, "data has 0"),
    "address is a float": ({"data": (1.0, False)}, TypeError, "data.0. is 1.0"),
    "address is a str": ({"data": ("0x10", False)}, TypeError, "data.0. is '0x10'"),
    "address is None": ({"data": (None, False)}, TypeError, "data.0. is None"),
    "flag is None": ({"data": (0, None)}, TypeError, "data.1. is None"),
    "stream is a float": ({"stream": 1.0}, TypeError, "stream is 1.0"),
    "stream of 65 bits": ({"stream": 1 << 64}, ValueError, "stream is"),
    "stream of another kind": ({"stream": object()}, TypeError, "stream is"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_dictionary_is_refused(cuda, name):
    entries, kind, text = BAD[name]
    with pytest.raises(kind, match=text):
        from_cuda_array_interface(Array(cuda, **entries))
    assert devexchange.outstanding() == 0


def test_freed_memory_is_refused(cuda):
    address = driver.ok(cuda_driver.cuMemAlloc(96))
    driver.ok(cuda_driver.cuMemFree(address))
    with pytest.raises(BufferError, match="data"):
        from_cuda_array_interface(Array(cuda, data=(int(address), False)))


def test_address_that_is_not_aligned_is_refused(cuda):
    producer = Array(cuda)
    address = int(producer.memory.handle)
    producer.entries.update(data=(address + 1, False), shape=(2,))
    with pytest.raises(ValueError, match="is not aligned to 4 bytes"):
        from_cuda_array_interface(producer)


def test_strides_that_go_backwards(cuda):
    producer = Array(cuda)
    address = int(producer.memory.handle)
    producer.entries.update(data=(address + VALUES.nbytes - 4, False), strides=(-24, -4))
    tensor = from_cuda_array_interface(producer, stream=cuda.consumer)
    assert tensor.strides == (-6, -1)
    # The elements are not compact, so they are not copied; but the last one is where it should be.
    elements = driver.download(tensor.data_ptr, 4, cuda.consumer)
    assert elements.view("f4")[0] == VALUES[-1, -1]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("address", [0, "any"])
def test_empty_arrays_of_all_versions(cuda, version, address):
    producer = Array(cuda, version=version)
    data = (int(producer.memory.handle) if address else 0, True)
    producer.entries.update(data=data, shape=(0, 3))
    tensor = from_cuda_array_interface(producer)
    assert (tensor.shape, tensor.data_ptr, tensor.read_only) == ((0, 3), 0, True)


def test_stream_has_no_meaning_before_version_3(cuda):
    for stream in [0, -1, "x", 1 << 64]:
        producer = Array(cuda, version=2, stream=stream)
        cuda.producer.sync()
        numpy.testing.assert_array_equal(read(from_cuda_array_interface(producer), cuda.consumer), VALUES)


def test_descr_and_unknown_entries_are_not_looked_at(cuda):
    producer = Array(cuda, descr=[("", "<f4")], shape=VALUES.shape, colour="blue")
    numpy.testing.assert_array_equal(read(from_cuda_array_interface(producer), cuda.consumer), VALUES)


def test_dictionary_is_read_once(cuda):
    producer = Array(cuda)

    class Changing(dict):
        def __getitem__(self, key):
            raise LookupError("asked by the wrong way")

    producer.entries = Changing(producer.entries)
    tensor = from_cuda_array_interface(producer)
    producer.entries.clear()
    numpy.testing.assert_array_equal(read(tensor, cuda.consumer), VALUES)
    assert tensor.copy_to(CPU, cuda.consumer).shape == VALUES.shape
