#!/usr/bin/env bash
# Puts the docstrings of the native module into the type stubs of a wheel (_native.pyi), where editors look for them.
#
#   scripts/document-wheel.sh PYTHON WHEEL [DOCUMENTED]    PYTHON can load the wheel, and has docify and wheel
#
# The script loads the module, because the docstrings are written only once, in Rust. For a wheel of another processor it
# copies the stubs of DOCUMENTED, this processor's wheel of the same sources.
set -euo pipefail

python=$1
wheel=$2
documented=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

unpack() { # WHEEL INTO: prints where the wheel's files are
  "$python" -m wheel unpack -d "$2" "$1" >/dev/null
  echo "$2"/*
}

files=$(unpack "$wheel" "$work/wheel")
if [ -n "$documented" ]; then
  cp "$(unpack "$documented" "$work/documented")"/devexchange/_native.pyi "$files/devexchange/"
else
  PYTHONPATH=$files PYTHONDONTWRITEBYTECODE=1 "$python" -m docify -q --workers 1 -i "$files" >/dev/null
fi
"$python" -m wheel pack -d "$(dirname "$wheel")" "$files" >/dev/null
