"""The package itself: names, exceptions, types for checkers."""

import copy
import os
import pickle
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import devexchange


def test_version():
    manifest = Path(__file__).parents[3] / "Cargo.toml"
    assert devexchange.__version__ == tomllib.loads(manifest.read_text())["workspace"]["package"]["version"]


@pytest.mark.parametrize(
    "kind, builtin",
    [
        (devexchange.Refused, BufferError),
        (devexchange.InvalidValue, ValueError),
        (devexchange.InvalidType, TypeError),
        (devexchange.OutOfRange, IndexError),
        (devexchange.OutOfMemory, MemoryError),
        (devexchange.Failed, RuntimeError),
    ],
)
def test_exceptions(kind, builtin):
    error = kind("text", 7, 700)
    assert isinstance(error, (devexchange.Error, builtin))
    for each in [error, copy.copy(error), pickle.loads(pickle.dumps(error))]:
        assert (type(each), str(each), each.status, each.driver_code) == (kind, "text", 7, 700)


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
    # The set of types is open.
    assert str(devexchange.Device(10, 1)) == "10:1"


def test_everything_is_declared_and_described():
    stub = files(devexchange).joinpath("_native.pyi").read_text()
    assert files(devexchange).joinpath("py.typed").is_file()
    for name in devexchange.__all__:
        thing = getattr(devexchange, name)
        assert isinstance(thing, str) or thing.__doc__
        if getattr(thing, "__module__", "") in ("devexchange", "devexchange._native") and isinstance(thing, type):
            assert f"class {name}" in stub
            for member in vars(thing):
                if not member.startswith("_") or member.startswith(("__dlpack", "__arrow", "__cuda")):
                    assert f" {member}" in stub, (name, member)
                    assert getattr(thing, member).__doc__, (name, member)
        elif callable(thing) and not isinstance(thing, type):
            assert f"def {name}(" in stub


def test_package_does_not_bring_a_gil_back():
    """Interpreters without a GIL switch one on for modules that do not say that they can do without."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    ask = "import sys; print(getattr(sys, '_is_gil_enabled', lambda: True)())"
    answers = [
        subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
        for program in (ask, "import devexchange; " + ask)
    ]
    assert answers[0].stdout == answers[1].stdout and answers[1].stderr == ""
