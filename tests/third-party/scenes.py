"""How pytest runs a test on the simulated CUDA driver: with several seeds on one of the driver's schedules, leaving
nothing behind. bindings-python/tests/cuda uses this, too."""

import gc

from cuda.core import Device

import driver

SEEDS = range(1, 6)
LIVE = ["live_device", "live_host", "live_managed", "live_streams", "live_pools"]


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", SEEDS, ids=lambda seed: f"{driver.MODE}-{seed}")


def pytest_collection_finish():
    # The many garbage collections that follow need not examine the tests themselves.
    gc.freeze()


class Cuda:
    """A device and its streams; those of a producer, of a consumer and of others do not wait for each other."""

    def __init__(self):
        self.device = Device(0)
        self.device.set_current()
        self.producer = self.device.create_stream()
        self.consumer = self.device.create_stream()
        self.other = self.device.create_stream()

    def close(self):
        for stream in (self.producer, self.consumer, self.other):
            stream.sync()
            stream.close()


def live():
    """The driver's counts of the test's own things."""
    return {name: driver.stat(name) for name in LIVE}
