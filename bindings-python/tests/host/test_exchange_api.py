"""Function tables of types of other libraries, `__dlpack_c_exchange_api__`; ours is in test_exchange_table.py."""

import builtins
import ctypes
import gc
import subprocess
import sys
import textwrap
import weakref
from ctypes import PYFUNCTYPE, c_int, c_void_p

import numpy
import pytest
import tvm_ffi
from structs import Managed, Producer
from tables import FromObject, Table, address, helper

import devexchange
from devexchange import Tensor, from_dlpack

# --- of others ---


def table(**fields):
    """A table with the functions of the helper."""
    names = {"from_object": "answer_from_object", "to_object": "answer_to_object", "work_stream": "answer_work_stream"}
    functions = {field: address(getattr(helper, name)) for field, name in names.items()}
    return Table(**{"major": 1, "minor": 3, **functions, **fields})


def type_with(attribute, *bases):
    return type("Offers", bases, {"__dlpack_c_exchange_api__": attribute})


class OnlyMethod:
    """A producer with only `__dlpack__`, which counts its calls."""

    def __init__(self):
        self.array, self.asked = numpy.arange(3.0), 0

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **arguments):
        self.asked += 1
        return self.array.__dlpack__(**arguments)


@pytest.fixture
def answers():
    """Sets the answers of the helper's functions: a tensor, unless a test sets something else."""

    def set_to(**values):
        for name, value in values.items():
            kind = c_void_p if name in ("answer_tensor", "answer_stream", "answer_first") else c_int
            kind.in_dll(helper, name).value = value

    def reset():
        set_to(answer_code=0, answer_raises=0, answer_tensor=None, answer_calls=0, answer_deletes=0, answer_first=None)
        set_to(stream_code=0, stream_raises=0, answer_stream=None, stream_calls=0)

    reset()
    yield set_to
    reset()


def calls():
    return c_int.in_dll(helper, "answer_calls").value


def test_elements_that_a_table_has_on_another_device_come_to_the_host_by_the_method(answers):
    theirs = table()

    class ToHost(OnlyMethod):
        def __dlpack__(self, *, dl_device, max_version):
            assert dl_device == (1, 0)
            return super().__dlpack__(max_version=max_version)

    for arguments, on_host in [({"device": "cpu"}, True), ({}, False)]:
        producer = Producer(device_type=8)
        answers(answer_tensor=ctypes.addressof(producer.managed))
        offers = type_with(theirs.capsule(), ToHost)()
        if on_host:
            assert from_dlpack(offers, **arguments).data_ptr == offers.array.ctypes.data
        else:
            with pytest.raises(BufferError, match="^device_type is metal"):
                from_dlpack(offers, **arguments)
        assert producer.deleted == 1


def test_table_is_used_instead_of_the_method(answers):
    theirs, producer = table(), Producer()
    answers(answer_tensor=ctypes.addressof(producer.managed))
    offers = type_with(theirs.capsule(), OnlyMethod)()
    tensor = from_dlpack(offers)
    assert (tensor.shape, tensor.data_ptr) == ((2, 3), ctypes.addressof(producer.values))
    assert (calls(), offers.asked, producer.deleted) == (1, 0, 0)
    tensor.close()
    assert producer.deleted == 1


def test_table_is_enough(answers):
    theirs, producer = table(), Producer()
    answers(answer_tensor=ctypes.addressof(producer.managed))
    tensor = from_dlpack(type_with(theirs.capsule())(), copy=True)
    assert tensor.is_copied and producer.deleted == 1


def test_host_memory_needs_no_stream(answers):
    theirs, producer = table(), Producer()
    answers(answer_tensor=ctypes.addressof(producer.managed), stream_code=-1)
    from_dlpack(type_with(theirs.capsule())()).close()
    assert c_int.in_dll(helper, "stream_calls").value == 0


