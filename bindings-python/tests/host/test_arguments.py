"""Errors about an argument name it, and show what was given."""

import os
import re

import numpy
import programs
import pyarrow
import pytest

import devexchange
from devexchange import AsyncReader, AsyncWriter, RecordBatch, empty, from_arrow, from_dlpack, ipc


def tensor():
    return from_dlpack(numpy.zeros((2, 2)))


def batch():
    return from_arrow(pyarrow.record_batch({"n": [1.5]}))


COPIES = {
    "from_dlpack": lambda copy: from_dlpack(numpy.zeros(2), copy=copy),
    "__dlpack__": lambda copy: tensor().__dlpack__(copy=copy),
    "to_column": lambda copy: tensor().to_column(copy=copy),
    "to_batch": lambda copy: tensor().to_batch(copy=copy),
    "to_fixed_shape_column": lambda copy: tensor().to_fixed_shape_column(copy=copy),
    "to_matrix": lambda copy: batch().to_matrix(copy=copy),
    "__array__ of a tensor": lambda copy: tensor().__array__(copy=copy),
    "__array__ of a batch": lambda copy: batch().__array__(copy=copy),
    "to_tensor": lambda copy: batch()["n"].to_tensor(copy=copy),
    "__dlpack__ of a column": lambda copy: batch()["n"].__dlpack__(max_version=(1, 0), copy=copy),
    "__array__ of a column": lambda copy: batch()["n"].__array__(copy=copy),
}


@pytest.mark.parametrize("call", COPIES.values(), ids=COPIES.keys())
def test_copy(call):
    for wrong in (0, 1, "no"):
        with pytest.raises(TypeError, match=f"^copy is {wrong!r}: True, False or None was expected"):
            call(wrong)
    for right in (True, None, numpy.True_):
        call(right)


def test_copy_of_an_offer():
    match = "^copy is 0: True, False or None was expected"
    with ipc.Server(f"@test-arguments-copy-{os.getpid()}") as server, pytest.raises(TypeError, match=match):
        server.offer("n", tensor(), copy=0)


def test_timeout():
    with AsyncReader() as reader, AsyncWriter(reader.handler()) as writer:
        writer.start(batch().schema)
        address = "@test-arguments-timeout"
        for call in (
            reader.wait_for_batch,
            reader.wait_for_schema,
            writer.wait_until_ready,
            lambda timeout: ipc.Client(address, timeout=timeout),
        ):
            for wrong in ("1", [1]):
                with pytest.raises(
                    TypeError, match=re.escape(f"timeout is {wrong!r}: a number of seconds, or None, was expected")
                ):
                    call(wrong)
        for right in (0, 0.0, numpy.float32(0), numpy.int8(0)):
            with pytest.raises(TimeoutError):
                reader.wait_for_batch(right)


class Seconds:
    def __float__(self):
        raise TypeError("mine")


def test_what_a_timeout_raises_goes_on():
    with AsyncReader() as reader, AsyncWriter(reader.handler()) as writer:
        writer.start(batch().schema)
        with pytest.raises(TypeError, match="^mine\\b"):
            reader.wait_for_batch(Seconds())


@pytest.mark.parametrize("shape", [numpy.array([2, 3]), [numpy.array([2, 3])], (1, numpy.array([]))])
def test_shape_of_an_array(shape):
    """An array of NumPy has ``__index__``, but stands for a number only if it has one element."""
    with pytest.raises(
        TypeError, match=r"^shape has array\(.*\): an int was expected; tuple\(array\) makes a shape"
    ) as raised:
        empty(shape)
    assert "only integer scalar arrays" in str(raised.value.__cause__)
    assert empty(tuple(numpy.array([2, 3]))).shape == (2, 3) and empty(numpy.array(4)).shape == (4,)


def test_texts_that_are_no_unicode():
    bad = "\udcff"
    with ipc.Server(f"@test-arguments-{os.getpid()}") as server, ipc.Client(server.address) as client:
        for call, what in [
            (lambda: RecordBatch.of({bad: batch()["n"]}), "columns has"),
            (lambda: tensor().to_batch(["a", bad]), "names has"),
            (lambda: server.offer(bad, tensor()), "name is"),
            (lambda: server.withdraw(bad), "name is"),
            (lambda: client.tensor(bad), "name is"),
            (lambda: client.batch(bad), "name is"),
        ]:
            with pytest.raises(devexchange.InvalidValue) as raised:
                call()
            assert (str(raised.value), raised.value.status_name) == (
                f"{what} {bad!r}: not valid Unicode",
                "DEVX_INVALID_TEXT",
            )
        for call in (client.tensor, client.batch, server.withdraw, lambda name: server.offer(name, tensor())):
            with pytest.raises(TypeError, match="^name is 1: a str was expected$"):
                call(1)


def test_manager_in_python_without_a_handle_for_other_processes(no_driver):
    class Small:
        def allocate(self, request):
            raise MemoryError

    with pytest.raises(
        devexchange.Refused, match="^the manager has no ipc_handle, so the driver was asked: there is no CUDA"
    ):
        devexchange.MemoryManager(Small()).ipc_handle(1)


def test_errors_without_memory():
    """Python has no memory for an error or its text: that is a MemoryError, and not the end of the process."""
    pytest.importorskip("_testcapi")
    output = programs.run("""
        import _testcapi
        import itertools
        import numpy
        import devexchange

        tensor = devexchange.from_dlpack(numpy.arange(6))
        batch = tensor.to_column()
        calls = {
            TypeError: lambda: float(tensor),
            AttributeError: lambda: tensor.__cuda_array_interface__,
            IndexError: lambda: tensor.slice(9),
            ValueError: lambda: batch[::2],
            BufferError: lambda: tensor.to_batch(),
        }

        def raised(call, nth, later):
            try:
                _testcapi.set_nomemory(nth, later)
                call()
            except Exception as exception:
                _testcapi.remove_mem_hooks()
                return exception

        for error, call in calls.items():
            # Once without faults: this makes what is made only once.
            assert isinstance(raised(call, 1000, 1001), error)
            failed = 0
            for nth, later in itertools.product(range(40), (False, True)):
                exception = raised(call, nth, 0 if later else nth + 1)
                # CPython itself raises the SystemError: it has no memory for the traceback.
                assert isinstance(exception, (error, MemoryError, SystemError)), exception
                failed += isinstance(exception, MemoryError)
            assert 0 < failed < 80, (error, failed)
        print("done")
    """)
    assert output == "done\n"
