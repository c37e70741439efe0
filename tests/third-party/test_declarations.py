"""The structs of devexchange.py have the layout of those in C (tests/layout.txt)."""

import ctypes
from pathlib import Path

import pytest

import devexchange

LAYOUT = Path(__file__).parents[1] / "layout.txt"

STRUCTS = [value for value in vars(devexchange).values() if isinstance(value, type(ctypes.Structure))]


def described(struct):
    name = struct.__name__
    yield f"{name} size {ctypes.sizeof(struct)} align {ctypes.alignment(struct)}"
    for field, *_ in struct._fields_:
        yield f"{name}.{field} offset {getattr(struct, field).offset}"


@pytest.mark.parametrize("struct", [struct for struct in STRUCTS if struct is not ctypes.Structure])
def test_struct_is_laid_out_as_in_c(struct):
    names = (struct.__name__ + " ", struct.__name__ + ".")
    wanted = [line for line in LAYOUT.read_text().splitlines() if line.startswith(names)]
    assert list(described(struct)) == wanted
