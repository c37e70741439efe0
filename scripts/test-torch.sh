#!/usr/bin/env bash
# Tests the Python binding with PyTorch on the CPU in both directions, its allocator for GPUs on the simulated CUDA
# driver, and the guide's program with PyTorch and Java in one process.
#
#   scripts/test-torch.sh [ARGUMENTS OF PYTEST]
#
# Not part of `make test`, because PyTorch's wheel is half a gigabyte. The CUDA libraries that it is linked with would
# add several times as much: empty ones take their place (tests/pytorch/stand_ins.py), so PyTorch finds no GPU.
#
# Ends with the line `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"
# shellcheck source=scripts/pytest.sh
. "$DEVX_ROOT/scripts/pytest.sh"

tests=$DEVX_ROOT/bindings-python/tests
out=$DEVX_TARGET/python/torch
python=$out/venv/bin/python
pip=("$python" -m pip --disable-pip-version-check --no-input)

# Everything that determines the environment.
inputs() {
  cat "$tests/requirements.txt" "$tests/pytorch/requirements.txt" "$tests/pytorch/stand_ins.py"
  "$PYTHON" -VV
  echo "$out"
}

# PyTorch without its requirements, which name the CUDA packages; the requirements that it needs here are listed. The
# commands are joined because `set -e` has no effect within `check`.
make_environment() {
  local wanted
  wanted=$(inputs | sha256sum)
  if [ "$(cat "$out/inputs" 2>/dev/null)" = "$wanted" ]; then return; fi
  rm -rf "$out"
  "$PYTHON" -m venv "$out/venv" &&
    "${pip[@]}" install -q --no-deps -r "$tests/pytorch/requirements.txt" &&
    "$python" "$tests/pytorch/stand_ins.py" "$CC" &&
    echo "$wanted" >"$out/inputs"
}

main() {
  export PYTHONDONTWRITEBYTECODE=1 DEVX_TORCH=1
  local wheel
  if check "the wheel is built" "$DEVX_ROOT/scripts/build-python.sh" --wheel && check "PyTorch is installed" make_environment; then
    wheel=("$DEVX_TARGET"/wheels/devexchange-*.whl)
    "${pip[@]}" install -q --no-index --no-deps --force-reinstall "${wheel[0]}"
    run_tests "$python" torch pytorch --ignore="$tests/pytorch/test_allocator.py" "$@"
    if check "the simulated CUDA driver is there" "$DEVX_ROOT/tests/simcuda/driver/place.sh" "$out/simcuda" 13000; then
      LD_LIBRARY_PATH=$out/simcuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} SIMCUDA_FATAL=exit SIMCUDA_MODE=adversarial \
        run_tests "$python" torch-memory pytorch/test_allocator.py "$@"
    fi
    if check "the jar of the Java binding is there" devx_make_jar; then
      DEVX_JAR=$(devx_find_jar) run_tests "$python" torch-jvm jvm "$@"
    fi
  fi
  report_counts
}

main "$@"
