"""Summarises the results of the peers: python results.py RESULTS... [--doc FILE [--bless]]

RESULTS is a file PEER.tsv with a line for each exchange, in columns:

    case        of the corpus
    direction   "to peer": devexchange exports, and the peer imports, validates in full and compares with its own array;
                "from peer": the peer exports, and devexchange imports and compares schema, rows and null counts
    transport   array, device array, stream, device stream, async
    place       host or cuda
    layout      of the corpus; "from peer", the layout of the batch that the peer imported and exports again. "its own" is
                a batch that the peer read from a file, "its own slice" the same without the first and the last row
    result      ok; wrong: devexchange failed, or the result is not the expected one; refused: an error of the peer;
                crashes: the exchange is not tried, because it would end the peer
    how         details, if the result is not ok

The last line is `outstanding<TAB>0`, if everything was released. For known.toml that line is the case "the end".

known.toml explains results that are not ok. A result without an explanation fails, and so does an explanation that
explains no result.
Prints a matrix for each peer, and ends with the line `counts: N passed, N failed, N skipped`.
"""

import argparse
import re
import sys
import tomllib
from collections import namedtuple
from fnmatch import fnmatchcase
from pathlib import Path

HERE = Path(__file__).parent
FIELDS = ("case", "direction", "transport", "place", "layout", "result", "how")
Exchange = namedtuple("Exchange", ("peer", *FIELDS))

TRANSPORTS = ("array", "device array", "stream", "device stream", "async")
PATHS = [(transport, place) for transport in TRANSPORTS for place in ("host", "cuda")]
PATHS = [path for path in PATHS if path not in (("array", "cuda"), ("stream", "cuda"))]
DIRECTIONS = ("to peer", "from peer")
# The case to which the last line of a peer belongs.
THE_END = "the end"


class Known:
    """An explanation for exchanges that match all of its values; each of its patterns must match a case."""

    def __init__(self, number, entry):
        self.number = number
        self.why, self.how = entry.pop("why"), entry.pop("how", "")
        self.cases = {pattern: 0 for pattern in entry.pop("cases", ["*"])}
        self._wanted = {field: [value] if isinstance(value, str) else value for field, value in entry.items()}
        self.peers = set(self._wanted["peer"])
        unknown = self._wanted.keys() - Exchange._fields
        if unknown:
            raise SystemExit(f"known.toml: {unknown} is nothing that an exchange has")

    def explains(self, exchange):
        if any(getattr(exchange, field) not in values for field, values in self._wanted.items()):
            return False
        if not re.search(self.how, exchange.how):
            return False
        matching = [pattern for pattern in self.cases if fnmatchcase(exchange.case, pattern)]
        for pattern in matching:
            self.cases[pattern] += 1
        return bool(matching)

    def unused(self):
        return [pattern for pattern, count in self.cases.items() if count == 0]


class Count:
    passed = failed = 0

    @classmethod
    def ok(cls):
        cls.passed += 1

    @classmethod
    def not_ok(cls, what):
        cls.failed += 1
        print(f"not ok - {what}")


def read(file):
    """The exchanges with one peer."""
    found, outstanding = [], None
    for line in file.read_text(errors="replace").split("\n")[:-1]:
        words = line.split("\t")
        if words[0] == "outstanding":
            outstanding = words[1]
        elif len(words) == len(FIELDS):
            found.append(Exchange(file.stem, *words))
        else:
            Count.not_ok(f"{file.stem}: {line!r} is no result")
    result = "ok" if outstanding == "0" else "wrong"
    return [*found, Exchange(file.stem, THE_END, "", "", "", "", result, f"outstanding is {outstanding}")]


def judge(exchanges, known):
    """The cells by (peer, case, path), each with a list for each direction: "ok", "not ok" and numbers of explanations."""
    cells = {}
    for exchange in exchanges:
        cell = cells.setdefault((exchange.peer, exchange.case, (exchange.transport, exchange.place)), {})
        direction = cell.setdefault(exchange.direction, [])
        if exchange.result == "ok":
            direction.append("ok")
            Count.ok()
            continue
        numbers = [entry.number for entry in known if entry.explains(exchange)]
        if numbers:
            direction.extend(numbers)
            Count.ok()
        else:
            direction.append("not ok")
            Count.not_ok(" | ".join(exchange))
    for entry in known:
        for pattern in entry.unused():
            Count.not_ok(f"known.toml: nothing is as in {pattern!r} of: {entry.why}")
    return cells


