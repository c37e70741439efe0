#!/usr/bin/env bash
# Runs the CUDA part of the tests, from the programs beside this script (a bundle of scripts/gpu-bundle.sh), on the CUDA
# driver of this machine. Needs bash, coreutils, grep and sed; no Rust, no checkout, no network. The Python parts run
# with $PYTHON, or python3, and whichever libraries it has; nothing is installed anywhere.
#
#   run.sh                on the GPU
#   run.sh --simulated    the same on the simulated driver of the bundle: a rehearsal, not a result
#
#     --only PART             one part, or several if it is given several times; docs/gpu.md says what each is:
#                             conformance, core, c, python, bench, sanitizer, numba-plain, numba-ours, numba-compare
#     --results DIRECTORY     where to leave the output
#
# Every test in Rust runs in its own process, and so does every program in C and every library in Python. Prints a line
# for each test and ends with the plain line
#
#   N passed, N failed, N skipped
#
# The output stays in DIRECTORY (results/, beside this script), and so do the answers of a real driver.
set -euo pipefail

here=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
results=$here/results
simulated=
limit=300 # seconds for one test, or for one library in Python
suite_limit=540 # seconds for one part on a GPU, which then still names what it did not run
end=0 # when the part that is running has to end, in seconds since the start
all_parts=(conformance core c python bench sanitizer numba-plain numba-ours numba-compare)
parts=()

passed=0 failed=0 skipped=0

usage() {
  echo "usage: ${0##*/} [--simulated] [--results DIRECTORY] [--only PART]..." >&2
  echo "parts: ${all_parts[*]}" >&2
  exit 2
}

add_part() {
  case " ${all_parts[*]} " in
    *" $1 "*) parts+=("$1") ;;
    *) usage ;;
  esac
}

while [ $# -gt 0 ]; do
  case $1 in
    --simulated) simulated=yes ;;
    --results) [ $# -gt 1 ] || usage; results=$2; shift ;;
    --only) [ $# -gt 1 ] || usage; add_part "$2"; shift ;;
    *) usage ;;
  esac
  shift
done

if [ ${#parts[@]} -eq 0 ]; then parts=("${all_parts[@]}"); fi
# The parts may run in other directories.
mkdir -p "$results"
results=$(cd "$results" && pwd)

heading() { printf '\n=== %s ===\n' "$1"; }

# A simulated run must never look like the result of a GPU.
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

# The driver shuts a GPU down when its last client ends, and starting it again takes it a second or two, which is long for
# hundreds of programs. An open device file is a client.
hold_devices() {
  local device held
  for device in /dev/nvidia[0-9]*; do
    # shellcheck disable=SC2034 # the descriptor stays open as long as this script runs
    { exec {held}<>"$device"; } 2>/dev/null || true
  done
}

choose_driver() {
  if [ -n "$simulated" ]; then
    export DEVX_GPU=rehearsal LD_LIBRARY_PATH=$here/sim
    # As similar to one GPU as possible; a race, a use after free, or a read of what nobody wrote makes a program fail.
    export SIMCUDA_MODE=threads SIMCUDA_DEVICES=1 SIMCUDA_FATAL=exit SIMCUDA_INITCHECK=1
  else
    export DEVX_GPU=1
    hold_devices
  fi
}

# Whether the part has time left; if not, WHAT is skipped. A rehearsal may take as long as it does.
has_time() { # WHAT
  if [ -n "$simulated" ] || [ "$SECONDS" -lt "$end" ]; then return; fi
  skip "$1" "there was no time left after $suite_limit s"
  return 1
}

# Runs a program for at most $limit, and on a GPU for no longer than the part has left.
limited() { # COMMAND...
  local left=$((end - SECONDS))
  if [ -n "$simulated" ] || [ "$left" -gt "$limit" ]; then left=$limit; fi
  timeout -k 10 "$left" "$@" </dev/null
}

fail() { failed=$((failed + 1)); echo "not ok - $1"; }

skip() { skipped=$((skipped + 1)); echo "ok - $1 # skip $2"; } # WHAT WHY

add() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }

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
  # shellcheck disable=SC2086 # three numbers
  add $counts
}

# --- tests in Rust: the name of each is asked of its program ---

