"""Releases without the GIL, races for capsules, ends of interpreters, and forks."""

import ctypes
import multiprocessing
import os
import signal
import sys
import textwrap
import threading
import time
from ctypes import c_size_t, c_void_p
from pathlib import Path
from types import SimpleNamespace

import numpy
import pyarrow
import pytest
from peer import soon
from programs import run
from structs import Managed, Producer, pointer_of
from tables import build

import devexchange
from devexchange import Tensor, from_arrow, from_buffer, from_dlpack, ipc

TESTS = Path(__file__).parents[1]
# The same library, whose functions are called without the GIL.
unattached = ctypes.CDLL(build(TESTS / "helper.c")._name)
unattached.release_on_threads.argtypes = [c_void_p, c_void_p, c_size_t, c_size_t]


def delete_on_threads(managed, threads):
    """Calls the deleters of DLPack structs on threads that Python has never seen, while this thread has no GIL."""
    things = (c_void_p * len(managed))(*managed)
    deleter = ctypes.cast(Managed.from_address(managed[0]).deleter, c_void_p)
    assert unattached.release_on_threads(deleter, things, len(managed), threads) == 0


# --- deleters ---


def test_deleters_on_raw_threads_while_python_runs():
    array = numpy.zeros(16)
    references = sys.getrefcount(array)
    stop = threading.Event()

    def work():
        while not stop.is_set():
            sum(range(100))

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(20):
            managed = [from_buffer(array).export_share() for _ in range(500)]
            assert sys.getrefcount(array) > references
            delete_on_threads(managed, 8)
    finally:
        stop.set()
        worker.join()
    soon(lambda: devexchange.outstanding() == 0 and sys.getrefcount(array) == references)


def test_object_is_given_up_by_an_attached_thread():
    """A release on a raw thread leaves the kept object to Python, whose destructor then runs Python code."""
    gone = []

    class Owner(bytearray):
        def __del__(self):
            gone.append(threading.get_ident())

    managed = [from_buffer(Owner(8)).export_share() for _ in range(10)]
    delete_on_threads(managed, 4)
    soon(lambda: len(gone) == 10)
    assert set(gone) == {threading.main_thread().ident}


def test_producers_of_others_are_released_at_once_on_the_thread_that_is_last():
    producers = [Producer() for _ in range(8)]
    managed = [from_dlpack(producer).export_share() for producer in producers]
    delete_on_threads(managed, 4)
    assert [producer.deleted for producer in producers] == [1] * 8


# --- capsules that several threads want ---