@pytest.mark.parametrize("chain", [(1,), (2, 1), (3, 2, 1), (7, 2, 1, 2)])
def test_older_table_in_the_chain(answers, chain):
    tables = [table(major=major, minor=9) for major in chain]
    for newer, older in zip(tables, tables[1:], strict=False):
        newer.prev_api = ctypes.addressof(older)
        if newer.major != 1:
            newer.from_object = newer.work_stream = 1  # must not be called
    producer = Producer()
    answers(answer_tensor=ctypes.addressof(producer.managed))
    from_dlpack(type_with(tables[0].capsule())()).close()
    assert (calls(), producer.deleted) == (1, 1)


def in_a_circle():
    first, second = table(major=2), table(major=3)
    first.prev_api, second.prev_api = ctypes.addressof(second), ctypes.addressof(first)
    first.kept = second
    return first


# Attributes that are not usable tables.
UNUSABLE = {
    "no function for tensors": lambda: table(from_object=None),
    "no function for streams": lambda: table(work_stream=None),
    "unknown major": lambda: table(major=2),
    "major 0": lambda: table(major=0),
    "a circle of unknown ones": in_a_circle,
}
NO_CAPSULE = {
    "a number": 1,
    "None": None,
    "a property": property(lambda self: 1 / 0),
    "a capsule of another name": table().capsule(b"dltensor_versioned"),
    "a capsule without a name": table().capsule(None),
}


@pytest.mark.parametrize("name", [*UNUSABLE, *NO_CAPSULE])
def test_table_that_cannot_be_used(answers, name):
    theirs = UNUSABLE[name]() if name in UNUSABLE else None
    attribute = theirs.capsule() if theirs is not None else NO_CAPSULE[name]
    offers = type_with(attribute, OnlyMethod)()
    with from_dlpack(offers) as tensor:
        assert tensor.shape == (3,)
    assert (calls(), offers.asked) == (0, 1)
    with pytest.raises(TypeError, match="has no __dlpack__"):
        from_dlpack(type_with(attribute)())


def test_table_of_an_object_is_none_of_its_type(answers):
    theirs = table()
    offers = OnlyMethod()
    offers.__dlpack_c_exchange_api__ = theirs.capsule()
    from_dlpack(offers).close()
    assert (calls(), offers.asked) == (0, 1)


FAILS = {
    "an exception": ({"answer_code": -1, "answer_raises": 1}, KeyError, "producer's own"),
    "a code and no exception": ({"answer_code": -1}, RuntimeError, "returned -1 without an exception"),
    "another code": ({"answer_code": 7}, RuntimeError, "returned 7 without an exception"),
    "an exception and success": ({"answer_raises": 1}, KeyError, "producer's own"),
    "no tensor": ({"answer_tensor": None}, RuntimeError, "gave NULL"),
}


@pytest.mark.parametrize("name", FAILS)
def test_function_that_fails(answers, name):
    values, kind, text = FAILS[name]
    theirs, producer = table(), Producer()
    answers(answer_tensor=ctypes.addressof(producer.managed))
    answers(**values)
    given = name == "an exception and success"
    offers = type_with(theirs.capsule(), OnlyMethod)()
    with from_dlpack(offers) as tensor:
        assert tensor.shape == (3,)
    assert (offers.asked, producer.deleted) == (1, int(given))
    with pytest.raises(kind, match=text):
        from_dlpack(type_with(theirs.capsule())())
    assert producer.deleted == 2 * given

    class Elsewhere(OnlyMethod):
        def __dlpack_device__(self):
            return 2, None

    # The error of the method alone does not explain the failure of the function: both are reported.
    with pytest.raises(TypeError, match="^__dlpack_device__ returned") as raised:
        from_dlpack(type_with(theirs.capsule(), Elsewhere)())
    assert isinstance(raised.value.__cause__, kind)

    class Closed(OnlyMethod):
        def __dlpack_device__(self):
            raise ValueError("it is closed") from OSError("the cable is cut")

    with pytest.raises(ValueError, match="it is closed") as raised:
        from_dlpack(type_with(theirs.capsule(), Closed)())
    assert isinstance(raised.value.__cause__, OSError)


