#!/usr/bin/env bash
# Tests for 64-bit Arm on any machine (`make test-arm64`): the Rust tests of the core and most of its CUDA part, and the
# test programs in C and C++, compiled for Arm and run by qemu. Not part of `make test`.
#
#   scripts/test-arm64.sh [rust] [c]
#
# Needs Debian's gcc-aarch64-linux-gnu, g++-aarch64-linux-gnu and qemu-user-binfmt, and
# `rustup target add aarch64-unknown-linux-gnu`. The kernel must be able to start such programs directly, because tests
# start themselves again.
#
# qemu on x86-64 shows memory in the order of x86-64. The weaker orders of an Arm processor show only on an Arm
# processor, and in loom (`make loom`).
#
# Ends with the line `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"

triple=aarch64-unknown-linux-gnu
prefix=aarch64-linux-gnu
tests=$DEVX_ROOT/bindings-c/tests/c
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# cargo links its own programs for this machine; tests, and the programs that they start, find the compiler for Arm.
export "CARGO_TARGET_$(uname -m | tr '[:lower:]' '[:upper:]')_UNKNOWN_LINUX_GNU_LINKER=$(command -v "$CC")"
export CARGO_BUILD_TARGET=$triple CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$prefix-gcc
# Programs are some twenty times slower under qemu.
export DEVX_PATIENCE=${DEVX_PATIENCE:-20}
export PATH=$work:$PATH QEMU_LD_PREFIX=/usr/$prefix

runs_programs() {
  ln -s "$(command -v $prefix-gcc)" "$work/cc" || return
  printf 'int main(void) { return sizeof(void *) == 8 && (char)-1 > 0 ? 0 : 1; }\n' >"$work/try.c"
  $prefix-gcc -o "$work/try" "$work/try.c" && "$work/try"
}

rust_tests() {
  local log=$work/rust.log status=0 passed failed skipped
  local cargo_test=("$CARGO" test --locked --no-fail-fast)
  # `rounds` takes more than a minute here, so the test harness prints a warning, and the test does not expect the
  # harness to allocate.
  "${cargo_test[@]}" -p devexchange-core --lib --tests -- --skip nothing_is_left_after_ten_thousand_rounds 2>&1 |
    tee "$log" || status=$?
  # The other tests look at the checkout, or have so many processes and threads that qemu takes too long for them
  # (managers, the reaper, other processes, faults; and one that forks a hundred times).
  "${cargo_test[@]}" -p devexchange-tests --test async_schedules --test 'cuda_[abdos]*' --test 'cuda_*release' \
    --test layout -- --skip a_fork_does_not_wait_for_uses 2>&1 |
    tee -a "$log" || status=$?
  read -r passed failed skipped < <(awk '/^test result:/ { p += $4; f += $6; s += $8 } END { print p + 0, f + 0, s + 0 }' "$log")
  echo "counts: $passed passed, $failed failed, $skipped skipped" >>"$log"
  add_counts "Rust tests" "$status" "$log"
}

# test_corpus and test_faults* are linked with programs of the checkout; the others need only the library.
c_tests() {
  local file name compiler program
  check "libdevexchange for 64-bit Arm" "$CARGO" build --quiet --locked --release -p devexchange-c || return 0
  cp "$DEVX_TARGET/$triple/release/libdevexchange.so" "$work/"
  ln -s libdevexchange.so "$work/$DEVX_SONAME"
  for file in "$tests"/test_*.c "$tests"/test_*.cpp; do
    name=${file##*/} program=$work/${file##*/}.out
    case $name in
      test_corpus* | test_faults*) continue ;;
      *.cpp) compiler=("$prefix-g++" -std=c++17) ;;
      *) compiler=("$prefix-gcc" -std=c11) ;;
    esac
    check "$name compiles" "${compiler[@]}" -Wall -Wextra -Wpedantic -Werror -g -O1 -pthread \
      -I"$DEVX_ROOT/bindings-c/include" -I"$tests" "-DDEVX_TEST_VERSION=\"$DEVX_VERSION\"" \
      "-DDEVX_TEST_DATA=\"$DEVX_ROOT/examples/data\"" -o "$program" "$file" -L"$work" -ldevexchange \
      "-Wl,-rpath,$work" -lm -ldl || continue
    DEVX_ROUNDS=1000 check "$name" "$program" || true
  done
}

if [ $# -eq 0 ]; then set -- rust c; fi
if check "programs for 64-bit Arm are compiled and run" runs_programs; then
  for part in "$@"; do "${part}_tests"; done
fi
report_counts
