#!/usr/bin/env bash
# Tests the Python binding on a CPython without a GIL (3.14 or newer), which loads a wheel of its own.
#
#   FREE_THREADED_PYTHON=python3.14t scripts/test-python-ft.sh [ARGUMENTS OF PYTEST]
#
# Not part of `make test`, because Debian has no such interpreter.
#
# Ends with the line `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"
# shellcheck source=scripts/pytest.sh
. "$DEVX_ROOT/scripts/pytest.sh"

interpreter=$(devx_first_of "${FREE_THREADED_PYTHON:-}" python3.15t python3.14t)
python=$DEVX_TARGET/python/free-threaded/venv/bin/python

if [ -z "$interpreter" ]; then
  echo "no CPython without a GIL found: set FREE_THREADED_PYTHON to one" >&2
  exit 1
fi
if ! "$interpreter" -c 'import sys; sys.exit(sys._is_gil_enabled())'; then
  echo "$interpreter has a GIL" >&2
  exit 1
fi

main() {
  # Modules that do not declare that they work without a GIL would bring it back.
  export PYTHONDONTWRITEBYTECODE=1 PYTHON_GIL=0
  # These packages have no wheel for it, so the tests that need them cannot run.
  export WITHOUT='duckdb librmm-cu13 polars polars-runtime-32 rapids-logger rmm-cu13'
  if check "the wheel is built" "$DEVX_ROOT/scripts/build-python.sh" "$interpreter" free-threaded; then
    run_tests "$python" free-threaded host --ignore="$DEVX_ROOT/bindings-python/tests/host/test_dataframes.py" "$@"
  fi
  report_counts
}

main "$@"
