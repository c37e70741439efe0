#!/usr/bin/env bash
# Runs every test in every language (`make test`), or the named suites:
#
#   scripts/test.sh [rust] [c] [java] [julia] [demo] [python] [numba] [third-party] [conformance] [gpu-rehearsal]
#                   [soak] [pairs] [bench] [readme] [seeded-bugs] [fuzz]
#
# Installs what is missing, builds the release libraries once, runs suite after suite (none stops the next one),
# prints a table (`busy`: the seconds of all cores together), and ends with the plain line
#
#   N passed, N failed, N skipped
#
# A suite that is missing, ends badly, runs no test or prints no counts is at least one failure. The output of each step
# and suite stays in target/test-logs/NAME.log. On a terminal all output is shown as it comes, except that of suites that
# run at the same time, where only failures are shown. Elsewhere, where nobody watches, only failures are shown, too
# (VERBOSE=1: all).
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# Two lanes run at the same time, each one suite after the other. The suites in the second lane neither use nor make the
# jar, the wheel or a Python environment that holds the wheel.
lanes=("java numba python conformance demo demo-cuda gpu-rehearsal soak pairs bench readme third-party fuzz"
  "rust c julia julia-threads seeded-bugs")
read -ra all_suites <<<"${lanes[*]}"
logs=$DEVX_TARGET/test-logs
java_project=$DEVX_ROOT/bindings-jni/java
julia_project=$DEVX_ROOT/bindings-julia/DevExchange.jl
demo=$DEVX_ROOT/examples/demo/run.sh
built=yes

total_passed=0 total_failed=0 total_skipped=0
rows=()
bad=() # the names in rows with failures

if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
if [ -t 1 ] || [ -n "${VERBOSE:-}" ]; then exec 3>&1; else exec 3>/dev/null; fi

heading() { printf '\n%s=== %s ===%s\n' "$bold" "$1" "$plain"; }

# --- suites: each runs in its own subshell and prints output for people ---

needs_file() { # FILE
  if [ ! -e "$1" ]; then echo "${1#"$DEVX_ROOT/"} is not there" >&2; return 1; fi
}

needs_tool() { # NAME VALUE
  if [ -z "$2" ]; then echo "no $1 found; 'make setup' says more" >&2; return 1; fi
}

needs_java() {
  needs_tool Maven "$MVN"
  needs_tool "JDK >= 17" "$JAVA_HOME"
}

needs_libraries() {
  if [ "$built" = no ]; then echo "the release libraries could not be built, see above" >&2; return 1; fi
}

suite_rust() {
  needs_tool cargo "$CARGO"
  # A test run never writes snapshots; `make headers` does.
  INSTA_UPDATE=no "$CARGO" test --workspace --locked --no-fail-fast
}

suite_c() {
  needs_file "$DEVX_ROOT/bindings-c/tests/c"
  needs_libraries
  "$DEVX_ROOT/scripts/test-c.sh"
}

suite_java() {
  rm -rf "$java_project/target/surefire-reports" # the counts are this run's
  needs_file "$java_project/pom.xml"
  needs_libraries
  needs_java
  if [ -z "$DEVX_JDK22" ]; then echo "no JDK 22 or newer: nothing is tested with foreign functions"; fi
  devx_mvn verify
  refuse_jni_warnings
}

# The warnings of -Xcheck:jni do not make a JVM fail, so this function looks for them. Surefire keeps what the JVM
# itself writes to stdout in a .dumpstream file.
refuse_jni_warnings() {
  local words='(FATAL ERROR|WARNING) in native method|JNI call made without checking exceptions'
  words+='|JNI local refs: [0-9]+, exceeds capacity'
  if grep -rE "$words" "$java_project/target/surefire-reports" "$logs/java.log"; then
    echo "-Xcheck:jni reports problems, see the lines above" >&2
    return 1
  fi
}

run_julia() { # ARGUMENT...
  needs_file "$julia_project/test/runtests.jl"
  needs_libraries
  needs_tool Julia "$JULIA"
  "$JULIA" --startup-file=no --project="$julia_project" "$@"
}

# Most of the time goes into compiling the tests, so they are optimised little.
suite_julia() { run_julia -O1 "$julia_project/test/runtests.jl"; }

