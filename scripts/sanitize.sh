#!/usr/bin/env bash
# The tests with sanitizers (docs/reliability.md):
#
#   scripts/sanitize.sh [address] [c]
#
#   address   the tests of the core and some of tests/, with the address and the leak sanitizer
#   c         the test programs in C and C++, with the sanitizers of addresses, leaks and undefined behaviour
#
# Each sanitizer is first shown a program that it has to report (tests/sanitize): one that says nothing there is not on,
# and what it says of the rest is worth nothing. Needs no nightly compiler: RUSTC_BOOTSTRAP lets the project's own take
# `-Z`. Prints, last, `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"

seeds=$DEVX_ROOT/tests/sanitize
out=$DEVX_TARGET/sanitize
host=$("$RUSTC" -vV | sed -n 's/^host: //p')
mkdir -p "$out/seeds"

# --- programs that have to be reported ---

must_report() { # NAME PROGRAM WORDS
  if "$2" >"$out/said" 2>&1; then not_ok "$1" "the program ended well"
  elif grep -qE "$3" "$out/said"; then ok "$1"
  else not_ok "$1" "it ended badly, but nothing says '$3'"; fi
}

compile_rust() { # SEED FLAGS...
  RUSTC_BOOTSTRAP=1 "$RUSTC" --edition 2024 -g "${@:2}" -o "$out/seeds/$1" "$seeds/$1.rs"
}

compile_c() { # SEED
  "$CC" -std=c11 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -Wno-use-after-free \
    -o "$out/seeds/$1-c" "$seeds/$1.c"
}

# --- the tests ---

# The sanitizers keep freed memory for a while, and blocks are not kept for them to see it: tests of the size of the
# process and of what is kept are none here.
not_these=(--skip a_bounded_number --skip no_more_memory --skip memory::blocks --skip given_back
  --skip nothing_is_left_after_ten_thousand)

# All of them are one test here.
rust_tests() { # SANITIZER FLAGS PACKAGES...
  local sanitizer=$1 flags=$2 log=$out/$1-$4.log status=0
  shift 2
  RUSTC_BOOTSTRAP=1 RUSTFLAGS="$flags" LSAN_OPTIONS="suppressions=$seeds/leak.supp" INSTA_UPDATE=no \
    DEVX_SIM_PATH="$out/simcuda/libcuda.so.1" DEVEXCHANGE_KEEP_BLOCKS=0 "$CARGO" test --locked --no-fail-fast "$@" \
    --target "$host" --target-dir "$out/$sanitizer" -- "${not_these[@]}" >"$log" 2>&1 </dev/null || status=$?
  local counts
  counts=$(awk '/^test result: / { passed += $4; failed += $6 } END { print passed + 0, failed + 0 }' "$log")
  if [ "$status" -eq 0 ] && [ "${counts%% *}" -gt 0 ]; then
    ok "$sanitizer: ${counts%% *} tests of $2"
  else
    not_ok "$sanitizer: tests of $2" "exit status $status, ${counts#* } failed, see $log"
    grep -aE -A 20 'ERROR: |panicked at' "$log" | head -n 80 | indented || true
  fi
}

part_address() {
  check "the use after free compiles" compile_rust use_after_free -Zsanitizer=address || return 0
  check "the leak compiles" compile_rust leak -Zsanitizer=address || return 0
  must_report "address: a use after free is reported" "$out/seeds/use_after_free" 'heap-use-after-free'
  must_report "address: a leak is reported" "$out/seeds/leak" '4321 byte\(s\) leaked'
  check "the simulated driver is there" "$DEVX_ROOT/tests/simcuda/driver/place.sh" "$out/simcuda" || return 0
  local name programs=()
  # Not those that build programs of their own, which would have the sanitizer in some of their parts only, nor those
  # that let every call of the driver fail.
  for name in async_schedules cuda_array cuda_arrow cuda_arrow_rs cuda_bad_input cuda_budget cuda_devices; do
    programs+=(--test "$name")
  done
  rust_tests address "-Zsanitizer=address" -p devexchange-core --features devexchange-core/arrow --lib --tests
  rust_tests address "-Zsanitizer=address" -p devexchange-tests "${programs[@]}"
}

part_c() {
  check "the overflow compiles" compile_c overflow || return 0
  check "the use after free in C compiles" compile_c use_after_free || return 0
  must_report "c: an overflow is reported" "$out/seeds/overflow-c" 'signed integer overflow'
  must_report "c: a use after free is reported" "$out/seeds/use_after_free-c" 'heap-use-after-free'
  check "the release libraries are there" "$DEVX_ROOT/scripts/build.sh" || return 0
  if SANITIZED=yes "$DEVX_ROOT/scripts/test-c.sh" test_ >"$out/c.log" 2>&1; then
    ok "c: $(grep -c '^ok - ' "$out/c.log") tests in C and C++"
  else
    not_ok "c: tests in C and C++" "see $out/c.log"
    grep -aE -A 20 '^not ok|ERROR: |runtime error' "$out/c.log" | head -n 80 | indented || true
  fi
}

if [ $# -eq 0 ]; then set -- address c; fi
for part in "$@"; do
  case $part in
    address | c) "part_$part" ;;
    *) echo "sanitize: no part '$part'; there are: address c" >&2; exit 2 ;;
  esac
done
report_counts
