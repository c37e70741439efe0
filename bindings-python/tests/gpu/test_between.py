"""Exchanges from each library to each other one, through our tensor."""

import itertools
import unittest

import cudadriver
import exchange
from libraries import CuPy, Jax, Numba, Torch

found, missing = [], []
for kind in [Torch, CuPy, Jax, Numba]:
    try:
        found.append(kind())
    except unittest.SkipTest as reason:
        missing.append(str(reason))
if cudadriver.SIMULATED and len(found) == 1:
    # Numba, which then plays both parts: no other library works there.
    found.append(type(found[0])())
if len(found) < 2:
    raise unittest.SkipTest(f"there are not two libraries: {'; '.join(missing)}")


class Between(unittest.TestCase):
    def setUp(self):
        self.addCleanup(exchange.settle)

    def give(self, first, second, way, back, values):
        producer, consumer, between = first.stream(), second.stream(), first.stream()
        array = first.late(values, producer)
        with first.on(producer):
            tensor = first.out[way](array, first.number(between))
        # From here on the first library has forgotten the array.
        del array
        if second.refuses(back, tensor):
            tensor.close()
            return
        with second.on(consumer):
            seen = second.into[back](tensor, consumer)
        if back not in second.borrows:
            tensor.close()
        got = second.values(seen, consumer)
        # The memory goes before the streams that it was used on.
        del seen
        tensor.close()
        wrong = int((got != values).sum())
        self.assertEqual(wrong, 0, f"{first.name} by {way} to {second.name} by {back}: {wrong} values are wrong")

    def test_every_pair_by_every_way(self):
        for first, second in itertools.permutations(found, 2):
            for way, back in itertools.product(first.out, second.into):
                for number in range(exchange.ROUNDS // 3):
                    self.give(first, second, way, back, exchange.VALUES + number)

    def test_around_through_all(self):
        values = exchange.VALUES + 7
        array, library = found[0].late(values, found[0].stream()), found[0]
        exchange.cudadriver.synchronize()
        address = None
        for following in [*found[1:], found[0]]:
            way, back = next(iter(library.out)), next(iter(following.into))
            stream = following.stream()
            tensor = library.out[way](array, following.number(stream))
            address = address or tensor.data_ptr
            self.assertEqual(tensor.data_ptr, address, f"{library.name} made a copy")
            with following.on(stream):
                array, library = following.into[back](tensor, stream), following
            del tensor
        self.assertEqual(int((library.values(array, stream) != values).sum()), 0)
