"""A second implementation of the text of values (core/src/arrow/value.rs). It makes the expected rows of the corpus from
plain Python values, which have never been in Arrow.

None, bool, int, float, Decimal, bytes, str, list and dict (a struct) stand for themselves, Map and Interval for types
that Python lacks; Time is a date, time or duration. A float is the number that Arrow stores, rounded to its width;
Single is one of single or half precision.
"""

import struct
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal


class Map(list):
    """Pairs of a key and a value."""


class Single(float):
    """A number of single precision, or of half precision, which has the same text."""

    def __repr__(self):
        texts = (f"{self:.{digits}g}" for digits in range(1, 10))
        return next(text for text in texts if struct.pack("<f", float(text)) == struct.pack("<f", self))


@dataclass(frozen=True)
class Interval:
    months: int
    days: int
    nanoseconds: int


@dataclass(frozen=True)
class Time:
    stored: int
    shown: str


_EPOCH = datetime(1970, 1, 1)


def day(number):
    return (_EPOCH + timedelta(days=number)).date().isoformat()


def moment(number, digits):
    """The date and time `number` units after the epoch, where a unit is 10**-digits seconds."""
    seconds, rest = divmod(number, 10**digits)
    text = (_EPOCH + timedelta(seconds=seconds)).isoformat()
    return f"{text}.{rest:0{digits}}" if digits else text


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n"}


def _quoted(text):
    return '"' + "".join(_ESCAPES.get(c, f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'


def _float(value):
    if value != value:
        return "NaN"
    plain = format(Decimal(repr(value)), "f") if abs(value) != float("inf") else str(value)
    return plain.removesuffix(".0") if "." in plain else plain


def text(value, stored=False):
    """The text that devexchange gives; with `stored`, dates and times are their stored numbers."""

    def part(value):
        return text(value, stored)

    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return _float(value)
        case Decimal():
            return format(value, "f")
        case Interval():
            return f"{value.months} months {value.days} days {value.nanoseconds} ns"
        case bytes():
            return "0x" + value.hex()
        case Time():
            return str(value.stored) if stored else value.shown
        case str():
            return _quoted(value)
        case Map():
            return "{" + ", ".join(f"{part(key)}: {part(item)}" for key, item in value) + "}"
        case list():
            return "[" + ", ".join(map(part, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{_quoted(name)}: {part(item)}" for name, item in value.items()) + "}"
    raise TypeError(f"{value!r} has no text")
