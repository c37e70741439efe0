#!/usr/bin/env bash
# The fuzz targets (fuzz/fuzz_targets), with the address sanitizer and without a nightly compiler.
#
#   scripts/fuzz.sh [TARGET...]            MINUTES (5) for each target; then a table, the account and the findings
#   scripts/fuzz.sh --short [TARGET...]    the committed inputs and 100000 executions for each target, as CI runs them
#   scripts/fuzz.sh --account              the executions of all long runs so far, and the open findings
#   scripts/fuzz.sh --minimise [TARGET...] puts into fuzz/corpus the fewest inputs of the long runs that reach all code
#   scripts/fuzz.sh --lint                 rustfmt and clippy on the targets
#
# Long runs have the lowest priority. They keep their inputs below the target directory, in fuzz/corpus/TARGET, and
# continue from there; fuzz/account.tsv records the number of executions. A finding is in fuzz/findings/TARGET, and its
# report, with all stacks, in fuzz/TARGET.finding.log. The next long run tries it again: an input that no longer fails
# becomes an ordinary one. --short ends with the line `counts: N passed, N failed, N skipped`: one test for each target. A
# target that ran fewer than 90000 times did nothing, which is a failure.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"

all_targets=(format metadata arrow dlpack cuda_array ipc)
least_executions=90000
short_executions=100000
seconds=$(awk -v minutes="${MINUTES:-5}" 'BEGIN { print int(60 * minutes) }')
if [ "$seconds" -lt 4 ]; then echo "MINUTES is $MINUTES: each target needs some seconds" >&2; exit 2; fi

out=$DEVX_TARGET/fuzz
committed=$DEVX_ROOT/fuzz/corpus
account=$out/account.tsv
host=$("$RUSTC" -vV | sed -n 's/^host: //p')
bin=$out/$host/release

# The sanitizer, and a counter for each edge. What cargo-fuzz would add is left out: it reports each comparison and each
# indirect call to libFuzzer by a call, which costs more than it finds, because the targets make inputs that are nearly
# right.
flags=(--cfg fuzzing -Cpasses=sancov-module -Zsanitizer=address)
for option in level=3 inline-8bit-counters pc-table; do
  flags+=("-Cllvm-args=-sanitizer-coverage-$option")
done

# What the sanitizer looks for: everything, or only what is cheap. In each execution invalid memory accesses matter
# most; a run of the same inputs with all checks later adds where memory was allocated and pointers into frames that are
# gone.
all_checks=detect_leaks=1
cheap_checks=$all_checks:malloc_context_size=0:quarantine_size_mb=2:detect_stack_use_after_return=0
# Which inputs are kept: those that reach a new edge. Counting how often each edge is taken finds more, but takes twice
# the time.
by_edges=(-use_counters=0 -entropic=0 -reduce_inputs=0)

