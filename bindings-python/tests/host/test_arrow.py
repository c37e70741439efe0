"""Arrays, record batches and schemas from other libraries, and ours in those libraries."""

import ctypes
import weakref
from collections.abc import Iterable

import nanoarrow
import numpy
import pyarrow
import pytest
from nanoarrow.device import c_device_array
from programs import run
from soak import resident_bytes
from structs import is_valid, new_capsule

import devexchange
from devexchange import BatchStream, Column, RecordBatch, Schema, from_arrow, from_dlpack


def table():
    return pyarrow.table(
        {
            "number": pyarrow.array([1, None, 3, 4], pyarrow.int64()),
            "text": pyarrow.array(["a", "b", None, "dd"]),
            "list": pyarrow.array([[1, 2], [], None, [3]], pyarrow.list_(pyarrow.int32())),
            "struct": pyarrow.array([{"x": 1.5}, {"x": None}, None, {"x": 2.5}]),
            "dictionary": pyarrow.array(["u", "v", "u", None]).dictionary_encode(),
        }
    )


def batch():
    return table().to_batches()[0]


def stream_of(*batches):
    return from_arrow(pyarrow.RecordBatchReader.from_batches(table().schema, list(batches)))


def addresses(array):
    """The addresses of the buffers; without rows they do not matter."""
    return [buffer.address if buffer else None for buffer in array.buffers()] if len(array) else []


@pytest.mark.parametrize("source", [batch(), batch().slice(1, 2), batch().slice(4), batch().select([])])
def test_batch_of_pyarrow_and_back(source):
    ours = from_arrow(source)
    assert isinstance(ours, RecordBatch)
    assert (len(ours), ours.n_columns, ours.names) == (source.num_rows, source.num_columns, source.schema.names)
    assert ours.to_pylist() == source.to_pylist()
    back = pyarrow.record_batch(ours)
    assert back.equals(source)
    for there, here in zip(source.columns, back.columns, strict=True):
        assert addresses(there) == addresses(here)


@pytest.mark.parametrize("source", [batch(), batch().slice(1, 2), batch().select([])])
def test_copy_within_host_memory(source):
    ours = from_arrow(source)
    copy = ours.copy_to((1, 0))
    ours.close()
    back = pyarrow.record_batch(copy)
    assert back.equals(source)
    for there, here in zip(source.columns, back.columns, strict=True):
        shared = set(addresses(there)) & set(addresses(here))
        assert shared <= {None}


def test_array_of_pyarrow_and_back():
    source = pyarrow.array([1, None, 3], pyarrow.int16())
    ours = from_arrow(source)
    assert (len(ours), ours.n_columns, ours.root.type, ours.root.format) == (3, 0, "int16", "s")
    assert ours.root.to_pylist() == ours.to_pylist() == [1, None, 3]
    assert pyarrow.array(ours).equals(source)


def test_array_of_nanoarrow_and_back():
    ours = from_arrow(nanoarrow.c_array([1, None, 3], nanoarrow.int32()))
    assert ours.to_pylist() == [1, None, 3]
    assert nanoarrow.Array(ours).to_pylist() == [1, None, 3]
    strings = from_arrow(nanoarrow.c_array(["a", "b"], nanoarrow.string()))
    assert nanoarrow.Array(strings).to_pylist() == ["a", "b"]


@pytest.mark.parametrize("method", ["__arrow_c_array__", "__arrow_c_stream__", "__arrow_c_schema__"])
def test_attribute_error_of_a_producer_is_its_own(method):
    def fail(self, requested_schema=None):
        raise AttributeError("no such field")

    with pytest.raises(AttributeError, match="no such field"):
        from_arrow(type("Failing", (), {method: fail})())


def test_device_array_of_ours():
    seen = c_device_array(from_arrow(batch()))
    assert (seen.device_id, seen.array.length) == (-1, 4)
    ours = from_arrow(batch())
    for method in [ours.__arrow_c_device_array__, ours.root.__arrow_c_device_array__, ours.__arrow_c_device_stream__]:
        with pytest.raises(NotImplementedError, match="stream"):
            method(stream=1)
        method(stream=None)


