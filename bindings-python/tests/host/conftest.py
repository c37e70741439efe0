"""Nothing is outstanding after a test."""

import gc
import signal

import pytest

import devexchange


def pytest_collection_finish():
    # The tests and the libraries need not be looked at by the collection after each test.
    gc.freeze()


def pytest_sessionfinish():
    # Nor may they look as if they had leaked.
    gc.unfreeze()


@pytest.fixture(autouse=True)
def nothing_outstanding():
    yield
    gc.collect()
    assert devexchange.outstanding() == 0, devexchange.ledger()


@pytest.fixture
def interruptible():
    """Also where this is a job in the background, whose interrupts are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
