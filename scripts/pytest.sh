#!/usr/bin/env bash
# Functions with which a test script runs a directory of Python tests and counts them (sourced, after report.sh):
#
#   run_tests PYTHON NAME DIRECTORY [ARGUMENTS OF PYTEST]      DIRECTORY below bindings-python/tests
#   start_tests …                                              the same beside others, until `finish`
#
# The output stays in target/python/NAME.log. pytest counts the tests (bindings-python/tests/conftest.py); findings at
# the end of the process show in its exit status.

start_tests() {
  start "$2" "$DEVX_TARGET/python/$2.log" \
    "$1" -m pytest -q -p no:cacheprovider --tb=short "$DEVX_ROOT/bindings-python/tests/$3" "${@:4}"
}

run_tests() {
  start_tests "$@"
  finish
}
