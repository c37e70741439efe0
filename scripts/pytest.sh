#!/usr/bin/env bash
# How a test script runs a directory of tests in Python and counts them (sourced, after report.sh):
#
#   run_tests PYTHON NAME DIRECTORY [ARGUMENTS OF PYTEST]      DIRECTORY below bindings-python/tests
#
# The output stays in target/python/NAME.log.

# pytest counts (bindings-python/tests/conftest.py), and what is found at the end of the process is in the status.
run_tests() {
  local log=$DEVX_TARGET/python/$2.log status=0
  echo "--- $2"
  "$1" -m pytest -q -p no:cacheprovider --tb=short "$DEVX_ROOT/bindings-python/tests/$3" "${@:4}" >"$log" 2>&1 ||
    status=$?
  cat "$log"
  add_counts "$2" "$status" "$log"
}
