#!/usr/bin/env bash
# Fetches the official dlpack/dlpack.h and arrow/c/abi.h once and prints the directory to include from.
#
# They come from the Python wheels that ship them. The wheels are those of one platform, whatever this machine and its
# Python are: the headers are the same in all of them.
#
#   scripts/official-headers.sh
set -euo pipefail

tvm_ffi=0.1.15.post2
pyarrow=26.0.1

root=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
official=$root/target/official
stamp="apache-tvm-ffi==$tvm_ffi pyarrow==$pyarrow"
work=

fail() { echo "official-headers: $*" >&2; exit 1; }

clean_up() { if [ -n "$work" ]; then rm -rf "$work"; fi; }

there() { [ "$(cat "$official/versions" 2>/dev/null || true)" = "$stamp" ]; }

python_with_pip() {
  local venv=$root/target/official-pip
  if python3 -m pip --version >/dev/null 2>&1; then
    echo python3
  else
    [ -x "$venv/bin/pip" ] || python3 -m venv --clear "$venv" >&2 ||
      fail "neither 'python3 -m pip' nor 'python3 -m venv' works"
    echo "$venv/bin/python"
  fi
}

command -v python3 >/dev/null || fail "python3 is missing"
mkdir -p "$root/target"
trap clean_up EXIT

# Two callers at once each unpack for themselves; it does not matter which one finishes last, because the results are
# equal.
if ! there; then
  work=$(mktemp -d "$root/target/official.XXXXXX")
  python=$(python_with_pip)
  "$python" -m pip --disable-pip-version-check --no-cache-dir --quiet download \
    --no-deps --only-binary=:all: --implementation cp --python-version 3.11 \
    --platform manylinux_2_28_x86_64 --dest "$work/wheels" \
    "apache-tvm-ffi==$tvm_ffi" "pyarrow==$pyarrow" >&2 || fail "the wheels could not be downloaded"
  "$python" - "$work" <<'PYTHON'
import pathlib, sys, zipfile

work = pathlib.Path(sys.argv[1])
wanted = {"tvm_ffi/include/dlpack/dlpack.h": "dlpack/dlpack.h", "pyarrow/include/arrow/c/abi.h": "arrow/c/abi.h"}
for wheel in (work / "wheels").iterdir():
    with zipfile.ZipFile(wheel) as archive:
        for name in wanted.keys() & set(archive.namelist()):
            to = work / "include" / wanted[name]
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(archive.read(name))
PYTHON
  for header in dlpack/dlpack.h arrow/c/abi.h; do
    [ -s "$work/include/$header" ] || fail "the wheels hold no $header"
  done
  echo "$stamp" >"$work/include/versions"
  rm -rf "$official"
  mv -T "$work/include" "$official" 2>/dev/null || there || fail "could not write $official"
fi
echo "$official"
