"""Releases without the GIL, races for capsules, threads that end, and forks."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
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


# --- releases while Python runs ---


def test_releases_while_another_library_has_the_main_thread_call_it():
    """From CPython 3.13 on, a thread may let others run Python while it asks for such a call."""
    run(
        """
    import ctypes, sys, threading, time
    sys.path.insert(0, sys.argv[1])
    import devexchange
    from tables import build
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
                signal.alarm(120)
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
