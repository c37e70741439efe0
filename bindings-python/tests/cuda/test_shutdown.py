"""Releases after the driver is gone, as at the end of a process: the driver refuses every call from then on."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
    import ctypes, sys
    sys.path.insert(0, sys.argv[1])
    import numpy
    import devexchange
    from devexchange import DeviceStream, Tensor, from_buffer, from_dlpack
    from structs import Managed

    device = (2, 0)
    driver = ctypes.CDLL("libcuda.so.1")
    stream = DeviceStream(device)
    values = numpy.arange(6.0)
    # Plain memory and memory of a pool, each used by work that is queued, and by somebody else.
    plain = from_dlpack(values).copy_to(device, stream)
    pool = devexchange.empty((4,), device=device, stream=stream)
    for each in (plain, pool):
        each.used_on(stream)
    lent = [each.export_share(stream=stream) for each in (plain, pool)]
    # Host memory needs no driver.
    host = from_buffer(bytearray(8)).export_share()

    driver.simcuda_deinit()

    for address in lent:
        Managed.from_address(address).deleter(address)
    if sys.argv[2] == "close":
        plain.close()
        pool.close()
    Tensor.import_dlpack(host).close()
    for call in (lambda: from_dlpack(values).copy_to(device, 1), lambda: DeviceStream(device)):
        try:
            call()
        except devexchange.Error as error:
            assert "CUDA_ERROR_DEINITIALIZED" in str(error), error
        else:
            raise AssertionError("the driver is gone")
    print("the end")
"""


@pytest.mark.parametrize("how", ["close", "forget"])
def test_releases_after_the_driver_are_harmless(how):
    tests = Path(__file__).parents[1]
    # At an orderly end the driver reports what is left behind. Here it does not end in order.
    environment = {**os.environ, "SIMCUDA_FATAL": "off"}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tests), how]
    child = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert (child.returncode, child.stdout) == (0, "the end\n"), child
