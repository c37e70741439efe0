#!/usr/bin/env bash
# The CUDA part of the tests from the programs beside this script (a bundle of scripts/gpu-bundle.sh), on the CUDA driver
# of this machine. Needs bash, coreutils, grep and sed; no Rust, no checkout, no network.
#
#   run.sh [--results DIRECTORY]               on the GPU
#   run.sh --simulated [--results DIRECTORY]   the same on the simulated driver of the bundle: a rehearsal, not a result
#
# Every test is a process of its own. Prints a line a test and ends with the plain line
#
#   N passed, N failed, N skipped
#
# What was printed stays in DIRECTORY (results/, beside this script), and the answers of a real driver, too.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
results=$here/results
simulated=
limit=300 # seconds for one test

passed=0 failed=0 skipped=0

usage() { echo "usage: ${0##*/} [--simulated] [--results DIRECTORY]" >&2; exit 2; }

while [ $# -gt 0 ]; do
  case $1 in
    --simulated) simulated=yes ;;
    --results) [ $# -gt 1 ] || usage; results=$2; shift ;;
    *) usage ;;
  esac
  shift
done

heading() { printf '\n=== %s ===\n' "$1"; }

# Nothing may look like the result of a GPU that is not one.
banner() {
  if [ -z "$simulated" ]; then return; fi
  echo
  echo "*** SIMULATED: no GPU was used. A rehearsal on the software driver of tests/simcuda. ***"
}

finish() {
  banner
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}

choose_driver() {
  if [ -n "$simulated" ]; then
    export DEVX_GPU=rehearsal LD_LIBRARY_PATH=$here/sim
    # As much like one GPU as it can be; a race or a use after free ends a program badly.
    export SIMCUDA_MODE=threads SIMCUDA_DEVICES=1 SIMCUDA_FATAL=exit
  else
    export DEVX_GPU=1
  fi
}

# --- what CUDA answers ---

run_conformance() {
  local log=$results/conformance.log status=0 counts record=()
  heading "what the driver answers"
  if [ -z "$simulated" ]; then record=(--record "$results/answers.txt"); fi
  "$here/bin/cuda-conformance" "${record[@]}" >"$log" 2>&1 </dev/null || status=$?
  cat "$log"
  counts=$(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$log" | tail -n 1)
  if [ "$status" -gt 1 ] || [ -z "$counts" ]; then
    # Without a driver that answers there is nothing to test.
    echo "the driver could not be asked (exit status $status), so nothing was tested"
    failed=1
    finish
  fi
  read -r passed failed skipped <<<"$counts"
}

# --- tests in Rust: the name of each is asked of its program ---

run_test() { # PROGRAM TEST
  local log=$results/$1.$2.log status=0 why
  timeout -k 10 "$limit" "$here/bin/$1" --exact "$2" --nocapture --test-threads=1 >"$log" 2>&1 </dev/null || status=$?
  if [ "$status" -ne 0 ] || ! grep -q '^test result: ok\. 1 passed' "$log"; then
    failed=$((failed + 1))
    echo "not ok - $1: $2 (exit status $status)"
    tail -n 40 "$log" | sed 's/^/    /'
    return
  fi
  # libtest knows nothing of tests that are skipped while they run; they say so themselves (devexchange_tests::sim).
  why=$(sed -nE 's/.*skipped \([0-9]+\): (.*)/\1/p' "$log" | sed -n 1p)
  if [ -n "$why" ]; then
    skipped=$((skipped + 1))
    echo "ok - $1: $2 # skip $why"
  else
    passed=$((passed + 1))
    echo "ok - $1: $2"
  fi
}

run_tests_of() { # PROGRAM
  local name names
  heading "$1"
  names=$("$here/bin/$1" --list --format terse 2>&1 </dev/null | sed -n 's/: test$//p') || true
  if [ -z "$names" ]; then
    failed=$((failed + 1))
    echo "not ok - $1 lists no tests"
  fi
  for name in $names; do run_test "$1" "$name"; done
}

# --- tests in C and C++ ---

run_c() { # PROGRAM
  local log=$results/$1.log status=0 good bad left
  heading "$1"
  timeout -k 10 "$limit" "$here/bin/$1" >"$log" 2>&1 </dev/null || status=$?
  cat "$log"
  left=$(grep -c '^ok - .* # skip ' "$log") || true
  good=$(($(grep -c '^ok - ' "$log" || true) - left))
  bad=$(grep -c '^not ok - ' "$log") || true
  if [ "$bad" -eq 0 ] && { [ "$status" -ne 0 ] || [ $((good + left)) -eq 0 ]; }; then
    echo "not ok - $1 ends well (exit status $status)"
    bad=1
  fi
  passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left))
}

main() {
  local program
  mkdir -p "$results"
  choose_driver
  cat "$here/BUILT"
  banner
  run_conformance
  for program in "$here"/bin/cuda_*; do run_tests_of "${program##*/}"; done
  for program in "$here"/bin/test_*; do run_c "${program##*/}"; done
  finish
}

main
