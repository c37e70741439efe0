"""Programs of their own in Python, to their end."""

import subprocess
import sys
import textwrap


def run(program, *arguments):
    """What it says. It has to end well, and complains of nothing."""
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (child.returncode, child.stderr) == (0, ""), child
    return child.stdout