# The tests that use threads, and the one that depends on how well code is optimised. Julia 1.5 starts no more threads than
# the machine has cores; later versions do.
suite_julia-threads() {
  export JULIA_NUM_THREADS=4
  run_julia "$julia_project/test/runtests.jl" ownership threads processes batch_streams async managers devices cuda_jl ipc \
    allocations
}

run_demo() { # DEVICE
  needs_file "$demo"
  needs_libraries
  DEVICE=$1 "$demo"
}

suite_demo() { run_demo host; }

# On the simulated driver.
suite_demo-cuda() { run_demo cuda; }

suite_python() {
  needs_file "$DEVX_ROOT/bindings-python/tests"
  needs_tool "Python 3" "$PYTHON"
  "$DEVX_ROOT/scripts/test-python.sh"
}

suite_numba() {
  needs_file "$DEVX_ROOT/tests/numba"
  needs_tool "Python 3" "$PYTHON"
  "$DEVX_ROOT/scripts/test-numba.sh"
}

suite_third-party() {
  needs_file "$DEVX_ROOT/tests/third-party"
  needs_libraries
  needs_tool "Python 3" "$PYTHON"
  "$DEVX_ROOT/scripts/test-third-party.sh"
}

suite_conformance() {
  needs_file "$DEVX_ROOT/tests/conformance-arrow"
  needs_libraries
  needs_tool "Python 3" "$PYTHON"
  needs_java
  "$DEVX_ROOT/scripts/test-conformance.sh"
}

# Runs what `make gpu-test` runs on a GPU on the simulated driver, from another directory and with nothing in its
# environment but a Python that has Numba.
suite_gpu-rehearsal() {
  needs_tool cargo "$CARGO"
  needs_tool "Python 3" "$PYTHON"
  needs_libraries
  "$DEVX_ROOT/scripts/gpu-bundle.sh"
  "$DEVX_ROOT/scripts/test-numba.sh" --environments
  cd /
  env -i PATH=/usr/bin:/bin PYTHON="$DEVX_TARGET/numba/numba-cuda/venv/bin/python" \
    "$DEVX_TARGET/gpu-bundle/run.sh" --simulated --results "$logs/gpu-rehearsal"
}

# A few seconds each: checks that it runs, and what it finds in so short a time.
suite_soak() {
  needs_libraries
  needs_tool "Python 3" "$PYTHON"
  needs_java
  needs_tool Julia "$JULIA"
  "$DEVX_ROOT/scripts/test-soak.sh"
}

suite_pairs() {
  needs_libraries
  needs_tool "Python 3" "$PYTHON"
  needs_java
  needs_tool Julia "$JULIA"
  "$DEVX_ROOT/scripts/test-pairs.sh"
}

suite_bench() {
  needs_libraries
  needs_tool "Python 3" "$PYTHON"
  "$DEVX_ROOT/scripts/test-bench.sh"
}

# Checks only that the patches apply: `make seeded-bugs` shows that the tests notice the bugs.
suite_seeded-bugs() {
  "$DEVX_ROOT/scripts/seeded-bugs.sh" --check
}

suite_readme() {
  needs_file "$DEVX_ROOT/README.md"
  needs_libraries
  needs_tool "Python 3" "$PYTHON"
  "$DEVX_ROOT/scripts/test-readme.sh"
}

suite_fuzz() {
  needs_file "$DEVX_ROOT/fuzz/corpus"
  needs_tool cargo "$CARGO"
  "$DEVX_ROOT/scripts/fuzz.sh" --short
}

# --- counting: `passed failed skipped` from a log, nothing if it has no counts ---

count_rust() {
  awk '/^test result: / { seen = 1; passed += $4; failed += $6; skipped += $8 }
    END { if (seen) print passed, failed, skipped }' "$1"
}

# Sums one attribute of <testsuite> over all reports; the order of the attributes is not fixed. Without a JDK for them,
# the tests with foreign functions count as one skipped test.
count_java() {
  local reports=("$java_project"/target/surefire-reports/TEST-*.xml) left=0
  [ -e "${reports[0]}" ] || return 0
  if [ -z "$DEVX_JDK22" ]; then left=1; fi
  cat "${reports[@]}" | tr '\n' ' ' | grep -oE '<testsuite [^>]*>' | awk -v left="$left" '
    function attribute(name) {
      if (!match($0, " " name "=\"[0-9]+\"")) return 0
      return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 4)
    }
    {
      tests += attribute("tests")
      bad += attribute("failures") + attribute("errors")
      skipped += attribute("skipped")
    }
    END { print tests - bad - skipped, bad, skipped + left }'
}

