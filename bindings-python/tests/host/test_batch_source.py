"""Streams over a Python iterable: asked when the consumer asks, on the consumer's thread, and given up once."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import nanoarrow
import pyarrow
import pyarrow.dataset
import pytest
from peer import soon
from programs import run

import devexchange
from devexchange import BatchStream, from_arrow

SCHEMA = pyarrow.schema([("n", pyarrow.int64())])


def batch(*numbers):
    return pyarrow.record_batch({"n": list(numbers)}, schema=SCHEMA)


class Source:
    """A generator of batches of one row, which notes what became of it."""

    def __init__(self, stop=3, fail=None):
        self.stop, self.fail = stop, fail
        self.given, self.ended, self.threads = 0, 0, set()

    def __iter__(self):
        try:
            for number in range(self.stop):
                self.given += 1
                self.threads.add(threading.current_thread())
                yield batch(number)
            if self.fail:
                raise self.fail
        finally:
            self.ended += 1


def numbers(batches):
    return [row["n"] for each in batches for row in each.to_pylist()]


def test_generator_is_asked_when_the_consumer_asks():
    source = Source()
    stream = BatchStream.of(SCHEMA, source)
    assert (stream.schema.names, stream.device_type, source.given) == (["n"], 1, 0)
    assert next(stream).to_pylist() == [{"n": 0}]
    assert (source.given, source.ended) == (1, 0)
    reader = pyarrow.RecordBatchReader.from_stream(stream)
    assert source.given == 1
    assert reader.read_next_batch().to_pydict() == {"n": [1]}
    assert (source.given, source.ended) == (2, 0)
    assert numbers(reader) == [2]
    assert (source.given, source.ended) == (3, 1)
    assert list(stream) == []


def test_items_of_others():
    items = [
        from_arrow(batch(1)),
        batch(2),
        nanoarrow.c_array(batch(3)),
        pyarrow.array([{"n": 4}], pyarrow.struct([("n", pyarrow.int64())])),
    ]
    for schema in [SCHEMA, from_arrow(SCHEMA)]:
        assert numbers(BatchStream.of(schema, items)) == [1, 2, 3, 4]
    # The batch is closed only after the stream has yielded it.
    items[0].close()
    column = BatchStream.of(pyarrow.int8(), (pyarrow.array([n], pyarrow.int8()) for n in range(3)))
    assert nanoarrow.Array(column).to_pylist() == [0, 1, 2]
    assert numbers(BatchStream.of(SCHEMA, BatchStream.of(SCHEMA, Source()))) == [0, 1, 2]
    assert list(BatchStream.of(SCHEMA, [])) == []


def test_generator_is_asked_on_a_thread_of_the_consumers():
    """The thread is one that Python did not start."""
    source = Source(50)
    reader = pyarrow.RecordBatchReader.from_stream(BatchStream.of(SCHEMA, source))
    table = pyarrow.dataset.Scanner.from_batches(reader).to_table()
    assert sorted(table["n"].to_pylist()) == list(range(50))
    assert threading.main_thread() not in source.threads
    assert source.ended == 1
    del reader, table
    # The consumer's threads release the last batches, too.
    soon(lambda: devexchange.outstanding() == 0)


@pytest.mark.parametrize("how", ["closed", "dropped", "never asked", "foreign", "foreign, on a thread", "capsule"])
def test_generator_is_given_up_once_if_the_consumer_drops_early(how):
    source = Source()
    iterator = iter(source)
    seen = weakref.ref(iterator)
    stream = BatchStream.of(SCHEMA, iterator)
    del iterator
    if how != "never asked":
        next(stream)
    if how.startswith("foreign"):
        stream = pyarrow.RecordBatchReader.from_stream(stream)
        stream.read_next_batch()
    if how == "capsule":
        stream = stream.__arrow_c_stream__()
    if how == "closed":
        stream.close()
    elif how == "foreign, on a thread":
        kept = [stream]
        thread = threading.Thread(target=kept.clear)
        del stream
        thread.start()
        thread.join()
    else:
        del stream
    gc.collect()
    devexchange.from_buffer(b"").close()
    assert seen() is None
    # A generator that was never asked has nothing to end.
    assert source.ended == (how != "never asked")


def test_iterator_is_given_up_at_its_end():
    """At once, also on another thread than the main one, which gives up what is queued."""

    class Iterator:
        def __iter__(self):
            return self

        def __next__(self):
            raise StopIteration

    iterator = Iterator()
    stream, seen, left = BatchStream.of(SCHEMA, iterator), weakref.ref(iterator), []
    del iterator
    thread = threading.Thread(target=lambda: left.extend([list(stream), seen()]))
    thread.start()
    thread.join()
    assert left == [[], None]


def test_generator_that_somebody_else_holds_is_not_closed():
    iterator = iter(Source())
    with BatchStream.of(SCHEMA, iterator) as stream:
        next(stream)
    assert next(iterator).to_pydict() == {"n": [1]}
    iterator.close()


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("not even a text")


@pytest.mark.parametrize(
    "raised, kind, text",
    [
        (OSError("the disk is gone"), RuntimeError, "OSError: the disk is gone"),
        (KeyError("k"), RuntimeError, "KeyError: 'k'"),
        (ValueError("tëxt\0 with a NUL"), RuntimeError, "ValueError: tëxt"),
        (MemoryError("none left"), MemoryError, "none left"),
        (NotImplementedError("not yet"), BufferError, "NotImplementedError: not yet"),
        (Unprintable(), RuntimeError, "Unprintable"),
        (devexchange.Refused("not so", 17), BufferError, "^not so$"),
        (devexchange.Failed("of the driver", 26, 700), RuntimeError, "^of the driver$"),
        (devexchange.Error("without a status"), RuntimeError, "without a status"),
    ],
)
def test_exception_is_the_error_of_the_stream(raised, kind, text):
    source = Source(1, raised)
    stream = BatchStream.of(SCHEMA, source)
    next(stream)
    # The traceback of the exception shows the place. Later calls do not ask the iterator, and have only the text.
    for cause in [raised, None]:
        with pytest.raises(kind, match=text) as caught:
            next(stream)
        assert caught.value.driver_code == getattr(raised, "driver_code", 0)
        assert caught.value.__cause__ is cause
    assert source.ended == 1
    source = Source(1, raised)
    reader = pyarrow.RecordBatchReader.from_stream(BatchStream.of(SCHEMA, source))
    reader.read_next_batch()
    with pytest.raises((OSError, pyarrow.ArrowException, MemoryError), match=text.strip("^$")):
        reader.read_next_batch()
    assert source.ended == 1
    # The exception outlives the test, and would keep its frames alive.
    raised.__traceback__ = None


@pytest.mark.parametrize("wrapped", [False, True], ids=["ours", "through PyArrow"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_end_of_the_program_is_no_error_of_the_stream(kind, wrapped):
    source = Source(1, kind("enough"))
    stream = BatchStream.of(SCHEMA, source)
    if wrapped:
        stream = from_arrow(pyarrow.RecordBatchReader.from_stream(stream))
    next(stream)
    with pytest.raises(kind, match="enough"):
        next(stream)
    with pytest.raises(RuntimeError, match=f"{kind.__name__}: enough"):
        next(stream)
    assert source.ended == 1


@pytest.mark.parametrize("on_thread", [False, True], ids=["on the main thread", "on a thread"])
def test_interrupt_reaches_the_program_through_a_foreign_consumer(on_thread, interruptible):
    """The consumer gets a text, and Python's main thread gets the interrupt."""
    source, texts = Source(1, KeyboardInterrupt("enough")), []

    def read():
        reader = pyarrow.RecordBatchReader.from_stream(BatchStream.of(SCHEMA, source))
        try:
            reader.read_all()
        except OSError as error:
            texts.append(str(error))

    with pytest.raises(KeyboardInterrupt):
        if on_thread:
            thread = threading.Thread(target=read)
            thread.start()
            while not texts:
                thread.join(0.01)
        else:
            read()
        # The interrupt comes soon, not at once.
        time.sleep(10)
    if on_thread:
        thread.join()
    # The interrupt may come before the text is there.
    assert texts in (["KeyboardInterrupt: enough"], [])
    assert source.ended == 1


