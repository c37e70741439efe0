"""Host memory shared with other processes."""

import copy
import errno
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from importlib.resources import files
from itertools import count
from pathlib import Path

import numpy
import pyarrow
import pytest
from peer import Exporter, Peer, PeerError, soon

import devexchange
from devexchange import from_arrow, from_buffer, from_dlpack, ipc

_numbers = count()
VALUES = numpy.arange(6, dtype="f4").reshape(2, 3)
TABLE = {"number": [1, None, 3], "text": ["a", None, "ccc"], "list": [[1, 2], [], None]}


def fresh():
    return f"@devexchange-python-{os.getpid()}-{next(_numbers)}"


@contextmanager
def serving(**offers):
    """A server that is closed when everything has been given back."""
    with ipc.Server(fresh()) as server:
        for name, thing in offers.items():
            server.offer(name, thing)
        yield server
        soon(lambda: server.leases == 0)


@pytest.mark.parametrize("empty", [devexchange.empty, lambda shape: ipc.empty_shared(shape, "float64")])
def test_shape_of_new_memory(empty):
    shapes = [(3, (3,)), ([2, 3], (2, 3)), ((), ()), (numpy.int64(3), (3,)), (numpy.uint8([2, 3]).tolist(), (2, 3))]
    for given, shape in [
        *shapes,
        ((numpy.int32(2), numpy.int64(3)), (2, 3)),
        (numpy.array(4), (4,)),
        (range(1, 3), (1, 2)),
    ]:
        assert empty(given).shape == shape
    for given, text in [
        (2.0, "shape is 2.0: an int or a sequence of them was expected"),
        ("3", "shape has '3': an int was expected"),
        ([2, 3.0], "shape has 3.0: an int was expected"),
        ({3}, "shape is {3}: an int or"),
        (None, "shape is None: an int or"),
    ]:
        with pytest.raises(TypeError, match=re.escape(text)):
            empty(given)
    for given, text in [
        (2**63, f"shape has {2**63}: more than 64 bits"),
        ([1, -(2**64)], "more than 64 bits"),
        (-1, "-1"),
    ]:
        with pytest.raises(devexchange.InvalidValue, match=text):
            empty(given)


def shared(values=VALUES):
    tensor = ipc.empty_shared(values.shape, values.dtype)
    numpy.from_dlpack(tensor)[...] = values
    return tensor


def importer(server):
    return Peer(f"import numpy; from devexchange import ipc; client = ipc.Client({server.address!r})")


# --- between processes ---


def test_tensor_is_the_same_memory_in_both_processes():
    tensor = shared()
    here = numpy.from_dlpack(tensor)
    with serving() as server, importer(server) as peer:
        server.offer("values", tensor, copy=False)
        peer.run("tensor = client.tensor('values'); there = numpy.from_dlpack(tensor)")
        assert peer.run("tensor.shape, tensor.dtype, tensor.read_only, tensor.is_copied") == (
            (2, 3),
            "float32",
            False,
            False,
        )
        assert peer.run("there.tolist()") == VALUES.tolist()
        here[0, 0] = 10
        peer.run("there[1, 2] = 20")
        assert (peer.run("float(there[0, 0])"), here[1, 2]) == (10, 20)
        assert server.leases == 1
        peer.run("del tensor, there")
        soon(lambda: server.leases == 0)


@pytest.mark.parametrize("offered", [VALUES.T, VALUES[::-1, ::2], VALUES[:0], numpy.float64(3)[...], b"bytes"])
def test_memory_of_other_libraries_is_copied(offered):
    values = numpy.frombuffer(offered, "u1") if isinstance(offered, bytes) else offered
    thing = from_buffer(offered) if isinstance(offered, bytes) else offered
    plan = ipc.plan(thing)
    assert plan[:2] == (("copy", values.nbytes) if values.size else ("view", 0))
    with serving(values=thing) as server, importer(server) as peer:
        assert peer.run("numpy.from_dlpack(client.tensor('values')).tolist()") == values.tolist()


