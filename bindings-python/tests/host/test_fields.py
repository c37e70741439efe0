"""What a schema says of each array, and what a column says of its rows without their values."""

import copy
import pickle

import pyarrow
import pytest

import devexchange
from devexchange import Field, InvalidType, OutOfRange, from_arrow

INNER = pyarrow.struct([pyarrow.field("x", pyarrow.float64(), nullable=False), pyarrow.field("y", pyarrow.utf8())])
SCHEMA = pyarrow.schema(
    [
        pyarrow.field("id", pyarrow.int64(), nullable=False, metadata={"unit": "mm"}),
        pyarrow.field("kind", pyarrow.dictionary(pyarrow.int8(), pyarrow.utf8(), ordered=True)),
        pyarrow.field("points", pyarrow.list_(pyarrow.field("item", INNER))),
        pyarrow.field("tags", pyarrow.map_(pyarrow.utf8(), pyarrow.int32(), keys_sorted=True)),
        pyarrow.field("at", pyarrow.timestamp("us", "Europe/Berlin")),
        pyarrow.field("one of", pyarrow.sparse_union([pyarrow.field("a", pyarrow.int8())], type_codes=[5])),
    ]
)


def fields():
    return from_arrow(SCHEMA).fields


def test_fields_of_a_schema():
    schema = from_arrow(SCHEMA)
    assert [field.name for field in schema.fields] == schema.names == SCHEMA.names
    assert (
        [field.format for field in schema.fields]
        == schema.formats
        == ["l", "c", "+l", "+m", "tsu:Europe/Berlin", "+us:5"]
    )
    assert [field.type for field in schema.fields] == [
        "int64",
        "int8 -> utf8",
        "list",
        "map",
        "timestamp(microsecond, Europe/Berlin)",
        "sparse_union",
    ]
    assert [field.nullable for field in schema.fields] == [field.nullable for field in SCHEMA]
    assert [field.ordered for field in schema.fields] == [False, True, False, False, False, False]
    assert [field.keys_sorted for field in schema.fields] == [False, False, False, True, False, False]
    assert [field.timezone for field in schema.fields] == ["", "", "", "", "Europe/Berlin", ""]
    assert [field.type_ids for field in schema.fields] == [[], [], [], [], [], [5]]
    assert [field.flags for field in schema.fields] == [0, 3, 2, 6, 2, 2]
    assert [field.metadata for field in schema.fields] == [{"unit": "mm"}, {}, {}, {}, {}, {}]
    assert schema.root.children == schema.fields
    assert (schema.root.name, schema.root.format, schema.root.nullable) == ("", "+s", False)


def test_fields_below_a_field():
    _, kind, points, tags, *_ = fields()
    assert (kind.dictionary.type, kind.children, points.dictionary) == ("utf8", [], None)
    (item,) = points.children
    assert [(field.name, field.type, field.nullable) for field in item.children] == [
        ("x", "float64", False),
        ("y", "utf8", True),
    ]
    (entries,) = tags.children
    assert [field.name for field in entries.children] == ["key", "value"]


def test_field_outlives_its_schema():
    field = from_arrow(SCHEMA).fields[2].children[0].children[1]
    assert (field.name, field.type) == ("y", "utf8")


def test_array_that_is_no_record_batch_has_no_columns_but_fields():
    schema = from_arrow(pyarrow.array([[1]])).schema
    assert (schema.root.type, [field.type for field in schema.fields]) == ("list", ["int64"])


def test_field_of_a_column():
    one = pyarrow.nulls(1, SCHEMA[4].type)
    union = pyarrow.UnionArray.from_sparse(pyarrow.array([5], "int8"), [pyarrow.array([1], "int8")], ["a"], [5])
    arrays = [pyarrow.array([7]), *[pyarrow.nulls(1, field.type) for field in list(SCHEMA)[1:4]], one, union]
    batch = from_arrow(pyarrow.record_batch(arrays, schema=SCHEMA))
    assert [column.field for column in batch] == batch.schema.fields == fields()
    assert batch["points"].children[0].field == fields()[2].children[0]
    assert batch["kind"].dictionary.field == fields()[1].dictionary


def test_extension_type():
    field = from_arrow(pyarrow.schema([("u", pyarrow.uuid()), ("n", pyarrow.int8())])).fields[0]
    assert (field.extension_name, field.extension_metadata, field.type) == ("arrow.uuid", "", "fixed_size_binary(16)")
    tensors = from_arrow(pyarrow.schema([("t", pyarrow.fixed_shape_tensor(pyarrow.int8(), [2]))])).fields[0]
    assert (tensors.extension_name, tensors.extension_metadata) == ("arrow.fixed_shape_tensor", '{"shape":[2]}')
    assert (fields()[0].extension_name, fields()[0].extension_metadata) == (None, "")


