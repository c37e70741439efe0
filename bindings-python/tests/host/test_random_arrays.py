"""Random nested PyArrow arrays, sliced at every level: reading, copying and handing them back gives PyArrow's
values."""

import datetime
import random
from decimal import Decimal

import pyarrow
import pytest

import devexchange

EPOCH = datetime.datetime(1970, 1, 1)
UTC = EPOCH.replace(tzinfo=datetime.UTC)


def whole(low, high):
    return lambda r: r.choice([low, high, r.randint(low, high)])


def span(r):
    return datetime.timedelta(microseconds=r.randint(-(10**16), 10**16))


def interval(r):
    whole_32, whole_64 = whole(-(2**31), 2**31 - 1), whole(-(2**63), 2**63 - 1)
    return pyarrow.MonthDayNano([whole_32(r), whole_32(r), whole_64(r)])


def text(r):
    """A text with a length around the limit of an inline view."""
    return "".join(r.choice('aZ0 "\\\n\x01é€𝄞') for _ in range(r.choice([0, 1, 11, 12, 13, 40])))


def encoded(r):
    return text(r).encode()


LEAVES = [
    (pyarrow.null(), lambda r: None),
    (pyarrow.bool_(), lambda r: r.random() < 0.5),
    (pyarrow.int8(), whole(-(2**7), 2**7 - 1)),
    (pyarrow.uint16(), whole(0, 2**16 - 1)),
    (pyarrow.int32(), whole(-(2**31), 2**31 - 1)),
    (pyarrow.int64(), whole(-(2**63), 2**63 - 1)),
    (pyarrow.uint64(), whole(0, 2**64 - 1)),
    (pyarrow.float16(), lambda r: r.randint(-999, 999) / 8),
    (pyarrow.float32(), lambda r: r.randint(-999, 999) / 8),
    (pyarrow.float64(), lambda r: r.choice([-0.0, float("inf"), r.random()])),
    (pyarrow.decimal32(7, 2), lambda r: Decimal(r.randint(-(10**7) + 1, 10**7 - 1)).scaleb(-2)),
    (pyarrow.decimal64(18, 4), lambda r: Decimal(r.randint(-(10**18) + 1, 10**18 - 1)).scaleb(-4)),
    (pyarrow.decimal128(20, 3), lambda r: Decimal(r.randint(-(10**20) + 1, 10**20 - 1)).scaleb(-3)),
    (pyarrow.decimal256(28, 0), lambda r: Decimal(r.randint(-(10**28) + 1, 10**28 - 1))),
    (pyarrow.date32(), lambda r: (EPOCH + span(r)).date()),
    (pyarrow.date64(), lambda r: (EPOCH + span(r)).date()),
    (pyarrow.time32("s"), lambda r: (EPOCH + span(r)).time().replace(microsecond=0)),
    (pyarrow.time64("us"), lambda r: (EPOCH + span(r)).time()),
    (pyarrow.timestamp("us"), lambda r: EPOCH + span(r)),
    (pyarrow.timestamp("ms", "UTC"), lambda r: UTC + datetime.timedelta(milliseconds=r.randint(-(10**12), 10**12))),
    (pyarrow.timestamp("s"), whole(-(10**10), 10**10)),
    (pyarrow.duration("us"), span),
    (pyarrow.duration("s"), whole(-(10**9), 10**9)),
    (pyarrow.month_day_nano_interval(), interval),
    (pyarrow.string(), text),
    (pyarrow.large_string(), text),
    (pyarrow.string_view(), text),
    (pyarrow.binary(), encoded),
    (pyarrow.binary_view(), encoded),
    (pyarrow.binary(3), lambda r: r.randbytes(3)),
]


def sliced(make, r, n):
    """An array of `n` rows, usually part of a longer one."""
    before, after = r.choice([(0, 0), (r.randint(0, 9), r.randint(0, 5))])
    array = make(r, before + n + after)
    assert len(array) == before + n + after
    return array.slice(before, n)


def nulls(r, n):
    """Which rows are null; `None` for an array without validity."""
    share = r.choice([None, 0, 0.3, 1])
    return None if share is None else pyarrow.array([r.random() < share for _ in range(n)], pyarrow.bool_())


def offsets(r, n, kind):
    ends = [r.choice([0, 2])]
    for _ in range(n):
        ends.append(ends[-1] + r.randint(0, 3))
    return pyarrow.array(ends, kind), ends[-1] + r.choice([0, 2])


def maker(r, depth):
    """A function that makes arrays of one type, given a random generator and a number of rows."""
    if depth == 0 or r.random() < 0.2:
        kind, value = r.choice(LEAVES)
        return lambda r, n: pyarrow.array([None if r.random() < 0.2 else value(r) for _ in range(n)], kind)
    return r.choice(NESTED)(r, depth - 1)


def lists(array, offset_type):
    def of(r, depth):
        make = maker(r, depth)

        def lists(r, n):
            starts, length = offsets(r, n, offset_type)
            return array.from_arrays(starts, sliced(make, r, length), mask=nulls(r, n))

        return lists

    return of


