"""What happens when the interpreter ends: to memory that outlives it, and to threads that still use the package."""

import textwrap
import time
from pathlib import Path

import pytest
from programs import run

TESTS = Path(__file__).parents[1]
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


def end_meanwhile(program):
    """Runs a program that defines `go_on`, and ends it while three daemon threads call that. Returns when its end began."""
    begin = """
    import contextlib, pyarrow, threading, time
"""
    end = """
    for _ in range(3):
        threading.Thread(target=go_on, daemon=True).start()
    time.sleep(0.3)
    print(time.monotonic())
"""
    return float(run(PRELUDE + begin + program + end, str(TESTS)))


ASKS = ["from_dlpack(Array())", "from_arrow(table)", "from_cuda_array_interface(Array())", "from_buffer(Array())"]


@pytest.mark.parametrize("call", ASKS)
def test_interpreter_ends_while_daemon_threads_ask_producers(call):
    """CPython before 3.14 ends such a thread within the producer's method, where the method lets other threads run."""
    end_meanwhile(
        f"""
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
    """
    )


@pytest.mark.parametrize("call", ["next(batches)", "manager.allocate(8, (1, 0))", "empty(1, stream=Stream())", "tensor.device"])
def test_interpreter_ends_while_daemon_threads_run_python_for_us(call):
    """As above, but in the program's own iterable, manager and stream, and in classes of the package.

    These threads end like any daemon thread: the end does not wait for one that never comes out."""
    program = f"""
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
    """
    begun = end_meanwhile(program)
    assert time.monotonic() - begun < 8


ENDS = ["from_buffer(Memory(8))", "MemoryManager(Manager())", "empty(1, manager=manager)", "BatchStream.of(schema, Batches())"]


@pytest.mark.parametrize("call", ENDS)
def test_interpreter_ends_while_daemon_threads_give_up_objects(call):
    """As above, but in the program's own code that runs when the last reference to an object goes."""
    end_meanwhile(
        f"""
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
    """
    )
