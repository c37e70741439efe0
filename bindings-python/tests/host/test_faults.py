"""Faults: each allocation of the library fails, and each Python callback raises.

Then Python's own error is raised, nothing is taken, and everything is released once. This runs in a separate process,
in which the library keeps no memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("what", ["allocations", "exports", "callbacks"])
def test_faults(what):
    program = Path(__file__).parents[1] / "faults.py"
    environment = {**os.environ, "DEVEXCHANGE_KEEP_BLOCKS": "0"}
    ran = subprocess.run([sys.executable, program, what], env=environment, capture_output=True, text=True, check=False)
    print(ran.stdout)
    assert ran.returncode == 0, f"{ran.returncode}\n{ran.stdout}\n{ran.stderr[-4000:]}"
    assert int(ran.stdout.split()[-2]) > {"allocations": 15000, "exports": 50, "callbacks": 100}[what]