def test_memory_lives_as_long_as_the_batch():
    before = pyarrow.total_allocated_bytes()
    source = pyarrow.array(range(100_000))
    held = pyarrow.total_allocated_bytes()
    ours = from_arrow(source)
    del source
    column, seen = ours.root, pyarrow.array(ours)
    ours.close()
    assert pyarrow.total_allocated_bytes() >= held
    assert seen[99_999].as_py() == 99_999
    del seen
    assert column[99_999] == 99_999
    del column
    assert pyarrow.total_allocated_bytes() == before


# --- columns ---


def test_columns():
    ours = from_arrow(batch())
    assert [ours.column(name).name for name in ours.names] == ours.names
    assert ours[0].to_pylist() == ours["number"].to_pylist() == ours[-5].to_pylist() == [1, None, 3, 4]
    assert (len(ours["text"]), ours["text"][1], ours["text"][-1], ours["text"].null_count) == (4, "b", "dd", 1)
    assert list(ours["number"]) == [1, None, 3, 4]
    assert (list(reversed(ours["number"])), len(ours["number"])) == ([4, 3, None, 1], 4)
    assert [child.name for child in ours["struct"].children] == ["x"]
    assert isinstance(ours[0], Column)
    assert repr(ours["text"]) == '<devexchange.Column "text": 4 rows of utf8>'
    assert isinstance(ours, Iterable) and isinstance(ours["text"], Iterable)
    for which in [5, -6]:
        with pytest.raises(IndexError):
            ours[which]
    with pytest.raises(KeyError, match='^there is no column "missing"$'):
        ours["missing"]
    for row in [4, -5]:
        with pytest.raises(IndexError, match="row is"):
            ours[0][row]


def test_columns_and_schemas_can_be_referred_to_weakly():
    ours = from_arrow(batch())
    for thing in (ours, ours.schema, ours[0]):
        seen = weakref.ref(thing)
        assert seen() is thing
    del thing
    assert seen() is None


@pytest.mark.parametrize("which", [10**30, -(10**30), 2**63, "\ud800"])
def test_column_or_row_beyond_all(which):
    ours = from_arrow(batch())
    with pytest.raises(devexchange.OutOfRange, match="there is no column" if isinstance(which, str) else str(which)):
        ours[which]
    if isinstance(which, int):
        with pytest.raises(devexchange.OutOfRange, match=f'^column "number": row is {which}: the column has 4$'):
            ours["number"][which]
    for wrong in [1.5, None]:
        with pytest.raises(TypeError, match=f"^row is {wrong}: an int was expected"):
            ours["number"][wrong]


BITS = (8, 16, 32, 64)
ENDS = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in BITS},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in BITS},
    "float": (-1.5, 2.5),
    "double": (-1.5, 2.5),
}


@pytest.mark.parametrize(("type_", "ends"), ENDS.items())
def test_numbers_without_nulls_are_read_at_once(type_, ends):
    values = pyarrow.array([*ends, 1], type_)
    assert from_arrow(values).to_pylist() == values.to_pylist()
    assert from_arrow(values).slice(1, 2).to_pylist() == values.to_pylist()[1:]


def test_device_struct_at_an_address():
    theirs = batch()
    place = ctypes.create_string_buffer(128)  # an ArrowDeviceArray
    with from_arrow(theirs) as ours:
        ours.export_share_device(ctypes.addressof(place))
    again = pyarrow.RecordBatch._import_from_c_device(ctypes.addressof(place), theirs.schema)
    assert again.equals(theirs)


def test_schema_of_a_column():
    schema = batch().schema
    ours = from_arrow(batch())
    for name in schema.names:
        assert pyarrow.field(ours[name]).type == schema.field(name).type


@pytest.mark.parametrize("value", [-1, 2**64])
def test_address_that_is_none(value):
    ours = from_arrow(batch())
    stream = devexchange.BatchStream.of(ours.schema, [])
    for call in [
        devexchange.Schema.import_arrow,
        devexchange.BatchStream.import_arrow,
        devexchange.BatchStream.import_arrow_device,
        devexchange.Tensor.import_dlpack,
        lambda address: devexchange.RecordBatch.import_arrow(address, 0),
        lambda address: devexchange.RecordBatch.import_arrow_device(0, address),
        ours.schema.export_arrow,
        ours.export_share,
        ours.export_share_device,
        stream.export_arrow,
        stream.export_arrow_device,
        devexchange.MemoryManager.host_only().ipc_handle,
    ]:
        with pytest.raises(devexchange.InvalidValue, match=f"address is {value}: it must be between 0 and"):
            call(value)
        with pytest.raises(TypeError, match="address is 'x': an int was expected"):
            call("x")


