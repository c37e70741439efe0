#!/usr/bin/env bash
# Random exchanges among four languages in one process, in several such processes, for as long as desired (`make soak`,
# tests/soak/soak.py):
#
#   scripts/soak.sh [--seconds 60] [--seed N] [--processes 2] [--threads 3]
#   scripts/soak.sh arrays [--seed N] [--arrays N] [--julia N]
#
# The second form exchanges random arrays of PyArrow with Java and Julia (tests/soak/arrays.py).
#
# Uses host memory, or, for the first form with SIMCUDA=1, device memory of the simulated CUDA driver. Needs the output
# of `make build`, the wheel, the jar, a JDK, Julia and a C compiler. Ends with a line of figures for each process, and
# one for all.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

here=$DEVX_ROOT/tests/soak
out=$DEVX_TARGET/soak
python=$DEVX_TARGET/python/venv/bin/python

# Uses what is already built: a script that builds would be too slow in a test.
prepare() {
  if [ ! -e "$DEVX_LIB_C" ] || [ ! -e "$DEVX_LIB_JULIA" ]; then "$DEVX_ROOT/scripts/build.sh" --quiet; fi
  if [ ! -x "$python" ] || ! "$python" -c 'import devexchange' 2>/dev/null; then
    "$DEVX_ROOT/scripts/build-python.sh" >/dev/null
  fi
  devx_make_jar
  mkdir -p "$out/classes"
  "$CC" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O2 -fPIC -shared -I"$DEVX_ROOT/bindings-c/include" \
    "$here/soak.c" -o "$out/libsoak.so" -L"$DEVX_LIBDIR" -ldevexchange -Wl,-rpath,"$DEVX_LIBDIR"
  "$JAVAC" -encoding UTF-8 --release 17 -Xlint:all,-options -Werror -cp "$(devx_find_jar)" -d "$out/classes" \
    "$here/Soak.java" "$here/Arrays.java"
}

# Julia's own statement of where it is. Loads the package once, so that it is compiled before several processes need it.
ask_julia() {
  DEVEXCHANGE_LIBRARY_DIR=$DEVX_LIBDIR "$JULIA" --startup-file=no --project="$SOAK_JULIA_PACKAGE" -e '
    using DevExchange, Libdl
    runtime = first(path for path in Libdl.dllist() if occursin(r"^libjulia\.so", basename(path)))
    foreach(println, (runtime, Sys.BINDIR, get(ENV, "LD_LIBRARY_PATH", "")))'
}

main() {
  local device=host program=soak answers
  export SOAK_JULIA_PACKAGE=$DEVX_ROOT/bindings-julia/DevExchange.jl
  prepare
  mapfile -t answers < <(ask_julia)
  export SOAK_LIBJULIA=${answers[0]} SOAK_JULIA_BINDIR=${answers[1]} LD_LIBRARY_PATH=${answers[2]:-}
  export SOAK_C=$out/libsoak.so DEVEXCHANGE_LIBRARY_DIR=$DEVX_LIBDIR PYTHONDONTWRITEBYTECODE=1
  SOAK_CLASSPATH=$(devx_find_jar):$out/classes
  export SOAK_CLASSPATH
  if [ "${SIMCUDA:-0}" = 1 ]; then
    device=cuda
    LD_LIBRARY_PATH='' "$DEVX_ROOT/tests/simcuda/driver/place.sh" "$out/simcuda" 13000
    export LD_LIBRARY_PATH=$out/simcuda:$LD_LIBRARY_PATH SIMCUDA_FATAL=exit SIMCUDA_MODE=${SIMCUDA_MODE:-lazy}
  fi
  if [ "${1:-}" = arrays ]; then
    program=arrays
    shift
  else
    set -- --device "$device" "$@"
  fi
  exec "$python" "$here/$program.py" "$@"
}

main "$@"
