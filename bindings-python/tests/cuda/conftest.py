"""Every test runs with several seeds on one of the schedules of the simulated CUDA driver, and leaves nothing behind.

The driver finds memory that is touched or released too early, whatever its values."""

import gc
import importlib.util
import sys
from pathlib import Path

import pytest

import devexchange


def shared(name):
    """Loads a module of tests/third-party by path, because that directory also has a module called devexchange."""
    place = Path(__file__).parents[3] / "tests" / "third-party" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, place)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


driver, scenes = shared("driver"), shared("scenes")
pytest_generate_tests, pytest_collection_finish = scenes.pytest_generate_tests, scenes.pytest_collection_finish


def is_all_released():
    # A call into the package gives up what other threads left to Python.
    devexchange.from_buffer(b"").close()
    return devexchange.outstanding() == 0


@pytest.fixture
def cuda(seed):
    driver.set_seed(seed)
    before = scenes.live()
    cuda = scenes.Cuda()
    yield cuda
    gc.collect()
    driver.wait_until(is_all_released)
    cuda.close()
    assert driver.take_findings() == []
    assert scenes.live() == before, driver.ledger()