@pytest.mark.parametrize("method", ["__arrow_c_array__", "__arrow_c_device_array__"])
def test_what_is_no_pair_of_capsules(method):
    schema, array = getattr(from_arrow(batch()), method)()
    for wrong in [None, [schema, array], (schema, array, schema), array]:
        offers = type("Offers", (), {method: lambda self, requested_schema=None, given=wrong: given})()
        with pytest.raises(TypeError, match=f"^{method} gave .*: a pair of capsules was expected"):
            from_arrow(offers)


def test_one_capsule_for_both():
    class Twice:
        def __arrow_c_array__(self, requested_schema=None):
            return schema, schema

    schema, _ = from_arrow(batch()).__arrow_c_array__()
    with pytest.raises(TypeError, match="is there twice"):
        from_arrow(Twice())
    assert is_valid(schema, b"arrow_schema")


def test_names_of_columns():
    batch = from_arrow(pyarrow.record_batch({"n": [1], "s": ["a"]}))
    assert "n" in batch and "s" in batch
    assert "m" not in batch and 0 not in batch and None not in batch and "\ud800" not in batch
    assert [column.name for column in batch] == batch.names
    assert "n" not in from_arrow(pyarrow.array([1]))
    batch.close()
    with pytest.raises(ValueError, match="the batch is closed"):
        "n" in batch  # noqa: B015


def test_column_as_a_tensor():
    source = pyarrow.array([1.5, 2.5, 3.5, 4.5]).slice(1)
    column = from_arrow(source).root
    assert column.plan_tensor() == ("view", 0, "")
    tensor = column.to_tensor(copy=False)
    assert (tensor.shape, tensor.dtype, tensor.read_only) == ((3,), "float64", True)
    assert tensor.data_ptr == source.buffers()[1].address + 8
    assert numpy.from_dlpack(tensor).tolist() == [2.5, 3.5, 4.5]


def test_column_as_an_array_of_numpy():
    values = pyarrow.array([1, 2, 3], pyarrow.int32())
    address = values.buffers()[1].address
    column = from_arrow(values).root
    view = numpy.asarray(column)
    assert (view.tolist(), view.dtype, view.ctypes.data, view.flags.writeable) == ([1, 2, 3], "int32", address, False)
    copy = numpy.array(column)
    assert (copy.tolist(), copy.ctypes.data != address, copy.flags.writeable) == ([1, 2, 3], True, True)
    assert numpy.asarray(column, "float64").tolist() == [1.0, 2.0, 3.0]
    assert (view + column).tolist() == [2, 4, 6]
    for wish in [{"copy": False}, {"dtype": "int32", "copy": False}]:
        assert numpy.asarray(column, **wish).ctypes.data == address
    with pytest.raises(ValueError, match="copy"):
        numpy.asarray(column, "float64", copy=False)
    bits = from_arrow(pyarrow.array([True, False])).root
    assert numpy.asarray(bits).tolist() == [True, False]
    with pytest.raises(devexchange.InvalidValue, match="a copy of 2 bytes is needed"):
        numpy.asarray(bits, copy=False)
    with pytest.raises(BufferError, match="a copy of 2 bytes is needed"):
        bits.to_tensor(copy=False)
    # NumPy must not make an array of one object instead.
    for other, text in [(["a"], "utf8"), ([1, None], "1 of 2 values of int64 are null")]:
        with pytest.raises(BufferError, match=text):
            numpy.asarray(from_arrow(pyarrow.array(other)).root)


