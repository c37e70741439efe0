#!/usr/bin/env bash
# The Python binding: its wheel with NumPy, PyArrow, nanoarrow and tvm-ffi in host memory, and with cuda.core on the
# simulated CUDA driver, on each of its schedules.
#
#   scripts/test-python.sh [ARGUMENTS OF PYTEST]
#
# Prints, last, `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"

tests=$DEVX_ROOT/bindings-python/tests
out=$DEVX_TARGET/python
driver=$out/simcuda
schedules=(lazy adversarial threads)

# pytest counts, and what the driver finds at the end of the process is in the status.
run_tests() { # NAME DIRECTORY ARGUMENTS...
  local log=$out/$1.log status=0 passed failed skipped
  echo "--- $1"
  "$out/venv/bin/python" -m pytest -q -p no:cacheprovider --tb=short "$tests/$2" "${@:3}" >"$log" 2>&1 || status=$?
  cat "$log"
  read -r passed failed skipped \
    < <(sed -nE 's/^counts: ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$log") || true
  tests_passed=$((tests_passed + ${passed:-0}))
  tests_failed=$((tests_failed + ${failed:-0}))
  tests_skipped=$((tests_skipped + ${skipped:-0}))
  if [ "$status" -ne 0 ] && [ "${failed:-0}" -eq 0 ]; then not_ok "$1" "exit status $status"; fi
}

main() {
  export PYTHONDONTWRITEBYTECODE=1
  if check "the wheel is built" "$DEVX_ROOT/scripts/build-python.sh"; then
    run_tests host host "$@"
    if check "the simulated CUDA driver is there" "$DEVX_ROOT/tests/simcuda/driver/place.sh" "$driver" 13000; then
      export LD_LIBRARY_PATH=$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} SIMCUDA_FATAL=exit SIMCUDA_DEVICES=2
      local schedule
      for schedule in "${schedules[@]}"; do SIMCUDA_MODE=$schedule run_tests "$schedule" cuda "$@"; done
    fi
  fi
  report_counts
}

main "$@"
