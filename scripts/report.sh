#!/usr/bin/env bash
# Functions with which a test script reports its results (sourced): one line for each test, and the counts as the last
# line.
#
#   ok NAME | not_ok NAME WHY | skipped NAME WHY | check NAME COMMAND... | report_counts
#   none NAME WRONG | same NAME WANTED FOUND | says NAME PATTERN TEXT
#
# Programs that count their tests themselves run side by side: all that are started before the next `finish`:
#
#   start NAME LOG COMMAND... | finish

tests_passed=0
tests_failed=0
tests_skipped=0

ok() { tests_passed=$((tests_passed + 1)); echo "ok - $1"; }

not_ok() { tests_failed=$((tests_failed + 1)); echo "not ok - $1: ${2:-failed}"; }

skipped() { tests_skipped=$((tests_skipped + 1)); echo "ok - $1 # skip ${2:-}"; }

# Runs a command whose output matters only if it fails.
check() { # NAME COMMAND...
  local name=$1 words
  shift
  if words=$("$@" 2>&1); then
    ok "$name"
  else
    not_ok "$name" "exit status $?"
    indented <<<"$words"
    return 1
  fi
}

# Three checks of a text: that there is none, that it is the wanted one, and that the pattern is somewhere in it.
none() { if [ -z "$2" ]; then ok "$1"; else not_ok "$1" "$2"; fi; }
same() { if [ "$3" = "$2" ]; then ok "$1"; else not_ok "$1" "it is '$3', not '$2'"; fi; }
says() { if [[ $3 == *$2* ]]; then ok "$1"; else not_ok "$1" "it says: $3"; fi; }

# Adds a program's counts, from the last such line of its log. A program that prints no counts, or ends badly although
# no test failed, is a failure.
add_counts() { # NAME STATUS LOG
  local passed failed skipped
  read -r passed failed skipped \
    < <(sed -nE 's/^counts: ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$3" | tail -n 1) || true
  if [ -z "$passed" ]; then not_ok "$1" "it did not say what it counted (exit status $2)"; return; fi
  tests_passed=$((tests_passed + passed))
  tests_failed=$((tests_failed + failed))
  tests_skipped=$((tests_skipped + skipped))
  if [ "$2" -ne 0 ] && [ "$failed" -eq 0 ]; then not_ok "$1" "exit status $2"; fi
}

started_names=() started_logs=() started_jobs=()

start() { # NAME LOG COMMAND...
  started_names+=("$1")
  started_logs+=("$2")
  "${@:3}" >"$2" 2>&1 &
  started_jobs+=($!)
}

# Waits for the started programs, shows the log of each and adds its counts.
finish() {
  local index status
  for index in "${!started_names[@]}"; do
    status=0
    wait "${started_jobs[index]}" || status=$?
    echo "--- ${started_names[index]}"
    cat "${started_logs[index]}"
    add_counts "${started_names[index]}" "$status" "${started_logs[index]}"
  done
  started_names=() started_logs=() started_jobs=()
}

indented() { sed 's/^/    /'; }

# Prints the last line; its status is the script's.
report_counts() {
  echo "counts: $tests_passed passed, $tests_failed failed, $tests_skipped skipped"
  [ "$tests_failed" -eq 0 ] && [ $((tests_passed + tests_skipped)) -gt 0 ]
}