def raced(take, refusal, rounds):
    """In each round two threads want the same thing; exactly one gets it, and the other is refused."""
    threads, things, winners, losers = 2, [None], [], []
    before, after = threading.Barrier(threads + 1), threading.Barrier(threads + 1)

    def want():
        for _ in range(rounds):
            before.wait()
            try:
                winners.append(take(things[0]))
            except refusal as error:
                losers.append(error)
            after.wait()

    workers = [threading.Thread(target=want) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(rounds):
            winners.clear()
            things[0] = yield
            before.wait()
            after.wait()
            assert (len(winners), len(losers)) == (1, 1), (winners, losers)
            winners.pop().close()
            things[0] = None
            losers.clear()
    finally:
        for worker in workers:
            worker.join()


def gives(method, thing):
    """An object with a protocol method that always returns `thing`."""
    return SimpleNamespace(**{method: lambda **_: thing, "__dlpack_device__": lambda: (1, 0)})


@pytest.fixture
def switching_often():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


ROUNDS = 2000


@pytest.mark.parametrize("version", [None, (1, 3)])
def test_capsule_of_a_tensor_has_one_winner(switching_often, version):
    tensor = from_dlpack(numpy.zeros(3))
    race = raced(from_dlpack, ValueError, ROUNDS)
    next(race)
    for _ in range(ROUNDS - 1):
        race.send(gives("__dlpack__", tensor.__dlpack__(max_version=version)))
    with pytest.raises(StopIteration):
        race.send(gives("__dlpack__", tensor.__dlpack__(max_version=version)))


@pytest.mark.parametrize("kind", ["array", "stream"])
def test_capsule_of_arrow_has_one_winner(switching_often, kind):
    theirs = pyarrow.record_batch({"n": [1, 2, 3]})

    def made():
        if kind == "array":
            return gives("__arrow_c_array__", theirs.__arrow_c_array__())
        reader = pyarrow.RecordBatchReader.from_batches(theirs.schema, [theirs])
        return gives("__arrow_c_stream__", reader.__arrow_c_stream__())

    # Without a GIL the other thread may find that the capsule is being taken.
    race = raced(from_arrow, (ValueError, RuntimeError), 500)
    next(race)
    for _ in range(499):
        race.send(made())
    with pytest.raises(StopIteration):
        race.send(made())


class CStream(ctypes.Structure):
    _fields_ = [(name, c_void_p) for name in ("get_schema", "get_next", "get_last_error", "release", "private_data")]


def test_stream_that_lets_another_thread_in_has_one_winner():
    """The producer is asked for the schema before the stream is taken, and runs Python during that."""
    theirs = pyarrow.record_batch({"n": [1, 2, 3]})
    capsule = pyarrow.RecordBatchReader.from_batches(theirs.schema, [theirs]).__arrow_c_stream__()
    stream = CStream.from_address(pointer_of(capsule, b"arrow_array_stream"))
    get_schema = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p, c_void_p)(stream.get_schema)
    seen = []

    def other():
        try:
            seen.append(from_arrow(gives("__arrow_c_stream__", capsule)))
        except RuntimeError as error:
            seen.append(str(error))

    @ctypes.CFUNCTYPE(ctypes.c_int, c_void_p, c_void_p)
    def slow(stream, out):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return get_schema(stream, out)

    stream.get_schema = ctypes.cast(slow, c_void_p).value
    taken = from_arrow(gives("__arrow_c_stream__", capsule))
    assert seen == ["another thread is taking what the capsule holds"]
    assert [batch.to_pylist() for batch in taken] == [theirs.to_pylist()]
    taken.close()
    with pytest.raises(ValueError):
        from_arrow(gives("__arrow_c_stream__", capsule))


def test_tensor_that_is_closed_while_others_export_it():
    for _ in range(100):
        tensor = from_dlpack(numpy.zeros(3))
        managed = []

        def export(tensor=tensor, managed=managed):
            try:
                while True:
                    managed.append(tensor.export_share())
            except ValueError as error:
                assert "closed" in str(error)

        worker = threading.Thread(target=export)
        worker.start()
        soon(lambda managed=managed: managed)
        tensor.close()
        worker.join()
        for address in managed:
            Tensor.import_dlpack(address).close()
    assert devexchange.outstanding() == 0


# --- the end of the interpreter ---


PRELUDE = """
    import ctypes, sys
    sys.path.insert(0, sys.argv[1])
    import numpy, devexchange
    from structs import Managed
    from tables import build
"""

# Each program keeps memory past `Py_Finalize`; the process then calls `late` on a thread that it starts.
LATE = """
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    static void (*release)(void *);
    static void *managed;
    static int freed;
    void note(void *unused) { (void)unused; freed++; }
    static void *on_thread(void *unused) { release(managed); return unused; }
    static void late(void) {
      pthread_t thread;
      pthread_create(&thread, NULL, on_thread, NULL);
      pthread_join(thread, NULL);
      printf("freed %d\\n", freed);
    }
    void at_exit(void (*function)(void *), void *thing) {
      release = function;
      managed = thing;
      atexit(late);
    }
"""

WITH_LATE = (
    PRELUDE
    + f"""
    import pathlib, tempfile
    source = pathlib.Path(tempfile.mkdtemp()) / "late.c"
    source.write_text({textwrap.dedent(LATE)!r})
    late = build(source)

    def at_exit(managed):
        deleter = ctypes.cast(Managed.from_address(managed).deleter, ctypes.c_void_p)
        late.at_exit(deleter, ctypes.c_void_p(managed))
"""
)


