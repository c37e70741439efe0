"""Numba on a GPU, with what exchange.py asks of every library."""

import exchange
from libraries import Numba

library = Numba()
globals().update(exchange.cases(library))