# Builds for a named target triple, so that build scripts and macros are built as usual. RUSTC_BOOTSTRAP lets the
# project's own compiler accept `-Z`. The sanitizer is off for libFuzzer itself, which would spend most of the time on
# its own frames.
on_targets() { # CARGO'S SUBCOMMAND ARGUMENTS...
  CXXFLAGS=-fno-sanitize=address RUSTC_BOOTSTRAP=1 RUSTFLAGS="${flags[*]}" "$CARGO" "$1" --release --locked --quiet \
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

# Leaks are checked once, at the end: a check after each execution would take most of the time.
run() { # CHECKS TARGET ARGUMENTS...
  local checks=$1 target=$2 path=${LD_LIBRARY_PATH:-}
  shift 2
  # The other targets run as on a machine without a driver.
  if [ "$target" = cuda_array ]; then path=$out/simcuda; fi
  LD_LIBRARY_PATH=$path SIMCUDA_MODE=lazy ASAN_OPTIONS=$checks "$bin/$target" -detect_leaks=0 -timeout=30 \
    -rss_limit_mb=4096 -max_len=1024 -print_final_stats=1 -artifact_prefix="$out/findings/$target/" "$@"
}

stat() { # LOG NAME
  sed -n "s/^stat::$2: *//p" "$1" | tail -n 1
}

short() { # TARGET
  local target=$1 log=$out/$1.log scratch executions
  scratch=$(mktemp -d)
  if {
    run "$all_checks" "$target" -runs=0 "$committed/$target" &&
      run "$cheap_checks" "$target" "${by_edges[@]}" -seed=1 -runs="$short_executions" "$scratch" "$committed/$target"
  } >"$log" 2>&1; then
    executions=$(stat "$log" number_of_executed_units)
    if [ "${executions:-0}" -ge "$least_executions" ]; then
      ok "$target: $executions executions, $(stat "$log" average_exec_per_sec) a second"
    else
      not_ok "$target" "only ${executions:-no} executions"
    fi
  else
    not_ok "$target" "it has a finding, see $log"
    grep -aE -A 12 'panicked at|ERROR: |SUMMARY: ' "$log" | head -n 60 | indented || true
  fi
  rm -rf "$scratch"
}

# Tries the findings again: one that no longer fails is closed, and becomes an ordinary input.
try_findings() { # TARGET
  local target=$1 input
  for input in "$out/findings/$target"/*; do
    [ -e "$input" ] || continue
    if run "$all_checks" "$target" "$input" >"$out/$target.finding.log" 2>&1; then
      mv "$input" "$out/corpus/$target/"
    fi
  done
}

# One part of a long run, which is added to the account; `executions` and `found` are the caller's variables.
part() { # TARGET CHECKS ARGUMENTS...
  local target=$1 log=$out/$1.log status=0 executed units
  run "$2" "$target" "${@:3}" "$out/corpus/$target" "$committed/$target" >"$log" 2>&1 || status=$?
  executed=$(stat "$log" number_of_executed_units) units=$(stat "$log" new_units_added)
  executions=$((executions + ${executed:-0})) found=$((found + ${units:-0}))
  printf '%s\t%s\t%s\t%s\n' "$target" "${executed:-0}" "$status" "$(date +%FT%T)" >>"$account"
  return "$status"
}

# A quarter of the time goes to the strategy that finds most, the rest to the one with most executions; then all kept
# inputs run with all checks.
long() { # TARGET
  local target=$1 executions=0 found=0 finding=none
  renice -n 19 $$ >/dev/null
  try_findings "$target"
  if ! {
    part "$target" "$cheap_checks" -max_total_time=$((seconds / 4)) &&
      part "$target" "$cheap_checks" "${by_edges[@]}" -max_total_time=$((seconds * 3 / 4)) &&
      part "$target" "$all_checks" -runs=0
  }; then
    finding=$out/$target.log findings=$((findings + 1))
    try_findings "$target"
  fi
  rows+=("$(printf '%-12s %12d %10d %10d %9s' \
    "$target" "$executions" $((executions / seconds)) "$found" "$finding")")
}

# The number of open findings of a target: inputs, or, if there are none, a failure of its last run without an input,
# such as a leak.
open_findings() { # TARGET
  local inputs
  inputs=$(find "$out/findings/$1" -type f | wc -l)
  if [ "$inputs" -eq 0 ]; then
    awk -v target="$1" '$1 == target { open = $3 != 0 } END { print open + 0 }' "$account"
  else
    echo "$inputs"
  fi
}

# The sums over all long runs.
show_account() {
  local target executions open all_executions=0 all_open=0
  printf '%-12s %14s %14s\n' 'all runs' executions 'open findings'
  for target in "${all_targets[@]}"; do
    executions=$(awk -v target="$target" '$1 == target { sum += $2 } END { printf "%d", sum }' "$account")
    open=$(open_findings "$target")
    printf '%-12s %14d %14d\n' "$target" "$executions" "$open"
    all_executions=$((all_executions + executions)) all_open=$((all_open + open))
  done
  printf '%-12s %14d %14d\n' total "$all_executions" "$all_open"
}

minimise() { # TARGET
  local target=$1 least
  least=$(mktemp -d)
  run "$cheap_checks" "$target" -merge=1 -use_counters=0 "$least" "$committed/$target" "$out/corpus/$target" 2>&1 |
    tail -n 1
  rm -rf "${committed:?}/$target"
  mv "$least" "$committed/$target"
  chmod 755 "$committed/$target"
}

way=long
case ${1:-} in
  --short | --minimise) way=${1#--}; shift ;;
  --lint) lint; exit ;;
  --account) way=account; shift ;;
esac
targets=("$@")
if [ $# -eq 0 ]; then targets=("${all_targets[@]}"); fi
for target in "${targets[@]}"; do
  case " ${all_targets[*]} " in
    *" $target "*) mkdir -p "$out/findings/$target" "$out/corpus/$target" "$committed/$target" ;;
    *) echo "fuzz: no target '$target'; there are: ${all_targets[*]}" >&2; exit 2 ;;
  esac
done
for target in "${all_targets[@]}"; do mkdir -p "$out/findings/$target"; done
touch "$account"
if [ "$way" = account ]; then show_account; exit; fi

build
rows=() findings=0
for target in "${targets[@]}"; do "$way" "$target"; done
case $way in
  short) report_counts ;;
  long)
    printf '%-12s %12s %10s %10s %9s\n' target executions 'a second' 'new inputs' finding
    printf '%s\n' "${rows[@]}" ''
    show_account
    [ "$findings" -eq 0 ]
    ;;
esac
