"""CuPy on a GPU, with the tests of exchange.py for every library."""

import exchange
from libraries import CuPy

library = CuPy()
globals().update(exchange.cases(library))