@pytest.mark.parametrize("wishes", [{}, {"device": (1, 0)}])
@pytest.mark.parametrize("code", [0, -1])
def test_interrupt_of_a_function_is_not_forgotten(answers, code, wishes):
    """An error would be forgotten, and the object asked by its method."""
    theirs, producer = table(), Producer()
    answers(answer_tensor=ctypes.addressof(producer.managed), answer_code=code, answer_raises=2)
    offers = type_with(theirs.capsule(), OnlyMethod)()
    with pytest.raises(KeyboardInterrupt):
        from_dlpack(offers, **wishes)
    assert (calls(), offers.asked, producer.deleted) == (1, 0, int(code == 0))


@pytest.mark.parametrize(
    ("fields", "kind"), [({"major": 2}, BufferError), ({"ndim": -1}, ValueError), ({"device_type": 99}, BufferError)]
)
def test_tensor_of_a_table_that_is_refused_is_given_back(answers, fields, kind):
    theirs, producer = table(), Producer(**fields)
    answers(answer_tensor=ctypes.addressof(producer.managed))
    with pytest.raises(kind):
        from_dlpack(type_with(theirs.capsule(), OnlyMethod)())
    assert producer.deleted == 1


def test_wish_that_is_refused_gives_the_tensor_back(answers):
    theirs, producer = table(), Producer()
    answers(answer_tensor=ctypes.addressof(producer.managed))
    with pytest.raises(ValueError, match="stream is 7"):
        from_dlpack(type_with(theirs.capsule())(), stream=7)
    assert producer.deleted == 1


class Marked(OnlyMethod):
    """An object with the marks of a PyTorch tensor."""

    requires_grad, conjugated, negated = False, False, False

    def is_conj(self):
        return self.conjugated

    def is_neg(self):
        return self.negated


COMPLEX = {"code": 5, "bits": 64}
# A mark, the tensor's fields, how often the table is asked, how often the method.
MARKS = {
    "none": (None, {}, 1, 0),
    "a gradient": ("requires_grad", {}, 0, 1),
    "conjugated": ("conjugated", COMPLEX, 1, 1),
    "complex": (None, COMPLEX, 1, 0),
    "conjugated, which no real number is": ("conjugated", {}, 1, 0),
}


@pytest.mark.parametrize("name", MARKS)
def test_memory_that_does_not_mean_what_it_holds_goes_by_the_method(answers, name):
    mark, fields, by_table, by_method = MARKS[name]
    theirs, producer = table(), Producer(**fields)
    answers(answer_tensor=ctypes.addressof(producer.managed))
    offers = type_with(theirs.capsule(), Marked)()
    if mark:
        setattr(offers, mark, True)
    from_dlpack(offers).close()
    assert (calls(), offers.asked, producer.deleted) == (by_table, by_method, by_table)


def test_mark_of_one_object_of_a_class(answers):
    """A class does not tell which attributes its objects will have."""
    theirs, producer = table(), Producer()
    answers(answer_tensor=ctypes.addressof(producer.managed))
    offers = type_with(theirs.capsule(), OnlyMethod)()
    from_dlpack(offers).close()
    offers.requires_grad = True
    from_dlpack(offers).close()
    assert (calls(), offers.asked) == (1, 1)


def test_negated_memory_is_refused(answers):
    theirs = table()
    offers = type_with(theirs.capsule(), Marked)()
    offers.negated = True
    with pytest.raises(BufferError, match="negative bit"):
        from_dlpack(offers)
    assert (calls(), offers.asked) == (0, 0)


def test_error_of_a_question_comes_through(answers):
    class Broken(Marked):
        def is_neg(self):
            return self.nothing

    theirs = table()
    with pytest.raises(AttributeError, match="nothing"):
        from_dlpack(type_with(theirs.capsule(), Broken)())
    assert calls() == 0


# --- what is cached for types ---


def test_class_that_gains_and_loses_a_table(answers):
    theirs, producer = table(), Producer()
    answers(answer_tensor=ctypes.addressof(producer.managed))
    base = type("Base", (OnlyMethod,), {})
    offers = type("Derived", (base,), {})()
    for holder in (type(offers), base):
        before = calls(), offers.asked
        from_dlpack(offers).close()
        holder.__dlpack_c_exchange_api__ = theirs.capsule()
        from_dlpack(offers).close()
        del holder.__dlpack_c_exchange_api__
        from_dlpack(offers).close()
        assert (calls(), offers.asked) == (before[0] + 1, before[1] + 2)


