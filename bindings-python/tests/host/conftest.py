"""Nothing is outstanding after a test."""

import gc

import pytest

import devexchange


@pytest.fixture(autouse=True)
def nothing_outstanding():
    yield
    gc.collect()
    assert devexchange.outstanding() == 0, devexchange.ledger()