count_line() {
  sed -nE 's/^counts: ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$1" | tail -n 1
}

count_demo() {
  if [ "$(tail -n 1 "$1")" = "demo: c ok, java ok, julia ok; outstanding 0" ]; then echo 1 0 0; else echo 0 1 0; fi
}

# Counts as one test: its tests are counted elsewhere, and what it skips is run there.
count_gpu-rehearsal() {
  if tail -n 1 "$1" | grep -qE '^[1-9][0-9]* passed, 0 failed, [0-9]+ skipped$'; then echo 1 0 0; else echo 0 1 0; fi
}

count() { # SUITE LOG
  case $1 in
    rust | java | gpu-rehearsal) "count_$1" "$2" ;;
    demo*) count_demo "$2" ;;
    *) count_line "$2" ;;
  esac
}

add_row() { # NAME PASSED FAILED SKIPPED SECONDS [BUSY]
  rows+=("$(printf '%-15s %8d %8d %8d %8d %8s' "$@")")
  total_passed=$((total_passed + $2))
  total_failed=$((total_failed + $3))
  total_skipped=$((total_skipped + $4))
  if [ "$3" -gt 0 ]; then bad+=("$1"); fi
}

run_lane() { # SUITE...
  local suite
  for suite in "$@"; do
    heading "$suite"
    run_suite "$suite" >&3
    tell "$suite"
  done
}

run_suite() { # SUITE
  local suite=$1 start=$SECONDS status before
  rm -f "$logs/$suite.ended"
  times >"$logs/$suite.times" # here, because a subshell has waited for nothing
  # Not `|| status=$?` on the subshell: that would switch off `set -e` inside it.
  set +e
  before=$(busy "$suite")
  (set -e; "suite_$suite") </dev/null 2>&1 | tee "$logs/$suite.log"
  status=${PIPESTATUS[0]}
  set -e
  times >"$logs/$suite.times"
  echo "$status $((SECONDS - start)) $(($(busy "$suite") - before))" >"$logs/$suite.ended"
}

# The seconds of all cores used by the processes that this shell has waited for, according to `times`: they show what
# can run beside a suite.
busy() { # SUITE
  awk 'NR == 2 { gsub(/s/, ""); split($1, user, "m"); split($2, kernel, "m")
    printf "%d", user[1] * 60 + user[2] + kernel[1] * 60 + kernel[2] }' "$logs/$1.times"
}