def test_memory_of_a_c_producer_is_released_by_a_raw_thread_after_python():
    program = (
        WITH_LATE
        + """
    shape = (ctypes.c_int64 * 1)(4)
    values = (ctypes.c_float * 4)()
    theirs = Managed(major=1, minor=3)
    theirs.deleter = ctypes.cast(late.note, type(theirs.deleter))
    theirs.dl_tensor.data, theirs.dl_tensor.device_type, theirs.dl_tensor.ndim = ctypes.addressof(values), 1, 1
    theirs.dl_tensor.code, theirs.dl_tensor.bits, theirs.dl_tensor.lanes = 2, 32, 1
    theirs.dl_tensor.shape = shape
    # The struct and what it points to outlive Python.
    for each in (shape, values, theirs):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    managed = devexchange.Tensor.import_dlpack(ctypes.addressof(theirs)).export_share()
    at_exit(managed)
    """
    )
    assert run(program, str(TESTS)) == "freed 1\n"


def test_memory_of_python_is_left_to_the_process():
    program = (
        WITH_LATE
        + """
    managed = devexchange.from_buffer(bytearray(99)).export_share()
    at_exit(managed)
    """
    )
    assert run(program, str(TESTS)) == "freed 0\n"


def test_memory_of_a_program_that_imports_the_package_at_its_end():
    """A handler of `atexit` that is registered by another one is never called."""
    program = (
        WITH_LATE.replace("import numpy, devexchange", "import atexit")
        + """
    @atexit.register
    def handler():
        import devexchange
        at_exit(devexchange.from_buffer(bytearray(99)).export_share())
    """
    )
    assert run(program, str(TESTS)) == "freed 0\n"


def test_errors_of_functions_in_c_when_modules_end():
    """These functions are called without PyO3, which by then does not attach threads any more."""
    program = (
        PRELUDE
        + """
    import builtins
    from tables import FromObject, Table, address, helper, table_of
    theirs = Table(
        major=1,
        minor=3,
        from_object=address(helper.answer_from_object),
        to_object=address(helper.answer_to_object),
        work_stream=address(helper.answer_work_stream),
    )
    class Late:
        def __init__(self):
            self.share, self.show = FromObject(table_of(devexchange.Tensor).from_object), print
            self.out = ctypes.byref(ctypes.c_void_p())
            self.tensor, self.closed = devexchange.empty(3), devexchange.empty(3)
            self.closed.close()
            self.kind = type("Kind", (), {"__dlpack_c_exchange_api__": theirs.capsule()})
            ctypes.c_int.in_dll(helper, "answer_code").value = -1
            self.raises = ctypes.c_int.in_dll(helper, "answer_raises")
        def fails(self, function, *arguments):
            try:
                function(*arguments)
            except (KeyError, RuntimeError, ValueError) as error:
                self.show(type(error).__name__)
        def __del__(self):
            self.fails(self.share, id(self.closed), self.out)
            self.fails(self.tensor.to, self.kind)
            self.raises.value = 1
            self.fails(self.tensor.to, self.kind)
    # These names go after those of the program.
    builtins.late = Late()
    """
    )
    assert run(program, str(TESTS)) == "InvalidValue\nFailed\nKeyError\n"


def test_interpreter_ends_while_raw_threads_release():
    run(
        PRELUDE
        + """
    import threading, time
    unattached = ctypes.CDLL(build(sys.argv[1] + "/helper.c")._name)
    def go_on():
        while True:
            managed = [devexchange.from_buffer(bytearray(9)).export_share() for _ in range(200)]
            things = (ctypes.c_void_p * len(managed))(*managed)
            deleter = ctypes.cast(Managed.from_address(managed[0]).deleter, ctypes.c_void_p)
            unattached.release_on_threads(deleter, things, ctypes.c_size_t(len(managed)), ctypes.c_size_t(4))
    for _ in range(3):
        threading.Thread(target=go_on, daemon=True).start()
    time.sleep(0.5)
    """,
        str(TESTS),
    )


