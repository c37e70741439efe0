"""The cases: columns of every type and of many shapes, each as an Arrow array and as plain Python values (text.py)."""

import struct
from ctypes import addressof
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa

from text import Interval, Map, Single, Time, day, moment
from tree import ArrowArray, ArrowSchema


@dataclass
class Case:
    name: str
    batch: pa.RecordBatch
    rows: list = field(repr=False)


CASES = []


def add(name, array, values, nullable=True, metadata=None, schema_metadata=None):
    """Adds a case with one column."""
    column = pa.field("c", array.type, nullable, metadata)
    batch = pa.record_batch([array], schema=pa.schema([column], schema_metadata))
    CASES.append(Case(name, batch, [{"c": value} for value in values]))


def plain(name, type, values, **how):
    """Adds a case with one column, which pyarrow makes from the values."""
    add(name, pa.array(values, type), values, **how)


def half(value):
    return Single(struct.unpack("<e", struct.pack("<e", value))[0])


def single(value):
    return Single(struct.unpack("<f", struct.pack("<f", value))[0])


# --- flat types ---

plain("null", pa.null(), [None] * 5)
plain("bool", pa.bool_(), [True, None, False, False, True, True, None, False, True, True])
for bits in (8, 16, 32, 64):
    top = 2 ** (bits - 1)
    plain(f"int{bits}", getattr(pa, f"int{bits}")(), [0, 1, -1, None, top - 1, -top, 7])
    plain(f"uint{bits}", getattr(pa, f"uint{bits}")(), [0, 1, None, 2 * top - 1, top, 7])

INFINITE = [float("inf"), float("-inf")]
plain("float16", pa.float16(), [0.0, -0.0, 1.5, None, half(0.1), 65504.0, half(2.0**-24), *INFINITE])
plain("float32", pa.float32(), [0.0, -0.0, 1.5, None, single(0.1), single(3.4e38), single(2.0**-149), *INFINITE])
plain("float64", pa.float64(), [0.0, -0.0, 1.5, None, 0.1, 1.7976931348623157e308, 5e-324, *INFINITE])
for bits in (16, 32, 64):
    plain(f"float{bits}_nan", getattr(pa, f"float{bits}")(), [1.0, float("nan"), None])

DECIMALS = [Decimal("0.00"), Decimal("1.23"), None, Decimal("-1.23"), Decimal("-0.01"), Decimal("99999.99")]
for bits, most in ((32, 9), (64, 18), (128, 38), (256, 76)):
    make = getattr(pa, f"decimal{bits}")
    extreme = Decimal((0, (9,) * most, -2))
    plain(f"decimal{bits}", make(most, 2), [*DECIMALS, extreme, extreme.copy_negate()])
plain("decimal128_scale_0", pa.decimal128(5, 0), [Decimal(7), None, Decimal(-12345)])
plain("decimal128_scale_negative", pa.decimal128(5, -2), [Decimal(700), None, Decimal(-1234500)])
plain("decimal256_scale_all", pa.decimal256(76, 76), [Decimal((0, (7,) * 76, -76)), None])

BYTES = [b"", b"a", None, b"\x00\xff", b"twelve bytes", b"thirteen byte", b"x" * 40]
TEXTS = ["", "a", None, "é😀", "twelve chars", "thirteen char", 'quote " and \\ and \n', "x" * 40]
for name, type, values in (("binary", "binary", BYTES), ("utf8", "string", TEXTS)):
    plain(name, getattr(pa, type)(), values)
    plain(f"large_{name}", getattr(pa, f"large_{type}")(), values)
    plain(f"{name}_view", getattr(pa, f"{type}_view")(), values)
    plain(f"{name}_view_short", getattr(pa, f"{type}_view")(), [values[0], values[1], None, values[4]])
    # Each part brings one data buffer.
    parts = [pa.array(values, getattr(pa, f"{type}_view")()) for _ in range(3)]
    add(f"{name}_view_buffers", pa.concat_arrays(parts), values * 3)
    plain(f"{name}_empty", getattr(pa, type)(), [values[0], None, values[0]])