def through_pyarrow(source):
    """A source that PyArrow asks, whose consumer gets only the text of an exception."""
    return pyarrow.RecordBatchReader.from_stream(BatchStream.of(SCHEMA, source))


def test_source_is_asked_by_who_is_asked_in_a_call():
    """PyArrow releases the GIL before it asks, on a thread for which this package has taken the GIL."""

    def outer():
        yield from through_pyarrow(Source())

    class Offers:
        def __arrow_c_array__(self, requested_schema=None):
            return through_pyarrow(Source()).read_next_batch().__arrow_c_array__()

    class Arena:
        def allocate(self, request):
            assert numbers(from_arrow(each) for each in through_pyarrow(outer())) == [0, 1, 2]
            return devexchange.MemoryManager.host_only().allocate(request.bytes, request.device)

    for _ in range(3):
        assert numbers(BatchStream.of(SCHEMA, outer())) == [0, 1, 2]
        assert numbers([from_arrow(Offers())]) == [0]
        assert devexchange.empty(3, manager=devexchange.MemoryManager(Arena())).shape == (3,)
    through_arrow = through_pyarrow(through_pyarrow(through_pyarrow(Source())))
    assert numbers(from_arrow(each) for each in through_arrow) == [0, 1, 2]


@pytest.mark.parametrize("goes_on", [False, True], ids=["passes it on", "goes on"])
def test_interrupt_reaches_the_program_through_another_source(goes_on, interruptible):
    source = Source(1, KeyboardInterrupt("enough"))

    def outer():
        try:
            yield from through_pyarrow(source)
        except OSError:
            if not goes_on:
                raise

    with pytest.raises(KeyboardInterrupt):
        list(BatchStream.of(SCHEMA, outer()))
        # The interrupt comes soon, not at once.
        time.sleep(10)
    assert source.ended == 1


