#!/usr/bin/env bash
# Runs the tests with sanitizers (docs/reliability.md):
#
#   scripts/sanitize.sh [address] [c] [thread] [miri]
#
#   address   the tests of the core and of tests/, with the address and the leak sanitizer
#   c         the test programs in C and C++, with the sanitizers of addresses, leaks and undefined behaviour,
#             and with a library that has the first two
#   thread    the same tests of the core and of tests/, and those in C and C++ that have threads, with the thread
#             sanitizer, in std, too
#   miri      tests and examples of the core that call no C, in an interpreter that detects undefined behaviour
#
# Each part first runs a program that it must report (tests/sanitize): a sanitizer that says nothing there is not
# active, and its silence about the rest would mean nothing. The first three need no nightly compiler: RUSTC_BOOTSTRAP
# lets the project's own accept `-Z`. rustup fetches what the last two need beyond it into the target directory; without
# rustup they are skipped. Ends with the line `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"
# shellcheck source=scripts/sanitizers.sh
. "$DEVX_ROOT/scripts/sanitizers.sh"

seeds=$DEVX_ROOT/tests/sanitize
out=$DEVX_TARGET/sanitize
export INSTA_UPDATE=no DEVX_PATIENCE=${DEVX_PATIENCE:-20}
# Miri does not promise to run code that is too old or too new for it.
miri_toolchain=nightly-2026-05-20
mkdir -p "$out/seeds"

# --- toolchains ---

# A toolchain with std's source: the installed one if it has the source, else another copy of the same version.
with_source() {
  local version
  if [ -d "$("$RUSTC" --print sysroot)/lib/rustlib/src/rust/library" ]; then return; fi
  version=$("$RUSTC" -vV | sed -n 's/^release: //p')
  own_toolchain "$version" rust-src
}

# Below the target directory, because this script must not change what is installed elsewhere.
own_toolchain() { # VERSION COMPONENTS
  export RUSTUP_HOME=$out/rustup
  if ! command -v rustup >/dev/null; then skipped "$part" "no rustup, which would fetch $2 of Rust $1"; return 1; fi
  check "Rust $1 is there, with $2" rustup toolchain install "$1" --profile minimal --component "$2" --no-self-update ||
    return
  PATH=$RUSTUP_HOME/toolchains/$1-$sanitize_host/bin:$PATH
  CARGO=cargo RUSTC=rustc
}

# --- programs that must be reported ---

must_report() { # NAME WORDS PROGRAM...
  if "${@:3}" >"$out/said" 2>&1; then not_ok "$1" "the program ended well"
  elif grep -qE "$2" "$out/said"; then ok "$1"
  else not_ok "$1" "it ended badly, but nothing says '$2'"; fi
}

# Makes a separate package, because only cargo builds std.
seed_package() { # SEED
  mkdir -p "$out/seeds/$1"
  printf '[package]\nname = "%s"\nedition = "2024"\n[[bin]]\nname = "%s"\npath = "%s"\n[workspace]\n' "$1" "$1" \
    "$seeds/$1.rs" >"$out/seeds/$1/Cargo.toml"
}

compile_rust() { # SEED
  seed_package "$1"
  sanitized "$CARGO" build --manifest-path "$out/seeds/$1/Cargo.toml"
}

built_rust() { echo "$sanitized_out/$sanitize_host/debug/$1"; } # SEED

compile_c() { # SEED LINK OPTIONS...
  "$CC" -std=c11 -g -O1 "${sanitize_compile[@]}" -Wno-use-after-free -I"$DEVX_ROOT/bindings-c/include" \
    -c -o "$out/seeds/$1.o" "$seeds/$1.c" &&
    "$CC" -o "$out/seeds/$1-c" "$out/seeds/$1.o" "${@:2}" "${sanitize_link[@]}"
}

# The library with the sanitizer, under the names that programs look for.
build_library() {
  sanitized "$CARGO" build --locked -p devexchange-c --lib || return
  mkdir -p "$sanitized_lib"
  local name
  for name in libdevexchange.so "$DEVX_SONAME"; do
    ln -sf "$sanitized_out/$sanitize_host/debug/libdevexchange.so" "$sanitized_lib/$name"
  done
}

