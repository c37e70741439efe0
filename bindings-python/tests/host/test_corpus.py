"""Every case of the corpus of bad input."""

import corpus
import pytest

CASES = corpus.cases()


@pytest.mark.parametrize("i", CASES.values(), ids=CASES.keys())
def test_case(i):
    corpus.run(i)