def test_subclass_has_its_own_answer(answers):
    theirs, producer = table(), Producer()
    answers(answer_tensor=ctypes.addressof(producer.managed))
    base = type_with(theirs.capsule(), OnlyMethod)
    without = type_with(None, base)
    for kind in (base, without, type("Inherits", (base,), {}), without):
        before = calls()
        from_dlpack(kind()).close()
        assert calls() == before + (kind is not without)


def test_classes_that_die(answers):
    """Other classes take their place in memory."""
    theirs, producer = table(), Producer()
    answers(answer_tensor=ctypes.addressof(producer.managed))
    alive, places = [], set()
    for i in range(400):
        kind = type_with(theirs.capsule() if i % 2 else None, OnlyMethod)
        offers, before = kind(), calls()
        from_dlpack(offers).close()
        assert (calls() - before, offers.asked) == ((1, 0) if i % 2 else (0, 1))
        alive.append(weakref.ref(kind))
        places.add(id(kind))
        del kind, offers
        gc.collect(0)
    gc.collect()
    assert not any(kind() for kind in alive) and len(places) < 400


def test_class_that_calls_itself_pytorchs_is_remembered_and_kept(answers):
    """Its table is asked for once, so no other class may take its place in memory."""
    theirs, producer = table(), Producer()
    answers(answer_tensor=ctypes.addressof(producer.managed))
    name = "__dlpack_c_exchange_api__"
    kind = type("Tensor", (OnlyMethod,), {"__module__": "torch", name: theirs.capsule(), "requires_grad": False})
    kind.is_neg = lambda self: False
    for _ in range(3):
        offers, before = kind(), calls()
        from_dlpack(offers).close()
        assert (calls() - before, offers.asked) == (1, 0)
        kind.__dlpack_c_exchange_api__ = None
    alive = weakref.ref(kind)
    del kind, offers
    gc.collect()
    assert alive() is not None


def test_subclass_of_numpys_type_is_asked_where_it_is():
    asked = []

    class Sub(numpy.ndarray):
        def __dlpack_device__(self):
            asked.append(self)
            return super().__dlpack_device__()

    for kind in (numpy.ndarray, Sub):
        with from_dlpack(numpy.zeros(3).view(kind)) as tensor:
            assert tensor.device == (1, 0)
    assert len(asked) == 1