def test_copy_is_made_only_if_it_may():
    with serving() as server:
        with pytest.raises(BufferError, match="memory of this process alone"):
            server.offer("values", VALUES, copy=False)
        with pytest.raises(BufferError, match="memory of this process alone"):
            server.offer("table", pyarrow.record_batch(TABLE), copy=False)
        tensor = shared()
        server.offer("values", tensor, copy=True)
        with ipc.Client(server.address) as client:
            copied = client.tensor("values")
        # The tensor is a copy, but was not made for this importer alone.
        assert copied.data_ptr != tensor.data_ptr and not copied.is_copied
        copied.close()


@pytest.mark.parametrize("ours", [True, False])
def test_batch_with_nulls_and_texts(ours):
    source = pyarrow.record_batch(TABLE)
    assert ipc.plan(source).kind == "copy"
    with serving(table=from_arrow(source) if ours else source) as server, importer(server) as peer:
        peer.run("import pyarrow; batch = client.batch('table')")
        assert peer.run("batch.to_pylist()") == source.to_pylist()
        assert peer.run("pyarrow.record_batch(batch).to_pydict()") == TABLE
        assert peer.run("pyarrow.record_batch(batch).column(0).null_count") == 1
        # A batch from another process can be offered again without a copy.
        assert peer.run("tuple(ipc.plan(batch))") == ("view", 0, "")


@pytest.mark.parametrize("kind", ["slice", "dictionary", "no rows", "no columns", "array"])
def test_batches_of_all_kinds(kind):
    source = {
        "slice": pyarrow.record_batch(TABLE).slice(1),
        "dictionary": pyarrow.record_batch({"d": pyarrow.array(["u", "v", None, "u"]).dictionary_encode()}),
        "no rows": pyarrow.record_batch(TABLE).slice(3),
        "no columns": pyarrow.record_batch(TABLE).select([]),
        "array": pyarrow.array(["a", None]),
    }[kind]
    with serving(batch=source) as server, importer(server) as peer:
        assert peer.run("client.batch('batch').to_pylist()") == source.to_pylist()


def test_parts_of_a_batch():
    source = pyarrow.record_batch({"n": range(100_000), "t": [str(i) for i in range(100_000)]})
    ours = from_arrow(source)
    rows, column = ours.slice(50_000, 10), ours["n"][99_998:]
    # Only the visible numbers are copied, but all texts that the offsets count from.
    assert ipc.plan(ours["n"][50_000:50_010]).copy_bytes == 128
    with serving(rows=rows, column=column) as server, importer(server) as peer:
        assert peer.run("client.batch('rows').to_pylist()") == source.slice(50_000, 10).to_pylist()
        assert peer.run("client.batch('column').to_pylist()") == [99_998, 99_999]
        assert peer.run("tuple(ipc.plan(client.batch('rows').slice(1)))") == ("view", 0, "")


def test_empty_batch_goes_on_to_arrow():
    """Arrow C++ reads the first offset of a list and the sizes of view data even if there are no rows."""
    views = pyarrow.array(["longer than twelve bytes"], pyarrow.string_view())
    assert len(views.buffers()) == 3
    source = pyarrow.record_batch({"view": views[:0], "list": pyarrow.array([], pyarrow.list_(pyarrow.int64()))})
    with serving(batch=source) as server, importer(server) as peer:
        peer.run("import pyarrow; seen = pyarrow.record_batch(client.batch('batch'))")
        assert peer.run("seen.to_pydict()") == {"view": [], "list": []}
        assert peer.run("str(seen.schema)") == str(source.schema)


def test_batch_with_many_columns():
    """The description of the batch is longer than a message."""
    source = pyarrow.record_batch({f"a column with a long name and the number {i}": [i, None] for i in range(600)})
    with serving(batch=source) as server, importer(server) as peer:
        assert peer.run("client.batch('batch').to_pylist()") == source.to_pylist()


def test_allocation_is_opened_once():
    tensor = shared(numpy.arange(1 << 18))
    rows = from_dlpack(numpy.from_dlpack(tensor)[1000:])
    with serving(whole=tensor, rows=rows) as server, importer(server) as peer:
        peer.run("held = [client.tensor('whole') for _ in range(50)] + [client.tensor('rows') for _ in range(50)]")
        assert server.leases == 2
        assert peer.run("len({tensor.data_ptr for tensor in held})") == 2
        assert peer.run("held[50].data_ptr - held[0].data_ptr") == 8000
        assert peer.run("sum('memfd:devexchange ' in line for line in open('/proc/self/maps'))") == 1
        peer.run("del held")