plain("fixed_size_binary", pa.binary(3), [b"abc", None, b"\x00\x01\xff"])
plain("fixed_size_binary_1", pa.binary(1), [b"a", None, b"\xff"])
plain("fixed_size_binary_0", pa.binary(0), [b"", None, b""])

# --- dates and times, made from their stored numbers ---


def times(name, type, numbers, shown):
    add(name, pa.array(numbers, type), [None if number is None else Time(number, shown(number)) for number in numbers])


DAY = 86_400_000
# The last one is later than any Python date.
times("date32", pa.date32(), [0, 19_000, None, -1, 2**31 - 1], lambda n: day(n) if n < 2**31 - 1 else "+5881580-07-11")
times("date64", pa.date64(), [0, 19_000 * DAY, None, -DAY], lambda n: day(n // DAY))
for unit, digits in (("s", 0), ("ms", 3), ("us", 6), ("ns", 9)):
    per_second = 10**digits
    stamps = [0, 1_700_000_000 * per_second, None, -1, -62_135_596_800 if unit == "s" else -per_second]
    of_day = (pa.time32 if unit in ("s", "ms") else pa.time64)(unit)
    times(f"time_{unit}", of_day, [0, 86_399 * per_second, None, 1], lambda n: moment(n, digits)[len("1970-01-01T") :])
    times(f"timestamp_{unit}", pa.timestamp(unit), stamps, lambda n: moment(n, digits))
    times(f"timestamp_{unit}_zone", pa.timestamp(unit, "Europe/Berlin"), stamps, lambda n: moment(n, digits) + "Z")
    times(f"duration_{unit}", pa.duration(unit), [0, 10**12, None, -1, 2**63 - 1], lambda n: f"{n} {unit}")
for name, zone in (("utc", "UTC"), ("offset", "+05:30")):
    times(f"timestamp_{name}", pa.timestamp("us", zone), [0, None, 10**15], lambda n: moment(n, 6) + "Z")


def relabelled(array, format):
    """A batch of the array with the type `format`, for which pyarrow has no Python class."""
    schema, out = ArrowSchema(), ArrowArray()
    pa.record_batch([array], ["c"])._export_to_c(addressof(out), addressof(schema))
    schema.children[0][0].format = format
    return pa.RecordBatch._import_from_c(addressof(out), addressof(schema))


def interval(name, format, array, values):
    CASES.append(Case(name, relabelled(array, format), [{"c": value} for value in values]))


interval(
    "interval_months",
    b"tiM",
    pa.array([0, 14, None, -1], pa.int32()),
    [Interval(0, 0, 0), Interval(14, 0, 0), None, Interval(-1, 0, 0)],
)
interval(
    "interval_day_time",
    b"tiD",
    pa.array([0, (5 << 32) + 3, None, (1 << 32) - 2], pa.int64()),
    [Interval(0, 0, 0), Interval(0, 3, 5_000_000), None, Interval(0, -2, 0)],
)
add(
    "interval_month_day_nano",
    pa.array([(0, 0, 0), (14, 3, 10**12), None, (-1, -2, -3)], pa.month_day_nano_interval()),
    [Interval(0, 0, 0), Interval(14, 3, 10**12), None, Interval(-1, -2, -3)],
)

# --- lists ---

LISTS = [[1, 2, None], None, [], [3], [4, 5, 6, 7], [None]]
for name in ("list", "large_list", "list_view", "large_list_view"):
    make = getattr(pa, name + ("_" if name == "list" else ""))
    plain(name, make(pa.int16()), LISTS)
    plain(f"{name}_of_utf8", make(pa.string()), [["a", None], None, [], ["thirteen char", ""]])
    plain(f"{name}_empty", make(pa.int32()), [[], None, []])
    plain(f"{name}_of_itself", make(make(pa.int8())), [[[1], None], [], None, [[], [2, 3]]])
plain("list_not_null", pa.list_(pa.field("element", pa.int32(), False)), [[1, 2], [], [3]], nullable=False)
for large, view, offsets in (("", pa.ListViewArray, pa.int32()), ("large_", pa.LargeListViewArray, pa.int64())):
    lists = view.from_arrays(
        pa.array([4, 0, 0, 2], offsets), pa.array([2, 3, 0, 4], offsets), pa.array([1, 2, 3, 4, 5, 6], pa.int8())
    )
    add(f"{large}list_view_any_order", lists, [[5, 6], [1, 2, 3], [], [3, 4, 5, 6]])
plain("fixed_size_list", pa.list_(pa.float32(), 2), [[1.0, 2.0], None, [None, 4.0], [5.0, 6.0]])
plain("fixed_size_list_0", pa.list_(pa.int32(), 0), [[], None, []])
plain(
    "fixed_size_list_of_itself",
    pa.list_(pa.list_(pa.int8(), 3), 2),
    [[[1, 2, 3], None], None, [[4, 5, 6], [7, 8, 9]]],
)
plain("fixed_size_list_of_bool", pa.list_(pa.bool_(), 3), [[True, None, False], None, [False, False, True]])
MAPS = [Map([("a", 1), ("b", None)]), None, Map(), Map([("c", 3)])]
plain("map", pa.map_(pa.string(), pa.int32()), MAPS)
plain("map_sorted", pa.map_(pa.string(), pa.int32(), keys_sorted=True), MAPS)
plain("map_of_lists", pa.map_(pa.int8(), pa.list_(pa.string())), [Map([(1, ["a"]), (2, None)]), None, Map([(3, [])])])

# --- structs ---

PAIR = pa.struct([("x", pa.int32()), ("y", pa.string())])
PAIRS = [{"x": 1, "y": "a"}, None, {"x": None, "y": "bc"}, {"x": 4, "y": None}]
plain("struct", PAIR, PAIRS)
plain("struct_of_struct", pa.struct([("a", PAIR), ("b", pa.bool_())]), [{"a": p, "b": True} for p in PAIRS] + [None])
plain("struct_without_fields", pa.struct([]), [{}, None, {}])
plain("struct_not_null", pa.struct([pa.field("x", pa.int64(), False)]), [{"x": 1}, {"x": 2}], nullable=False)
plain("list_of_structs", pa.list_(PAIR), [PAIRS, None, [], PAIRS[:1]])
plain(
    "struct_of_lists",
    pa.struct([("l", pa.list_(pa.int8())), ("m", pa.map_(pa.string(), pa.int32()))]),
    [{"l": [1, None], "m": MAPS[0]}, None, {"l": None, "m": MAPS[2]}, {"l": [], "m": None}],
)

# --- unions ---


def union(name, ids, children, type_ids, values, names=("i", "s"), codes=None):
    codes = codes or list(range(len(children)))
    sparse, at = [], [0] * len(children)
    for id in type_ids:
        child = codes.index(id)
        sparse.append((child, at[child]))
        at[child] += 1
    spread = []
    for number, child in enumerate(children):
        picks = [at if of == number else None for of, at in sparse]
        spread.append(child.take(pa.array(picks, pa.int32())))
    ids = pa.array(type_ids, pa.int8())
    offsets = pa.array([at for _, at in sparse], pa.int32())
    add(f"sparse_{name}", pa.UnionArray.from_sparse(ids, spread, list(names), codes), values)
    add(f"dense_{name}", pa.UnionArray.from_dense(ids, offsets, children, list(names), codes), values)


UNION = [pa.array([1, None, 3], pa.int32()), pa.array(["a", "thirteen char"])]
union("union", None, UNION, [0, 1, 0, 0, 1], [1, "a", None, 3, "thirteen char"])
union("union_codes", None, UNION, [5, 127, 5, 5, 127], [1, "a", None, 3, "thirteen char"], codes=[5, 127])
union("union_one_child", None, UNION[:1], [0, 0, 0], [1, None, 3], names=["only"])
union(
    "union_nested",
    None,
    [pa.array([[1, 2], None], pa.list_(pa.int8())), pa.array(PAIRS[:2], PAIR)],
    [1, 0, 0, 1],
    [PAIRS[0], [1, 2], None, None],
)

# --- runs ---

for bits in (16, 32, 64):
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([3, 4, 7], f"int{bits}"), pa.array(["a", None, "b"]))
    add(f"run_end_encoded_int{bits}", runs, ["a"] * 3 + [None] + ["b"] * 3)
runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array([1.5, -0.5]))
add("run_end_encoded_not_null", runs, [1.5] * 2 + [-0.5] * 3)
runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(PAIRS[:2], PAIR))
add("run_end_encoded_structs", runs, [PAIRS[0], PAIRS[0], None])
runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array([[1], None], pa.list_(pa.int8())))
add("run_end_encoded_lists", runs, [[1], None, None])
runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 4, 5], pa.int32()), pa.array([1, None, 3], pa.int8()))
add("list_of_runs", pa.ListArray.from_arrays(pa.array([0, 3, 5], pa.int32()), runs), [[1, 1, None], [None, 3]])

