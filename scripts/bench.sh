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
missing=()  # `--missing TEXT` for each peer that is not here
quick=
results=$out/results.json

# A program of C: the harness, what is exchanged, and the files of one implementation.
build_c() { # IMPLEMENTATION FLAGS...
  "$CC" -std=gnu11 -O2 -g -Wall -Wextra -Werror "-DBENCH_IMPLEMENTATION=\"$1\"" -o "$bin/c-$1" \
    "$benches"/c/*.c "$benches/c/$1"/*.c "${@:2}"
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
  missing+=(--missing "$1: $2")
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
  "$PYTHON" "$benches/run.py" --results "$results" "${options[@]}" "${missing[@]}" "${programs[@]}"
}

main "$@"