def test_equal_fields():
    first, second = fields(), fields()
    assert first == second and [hash(field) for field in first] == [hash(field) for field in second]
    assert len({*first, *second}) == len(SCHEMA)
    others = [
        pyarrow.field("other", pyarrow.int64(), nullable=False, metadata={"unit": "mm"}),
        pyarrow.field("id", pyarrow.int32(), nullable=False, metadata={"unit": "mm"}),
        pyarrow.field("id", pyarrow.int64(), metadata={"unit": "mm"}),
        pyarrow.field("id", pyarrow.int64(), nullable=False),
    ]
    assert all(other != first[0] for other in from_arrow(pyarrow.schema(others)).fields) and first[0] != "id"


def test_shown_fields():
    assert [repr(field) for field in fields()] == [
        '<devexchange.Field "id": int64, not null>',
        '<devexchange.Field "kind": int8 -> utf8>',
        '<devexchange.Field "points": list (item: struct)>',
        '<devexchange.Field "tags": map (entries: struct)>',
        '<devexchange.Field "at": timestamp(microsecond, Europe/Berlin)>',
        '<devexchange.Field "one of": sparse_union (a: int8)>',
    ]
    wide = from_arrow(pyarrow.schema([(f"c{k}", pyarrow.int8()) for k in range(22)])).root
    assert repr(wide).endswith("c19: int8, … and 2 more), not null>")


def test_fields_are_made_by_schemas_alone():
    with pytest.raises(TypeError, match="Field has no constructor: Schema.fields"):
        Field("a", "i")
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="^a Field cannot be pickled"):
            act(fields()[0])


# --- rows ---


@pytest.mark.parametrize("first", [0, 1])
def test_rows_that_are_valid(first):
    for source in (
        pyarrow.array([1, None, 3]),
        pyarrow.array(["a", None, "c"]).dictionary_encode(),
        pyarrow.array([[], None, [1]]),
    ):
        source = source.slice(first)
        column = from_arrow(source).root
        assert [column.is_valid(row) for row in range(len(column))] == source.is_valid().to_pylist()
        assert column.is_valid(-1)
    assert not from_arrow(pyarrow.nulls(1)).root.is_valid(0)


def test_row_is_valid_where_only_the_value_behind_it_is_null():
    values = pyarrow.array(["a", None])
    coded = from_arrow(pyarrow.DictionaryArray.from_arrays(pyarrow.array([1, 0], pyarrow.int8()), values)).root
    assert (coded.is_valid(0), coded[0], coded.dictionary_index(0), coded.null_count) == (True, None, 1, 0)
    runs = from_arrow(pyarrow.RunEndEncodedArray.from_arrays(pyarrow.array([1, 2], pyarrow.int32()), values)).root
    assert (runs.is_valid(1), runs[1]) == (True, None)


def test_dictionary():
    source = pyarrow.array(["a", None, "b", "a"]).dictionary_encode()
    batch = from_arrow(pyarrow.record_batch({"coded": source.slice(1)}))
    column = batch["coded"]
    assert column.dictionary.to_pylist() == source.dictionary.to_pylist() == ["a", "b"]
    assert [column.dictionary_index(row) for row in range(3)] == source.slice(1).indices.to_pylist() == [None, 1, 0]
    assert column.dictionary_index(-1) == 0
    dictionary = column.dictionary
    batch.close()
    del batch, column
    assert pyarrow.array(dictionary).to_pylist() == ["a", "b"]


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("sign", ["", "u"])
def test_dictionary_index_of_each_width(sign, bits):
    indices = pyarrow.array([1, None, 0], f"{sign}int{bits}")
    column = from_arrow(pyarrow.DictionaryArray.from_arrays(indices, ["a", "b"])).root
    assert [column.dictionary_index(row) for row in range(3)] == [1, None, 0]


def test_no_dictionary_and_no_index():
    batch = from_arrow(pyarrow.record_batch({"n": [1]}))
    assert batch["n"].dictionary is None
    with pytest.raises(InvalidType, match='column "n": the column has no dictionary'):
        batch["n"].dictionary_index(0)
    outside = pyarrow.DictionaryArray.from_arrays(pyarrow.array([5], pyarrow.int8()), pyarrow.array(["a"]), safe=False)
    with pytest.raises(OutOfRange, match="row 0 is index 5 of a dictionary of 1"):
        from_arrow(outside).root.dictionary_index(0)
    for read in (batch["n"].is_valid, batch["n"].dictionary_index):
        for row in (1, -2):
            with pytest.raises(OutOfRange, match=f"row is {row}: the column has 1"):
                read(row)
        with pytest.raises(TypeError, match="row is 'n': an int was expected"):
            read("n")


def test_fields_and_dictionaries_are_released():
    column = from_arrow(pyarrow.array(["a"]).dictionary_encode()).root
    held = [column.field, column.field.dictionary, column.dictionary]
    del column
    assert devexchange.outstanding() > 0
    del held
    assert devexchange.outstanding() == 0
