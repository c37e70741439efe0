#!/usr/bin/env bash
# Runs Numba's own tests on our memory managers (tests/numba), on the simulated CUDA driver, for both generations of
# Numba: its built-in numba.cuda, and numba-cuda. Then runs the tests of the plugin itself from tests/numba.
#
#   scripts/test-numba.sh [--environments]
#
# Each generation has its own environment below the target directory (numba/GENERATION/venv), with pinned packages and
# our wheel; --environments makes only these. Ends with the line `counts: N passed, N failed, N skipped`. Methods that
# need a kernel and those that Numba skips are listed before it and not counted.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"

here=$DEVX_ROOT/tests/numba
out=$DEVX_TARGET/numba

# numba 0.60 mistakes a function of a CUDA 13 driver for another one that had its name before.
declare -A drivers=([numba]=12090 [numba-cuda]=13000)

make_environment() { # GENERATION PYTHON
  local folder=$out/$1 wanted
  local pip=("$folder/venv/bin/python" -m pip --disable-pip-version-check --no-input)
  mkdir -p "$folder"
  wanted=$({ cat "$here/$1.txt" && "$2" -VV && echo "$folder"; } | sha256sum)
  if [ "$(cat "$folder/inputs" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$folder/venv"
    "$2" -m venv "$folder/venv" || return
    "${pip[@]}" install -q -r "$here/$1.txt" || return
    echo "$wanted" >"$folder/inputs"
  fi
  "${pip[@]}" install -q --no-index --no-deps --force-reinstall "$DEVX_TARGET"/wheels/devexchange-*.whl &&
    "$DEVX_ROOT/tests/simcuda/driver/place.sh" "$folder/simcuda" "${drivers[$1]}"
}

# numba 0.60 supports Python up to 3.12.
python_for() { # GENERATION
  local name
  if [ "$1" = numba-cuda ]; then echo "$PYTHON"; return; fi
  for name in "$PYTHON" python3.12 python3.11; do
    if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
}

prepare() { # GENERATION
  local python
  python=$(python_for "$1")
  if [ -z "$python" ]; then skipped "$1" "needs Python 3.11 or 3.12"; return 1; fi
  check "$1 and the simulated CUDA driver are there" make_environment "$1" "$python"
}

run() { # GENERATION PROGRAM ARGUMENTS...
  local folder=$out/$1
  LD_LIBRARY_PATH=$folder/simcuda "$folder/venv/bin/python" "$here/$2" "${@:3}"
}

start_gate() { # NAME GENERATION PROGRAM ARGUMENTS...
  start "$1" "$out/$1.log" run "${@:2}"
}

main() {
  local generation ready=()
  export PYTHONDONTWRITEBYTECODE=1
  mkdir -p "$out"
  if check "the wheel is built" "$DEVX_ROOT/scripts/build-python.sh" --wheel; then
    for generation in numba numba-cuda; do
      if prepare "$generation"; then ready+=("$generation"); fi
    done
  fi
  if [ "${1:-}" != --environments ]; then
    for generation in "${ready[@]}"; do
      start_gate "$generation" "$generation" gate.py driver "$here/$generation.kernels"
      start_gate "$generation-plugin" "$generation" plugin.py
    done
    case " ${ready[*]} " in
      *" numba-cuda "*) start_gate numba-cuda-pool numba-cuda gate.py pool "$here/numba-cuda.kernels" "$here/pool.handles" ;;
    esac
    finish
  fi
  report_counts
}

main "$@"
