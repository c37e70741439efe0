"""Checks that nothing is outstanding after a test."""

import gc
import signal

import pytest

import devexchange


def pytest_collection_finish():
    # So that the collection after each test need not look at the tests and the libraries.
    gc.freeze()


def pytest_sessionfinish():
    # So that they do not look leaked at the end.
    gc.unfreeze()


@pytest.fixture(autouse=True)
def nothing_outstanding():
    yield
    gc.collect()
    assert devexchange.outstanding() == 0, devexchange.ledger()


@pytest.fixture
def no_driver():
    """For tests of the errors on a machine without a CUDA driver; where there is one, there is nothing to test."""
    try:
        devexchange.device_count()
    except devexchange.Refused as error:
        if "no CUDA driver" in str(error):
            return
    pytest.skip("this machine has a CUDA driver")


@pytest.fixture
def interruptible():
    """Makes interrupts work, also in a background job, where they are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
