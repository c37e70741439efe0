#!/usr/bin/env bash
# Checks that the benches build and run and print what they should; no figure is judged.
#
# Ends with the line `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"

results=$DEVX_TARGET/bench/quick.json

# The languages besides C whose tools are here. Python's wheel may not be built yet.
languages_here() {
  if [ -n "$JAVAC" ]; then echo java; fi
  if [ -n "$JAVAC" ] && [ -n "$DEVX_JDK22" ]; then echo java-22; fi
  if [ -n "$JULIA" ]; then echo julia; fi
}

# Each operation must have a row for devexchange and one for the floor, with the fields of docs/bench.md and plausible
# figures. The operations of C are always there; those of Python, Java and Julia are all there or all missing.
rows_are_right() {
  # shellcheck disable=SC2046 # words
  "$PYTHON" - "$DEVX_ROOT/benches/operations.tsv" "$results" $(languages_here) <<'PYTHON'
import json, sys

languages = "python", "java", "java-22", "julia"
operations = [line.split("\t")[0].rstrip("\n") for line in open(sys.argv[1])]
rows = json.load(open(sys.argv[2]))
there = [(row["operation"], row["implementation"]) for row in rows]
assert len(operations) > 40 and len(there) == len(set(there)), there
here = {operation.split("/")[0] for operation, _ in there}
assert here.issuperset(sys.argv[3:]), f"{sys.argv[3:]} should be there, and {sorted(here)} are"
for operation in operations:
    # A quick run builds no crates.
    if operation.split("/")[0] in here or operation.split("/")[0] not in (*languages, "rust"):
        who = {implementation for name, implementation in there if name == operation}
        assert {"devexchange", "floor"} <= who or operation.startswith("python/torch-") and not who, operation
for row in rows:
    assert list(row) == ["operation", "implementation", "min_ns", "median_ns", "allocations", "instructions"], row
    assert row["operation"] in operations and 0 < row["min_ns"] <= row["median_ns"], row
    assert row["allocations"] >= 0, row
    in_python = row["operation"].startswith(("convert/", "copy/")) and row["implementation"] not in ("devexchange", "floor")
    if row["operation"].split("/")[0] in (*languages, "threads") or in_python:
        assert row["instructions"] is None, row
    else:
        assert row["instructions"] > 0 and (row["implementation"] != "floor" or row["allocations"] == 0), row
PYTHON
}

# The picture and the tables, made from figures that mean nothing.
documents_are_written() {
  local work=$DEVX_TARGET/bench/documents
  mkdir -p "$work" &&
    cp "$DEVX_ROOT/README.md" "$DEVX_ROOT/docs/bench.md" "$work" &&
    "$PYTHON" "$DEVX_ROOT/benches/picture.py" "$results" "$work/bench.svg" &&
    "$PYTHON" "$DEVX_ROOT/benches/record.py" "$results" "nowhere" "$work/README.md" "$work/bench.md" &&
    "$PYTHON" -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$work/bench.svg" &&
    grep -q '^nowhere, ' "$work/README.md" && grep -q '^nowhere, ' "$work/bench.md" &&
    grep -q 'dlpack/shared. | [0-9.]* (' "$work/README.md" &&
    grep -q 'stream/async/10. | [0-9,.]* (' "$work/bench.md"
}

rm -f "$results"
check "make bench QUICK=1" make --no-print-directory -C "$DEVX_ROOT" bench QUICK=1 || true
check "every operation has its rows, with all figures" rows_are_right || true
check "the picture and the tables are written" documents_are_written || true
if [ -n "$MVN" ] && [ -n "$JAVAC" ]; then
  check "the benches for JMH are compiled" "$DEVX_ROOT/scripts/bench-jmh.sh" --compile || true
else
  skipped "the benches for JMH are compiled" "no JDK or no Maven"
fi
report_counts
