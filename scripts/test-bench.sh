#!/usr/bin/env bash
# Whether the benches build and run, and say what they should; nothing that they measure is judged.
#
# Prints, last, `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"

results=$DEVX_TARGET/bench/quick.json

# For each operation a row of ours and one of the floor, with the fields of docs/bench.md and figures that can be.
rows_are_right() {
  "$PYTHON" - "$DEVX_ROOT/benches/operations.tsv" "$results" <<'PYTHON'
import json, sys

operations = [line.split("\t")[0].rstrip("\n") for line in open(sys.argv[1])]
rows = json.load(open(sys.argv[2]))
there = [(row["operation"], row["implementation"]) for row in rows]
assert len(operations) > 20 and len(there) == len(set(there)), there
for operation in operations:
    assert {"devexchange", "floor"} <= {who for what, who in there if what == operation}, operation
for row in rows:
    assert list(row) == ["operation", "implementation", "min_ns", "median_ns", "allocations", "instructions"], row
    assert row["operation"] in operations and 0 < row["min_ns"] <= row["median_ns"], row
    assert row["allocations"] >= 0 and row["instructions"] > 0, row
    assert row["implementation"] != "floor" or row["allocations"] == 0, row
PYTHON
}

rm -f "$results"
check "make bench QUICK=1" make --no-print-directory -C "$DEVX_ROOT" bench QUICK=1 || true
check "every operation has its rows, with all figures" rows_are_right || true
report_counts
