#!/usr/bin/env bash
# Tests other people's libraries as producers and consumers, on the simulated CUDA driver: cuda.core, nanoarrow and
# NumPy, from Python, where devexchange is called through ctypes.
#
#   scripts/test-third-party.sh [ARGUMENTS OF PYTEST]      after `make build`
#
# Installs pinned packages below the target directory once (tests/third-party/venv.sh). Every test runs on each
# schedule of the driver. Ends with the line `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"

here=$DEVX_ROOT/tests/third-party
out=$DEVX_TARGET/third-party
packages=$out/packages
driver=$out/simcuda
python=$packages/venv/bin/python
schedules=(lazy adversarial threads)

# The C parts of the tests: destructors of capsules, and copies by nanoarrow's C library.
build_helpers() {
  local includes=("$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')"
    "$DEVX_ROOT/bindings-c/include" "$packages/nanoarrow"
    "$packages"/venv/lib/python3*/site-packages/nvidia/cu13/include)
  "$CC" -shared -fPIC -std=gnu11 -g -DNANOARROW_DEVICE_WITH_CUDA "${includes[@]/#/-I}" -o "$out/libthird_party.so" \
    "$here"/*.c "$packages"/nanoarrow/nanoarrow{,_device}.c -L"$driver" -lcuda
}

# Runs one schedule: pytest counts the tests, and findings of the driver at the end of the process show in its exit
# status.
prepare() {
  check "the simulated CUDA driver is there" "$DEVX_ROOT/tests/simcuda/driver/place.sh" "$driver" 13000 || return
  check "the packages are there" "$here/venv.sh" "$packages" "$driver" || return
  check "the helpers in C are built" build_helpers
}

main() {
  mkdir -p "$out"
  if prepare; then
    export THIRD_PARTY_LIB=$out/libthird_party.so LD_LIBRARY_PATH=$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export SIMCUDA_FATAL=exit SIMCUDA_DEVICES=2 PYTHONDONTWRITEBYTECODE=1
    local schedule
    for schedule in "${schedules[@]}"; do
      SIMCUDA_MODE=$schedule start "$schedule" "$out/$schedule.log" \
        "$python" -m pytest -q -p no:cacheprovider --tb=short "$here" "$@"
    done
    finish
  fi
  report_counts
}

main "$@"