def test_killed_importer_has_nothing_any_more():
    with serving() as server, importer(server) as peer:
        server.offer("values", shared())
        server.offer("again", shared())
        peer.run("held = [client.tensor('values'), client.tensor('again'), client.tensor('values')]")
        server.withdraw("values")
        server.withdraw("again")
        assert server.leases == 2
        peer.kill()
        soon(lambda: server.leases == devexchange.outstanding() == 0)


def test_importer_that_ends_without_releasing_has_nothing_any_more():
    with serving(values=shared()) as server, importer(server) as peer:
        peer.run("import os, builtins; builtins.held = client.tensor('values')")
        assert server.leases == 1
        peer.process.stdin.write(repr("os._exit(0)") + "\n")
        peer.end()
        soon(lambda: server.leases == 0)


def test_memory_of_a_killed_exporter_stays_valid():
    address = fresh()
    with Peer("import numpy, pyarrow; from devexchange import ipc") as peer:
        peer.run(f"server = ipc.Server({address!r})")
        peer.run("tensor = ipc.empty_shared(4, 'int32'); numpy.from_dlpack(tensor)[:] = [1, 2, 3, 4]")
        peer.run(f"server.offer('t', tensor); server.offer('b', pyarrow.record_batch({TABLE!r}))")
        with ipc.Client(address) as client:
            tensor, batch = client.tensor("t"), client.batch("b")
            peer.kill()
            with pytest.raises(ValueError, match="the exporter is gone"):
                client.tensor("t")
        assert numpy.from_dlpack(tensor).tolist() == [1, 2, 3, 4]
        assert pyarrow.record_batch(batch).to_pydict() == TABLE
        with pytest.raises(OSError, match="connect: "):
            ipc.Client(address)
        # A new exporter can take the address, and offers the old one's memory again.
        with serving(again=tensor) as server, importer(server) as other:
            assert other.run("numpy.from_dlpack(client.tensor('again')).tolist()") == [1, 2, 3, 4]