def test_column_as_an_array_of_numpy_before_2_1():
    """That NumPy asks for the struct before DLPack 1.0, which cannot say that memory is read-only."""
    shown = run("""
        import numpy
        class Old:
            def __init__(self, thing):
                self.thing = thing
            def __dlpack_device__(self):
                return self.thing.__dlpack_device__()
            def __dlpack__(self, **_):
                return self.thing.__dlpack__()
        new = numpy.from_dlpack
        numpy.from_dlpack = lambda thing: new(Old(thing))
        import pyarrow
        from devexchange import empty, from_arrow, from_buffer
        values = pyarrow.array([1, 2, 3])
        seen = numpy.asarray(from_arrow(values).root)
        print(seen, seen.dtype, seen.flags.writeable, seen.ctypes.data == values.buffers()[1].address)
        print(numpy.sum(from_arrow(values).root), from_buffer(b"ab").__array__(), empty(2, "int8").__array__().shape)
    """).splitlines()
    assert shown == ["[1 2 3] int64 False True", "6 [97 98] (2,)"]


def test_batch_as_an_array_of_numpy():
    batch = from_arrow(pyarrow.record_batch({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]}))
    assert numpy.asarray(batch).tolist() == [[1, 4], [2, 5], [3, 6]]
    assert numpy.array(batch, "int8").tolist() == [[1, 4], [2, 5], [3, 6]]
    block = numpy.asfortranarray(numpy.arange(6.0).reshape(3, 2))
    view = numpy.asarray(from_dlpack(block).to_batch(), copy=False)
    assert (view.ctypes.data, view.strides, view.flags.writeable) == (block.ctypes.data, block.strides, False)
    for columns, text in [({"a": [1], "b": ["x"]}, "utf8"), ({"a": [1], "b": [1.0]}, '"b" is float64'), ({}, "column")]:
        with pytest.raises(BufferError, match=text):
            numpy.asarray(from_arrow(pyarrow.record_batch(columns)))
    with pytest.raises(ValueError, match="a copy of 48 bytes is needed"):
        numpy.asarray(batch, copy=False)


def test_column_that_needs_a_copy():
    column = from_arrow(pyarrow.array([True, False, True])).root
    assert column.plan_tensor().kind == "copy"
    with pytest.raises(BufferError, match="bools are bits"):
        column.to_tensor(copy=False)
    assert numpy.from_dlpack(column.to_tensor()).tolist() == [True, False, True]


def test_column_that_is_no_tensor():
    column = from_arrow(pyarrow.array([1, None])).root
    assert column.plan_tensor().kind == "impossible"
    with pytest.raises(BufferError, match="are null"):
        column.to_tensor()


def test_tensor_as_a_column():
    array = numpy.arange(6.0).reshape(3, 2)
    tensor = from_dlpack(array)
    assert tensor.plan_column() == ("view", 0, "")
    column = tensor.to_column("matrix", copy=False)
    assert column.schema.name == "matrix"
    seen = pyarrow.array(column)
    assert seen.type == pyarrow.list_(pyarrow.field("item", pyarrow.float64(), nullable=False), 2)
    assert seen.to_pylist() == array.tolist()
    assert seen.values.buffers()[1].address == array.ctypes.data
    transposed = from_dlpack(array.T)
    assert transposed.plan_column().kind == "copy" and transposed.plan_column().copy_bytes == 48
    with pytest.raises(BufferError, match="copy"):
        transposed.to_column(copy=False)
    assert transposed.to_column().to_pylist() == array.T.tolist()


# --- schemas ---


def test_schema():
    ours = from_arrow(table().schema)
    assert isinstance(ours, Schema)
    assert (len(ours), ours.names, ours.format) == (5, table().schema.names, "+s")
    assert ours.formats[:2] == ["l", "u"]
    assert pyarrow.schema(ours).equals(table().schema)
    assert pyarrow.schema(from_arrow(batch()).schema).equals(table().schema)
    assert from_arrow(pyarrow.float32()).format == "f"
    assert repr(from_arrow(pyarrow.schema([("a", pyarrow.int8())]))) == "<devexchange.Schema a: int8>"
    # Only the children of a record batch are columns.
    lists = from_arrow(pyarrow.array([[1], [2, 3]]))
    assert repr(lists) == "<devexchange.RecordBatch 2 rows on cpu:0: list>"
    wide = from_arrow(pyarrow.schema([(f"c{k}", pyarrow.int8()) for k in range(22)]))
    assert repr(wide).startswith("<devexchange.Schema c0: int8, ") and repr(wide).endswith(" c19: int8, … and 2 more>")
    assert repr(lists.schema) == "<devexchange.Schema list>"
    coded = from_arrow(pyarrow.record_batch({"c": pyarrow.array(["a", "b", "a"]).dictionary_encode()}))
    assert repr(coded.schema) == "<devexchange.Schema c: int32 -> utf8>"
    assert repr(coded["c"]) == '<devexchange.Column "c": 3 rows of int32 -> utf8>'


