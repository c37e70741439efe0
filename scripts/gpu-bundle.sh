#!/usr/bin/env bash
# Puts everything that `make gpu-test` runs into one directory, so that a GPU machine needs nothing else
# (`make gpu-bundle`):
#
#   TARGET/gpu-bundle/          run.sh, and its programs; the simulated driver for rehearsals is in sim/, the wheel and
#                               the Python tests are in python/, the benches of `make gpu-bench` are in bench/
#   TARGET/gpu-bundle.tar.gz    the same
#
# The programs are those that `cargo test` runs, without their debug information; libdevexchange is the release build.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

bundle=$DEVX_TARGET/gpu-bundle
most=$((64 << 20)) # bytes of the archive

# The programs that cargo names.
executables() { # CARGO-ARGUMENTS...
  "$CARGO" "$@" --locked --quiet -p devexchange-tests --message-format=json-render-diagnostics |
    grep -oE '"executable":"[^"]+"' | cut -d '"' -f 4
}

# cargo adds a hash to the names of tests.
take() { # PROGRAM
  local name=${1##*/}
  strip -o "$bundle/bin/${name%-????????????????}" "$1"
}

build_c() { # SOURCE
  local name=${1##*/} compiler=("$CC" -std=c11) tests=$DEVX_ROOT/bindings-c/tests/c
  case $1 in *.cpp) compiler=("$CXX" -std=c++17 -static-libstdc++ -static-libgcc) ;; esac
  # shellcheck disable=SC2016 # $ORIGIN is for the loader
  "${compiler[@]}" -O1 -s -pthread -I"$DEVX_ROOT/bindings-c/include" -I"$tests" -o "$bundle/bin/${name%.*}" "$1" \
    -L"$DEVX_LIBDIR" -ldevexchange -Wl,-rpath,'$ORIGIN/../lib' -lm -ldl
}

# The wheel, the tests with real libraries, and the needs of Numba's own suite: our scripts and other packages.
take_python() {
  local needs
  mkdir -p "$bundle/python/tests" "$bundle/python/numba"
  cp "$("$DEVX_ROOT/scripts/build-python.sh")" "$bundle/python/"
  cp -r bindings-python/tests/{peer.py,structs.py,gpu} "$bundle/python/tests/"
  cp tests/numba/{gate,methods,suite}.py "$bundle/python/numba/"
  find "$bundle/python" -name __pycache__ -prune -exec rm -rf {} +
  # Numba's tests import filecheck. Machines that run Numba seldom have it, and it is small and pure Python.
  needs=$(grep '^filecheck==' tests/numba/numba-cuda.txt)
  "$DEVX_TARGET/python/venv/bin/python" -m pip --disable-pip-version-check --no-input install -q \
    --no-deps --no-compile --target "$bundle/python/needs" "$needs"
}

built_from() {
  local commit
  commit=$(git -C "$DEVX_ROOT" describe --always --dirty --exclude '*' 2>/dev/null) || commit=unknown
  echo "devexchange $DEVX_VERSION, commit $commit, built on $(uname -m) with $("${RUSTC:-rustc}" --version)" \
    "and glibc $(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2)"
}

cd "$DEVX_ROOT"
rm -rf "$bundle" "$bundle.tar.gz"
mkdir -p "$bundle/bin" "$bundle/lib"

"$DEVX_ROOT/scripts/build.sh" --quiet
# Not in the head of the loop, where a failure of cargo would go unnoticed.
programs=$(executables build --bin cuda-conformance)
programs+=$'\n'$(executables test --no-run --test 'cuda_*')
for program in $programs; do take "$program"; done
strip -o "$bundle/lib/$DEVX_SONAME" "$DEVX_LIB_C"
for source in bindings-c/tests/c/test_stream*; do build_c "$DEVX_ROOT/$source"; done
"$DEVX_ROOT/scripts/gpu-bench.sh" --build "$bundle"
take_python
# A driver of CUDA 13, because numba-cuda asks for functions of that version.
tests/simcuda/driver/place.sh "$bundle/sim" 13000
strip "$bundle/sim/libcuda.so.1"
install -m 755 scripts/gpu-run.sh "$bundle/run.sh"
built_from >"$bundle/BUILT"

tar -czf "$bundle.tar.gz" -C "$DEVX_TARGET" gpu-bundle
size=$(wc -c <"$bundle.tar.gz")
if [ "$size" -gt "$most" ]; then
  echo "gpu-bundle: ${bundle#"$DEVX_ROOT/"}.tar.gz has $size bytes, more than $most" >&2
  exit 1
fi
printf '  %-46s %6s KiB\n' "${bundle#"$DEVX_ROOT/"}.tar.gz" "$((size / 1024))"