run_test() { # PROGRAM TEST
  local log=$results/$1.$2.log status=0 why
  has_time "$1: $2" || return 0
  limited "$here/bin/$1" --exact "$2" --nocapture --test-threads=1 >"$log" 2>&1 || status=$?
  if [ "$status" -ne 0 ] || ! grep -q '^test result: ok\. 1 passed' "$log"; then
    fail "$1: $2 (exit status $status)"
    tail -n 40 "$log" | sed 's/^/    /'
    return
  fi
  # libtest knows nothing of tests that decide to skip while they run; they report it themselves
  # (devexchange_tests::sim).
  why=$(sed -nE 's/.*skipped \([0-9]+\): (.*)/\1/p' "$log" | sed -n 1p)
  if [ -n "$why" ]; then
    skip "$1: $2" "$why"
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
    fail "$1 lists no tests"
  fi
  for name in $names; do run_test "$1" "$name"; done
}

# --- tests in C and C++ ---

run_c() { # PROGRAM
  local log=$results/$1.log status=0 good bad left
  heading "$1"
  has_time "$1" || return 0
  limited "$here/bin/$1" >"$log" 2>&1 || status=$?
  cat "$log"
  left=$(grep -c '^ok - .* # skip ' "$log") || true
  good=$(($(grep -c '^ok - ' "$log" || true) - left))
  bad=$(grep -c '^not ok - ' "$log") || true
  # The last line of each program gives its counts: a program without it ended before its last test.
  if [ "$bad" -eq 0 ] && { [ "$status" -ne 0 ] || ! grep -qE '^# [0-9]+ passed, ' "$log"; }; then
    echo "not ok - $1 ends well (exit status $status)"
    bad=1
  fi
  add "$good" "$bad" "$left"
}

# --- tests in Python ---

# Finds the interpreter, and puts the bundle's files before its packages. If there is no interpreter, says why.
find_python() {
  local why site=$results/python
  python=$(command -v "${PYTHON:-python3}" || true)
  if [ -z "$python" ]; then echo "there is no ${PYTHON:-python3}"; return 1; fi
  if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "$("$python" --version) is too old: the wheel is for 3.11 and newer"
    return 1
  fi
  if ! why=$("$python" -c 'import numpy' 2>&1); then echo "$python has no NumPy: ${why##*$'\n'}"; return 1; fi
  rm -rf "$site"
  if ! why=$("$python" -m zipfile -e "$here"/python/devexchange-*.whl "$site" 2>&1); then
    echo "the wheel cannot be unpacked: $why"
    return 1
  fi
  export PYTHONPATH=$site:$here/python/tests:$here/python/tests/gpu:$here/python/needs${PYTHONPATH:+:$PYTHONPATH}
  export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
  # Several libraries share the device.
  export XLA_PYTHON_CLIENT_PREALLOCATE=false
}

# Numba relies on a driver that waits in frees and in uploads, and so do its users.
in_python() { # COMMAND...
  (
    if [ -n "$simulated" ]; then export SIMCUDA_FREE=waits SIMCUDA_STAGING=waits; fi
    "$@" </dev/null
  )
}

# unittest prints the number of tests and their results. A module that skips itself counts as one test until Python
# 3.12, and as none in later versions. Until 3.12 a run without any test is a success.
run_library() { # LIBRARY
  local log=$results/python-$1.log status=0 ran=0 bad=0 left=0
  echo "--- $1"
  has_time "$1" || return 0
  (
    cd "$here/python/tests/gpu"
    in_python limited "$python" -m unittest discover -v -p "test_$1.py"
  ) >"$log" 2>&1 || status=$?
  cat "$log"
  ran=$(sed -nE 's/^Ran ([0-9]+) tests? in .*/\1/p' "$log" | tail -n 1)
  bad=$(grep -E '^FAILED \(' "$log" | tail -n 1 | grep -oE '(failures|errors|unexpected successes)=[0-9]+' |
    cut -d = -f 2 | paste -sd + || true)
  bad=$((${bad:-0}))
  left=$(sed -nE 's/^(OK|FAILED|NO TESTS RAN) \(.*skipped=([0-9]+).*/\2/p' "$log" | tail -n 1)
  if [ "$ran" = 0 ] && [ -n "$left" ]; then add 0 0 "$left"; return; fi
  if [ "$bad" -eq 0 ] && { [ "$status" -ne 0 ] || [ "${ran:-0}" -eq 0 ]; }; then
    fail "$1: the process did not end well (exit status $status, ${ran:-no} tests)"
  fi
  add $((${ran:-0} - bad - ${left:-0})) "$bad" "${left:-0}"
}

run_python() {
  local library
  heading "python: $("$python" --version)"
  for library in torch cupy jax numba between allocators; do run_library "$library"; done
}

# --- Numba's own suite, without our manager and with it ---

# On the simulated driver a few modules show whether the script works; `make test-numba` runs what can run there.
rehearsed=(cudadrv.test_cuda_memory cudadrv.test_deallocations cudapy.test_cuda_array_interface)