# --- the tests ---

# The sanitizers keep freed memory for a while, and the library keeps no blocks, so that they see it. Tests of the size
# of the process and of kept blocks are therefore left out, by their whole names: a part of one may be in others, too.
not_these=(--skip memory::blocks::tests:: --skip ended_streams_leave_a_bounded_number_of_producers
  --skip a_million_batches_need_no_more_memory_than_a_few --skip nothing_is_left_after_ten_thousand_rounds
  --skip a_thousand_exchanges_leave_nothing)

# In a child of a fork the thread sanitizer does not know the parent's threads, and ends at the first one that is given
# up.
not_in_threads=(--skip a_fork_gives_nothing_up)

# glibc itself loses the record of a thread-local variable that is first used in the destructor of a key.
not_for_leaks=(--skip a_thread_that_begins_at_its_end_leaves_as_well)

# All of them count as one test here.
cargo_tests() { # NAME COMMAND... [-- ARGUMENTS OF THE TESTS]
  local log=$out/$1.log status=0 counts
  "${@:2}" >"$log" 2>&1 </dev/null || status=$?
  counts=$(awk '/^test result: / { passed += $4; failed += $6 } END { print passed + 0, failed + 0 }' "$log")
  if [ "$status" -eq 0 ] && [ "${counts%% *}" -gt 0 ]; then
    ok "$1: ${counts%% *} tests"
  else
    not_ok "$1" "exit status $status, ${counts#* } failed, see $log"
    grep -aE -A 20 'ERROR: |WARNING: |panicked at' "$log" | cut -c 1-200 | head -n 80 | indented || true
  fi
}

c_tests() { # NAME FILTERS...
  local log=$out/$1.log filter passed status=0
  for filter in "${@:2}"; do "$DEVX_ROOT/scripts/test-c.sh" "$filter" || status=$?; done >"$log" 2>&1
  passed=$(grep '^ok - ' "$log" | grep -vc ' # skip' || true)
  if [ "$status" -eq 0 ] && [ "$passed" -gt 0 ]; then
    ok "$1: $passed tests in C and C++"
  else
    not_ok "$1: tests in C and C++" "see $log"
    grep -aE -A 20 '^not ok|ERROR: |WARNING: |runtime error' "$log" | cut -c 1-200 | head -n 80 | indented || true
  fi
}

have_driver() {
  export DEVX_SIM_PATH=$sanitized_out/simcuda/libcuda.so.1
  check "the simulated driver is there" place_driver "$sanitized_out/simcuda"
}

# All at once; otherwise cargo would build much of it twice.
rust_tests() { # NAME ARGUMENTS OF THE TESTS...
  local path name programs=()
  for path in "$DEVX_ROOT"/{core,tests}/tests/{*.rs,*/main.rs}; do
    if [ ! -e "$path" ]; then continue; fi
    name=${path%/main.rs}
    name=${name##*/}
    case $name in
      symbols.rs | include_order.rs) ;; # test files, not code that runs
      *) programs+=(--test "${name%.rs}") ;;
    esac
  done
  cargo_tests "$1" sanitized "$CARGO" test --locked --no-fail-fast -p devexchange-core -p devexchange-tests \
    --features devexchange-core/arrow --lib "${programs[@]}" -- "${not_these[@]}" "${@:2}"
}

part_address() {
  sanitizer address
  export DEVEXCHANGE_KEEP_BLOCKS=0 LSAN_OPTIONS="suppressions=$seeds/leak.supp:print_suppressions=0"
  check "the use after free compiles" compile_rust use_after_free || return 0
  check "the leak compiles" compile_rust leak || return 0
  must_report "address: a use after free is reported" heap-use-after-free "$(built_rust use_after_free)"
  must_report "address: a leak is reported" '4321 byte\(s\) leaked' "$(built_rust leak)"
  have_driver || return 0
  rust_tests address "${not_for_leaks[@]}"
}

