"""JAX on a GPU, with what exchange.py asks of every library."""

import exchange
from libraries import Jax

library = Jax()
globals().update(exchange.cases(library))
