#!/usr/bin/env bash
# Tests the Python binding's wheel with NumPy, PyArrow, polars, pandas, DuckDB, nanoarrow, tvm-ffi and JAX in host
# memory, with a JVM in the same process, and with cuda.core on the simulated CUDA driver, on each of its schedules.
#
#   scripts/test-python.sh [ARGUMENTS OF PYTEST]
#
# Ends with the line `counts: N passed, N failed, N skipped`.
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
schedules=(lazy adversarial threads)

main() {
  export PYTHONDONTWRITEBYTECODE=1
  if check "the wheel is built" "$DEVX_ROOT/scripts/build-python.sh"; then
    start_tests "$python" host host "$@"
    if check "the jar of the Java binding is there" devx_make_jar; then
      DEVX_JAR=$(devx_find_jar) start_tests "$python" jvm jvm "$@"
    fi
    if check "the simulated CUDA driver is there" "$DEVX_ROOT/tests/simcuda/driver/place.sh" "$driver" 13000; then
      export LD_LIBRARY_PATH=$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} SIMCUDA_FATAL=exit SIMCUDA_DEVICES=2
      local schedule
      for schedule in "${schedules[@]}"; do SIMCUDA_MODE=$schedule start_tests "$python" "$schedule" cuda "$@"; done
    fi
    finish
  fi
  report_counts
}

main "$@"
