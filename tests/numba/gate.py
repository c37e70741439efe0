"""Runs Numba's own tests on our memory manager, on the simulated CUDA driver, and judges the result of each method.

    gate.py MANAGER EXPECTED... [--write]

Runs in an environment with one generation of Numba, with the driver on LD_LIBRARY_PATH. MANAGER is a value of
DEVEXCHANGE_NUMBA_MANAGER. The files EXPECTED list methods that cannot pass, because they need a kernel, with the
reason. All others must pass, or be skipped by Numba with a reason. A listed method that passes, or fails for another
reason, is a failure. So is a module whose process fails: the driver makes it fail after any finding.
`--write` rewrites the first list.

Prints the failures and what did not run, and ends with the line `counts: N passed, N failed, 0 skipped`.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numba.cuda.tests

HERE = Path(__file__).parent
TESTS = Path(numba.cuda.tests.__file__).parent
SECONDS = 300

# Of Numba's driver tests, those of its compiler and its linkers are left out: nothing in them is about memory.
COMPILER = {
    "test_cuda_libraries",
    "test_inline_ptx",
    "test_linkable_code",
    "test_linker",
    "test_module_callbacks",
    "test_nvjitlink",
    "test_nvrtc",
    "test_nvvm_driver",
}
OTHERS = ["array_args", "cuda_array_interface", "ipc", "multigpu", "multithreads", "stream_api"]

# Methods that Numba skips without a reason, and our reason for each.
SKIPPED = {
    "cudadrv.test_managed_alloc.TestManagedAlloc.test_managed_alloc_driver_oversubscribe": "may hang a machine",
    "cudadrv.test_streams.TestFailingStream.test_failed_stream": "breaks the context",
}

# What the simulated driver cannot do: a text in the traceback of a method that fails for this reason, and the reason in
# words.
REASONS = {
    "nvvm": (r"libNVVM cannot be found|Failure finding \"libnvvm", "have a kernel compiled"),
    "nvrtc": (r"Failure finding \"libnvrtc", "have a kernel compiled from C++"),
    "module": (r"\[200\] .*cuModuleLoadDataEx", "load a kernel"),
    "library": (r"Function \"cuLibraryLoadData\" not found", "load a kernel"),
    # This is not due to the driver: memory of a pool has no handle.
    "pool": (r"Refused: .*the memory is of a pool that was not made to be shared", "share memory of a pool"),
}


def modules():
    driver = sorted(path.stem for path in (TESTS / "cudadrv").glob("test_*.py"))
    yield from (f"cudadrv.{name}" for name in driver if name not in COMPILER)
    # Only numba-cuda has test_stream_api.
    yield from (f"cudapy.test_{name}" for name in OTHERS if (TESTS / "cudapy" / f"test_{name}.py").exists())


def surroundings(manager):
    names = {name: text for name, text in os.environ.items() if not name.startswith(("NUMBA_", "SIMCUDA_", "CUDA_"))}
    # Numba relies on a driver that waits in cuMemFree and in uploads. No method needs much memory; one method asks for
    # more than there is.
    return names | {
        "DEVEXCHANGE_NUMBA_MANAGER": manager,
        "NUMBA_CUDA_MEMORY_MANAGER": "devexchange.numba",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SIMCUDA_DEVICES": "2",
        "SIMCUDA_FATAL": "exit",
        "SIMCUDA_FREE": "waits",
        "SIMCUDA_MEM_MB": "256",
        "SIMCUDA_STAGING": "waits",
        "SIMCUDA_VISIBLE": "1",
    }


def run(module, environment, results, seconds=SECONDS):
    """Runs a module. Returns outcome and text of each method, by name, and the number of allocations of our manager."""
    command = [sys.executable, str(HERE / "methods.py"), module, str(results)]
    try:
        done = subprocess.run(
            command, env=environment, timeout=seconds, capture_output=True, text=True, errors="replace"
        )
        ended, said = f"exit status {done.returncode}" if done.returncode else "", done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        ended, said = f"it takes more than {seconds:.0f} s", (error.stderr or b"").decode(errors="replace")
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    methods = {name: (outcome, text or SKIPPED.get(name, "")) for name, outcome, text in lines if name}
    allocated = sum(text for name, _, text in lines if not name)
    if ended:
        methods[module] = ("failed", f"{ended}\n{said}")
    return methods, allocated


def reason_of(text):
    return next((name for name, (pattern, _) in REASONS.items() if re.search(pattern, text)), None)


def read_expected(paths):
    lines = [line for path in paths for line in path.read_text().splitlines()]
    return dict(line.split() for line in lines if line and not line.startswith("#"))


def write_expected(path, methods):
    needing = {name: reason_of(text) for name, (outcome, text) in methods.items() if outcome == "failed"}
    path.write_text("".join(f"{name} {reason}\n" for name, reason in sorted(needing.items()) if reason))


def judge(methods, expected):
    """The failures, as pairs of a method and a text."""
    for name, (outcome, text) in methods.items():
        wanted = expected.get(name)
        if wanted and outcome != "failed":
            yield name, f"is {outcome}, and is listed as one that cannot be here ({wanted})"
        elif wanted and reason_of(text) != wanted:
            yield name, f"fails, but not for the reason that is listed ({wanted})\n{text}"
        elif not wanted and outcome == "failed":
            yield name, text
        elif outcome == "skipped" and not text:
            yield name, "is skipped without a reason"
    for name in sorted(expected.keys() - methods.keys()):
        yield name, "is listed as one that cannot be here, and is not there at all"


def report(methods, failures, allocated):
    outcomes = Counter(outcome for outcome, _ in methods.values())
    for name, text in failures:
        print(f"not ok - {name}: {text}")
    for text, count in sorted(Counter(text for outcome, text in methods.values() if outcome == "skipped").items()):
        print(f"not run here, skipped by Numba: {count} x {text}")
    reasons = Counter(reason_of(text) for outcome, text in methods.values() if outcome == "failed")
    for reason, count in sorted((reason, count) for reason, count in reasons.items() if reason):
        print(f"not run here: {count} methods {REASONS[reason][1]} ({reason})")
    elsewhere = f"{sum(reasons.values())} cannot be here, {outcomes['skipped']} skipped by Numba"
    print(f"{len(methods)} methods: {outcomes['passed']} passed, {elsewhere}; {allocated} allocations of our manager")
    print(f"counts: {outcomes['passed']} passed, {len(failures)} failed, 0 skipped")


def main(manager, *arguments):
    paths = [Path(argument) for argument in arguments if argument != "--write"]
    environment = surroundings(manager)
    methods, allocated = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for module in modules():
            found, count = run(module, environment, Path(folder) / module)
            methods |= found
            allocated += count
    if "--write" in arguments:
        write_expected(paths[0], methods)
    failures = list(judge(methods, read_expected(paths)))
    if not allocated:
        failures.append(("devexchange", "the memory manager was not asked for anything"))
    report(methods, failures, allocated)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
