"""The package itself: names, exceptions, types for checkers."""

import ast
import copy
import inspect
import os
import pickle
import re
import subprocess
import sys
import tomllib
import uuid
from functools import partial
from importlib import metadata
from importlib.resources import files
from pathlib import Path

import pyarrow
import pytest

import devexchange
import devexchange.ipc
from devexchange import _errors


def test_version():
    manifest = Path(__file__).parents[3] / "Cargo.toml"
    assert devexchange.__version__ == tomllib.loads(manifest.read_text())["workspace"]["package"]["version"]


def test_licences():
    assert {"LICENSE-MIT", "LICENSE-APACHE", "LICENSE-THIRD-PARTY"} <= {file.name for file in metadata.files("devexchange")}


@pytest.mark.parametrize(
    "kind, builtin",
    [
        (devexchange.Refused, BufferError),
        (devexchange.InvalidValue, ValueError),
        (devexchange.InvalidType, TypeError),
        (devexchange.OutOfRange, IndexError),
        (devexchange.OutOfRange, KeyError),
        (devexchange.OutOfMemory, MemoryError),
        (devexchange.Failed, RuntimeError),
        (devexchange.SystemFailed, OSError),
        (devexchange.TimedOut, TimeoutError),
        (devexchange.TimedOut, BufferError),
    ],
)
def test_exceptions(kind, builtin):
    error = kind("text", 7, 700)
    error.add_note("a note")
    assert kind.__module__ == "devexchange"
    assert isinstance(error, devexchange.Error) and isinstance(error, builtin)
    for each in [error, copy.copy(error), pickle.loads(pickle.dumps(error))]:
        assert (type(each), str(each), each.status, each.driver_code) == (kind, "text", 7, 700)
        assert each.__notes__ == ["a note"]
    assert (error.status_name, kind("text", 9999).status_name) == ("DEVX_INVALID_SHAPE", "DEVX_?")


@pytest.mark.parametrize("kind", [getattr(devexchange, name) for name in devexchange.__all__ if name in dir(_errors)])
def test_exception_of_a_program_has_a_status(kind):
    class Manager:
        def allocate(self, request):
            raise kind("full")

    error = kind("text")
    assert error.status_name.startswith("DEVX_") and error.status != 0
    with pytest.raises(devexchange.Error, match="^allocate: full$") as raised:
        devexchange.MemoryManager(Manager()).allocate(1, "cpu")
    assert raised.value.status == error.status
    # The base class has no status of its own, and time is up only for the library's own waits.
    others = {devexchange.Error: devexchange.Failed, devexchange.TimedOut: devexchange.Refused}
    assert type(raised.value) is others.get(kind, kind)


