"""Every type as Python objects: our values are those that PyArrow reads from its own array."""

import datetime
import decimal
import math
import operator
import re
import subprocess
import sys
import zoneinfo

import numpy
import programs
import pyarrow
import pytest

from devexchange import InvalidType, OutOfRange, Refused, from_arrow

DAY = datetime.date(2024, 2, 29)
MOMENT = datetime.datetime(2024, 2, 29, 12, 34, 56, 789012)
ARRAYS = {
    "null": pyarrow.nulls(2),
    "bool": pyarrow.array([True, None, False]),
    **{
        f"{sign}int{bits}": pyarrow.array([0, None, 2 ** (bits - 1) - 1], f"{sign}int{bits}")
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    "negative": pyarrow.array([-(2**63), -1], pyarrow.int64()),
    "uint64": pyarrow.array([2**64 - 1], pyarrow.uint64()),
    "float16": pyarrow.array(numpy.array([0.5, -2.0], "f2")),
    "float32": pyarrow.array([0.5, None], pyarrow.float32()),
    "float64": pyarrow.array([0.1, math.inf]),
    "decimal32": pyarrow.array([decimal.Decimal("1.25"), None], pyarrow.decimal32(7, 2)),
    "decimal128": pyarrow.array([decimal.Decimal("-123.45"), None], pyarrow.decimal128(20, 2)),
    "decimal256": pyarrow.array([decimal.Decimal("9" * 60)], pyarrow.decimal256(60, 0)),
    "utf8": pyarrow.array(["a", None, "ü€𝄞"]),
    "large_utf8": pyarrow.array(["a", None], pyarrow.large_utf8()),
    "string_view": pyarrow.array(["a", None, "long enough to be elsewhere"], pyarrow.string_view()),
    "binary": pyarrow.array([b"\0\xff", None]),
    "large_binary": pyarrow.array([b"a"], pyarrow.large_binary()),
    "binary_view": pyarrow.array([b"long enough to be elsewhere"], pyarrow.binary_view()),
    "fixed_size_binary": pyarrow.array([b"ab", None], pyarrow.binary(2)),
    "date32": pyarrow.array([DAY, None], pyarrow.date32()),
    "date64": pyarrow.array([DAY, datetime.date(1969, 1, 1)], pyarrow.date64()),
    "time32": pyarrow.array([datetime.time(1, 2, 3), None], pyarrow.time32("s")),
    "time64": pyarrow.array([datetime.time(1, 2, 3, 4)], pyarrow.time64("us")),
    "timestamp": pyarrow.array([MOMENT, None, datetime.datetime(1901, 1, 1)], pyarrow.timestamp("us")),
    "timestamp of seconds": pyarrow.array([MOMENT.replace(microsecond=0)], pyarrow.timestamp("s")),
    "timestamp in UTC": pyarrow.array([MOMENT], pyarrow.timestamp("us", "UTC")),
    "timestamp in Etc/UTC": pyarrow.array([MOMENT], pyarrow.timestamp("us", "Etc/UTC")),
    "timestamp with an offset": pyarrow.array([MOMENT], pyarrow.timestamp("us", "+05:30")),
    "timestamp of nanoseconds": pyarrow.array([1_000_000_000_123_456_000], pyarrow.timestamp("ns", "-08:00")),
    "duration": pyarrow.array([datetime.timedelta(days=-3, microseconds=5)], pyarrow.duration("us")),
    "list": pyarrow.array([[1], [], None, [2, None]]),
    "large_list": pyarrow.array([[1], None], pyarrow.large_list(pyarrow.int8())),
    "list_view": pyarrow.array([[1, 2], None], pyarrow.list_view(pyarrow.int8())),
    "fixed_size_list": pyarrow.array([[1, 2], [3, 4]], pyarrow.list_(pyarrow.int8(), 2)),
    "struct": pyarrow.array([{"a": 1, "b": "x"}, None]),
    "map": pyarrow.array([[("a", 1), ("b", None)], None], pyarrow.map_(pyarrow.utf8(), pyarrow.int32())),
    "dictionary": pyarrow.array(["a", None, "a"]).dictionary_encode(),
    "run ends": pyarrow.RunEndEncodedArray.from_arrays(pyarrow.array([2, 3], pyarrow.int32()), ["a", "b"]),
    "sparse union": pyarrow.UnionArray.from_sparse(
        pyarrow.array([0, 1], pyarrow.int8()), [pyarrow.array([1, 2]), pyarrow.array(["a", "b"])]
    ),
    "dense union": pyarrow.UnionArray.from_dense(
        pyarrow.array([1, 0], pyarrow.int8()),
        pyarrow.array([0, 0], pyarrow.int32()),
        [pyarrow.array([1]), pyarrow.array(["a"])],
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("first", [0, 1])
def test_values(name, first):
    source = ARRAYS[name].slice(first)
    ours, theirs = from_arrow(source).to_pylist(), source.to_pylist()
    assert ours == theirs
    assert [type(value) for value in ours] == [type(value) for value in theirs] or name == "timestamp of nanoseconds"


def test_zones():
    source = pyarrow.array([MOMENT], pyarrow.timestamp("us", "Europe/Berlin"))
    (ours,) = from_arrow(source).to_pylist()
    assert ours == source.to_pylist()[0]
    assert ours.utcoffset() == datetime.timedelta(hours=1)


@pytest.mark.parametrize("zone, minutes", [("+00:00", 0), ("-00:30", -30), ("+05:30", 330), ("-23:59", -1439)])
def test_offsets(zone, minutes):
    (ours,) = from_arrow(pyarrow.array([0], pyarrow.timestamp("s", zone))).to_pylist()
    assert ours.utcoffset() == datetime.timedelta(minutes=minutes)
    assert ours == datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    "zone",
    [
        "+05:-30",
        "+05:60",
        "++5:30",
        "+24:00",
        "+29:00",
        "+5:30",
        "+0530",
        "+05:3",
        "+05:300",
        "05:30",
        "+99999999999999999:00",
        # Files and directories, and names that do not exist.
        "Europe",
        "/etc/localtime",
        "../UTC",
        "Europe/Berlin/",
        "z" * 300,
    ],
)
def test_zones_that_are_none(zone):
    batch = from_arrow(pyarrow.record_batch({"at": pyarrow.array([None, 5], pyarrow.timestamp("s", zone))}))
    column = batch["at"]
    with pytest.raises(
        Refused, match=re.escape(f'row 1 of column "at" is 5, of format "tss:{zone}": the time zone is ')
    ):
        column.to_pylist()
    assert column[0] is None and column.stored(1) == 5


@pytest.mark.parametrize(
    "zone, why, cause",
    [
        ("Nowhere/Bad", "Python's zoneinfo does not know this time zone$", zoneinfo.ZoneInfoNotFoundError),
        ("/etc/localtime", "Python's zoneinfo does not know this time zone$", ValueError),
        # Arrow's offsets have a colon (Schema.fbs, "Timestamp").
        ("-0530", 'an offset is written as "\\+05:30"', zoneinfo.ZoneInfoNotFoundError),
        ("+24:00", "and less than a day$", zoneinfo.ZoneInfoNotFoundError),
    ],
)
def test_why_a_zone_is_none(zone, why, cause):
    column = from_arrow(pyarrow.array([0], pyarrow.timestamp("s", zone))).root
    with pytest.raises(Refused, match=why) as caught:
        column.to_pylist()
    assert isinstance(caught.value.__cause__, cause)


def test_zones_without_a_database():
    program = """if True:
        import sys, zoneinfo
        sys.modules["tzdata"] = None
        zoneinfo.reset_tzpath([])
        import devexchange, pyarrow
        for zone in ["UTC", "Etc/UTC", "Z", "+05:30", "Europe/Berlin"]:
            try:
                print(devexchange.from_arrow(pyarrow.array([0], pyarrow.timestamp("s", zone))).root[0])
            except devexchange.Refused as error:
                print(str(error).rpartition(": the time zone is ")[2])
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["1970-01-01 00:00:00+00:00"] * 3 + [
        "1970-01-01 05:30:00+05:30",
        '"Europe/Berlin": Python has no database of time zones here: pip install tzdata',
    ]


@pytest.mark.parametrize("names", [("a", "a"), ("a", "b", "a"), ("", "")])
def test_fields_of_one_name(names):
    """A dict would have only the last field."""
    arrays = [pyarrow.array([n]) for n in range(len(names))]
    struct = pyarrow.StructArray.from_arrays(arrays, names=names)
    for source in [struct, pyarrow.RecordBatch.from_struct_array(struct)]:
        batch = from_arrow(source)
        with pytest.raises(Refused, match=f'the name "{names[-1]}" is that of two fields'):
            batch.to_pylist()
        assert [column.to_pylist() for column in batch.root.children] == [[n] for n in range(len(names))]
    # A null row has no fields.
    assert from_arrow(pyarrow.nulls(2, struct.type)).to_pylist() == [None, None]


def test_what_is_below_a_null_is_not_read():
    """Such a moment is beyond Python's times."""
    moments = pyarrow.array([0, 1 << 62, 60], pyarrow.timestamp("s"))
    struct = pyarrow.StructArray.from_arrays([moments], names=["at"], mask=pyarrow.array([False, True, False]))
    at = datetime.datetime(1970, 1, 1)
    assert from_arrow(struct).to_pylist() == [{"at": at}, None, {"at": at.replace(minute=1)}]
    assert from_arrow(struct.slice(2)).to_pylist() == [{"at": at.replace(minute=1)}]
    with pytest.raises(Refused, match="does not reach so far"):
        from_arrow(pyarrow.StructArray.from_arrays([moments], names=["at"])).to_pylist()


def test_interval():
    source = pyarrow.array([pyarrow.MonthDayNano([1, 2, 3]), None])
    assert from_arrow(source).to_pylist() == [(1, 2, 3), None]


TIMES = [pyarrow.time32("s"), pyarrow.time32("ms"), pyarrow.time64("us"), pyarrow.time64("ns")]


@pytest.mark.parametrize("kind", TIMES)
def test_time_of_no_day(kind):
    """Python would take the value for a time of another day."""
    day = 86_400 * {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[kind.unit]
    stored = pyarrow.array([0, day, -1], pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64())
    column = from_arrow(stored.view(kind)).root
    assert column[0] == datetime.time(0)
    for row, value in [(1, day), (2, -1)]:
        with pytest.raises(Refused) as refused:
            column[row]
        assert f'row {row} of column "" is {value}, of format "tt{kind.unit[0]}": no time of day' in str(refused.value)


def test_time_that_python_does_not_have():
    source = pyarrow.array([1, 1000], pyarrow.timestamp("ns"))
    column = from_arrow(source).root
    with pytest.raises(
        Refused, match='row 0 of column "" is 1, of format "tsn:": .* whole microseconds .Column.stored'
    ):
        column.to_pylist()
    assert column[1] == datetime.datetime(1970, 1, 1, microsecond=1)
    # The ways out that the docstring names.
    assert [column.stored(row) for row in range(2)] == pyarrow.array(column).cast("int64").to_pylist() == [1, 1000]


@pytest.mark.parametrize(
    "kind",
    [
        *[
            pyarrow.int8(),
            pyarrow.int64(),
            pyarrow.date32(),
            pyarrow.date64(),
            pyarrow.time32("ms"),
            pyarrow.time64("ns"),
        ],
        *[pyarrow.timestamp("ns", "UTC"), pyarrow.timestamp("s"), pyarrow.duration("ns"), pyarrow.uint16()],
    ],
)
def test_stored_integers(kind):
    width = pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64()
    numbers = pyarrow.array([5, None, 127], kind if kind.bit_width < 32 else width)
    column = from_arrow(numbers.view(kind)).root
    assert [column.stored(row) for row in (0, 1, -1)] == [5, None, 127]
    coded = from_arrow(numbers.view(kind).dictionary_encode()).root
    assert [coded.stored(row) for row in range(3)] == [5, None, 127]


def test_largest_and_smallest_stored_integers():
    assert from_arrow(pyarrow.array([2**64 - 1], pyarrow.uint64())).root.stored(0) == 2**64 - 1
    assert from_arrow(pyarrow.array([-(2**63)], pyarrow.int64())).root.stored(0) == -(2**63)


@pytest.mark.parametrize("name", ["bool", "float64", "decimal128", "utf8", "list", "struct"])
def test_what_is_not_stored_as_an_integer(name):
    with pytest.raises(InvalidType, match="whose values are not stored as integers"):
        from_arrow(ARRAYS[name]).root.stored(0)


def test_stored_integer_of_no_row():
    column = from_arrow(pyarrow.array([1, 2])).root
    for row in (2, -3, 2**70):
        with pytest.raises(OutOfRange, match=f"row is {row}: the column has 2"):
            column.stored(row)
    for row in ("a", None, 0.5):
        with pytest.raises(TypeError, match=f"^row is {row!r}: an int was expected"):
            column.stored(row)


@pytest.mark.parametrize("days", [2**36, -(2**36)])
@pytest.mark.parametrize("kind", [pyarrow.timestamp("s"), pyarrow.timestamp("s", "UTC"), pyarrow.date64()])
def test_time_beyond_those_of_python(days, kind):
    value = days * 86_400_000 if kind == pyarrow.date64() else days * 86400 * 64
    source = pyarrow.array([value], pyarrow.int64()).view(kind)
    batch = from_arrow(pyarrow.record_batch({"at": source}))
    with pytest.raises(Refused, match=f'row 0 of column "at" is {value}, of format "(ts|td).*does not reach'):
        batch.to_pylist()


@pytest.mark.parametrize("unit, of_second", [("s", 1), ("ms", 1000)])
def test_longest_durations(unit, of_second):
    """Python's durations reach further than 64 bits of microseconds."""
    first, last = -999_999_999 * 86_400 * of_second, 10**9 * 86_400 * of_second - 1
    source = pyarrow.array([first, -1, last], pyarrow.int64()).view(pyarrow.duration(unit))
    assert from_arrow(source).to_pylist() == source.to_pylist()
    for value in (first - 1, last + 1):
        column = from_arrow(pyarrow.array([value], pyarrow.int64()).view(source.type)).root
        with pytest.raises(Refused, match=f'is {value}, of format "tD.*does not reach so far'):
            column[0]


INDICES = pyarrow.array([0, 1, 5, 1], pyarrow.int32())
OUTSIDE = pyarrow.DictionaryArray.from_arrays(INDICES, pyarrow.array(["a", "b"]), safe=False)
LISTS = pyarrow.ListArray.from_arrays(pyarrow.array([0, 2, 4], pyarrow.int32()), OUTSIDE)
READINGS = {
    "list": list,
    "tuple": tuple,
    "in": lambda column: "c" in column,
    "enumerate": lambda column: dict(enumerate(column)),
    "unpacked": lambda column: [*column],
    "reversed": lambda column: list(reversed(column)),
    "rows": lambda column: [column[row] for row in range(len(column))],
    "to_pylist": lambda column: column.to_pylist(),
}


@pytest.mark.parametrize("read", READINGS.values(), ids=READINGS.keys())
@pytest.mark.parametrize("source", [OUTSIDE, LISTS], ids=["dictionary", "lists of it"])
def test_row_outside_of_its_dictionary_is_not_the_end(source, read):
    """The error is an IndexError, which Python's own iterators over a sequence would take for the end."""
    with pytest.raises(OutOfRange, match="is index 5 of a dictionary of 2"):
        read(from_arrow(source).root)


def test_rows_after_one_that_cannot_be_read():
    rows = iter(from_arrow(OUTSIDE).root)
    assert (operator.length_hint(rows), next(rows), next(rows)) == (4, "a", "b")
    with pytest.raises(OutOfRange):
        next(rows)
    assert (list(rows), operator.length_hint(rows)) == (["b"], 0)
    assert list(rows) == []


def test_rows_in_reverse_after_one_that_cannot_be_read():
    rows = reversed(from_arrow(OUTSIDE).root)
    assert (operator.length_hint(rows), next(rows), iter(rows) is rows) == (4, "b", True)
    with pytest.raises(OutOfRange):
        next(rows)
    assert (list(rows), operator.length_hint(rows)) == (["b", "a"], 0)
    assert list(rows) == []


@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_rows_in_reverse(length):
    column = from_arrow(pyarrow.array(range(10, 20))).root[3 : 3 + length]
    assert list(reversed(column)) == list(range(13, 13 + length))[::-1]


def test_values_without_memory():
    """Each object that Python makes for a value is refused in turn: alone, and with all later ones."""
    pytest.importorskip("_testcapi")
    output = programs.run("""
        import _testcapi, decimal, itertools
        import pyarrow
        from devexchange import from_arrow

        texts = ["first text", None, "second text"]
        sources = {
            "integers": pyarrow.array([1000, -1000, 10**15]),
            "unsigned": pyarrow.array([1000, None, 2**64 - 1], pyarrow.uint64()),
            "floats": pyarrow.array([0.5, 1.5]),
            "texts": pyarrow.array(texts),
            "bytes": pyarrow.array(texts, pyarrow.binary()),
            "lists": pyarrow.array([[1000], None, []]),
            "structs": pyarrow.array([{"a name": "some text"}, None]),
            "maps": pyarrow.array([[("a key", 1000)], None], pyarrow.map_(pyarrow.string(), pyarrow.int64())),
            "dictionary": pyarrow.array(texts).dictionary_encode(),
            "decimals": pyarrow.array([decimal.Decimal("1234.5")]),
            "dates": pyarrow.array([20000], pyarrow.date32()),
            "times": pyarrow.array([10**9], pyarrow.time64("us")),
            "timestamps": pyarrow.array([10**15], pyarrow.timestamp("us")),
            "moments": pyarrow.array([10**15], pyarrow.timestamp("us", "UTC")),
            "offsets": pyarrow.array([10**15], pyarrow.timestamp("us", "+05:30")),
            "zones": pyarrow.array([10**15], pyarrow.timestamp("us", "Europe/Berlin")),
            "durations": pyarrow.array([10**15], pyarrow.duration("us")),
            "intervals": pyarrow.array([(1000, 1000, 10**9)], pyarrow.month_day_nano_interval()),
        }
        for name, source in sources.items():
            column = from_arrow(source).root
            reads = [column.to_pylist, lambda column=column: [*column], lambda column=column: column[0]]
            if name == "integers":
                reads.append(lambda column=column: column.stored(0))
            failed = 0
            for read in reads:
                expected = read()
                for nth, later in itertools.product(range(60), (False, True)):
                    values = None
                    _testcapi.set_nomemory(nth, 0 if later else nth + 1)
                    try:
                        values = read()
                    except MemoryError:
                        failed += 1
                    finally:
                        _testcapi.remove_mem_hooks()
                    assert values is None or values == expected, (name, values)
            assert failed > 2, name
        print("done")
    """)
    assert output == "done\n"
