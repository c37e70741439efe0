"""Runs Python programs in processes of their own, to their end."""

import subprocess
import sys
import textwrap


def run(program, *arguments):
    """Runs a program and returns its output. It has to succeed and write nothing to stderr."""
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    child = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (child.returncode, child.stderr) == (0, ""), child
    return child.stdout