def test_what_a_source_got_over_is_not_the_cause_of_what_comes_later():
    def outer():
        with pytest.raises(OSError, match="the disk is gone"):
            list(through_pyarrow(Source(1, ValueError("the disk is gone"))))
        yield pyarrow.record_batch({"n": ["text"]})

    with pytest.raises(TypeError, match="the format is .u., the stream's is .l.") as caught:
        next(BatchStream.of(SCHEMA, outer()))
    assert caught.value.__cause__ is None


def test_interrupt_is_not_lost_behind_another_exception(interruptible):
    """PyArrow asks Python, which asks PyArrow again: all of this is one call of ours."""
    sources = [Source(0, KeyboardInterrupt("enough")), Source(0, ValueError("the disk is gone"))]

    def those_that_work():
        for source in sources:
            try:
                yield from through_pyarrow(source)
            except OSError:
                pass

    stream = from_arrow(pyarrow.RecordBatchReader.from_batches(SCHEMA, those_that_work()))
    with pytest.raises(KeyboardInterrupt):
        list(stream)
        # The interrupt comes soon, not at once.
        time.sleep(10)
    stream.close()
    assert sources[0].ended == 1


@pytest.mark.parametrize(
    "items, kind, text",
    [
        ([1], RuntimeError, "TypeError: the iterable gave <class 'int'>: neither a RecordBatch"),
        ([None], RuntimeError, "NoneType"),
        ([pyarrow.table({"n": [1]})], RuntimeError, "gave <class 'pyarrow.lib.Table'>: it has only __arrow_c_stream__"),
        ([pyarrow.record_batch({"n": ["text"]})], TypeError, "the format is .u., the stream's is .l."),
        ([pyarrow.record_batch({"n": [1], "m": [2]})], TypeError, "the batch has 2 columns, the stream 1"),
    ],
)
def test_items_that_do_not_fit(items, kind, text):
    stream = BatchStream.of(SCHEMA, items)
    for _ in range(2):
        with pytest.raises(kind, match=text):
            next(stream)


def test_item_that_is_closed():
    closed = from_arrow(batch(1))
    closed.close()
    with pytest.raises(ValueError, match="the batch is closed"):
        next(BatchStream.of(SCHEMA, [closed]))


def test_item_whose_method_raises():
    class Raises:
        def __arrow_c_array__(self, requested_schema=None):
            raise LookupError("not here")

    with pytest.raises(RuntimeError, match="LookupError: not here"):
        next(BatchStream.of(SCHEMA, [Raises()]))


