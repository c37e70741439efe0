"""Every test runs on several schedules of the simulated driver, and leaves nothing behind."""

import gc
import re

import pytest
from cuda.core import Device

import devexchange
import driver

SEEDS = range(1, 6)
LIVE = ["live_device", "live_host", "live_managed", "live_streams", "live_pools"]

# The library keeps events for the next time, and no more than these.
EVENTS_KEPT = 256


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", SEEDS, ids=lambda seed: f"{driver.MODE}-{seed}")


def pytest_collection_finish():
    # The tests themselves need not be looked at by the many collections below.
    gc.freeze()


class Cuda:
    """A device and its streams; those of a producer and of a consumer do not wait for each other."""

    def __init__(self):
        self.device = Device(0)
        self.device.set_current()
        self.producer = self.device.create_stream()
        self.consumer = self.device.create_stream()

    def close(self):
        for stream in (self.producer, self.consumer):
            stream.sync()
            stream.close()


@pytest.fixture
def cuda(seed):
    driver.set_seed(seed)
    before = {name: driver.stat(name) for name in LIVE}
    cuda = Cuda()
    yield cuda
    gc.collect()
    cuda.close()
    driver.wait_until(lambda: devexchange.releases_waiting() == 0)
    assert driver.take_findings() == []
    assert devexchange.outstanding() == 0
    assert devexchange.releases_lost() == 0
    assert {name: driver.stat(name) for name in LIVE} == before, driver.ledger()
    assert driver.stat("live_events") <= EVENTS_KEPT, driver.ledger()


def pytest_terminal_summary(terminalreporter):
    """The line that scripts/test-third-party.sh counts by: a test that runs with several seeds is one."""

    def tests(*outcomes):
        reports = [report for outcome in outcomes for report in terminalreporter.stats.get(outcome, [])]
        return {re.sub(rf"{driver.MODE}-\d+", "", report.nodeid) for report in reports}

    failed, skipped = tests("failed", "error"), tests("skipped", "xfailed", "xpassed")
    passed = tests("passed") - failed
    terminalreporter.write_line(f"counts: {len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
