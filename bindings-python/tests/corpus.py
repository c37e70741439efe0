"""The corpus of bad input (tests/corpus) through the Python API.

The library of the corpus knows the cases and what must become of their structs. Here they are imported and the errors
compared."""

import ctypes
import itertools
import subprocess
from contextlib import ExitStack
from ctypes import c_char_p, c_int32, c_int64, c_void_p
from pathlib import Path

import structs

import devexchange
from devexchange import AsyncReader, BatchStream, Error, RecordBatch, Schema, Tensor, ipc

_BUILD = Path(__file__).parents[2] / "tests" / "corpus" / "build.sh"
_library = ctypes.CDLL(subprocess.run([_BUILD], check=True, capture_output=True, text=True).stdout.strip())


def _function(name, result, *arguments):
    function = getattr(_library, f"corpus_{name}")
    function.restype, function.argtypes = result, arguments
    return function


_count, _count_for = _function("count", c_int64), _function("count_for", c_int64, c_char_p)
_is_for = _function("is_for", c_int32, c_int64, c_char_p)
_text, _batches = _function("text", c_char_p, c_int64, c_char_p), _function("batches", c_int64, c_int64)
_status, _device = _function("status", c_int32, c_int64), _function("device_memory", c_void_p)
_make = _function("make", c_void_p, c_int64)
_address, _schema = _function("address", c_void_p, c_void_p), _function("schema", c_void_p, c_void_p)
_listens = _function("listens", c_char_p, c_void_p)
_drive = _function("drive", None, c_void_p, c_void_p)
_after, _end = _function("after", c_char_p, c_void_p, c_int32), _function("end", c_char_p, c_void_p)

_fault_install = _function("fault_install", c_int32, c_char_p)
_fault_arm, _fault_disarm = _function("fault_arm", None, c_int64, c_int32), _function("fault_disarm", c_int64)
_callback_arm = _function("callback_arm", None, c_int64, c_int32)
_callback_disarm = _function("callback_disarm", c_int32)
_callback_status, _callback_says = _function("callback_status", c_int32), _function("callback_says", c_char_p)

consumer_make, consumer_handler = (
    _function("consumer_make", c_void_p),
    _function("consumer_handler", c_void_p, c_void_p),
)
consumer_end = _function("consumer_end", c_char_p, c_void_p)

PYTHON = b"python"


def text(i, what):
    return _text(i, what.encode()).decode()


def cases(*, only_cuda=False):
    """The numbers of all cases to be run, by name; with `only_cuda`, only of those that need a driver."""
    found = {text(i, "name"): i for i in range(_count()) if _is_for(i, PYTHON)}
    assert len(found) == _count_for(PYTHON) > 300
    if only_cuda:
        found = {name: i for name, i in found.items() if text(i, "needs") == "cuda"}
        assert found
    return found


class _Legacy:
    """A producer that offers the legacy struct, as before DLPack 1.0."""

    def __init__(self, address):
        self.capsule = structs.new_capsule(address, b"dltensor", None)

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        return self.capsule


class _CudaArray:
    def __init__(self, edits):
        absent, device = object(), _device() or 4096
        names = {"absent": absent, "device": device}
        interface = {"version": 3, "shape": (4,), "typestr": "<f8", "data": (device, False)}
        interface |= {"strides": None, "stream": 1}
        for edit in edits.splitlines():
            key, value = edit.split("=", 1)
            # This is safe: the corpus is part of this repository.
            value = eval(value.strip(), names)
            if key.strip() == "interface":
                interface = value
            elif value is absent:
                del interface[key.strip()]
            else:
                interface[key.strip()] = value
        self.__cuda_array_interface__ = interface


def _import(i, made):
    """Imports a case and returns the result."""
    address, kind = _address(made), text(i, "kind")
    if kind == "schema":
        return Schema.import_arrow(address)
    if kind == "array":
        return RecordBatch.import_arrow(address, _schema(made))
    if kind == "device_array":
        return RecordBatch.import_arrow_device(address, _schema(made))
    if kind == "stream":
        return BatchStream.import_arrow(address)
    if kind == "device_stream":
        return BatchStream.import_arrow_device(address)
    if kind == "dlpack":
        return Tensor.import_dlpack(address)
    if kind == "dlpack_legacy":
        return devexchange.from_dlpack(_Legacy(address))
    if kind == "cuda_array_dict":
        return devexchange.from_cuda_array_interface(_CudaArray(text(i, "edits")))
    if kind in ("ipc_tensor", "ipc_batch"):
        with ipc.Client(_listens(made).decode()) as client:
            return client.tensor("t") if kind == "ipc_tensor" else client.batch("t")
    if kind == "async":
        return _import_async(made)
    raise AssertionError(f"there is no import of a {kind}")


