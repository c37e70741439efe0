#!/usr/bin/env bash
# Tests the Python binding on a debug build of CPython, in development mode. Reference counts below zero, objects that
# are used after their end, calls without the GIL and errors that were left set end the process there; and the total
# number of references must stay constant over many exchanges.
#
#   [DEBUG_PYTHON=python3.14d] scripts/test-python-debug.sh [ARGUMENTS OF PYTEST]
#
# Without DEBUG_PYTHON the interpreter is Debian's, from the packages of the mirror that this machine's apt uses,
# unpacked into the target directory (never installed). Not part of `make test`.
#
# Ends with the line `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"
# shellcheck source=scripts/pytest.sh
. "$DEVX_ROOT/scripts/pytest.sh"

out=$DEVX_TARGET/python/debug
version=3.11
interpreter=${DEBUG_PYTHON:-$out/root/usr/bin/python${version}d}

# The interpreter, its debug modules, and the pure Python part of its library.
unpack_interpreter() {
  if [ -n "${DEBUG_PYTHON:-}" ] || [ -x "$interpreter" ]; then return; fi
  local packages=("python$version-dbg" "libpython$version-dbg" "libpython$version-minimal" "libpython$version-stdlib"
    "libpython$version-dev" "python$version-venv") deb
  mkdir -p "$out/packages"
  (cd "$out/packages" && apt-get -q -o "APT::Sandbox::User=$(id -un)" download "${packages[@]}") || return
  for deb in "$out/packages"/*.deb; do dpkg-deb -x "$deb" "$out/root" || return; done
  rm -rf "$out/packages"
}

main() {
  # The wheel built for other interpreters fits, because with the stable ABI the interpreter itself counts references.
  export PYTHONDONTWRITEBYTECODE=1
  if check "a debug build of CPython is there" unpack_interpreter &&
    check "$interpreter counts references" "$interpreter" -c 'import sys; sys.gettotalrefcount()' &&
    check "the wheel is built" "$DEVX_ROOT/scripts/build-python.sh" "$interpreter" debug; then
    export PYTHONDEVMODE=1
    # CPython ends such a build itself where it has no memory for a traceback, which one test brings about.
    run_tests "$out/venv/bin/python" debug host \
      --deselect tests/host/test_arguments.py::test_errors_without_memory "$@"
    run_tests "$out/venv/bin/python" references debug "$@"
  fi
  report_counts
}

main "$@"