def test_objects_that_have_no_constructor():
    makers = {Schema: "from_arrow", RecordBatch: "from_arrow and RecordBatch.of", BatchStream: "from_arrow and BatchStream.of"}
    for kind, names in makers.items():
        for arguments in [(), (batch(),)]:
            with pytest.raises(TypeError, match=f"^{kind.__name__} has no constructor: {names} make"):
                kind(*arguments)


def test_names_that_a_terminal_would_obey():
    zone = pyarrow.timestamp("s", "\x1b[1m")
    ours = from_arrow(pyarrow.record_batch({"it's é": pyarrow.array([1]), "\x1b[31m\n": pyarrow.array([0], zone)}))
    assert repr(ours.schema) == (
        r"""<devexchange.Schema it's é: int64, "\u{1b}[31m\n": "timestamp(second, \u{1b}[1m)">"""
    )
    assert repr(ours[1]) == r"""<devexchange.Column "\u{1b}[31m\n": 1 rows of "timestamp(second, \u{1b}[1m)">"""
    assert ours.names[1] == "\x1b[31m\n" and ours[1].type.endswith("\x1b[1m)")


def test_metadata():
    pairs, of_field = {"source": "sensor 7", "größe": "", "raw": b"\xff\x00"}, {b"unit": b"mm"}
    schema = pyarrow.schema([pyarrow.field("x", pyarrow.int8(), metadata=of_field), ("y", pyarrow.int8())], pairs)
    shown = {"source": "sensor 7", "größe": "", "raw": "\udcff\0"}
    assert from_arrow(schema).metadata == shown
    ours = from_arrow(pyarrow.record_batch([[1], [2]], schema=schema))
    assert ours.schema.metadata == shown == ours.slice(0).schema.metadata
    assert (ours["x"].metadata, ours["y"].metadata) == ({"unit": "mm"}, {})
    assert ours["x"].share().schema.metadata == {"unit": "mm"}


def test_schema_that_is_asked_for():
    ours = from_arrow(batch())
    same = table().schema.__arrow_c_schema__()
    assert pyarrow.record_batch(RequestedBy(ours, same)).equals(batch())
    other_types = pyarrow.schema([(name, pyarrow.utf8()) for name in ours.names]).__arrow_c_schema__()
    assert pyarrow.record_batch(RequestedBy(ours, other_types)).equals(batch())
    fewer = pyarrow.schema([("number", pyarrow.int64())])
    for export in [ours.__arrow_c_array__, ours.__arrow_c_device_array__, stream_of(batch()).__arrow_c_stream__]:
        with pytest.raises(ValueError, match="requested_schema has 1 fields: the data has 5"):
            export(fewer.__arrow_c_schema__())
    with pytest.raises(TypeError, match="arrow_schema"):
        ours.__arrow_c_array__(1)


@pytest.mark.parametrize("on_device", [False, True])
def test_schema_that_is_asked_for_stays_its_owners(on_device):
    def exports():
        of_batch, of_stream = from_arrow(batch()), stream_of(batch())
        if on_device:
            return [of_batch.__arrow_c_device_array__, of_stream.__arrow_c_device_stream__]
        return [of_batch.__arrow_c_array__, of_stream.__arrow_c_stream__]

    fits, fewer = batch().schema, pyarrow.schema([("number", pyarrow.int64())])
    for wanted in [fits, fewer]:
        capsule = wanted.__arrow_c_schema__()
        for export in exports() + exports():
            if wanted is fits:
                export(capsule)
            else:
                with pytest.raises(ValueError, match="requested_schema has 1 fields: the data has 5"):
                    export(capsule)
        assert pyarrow.Schema._import_from_c_capsule(capsule) == wanted
        for export in exports():
            with pytest.raises(ValueError, match="requested_schema.release is NULL"):
                export(capsule)
        assert is_valid(capsule, b"arrow_schema")


