"""Many exchanges of device memory, on the simulated driver."""

import driver
import pytest
from soak import ROUNDS, soak
from test_cuda import CUDA, VALUES
from test_exchange_api import Offers

import devexchange
from devexchange import from_cuda_array_interface, from_dlpack


@pytest.mark.parametrize("protocol", ["CUDA Array Interface", "DLPack capsule", "DLPack exchange API"])
def test_soak(cuda, protocol):
    tensor = from_dlpack(VALUES, device=CUDA, stream=cuda.producer)
    cuda.producer.sync()
    offers = type("Offers", (Offers,), {})(cuda)

    class ByMethod:
        def __dlpack_device__(self):
            return CUDA

        def __dlpack__(self, **arguments):
            return tensor.__dlpack__(**arguments)

    ways = {
        "CUDA Array Interface": lambda: from_cuda_array_interface(tensor, stream=cuda.consumer).close(),
        "DLPack capsule": lambda: from_dlpack(ByMethod(), stream=cuda.consumer).close(),
        "DLPack exchange API": lambda: from_dlpack(offers, stream=cuda.consumer).close(),
    }
    before = driver.stat("live_events")

    def exchange():
        ways[protocol]()
        # Let the queued waits finish, as on a device that keeps up.
        exchange.rounds += 1
        if exchange.rounds % 256 == 0:
            cuda.consumer.sync()
            cuda.producer.sync()

    exchange.rounds = 0
    # Fewer rounds, because the test runs once for each seed.
    soak(f"{protocol} on CUDA", exchange, ROUNDS // 5)
    cuda.consumer.sync()
    offers.close()
    tensor.close()
    assert devexchange.outstanding() == 0
    # The pool keeps some events for later use.
    assert driver.stat("live_events") - before < 300
