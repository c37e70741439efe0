#!/usr/bin/env bash
# Checks whether the tests notice known bugs (`make seeded-bugs`): puts one bug after the other into a copy of the tree
# and runs the test that must then fail.
#
#   scripts/seeded-bugs.sh             all of tests/seeded-bugs/*.patch
#   scripts/seeded-bugs.sh release     the bugs with this text in their name
#   scripts/seeded-bugs.sh --check     only checks that each patch still applies
#
# The first lines of a patch say what the bug is and which test catches it (arguments of cargo test). The test must pass
# without the bug, and build but fail, or end badly, with it. Ends with `counts: …`, one test for each bug.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

bugs=$DEVX_ROOT/tests/seeded-bugs
work=$DEVX_TARGET/seeded-bugs
tree=$work/tree
seconds_each=600 # a test that hangs counts as caught, too
caught=0 missed=0

line_of() { # NAME PATCH
  sed -n "s/^$1: //p" "$2" | sed -n 1p
}

# Within a repository, git would look for the paths in that repository, and take a patch without any for one that fits.
apply() { # PATCH OPTIONS...
  (cd "$tree" && GIT_CEILING_DIRECTORIES=${tree%/*} git apply "${@:2}" "$1")
}

cargo_test() { # PATCH OPTIONS...
  local arguments
  read -ra arguments <<<"$(line_of 'Caught by' "$1")"
  (cd "$tree" && CARGO_TARGET_DIR=$work/target INSTA_UPDATE=no timeout "$seconds_each" "$CARGO" test --quiet --locked \
    "${arguments[@]}" "${@:2}") >"$work/log" 2>&1 </dev/null
}

missed() { # NAME WHY
  missed=$((missed + 1))
  printf 'not ok - %s: %s\n' "$1" "$2"
  tail -n 15 "$work/log" | sed 's/^/    /'
}

# The names of the tests that failed, or how the program ended.
what_failed() {
  sed -nE 's/^test (.*) \.\.\. FAILED$/\1/p; s/^---- (.*) stdout ----$/\1/p; s/.*(signal: [^)]*).*/\1/p' "$work/log" |
    sort -u | head -n 3 | paste -sd ' '
}

try_bug() { # PATCH
  local name=${1##*/} found
  name=${name%.patch}
  : >"$work/log"
  if ! cargo_test "$1"; then missed "$name" "its test fails without it"; return; fi
  if ! grep -qE 'test result: ok\. [1-9]' "$work/log"; then missed "$name" "its test is not there"; return; fi
  if ! apply "$1" 2>"$work/log"; then missed "$name" "it does not fit the tree"; return; fi
  if ! cargo_test "$1" --no-run; then missed "$name" "it does not build"
  elif cargo_test "$1"; then missed "$name" "no test sees it"
  else
    found=$(what_failed)
    caught=$((caught + 1))
    printf 'ok - %-28s %s\n     caught by %s\n' "$name" "$(line_of What "$1")" "${found:-a test that did not end}"
  fi
  apply "$1" --reverse
}

check_bug() { # PATCH
  local name=${1##*/}
  if [ -z "$(line_of What "$1")" ] || [ -z "$(line_of 'Caught by' "$1")" ]; then missed "$name" "its first lines are missing"
  elif apply "$1" --check 2>"$work/log"; then caught=$((caught + 1)); echo "ok - $name fits"
  else missed "$name" "it does not fit the tree"; fi
}

main() {
  local action=try_bug patch patches
  mkdir -p "$work"
  : >"$work/log"
  if [ "${1-}" = --check ]; then
    shift
    action=check_bug tree=$DEVX_ROOT
  fi
  patches=("$bugs"/*"${1-}"*.patch)
  if [ ! -e "${patches[0]}" ]; then echo "no bug is called $1; they are in tests/seeded-bugs" >&2; return 1; fi
  if [ "$action" = try_bug ]; then devx_copy_tree "$tree"; fi
  for patch in "${patches[@]}"; do "$action" "$patch"; done
  echo "counts: $caught passed, $missed failed, 0 skipped"
  [ "$missed" -eq 0 ] && [ "$caught" -gt 0 ]
}

main "$@"