class RequestedBy:
    def __init__(self, batch, schema):
        self.batch, self.schema = batch, schema

    def __arrow_c_array__(self, requested_schema=None):
        return self.batch.__arrow_c_array__(self.schema)


# --- what is refused ---


def test_object_without_a_protocol():
    for thing in [None, [1], object()]:
        with pytest.raises(TypeError, match="has no method of the Arrow PyCapsule interface"):
            from_arrow(thing)


class Gives:
    def __init__(self, pair):
        self.pair = pair

    def __arrow_c_array__(self, requested_schema=None):
        return self.pair


def test_thing_that_is_no_pair_of_capsules():
    schema, array = pyarrow.array([1]).__arrow_c_array__()
    for pair in [(array, schema), (1, 2), (schema, new_capsule(1, b"arrow", None)), None, (schema,)]:
        with pytest.raises(TypeError, match="a capsule with the name|a pair of capsules was expected"):
            from_arrow(Gives(pair))
    assert from_arrow(Gives((schema, array))).to_pylist() == [1]


def test_capsules_are_taken_once():
    pair = pyarrow.array([1]).__arrow_c_array__()
    assert from_arrow(Gives(pair)).to_pylist() == [1]
    with pytest.raises(ValueError, match="released"):
        from_arrow(Gives(pair))


def test_refused_array_is_as_it_was():
    schema, array = pyarrow.array(["a"]).__arrow_c_array__()
    wrong = pyarrow.int32().__arrow_c_schema__()
    with pytest.raises(devexchange.InvalidValue, match="n_buffers is 3"):
        from_arrow(Gives((wrong, array)))
    assert from_arrow(Gives((schema, array))).to_pylist() == ["a"]


def test_schema_with_a_wrong_format():
    class Wrong:
        def __arrow_c_schema__(self):
            capsule = pyarrow.int32().__arrow_c_schema__()
            struct = ctypes.cast(pointer(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_char_p))
            struct[0] = b"nonsense"
            return capsule

    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    with pytest.raises(ValueError, match="nonsense"):
        from_arrow(Wrong())


def test_capsules_that_nobody_takes_are_released():
    ours = from_arrow(batch())
    kept = [ours.__arrow_c_array__(), ours.__arrow_c_device_array__(), ours.__arrow_c_schema__()]
    kept.append(stream_of(batch()).__arrow_c_stream__())
    ours.close()
    assert devexchange.outstanding() > 0
    del kept, ours
    assert devexchange.outstanding() == 0


def test_closed_things():
    for thing in [from_arrow(batch()), stream_of(batch())]:
        with thing:
            assert "closed" not in repr(thing)
        thing.close()
        assert "closed" in repr(thing)
        with pytest.raises(ValueError, match="is closed"):
            _ = thing.schema


def test_memory_stays_flat():
    source = batch()
    stream = table()

    def exchange():
        from_arrow(source).to_pylist()
        pyarrow.record_batch(from_arrow(source))
        list(from_arrow(stream))

    for _ in range(1_000):
        exchange()
    before = resident_bytes()
    for _ in range(10_000):
        exchange()
    assert resident_bytes() - before < 2 << 20


def test_schemas_are_equal_if_all_their_fields_are():
    item = pyarrow.field("x", pyarrow.list_(pyarrow.int32()), nullable=True, metadata={"key": "value"})
    schema = from_arrow(pyarrow.schema([item]))
    assert schema == from_arrow(pyarrow.schema([item])) and hash(schema) == hash(from_arrow(pyarrow.schema([item])))
    others = [
        item.with_name("y"),
        item.with_type(pyarrow.list_(pyarrow.int64())),
        item.with_nullable(False),
        item.with_metadata({"key": "VALUE"}),
    ]
    for other in others:
        assert schema != from_arrow(pyarrow.schema([other])), other
    assert schema != pyarrow.schema([item]), "of another library: its == is asked, and has no answer either"
    assert len({schema, from_arrow(pyarrow.schema([item])), from_arrow(pyarrow.schema([]))}) == 2
