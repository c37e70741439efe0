"""Tests that every library has to pass: order, release, types and layouts, capture, other processes.

The module of each library makes test cases of these classes with `cases`. Each test leaves nothing behind.
"""

import gc
import os
import sys
import unittest
from itertools import count

import cudadriver
import numpy
from peer import Peer, soon

import devexchange
from devexchange import MemoryManager, empty, from_cuda_array_interface, from_dlpack, ipc

CPU, CUDA, MANAGED = (1, 0), (2, 0), (13, 0)
ROUNDS = 3 if cudadriver.SIMULATED else 20
LEAK_ROUNDS = 1000
LEAK_VALUES = numpy.zeros(1 << (8 if cudadriver.SIMULATED else 18), "f4")
VALUES = numpy.arange(1, 1 + (1 << (10 if cudadriver.SIMULATED else 18)), dtype="f4").reshape(-1, 64)

_numbers = count()


def released():
    # A call into the package gives up what other threads left to Python.
    devexchange.from_buffer(b"").close()
    return devexchange.outstanding() == 0


def host(tensor, stream):
    """Reads the elements of our tensor with work on the stream with this number."""
    return numpy.from_dlpack(tensor.copy_to(CPU, stream))


def settle():
    """Checks that nothing of ours is left once nobody refers to it any more."""
    gc.collect()
    soon(released)


def say(text):
    """Prints something that is reported but not judged."""
    print(f"\n    {text}", file=sys.stderr, flush=True)


class Case(unittest.TestCase):
    library = None

    def setUp(self):
        reason = self.library.cannot.get(type(self).__name__.lower())
        if reason:
            self.skipTest(reason)
        self.producer, self.consumer, self.other = (self.library.stream() for _ in range(3))
        self.addCleanup(self.leave_nothing)

    def leave_nothing(self):
        # Streams live longer than the memory that was allocated in their order.
        settle()
        cudadriver.synchronize()
        del self.producer, self.consumer, self.other

    def number(self, stream):
        return self.library.number(stream)

    def out(self, way, array, stream):
        """Makes our tensor of an array that the producer's stream works on, ready for another stream."""
        with self.library.on(self.producer):
            return self.library.out[way](array, self.number(stream))

    def into(self, way, tensor, stream):
        with self.library.on(stream):
            return self.library.into[way](tensor, stream)

    def same(self, got, wanted, *words):
        wrong = int((numpy.asarray(got) != wanted).sum())
        self.assertEqual(wrong, 0, f"of {wanted.size} values are wrong: {words}")


class Order(Case):
    """The producer queues slow work and exchanges at once."""

    def rounds(self, exchange):
        queued = 0
        for number in range(ROUNDS):
            array = self.library.late(VALUES + number, self.producer)
            queued += self.library.is_late(array, self.producer)
            exchange(array, VALUES + number)
        # The simulated driver judges by itself. On other drivers a round is meaningful only if there was work to wait
        # for.
        if not cudadriver.SIMULATED:
            self.assertGreater(queued, 0, "the work was always done before the exchange")
            say(f"the producer's work was still queued at {queued} of {ROUNDS} exchanges")

    def test_our_consumer_waits(self):
        for way in self.library.out:

            def exchange(array, values, way=way):
                tensor = self.out(way, array, self.consumer)
                self.same(host(tensor, self.number(self.consumer)), values, way)

            self.rounds(exchange)

    def test_their_consumer_waits(self):
        for way in self.library.into:

            def exchange(array, values, way=way):
                tensor = self.out(next(iter(self.library.out)), array, self.other)
                seen = self.into(way, tensor, self.consumer)
                self.same(self.library.values(seen, self.consumer), values, way)

            self.rounds(exchange)

    def test_without_waiting(self):
        # The result if nobody waits: reported, not judged.
        if not self.library.unordered:
            self.skipTest(f"{self.library.name} cannot be asked for an array without an order")
        if cudadriver.SIMULATED:
            self.skipTest("the simulated driver ends a program that does not wait")
        wrong = 0
        for number in range(ROUNDS):
            array = self.library.late(VALUES + number, self.producer)
            with self.library.on(self.producer):
                tensor = from_dlpack(array, stream=-1)
            wrong += bool((host(tensor, self.number(self.consumer)) != VALUES + number).any())
            cudadriver.synchronize()
        say(f"negative control: without waiting, {wrong} of {ROUNDS} rounds read something else")


