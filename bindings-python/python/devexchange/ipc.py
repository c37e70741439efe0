"""Tensors and batches shared with other processes of this machine, without a copy.

One process offers them under names (``Server``); others import them (``Client``) as the same memory in the same order.

Host memory is shared without a copy if it is from ``empty_shared`` or from another process, device memory if it is this
process's own allocation of the driver or of a pool that is made to be shared. Anything else, including pinned and
managed memory, is copied, if a copy is allowed. The exporter keeps what it gave until the importer releases it or is
gone. The data itself is shared: if both sides can write it, they have to agree on who writes when.
"""

from ._native import Client, Server, empty_shared
from ._native import plan_offer as plan

__all__ = ["Client", "Server", "empty_shared", "plan"]
