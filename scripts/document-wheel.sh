#!/usr/bin/env bash
# Puts the docstrings of the native module into the type stubs of a wheel (_native.pyi), where editors look for them,
# and removes the path of this checkout from the wheel's lists of the crates linked into it (sboms).
#
#   scripts/document-wheel.sh PYTHON WHEEL    PYTHON can load the wheel, and has docify and wheel
#
# The script loads the module, because the docstrings are written only once, in Rust.
set -euo pipefail

python=$1
wheel=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m wheel unpack -d "$work" "$wheel" >/dev/null
unpacked=("$work"/*)
PYTHONPATH=${unpacked[0]} PYTHONDONTWRITEBYTECODE=1 "$python" -m docify -q --workers 1 -i "${unpacked[0]}" >/dev/null
# A checkout's path is a URL there, with other characters than the path has.
find "${unpacked[0]}" -path '*/sboms/*.json' -exec sed -i 's@path+file://[^"#]*/@path+file:@g' {} +
"$python" -m wheel pack -d "$(dirname "$wheel")" "${unpacked[0]}" >/dev/null
