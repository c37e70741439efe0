#!/usr/bin/env bash
# The fuzz targets (fuzz/fuzz_targets), with the address sanitizer and without a nightly compiler.
#
#   scripts/fuzz.sh [TARGET...]            so long as MINUTES says (5), each; then a table and the findings
#   scripts/fuzz.sh --short [TARGET...]    the committed inputs and 12000 executions each: what CI runs
#   scripts/fuzz.sh --minimise [TARGET...] keeps what long runs found in fuzz/corpus, as few inputs as reach all code
#   scripts/fuzz.sh --lint                 rustfmt and clippy on them
#
# Long runs keep their inputs below the target directory (fuzz/corpus/TARGET) and go on from there. An input that was a
# finding is in fuzz/findings/TARGET there; `TARGET FILE` runs it again, with the program that the run names.
# --short prints, last, `counts: N passed, N failed, N skipped`: a test for each target. A target that ran fewer than
# 10000 times did nothing, which is a failure.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"

all_targets=(format metadata arrow dlpack cuda_array ipc)
least_executions=10000
short_executions=12000
minutes=${MINUTES:-5}

out=$DEVX_TARGET/fuzz
committed=$DEVX_ROOT/fuzz/corpus
host=$("$RUSTC" -vV | sed -n 's/^host: //p')
bin=$out/$host/release

# What cargo-fuzz would say, too: counters and comparisons for libFuzzer, and the sanitizer.
flags=(--cfg fuzzing -Cpasses=sancov-module -Zsanitizer=address)
for option in level=4 inline-8bit-counters pc-table trace-compares; do
  flags+=("-Cllvm-args=-sanitizer-coverage-$option")
done

# For a named target triple, so that build scripts and macros are built as ever. RUSTC_BOOTSTRAP lets the project's own
# compiler take `-Z`.
on_targets() { # CARGO'S SUBCOMMAND ARGUMENTS...
  RUSTC_BOOTSTRAP=1 RUSTFLAGS="${flags[*]}" "$CARGO" "$1" --release --locked --quiet \
    --manifest-path "$DEVX_ROOT/fuzz/Cargo.toml" --target "$host" --target-dir "$out" "${@:2}"
}

lint() {
  "$CARGO" fmt --manifest-path "$DEVX_ROOT/fuzz/Cargo.toml" --check
  on_targets clippy --all-targets -- -D warnings
}

build() {
  on_targets build --bins
  "$DEVX_ROOT/tests/simcuda/driver/place.sh" "$out/simcuda"
}

# Leaks are looked for once, at the end: after each execution it would take most of the time.
run() { # TARGET ARGUMENTS...
  local target=$1 path=${LD_LIBRARY_PATH:-}
  shift
  # The other targets are those of a machine without a driver.
  if [ "$target" = cuda_array ]; then path=$out/simcuda; fi
  LD_LIBRARY_PATH=$path SIMCUDA_MODE=lazy ASAN_OPTIONS=detect_leaks=1 "$bin/$target" -detect_leaks=0 -timeout=30 \
    -rss_limit_mb=4096 -max_len=1024 -print_final_stats=1 -artifact_prefix="$out/findings/$target/" "$@"
}

stat() { # LOG NAME
  sed -n "s/^stat::$2: *//p" "$1" | tail -n 1
}

short() { # TARGET
  local target=$1 log=$out/$1.log scratch executions
  scratch=$(mktemp -d)
  if run "$target" -seed=1 -runs="$short_executions" "$scratch" "$committed/$target" >"$log" 2>&1; then
    executions=$(stat "$log" number_of_executed_units)
    if [ "${executions:-0}" -ge "$least_executions" ]; then
      ok "$target: $executions executions, $(stat "$log" average_exec_per_sec) a second"
    else
      not_ok "$target" "only ${executions:-no} executions"
    fi
  else
    not_ok "$target" "a finding, see $log"
    grep -aE -A 12 'panicked at|ERROR: |SUMMARY: ' "$log" | head -n 60 | indented || true
  fi
  rm -rf "$scratch"
}

long() { # TARGET
  local target=$1 log=$out/$1.log status=0
  mkdir -p "$out/corpus/$target"
  run "$target" -max_total_time=$((minutes * 60)) "$out/corpus/$target" "$committed/$target" >"$log" 2>&1 || status=$?
  rows+=("$(printf '%-12s %12s %8s %10s %9s' "$target" "$(stat "$log" number_of_executed_units)" \
    "$(stat "$log" average_exec_per_sec)" "$(stat "$log" new_units_added)" \
    "$(if [ "$status" -eq 0 ]; then echo none; else echo "$log"; fi)")")
  if [ "$status" -ne 0 ]; then findings=$((findings + 1)); fi
}

minimise() { # TARGET
  local target=$1 least
  least=$(mktemp -d)
  run "$target" -merge=1 -use_counters=0 "$least" "$committed/$target" "$out/corpus/$target" 2>&1 | tail -n 1
  rm -rf "${committed:?}/$target"
  mv "$least" "$committed/$target"
  chmod 755 "$committed/$target"
}

way=long
case ${1:-} in
  --short | --minimise) way=${1#--}; shift ;;
  --lint) lint; exit ;;
esac
targets=("$@")
if [ $# -eq 0 ]; then targets=("${all_targets[@]}"); fi
for target in "${targets[@]}"; do
  case " ${all_targets[*]} " in
    *" $target "*) mkdir -p "$out/findings/$target" "$out/corpus/$target" "$committed/$target" ;;
    *) echo "fuzz: no target '$target'; there are: ${all_targets[*]}" >&2; exit 2 ;;
  esac
done

build
rows=() findings=0
for target in "${targets[@]}"; do "$way" "$target"; done
case $way in
  short) report_counts ;;
  long)
    printf '%-12s %12s %8s %10s %9s\n' target executions 'a second' 'new inputs' finding
    printf '%s\n' "${rows[@]}"
    [ "$findings" -eq 0 ]
    ;;
esac