def add_one(address):
    with ipc.Client(address) as client, client.tensor("values") as tensor:
        numpy.from_dlpack(tensor)[...] += 1


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_multiprocessing(method):
    tensor = shared()
    with serving(values=tensor) as server:
        workers = [
            multiprocessing.get_context(method).Process(target=add_one, args=(server.address,)) for _ in range(2)
        ]
        for worker in workers:
            worker.start()
            worker.join(300)
            assert worker.exitcode == 0
    assert numpy.from_dlpack(tensor).tolist() == (VALUES + 2).tolist()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_fork_has_no_part_in_what_its_parent_offers():
    """The child has no thread that would answer for it."""
    with serving(values=VALUES) as server:
        child = os.fork()
        if child == 0:
            try:
                refused = []
                for thing in [VALUES, from_arrow(pyarrow.record_batch(TABLE))]:
                    with pytest.raises(BufferError, match="the server is of process .*, of which this is a fork"):
                        server.offer("values", thing)
                    refused.append(thing)
                with pytest.raises(BufferError, match="the server is of process .*, of which this is a fork"):
                    server.withdraw("values")
                os._exit(0 if len(refused) == 2 else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        with ipc.Client(server.address) as client:
            assert client.tensor("values").shape == (2, 3)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_fork_has_no_part_in_its_parents_connections():
    with serving(values=shared()) as server, ipc.Client(server.address) as client:
        tensor = client.tensor("values")
        child = os.fork()
        if child == 0:
            try:
                client.tensor("values")
            except devexchange.Refused as error:
                tensor.close()
                server.close()
                os._exit(0 if "this is a fork" in str(error) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert server.leases == 1
        assert numpy.from_dlpack(client.tensor("values")).tolist() == VALUES.tolist()
        tensor.close()


def test_signals_are_the_programs():
    """Signals that the program's threads block and wait for are not delivered to a thread of the library."""
    program = """if True:
        import os, signal
        from devexchange import ipc
        server = ipc.Server(f"@devexchange-signals-{os.getpid()}")
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        os.kill(os.getpid(), signal.SIGTERM)
        print(signal.sigwait({signal.SIGTERM}).name)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "SIGTERM\n")


# --- in one process ---


def test_offers_and_their_ends():
    server = ipc.Server(fresh())
    client = ipc.Client(server.address)
    assert repr(client) == f"<devexchange.ipc.Client {server.address!r}>"
    server.offer("values", shared())
    first = client.tensor("values")
    server.offer("values", shared(VALUES + 1))
    second = client.tensor("values")
    assert (numpy.from_dlpack(first)[0, 0], numpy.from_dlpack(second)[0, 0]) == (0, 1)
    assert (server.withdraw("values"), server.withdraw("values")) == (True, False)
    with pytest.raises(ValueError, match='"values": nothing is offered under it'):
        client.tensor("values")
    for thing, use in [(server, lambda: server.leases), (client, lambda: client.tensor("values"))]:
        for _ in range(2):
            thing.close()
        assert repr(thing).endswith("closed>")
        with pytest.raises(ValueError, match="is closed"):
            use()
    # The imported tensors outlive both ends.
    assert numpy.from_dlpack(second)[1, 2] == 6
    first.close()
    second.close()
    soon(lambda: devexchange.outstanding() == 0)


def test_server_that_is_forgotten_ends():
    address = fresh()
    server = ipc.Server(address)
    client = ipc.Client(address)
    del server
    with pytest.raises(devexchange.Error):
        client.tensor("t")
    ipc.Server(address).close()


@pytest.mark.parametrize("kind", [str, Path])
def test_path_as_an_address(tmp_path, kind):
    path = kind(tmp_path / "socket")
    with ipc.Server(path) as server:
        assert server.address == str(path)
        server.offer("values", VALUES)
        with ipc.Client(path) as client, pytest.raises(TypeError, match="not a batch"):
            client.batch("values")
        soon(lambda: server.leases == 0)
    assert not os.path.exists(path)


@pytest.mark.parametrize("dtype", [numpy.float32, numpy.dtype("f4"), "float32"])
def test_shared_memory_is_zeroed(dtype):
    tensor = ipc.empty_shared((2, 3), dtype)
    assert (tensor.shape, tensor.strides, tensor.dtype, tensor.device) == ((2, 3), (3, 1), "float32", (1, 0))
    assert not numpy.from_dlpack(tensor).any()
    assert ipc.plan(tensor) == ("view", 0, "")
    memoryview(tensor)[1, 2] = 1.0
    assert numpy.from_dlpack(tensor)[1, 2] == 1


@pytest.mark.parametrize("name", ["int4", "int8", "uint64", "float16", "bfloat16", "complex64", "bool", "float8_e4m3"])
def test_types_of_shared_memory(name):
    tensor = ipc.empty_shared(4, name)
    assert (tensor.shape, tensor.dtype) == ((4,), name)


@pytest.mark.parametrize(
    "shape, dtype, kind, text",
    [
        (3, "float33", ValueError, 'dtype is "float33"'),
        (3, str, ValueError, 'dtype is "str"'),
        (3, 4, TypeError, "dtype is 4"),
        (3, None, TypeError, "dtype is None"),
        (-1, "int8", ValueError, "shape"),
        ((1 << 40, 1 << 40), "int8", ValueError, "shape"),
        ((1,) * 65, "int8", ValueError, "65"),
        ("ab", "int8", TypeError, None),
        (None, "int8", TypeError, None),
        (1.5, "int8", TypeError, None),
        (1 << 50, "int8", MemoryError, "shared memory"),
    ],
)
def test_shared_memory_that_cannot_be(shape, dtype, kind, text):
    with pytest.raises(kind, match=text):
        ipc.empty_shared(shape, dtype)


def test_bad_arguments():
    for address in ["", "@", "x" * 200, "@\ud800"]:
        for make in [ipc.Server, ipc.Client]:
            with pytest.raises(ValueError, match="address is"):
                make(address)
    for timeout in [-1, float("nan"), -float("inf")]:
        with pytest.raises(ValueError, match="timeout is"):
            ipc.Client("@nobody", timeout=timeout)
    with pytest.raises(devexchange.SystemFailed, match="connect: ") as refused:
        ipc.Client("@devexchange-nobody-is-here")
    assert (refused.value.errno, refused.value.status) == (errno.ECONNREFUSED, 29)
    with serving() as server:
        for forever in [None, float("inf"), 1e300]:
            ipc.Client(server.address, timeout=forever).close()
        with pytest.raises(devexchange.SystemFailed, match="bind: "):
            ipc.Server(server.address)
        for name in ["", "x" * 256]:
            with pytest.raises(ValueError, match="name has"):
                server.offer(name, VALUES)
        for thing in [1, None, "text"]:
            with pytest.raises(TypeError, match="has neither"):
                server.offer("thing", thing)
        with pytest.raises(TypeError, match="has only __arrow_c_stream__, of which from_arrow gives the batches"):
            server.offer("thing", pyarrow.table(TABLE))
        closed = shared()
        closed.close()
        with pytest.raises(ValueError, match="the tensor is closed"):
            server.offer("thing", closed)
        with pytest.raises(TypeError):
            server.offer(1, VALUES)
        with ipc.Client(server.address) as client:
            for name in ["", "x" * 256]:
                with pytest.raises(ValueError, match="name has"):
                    client.tensor(name)
            with pytest.raises(ValueError, match="nothing is offered"):
                client.tensor("näme")
            server.offer("näme", pyarrow.record_batch(TABLE))
            with pytest.raises(TypeError, match="not a tensor"):
                client.tensor("näme")
            assert client.batch("näme").to_pylist()


def test_waiting_lets_other_threads_run():
    address, asked, done, raised = fresh(), threading.Event(), threading.Event(), []

    def leave(raw, request):
        asked.set()
        return done.wait(120)

    with Exporter(address, leave), ipc.Client(address, timeout=60) as client:

        def ask():
            try:
                client.tensor("t")
            except ValueError as error:
                raised.append(str(error))

        thread = threading.Thread(target=ask)
        thread.start()
        asked.wait()
        for _ in range(50):
            time.sleep(0.001)
        # The exporter leaves because of the turns here, and before the limit.
        done.set()
        thread.join()
    assert "the exporter is gone" in raised[0]


def test_many_threads_share_a_client():
    with serving(values=shared()) as server, ipc.Client(server.address) as client:

        def pull():
            for _ in range(100):
                with client.tensor("values") as tensor:
                    assert numpy.from_dlpack(tensor)[1, 2] == 5

        threads = [threading.Thread(target=pull) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_errors_of_the_other_process_come_as_such():
    with serving() as server, importer(server) as peer, pytest.raises(PeerError) as caught:
        peer.run("client.tensor('missing')")
    assert caught.value.args[0] == "InvalidValue" and "nothing is offered" in caught.value.args[1]


def test_everything_is_declared_and_described():
    stub = files(devexchange).joinpath("_native.pyi").read_text()
    for thing in [getattr(ipc, name) for name in ipc.__all__]:
        assert thing.__doc__
        kind = "class" if isinstance(thing, type) else "def"
        assert f"{kind} {thing.__name__}(" in stub
        for member in [name for name in getattr(thing, "__dict__", ()) if not name.startswith("_")]:
            assert getattr(thing, member).__doc__ and f" {member}" in stub, (thing, member)


class GivesBytes:
    def __fspath__(self):
        return b"/tmp/socket"


@pytest.mark.parametrize("address", [5, None, b"/tmp/socket", GivesBytes()])
def test_address_that_is_no_path(address):
    for kind in [ipc.Server, ipc.Client]:
        with pytest.raises(TypeError, match="address is .*: a str, or an os.PathLike that gives one, was expected"):
            kind(address)


def test_error_that_is_copied_has_its_number():
    with pytest.raises(devexchange.SystemFailed) as raised:
        ipc.Client("/nowhere/socket")
    error = raised.value
    error.add_note("seen")
    for again in [copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))]:
        assert (type(again), str(again), again.errno) == (devexchange.SystemFailed, str(error), errno.ENOENT)
        assert (again.status, again.status_name, again.__notes__) == (error.status, "DEVX_SYSTEM", ["seen"])
