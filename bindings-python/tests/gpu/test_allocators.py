"""CuPy and PyTorch allocate from our pool, in a separate process: PyTorch takes an allocator only before it has used
another one."""

import subprocess
import sys
import unittest

import exchange
from libraries import CuPy, Torch

import devexchange
from devexchange import MemoryManager

N = 1 << 20
SUM = N * (N - 1)


class OnCuPy(unittest.TestCase):
    def test_arrays_are_of_the_pool(self):
        library = CuPy()
        import devexchange.cupy

        cupy, manager = library.cupy, MemoryManager.pool()
        devexchange.cupy.use(manager)
        self.addCleanup(cupy.cuda.set_allocator, None)
        for stream in (cupy.cuda.Stream.null, library.stream()):
            with library.on(stream):
                for _ in range(exchange.ROUNDS):
                    doubled = cupy.arange(N, dtype="int64") * 2
                    self.assertEqual(int(doubled.sum()), SUM)
            del doubled
            stream.synchronize()
        self.assertGreaterEqual(manager.statistics().peak_bytes, 16 * N)
        exchange.settle()
        self.assertEqual(manager.statistics().bytes, 0)


class OnTorch(unittest.TestCase):
    def test_tensors_are_of_the_pool(self):
        library = Torch()
        import devexchange.torch

        torch, manager = library.torch, MemoryManager.pool(limit=1 << 28)
        try:
            devexchange.torch.use(manager)
        except RuntimeError as error:
            self.skipTest(f"PyTorch has allocated before: {error}")
        side = library.stream()
        for _ in range(exchange.ROUNDS):
            numbers = torch.arange(N, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with library.on(side):
                doubled = numbers * 2
            numbers.record_stream(side)
            # The pool may give this memory to the next tensor, which is filled on another stream.
            del numbers
            noise = torch.full((N,), -1, device="cuda")
            with library.on(side):
                self.assertEqual(int(doubled.sum()), SUM)
            del noise, doubled
        with self.assertRaisesRegex(RuntimeError, "more than the limit of"):
            torch.empty(1 << 28, device="cuda")
        torch.cuda.synchronize()
        exchange.settle()
        self.assertEqual(manager.statistics().bytes, 0)

    def test_its_own_cache_takes_segments_of_the_pool(self):
        Torch()
        program = """
import devexchange.torch, torch
manager = devexchange.MemoryManager.pool()
pool = torch.cuda.MemPool(devexchange.torch.allocator(manager).allocator())
with torch.cuda.use_mem_pool(pool):
    numbers = torch.arange(1 << 20, device="cuda")
print(int((numbers * 2).sum()), manager.statistics().bytes >= numbers.nbytes)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, f"{SUM} True\n"), done.stderr)
