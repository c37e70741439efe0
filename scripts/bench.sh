#!/usr/bin/env bash
# Ours against its peers and against the least that can be done (`make bench`, docs/bench.md):
#
#   scripts/bench.sh [--quick] [--only TEXT]
#
# --quick sees whether everything builds and runs; what it measures says nothing. It downloads nothing.
# --only takes the operations with this text in their name.
#
# Builds a program for each implementation, prints a table, and writes target/bench/results.json (quick.json).
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

benches=$DEVX_ROOT/benches
out=$DEVX_TARGET/bench
prefix=$out/prefix
bin=$out/bin

programs=() # what is measured
missing=()  # `--missing PREFIX WHY` for each peer, or language, that is not here
quick=
results=$out/results.json

# The part that every program has: the harness, and what is exchanged.
common=("$benches"/c/{allocations,bench,data,threads}.c)
c=(-std=gnu11 -O2 -g -Wall -Wextra -Werror -pthread)

# A program of C: that part, and the files of one implementation.
build_c() { # IMPLEMENTATION FLAGS...
  "$CC" "${c[@]}" "-DBENCH_IMPLEMENTATION=\"$1\"" -o "$bin/c-$1" "${common[@]}" "$benches/c/$1"/*.c "${@:2}"
  programs+=("$bin/c-$1")
}

build_ours() {
  if ! PREFIX=$prefix LIBDIR=lib DESTDIR='' "$DEVX_ROOT/scripts/install.sh" install >"$out/install.log" 2>&1; then
    cat "$out/install.log" >&2
    return 1
  fi
  build_c devexchange -I"$prefix/include" -L"$prefix/lib" -ldevexchange "-Wl,-rpath,$prefix/lib"
  build_c floor -I"$prefix/include"
}

# --- peers: each is built, or `is_missing` says why not ---

is_missing() { # PEER WHY
  missing+=(--missing "$1" "$2")
}

# Where the sources of nanoarrow's C library are, in one file each, as nanoarrow bundles them: those that the tests with
# other people's libraries have made, or our own out of the same source distribution.
nanoarrow_sources() {
  local tests=$DEVX_TARGET/third-party/packages/nanoarrow own=$out/nanoarrow
  if [ -e "$tests/nanoarrow_device.c" ]; then echo "$tests"; return; fi
  if [ ! -e "$own/nanoarrow_device.c" ]; then
    [ -z "$quick" ] || return 1
    fetch_nanoarrow "$own" >"$out/nanoarrow.log" 2>&1 || return 1
  fi
  echo "$own"
}

fetch_nanoarrow() { # DIRECTORY
  local work=$out/nanoarrow-work version
  version=$(sed -n 's/^nanoarrow=//p' "$DEVX_ROOT/tests/third-party/venv.sh")
  rm -rf "$work" "$1"
  mkdir -p "$work/source"
  "$PYTHON" -m venv "$work/venv" &&
    "$work/venv/bin/python" -m pip --disable-pip-version-check --no-input download -q --no-deps --no-binary nanoarrow \
      -d "$work" "$version" &&
    tar -xzf "$work"/nanoarrow-*.tar.gz -C "$work/source" --strip-components=1 &&
    "$work/venv/bin/python" "$work/source/subprojects/arrow-nanoarrow/ci/scripts/bundle.py" --with-device \
      --header-namespace '' --symbol-namespace Bench --source-output-dir "$work/bundle" \
      --include-output-dir "$work/bundle" &&
    mv "$work/bundle" "$1" &&
    rm -rf "$work"
}

build_nanoarrow() {
  local sources
  if ! sources=$(nanoarrow_sources); then
    if [ -n "$quick" ]; then is_missing nanoarrow "a quick run downloads nothing"
    else is_missing nanoarrow "its sources could not be had, see $out/nanoarrow.log"; fi
    return
  fi
  build_c nanoarrow -isystem "$sources" "$sources"/nanoarrow{,_device}.c
}

# Ours for Python, in an environment that has other people's packages beside it.
venv=$DEVX_TARGET/python/venv
build_wheel() {
  "$DEVX_ROOT/scripts/build-python.sh" >"$out/wheel.log" 2>&1
}

# Crates of their own, with a lock file of their own.
build_rust() {
  local log=$out/rust.log peer
  if ! CARGO_TARGET_DIR=$out/rust "$CARGO" build --quiet --release --locked \
    --manifest-path "$benches/rust/Cargo.toml" >"$log" 2>&1; then
    for peer in dlpark dlpack-rs arrow-rs; do is_missing "$peer" "cannot be built, see $log"; done
    return
  fi
  for peer in dlpark dlpack-rs arrow-rs; do programs+=("$out/rust/release/rust-$peer"); done
}

# Headers and library out of the wheel.
build_tvm_ffi() {
  local log=$out/tvm-ffi.log package source objects=()
  package=("$venv"/lib/python3*/site-packages/tvm_ffi)
  if [ ! -d "${package[0]}/include" ]; then is_missing tvm-ffi "its wheel is not in $venv"; return; fi
  for source in "${common[@]}"; do
    objects+=("$bin/tvm-ffi-$(basename "$source" .c).o")
    "$CC" "${c[@]}" '-DBENCH_IMPLEMENTATION="tvm-ffi"' -c -o "${objects[-1]}" "$source"
  done
  if ! "$CXX" -std=c++17 -O2 -g -Wall -Wextra -Werror -pthread -isystem "${package[0]}/include" -o "$bin/cpp-tvm-ffi" \
    "$benches/cpp/tvm_ffi.cpp" "${objects[@]}" -L"${package[0]}/lib" -ltvm_ffi "-Wl,-rpath,${package[0]}/lib" \
    >"$log" 2>&1; then
    is_missing tvm-ffi "cannot be built, see $log"
    return
  fi
  programs+=("$bin/cpp-tvm-ffi")
}

main() {
  local options=()
  while [ $# -gt 0 ]; do
    case $1 in
      --quick) quick=yes results=$out/quick.json options+=(--quick); shift ;;
      --only) options+=(--only "${2?"--only wants a text"}"); shift 2 ;;
      *) echo "bench: unknown option '$1'" >&2; exit 2 ;;
    esac
  done
  mkdir -p "$bin"
  build_ours
  build_nanoarrow
  if [ -z "$quick" ]; then
    build_wheel
    build_rust
    build_tvm_ffi
  fi
  "$PYTHON" "$benches/run.py" --results "$results" "${options[@]}" "${missing[@]}" "${programs[@]}"
}

main "$@"
