"""The program that test_faults.py runs in a process whose library keeps no blocks.

`faults.py allocations|exports|callbacks`"""

import gc
import itertools
import sys
from types import SimpleNamespace

import corpus
import numpy

import devexchange
from devexchange import BatchStream, MemoryManager


def allocations():
    """Every allocation of every import of the corpus."""
    return sum(corpus.run_without_memory(i) for i in corpus.cases().values())


def scenes():
    """Yields exports and new objects: names, and functions to be called while an allocation fails."""
    tensor = devexchange.from_dlpack(numpy.arange(6.0).reshape(2, 3))
    batch = tensor.to_batch()
    schema = batch.schema
    # The first consumer of a tensor needs no memory.
    held = tensor.__dlpack__(max_version=(1, 0))
    yield "a versioned tensor for a second consumer", lambda: tensor.__dlpack__(max_version=(1, 0))
    del held
    yield "a legacy tensor", lambda: tensor.__dlpack__()
    yield "a tensor of somebody else's", lambda: devexchange.from_dlpack(numpy.arange(4))
    yield "a column", lambda: tensor.to_column("x")
    yield "a tensor as a batch", lambda: tensor.to_batch()
    yield "a column of shapes", lambda: tensor.to_fixed_shape_column("x")
    yield "a matrix", lambda: batch.to_matrix()
    yield "an array", lambda: batch.__arrow_c_array__()
    yield "a device array", lambda: batch.__arrow_c_device_array__()
    yield "a schema", lambda: schema.__arrow_c_schema__()


def exports():
    total = 0
    for name, act in scenes():
        # Once without faults: this makes what is made only once.
        act()
        before = devexchange.outstanding()

        def once(nth, from_then_on, act=act, name=name, before=before):
            given, failed = corpus.while_failing(act, nth, from_then_on)
            assert failed or given is not None, name
            del given
            assert devexchange.outstanding() == before, (name, nth, devexchange.ledger())
            return failed

        found = sum(corpus.each_fault(once))
        assert found, name
        total += found
    return total


class Asked(Exception):
    pass


class Callbacks:
    """Counts calls, of which the chosen one raises. A release does its work first, because it is not called again."""

    def __init__(self, fails):
        self.calls, self.fails, self.live = 0, fails, 0

    def ask(self):
        self.calls += 1
        if self.calls == self.fails:
            raise Asked("as asked")

    def live_one(self):
        self.live += 1

        def release():
            self.live -= 1
            self.ask()

        return release


class Manager:
    def __init__(self, callbacks):
        self.callbacks, self.closed = callbacks, callbacks.live_one()

    def initialize(self, device_id):
        self.callbacks.ask()

    def allocate(self, request):
        self.callbacks.ask()
        return 64, self.callbacks.live_one()

    def memory_info(self, device_id):
        self.callbacks.ask()
        return 1, 2

    def reset(self, device_id):
        self.callbacks.ask()

    def trim(self, device_id, keep):
        self.callbacks.ask()

    def close(self):
        self.closed()


def attempt(told, act):
    try:
        return act()
    except (RuntimeError, Asked) as error:
        assert "as asked" in str(error), error
        # Only the text: the frames of the exception hold objects that have to be gone.
        told.append(str(error))
        return None


def a_manager(callbacks, told):
    manager = MemoryManager(Manager(callbacks))
    attempt(told, lambda: manager.initialize(0))
    for _ in range(2):
        memory = attempt(told, lambda: manager.allocate(8, (1, 0)))
        if memory is not None:
            memory.close()
    attempt(told, lambda: manager.memory_info(0))
    attempt(told, lambda: manager.trim(0))
    attempt(told, lambda: manager.reset(0))
    manager.close()


def a_stream(callbacks, told):
    batch = devexchange.from_dlpack(numpy.arange(6.0).reshape(2, 3)).to_batch()

    def batches():
        ended = callbacks.live_one()
        try:
            for _ in range(3):
                callbacks.ask()
                yield batch
        finally:
            ended()

    stream = BatchStream.of(batch.schema, batches())
    while attempt(told, lambda: next(stream, None)) is not None:
        pass
    stream.close()


class Producer:
    """A producer of a tensor."""

    def __init__(self, callbacks):
        self.callbacks = callbacks
        self.values = numpy.arange(6.0).reshape(2, 3)

    def __dlpack_device__(self):
        self.callbacks.ask()
        return self.values.__dlpack_device__()

    def __dlpack__(self, **arguments):
        self.callbacks.ask()
        return self.values.__dlpack__(**{name: value for name, value in arguments.items() if name == "stream"})


def arrow_producer(callbacks, source, method):
    """An object with one of our methods, which calls `callbacks.ask` first."""

    def asked(*arguments):
        callbacks.ask()
        return getattr(source, method)(*arguments)

    return SimpleNamespace(**{method: asked})


def a_producer(callbacks, told):
    producer = Producer(callbacks)
    batch = devexchange.from_dlpack(producer.values).to_batch()
    stream = BatchStream.of(batch.schema, [batch])
    attempt(told, lambda: devexchange.from_dlpack(producer))
    for source, method in (
        (batch, "__arrow_c_array__"),
        (batch, "__arrow_c_device_array__"),
        (batch.schema, "__arrow_c_schema__"),
        (stream, "__arrow_c_stream__"),
    ):
        attempt(told, lambda one=arrow_producer(callbacks, source, method): devexchange.from_arrow(one))
    stream.close()


def callbacks():
    """Makes each callback raise once: the exception is the error of the call, or goes to Python's unraisable hook.

    The callbacks of the foreign streams of the corpus fail, too."""
    told, total = [], sum(corpus.run_without_callbacks(i) for i in corpus.cases().values())
    sys.unraisablehook = lambda raised: told.append(str(raised.exc_value))
    for scene in (a_manager, a_stream, a_producer):
        for nth in itertools.count(1):
            told.clear()
            called = Callbacks(nth)
            scene(called, told)
            gc.collect()
            # The next call into the package gives back what was given up.
            assert devexchange.outstanding() == 0, (scene.__name__, nth, devexchange.ledger())
            assert called.live == 0, (scene.__name__, nth)
            if called.calls < nth:
                assert not told, told
                break
            assert len(told) == 1, (scene.__name__, nth, told)
            total += 1
    return total


if __name__ == "__main__":
    what = {"allocations": allocations, "exports": exports, "callbacks": callbacks}[sys.argv[1]]
    if what is not callbacks:
        corpus.install_faults()
    print(f"{sys.argv[1]}: {what()} faults")