# --- dictionaries ---


def dictionary(name, values, dictionary, indices=(2, 0, None, 1, 0), index_type="int32", ordered=False):
    array = pa.DictionaryArray.from_arrays(pa.array(indices, index_type), dictionary, ordered=ordered)
    add(f"dictionary_{name}", array, [None if i is None else values[i] for i in indices])


WORDS = ["a", "bc", "thirteen char"]
for index_type in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
    dictionary(index_type, WORDS, pa.array(WORDS), index_type=index_type)
dictionary("ordered", WORDS, pa.array(WORDS), ordered=True)
dictionary("of_large_utf8", WORDS, pa.array(WORDS, pa.large_string()))
dictionary("of_utf8_view", WORDS, pa.array(WORDS, pa.string_view()))
dictionary("of_floats", [0.5, -1.0, 2.0], pa.array([0.5, -1.0, 2.0]))
dictionary("with_null_value", ["a", None, "b"], pa.array(["a", None, "b"]))
dictionary("of_structs", PAIRS[:3], pa.array(PAIRS[:3], PAIR))
dictionary("of_lists", LISTS[:3], pa.array(LISTS[:3], pa.list_(pa.int16())))
dictionary("without_values", [], pa.array([], pa.string()), indices=(None, None))
NESTED = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int8()), pa.array(["x", "y"]))
dictionary("of_dictionaries", ["y", "x", None], NESTED)
add(
    "list_of_dictionaries",
    pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), NESTED),
    [["y", "x"], [], [None]],
)
add("struct_of_dictionaries", pa.StructArray.from_arrays([NESTED], ["d"]), [{"d": "y"}, {"d": "x"}, {"d": None}])
add(
    "run_end_encoded_dictionaries",
    pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 6], pa.int32()), NESTED),
    ["y", "y", "x", None, None, None],
)