def list_views(array, offset_type):
    def of(r, depth):
        make = maker(r, depth)

        def list_views(r, n):
            length = r.randint(0, 9)
            starts = [r.randint(0, length) for _ in range(n)]
            sizes = [r.randint(0, min(3, length - start)) for start in starts]
            starts, sizes = pyarrow.array(starts, offset_type), pyarrow.array(sizes, offset_type)
            return array.from_arrays(starts, sizes, sliced(make, r, length), mask=nulls(r, n))

        return list_views

    return of


def fixed_size_lists(r, depth):
    make, size = maker(r, depth), r.randint(1, 3)
    return lambda r, n: pyarrow.FixedSizeListArray.from_arrays(sliced(make, r, n * size), size, mask=nulls(r, n))


def structs(r, depth):
    makers = [maker(r, depth) for _ in range(r.randint(1, 3))]
    names = ["", "ü", 'q"uote'][: len(makers)]

    def structs(r, n):
        return pyarrow.StructArray.from_arrays([sliced(make, r, n) for make in makers], names, mask=nulls(r, n))

    return structs


def maps(r, depth):
    make = maker(r, depth)

    def maps(r, n):
        starts, length = offsets(r, n, pyarrow.int32())
        keys = pyarrow.array([str(i) for i in range(length)])
        return pyarrow.MapArray.from_arrays(starts, keys, sliced(make, r, length), mask=nulls(r, n))

    return maps


def sparse_unions(r, depth):
    makers = [maker(r, depth) for _ in range(r.randint(1, 3))]

    def sparse_unions(r, n):
        ids = pyarrow.array([r.randrange(len(makers)) for _ in range(n)], pyarrow.int8())
        return pyarrow.UnionArray.from_sparse(ids, [sliced(make, r, n) for make in makers])

    return sparse_unions


def dense_unions(r, depth):
    makers = [maker(r, depth) for _ in range(r.randint(1, 3))]

    def dense_unions(r, n):
        ids = [r.randrange(len(makers)) for _ in range(n)]
        rows = pyarrow.array([ids[:i].count(ids[i]) for i in range(n)], pyarrow.int32())
        children = [sliced(make, r, ids.count(i)) for i, make in enumerate(makers)]
        return pyarrow.UnionArray.from_dense(pyarrow.array(ids, pyarrow.int8()), rows, children)

    return dense_unions


def dictionaries(r, depth):
    make, kind = maker(r, depth), r.choice([pyarrow.int8(), pyarrow.uint32(), pyarrow.int64()])

    def dictionaries(r, n):
        rows = pyarrow.array([r.randrange(5) for _ in range(n)], kind, mask=nulls(r, n))
        return pyarrow.DictionaryArray.from_arrays(rows, sliced(make, r, 5))

    return dictionaries


def runs(r, depth):
    make = maker(r, depth)
    while pyarrow.types.is_run_end_encoded(make(r, 0).type):
        make = maker(r, depth)

    def runs(r, n):
        ends = [0]
        while ends[-1] < n:
            ends.append(ends[-1] + r.randint(1, 5))
        ends = pyarrow.array(ends[1:], pyarrow.int32())
        return pyarrow.RunEndEncodedArray.from_arrays(ends, sliced(make, r, len(ends))).slice(0, n)

    return runs


NESTED = [
    lists(pyarrow.ListArray, pyarrow.int32()),
    lists(pyarrow.LargeListArray, pyarrow.int64()),
    list_views(pyarrow.ListViewArray, pyarrow.int32()),
    list_views(pyarrow.LargeListViewArray, pyarrow.int64()),
    fixed_size_lists,
    structs,
    maps,
    sparse_unions,
    dense_unions,
    dictionaries,
    runs,
]


@pytest.mark.parametrize("seed", range(10))
def test_random_arrays(seed):
    for number in range(60):
        r = random.Random(1000 * seed + number)
        array = sliced(maker(r, 3), r, r.choice([0, 1, 4, 9]))
        batch, expected = devexchange.from_arrow(array), array.to_pylist()
        assert batch.root.to_pylist() == expected, (number, array.type)
        assert [batch.root[i] for i in range(len(array))] == expected, (number, array.type)
        for given in (batch, batch.copy_to("cpu")):
            back = pyarrow.array(given)
            assert back.type == array.type, number
            assert back.to_pylist() == expected, (number, array.type)


@pytest.mark.parametrize("seed", range(10))
def test_parts_of_random_arrays(seed):
    for number in range(60):
        r = random.Random(1000 * seed + number)
        array = sliced(maker(r, 3), r, r.choice([1, 9, 40]))
        start = r.randint(0, len(array))
        n = r.randint(0, len(array) - start)
        expected = array.slice(start, n).to_pylist()
        batch = devexchange.from_arrow(array)
        part = batch.slice(start, n)
        for given in (part, part.copy_to("cpu"), batch.copy_to("cpu").slice(start, n), batch.root[start : start + n]):
            back = pyarrow.array(given)
            assert back.type == array.type, number
            assert back.to_pylist() == expected, (number, array.type)
        table = devexchange.RecordBatch.of({"": batch, "again": batch}).slice(start, n)
        for given in (table, table.copy_to("cpu")):
            back = pyarrow.record_batch(given)
            assert [column.to_pylist() for column in back.columns] == [expected, expected], (number, array.type)