run_suite() { # run KIND | compare
  local log=$results/numba-${2:-compare}.log status=0 counts why modules=()
  heading "numba's suite: $*"
  if ! why=$(in_python "$python" -c 'import numba.cuda.tests' 2>&1); then
    skip "Numba's suite" "$(tail -n 1 <<<"$why")"
    return
  fi
  if [ "$1" = run ]; then
    if [ -n "$simulated" ]; then modules=("${rehearsed[@]}"); fi
    set -- run --seconds "$suite_limit" "$2"
  fi
  in_python "$python" "$here/python/numba/suite.py" "$@" "$results" "${modules[@]}" >"$log" 2>&1 || status=$?
  cat "$log"
  counts=$(sed -nE 's/^counts: ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$log" | tail -n 1)
  if [ -z "$counts" ]; then fail "Numba's suite did not end well (exit status $status)"; fi
  # shellcheck disable=SC2086 # three numbers
  add ${counts:-0 0 0}
}

# --- what it costs: the only criterion is that it runs ---

run_bench() {
  local log=$results/bench.log status=0 rehearsal=()
  heading "what it costs"
  if ! command -v "${PYTHON:-python3}" >/dev/null; then skip bench "there is no ${PYTHON:-python3}"; return; fi
  if [ -n "$simulated" ]; then rehearsal=(--simulated); fi
  timeout -k 10 "$suite_limit" "$here/bench/bench.sh" --results "$results" "${rehearsal[@]}" \
    >"$log" 2>&1 </dev/null || status=$?
  cat "$log"
  if [ "$status" -eq 0 ]; then
    passed=$((passed + 1))
    echo "ok - bench"
  else
    fail "bench (exit status $status)"
  fi
}

# --- under NVIDIA's compute-sanitizer ---

# Our programs have no kernels, so its other tools (racecheck, synccheck: shared memory) have nothing to look at.
run_sanitizer() {
  local program tool sanitizer
  heading sanitizer
  if [ -n "$simulated" ]; then skip sanitizer "it is for a real driver"; return; fi
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer || true)
  if [ -z "$sanitizer" ]; then
    skip sanitizer "compute-sanitizer is neither on PATH nor in /usr/local/cuda/bin"
    return
  fi
  for tool in memcheck initcheck; do
    for program in "$here"/bin/cuda_* "$here"/bin/test_*; do
      # These two call no driver on a GPU, and for compute-sanitizer that is an error.
      case ${program##*/} in cuda_absent | cuda_faults) continue ;; esac
      if has_time "$tool: ${program##*/}"; then run_sanitized "$tool" "$program"; fi
    done
  done
}

run_sanitized() { # TOOL PROGRAM
  local name=${2##*/} status=0 arguments=()
  local log=$results/$1.$name.log
  case $name in cuda_*) arguments=(--test-threads=1) ;; esac
  # Some tests make calls that must fail.
  limited "$sanitizer" --tool "$1" --report-api-errors no --target-processes all \
    --error-exitcode 99 "$2" "${arguments[@]}" >"$log" 2>&1 || status=$?
  if [ "$status" -eq 0 ] && grep -q 'ERROR SUMMARY: 0 errors' "$log"; then
    passed=$((passed + 1))
    echo "ok - $1: $name"
  else
    fail "$1: $name (exit status $status)"
    { grep -E '^=+ ' "$log" || cat "$log"; } | head -n 40 | sed 's/^/    /'
  fi
}

run_part() { # PART
  local program why
  end=$((SECONDS + suite_limit))
  case $1 in
    conformance) run_conformance ;;
    core) for program in "$here"/bin/cuda_*; do run_tests_of "${program##*/}"; done ;;
    c) for program in "$here"/bin/test_*; do run_c "${program##*/}"; done ;;
    bench) run_bench ;;
    sanitizer) run_sanitizer ;;
    *)
      if [ -n "$no_python" ]; then heading "$1"; skip "$1" "$no_python"; return; fi
      # The driver must be there, and must be the expected one.
      if ! why=$(in_python "$python" -c 'import cudadriver' 2>&1); then
        heading "$1"
        fail "$1: ${why##*$'\n'}"
        return
      fi
      case $1 in
        python) run_python ;;
        numba-compare) run_suite compare ;;
        numba-*) run_suite run "${1#numba-}" ;;
      esac
      ;;
  esac
}

main() {
  local part python='' no_python=''
  choose_driver
  cat "$here/BUILT"
  banner
  find_python >"$results/no-python" || no_python=$(cat "$results/no-python")
  for part in "${parts[@]}"; do run_part "$part"; done
  finish
}

main
