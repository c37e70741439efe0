"""Nothing is outstanding after a test."""

import gc

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
