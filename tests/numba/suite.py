"""Runs the complete suite of Numba's CUDA tests on a GPU, without our memory manager and with it, and compares both.

    suite.py run plain|ours RESULTS [--seconds N] [--jobs N] [MODULE...]
    suite.py compare RESULTS

`run` gives every module its own process, several at once, and writes RESULTS/numba-plain.txt or numba-ours.txt: a line
for each method with its outcome and the last line of its output. A module with a failure runs once more, alone, because
others were on the same device: what passes then counts as passed. After N seconds no more modules are started; a module
that did not run is a failure. The default is all modules; on the simulated driver (DEVX_GPU=rehearsal), those of gate.py.

`compare` requires that every method that passes without our manager passes with it, or that Numba itself skips it
there, and prints those that do not.

Ends with the line `counts: N passed, N failed, N skipped`: a run is one test, a comparison is one for each method that
passes without our manager.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gate

SIMULATED = os.environ.get("DEVX_GPU") == "rehearsal"
OURS = {"NUMBA_CUDA_MEMORY_MANAGER": "devexchange.numba", "DEVEXCHANGE_NUMBA_MANAGER": "driver"}


def all_modules():
    if SIMULATED:
        return list(gate.modules())
    paths = sorted(gate.TESTS.rglob("test_*.py"))
    return [".".join(path.relative_to(gate.TESTS).with_suffix("").parts) for path in paths]


def surroundings(kind):
    names = gate.surroundings("driver") if SIMULATED else dict(os.environ)
    others = {name: text for name, text in names.items() if name not in OURS}
    return others | OURS if kind == "ours" else others


class Run:
    """One run of modules, until a deadline."""

    def __init__(self, kind, seconds):
        self.environment = surroundings(kind)
        self.deadline = time.monotonic() + seconds
        self.allocated = 0

    def module(self, name):
        """Runs a module. Returns outcome and text of each method, by name, or None if there is no time left."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            return None
        with tempfile.TemporaryDirectory() as folder:
            methods, allocated = gate.run(name, self.environment, Path(folder) / name, seconds=min(left, gate.SECONDS))
        self.allocated += allocated
        return methods

    def all(self, modules, jobs):
        with ThreadPoolExecutor(jobs) as pool:
            found = dict(zip(modules, pool.map(self.module, modules), strict=True))
        for name, methods in found.items():
            if methods and any(outcome == "failed" for outcome, _ in methods.values()):
                found[name] = better(name, methods, self.module(name) or {})
        return found


def better(module, first, again):
    """The results of both runs: a method passes if it passed in either, and the process of the module if it succeeded in
    the second."""
    best = first | {name: result for name, result in again.items() if result[0] == "passed" or name not in first}
    if again and module not in again:
        best.pop(module, None)
    return best


def path_of(results, kind):
    return Path(results) / f"numba-{kind}.txt"


def write(path, methods):
    said = {name: (text.strip().splitlines() or [""])[-1].replace("\t", " ") for name, (_, text) in methods.items()}
    path.write_text("".join(f"{name}\t{methods[name][0]}\t{said[name]}\n" for name in sorted(methods)))


def read(path):
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    return {name: (outcome, text) for name, outcome, text in lines}


def run(kind, results, seconds, jobs, modules):
    this = Run(kind, seconds)
    found = this.all(modules or all_modules(), jobs)
    missed = sorted(name for name, methods in found.items() if methods is None)
    methods = {name: result for some in found.values() for name, result in (some or {}).items()}
    write(path_of(results, kind), methods)
    outcomes = Counter(outcome for outcome, _ in methods.values())
    for outcome, count in sorted(outcomes.items()):
        print(f"{kind}: {count} methods of {len(found)} modules: {outcome}")
    print(f"{kind}: {this.allocated} allocations of our manager; the list is in {path_of(results, kind).name}")
    wrong = []
    if missed:
        wrong.append(f"{len(missed)} modules did not run within {seconds} s: {' '.join(missed)}")
    if not outcomes["passed"]:
        wrong.append("no method passed")
        wrong += sorted({text for _, text in read(path_of(results, kind)).values()})[:5]
    if bool(this.allocated) != (kind == "ours"):
        wrong.append(f"our manager was asked for memory {this.allocated} times")
    for words in wrong:
        print(f"not ok - Numba's suite, {kind}: {words}")
    if not wrong:
        print(f"ok - Numba's suite, {kind}")
    return int(not wrong), int(bool(wrong)), 0


def compare(results):
    for kind in ["plain", "ours"]:
        if not path_of(results, kind).exists():
            print(f"not ok - there is no {path_of(results, kind).name} of an earlier run")
            return 0, 1, 0
    plain, ours = (read(path_of(results, kind)) for kind in ["plain", "ours"])
    wanted = [name for name, (outcome, _) in plain.items() if outcome == "passed"]
    # Numba skips the tests of its own manager if another one is used.
    skipped = Counter(ours[name][1] for name in wanted if ours.get(name, ("",))[0] == "skipped")
    worse = [name for name in wanted if ours.get(name, ("",))[0] not in ("passed", "skipped")]
    for text, count in sorted(skipped.items()):
        print(f"ok - {count} methods # skip Numba skips them with a manager that is not its own: {text}")
    for name in worse:
        outcome, text = ours.get(name, ("not there", ""))
        print(f"not ok - {name} passes without our manager, and with it is {outcome}: {text}")
    for name, (outcome, _) in ours.items():
        if outcome == "passed" and plain.get(name, ("",))[0] != "passed":
            print(f"only with our manager: {name}; without it: {': '.join(plain.get(name, ('not there',)))}")
    others = Counter(outcome for outcome, _ in plain.values() if outcome != "passed")
    passed = len(wanted) - len(worse) - skipped.total()
    print(f"{len(wanted)} methods pass without our manager, {passed} of them with it")
    print(f"not compared: {others['failed']} fail and {others['skipped']} are skipped without our manager")
    return passed, len(worse), skipped.total()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["run", "compare"])
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("rest", nargs="+")
    given = parser.parse_args()
    if given.what == "run":
        kind, results, *modules = given.rest
        passed, failed, skipped = run(kind, results, given.seconds, given.jobs, modules)
    else:
        passed, failed, skipped = compare(given.rest[0])
    print(f"counts: {passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