def require_all_layouts(exchanges):
    """Whoever takes a case must try all of its layouts, on every path: a layout that is left out would not be seen."""
    tried, wanted = {}, {}
    for exchange in exchanges:
        if exchange.direction == "to peer":
            tried.setdefault((exchange.case, exchange.peer, exchange.transport, exchange.place), set()).add(exchange.layout)
            if exchange.result == "ok":
                wanted.setdefault(exchange.case, set()).add(exchange.layout)
    for (case, *path), layouts in tried.items():
        for layout in sorted(wanted.get(case, set()) - layouts):
            Count.not_ok(f"{' | '.join((*path, case))}: nobody tried the layout {layout!r}")


def shown(found):
    """The text of a cell: "not ok" if a result is unexplained or missing, "ok" if a layout is ok, and the explanations."""
    words = ["not ok"] if "not ok" in found or not found else []
    words += ["ok"] if "ok" in found else []
    return " ".join(words + [f"[{note}]" for note in sorted({note for note in found if isinstance(note, int)})])


def matrices(cases, peers, cells, known):
    """The document, line by line."""
    for peer, about in peers.items():
        lacks = about.get("lacks", {})
        yield f"## {about['title']}"
        yield ""
        yield f"{about['version']}; {about['how']}."
        for transport, why in lacks.items():
            yield f"No {transport}: {why}."
        yield ""
        paths = [path for path in PATHS if path[0] not in lacks and " ".join(path) not in lacks]
        yield "| case | " + " | ".join(f"{transport}, {place}: to / from" for transport, place in paths) + " |"
        yield "|---|" + "---|" * len(paths)
        used = set()
        for case in cases:
            row = []
            for path in paths:
                cell = cells.get((peer, case, path), {})
                if "from peer" not in cell and "ok" not in cell.get("to peer", ["ok"]):
                    # The peer imported no layout, so it had nothing to export again.
                    cell["from peer"] = cell["to peer"]
                words = [shown(cell.get(direction, [])) for direction in DIRECTIONS]
                for direction in DIRECTIONS:
                    if direction not in cell:
                        Count.not_ok(f"{peer} | {case} | {direction} | {' '.join(path)}: nobody tried")
                used.update(note for found in cell.values() for note in found)
                row.append(words[0] if words[0] == words[1] else " / ".join(words))
            yield f"| {case} | " + " | ".join(row) + " |"
        yield ""
        for entry in known:
            if entry.number in used:
                yield f"* [{entry.number}] {entry.why}"
        yield ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--doc", type=Path)
    parser.add_argument("--bless", action="store_true")
    parser.add_argument("--before", default="0 0", help="what passed and what failed before, which counts as well")
    arguments = parser.parse_args()

    table = tomllib.loads((HERE / "known.toml").read_text())
    found = {file.stem for file in arguments.results}
    peers = {peer: about for peer, about in table["peers"].items() if peer in found}
    known = [Known(number, entry) for number, entry in enumerate(table["known"], 1)]
    known = [entry for entry in known if entry.peers & found]
    cases = (arguments.corpus / "cases").read_text().splitlines()
    exchanges = [exchange for file in arguments.results for exchange in read(file)]
    cells = judge(exchanges, known)
    require_all_layouts(exchanges)
    lines = list(matrices(cases, peers, cells, known))
    head = (HERE / "head.md").read_text().replace("@CASES@", str(len(cases)))
    text = head + "\n".join(lines).rstrip() + "\n"
    print(text)
    if arguments.doc:
        if arguments.bless:
            arguments.doc.write_text(text)
        if arguments.doc.exists() and arguments.doc.read_text() == text:
            Count.ok()
        else:
            Count.not_ok(f"{arguments.doc} is not what was found now; DEVX_BLESS=1 make conformance writes it")
    Count.passed, Count.failed = (
        sum(pair) for pair in zip(map(int, arguments.before.split()), (Count.passed, Count.failed))
    )
    print(f"counts: {Count.passed} passed, {Count.failed} failed, 0 skipped")
    return Count.failed > 0


sys.exit(main())