def test_more_types_than_are_remembered():
    """Python's exceptions alone are more types than the cache has room for."""
    kinds = [kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    unlike = UnicodeEncodeError, UnicodeDecodeError, UnicodeTranslateError, ExceptionGroup
    things = [kind() for kind in kinds if kind not in unlike] + [None, 1, 1.0, "", b"", (), [], {}, set(), range(1)]
    assert len({type(thing) for thing in things}) > 64
    assert not any(type(thing).__flags__ >> 9 & 1 for thing in things)
    array = numpy.arange(3.0)
    wrapped = tvm_ffi.core.DLTensorTestWrapper(tvm_ffi.from_dlpack(array))
    for _ in range(2):
        for thing in things:
            with pytest.raises(TypeError, match="has no __dlpack__"):
                from_dlpack(thing)
        for thing in (array, tvm_ffi.from_dlpack(array), wrapped):
            with from_dlpack(thing) as tensor:
                assert tensor.data_ptr == array.ctypes.data


def test_types_in_many_threads(answers):
    """In a new interpreter, in which no type is known yet."""
    program = """
        import threading
        import numpy, tvm_ffi
        from devexchange import from_dlpack, outstanding

        array = numpy.arange(6.0)
        wrapped = tvm_ffi.core.DLTensorTestWrapper(tvm_ffi.from_dlpack(array))
        things = [array, tvm_ffi.from_dlpack(array), wrapped, 1, array.view(numpy.memmap)]
        start, done = threading.Barrier(4), []

        def take(first):
            start.wait()
            for i in range(2000):
                thing = things[(first + i) % len(things)]
                try:
                    with from_dlpack(thing) as tensor:
                        assert tensor.data_ptr == array.ctypes.data
                except TypeError:
                    assert thing == 1
            done.append(first)

        threads = [threading.Thread(target=take, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(sorted(done), outstanding())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "[0, 1, 2, 3] 0\n"), done.stderr


# --- our tensors by the tables of others ---


def test_to_a_type_with_a_table():
    array = numpy.arange(6, dtype="f4").reshape(2, 3)[:, ::2]
    array.flags.writeable = False
    tensor = from_dlpack(array)
    for kind in (Tensor, tvm_ffi.core.DLTensorTestWrapper):
        made = tensor.to(kind)
        with from_dlpack(made) as seen:
            assert (seen.shape, seen.strides, seen.data_ptr) == ((2, 2), (3, 2), array.ctypes.data)
    assert type(tensor.to(Tensor)) is Tensor and tensor.to(Tensor).read_only
    made = tensor.to(Tensor)
    tensor.close()
    assert numpy.from_dlpack(made).tolist() == [[0, 2], [3, 5]]


def test_object_keeps_the_memory_alive():
    producer = Producer()
    tensor = from_dlpack(producer)
    made = tensor.to(tvm_ffi.core.DLTensorTestWrapper)
    tensor.close()
    assert producer.deleted == 0
    del made
    assert producer.deleted == 1


def test_to_what_makes_no_object(answers):
    tensor = from_dlpack(numpy.zeros(3))
    without = table(to_object=None)
    for kind in (int, OnlyMethod, type_with(1), type_with(without.capsule())):
        with pytest.raises(TypeError, match="that makes objects"):
            tensor.to(kind)
    for wrong in (tensor, "cuda:0"):
        with pytest.raises(TypeError, match="a type is needed; to another device it goes by copy_to"):
            tensor.to(wrong)
    tensor.close()
    with pytest.raises(ValueError, match="closed"):
        tensor.to(Tensor)


REFUSES = {
    "a code": ({"answer_code": -1}, RuntimeError, "to_py_object_no_sync returned -1 without an exception"),
    "an exception": ({"answer_code": -1, "answer_raises": 1}, KeyError, "producer's own"),
    # The consumer took the tensor and deleted it, too: nothing is left of it.
    "no object": ({"answer_deletes": 1}, RuntimeError, "gave NULL for an object"),
}


@pytest.mark.parametrize("deletes", [0, 1])
@pytest.mark.parametrize("name", REFUSES)
def test_consumer_that_fails(answers, name, deletes):
    """Whether or not the consumer has called the deleter when it fails, it is called once."""
    values, kind, text = REFUSES[name]
    theirs, producer = table(), Producer()
    answers(**{"answer_deletes": deletes, **values})
    tensor = from_dlpack(producer)
    with pytest.raises(kind, match=text):
        tensor.to(type_with(theirs.capsule()))
    assert (calls(), devexchange.ledger()["tensor_exports"].live, producer.deleted) == (1, 0, 0)
    tensor.close()
    assert producer.deleted == 1


def test_exception_of_a_consumer_survives_the_release(answers):
    """The consumer closes the tensor before it fails, so the export is the last user."""
    theirs, producer = table(), Producer()
    tensor = from_dlpack(producer)
    close = PYFUNCTYPE(None)(tensor.close)
    answers(answer_code=-1, answer_raises=1, answer_first=address(close))
    with pytest.raises(KeyError, match="the producer's own"):
        tensor.to(type_with(theirs.capsule()))
    assert producer.deleted == 1


def test_consumer_that_is_asked_within_another_call(answers):
    """The outer tensor is deleted within the inner call, and the outer call fails."""
    tensor = from_dlpack(numpy.zeros(3))

    def inner(outer, out):
        managed = Managed.from_address(outer)

        def also(innermost, out):
            managed.deleter(outer)
            return -1

        also = FromObject(also)
        theirs = table(to_object=address(also))
        with pytest.raises(RuntimeError, match="returned -1"):
            tensor.to(type_with(theirs.capsule()))
        return -1

    inner = FromObject(inner)
    theirs = table(to_object=address(inner))
    with pytest.raises(RuntimeError, match="returned -1"):
        tensor.to(type_with(theirs.capsule()))
    assert devexchange.ledger()["tensor_exports"].live == 0
