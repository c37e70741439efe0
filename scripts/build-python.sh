#!/usr/bin/env bash
# Builds the wheel of the Python binding into the target directory (target/wheels), with the tools in a virtual
# environment there (target/python/build), and installs it into another one (target/python/venv), together with what its
# tests need (bindings-python/tests/requirements.txt).
#
#   scripts/build-python.sh [--wheel] [PYTHON [NAME]]    default: the python3 of scripts/env.sh; 3.11 or newer
#
# With --wheel the wheel is only built: what the tests need is large. One wheel serves every CPython from 3.11 on (the
# stable ABI); interpreters without a GIL get their own. With a NAME, the wheel and the environments are below
# target/python/NAME instead. WITHOUT='A B' leaves out packages that have no wheel for the interpreter. Prints the wheel's
# path.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

only_wheel=
if [ "${1:-}" = --wheel ]; then
  only_wheel=1
  shift
fi
python=${1:-$PYTHON}
project=$DEVX_ROOT/bindings-python
requirements=$project/tests/requirements.txt
out=$DEVX_TARGET/python${2:+/$2}
tools=$out/build
venv=$out/venv
wheels=$DEVX_TARGET/wheels
if [ -n "${2:-}" ]; then wheels=$out/wheels; fi

# What builds the wheel: maturin, and for scripts/document-wheel.sh docify and wheel with what they import.
building() { grep -E '^(maturin|docify|libcst|PyYAML|tqdm|wheel|packaging)==' "$requirements"; }

testing() {
  local package options=()
  for package in ${WITHOUT:-}; do options+=(-e "^$package=="); done
  if [ "${#options[@]}" -eq 0 ]; then cat "$requirements"; else grep -v "${options[@]}" "$requirements"; fi
}

install() { # ENVIRONMENT ARGUMENTS OF PIP INSTALL...
  "$1/bin/python" -m pip --disable-pip-version-check --no-input install -q "${@:2}"
}

# Makes a virtual environment anew if anything that determines it has changed.
make_environment() { # ENVIRONMENT REQUIREMENTS
  local wanted
  wanted=$({ "$2"; "$python" -VV; echo "$1"; } | sha256sum)
  if [ "$(cat "$1/inputs" 2>/dev/null)" = "$wanted" ]; then return; fi
  rm -rf "$1"
  "$python" -m venv "$1"
  install "$1" -r <("$2")
  echo "$wanted" >"$1/inputs"
}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "$("$python" --version) is too old: the Python binding needs 3.11 or newer" >&2
  exit 1
fi
mkdir -p "$out" "$wheels"
make_environment "$tools" building >&2
rm -f "$wheels"/devexchange-*.whl
cd "$project"
PATH=$(dirname "$CARGO"):$PATH "$tools/bin/maturin" build --quiet --release --locked --compatibility linux \
  --interpreter "$tools/bin/python" --out "$wheels" >&2
wheel=("$wheels"/devexchange-*.whl)
"$DEVX_ROOT/scripts/document-wheel.sh" "$tools/bin/python" "${wheel[0]}"
if [ -z "$only_wheel" ]; then
  make_environment "$venv" testing >&2
  install "$venv" --no-index --no-deps --force-reinstall "${wheel[0]}" >&2
fi
echo "${wheel[0]}"
