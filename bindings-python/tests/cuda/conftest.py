"""Every test runs with several seeds on one of the schedules of the simulated CUDA driver, and leaves nothing behind.
The driver finds what is touched too early and what is released too early, whatever the values were."""

import gc
import importlib.util
import sys
from pathlib import Path

import pytest
from cuda.core import Device

import devexchange

# What talks to the simulated driver is shared with tests/third-party, where another module is called devexchange.
_spec = importlib.util.spec_from_file_location(
    "driver", Path(__file__).parents[3] / "tests" / "third-party" / "driver.py"
)
driver = sys.modules["driver"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(driver)

SEEDS = range(1, 6)
LIVE = ["live_device", "live_host", "live_managed", "live_streams", "live_pools"]


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", SEEDS, ids=lambda seed: f"{driver.MODE}-{seed}")


def pytest_collection_finish():
    # The tests themselves need not be looked at by the many collections below.
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


def is_all_released():
    # A call into the package gives up what other threads left to Python.
    devexchange.from_buffer(b"").close()
    return devexchange.outstanding() == 0


@pytest.fixture
def cuda(seed):
    driver.set_seed(seed)
    before = {name: driver.stat(name) for name in LIVE}
    cuda = Cuda()
    yield cuda
    gc.collect()
    driver.wait_until(is_all_released)
    cuda.close()
    assert driver.take_findings() == []
    assert {name: driver.stat(name) for name in LIVE} == before, driver.ledger()
