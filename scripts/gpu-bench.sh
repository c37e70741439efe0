#!/usr/bin/env bash
# What exchanges cost on the GPU of this machine (`make gpu-bench`, docs/gpu.md): builds the programs, or, without
# cargo, uses those of a bundle that was copied here, and runs them. The options are those of benches/gpu/bench.sh.
#
#   scripts/gpu-bench.sh --build DIRECTORY     only builds: DIRECTORY/bin, lib and bench
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

out=$DEVX_TARGET/bench/gpu

build_program() { # DIRECTORY NAME SOURCES...
  # shellcheck disable=SC2016 # $ORIGIN is for the loader
  "$CC" -std=gnu11 -O2 -s -Wall -Wextra -Werror -pthread '-DBENCH_IMPLEMENTATION="devexchange"' \
    -I"$DEVX_ROOT/bindings-c/include" -o "$1/bin/$2" "${@:3}" -L"$DEVX_LIBDIR" -ldevexchange \
    -Wl,-rpath,'$ORIGIN/../lib' -ldl
}

build() { # DIRECTORY
  local benches=$DEVX_ROOT/benches
  local gpu=$benches/gpu
  mkdir -p "$1"/{bin,lib,bench}
  build_program "$1" gpu-bench "$benches"/c/{bench,allocations,data}.c "$benches/c/floor/tensor.c" \
    "$gpu"/{driver,order,memory,copies,release,ipc}.c
  build_program "$1" gpu-peer "$gpu"/{driver,peer}.c
  strip -o "$1/lib/$DEVX_SONAME" "$DEVX_LIB_C"
  cp "$benches/run.py" "$gpu"/{operations.tsv,rmm_pool.py,bench.sh} "$1/bench/"
}

if [ "${1:-}" = --build ]; then
  build "${2?"--build needs a directory"}"
  exit
fi

run=$out/bench/bench.sh
if [ -n "$CARGO" ]; then
  "$DEVX_ROOT/scripts/build.sh" --quiet
  build "$out"
  case " $* " in *' --simulated '*) "$DEVX_ROOT/tests/simcuda/driver/place.sh" "$out/sim" ;; esac
elif [ -x "$DEVX_TARGET/gpu-bundle/bench/bench.sh" ]; then
  run=$DEVX_TARGET/gpu-bundle/bench/bench.sh
else
  echo "gpu-bench: no cargo here, and no bundle in $DEVX_TARGET; 'make gpu-bundle' makes one elsewhere" >&2
  exit 1
fi
mkdir -p "$DEVX_TARGET/bench"
exec "$run" --results "$DEVX_TARGET/bench" "$@"
