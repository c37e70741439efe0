"""A JVM in the Python process: each has its own library of ours, with its own core.

They hand each other tensors and batches by address. `DEVX_JAR` names the jar of the Java binding."""

import ctypes
import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import jpype
import numpy
import pyarrow
import pytest

import devexchange
from devexchange import RecordBatch, Tensor, from_arrow, from_dlpack

JAR = os.environ["DEVX_JAR"]
CHECKOUT = Path(__file__).parents[3]


@pytest.fixture(scope="module", autouse=True)
def jvm():
    if not jpype.isJVMStarted():
        jpype.startJVM(classpath=[JAR])


@pytest.fixture(autouse=True)
def nothing_outstanding(jvm):
    yield
    gc.collect()
    java().ReleaseQueue.flush(jpype.java.time.Duration.ofSeconds(120))
    assert (devexchange.outstanding(), int(java().DevExchange.outstanding())) == (0, 0)


def java():
    return jpype.JPackage("dev").devexchange


def documented_program():
    """The program after the line `<!-- jvm -->`, and its output."""
    pattern = r"<!-- jvm -->\n```python\n(.*?)```.*?<!-- jvm output -->\n```text\n(.*?)```"
    found = re.search(pattern, (CHECKOUT / "docs/guide.md").read_text(), re.S)
    assert found, "the guide has no such program"
    return found.groups()


def test_program_of_the_guide():
    """Uses PyTorch in `make test-torch`, otherwise NumPy, which has the functions that the program needs, too."""
    program, expected = documented_program()
    if os.environ.get("DEVX_TORCH") != "1":
        program = "import sys, numpy; sys.modules['torch'] = numpy\n" + program
    command = [sys.executable, "-c", program]
    child = subprocess.run(command, capture_output=True, text=True, cwd=CHECKOUT, timeout=300)
    assert (child.returncode, child.stdout) == (0, expected), child.stderr


def test_each_side_has_a_ledger_of_its_own():
    tensor = from_dlpack(numpy.arange(3.0))
    before = int(java().DevExchange.outstanding())
    seen = java().Tensor.importDlpack(tensor.export_share())
    assert int(java().DevExchange.outstanding()) == before + 1
    tensor.close()
    assert devexchange.outstanding() > 0
    seen.close()
    assert devexchange.outstanding() == 0


def test_tensor_of_java_in_python():
    released = []

    @jpype.JImplements("java.lang.Runnable")
    class Release:
        @jpype.JOverride
        def run(self):
            released.append(True)

    memory, shape = direct(6), jpype.JLong[:]([2, 3])
    theirs = java().Tensor.create(memory, java().DType.FLOAT64, shape, Release())
    tensor = Tensor.import_dlpack(int(theirs.exportMove()))
    assert (tensor.shape, tensor.dtype, tensor.device) == ((2, 3), "float64", (1, 0))
    seen = numpy.from_dlpack(tensor)
    tensor.close()
    assert seen.tolist() == [[0, 1, 2], [3, 4, 5]] and not released
    del seen
    java().ReleaseQueue.flush(jpype.java.time.Duration.ofSeconds(120))
    assert released == [True]


def direct(n):
    nio = jpype.java.nio
    memory = nio.ByteBuffer.allocateDirect(8 * n).order(nio.ByteOrder.nativeOrder())
    memory.asDoubleBuffer().put(jpype.JDouble[:]([float(i) for i in range(n)]))
    return memory


def test_batch_in_both_directions():
    source = pyarrow.record_batch({"n": [1, None, 3], "s": ["a", "b", None]})
    # Room for an ArrowArray, whose release is the ninth word, and for an ArrowSchema.
    array, schema = (ctypes.c_void_p * 10)(), (ctypes.c_void_p * 9)()
    addresses = [ctypes.addressof(struct) for struct in (array, schema)]
    with from_arrow(source) as batch:
        batch.export_share(addresses[0])
        batch.schema.export_arrow(addresses[1])
    theirs = java().Batch.importArrow(*map(jpype.JLong, addresses))
    assert (int(theirs.length()), array[8]) == (3, None)
    with theirs.schema() as described:
        described.exportArrow(jpype.JLong(addresses[1]))
    theirs.exportMove(jpype.JLong(addresses[0]))
    with RecordBatch.import_arrow(*addresses) as batch:
        assert batch.to_pylist() == source.to_pylist()


def test_releases_on_threads_of_java():
    """The last user of each side's memory is on a thread of the other runtime."""
    kept = [bytearray(8) for _ in range(100)]
    theirs = [java().Tensor.importDlpack(devexchange.from_buffer(each).export_share()) for each in kept]

    @jpype.JImplements("java.lang.Runnable")
    class Close:
        @jpype.JOverride
        def run(self):
            for each in theirs:
                each.close()

    thread = jpype.java.lang.Thread(Close())
    thread.start()
    thread.join()
    devexchange.from_buffer(b"").close()
    for each in kept:
        each.append(1)


def test_ten_thousand_exchanges():
    tensor = from_dlpack(numpy.arange(6.0))
    for _ in range(10_000):
        java().Tensor.importDlpack(tensor.export_share()).close()