class Release(Case):
    """Memory goes back when the work that was queued on it is done."""

    def keep(self, seen):
        """Queues slow work and then a copy out of an array."""
        kept = self.library.array(numpy.zeros_like(VALUES))
        self.library.slow(self.consumer)
        self.library.copy(kept, seen, self.consumer)
        return kept

    def test_our_memory_is_used_again_after_their_work(self):
        manager = MemoryManager.pool()
        stream = self.number(self.producer)
        for way in self.library.into:
            again = 0
            for number in range(ROUNDS):
                values = VALUES + number
                source, garbage = self.library.array(values), self.library.array(-values)
                ours = empty(values.shape, "float32", device=CUDA, stream=stream, manager=manager)
                address = ours.data_ptr
                self.library.copy(self.into(way, ours, self.producer), source, self.producer)
                ours.used_on(stream)
                seen = self.into(way, ours, self.consumer)
                kept = self.keep(seen)
                ours.used_on(self.number(self.consumer))
                ours.close()
                del seen
                ours = empty(values.shape, "float32", device=CUDA, stream=stream, manager=manager)
                again += ours.data_ptr == address
                self.library.copy(self.into(way, ours, self.producer), garbage, self.producer)
                ours.used_on(stream)
                ours.close()
                self.same(self.library.values(kept, self.consumer), values, way)
                cudadriver.synchronize()
            say(f"{way}: the same memory was given out again in {again} of {ROUNDS} rounds")
            # The simulated driver never reuses addresses, and finds memory that is freed too early by itself.
            if not cudadriver.SIMULATED:
                self.assertGreater(again, 0, "the memory was never used again, so this says nothing")
        manager.close()

    def test_their_memory_is_used_again_after_our_work(self):
        for way in self.library.out:
            for number in range(ROUNDS):
                values = VALUES + number
                garbage = self.library.array(-values)
                with self.library.on(self.producer):
                    array = self.library.late(values, self.producer)
                tensor = self.out(way, array, self.consumer)
                del array
                copies = [tensor.copy_to(CUDA, self.number(self.consumer)) for _ in range(8)]
                tensor.used_on(self.number(self.consumer))
                tensor.close()
                others = [self.library.copied(garbage, self.producer) for _ in range(2)]
                for copy in copies:
                    self.same(host(copy, self.number(self.consumer)), values, way)
                cudadriver.synchronize()
                del others