tell() { # SUITE, which has ended
  local suite=$1 status seconds busy passed failed skipped
  read -r status seconds busy <"$logs/$suite.ended"
  read -r passed failed skipped <<<"$(count "$suite" "$logs/$suite.log")"
  if [ -z "$passed" ]; then
    echo "$suite: no counts (exit status $status), so it counts as 1 failed"
    passed=0 failed=1 skipped=0
  elif [ $((passed + failed + skipped)) -eq 0 ]; then
    echo "$suite: ran no test (exit status $status), so it counts as 1 failed"
    failed=1
  elif [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
    echo "$suite: exit status $status although no test failed, so it counts as 1 failed"
    failed=1
  else
    echo "$suite: $passed passed, $failed failed, $skipped skipped, $seconds s"
  fi
  echo "$passed $failed $skipped $seconds $busy" >"$logs/$suite.row"
  if [ "$failed" -gt 0 ]; then what_failed "$suite"; fi
}

# The words that every harness uses for a failure in the middle of its output.
failure_words='^not ok|^test .*FAILED|panicked at|^FAILED |^ERROR |\[ERROR\]|Test Failed|Error During Test|: FAILED'
failure_words+='|^error(\[|:)'

# Shows the failures in the middle of a long log, and at least the log's end.
what_failed() { # NAME
  local log=$logs/$1.log
  echo "--- $1: what failed (all of it: ${log#"$DEVX_ROOT/"})"
  grep -aE -A 12 "$failure_words" "$log" | head -n 120 || true
  echo "--- $1: its last lines"
  tail -n 20 "$log"
}

# setup and build have rows only when they fail.
run_step() { # NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  heading "$name"
  if "$@" </dev/null 2>&1 | tee "$logs/$name.log" >&3; then return; fi
  what_failed "$name"
  add_row "$name" 0 1 0 $((SECONDS - start))
  return 1
}

run_all() { # SUITE...
  local suite first=() second=() row
  for suite in "$@"; do
    rm -f "$logs/$suite.row"
    if [[ " ${lanes[0]} " == *" $suite "* ]]; then first+=("$suite"); else second+=("$suite"); fi
  done
  if [ ${#first[@]} -gt 0 ] && [ ${#second[@]} -gt 0 ]; then
    # Nobody could read the output of two lanes at the same time.
    if [ -z "${VERBOSE:-}" ]; then exec 3>/dev/null; fi
    # An interrupt does not reach background processes.
    trap 'kill 0' INT
    run_lane "${second[@]}" &
    run_lane "${first[@]}"
    wait
  else
    run_lane "$@"
  fi
  for suite in "$@"; do
    read -ra row <"$logs/$suite.row" || row=(0 1 0 0)
    add_row "$suite" "${row[@]}"
  done
}

parts_for() { # SUITE...: the parts that setup.sh must install
  local suite
  printf '%s\n' rust python
  for suite in "$@"; do
    case $suite in
      c | bench | fuzz) echo c ;;
      java | python) echo java ;;
      julia*) echo julia ;;
      soak | pairs) printf '%s\n' c java julia ;;
      third-party) echo python-headers ;;
      conformance) printf '%s\n' c java python-headers ;;
      demo* | readme) printf '%s\n' c java julia ;;
    esac
  done
}

print_table() {
  printf '\n%s%-15s %8s %8s %8s %8s %8s%s\n' "$bold" suite passed failed skipped seconds busy "$plain"
  printf '%s\n' "${rows[@]}"
  echo
}

# The first failures once more, below the table: the end of the output is what everybody looks at first.
name_failures() {
  local name
  for name in "${bad[@]}"; do
    echo "--- $name:"
    grep -aE -A 2 "$failure_words" "$logs/$name.log" | cut -c 1-200 | head -n 12 || true
    echo
  done
}

choose_suites() {
  local name
  suites=()
  for name in "$@"; do
    case $name in
      julia) suites+=(julia julia-threads) ;;
      demo) suites+=(demo demo-cuda) ;;
      *)
        if printf '%s\n' "${all_suites[@]}" | grep -qx -- "$name"; then
          suites+=("$name")
          continue
        fi
        echo "test: unknown suite '$name'; there are: ${all_suites[*]}" >&2
        exit 2
        ;;
    esac
  done
  if [ ${#suites[@]} -eq 0 ]; then suites=("${all_suites[@]}"); fi
}

# What is tested must not depend on the machine, so the CUDA driver of a machine that has one is hidden (`make gpu-test` is
# for that one): the loader finds these files first, and where a file is no library, it looks no further.
hide_driver() {
  local hidden=$DEVX_TARGET/no-driver name
  mkdir -p "$hidden"
  for name in libcuda.so libcuda.so.1; do : >"$hidden/$name"; done
  export LD_LIBRARY_PATH=$hidden${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

main() {
  choose_suites "$@"
  cd "$DEVX_ROOT"
  mkdir -p "$logs"
  hide_driver
  local parts suite
  mapfile -t parts < <(parts_for "${suites[@]}" | sort -u)
  run_step setup "$DEVX_ROOT/scripts/setup.sh" "${parts[@]}" || true
  # What was just installed was not there when this script looked.
  devx_env
  devx_export
  # These two build what they need.
  if printf '%s\n' "${suites[@]}" | grep -qvxE 'rust|fuzz'; then run_step build "$DEVX_ROOT/scripts/build.sh" || built=no; fi
  run_all "${suites[@]}"
  print_table
  name_failures
  echo "$total_passed passed, $total_failed failed, $total_skipped skipped"
  [ "$total_failed" -eq 0 ] && [ "$total_passed" -gt 0 ]
}

main "$@"
