"""For all tests: what nobody catches is a failure, and a line by which scripts/test-python.sh counts them."""

import os
import re

MODE = os.environ.get("SIMCUDA_MODE", "lazy")


def pytest_configure(config):
    """An exception that ends a thread, or that Python can only print, would be no more than a warning."""
    for warning in "PytestUnhandledThreadExceptionWarning", "PytestUnraisableExceptionWarning":
        config.addinivalue_line("filterwarnings", f"error::pytest.{warning}")


def pytest_terminal_summary(terminalreporter):
    """Counts a test that runs with several seeds once."""

    def tests(*outcomes):
        reports = [report for outcome in outcomes for report in terminalreporter.stats.get(outcome, [])]
        return {re.sub(rf"{MODE}-\d+", "", report.nodeid) for report in reports}

    failed, skipped = tests("failed", "error"), tests("skipped", "xfailed", "xpassed")
    passed = tests("passed") - failed
    terminalreporter.write_line(f"counts: {len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
