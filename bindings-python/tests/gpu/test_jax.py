"""JAX on a GPU, with the tests of exchange.py for every library."""

import exchange
from libraries import Jax

library = Jax()
globals().update(exchange.cases(library))
