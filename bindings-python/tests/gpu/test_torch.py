"""PyTorch on a GPU, with the tests of exchange.py for every library, and within PyTorch's own graphs."""

import exchange
import numpy
from libraries import Torch

from devexchange import from_dlpack

library = Torch()
globals().update(exchange.cases(library))


class Graph(exchange.Case):
    library = library

    def test_exchange_while_torch_captures(self):
        torch, stream = library.torch, self.number(self.consumer)
        before = self.out("method", library.late(exchange.VALUES, self.producer), self.other)
        source, target = library.array(exchange.VALUES), library.array(numpy.zeros_like(exchange.VALUES))
        # A kernel is loaded at its first launch, which had better not be in a capture.
        doubled = source * 2
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.consumer):
            with self.assertRaisesRegex(BufferError, "is being captured"):
                torch.from_dlpack(before)
            # An array that was made on the captured stream need not wait for anything there.
            doubled = source * 2
            again = torch.from_dlpack(from_dlpack(doubled, stream=stream))
            target.copy_(again)
        graph.replay()
        torch.cuda.synchronize()
        self.same(target.cpu().numpy(), exchange.VALUES * 2)
        del doubled, again, graph


class Table(exchange.Case):
    library = library

    def test_type_has_a_function_table(self):
        # If the type has a table, "table" is one of the ways of all tests here.
        if "table" not in library.out:
            self.skipTest(f"PyTorch {library.torch.__version__} has no __dlpack_c_exchange_api__")
        self.assertIn("table", library.into)