ASKS = ["from_dlpack(Array())", "from_arrow(table)", "from_cuda_array_interface(Array())", "from_buffer(Array())"]


@pytest.mark.parametrize("call", ASKS)
def test_interpreter_ends_while_daemon_threads_ask_producers(call):
    """CPython before 3.14 ends such a thread within the producer's method, where the method lets other threads run."""
    run(
        PRELUDE
        + f"""
    import contextlib, pyarrow, threading, time
    values, table = numpy.zeros(3), pyarrow.record_batch({{"n": [1, 2]}})
    class Array:
        def __dlpack__(self, **keywords):
            time.sleep(0)
            return values.__dlpack__(**keywords)
        def __dlpack_device__(self):
            time.sleep(0)
            return 1, 0
        @property
        def __cuda_array_interface__(self):
            time.sleep(0)
            raise ValueError
        # Python does not ask this before 3.12.
        def __buffer__(self, flags):
            time.sleep(0)
            return memoryview(values)
    def go_on():
        while True:
            with contextlib.suppress(ValueError, TypeError):
                devexchange.{call}
    for _ in range(3):
        threading.Thread(target=go_on, daemon=True).start()
    time.sleep(0.3)
    """,
        str(TESTS),
    )


@pytest.mark.parametrize("call", ["next(batches)", "manager.allocate(8, (1, 0))", "empty(1, stream=Stream())", "tensor.device"])
def test_interpreter_ends_while_daemon_threads_run_python_for_us(call):
    """As above, but in the program's own iterable, manager and stream, and in classes of the package.

    These threads end like any daemon thread: the end does not wait for one that never comes out."""
    program = (
        PRELUDE
        + f"""
    import contextlib, pyarrow, threading, time
    from devexchange import empty
    schema, tensor = pyarrow.schema([("n", pyarrow.int64())]), empty(1)
    def poll():
        while True:
            time.sleep(0)
        yield
    class Manager:
        def allocate(self, request):
            next(poll())
    class Stream:
        def __cuda_stream__(self):
            time.sleep(0)
            return 0, 0
    manager, batches = devexchange.MemoryManager(Manager()), devexchange.BatchStream.of(schema, poll())
    def go_on():
        while True:
            with contextlib.suppress(devexchange.Error):
                {call}
    for _ in range(3):
        threading.Thread(target=go_on, daemon=True).start()
    time.sleep(0.3)
    """
    )
    begun = time.monotonic()
    run(program, str(TESTS))
    assert time.monotonic() - begun < 8


ENDS = ["from_buffer(Memory(8))", "MemoryManager(Manager())", "empty(1, manager=manager)", "BatchStream.of(schema, Batches())"]


@pytest.mark.parametrize("call", ENDS)
def test_interpreter_ends_while_daemon_threads_give_up_objects(call):
    """As above, but in the program's own code that runs when the last reference to an object goes."""
    run(
        PRELUDE
        + f"""
    import contextlib, pyarrow, threading, time
    from devexchange import BatchStream, MemoryManager, empty, from_buffer
    class Ends:
        def __del__(self):
            time.sleep(0)
    class Memory(Ends, bytearray):
        pass
    class Release(Ends):
        def __call__(self):
            pass
    class Manager(Ends):
        def allocate(self, request):
            return kept.ctypes.data, Release()
    class Batches(Ends):
        def __iter__(self):
            return self
        def __next__(self):
            raise StopIteration
    kept, schema, manager = numpy.zeros(1), pyarrow.schema([("n", pyarrow.int64())]), MemoryManager(Manager())
    def go_on():
        while True:
            with contextlib.suppress(devexchange.Error):
                {call}
    for _ in range(3):
        threading.Thread(target=go_on, daemon=True).start()
    time.sleep(0.3)
    """,
        str(TESTS),
    )


