"""The cases of the corpus of bad input that need a CUDA driver."""

import corpus
import pytest

CASES = corpus.cases(only_cuda=True)


@pytest.mark.parametrize("i", CASES.values(), ids=CASES.keys())
def test_case(i):
    corpus.run(i)
