#!/usr/bin/env python3
"""Runs programs with benches against each other and compares devexchange with the others (docs/bench.md); called by
scripts/bench.sh.

    run.py --results FILE [--quick] [--only TEXT] [--operations FILE] [--times-only] [--missing WHAT WHY]...
           PROGRAM...

Each program lists what it offers (`PROGRAM list`) and then reads one request per line and answers with one line, as
described in c/bench.c. Samples of all programs are taken in turn, so that a disturbance affects all of them.
Instructions are counted afterwards, by running the same programs again under valgrind.
"""

import argparse
import itertools
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

OURS, FLOOR = "devexchange", "floor"
OPERATIONS = pathlib.Path(__file__).with_name("operations.tsv")
# Operations that only the floor has: parts of other operations.
PARTS = "driver/"


class Program:
    """A running program with benches."""

    def __init__(self, path, wrapper=()):
        self.path = path
        self.process = subprocess.Popen([*wrapper, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def sample(self, operation, implementation, times):
        """Returns the nanoseconds and allocations of the given number of repetitions."""
        self.process.stdin.write(f"{operation}\t{implementation}\t{times}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"bench: {self.path} ended within {operation}")
        return tuple(map(int, answer.split("\t")))

    def end(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            sys.exit(f"bench: {self.path}: exit status {self.process.returncode}")


class CountedProgram(Program):
    """A running program under callgrind, which counts within `bench_measured` and dumps the count after each call of
    it."""

    def __init__(self, path, directory):
        self.dumps = (pathlib.Path(directory, f"dump.{n}") for n in itertools.count(1))
        super().__init__(path, ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={directory}/dump",
                                "--toggle-collect=bench_measured", "--dump-after=bench_measured"])

    def count(self, row, times):
        self.sample(row.operation, row.implementation, times)
        dump = next(self.dumps)
        totals = [line.split()[1] for line in dump.read_text().splitlines() if line.startswith("totals:")]
        dump.unlink()
        return int(totals[0])

    def instructions(self, row, times):
        """Returns the instructions per operation. The difference leaves out what does not depend on the repetitions.

        The first count is a warm-up, in which the allocator may tidy up after the operation before.
        """
        _, once, twice = (self.count(row, n * times) for n in (1, 1, 2))
        return plain((twice - once) / times)


class Row:
    """One implementation of one operation."""

    def __init__(self, operation, implementation, program):
        self.operation, self.implementation, self.program, self.path = operation, implementation, program, program.path
        self.times, self.ns, self.allocations, self.instructions = 1, [], [], None

    def is_counted(self):
        """Whether instructions can be counted. Valgrind runs one thread at a time, so it is chance how long threads
        wait for each other."""
        return not self.operation.startswith("threads/")

    def sample(self):
        ns, allocations = self.program.sample(self.operation, self.implementation, self.times)
        self.ns.append(ns / self.times)
        self.allocations.append(allocations / self.times)

    def calibrate(self, target_ns):
        """Finds how many repetitions fill a sample, by the least of a few; these are also the warm-up."""
        while True:
            ns = min(self.program.sample(self.operation, self.implementation, self.times)[0] for _ in range(3))
            if ns >= target_ns / 2:
                break
            self.times = math.ceil(self.times * min(100, 1.2 * target_ns / max(ns, 1)))

    def result(self):
        return {"operation": self.operation, "implementation": self.implementation,
                "min_ns": round(min(self.ns), 2), "median_ns": round(statistics.median(self.ns), 2),
                "allocations": plain(statistics.median(self.allocations)), "instructions": self.instructions}


def plain(number):
    """Rounds to one decimal, or to a whole number if that is less than 0.05 away."""
    return round(number) if abs(number - round(number)) < 0.05 else round(number, 1)


def read_operations(path):
    """Returns the operations in the order of the table, each with a note on its peers, which may be empty."""
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    return {line[0]: line[1] if len(line) > 1 else "" for line in lines}


def read_lists(paths):
    """Returns what the programs offer: [(operation, implementation, path)]."""
    offered = []
    for path in paths:
        text = subprocess.run([path, "list"], check=True, stdout=subprocess.PIPE, text=True).stdout
        offered += [(*line.split("\t"), path) for line in text.splitlines()]
    return offered


def check_offers(offered, operations):
    """Checks that devexchange and the floor have every operation, and that no program offers another one."""
    there = {(operation, implementation) for operation, implementation, _ in offered}
    wanted = {(operation, who) for operation in operations for who in (OURS, FLOOR)
              if who == FLOOR or not operation.startswith(PARTS)}
    missing, unknown = sorted(wanted - there), sorted(pair for pair in there if pair[0] not in operations)
    if missing or unknown or len(there) != len(offered):
        sys.exit(f"bench: missing {missing}, not in the list {unknown}, {len(offered) - len(there)} twice")


def is_gone(operation, missing):
    """Whether the operation belongs to a language, or a part of one, that is missing."""
    return f"{operation}/".startswith(tuple(what + "/" for what, _ in missing))


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def measure_times(rows, options):
    """Measures one operation after the other, its implementations in turn, and repeats all of it, so that what
    disturbs the machine for seconds is not in all the samples of one operation."""
    passes, rounds, target_ns = (1, 2, 2e5) if options.quick else (3, 7, 5e6)
    for _ in range(passes):
        for _, group in itertools.groupby(rows, key=lambda row: row.operation):
            group = list(group)
            for row in group:
                row.calibrate(target_ns)
            for _ in range(rounds):
                for row in group:
                    row.sample()


def count_instructions(rows, options):
    """Counts the instructions of ELF programs; the others are launchers of interpreters and JVMs."""
    if shutil.which("valgrind") is None:
        print("instructions are not counted: no valgrind here")
        return
    for path in dict.fromkeys(row.path for row in rows if is_elf(row.path)):
        with tempfile.TemporaryDirectory() as directory:
            program = CountedProgram(path, directory)
            for row in (row for row in rows if row.path == path and row.is_counted()):
                row.instructions = program.instructions(row, 2 if options.quick or min(row.ns) > 1e5 else 100)
            program.end()


def best_peer(results):
    """The peer with the fewest instructions; with the least time, if instructions were not counted for all."""
    peers = [result for result in results if result["implementation"] not in (OURS, FLOOR)]
    counted = all(peer["instructions"] is not None for peer in peers)
    return min(peers, key=lambda peer: peer["instructions" if counted else "min_ns"], default=None)


def number(result, key):
    """Formats a figure: a float below 100 with one decimal, any other without, and a missing one as a hyphen."""
    if result is None or result[key] is None:
        return "-"
    value = result[key]
    return f"{value:,.1f}" if isinstance(value, float) and value < 100 else f"{value:,.0f}"


def ratio(ours, theirs, key):
    if theirs is None or ours[key] is None or not theirs[key]:
        return "-"
    return f"{ours[key] / theirs[key]:.2f}"


def grouped(results):
    """{operation: {implementation: result}}"""
    groups = {}
    for result in results:
        groups.setdefault(result["operation"], {})[result["implementation"]] = result
    return groups


def read_results(path):
    return json.loads(path.read_text())


def print_table(results, operations):
    """Prints our figures with their ratios to the floor's and the best peer's, or the floor's where there are none."""
    line = "{:<32}{:>12}{:>12}{:>8}{:>7}  {:>8}{:>7}{:>8}  {:>11}{:>8}{:>7}  {}"
    print("\n" + line.format("", "time, ns", "", "", "", "allocs", "", "", "instr", "", "", ""))
    print(line.format("operation", "min", "median", "/floor", "/peer", "ours", "floor", "peer",
                      "ours", "/floor", "/peer", "best peer"))
    for operation, group in grouped(results).items():
        floor, peer = group[FLOOR] if OURS in group else None, best_peer(group.values())
        ours = group.get(OURS, group[FLOOR])
        print(line.format(
            operation, number(ours, "min_ns"), number(ours, "median_ns"),
            ratio(ours, floor, "min_ns"), ratio(ours, peer, "min_ns"),
            *(number(who, "allocations") for who in (ours, floor, peer)),
            number(ours, "instructions"), ratio(ours, floor, "instructions"), ratio(ours, peer, "instructions"),
            peer["implementation"] if peer else operations[operation] or "none here"))
    print()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", required=True, type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="only to see that everything runs; its times say nothing")
    parser.add_argument("--only", default="", help="operations with this text in their name")
    parser.add_argument("--operations", default=OPERATIONS, type=pathlib.Path, help="all that there are, in order")
    parser.add_argument("--times-only", action="store_true", help="instructions are not counted")
    parser.add_argument("--missing", action="append", default=[], nargs=2, metavar=("WHAT", "WHY"),
                        help="a peer, or the first part of names of operations, that is not here")
    parser.add_argument("programs", nargs="+")
    options = parser.parse_args()

    missing = options.missing
    listed = read_operations(options.operations)
    operations = {name: note for name, note in listed.items() if not is_gone(name, missing)}
    offered = [offer for offer in read_lists(options.programs) if not is_gone(offer[0], missing)]
    check_offers(offered, operations)
    if not any(options.only in operation for operation in operations):
        sys.exit(f"bench: no operation has '{options.only}' in its name; they are in {options.operations}")
    running = {path: Program(path) for path in options.programs}
    rows = [Row(operation, implementation, running[path]) for wanted in operations if options.only in wanted
            for operation, implementation, path in offered if operation == wanted]

    measure_times(rows, options)
    for program in running.values():
        program.end()
    if not options.times_only:
        count_instructions(rows, options)
    results = [row.result() for row in rows]
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text("[\n" + ",\n".join("  " + json.dumps(result) for result in results) + "\n]\n")
    print_table(results, operations)
    for what, why in missing:
        print(f"not here: {what}: {why}")
    print(f"{len(results)} rows in {options.results}")


if __name__ == "__main__":
    main()