def test_releases_while_another_library_has_the_main_thread_call_it():
    """From CPython 3.13 on, a thread may let others run Python while it asks for such a call."""
    run(
        PRELUDE
        + """
    import threading, time
    unattached = ctypes.CDLL(build(sys.argv[1] + "/helper.c")._name)
    sys.setswitchinterval(1e-5)
    end = time.monotonic() + 3
    def go_on():
        while time.monotonic() < end:
            devexchange.from_buffer(bytearray(9)).close()
    assert unattached.begin_to_ask_for_calls() == 0
    threads = [threading.Thread(target=go_on) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    unattached.end_to_ask_for_calls()
    """,
        str(TESTS),
    )


# --- threads that end ---


def test_calls_of_a_thread_that_ends():
    """The destructors of the thread's own variables have run by then."""
    given, schema = [], pyarrow.schema([("n", pyarrow.int64())])
    name = f"@ends-{os.getpid()}"
    with ipc.Server(name) as server, from_buffer(bytearray(b"ab")) as tensor:
        server.offer("t", tensor)
        with ipc.Client(name) as client, devexchange.BatchStream.of(schema, iter([])) as stream:

            def call():
                given.append(next(stream, None))
                with client.tensor("t") as imported:
                    given.append(bytes(imported))

            call = ctypes.CFUNCTYPE(None)(call)
            assert unattached.call_at_the_end_of_a_thread(call) == 0
    assert given == [None, b"ab"] * 2


# --- fork ---


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_of_a_fork_may_use_and_release_what_it_inherits():
    array = numpy.arange(4.0)
    tensor, lent = from_dlpack(array), from_buffer(bytearray(b"abcd"))
    managed = lent.export_share()
    # Another thread is busy with releases when the process forks.
    stop = threading.Event()

    def release():
        while not stop.is_set():
            Tensor.import_dlpack(from_buffer(bytearray(3)).export_share()).close()

    worker = threading.Thread(target=release)
    worker.start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert numpy.from_dlpack(tensor).tolist() == [0, 1, 2, 3]
                Tensor.import_dlpack(managed).close()
                tensor.close()
                lent.close()
                from_dlpack(array).close()
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    stop.set()
    worker.join()
    # The parent's objects still belong to it.
    Tensor.import_dlpack(managed).close()
    assert numpy.from_dlpack(tensor).tolist() == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_of_a_fork_releases_whatever_threads_without_a_gil_did():
    for _ in range(10):
        lent = [from_buffer(bytearray(3)).export_share() for _ in range(20000)]
        mine = from_buffer(bytearray(3)).export_share()
        worker = threading.Thread(target=delete_on_threads, args=(lent, 2))
        worker.start()
        for _ in range(4):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                Tensor.import_dlpack(mine).close()
                os._exit(0)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
        worker.join()
        Tensor.import_dlpack(mine).close()


def use_what_was_inherited(tensor, managed, batch):
    """Runs in a process of `multiprocessing`, which ends with its own handlers."""
    assert numpy.from_dlpack(tensor).tolist() == [0, 1, 2, 3]
    Tensor.import_dlpack(managed).close()
    assert batch.to_pylist() == [{"n": 1}, {"n": 2}]
    from_dlpack(numpy.arange(3.0)).close()
    tensor.close()
    batch.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_of_multiprocessing_inherit_what_is_handed_out():
    tensor, lent = from_dlpack(numpy.arange(4.0)), from_buffer(bytearray(b"abcd"))
    batch = from_arrow(pyarrow.record_batch({"n": [1, 2]}))
    managed = lent.export_share()
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=use_what_was_inherited, args=(tensor, managed, batch)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    # The parent's objects still belong to it.
    Tensor.import_dlpack(managed).close()
    use_what_was_inherited(tensor, lent.export_share(), batch)
