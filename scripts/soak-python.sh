#!/usr/bin/env bash
# Makes many exchanges for each protocol in Python and checks that memory stays flat: in host memory, and on the
# simulated CUDA driver.
#
#   ROUNDS=1000000 scripts/soak-python.sh [ARGUMENTS OF PYTEST]
#
# Prints a line of figures for each protocol and ends with the line `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"
# shellcheck source=scripts/pytest.sh
. "$DEVX_ROOT/scripts/pytest.sh"

out=$DEVX_TARGET/python
python=$out/venv/bin/python
driver=$out/simcuda

main() {
  export PYTHONDONTWRITEBYTECODE=1 ROUNDS=${ROUNDS:-1000000}
  if check "the wheel is built" "$DEVX_ROOT/scripts/build-python.sh"; then
    run_tests "$python" soak host -k test_soak -rP "$@"
    if check "the simulated CUDA driver is there" "$DEVX_ROOT/tests/simcuda/driver/place.sh" "$driver" 13000; then
      export LD_LIBRARY_PATH=$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} SIMCUDA_FATAL=exit SIMCUDA_MODE=lazy
      run_tests "$python" soak-cuda cuda -k test_soak -rP "$@"
    fi
  fi
  report_counts
}

main "$@"
