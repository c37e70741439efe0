"""PyTorch in both directions, through its function table and through `__dlpack__`."""

import ctypes
import gc
import sys

import numpy
import pytest
import torch
import tvm_ffi
from soak import resident_bytes
from structs import Managed, Producer
from tables import FromObject, table_of

import devexchange
from devexchange import Tensor, from_buffer, from_dlpack

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
]


class ByMethod:
    """A PyTorch tensor without the table of its type."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **arguments):
        return self.tensor.__dlpack__(**arguments)


WAYS = {"table": lambda tensor: tensor, "method": ByMethod}


@pytest.fixture(params=WAYS)
def given(request):
    return WAYS[request.param]


@pytest.fixture(autouse=True)
def nothing_outstanding():
    yield
    gc.collect()
    assert devexchange.outstanding() == 0, devexchange.ledger()


def matrix(dtype="float64"):
    return torch.arange(24).to(getattr(torch, dtype)).reshape(4, 6)


LAYOUTS = {
    "rows": lambda tensor: tensor,
    "columns": lambda tensor: tensor.t(),
    "every second": lambda tensor: tensor[::2, 1::2],
    "repeated": lambda tensor: tensor[0].expand(3, 6),
    "empty": lambda tensor: tensor[:0],
    "scalar": lambda tensor: tensor[1, 1],
}


def test_type_has_a_table():
    table = table_of(torch.Tensor)
    assert table.major == 1 and table.from_object and table.work_stream


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensor_of_a_type_and_a_device_of_torch(dtype):
    ours = devexchange.empty(3, getattr(torch, dtype), device=torch.device("cpu"))
    assert (ours.dtype, ours.copy_to(torch.device("cpu", 0)).device) == (dtype, (1, 0))


def test_packed_type_of_torch():
    assert devexchange.empty(3, torch.float4_e2m1fn_x2).dtype == "float4_e2m1fnx2"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensor_of_torch_and_back(given, dtype, layout):
    theirs = LAYOUTS[layout](matrix(dtype))
    ours = from_dlpack(given(theirs))
    assert (ours.shape, ours.dtype, ours.device, ours.read_only) == (tuple(theirs.shape), dtype, (1, 0), False)
    assert ours.data_ptr == (theirs.data_ptr() if theirs.numel() else 0)
    if theirs.numel():
        assert ours.strides == theirs.stride()
    seen = torch.from_dlpack(ours)
    assert (seen.dtype, seen.shape, seen.device) == (theirs.dtype, theirs.shape, theirs.device)
    # Not every type can be compared, but bytes can.
    as_bytes = [
        tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)
        for tensor in (seen, theirs)
    ]
    assert torch.equal(*as_bytes)
    if theirs.numel():
        assert (seen.data_ptr(), seen.stride()) == (theirs.data_ptr(), theirs.stride())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensor_of_torch_by_the_table_of_its_type(dtype, layout):
    theirs = LAYOUTS[layout](matrix(dtype))
    with from_dlpack(theirs) as ours:
        seen = ours.to(torch.Tensor)
    assert type(seen) is torch.Tensor
    assert (seen.dtype, seen.shape) == (theirs.dtype, theirs.shape)
    if theirs.numel():
        assert (seen.data_ptr(), seen.stride()) == (theirs.data_ptr(), theirs.stride())


def test_type_that_torch_does_not_know_is_refused_and_not_lost():
    ours = devexchange.empty(3, "float64")
    wide = Producer(code=2, bits=32, lanes=4, shape=(1, 1), strides=(1, 1))
    vectors = from_dlpack(wide)
    with pytest.raises(Exception, match="lanes"):
        vectors.to(torch.Tensor)
    vectors.close()
    assert wide.deleted == 1
    assert ours.to(torch.Tensor).shape == (3,)


def test_writes_are_seen_on_both_sides(given):
    theirs = matrix()
    torch.from_dlpack(from_dlpack(given(theirs)))[1, 2] = 77
    assert theirs[1, 2] == 77


def test_copy_is_made_if_it_was_asked_for(given):
    theirs = matrix().t()
    ours = from_dlpack(given(theirs), copy=True)
    assert ours.is_copied and ours.data_ptr != theirs.data_ptr()
    assert torch.equal(torch.from_dlpack(ours), theirs)


# --- tensors that PyTorch only marks ---


def test_tensor_that_requires_a_gradient_is_refused(given):
    for theirs in [torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(3))]:
        with pytest.raises(BufferError, match="require gradient"):
            from_dlpack(given(theirs))
        assert from_dlpack(given(theirs.detach())).data_ptr == theirs.data_ptr()


def test_conjugated_tensor_is_refused(given):
    theirs = torch.ones(3, dtype=torch.complex64).conj()
    assert theirs.is_conj()
    with pytest.raises(BufferError, match="conjugate"):
        from_dlpack(given(theirs))
    seen = numpy.from_dlpack(from_dlpack(given(theirs.resolve_conj())))
    numpy.testing.assert_array_equal(seen, theirs.resolve_conj().numpy())


def test_negated_tensor_is_refused():
    """PyTorch's own functions hand it out as if it were not negated."""
    theirs = torch.tensor([1 + 2j, 3 + 4j]).conj().imag
    assert theirs.is_neg()
    with pytest.raises(BufferError, match="negative bit"):
        from_dlpack(theirs)
    assert numpy.from_dlpack(from_dlpack(theirs.resolve_neg())).tolist() == [-2, -4]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["sparse", "meta", "quantized"])
