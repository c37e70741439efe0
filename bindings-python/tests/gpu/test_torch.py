"""PyTorch on a GPU, with what exchange.py asks of every library."""

import exchange
from libraries import Torch

library = Torch()
globals().update(exchange.cases(library))
