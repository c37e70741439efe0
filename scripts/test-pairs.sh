#!/usr/bin/env bash
# C, Java, Julia, Python and Rust share memory with each other, each in its own process (tests/pairs/pairs.py): in host
# memory, and in device memory of the simulated CUDA driver. Needs the output of `make build`, the wheel, the jar, a JDK
# and Julia.
#
# Ends with the line `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"

here=$DEVX_ROOT/tests/pairs
out=$DEVX_TARGET/pairs
python=$DEVX_TARGET/python/venv/bin/python
julia_package=$DEVX_ROOT/bindings-julia/DevExchange.jl

# Called by `check`, where `set -e` has no effect.
prepare() {
  mkdir -p "$out/classes" &&
    ln -sf "$DEVX_LIB_C" "$out/$DEVX_SONAME" &&
    "$CC" -std=c11 -Wall -Wextra -Werror -O1 -I"$DEVX_ROOT/bindings-c/include" "$here/peer.c" -o "$out/peer" \
      -L"$DEVX_LIBDIR" -ldevexchange -Wl,-rpath,"$out" &&
    "$CARGO" build --quiet --locked -p devexchange-tests --bin pairs-peer &&
    devx_make_jar &&
    "$JAVAC" -encoding UTF-8 --release 17 -Xlint:all,-options -Werror -cp "$(devx_find_jar)" -d "$out/classes" \
      "$here/Peer.java" &&
    "$DEVX_ROOT/tests/simcuda/driver/place.sh" "$out/simcuda" 13000
}

pairs() { # host|cuda
  DEVEXCHANGE_LIBRARY_DIR=$DEVX_LIBDIR PYTHONDONTWRITEBYTECODE=1 "$python" "$here/pairs.py" "$1" \
    "$out/peer" "$DEVX_TARGET/debug/pairs-peer" \
    "$python $here/peer.py" \
    "$JULIA --startup-file=no --project=$julia_package $here/peer.jl" \
    "$JAVA -Xcheck:jni -cp $(devx_find_jar):$out/classes Peer"
}

pairs_cuda() {
  LD_LIBRARY_PATH=$out/simcuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} SIMCUDA_FATAL=exit SIMCUDA_DEVICES=2 pairs cuda
}

if check "the wheel is built" "$DEVX_ROOT/scripts/build-python.sh" && check "pairs: the programs are built" prepare; then
  check "pairs: C, Java, Julia, Python and Rust share host memory, each with each" pairs host || true
  check "pairs: C, Java, Julia, Python and Rust share device memory, each with each other" pairs_cuda || true
fi
report_counts
