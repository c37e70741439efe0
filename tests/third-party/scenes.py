"""Makes pytest run tests with several seeds on one of the simulated driver's schedules, and counts what they leave behind.
bindings-python/tests/cuda uses this, too."""

import gc

from cuda.core import Device

import driver

SEEDS = range(1, 6)
LIVE = ["live_device", "live_host", "live_managed", "live_streams", "live_pools"]


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", SEEDS, ids=lambda seed: f"{driver.MODE}-{seed}")


def pytest_collection_finish():
    # Each test ends with a garbage collection, which then does not examine the tests' modules.
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
    """The driver's counts of memory, streams and pools."""
    return {name: driver.stat(name) for name in LIVE}
