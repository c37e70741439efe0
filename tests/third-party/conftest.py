"""Every test runs with several seeds on the simulated driver, and must leave nothing behind."""

import gc
import re

import pytest

import devexchange
import driver
from scenes import Cuda, live, pytest_collection_finish, pytest_generate_tests  # noqa: F401 (pytest calls some of them)

# The most events that the library keeps for reuse.
EVENTS_KEPT = 256


@pytest.fixture
def cuda(seed):
    driver.set_seed(seed)
    before = live()
    cuda = Cuda()
    yield cuda
    gc.collect()
    cuda.close()
    driver.wait_until(lambda: devexchange.releases_waiting() == 0)
    assert driver.take_findings() == []
    assert devexchange.outstanding() == 0
    assert devexchange.releases_lost() == 0
    assert live() == before, driver.ledger()
    assert driver.stat("live_events") <= EVENTS_KEPT, driver.ledger()


def pytest_terminal_summary(terminalreporter):
    """The line from which scripts/test-third-party.sh counts; a test that runs with several seeds counts once."""

    def tests(*outcomes):
        reports = [report for outcome in outcomes for report in terminalreporter.stats.get(outcome, [])]
        return {re.sub(rf"{driver.MODE}-\d+", "", report.nodeid) for report in reports}

    failed, skipped = tests("failed", "error"), tests("skipped", "xfailed", "xpassed")
    passed = tests("passed") - failed
    terminalreporter.write_line(f"counts: {len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