def _import_async(made):
    """A reader whose producer has made all its calls, on this thread."""
    try:
        reader = AsyncReader(abi_h_metadata=True)
        handler = reader.handler()
    except Error:
        _drive(made, None)
        raise
    with ExitStack() as if_it_fails:
        if_it_fails.callback(reader.close)
        _drive(made, handler)
        reader.wait_for_schema(10)
        if_it_fails.pop_all()
    return reader


def _outcome(read):
    try:
        return repr(read())
    except (Error, TypeError) as error:
        return type(error), str(error)


def _read(imported, failing):
    """Reads everything; returns the number of batches, and the error if there is one."""
    batches = 0
    try:
        if isinstance(imported, RecordBatch):
            root = imported.root
            # Memory that runs out in one reading may not run out in the other.
            assert failing or _outcome(root.to_pylist) == _outcome(lambda: list(root))
            root.to_pylist()
        elif isinstance(imported, (AsyncReader, BatchStream)):
            for batch in imported:
                batches += 1
                batch.close()
    except (Error, TypeError) as error:
        # A traceback would keep the data that was read alive.
        return batches, error.with_traceback(None)
    return batches, None


def run(i, nth=0, from_then_on=False, callback=None):
    """Runs a case and returns how many allocations or callbacks failed.

    The nth allocation of the library fails (none if `nth` is 0), or the nth callback of the case's producer, in one of
    the ways of `corpus_callback_arm`."""
    made, imported, error, stage, batches = _make(i), None, None, "import", 0
    if callback is not None:
        _callback_arm(nth, callback)
    elif nth:
        _fault_arm(nth, from_then_on)
    try:
        imported = _import(i, made)
    except (Error, TypeError) as raised:
        error = raised.with_traceback(None)
    wrong = _after(made, error is not None)
    if error is None:
        stage = "read"
        batches, error = _read(imported, nth)
        if hasattr(imported, "close"):
            imported.close()
    imported = None
    failed = _fault_disarm() if callback is None else _callback_disarm()
    status, says = text(i, "status"), text(i, "says")
    left = _end(made)
    assert wrong is None and left is None, (wrong or left).decode()
    assert devexchange.outstanding() == 0, devexchange.ledger()
    if failed and callback is not None:
        assert isinstance(error, Error) and error.status == _callback_status(), repr(error)
        assert _callback_says().decode() in str(error), error
        return failed
    if failed and isinstance(error, MemoryError):
        assert isinstance(error, devexchange.OutOfMemory)
        return failed
    assert batches == _batches(i)
    if error is None:
        assert not status, f"it was accepted, but is {status}: {says}"
        return failed
    # If there was no memory for its text, the text is shorter.
    assert (failed or says in str(error)) and stage == text(i, "stage"), f"at {stage}: {error}, expected: {says}"
    if status.startswith("DEVX_"):
        assert isinstance(error, Error) and error.status == _status(i), f"{error.status}: {error}, expected {status}"
    else:
        assert type(error).__name__ == status
    return failed


def install_faults():
    assert _fault_install(Path(devexchange._native.__file__).name.encode()) > 0


def run_without_memory(i):
    """Runs a case once for each of its allocations, which fails alone or with all later ones; returns how many
    failed."""
    # What is read out of a dictionary needs memory (docs/reliability.md).
    if text(i, "kind") == "cuda_array_dict":
        return 0
    # Once without faults: this makes what is made only once, such as the list of drivers.
    run(i)
    return sum(each_fault(lambda nth, from_then_on: run(i, nth, from_then_on)))


def run_without_callbacks(i):
    """Runs a good case once for each callback of its producer and each way of failing; returns how many failed."""
    if not ("stream" in text(i, "kind") or text(i, "kind") == "async") or text(i, "status"):
        return 0
    return sum(next(nth for nth in itertools.count(1) if not run(i, nth, callback=how)) - 1 for how in range(3))


def each_fault(act):
    """Calls act(nth, from_then_on), which returns how many allocations failed, until none fails any more."""
    for from_then_on in (False, True):
        nth = 1
        while failed := act(nth, from_then_on):
            yield failed
            nth += 1


def while_failing(act, nth, from_then_on):
    """Calls act() while an allocation fails. Returns its result (None without memory) and how many allocations
    failed."""
    _fault_arm(nth, from_then_on)
    try:
        given = act()
    except devexchange.OutOfMemory:
        given = None
    return given, _fault_disarm()