class Rounds(Case):
    def test_nothing_is_left_after_many_rounds(self):
        manager = MemoryManager.driver()
        array = self.library.array(LEAK_VALUES)
        out, into = list(self.library.out), list(self.library.into)
        for number in range(LEAK_ROUNDS):
            if number == 50:
                gc.collect()
                cudadriver.synchronize()
                before = manager.memory_info().free_bytes
            tensor = self.out(out[number % len(out)], array, self.consumer)
            copy = from_dlpack(tensor, copy=True, stream=self.number(self.consumer))
            self.into(into[number % len(into)], copy, self.consumer)
        del tensor, copy
        cudadriver.synchronize()
        settle()
        lost = before - manager.memory_info().free_bytes
        say(f"{LEAK_ROUNDS} rounds of {LEAK_VALUES.nbytes} bytes: {lost} bytes less are free on the device")
        # Pools keep some memory; a leak in every round would be more than that.
        self.assertLess(lost, max(LEAK_VALUES.nbytes * LEAK_ROUNDS // 4, 1 << 20))


class What(Case):
    """Types, layouts and kinds of memory."""

    def backs(self, tensor):
        """The ways in that take a tensor."""
        return [way for way in self.library.into if not self.library.refuses(way, tensor)]

    def test_element_types(self):
        for dtype in self.library.dtypes:
            array = self.library.typed(dtype)
            wanted = self.library.raw(array)
            for way in self.library.out:
                if way == "cuda array" and dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
                    continue  # NumPy's type strings have no name for these.
                tensor = self.out(way, array, self.consumer)
                self.assertEqual((tensor.dtype, tensor.shape, tuple(tensor.device)), (dtype, (4, 6), CUDA), way)
                for back in self.backs(tensor):
                    if back == "cuda array" and dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
                        continue
                    seen = self.into(back, tensor, self.consumer)
                    cudadriver.synchronize()
                    self.assertEqual(self.library.raw(seen), wanted, (way, back, dtype))

    def test_strides(self):
        if not self.library.layouts:
            self.skipTest(f"arrays of {self.library.name} are always compact")
        values = numpy.arange(24, dtype="f4").reshape(4, 6)
        for name, layout in self.library.layouts.items():
            array, wanted = layout(self.library.array(values)), layout(values)
            for way in self.library.out:
                tensor = self.out(way, array, self.consumer)
                self.assertEqual(tensor.strides, tuple(step // 4 for step in wanted.strides), (way, name))
                for back in self.backs(tensor):
                    seen = self.into(back, tensor, self.consumer)
                    self.same(self.library.values(seen, self.consumer), wanted, way, back, name)

    def test_nothing(self):
        array = self.library.array(numpy.zeros((0, 3), "f4"))
        for way in self.library.out:
            tensor = self.out(way, array, self.consumer)
            self.assertEqual((tensor.shape, tensor.data_ptr), ((0, 3), 0), way)
            for back in self.backs(tensor):
                self.assertEqual(tuple(self.into(back, tensor, self.consumer).shape), (0, 3), (way, back))

    def test_read_only(self):
        # A library either reads read-only memory without writing it, or refuses it.
        array = self.library.array(VALUES)
        there = from_cuda_array_interface(array, no_stream="trust")

        class ReadOnly:
            __cuda_array_interface__ = dict(there.__cuda_array_interface__, data=(there.data_ptr, True))

        tensor = from_cuda_array_interface(ReadOnly())
        self.assertTrue(tensor.read_only)
        with self.assertRaisesRegex(BufferError, "READ_ONLY"):
            tensor.__dlpack__(stream=-1)
        for way in self.library.into:
            try:
                seen = self.into(way, tensor, self.consumer)
            except Exception as error:
                say(f"{way}: {type(error).__name__}: {error}")
            else:
                self.same(self.library.values(seen, self.consumer), VALUES, way)

    def test_what_a_consumer_asks_for(self):
        array = self.library.array(VALUES)
        consumer = self.number(self.consumer)
        for way in self.library.out:
            tensor = self.out(way, array, self.consumer)
            if numpy.lib.NumpyVersion(numpy.__version__) >= "2.1.0":  # the first to ask for a device
                self.same(numpy.from_dlpack(tensor, device="cpu"), VALUES)
                with self.assertRaisesRegex(BufferError, "copy is False"):
                    numpy.from_dlpack(tensor, device="cpu", copy=False)
            copy = from_dlpack(tensor, copy=True, stream=consumer)
            self.assertTrue(copy.is_copied and copy.data_ptr != tensor.data_ptr)
            self.same(host(copy, consumer), VALUES)
            # The struct before version 1 cannot say that memory must not be written.
            for version in [(1, 0), (1, 3)] if tensor.read_only else [None, (0, 8), (1, 0), (1, 3)]:
                tensor.__dlpack__(stream=consumer, max_version=version, dl_device=CUDA, copy=False)
            with self.assertRaisesRegex(ValueError, "stream is 0"):
                tensor.__dlpack__(stream=0)

    def test_managed_memory(self):
        ours = empty(VALUES.shape, "float32", device=MANAGED, manager=MemoryManager.managed())
        self.assertEqual(ours.device.type, 13)
        ours.close()
        array = self.library.managed(VALUES)
        if array is None:
            self.skipTest(f"{self.library.name} makes no managed memory of its own")
        for way in self.library.out:
            tensor = self.out(way, array, self.consumer)
            self.assertEqual(tensor.device.type, 13, way)
            self.same(host(tensor, self.number(self.consumer)), VALUES, way)
            for back in self.backs(tensor):
                seen = self.into(back, tensor, self.consumer)
                self.same(self.library.values(seen, self.consumer), VALUES, way, back)

    def test_pinned_memory(self):
        there = self.out(next(iter(self.library.out)), self.library.late(VALUES, self.producer), self.consumer)
        pinned = there.copy_to((3, 0), self.number(self.consumer))
        self.assertEqual(pinned.device.type, 3)
        again = pinned.copy_to(CUDA, self.number(self.consumer))
        self.same(host(again, self.number(self.other)), VALUES)


class Capture(Case):
    """While a stream is captured, impossible calls are refused by name, and the capture goes on."""

    def test_exchange_while_a_stream_is_captured(self):
        stream = self.number(self.consumer)
        before = self.out(next(iter(self.library.out)), self.library.late(VALUES, self.producer), self.other)
        source, target = self.library.array(VALUES), self.library.array(numpy.zeros_like(VALUES))
        refused = [
            lambda: before.wait(stream),
            lambda: before.used_on(stream),
            lambda: before.__dlpack__(stream=stream, max_version=(1, 0)),
            lambda: from_dlpack(before, stream=stream),
            lambda: before.copy_to(CUDA, stream),
            lambda: empty(4, device=CUDA, stream=stream),
        ]
        with cudadriver.captured(stream):
            for number, ask in enumerate(refused):
                with self.assertRaisesRegex(BufferError, "is being captured", msg=str(number)):
                    ask()
            # Work that has nothing to do with that stream goes on.
            self.same(host(before, self.number(self.other)), VALUES)
            self.library.copy(target, source, self.consumer)
        if not cudadriver.SIMULATED:
            self.same(self.library.values(target, self.consumer), VALUES)


class Processes(Case):
    """Memory of the library in another process."""

    IMPORT = """
import numpy
from devexchange import ipc
client = ipc.Client({address!r})
tensor = client.tensor("values")
"""

    def test_import_in_a_process_that_is_killed(self):
        with ipc.Server(f"@devexchange-gpu-{os.getpid()}-{next(_numbers)}") as server:
            tensor = self.out(next(iter(self.library.out)), self.library.late(VALUES, self.producer), self.other)
            plan = ipc.plan(tensor)
            say(f"plan of the offer: {plan}")
            server.offer("values", tensor)
            peer = Peer(self.IMPORT.format(address=server.address))
            wanted = float(VALUES.sum(dtype="f8"))
            self.assertEqual(peer.run("tensor.shape, tuple(tensor.device)"), (VALUES.shape, CUDA))
            self.assertEqual(peer.run("float(numpy.from_dlpack(tensor.copy_to((1, 0))).sum(dtype='f8'))"), wanted)
            server.withdraw("values")
            tensor.close()
            self.assertEqual(server.leases, 1)
            peer.kill()
            soon(lambda: server.leases == 0)


class Devices(Case):
    def test_another_device(self):
        if cudadriver.device_count() < 2:
            self.skipTest("there is only one device")
        tensor = empty(VALUES.shape, "float32", device=(2, 1))
        self.assertEqual(tuple(tensor.device), (2, 1))
        there = from_dlpack(VALUES).copy_to((2, 1))
        here = there.copy_to(CUDA, self.number(self.consumer))
        self.same(host(here, self.number(self.consumer)), VALUES)
        for way in self.library.into:
            seen = self.into(way, here, self.consumer)
            self.same(self.library.values(seen, self.consumer), VALUES, way)


def cases(library):
    """Test cases of all these classes with a library, by name."""
    kinds = [Order, Release, Rounds, What, Capture, Processes, Devices]
    return {kind.__name__: type(kind.__name__, (kind,), {"library": library}) for kind in kinds}