def test_bad_arguments():
    for schema, batches, text in [(SCHEMA, 1, "not iterable"), (1, [], "__arrow_c_schema__"), (None, [], "NoneType")]:
        with pytest.raises(TypeError, match=text):
            BatchStream.of(schema, batches)
    for device_type in [0, 99, 2**31 - 1]:
        with pytest.raises(BufferError, match="device"):
            BatchStream.of(SCHEMA, [], device_type=device_type)
    with pytest.raises(ValueError, match=f"device_type is {2**40}: it must be between"):
        BatchStream.of(SCHEMA, [], device_type=2**40)


def test_generator_that_asks_its_own_stream():
    def recursive():
        yield batch(1)
        with pytest.raises(devexchange.Failed, match="in use by another call"):
            next(stream)
        yield batch(2)

    stream = BatchStream.of(SCHEMA, recursive())
    assert numbers(stream) == [1, 2]
    stream.close()


def test_error_that_is_on_its_way_stays():
    """A consumer can drop and pull streams while it handles an exception."""
    try:
        raise LookupError("first")
    except LookupError as error:
        assert numbers(BatchStream.of(SCHEMA, Source())) == [0, 1, 2]
        with pytest.raises(RuntimeError, match="OSError: second"):
            list(BatchStream.of(SCHEMA, Source(0, OSError("second"))))
        assert str(error) == "first"


def test_streams_of_streams_have_an_end():
    """They end at Python's limit for nested calls, before the stack is full."""
    stream = BatchStream.of(SCHEMA, [batch(1)])
    for _ in range(20_000):
        stream = BatchStream.of(SCHEMA, stream)
    with pytest.raises(RecursionError):
        next(stream)


def test_streams_of_streams_that_python_can_call():
    stream = BatchStream.of(SCHEMA, [batch(1)])
    for _ in range(50):
        stream = BatchStream.of(SCHEMA, stream)
    assert numbers(stream) == [1]


@pytest.mark.parametrize("trace", ["1", ""])
def test_trace_shows_where_a_source_raised(trace):
    program = """
        import devexchange, pyarrow

        def broken_source():
            raise ValueError("the disk is gone")
            yield

        def sources_that_work():
            try:
                yield from through_pyarrow(broken_source())
            except OSError as error:
                assert "the disk is gone" in str(error)

        def through_pyarrow(source):
            return pyarrow.RecordBatchReader.from_stream(devexchange.BatchStream.of(schema, source))

        schema = pyarrow.schema([("n", pyarrow.int64())])
        for stream in through_pyarrow(broken_source()), devexchange.BatchStream.of(schema, broken_source()):
            try:
                next(stream)
            except (OSError, RuntimeError) as error:
                assert "the disk is gone" in str(error)
        assert list(devexchange.BatchStream.of(schema, sources_that_work())) == []
        readers = pyarrow.RecordBatchReader.from_batches(schema, sources_that_work())
        assert list(devexchange.from_arrow(readers)) == []
    """
    environment = {**os.environ, "DEVEXCHANGE_TRACE": trace}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=True)
    said = done.stderr.splitlines()
    if trace:
        # The trace does not have exceptions that a Python caller gets itself.
        assert said[0] == "devexchange: a callback failed:" and said[-1] == "ValueError: the disk is gone", said
        assert sum("in broken_source" in line for line in said) == 3, said
    else:
        assert said == []


def test_interpreter_that_ends_and_that_ended():
    """The program's own `atexit` handlers can still pull; other threads, and code after the handlers, cannot."""
    lines = run("""
        import atexit, threading

        def pull():
            try:
                print(next(stream).to_pylist(), len(devexchange.empty(3, manager=manager).shape))
            except (ValueError, RuntimeError) as error:
                print(error)

        def other():
            ends.wait()
            pull()
            pulled.set()

        def late():
            pull()
            ends.set()
            pulled.wait()

        # What is registered first is called last: after what this package registers.
        atexit.register(late)
        import devexchange, pyarrow

        class Manager:
            def allocate(self, request):
                return host.allocate(request.bytes, request.device)

        class Last:
            def __del__(self):
                pull()

        host = devexchange.MemoryManager.host_only()
        manager = devexchange.MemoryManager(Manager())
        schema = pyarrow.schema([("n", pyarrow.int64())])
        batch = pyarrow.record_batch({"n": [1]}, schema=schema)
        stream = devexchange.BatchStream.of(schema, iter([batch] * 9))
        ends, pulled = threading.Event(), threading.Event()
        threading.Thread(target=other, daemon=True).start()
        # It outlives this module, whose names it uses.
        atexit.last = Last(), globals()
        pull()
    """).splitlines()
    assert lines == ["[{'n': 1}] 1"] * 2 + ["the source is not asked: the interpreter of Python ends"] * 2


