"""Numba on a GPU, with the tests of exchange.py for every library."""

import exchange
from libraries import Numba

library = Numba()
globals().update(exchange.cases(library))