# --- extension types ---

UUIDS = [bytes(range(16)), None, bytes(16)]
add("extension_uuid", pa.array(UUIDS, pa.uuid()), UUIDS)
plain("extension_json", pa.json_(), ['{"a": 1}', None, "[]"])
add("extension_bool8", pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None, 0], pa.int8())), [1, None, 0])
TENSORS = [[1, 2, 3, 4, 5, 6], None, [7, 8, 9, 10, 11, 12]]
add(
    "extension_fixed_shape_tensor",
    pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int32(), [2, 3], ["row", "column"]), pa.array(TENSORS, pa.list_(pa.int32(), 6))
    ),
    TENSORS,
)
add(
    "extension_opaque",
    pa.ExtensionArray.from_storage(pa.opaque(pa.binary(), "geometry", "postgis"), pa.array(BYTES, pa.binary())),
    BYTES,
)
UNKNOWN = {"ARROW:extension:name": "example.unknown", "ARROW:extension:metadata": "{}", "more": "of it"}
plain("extension_unknown", pa.int32(), [1, None, 3], metadata=UNKNOWN)
plain("extension_unknown_struct", PAIR, PAIRS, metadata=UNKNOWN)
CASES.append(
    Case(
        "extension_below",
        pa.record_batch(
            [pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), pa.array(UUIDS, pa.uuid()))], names=["c"]
        ),
        [{"c": UUIDS[:2]}, {"c": UUIDS[2:]}],
    )
)

