#!/usr/bin/env python3
"""Writes the table of a run into documents: record.py RESULTS WHERE FILE...

WHERE names the machine. In each file, the text between a line `<!-- bench: all -->` or `<!-- bench: selected -->` and
the next `<!-- bench: end -->` is replaced.
"""

import datetime
import pathlib
import re
import sys

from run import FLOOR, OURS, best_peer, grouped, number, read_results

SELECTED = (
    "dlpack/shared", "dlpack/moved", "dlpack/borrowed", "device-array/with-schema/1", "device-array/with-schema/100",
    "device-array/with-schema/10000", "device-array/schema-agreed/100", "schema/import/1000", "stream/plain/10",
    "python/numpy-in", "python/arrow-in/100", "java/batch-read/100", "julia/tensor-import",
)
BETWEEN = re.compile(r"(<!-- bench: (all|selected) -->\n).*?(<!-- bench: end -->)", re.DOTALL)


def cell(result):
    """Nanoseconds (the least and the median), allocations, instructions."""
    keys = "min_ns", "median_ns", "allocations", "instructions"
    best, median, allocations, instructions = (number(result, key) for key in keys)
    return f"{best} ({median}) · {allocations} · {instructions}"


def peers_of(group, selected):
    peers = [result for who, result in group.items() if who not in (OURS, FLOOR)]
    if selected:
        peers = [best_peer(peers)] if peers else []
    return "<br>".join(f"{peer['implementation']} {cell(peer)}" for peer in peers) or "–"


def table(results, selected, where):
    yield f"{where}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}."
    yield "Nanoseconds per operation, the least of 21 samples (and the median) · allocations · instructions, or - where"
    yield "they are not counted."
    yield ""
    yield "| operation | devexchange | floor | " + ("best peer |" if selected else "peers |")
    yield "|---|---|---|---|"
    for operation, group in grouped(results).items():
        if selected and operation not in SELECTED:
            continue
        yield f"| `{operation}` | {cell(group[OURS])} | {cell(group[FLOOR])} | {peers_of(group, selected)} |"


def main():
    results, where = read_results(pathlib.Path(sys.argv[1])), sys.argv[2]

    def fill(match):
        return "\n".join([match[1], *table(results, match[2] == "selected", where), "", match[3]])

    for path in map(pathlib.Path, sys.argv[3:]):
        text, found = BETWEEN.subn(fill, path.read_text())
        if not found:
            sys.exit(f"record: {path} has no place for a table")
        path.write_text(text)


main()