part_c() {
  sanitizer address
  with_library=(-L"$sanitized_lib" -ldevexchange "-Wl,-rpath,$sanitized_lib")
  export DEVEXCHANGE_KEEP_BLOCKS=0
  check "the library with the address sanitizer is there" build_library || return 0
  check "the overflow compiles" compile_c overflow || return 0
  check "the use after free in C compiles" compile_c use_after_free || return 0
  check "the reader of too much compiles" compile_c library "${with_library[@]}" || return 0
  must_report "c: an overflow is reported" 'signed integer overflow' "$out/seeds/overflow-c"
  must_report "c: a use after free is reported" heap-use-after-free "$out/seeds/use_after_free-c"
  must_report "c: a read of too much by the library is reported" '#[0-9]+ .*devexchange_core::' "$out/seeds/library-c"
  SANITIZED=address ROUNDS=1000 c_tests c test_
}

part_thread() {
  with_source || return 0
  sanitizer thread
  with_library=(-L"$sanitized_lib" -ldevexchange "-Wl,-rpath,$sanitized_lib")
  # Ten codes for each call of the driver take this sanitizer an hour; two of them follow the same paths. The schedules
  # of asynchronous streams run on one thread, where this sanitizer has nothing to see. One test starts threads in a
  # fork, where this sanitizer ends the process unless told otherwise. At the end of each process it waits a second for
  # other threads, which is a minute for each program of hundreds of processes.
  export TSAN_OPTIONS=halt_on_error=1:die_after_fork=0:atexit_sleep_ms=100 DEVX_FAULT_CODES=2 DEVX_ASYNC_SCHEDULES=1000
  check "the race compiles" compile_rust race || return 0
  must_report "thread: a race is reported" 'data race' "$(built_rust race)"
  check "thread: what only looks like a race is not" "$(built_rust race)" locked || true
  have_driver || return 0
  rust_tests thread "${not_in_threads[@]}"
  check "the library with the thread sanitizer is there" build_library || return 0
  check "the race in C compiles" compile_c race "${with_library[@]}" || return 0
  must_report "thread: a race in the library is reported" '#[0-9]+ .*devx_tensor_create' "$out/seeds/race-c"
  SANITIZED=thread ROUNDS=1000 c_tests thread-c test_threads test_async test_ipc test_stream test_batch_stream test_manager \
    test_hpp
}

# The parts of the core that call neither C nor the system; the search for a driver does. A chain of our own streams has an
# end because each recognises the other's functions, which have several addresses here. The interpreter is a thousand times
# slower than a processor.
part_miri() {
  own_toolchain "$miri_toolchain" miri,rust-src || return 0
  export XDG_CACHE_HOME=$out/cache CARGO_TARGET_DIR=$out/miri MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-deterministic-floats"
  check "Miri is there" "$CARGO" miri setup || return 0
  seed_package alias
  must_report "miri: two references to one place are reported" 'Undefined Behavior' \
    "$CARGO" miri run --manifest-path "$out/seeds/alias/Cargo.toml"
  cargo_tests miri-core "$CARGO" miri test --locked --no-fail-fast -p devexchange-core --test batch --test batch_stream \
    --test convert --test dlpack --test manager --test order --test owned --test schema --test sizes --test types -- \
    --skip columns_are_found_by_name --skip devices_are_normalised_or_refused --skip a_chain_of_streams_has_an_end
  # Users begin with these examples, and may run them under Miri, too.
  cargo_tests miri-doc "$CARGO" miri test --locked --no-fail-fast -p devexchange-core --features arrow --doc -- --skip ipc
}

if [ $# -eq 0 ]; then set -- address c thread miri; fi
for part in "$@"; do
  unset DEVEXCHANGE_KEEP_BLOCKS DEVX_ASYNC_SCHEDULES DEVX_FAULT_CODES DEVX_SIM_PATH LSAN_OPTIONS TSAN_OPTIONS
  case $part in
    address | c | thread | miri) "part_$part" ;;
    *) echo "sanitize: no part '$part'; there are: address c thread miri" >&2; exit 2 ;;
  esac
done
report_counts