# --- fields and schemas ---

plain("not_null", pa.int32(), [1, 2, 3], nullable=False)
plain("metadata", pa.int32(), [1, None], metadata={"key": "value", "empty": "", "": "no key", "é": "😀"})
plain("metadata_bytes", pa.int32(), [1, None], metadata={b"bytes\xff": b"\x00\x80"})
plain(
    "schema_metadata", pa.int32(), [1, None], schema_metadata={"of": "the schema", "pandas": "{" + "x" * 5000 + "}"}
)
plain("metadata_below", pa.struct([pa.field("x", pa.int8(), metadata={"k": "v"})]), [{"x": 1}, None])


def columns(name, arrays, names, rows):
    CASES.append(Case(name, pa.record_batch(arrays, names=names), rows))


NUMBERS = pa.array([1, None, 3], pa.int32())
columns(
    "names",
    [NUMBERS] * 4,
    ["", "with space", 'é😀"\\', "a.b"],
    [{"": v, "with space": v, 'é😀"\\': v, "a.b": v} for v in (1, None, 3)],
)
columns(
    "wide", [NUMBERS] * 100, [f"c{i}" for i in range(100)], [{f"c{i}": v for i in range(100)} for v in (1, None, 3)]
)
columns(
    "mixed",
    [NUMBERS, pa.array(["a", None, "thirteen char"]), pa.array([True, None, False]), pa.array([[1], [], None])],
    ["i", "s", "b", "l"],
    [
        {"i": 1, "s": "a", "b": True, "l": [1]},
        {"i": None, "s": None, "b": None, "l": []},
        {"i": 3, "s": "thirteen char", "b": False, "l": None},
    ],
)
NO_COLUMNS = pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([])))
CASES.append(Case("zero_columns", NO_COLUMNS, [{}] * 3))
CASES.append(Case("zero_columns_zero_rows", NO_COLUMNS.slice(0, 0), []))

# --- sizes ---

COUNT = 1000
for name, type, value in (
    ("bool", pa.bool_(), lambda i: i % 3 == 0),
    ("int64", pa.int64(), lambda i: i * i),
    ("utf8", pa.string(), lambda i: "x" * (i % 20)),
    ("utf8_view", pa.string_view(), lambda i: "x" * (i % 20)),
    ("list", pa.list_(pa.int16()), lambda i: list(range(i % 5))),
):
    plain(f"long_{name}", type, [None if i % 7 == 3 else value(i) for i in range(COUNT)])
    plain(f"long_{name}_no_nulls", type, [value(i) for i in range(COUNT)])
    plain(f"all_null_{name}", type, [None] * 9)
plain("all_null_struct", PAIR, [None] * 3)
add("one_row", pa.array([42], pa.int32()), [42])

DEPTH = 50
deep, value = pa.int32(), 7
for level in range(DEPTH):
    deep, value = (pa.list_(deep), [value]) if level % 2 else (pa.struct([("x", deep)]), {"x": value})
plain("deep", deep, [value, None])

# --- no rows ---

for type_name, type in {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "decimal128": pa.decimal128(5, 2),
    "utf8": pa.string(),
    "large_binary": pa.large_binary(),
    "utf8_view": pa.string_view(),
    "fixed_size_binary": pa.binary(3),
    "list": pa.list_(pa.int32()),
    "large_list_view": pa.large_list_view(pa.int32()),
    "fixed_size_list": pa.list_(pa.int32(), 2),
    "map": pa.map_(pa.string(), pa.int32()),
    "struct": PAIR,
    "sparse_union": pa.sparse_union([pa.field("i", pa.int32())]),
    "dense_union": pa.dense_union([pa.field("i", pa.int32())]),
    "run_end_encoded": pa.run_end_encoded(pa.int32(), pa.int8()),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
}.items():
    add(f"zero_rows_{type_name}", pa.nulls(0, type), [])
