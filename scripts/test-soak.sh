#!/usr/bin/env bash
# Runs the soak (scripts/soak.sh) for a few seconds, in host memory and in that of the simulated CUDA driver. Such a
# short run checks values, refusals, releases and ledgers, but not the growth of memory. Also exchanges random arrays of
# PyArrow.
#
# Ends with the line `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"

soak() { "$DEVX_ROOT/scripts/soak.sh" --seconds 4 --processes 1; }
soak_cuda() { SIMCUDA=1 soak; }

if check "the wheel is built" "$DEVX_ROOT/scripts/build-python.sh"; then
  check "soak: C, Java, Julia and Python in one process, host memory" soak || true
  check "soak: C, Java, Julia and Python in one process, device memory" soak_cuda || true
  check "soak: random arrays of PyArrow in Java and Julia" "$DEVX_ROOT/scripts/soak.sh" arrays || true
fi
report_counts
