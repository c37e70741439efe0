"""CuPy on a GPU, with what exchange.py asks of every library."""

import exchange
from libraries import CuPy

library = CuPy()
globals().update(exchange.cases(library))