PICKLERS = [partial(pickle.dumps, protocol=protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]


def test_things_of_a_process_are_not_pickled():
    batch = devexchange.from_arrow(pyarrow.record_batch({"n": [1]}))
    with devexchange.ipc.Server(f"@test-pickled-{os.getpid()}") as server, devexchange.ipc.Client(server.address) as client:
        for thing, text in [
            (devexchange.empty(1), "devexchange.ipc shares its memory"),
            (batch, "devexchange.ipc shares its memory"),
            (batch["n"], "to_pylist"),
            (batch.schema, "pyarrow.schema"),
            (batch.schema.root, "pyarrow.schema"),
            (server, "give other processes its address"),
            (client, "give the other process the address"),
        ]:
            for act in (*PICKLERS, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match=f"^a {type(thing).__name__} cannot be pickled: .*{text}"):
                    act(thing)


def test_nothing_else_is_pickled_or_copied():
    manager = devexchange.MemoryManager.host_only()
    with devexchange.AsyncReader() as reader, devexchange.AsyncWriter(reader.handler()) as writer:
        writer.start(devexchange.from_arrow(pyarrow.record_batch({"n": [1]})).schema)
        stream = devexchange.from_arrow(pyarrow.table({"n": [1]}))
        for thing in [reader, writer, stream, manager, manager.allocate(8, "cpu"), manager.defer_cleanup()]:
            for act in (*PICKLERS, copy.copy, copy.deepcopy):
                with pytest.raises((TypeError, pickle.PicklingError), match=type(thing).__name__):
                    act(thing)


def test_ledger():
    counts = devexchange.ledger()
    assert sum(count.live for count in counts.values()) == devexchange.outstanding() == 0
    before = counts["tensor_imports"].total
    memoryview(devexchange.from_buffer(b"a"))
    with devexchange.from_dlpack(devexchange.from_buffer(bytearray(1))):
        assert devexchange.ledger()["tensor_imports"] == (before + 1, 1)


def test_device():
    tensor = devexchange.from_buffer(b"a")
    assert (tensor.device.type, tensor.device.id, str(tensor.device)) == (devexchange.DeviceType.CPU, 0, "cpu:0")
    assert [str(devexchange.Device(kind, 1)) for kind in (2, 3, 10, 13)] == [
        "cuda:1",
        "cuda_host:1",
        "rocm:1",
        "cuda_managed:1",
    ]
    # Types are an open set.
    assert str(devexchange.Device(77, 1)) == "device type 77:1"


def test_devices_there_are():
    assert devexchange.device_count(devexchange.DeviceType.CPU) == 1
    info = devexchange.device_info("cpu")
    assert info == ("host memory", uuid.UUID(int=0), -1, -1, 0) and info == devexchange.device_info((1, -1))
    for wrong in [10, 77]:
        with pytest.raises(devexchange.Refused, match=f"device_type is .*{wrong}"):
            devexchange.device_count(wrong)
    with pytest.raises(TypeError, match="device_type is 'cuda'"):
        devexchange.device_count("cuda")


def test_a_device_has_a_name():
    for name in ["cpu", "cpu:0", str(devexchange.Device(1))]:
        assert devexchange.empty(2, device=name).device == (1, 0)
        assert devexchange.from_dlpack(bytearray_tensor(), device=name).copy_to(name).device == (1, 0)
        assert devexchange.from_buffer(bytearray(1)).__dlpack__(dl_device=name)
    for wrong in ["", "gpu", "cpu:", "cpu:+0", "cuda:x", "cpu 0", "cpu:0:0"]:
        with pytest.raises(devexchange.Refused, match=re.escape(f'device is "{wrong}": not the name')):
            devexchange.empty(2, device=wrong)
    with pytest.raises(TypeError, match='device is 3: a name such as "cuda:0" or a pair'):
        devexchange.empty(2, device=3)


class OfPyTorch:
    """A device like `torch.device`."""

    def __init__(self, type, index=None):
        self.type, self.index = type, index

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


def test_device_of_pytorch():
    for device in [OfPyTorch("cpu"), OfPyTorch("cpu", 0)]:
        assert devexchange.empty(2, device=device).copy_to(device).device == (1, 0)
    for device in [OfPyTorch("meta"), OfPyTorch("mps", 0)]:
        with pytest.raises(devexchange.Refused, match=f'device is "{device}": not the name'):
            devexchange.empty(2, device=device)


def bytearray_tensor():
    return devexchange.from_buffer(bytearray(1))


def test_everything_is_declared_and_described():
    stub = files(devexchange).joinpath("_native.pyi").read_text()
    assert files(devexchange).joinpath("py.typed").is_file()
    for name in devexchange.__all__:
        thing = getattr(devexchange, name)
        assert isinstance(thing, str) or thing.__doc__
        if isinstance(thing, type) and issubclass(thing, devexchange.Error):
            continue  # Exceptions are written in Python, with their types.
        if getattr(thing, "__module__", "") in ("devexchange", "devexchange._native") and isinstance(thing, type):
            assert f"class {name}" in stub
            for member in vars(thing):
                if not member.startswith("_") or member.startswith(("__dlpack", "__arrow", "__cuda")):
                    assert f" {member}" in stub, (name, member)
                    assert getattr(thing, member).__doc__, (name, member)
        elif callable(thing) and not isinstance(thing, type):
            assert f"def {name}(" in stub


def test_records_describe_their_fields():
    """`help` shows the docstring of a class, not the comments in it."""
    things = [getattr(devexchange, name) for name in devexchange.__all__]
    records = [thing for thing in things if hasattr(thing, "_fields")]
    assert len(records) >= 10
    for record in records:
        for field in record._fields:
            assert f"``{field}``" in record.__doc__, (record.__name__, field)
    for field in ("status", "driver_code"):
        assert f"``{field}``" in devexchange.Error.__doc__


def is_passed_by(node):
    """Whether a member needs no docstring of its own: its class describes `__new__`, Python the protocols and
    operators."""
    return node.name.startswith("_") and not node.name.startswith(("__dlpack", "__arrow", "__cuda"))


def described(body, owner):
    """Yields each declaration of the stub, and the object that it declares."""
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not is_passed_by(node):
            thing = getattr(owner, node.name)
            yield node, thing
            if isinstance(node, ast.ClassDef):
                yield from described(node.body, thing)


def test_stub_has_the_docstrings():
    """Editors show the docstrings of the stub, because they do not look into a compiled module."""
    tree = ast.parse(files(devexchange).joinpath("_native.pyi").read_text())
    seen = 0
    for node, thing in described(tree.body, devexchange._native):
        shown, written = ast.get_docstring(node) or "", inspect.getdoc(thing) or ""
        assert shown == written, node.name
        seen += shown != ""
    assert seen > 130


KINDS = {
    "posonlyargs": inspect.Parameter.POSITIONAL_ONLY,
    "args": inspect.Parameter.POSITIONAL_OR_KEYWORD,
    "kwonlyargs": inspect.Parameter.KEYWORD_ONLY,
}


def declared(function):
    """Name, kind and default of each argument that the stub declares for a function."""
    given = function.args
    arguments = [(argument.arg, KINDS[kind]) for kind in ("posonlyargs", "args") for argument in getattr(given, kind)]
    defaults = [None] * (len(arguments) - len(given.defaults)) + given.defaults
    arguments += [(argument.arg, KINDS["kwonlyargs"]) for argument in given.kwonlyargs]
    defaults += given.kw_defaults
    return [
        (name, kind, inspect.Parameter.empty if default is None else ast.literal_eval(default))
        for (name, kind), default in zip(arguments, defaults, strict=True)
    ]


def signature(thing):
    """The same for the function itself. Python shows `...` for a default that PyO3 cannot express."""
    found = inspect.signature(thing).parameters.values()
    return [(each.name, each.kind, each.default) for each in found if each.kind != each.VAR_KEYWORD]


def functions(tree, module):
    """Yields each function that the stub declares once, the function itself, and how many of its arguments are
    hidden."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            yield node, getattr(module, node.name), 0
        elif isinstance(node, ast.ClassDef) and hasattr(module, node.name):
            kind = getattr(module, node.name)
            for each in [each for each in node.body if isinstance(each, ast.FunctionDef)]:
                assert each.name != "__init__", "classes of the native half have none"
                decorators = {decorator.id for decorator in each.decorator_list}
                if each.name == "__new__":
                    yield each, kind, 1
                elif "property" not in decorators and not each.name.startswith("__"):
                    yield each, getattr(kind, each.name), 0


def test_stub_has_the_arguments_that_there_are():
    tree = ast.parse(files(devexchange).joinpath("_native.pyi").read_text())
    seen = 0
    for node, thing, hidden in functions(tree, devexchange._native):
        stub, there = declared(node)[hidden:], signature(thing)
        if stub and stub[0][0] == "self":
            # `self` is positional-only in the module, which no stub writes out.
            stub, there = stub[1:], there[1:]
        there = [
            (name, kind, stub[n][2] if default is ... else default) for n, (name, kind, default) in enumerate(there)
        ]
        assert stub == there, node.name
        seen += 1
    assert seen > 60


#: A program with typical calls, and stand-ins for the types that other libraries declare.
TYPED = """
from typing import Any, ClassVar, Protocol

import devexchange
from devexchange import RecordBatch, Tensor, ipc


class OfJax:
    def __dlpack__(self) -> Any: ...

class Strict:
    def __dlpack__(self, stream: int | None = None) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class OfPyTorch:
    __dlpack_c_exchange_api__: ClassVar[object]

class TorchDType:
    is_floating_point: bool
    itemsize: int

class TorchDevice:
    type: str
    index: int

class OfNumPy:
    def __index__(self) -> int: ...

class OfPolars(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Array(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...


class OfDevice(Protocol):
    def __arrow_c_device_array__(self, requested_schema: object | None = None, **kwargs: object) -> tuple[object, object]: ...


def exchange(jax: OfJax, strict: Strict, torch: OfPyTorch, tensor: Tensor, batch: RecordBatch) -> None:
    for each in (jax, strict):
        devexchange.from_dlpack(each)
        ipc.plan(each)
    devexchange.from_dlpack(torch)
    tensor.to(OfPyTorch)
    batch[OfNumPy()]
    batch.column(OfNumPy())
    streams: list[OfPolars] = [batch, devexchange.BatchStream.of(batch.schema, [batch])]
    arrays: list[Array] = [batch, batch["n"]]

def on_device(array: OfDevice, writer: devexchange.AsyncWriter, server: ipc.Server) -> None:
    batch = devexchange.from_arrow(array)
    devexchange.BatchStream.of(batch.schema, [array], device_type=2)
    devexchange.RecordBatch.of({"n": array})
    writer.send(array)
    server.offer("n", array)
    ipc.plan(array)

def describe(schema: devexchange.Schema, column: devexchange.Column) -> list[devexchange.Field]:
    dictionary = column.dictionary
    if column.is_valid(-1) and dictionary is not None:
        print(dictionary[column.dictionary_index(0) or 0], column.stored(OfNumPy()))
    return [column.field, schema.root, *schema.fields, *schema.root.children]

async def take(reader: devexchange.AsyncReader) -> int | None:
    received = await reader.receive()
    return len(received.batch) if received else None

def allocate(dtype: TorchDType, device: TorchDevice) -> None:
    devexchange.empty(2, dtype, device=device).copy_to(device)
    devexchange.empty(2, float)

def masked(tensor: Tensor, mask: bool) -> Tensor | None:
    plain: Tensor = devexchange.from_cuda_array_interface(tensor)
    elements, valid = devexchange.from_cuda_array_interface(plain, mask=True)
    either = devexchange.from_cuda_array_interface(elements, mask=mask)
    return either[1] if isinstance(either, tuple) else valid

def mistakes(tensor: Tensor, batch: RecordBatch) -> None:
    devexchange.empty(2, 3)  # type: ignore[arg-type]
    devexchange.from_dlpack(batch)  # type: ignore[arg-type]
    tensor.to(OfJax)  # type: ignore[arg-type]
    batch[1.5]  # type: ignore[call-overload]
    devexchange.AsyncNothing  # type: ignore[attr-defined]
"""


def test_asyncio_is_imported_only_for_those_who_use_it():
    program = """if True:
        import sys
        import devexchange
        assert "AsyncReader" in dir(devexchange) and set(devexchange.__all__) <= set(dir(devexchange))
        print("asyncio" in sys.modules)
        from devexchange import *
        from devexchange import AsyncWriter as Writer
        print("asyncio" in sys.modules, AsyncReader is devexchange.AsyncReader, Writer is AsyncWriter)
        with AsyncReader() as reader:
            print(isinstance(reader, devexchange.AsyncReader), "AsyncReader" in vars(devexchange))
        try:
            devexchange.AsyncNothing
        except AttributeError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "False",
        "True True True",
        "True True",
        "module 'devexchange' has no attribute 'AsyncNothing'",
    ]


def test_types_are_as_programs_use_them(tmp_path):
    """The type checker must also find every mistake that the program marks as ignored."""
    (tmp_path / "program.py").write_text(TYPED)
    checker = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--disable-error-code=empty-body"]
    done = subprocess.run([*checker, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_package_that_is_imported_anew_has_the_same_types():
    program = """if True:
        import sys
        import devexchange
        before = devexchange
        for name in [name for name in sys.modules if name.startswith("devexchange")]:
            del sys.modules[name]
        import devexchange
        print(devexchange is before, devexchange.Tensor is before.Tensor, devexchange.Schema is before.Schema)
        for package in [before, devexchange]:
            tensor = package.from_dlpack(package.from_buffer(b"a"))
            print(type(tensor) is devexchange.Tensor, bytes(tensor))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False True True"] + ["True b'a'"] * 2


def test_package_does_not_bring_a_gil_back():
    """Interpreters without a GIL enable it for modules that do not declare that they work without."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    ask = "import sys; print(getattr(sys, '_is_gil_enabled', lambda: True)())"
    answers = [
        subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
        for program in (ask, "import devexchange; " + ask)
    ]
    assert answers[0].stdout == answers[1].stdout and answers[1].stderr == ""


def test_package_that_is_imported_again():
    """The exceptions that it raises are the ones that a program catches, through either import."""
    program = """if True:
        import sys
        import devexchange as first
        for name in [name for name in sys.modules if name.partition(".")[0] == "devexchange"]:
            del sys.modules[name]
        import devexchange as second
        assert first is not second
        for each in [first, second]:
            for package in [first, second]:
                try:
                    each.empty(-1)
                except package.InvalidValue as error:
                    assert isinstance(error, package.Error) and isinstance(error, ValueError)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done
