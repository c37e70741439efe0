"""Data frame libraries through the Arrow PyCapsule interface, in both directions: polars, pandas, DuckDB."""

import datetime
import decimal
import gc
import re

import duckdb
import numpy
import pandas
import polars
import polars.testing
import pyarrow
import pytest

import devexchange
from devexchange import BatchStream, Refused, from_arrow

UTC = datetime.timezone.utc
DAY = datetime.date(2026, 11, 24)
NOON = datetime.datetime(2026, 11, 24, 12)

# A column of each type; polars exports each as the Arrow type that corresponds to it.
OF_POLARS = {
    "int8": polars.Series([1, None, -3], dtype=polars.Int8),
    "uint64": polars.Series([1, None, 2**64 - 1], dtype=polars.UInt64),
    "float32": polars.Series([0.5, None, -2.0], dtype=polars.Float32),
    "bool": polars.Series([True, None, False]),
    "text": polars.Series(["a", None, "longer than twelve bytes, so apart"]),
    "binary": polars.Series([b"\x00", None, b"\xff" * 20]),
    "date": polars.Series([DAY, None, DAY]),
    "datetime": polars.Series([NOON, None, NOON]),
    "instant": polars.Series([NOON.replace(tzinfo=UTC), None, NOON.replace(tzinfo=UTC)]),
    "duration": polars.Series([datetime.timedelta(hours=1), None, datetime.timedelta(0)]),
    "decimal": polars.Series([decimal.Decimal("1.25"), None, decimal.Decimal("-3.50")]),
    "categorical": polars.Series(["x", None, "x"], dtype=polars.Categorical),
    "enum": polars.Series(["x", None, "y"], dtype=polars.Enum(["x", "y"])),
    "list": polars.Series([[1], None, [2, 3]]),
    "array": polars.Series([[1, 2], None, [3, 4]], dtype=polars.Array(polars.Int32, 2)),
    "struct": polars.Series([{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": 3, "b": "z"}]),
    "null": polars.Series([None, None, None]),
}


def only(things):
    (thing,) = things
    return thing


# --- polars ---


@pytest.mark.parametrize("name", OF_POLARS)
def test_column_of_polars_and_back(name):
    frame = polars.DataFrame({name: OF_POLARS[name]})
    batch = only(from_arrow(frame))
    assert batch[name].to_pylist() == frame[name].to_list()
    polars.testing.assert_frame_equal(polars.DataFrame(batch), frame)


def test_numbers_of_polars_are_where_they_were():
    series = polars.Series("n", range(1000), dtype=polars.Int64)
    address = numpy.asarray(series).ctypes.data
    batch = only(from_arrow(series.to_frame()))
    assert batch["n"].to_tensor().data_ptr == address
    seen = polars.DataFrame(batch)
    del series
    assert numpy.asarray(seen["n"]).ctypes.data == address


def test_slices_of_polars():
    frame = polars.DataFrame({name: series for name, series in OF_POLARS.items() if name != "null"}).slice(1, 2)
    batch = only(from_arrow(frame))
    assert [batch[name].to_pylist() for name in frame.columns] == [series.to_list() for series in frame]
    polars.testing.assert_frame_equal(polars.DataFrame(batch), frame)


def test_stream_of_several_batches_in_polars():
    batches = [only(from_arrow(polars.DataFrame({"n": [i, i + 1], "s": [f"a{i}", None]}))) for i in range(5)]
    frame = polars.DataFrame(BatchStream.of(batches[0].schema, batches))
    assert frame.rows() == [row for i in range(5) for row in [(i, f"a{i}"), (i + 1, None)]]


def test_series_of_polars():
    column = only(from_arrow(polars.Series("n", [1, None, 3]))).root
    assert (column.name, column.to_pylist()) == ("n", [1, None, 3])


def test_polars_keeps_the_memory():
    batch = only(from_arrow(polars.DataFrame({"n": [1, 2, 3]})))
    seen = polars.DataFrame(batch)
    batch.close()
    gc.collect()
    assert devexchange.outstanding() > 0
    assert seen["n"].sum() == 6


# --- pandas ---


def test_frame_of_pandas_and_back():
    frame = pandas.DataFrame(
        {
            "n": pandas.array([1, 2, 3], dtype="int64"),
            "nulls": pandas.array([1, None, 3], dtype="Int32"),
            "x": [0.5, 1.5, -2.0],
            "s": ["a", None, "c"],
            "at": pandas.to_datetime(["2026-11-24", None, "2026-11-26"]),
            "c": pandas.Categorical(["x", "y", "x"]),
        }
    )
    batch = only(from_arrow(frame))
    assert batch["nulls"].to_pylist() == [1, None, 3]
    assert batch["s"].to_pylist() == ["a", None, "c"]
    assert batch["c"].to_pylist() == ["x", "y", "x"]
    seen = pandas.DataFrame.from_arrow(batch)
    assert seen["n"].tolist() == [1, 2, 3]
    assert seen["x"].tolist() == [0.5, 1.5, -2.0]
    assert seen["at"].tolist() == frame["at"].tolist()
    assert seen["c"].tolist() == ["x", "y", "x"]


# --- DuckDB ---

# DuckDB's smallest and largest value of each type, and a null.
ALL_TYPES = dict(duckdb.sql("select column_name, column_type from (describe from test_all_types())").fetchall())
# Types that DuckDB exports as an Arrow type which it reads as another type on the way back.
COMES_BACK_OTHERWISE = {"hugeint", "uhugeint", "time_tz", "uuid", "bit", "tuple"}


@pytest.mark.parametrize("name", ALL_TYPES)
def test_type_of_duckdb_and_back(name):
    relation = duckdb.sql(f'select "{name}" from test_all_types()')
    batch = only(from_arrow(relation))
    seen = pyarrow.record_batch(batch)
    seen.validate()
    wanted = pyarrow.table(relation).column(0)
    assert (seen.column(0).type, str(seen.column(0))) == (wanted.type, str(wanted.combine_chunks()))
    try:
        values = batch[name].to_pylist()
    except Refused as error:
        # Python does not have these years, this time of day, or nanoseconds.
        assert re.search(r"row \d+ of column \"\w*\" is -?\d+, of format", str(error))
    else:
        assert repr(values).replace("Interval(", "MonthDayNano(") == repr(seen.column(0).to_pylist())
    if name not in COMES_BACK_OTHERWISE:
        assert repr(duckdb.sql("from batch").fetchall()) == repr(relation.fetchall())


def test_relation_of_duckdb_is_a_stream():
    relation = duckdb.sql("select range as n, case when range % 7 > 0 then 's' || range end as s from range(300000)")
    batches = list(from_arrow(relation))
    assert len(batches) > 1
    assert [n for batch in batches for n in batch["n"].to_pylist()] == list(range(300000))
    assert batches[0]["s"].to_pylist()[6:9] == ["s6", None, "s8"]


def test_duckdb_queries_what_is_held_here():
    frame = polars.DataFrame({"k": ["a", "b", None] * 1000, "n": range(3000)})
    batch = only(from_arrow(frame))
    found = duckdb.sql("select k, sum(n) from batch group by k order by k nulls last").fetchall()
    assert found == frame.group_by("k").agg(polars.col("n").sum()).sort("k", nulls_last=True).rows()


def test_duckdb_asks_a_stream_batch_by_batch():
    batches = (pyarrow.record_batch({"n": [i]}) for i in range(50))
    stream = BatchStream.of(pyarrow.schema({"n": pyarrow.int64()}), batches)
    assert duckdb.sql("select count(*), sum(n) from stream").fetchall() == [(50, 1225)]
