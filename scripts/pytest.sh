#!/usr/bin/env bash
# How a test script runs a directory of tests in Python and counts them (sourced, after report.sh):
#
#   run_tests PYTHON NAME DIRECTORY [ARGUMENTS OF PYTEST]      DIRECTORY below bindings-python/tests
#
# The output stays in target/python/NAME.log.

# pytest counts (bindings-python/tests/conftest.py), and what is found at the end of the process is in the status.
run_tests() {
  local log=$DEVX_TARGET/python/$2.log status=0 passed failed skipped
  echo "--- $2"
  "$1" -m pytest -q -p no:cacheprovider --tb=short "$DEVX_ROOT/bindings-python/tests/$3" "${@:4}" >"$log" 2>&1 ||
    status=$?
  cat "$log"
  read -r passed failed skipped \
    < <(sed -nE 's/^counts: ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$log") || true
  tests_passed=$((tests_passed + ${passed:-0}))
  tests_failed=$((tests_failed + ${failed:-0}))
  tests_skipped=$((tests_skipped + ${skipped:-0}))
  if [ "$status" -ne 0 ] && [ "${failed:-0}" -eq 0 ]; then not_ok "$2" "exit status $status"; fi
}