def test_thread_of_another_interpreter_is_an_error():
    lines = run('''
        import ctypes, sys
        import devexchange
        try:
            import _interpreters as interpreters
            shared = {"config": "legacy"}
        except ImportError:
            import _xxsubinterpreters as interpreters
            shared = {"isolated": False}
        batch = devexchange.from_buffer(memoryview(bytearray(2)).cast("B", (2, 1))).to_batch(["n"])
        stream = devexchange.BatchStream.of(batch.schema, (print("asked") for _ in range(3)))
        struct = (ctypes.c_void_p * 5)()
        stream.export_arrow(ctypes.addressof(struct))
        stream.close()
        # The functions of the struct: get_schema, get_next, get_last_error, release.
        code = f"""if True:
            import ctypes, threading
            struct, array = (ctypes.c_void_p * 5).from_address({ctypes.addressof(struct)}), (ctypes.c_void_p * 10)()
            address = ctypes.addressof(struct)
            def pull():
                print(ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(struct[1])(address, array))
                error = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(struct[2])(address)
                print("another interpreter" in error.decode(), flush=True)
                ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(struct[3])(address)
            thread = threading.Thread(target=pull)
            thread.start()
            thread.join()
        """
        other = interpreters.create(**shared)
        interpreters.run_string(other, code)
        interpreters.destroy(other)
        batch.close()
        devexchange.empty(1)
        print(devexchange.outstanding())
    ''').splitlines()
    assert lines == ["22", "True", "0"]


def test_end_of_the_interpreter_waits_for_a_generator_on_another_thread():
    lines = run("""
        import contextlib, threading, time
        import devexchange, pyarrow, pyarrow.dataset
        schema = pyarrow.schema([("n", pyarrow.int64())])
        asked, ends = threading.Event(), threading.Event()

        def slow():
            asked.set()
            ends.wait()
            time.sleep(0.3)
            print("given", flush=True)
            yield pyarrow.record_batch({"n": [1]}, schema=schema)
            while True:
                yield pyarrow.record_batch({"n": [2]}, schema=schema)

        reader = pyarrow.RecordBatchReader.from_stream(devexchange.BatchStream.of(schema, slow()))
        scanned = pyarrow.dataset.Scanner.from_batches(reader).to_reader()

        def read():
            # It reads ahead, which is an error when Python has ended.
            with contextlib.suppress(Exception):
                scanned.read_next_batch()

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        asked.wait()
        print("ends", flush=True)
        ends.set()
    """).splitlines()
    assert lines == ["ends", "given"]


@pytest.mark.parametrize("take", ["next(stream)", "scanned().read_next_batch()"], ids=["of Python", "of Arrow"])
def test_child_of_a_fork_does_not_wait_for_threads_that_it_has_not(take):
    lines = run(f"""
        import os, sys, threading, time, warnings
        import devexchange, pyarrow, pyarrow.dataset
        # Python 3.12 and newer warn of what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        schema = pyarrow.schema([("n", pyarrow.int64())])
        batch = pyarrow.record_batch({{"n": [1]}}, schema=schema)
        asked, go_on, children = threading.Event(), threading.Event(), []

        def slow():
            asked.set()
            go_on.wait()
            yield batch

        def forks():
            # Also this thread is within a call.
            children.append(os.fork())
            yield batch

        # Arrow takes batches on threads of its own.
        def scanned():
            reader = pyarrow.RecordBatchReader.from_stream(stream)
            return pyarrow.dataset.Scanner.from_batches(reader).to_reader()

        stream = devexchange.BatchStream.of(schema, slow())
        thread = threading.Thread(target=lambda: print({take}.to_pylist()))
        thread.start()
        asked.wait()
        since = time.monotonic()
        next(devexchange.BatchStream.of(schema, forks()))
        if children == [0]:
            sys.exit(0)
        print(os.waitpid(children[0], 0)[1], time.monotonic() - since < 9)
        go_on.set()
        thread.join()
    """).splitlines()
    assert lines == ["0 True", "[{'n': 1}]"]
