#!/usr/bin/env bash
# How a test script runs a directory of tests in Python and counts them (sourced, after report.sh):
#
#   run_tests PYTHON NAME DIRECTORY [ARGUMENTS OF PYTEST]      DIRECTORY below bindings-python/tests
#   start_tests …                                              the same beside others, until `finish`
#
# The output stays in target/python/NAME.log. pytest counts (bindings-python/tests/conftest.py), and what is found at the
# end of the process is in the status.

start_tests() {
  start "$2" "$DEVX_TARGET/python/$2.log" \
    "$1" -m pytest -q -p no:cacheprovider --tb=short "$DEVX_ROOT/bindings-python/tests/$3" "${@:4}"
}

run_tests() {
  start_tests "$@"
  finish
}