def test_tensor_without_plain_memory_is_refused(given, kind):
    theirs = {
        "sparse": lambda: torch.ones(3).to_sparse(),
        "meta": lambda: torch.ones(3, device="meta"),
        "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    }[kind]()
    with pytest.raises((BufferError, ValueError)):
        from_dlpack(given(theirs))


# --- out ---


TO_TORCH = {"from_dlpack": torch.from_dlpack, "to": lambda tensor: tensor.to(torch.Tensor)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("take", TO_TORCH.values(), ids=TO_TORCH)
def test_read_only_memory_in_torch(take):
    """PyTorch has no read-only tensors: it accepts the struct that says so, forgets it, and writes."""
    memory = bytes(bytearray(b"abcd"))
    ours = from_buffer(memory)
    assert ours.read_only
    seen = take(ours)
    assert seen.tolist() == [97, 98, 99, 100] and not from_dlpack(seen).read_only
    seen[0] = 120
    assert memory[0] == 120


@pytest.mark.parametrize("take", TO_TORCH.values(), ids=TO_TORCH)
def test_negative_strides_in_torch(take):
    ours = from_dlpack(numpy.arange(6.0).reshape(2, 3)[::-1, ::-1])
    with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
        take(ours)
    assert take(ours.copy_to("cpu")).tolist() == [[5, 4, 3], [2, 1, 0]]


def test_table_of_torch_takes_our_tensor():
    ours = from_dlpack(numpy.arange(6.0).reshape(2, 3))
    out = ctypes.py_object()
    raw = ctypes.cast(ctypes.byref(out), ctypes.POINTER(ctypes.c_void_p))
    take = FromObject(table_of(torch.Tensor).to_object)
    assert take(ours.export_share(), raw) == 0
    seen = out.value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(seen))
    assert type(seen) is torch.Tensor and seen.data_ptr() == ours.data_ptr
    assert seen.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_torch_by_our_table_through_tvm_ffi():
    theirs = matrix("float32")
    given = tvm_ffi.get_global_func("testing.echo")(from_dlpack(theirs))
    assert type(given) is Tensor and given.data_ptr == theirs.data_ptr()


# --- lifetime ---


def test_storage_of_torch_is_freed_once(given):
    memory = bytearray(24 * 8)
    before = sys.getrefcount(memory)
    theirs = torch.frombuffer(memory, dtype=torch.float64).reshape(4, 6)
    address = theirs.data_ptr()
    assert sys.getrefcount(memory) == before + 1
    ours = from_dlpack(given(theirs))
    del theirs
    gc.collect()
    exported = ours.export_share()
    ours.close()
    assert Managed.from_address(exported).dl_tensor.data == address and sys.getrefcount(memory) == before + 1
    Tensor.import_dlpack(exported).close()
    assert sys.getrefcount(memory) == before


def test_memory_of_torch_stays_flat(given):
    """Each round uses eight megabytes, so a leak would be seen."""
    for round in range(100):
        torch.from_dlpack(from_dlpack(given(torch.ones(1 << 20, dtype=torch.float64))))
        if round == 20:
            before = resident_bytes()
    assert resident_bytes() - before < 64 << 20


def test_our_memory_is_released_when_torch_drops_it():
    producer = Producer()
    ours = from_dlpack(producer)
    seen = torch.from_dlpack(ours)
    view = seen[1:]
    ours.close()
    del seen
    gc.collect()
    assert producer.deleted == 0 and view.tolist() == [[3, 4, 5]]
    del view
    gc.collect()
    assert producer.deleted == 1
