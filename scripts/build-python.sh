#!/usr/bin/env bash
# Builds the wheel of the Python binding into the target directory (target/wheels) and installs it into a virtual
# environment there (target/python/venv), together with what its tests need (bindings-python/tests/requirements.txt).
#
#   scripts/build-python.sh [PYTHON [NAME]]    default: the python3 of scripts/env.sh; 3.11 or newer
#
# One wheel serves every CPython from 3.11 on (the stable ABI); interpreters without a GIL get their own. With a NAME,
# the wheel and the environment are below target/python/NAME instead. WITHOUT='A B' leaves out packages that have no
# wheel for the interpreter. Prints the wheel's path.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

python=${1:-$PYTHON}
project=$DEVX_ROOT/bindings-python
requirements=$project/tests/requirements.txt
out=$DEVX_TARGET/python${2:+/$2}
venv=$out/venv
wheels=$DEVX_TARGET/wheels
if [ -n "${2:-}" ]; then wheels=$out/wheels; fi
pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input)

wanted_requirements() {
  local package options=()
  for package in ${WITHOUT:-}; do options+=(-e "^$package=="); done
  if [ "${#options[@]}" -eq 0 ]; then cat "$requirements"; else grep -v "${options[@]}" "$requirements"; fi
}

# Everything that determines the environment.
inputs() {
  wanted_requirements
  "$python" -VV
  echo "$venv"
}

make_environment() {
  local wanted
  wanted=$(inputs | sha256sum)
  if [ "$(cat "$venv/inputs" 2>/dev/null)" = "$wanted" ]; then return; fi
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "${pip[@]}" install -q -r <(wanted_requirements)
  echo "$wanted" >"$venv/inputs"
}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "$("$python" --version) is too old: the Python binding needs 3.11 or newer" >&2
  exit 1
fi
mkdir -p "$out" "$wheels"
make_environment >&2
rm -f "$wheels"/devexchange-*.whl
cd "$project"
PATH=$(dirname "$CARGO"):$PATH "$venv/bin/maturin" build --quiet --release --locked --compatibility linux \
  --interpreter "$venv/bin/python" --out "$wheels" >&2
wheel=("$wheels"/devexchange-*.whl)
"$DEVX_ROOT/scripts/document-wheel.sh" "$venv/bin/python" "${wheel[0]}"
"${pip[@]}" install -q --no-index --no-deps --force-reinstall "${wheel[0]}" >&2
echo "${wheel[0]}"
