#!/usr/bin/env bash
# Two real tables and a matrix through C, Java and Julia without a copy (`make demo`).
#
#   examples/demo/run.sh
#
# libweather, a third-party library that uses only the installed headers of devexchange, reads two CSV files and exports
# record batches and a tensor. A program in each language imports them, computes the same figures, and exports a tensor to
# libweather. The output of all programs becomes one table. The last line gives the result. If every program worked, all
# figures agree and everything was released, the exit status is 0 and the last line is
#
#   demo: c ok, java ok, julia ok; outstanding 0
#
# Instead of ok, a program can have FAILED (the reason is above the table), or its figures DIFFER from those of C (the
# table marks the row).
#
#   DEVICE=host          where the data is: in `host` memory, or in `cuda` memory. Without a GPU, `cuda` uses the simulated
#                        driver in tests/simcuda; the output says which driver it was
#   DEMO_TIME_LIMIT=300  the seconds that each of the three programs may take
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/env.sh"

languages=(c java julia)
declare -A titles=([c]=C [java]=Java [julia]=Julia)

demo=$DEVX_ROOT/examples/demo
data=$DEVX_ROOT/examples/data
build=$DEVX_TARGET/demo
prefix=$build/prefix
weather=$build/libweather.so
java_project=$DEVX_ROOT/bindings-jni/java
julia_project=$DEVX_ROOT/bindings-julia/DevExchange.jl
time_limit=${DEMO_TIME_LIMIT:-300}
device=${DEVICE:-host}
driver=''      # the CUDA driver: real or simulated
device_name='' # the name that the driver reports

declare -A reasons=() # LANGUAGE -> why it failed
declare -A logs=()    # LANGUAGE -> the log that explains it
declare -A values=()  # LANGUAGE,KEY -> what the program printed

indented() { sed 's/^/    /'; }

# --- building ---

# Prints the name of the step and writes the command's output to the log. Leaves the command's status in `stepped`, and does
# not return it: bash ignores `set -e` within a command whose status is tested.
step() { # LOG NAME COMMAND...
  local log=$1 name=$2 start=$SECONDS
  shift 2
  printf '  %-34s' "$name"
  set +e
  (set -e; "$@") </dev/null >"$log" 2>&1
  stepped=$?
  set -e
  if [ "$stepped" -eq 0 ]; then echo "done ($((SECONDS - start)) s)"; else echo "FAILED"; fi
}

# Ends the demo if the step fails, because nothing works without it.
needed_step() { # NAME WHAT COMMAND
  step "$build/$1.log" "$2" "$3"
  if [ "$stepped" -eq 0 ]; then return; fi
  indented <"$build/$1.log"
  echo "demo: FAILED: $1 could not be built, see above"
  exit 1
}

build_library() {
  "$DEVX_ROOT/scripts/build.sh"
  rm -rf "$prefix"
  PREFIX=$prefix DESTDIR='' LIBDIR='lib' "$DEVX_ROOT/scripts/install.sh" install
}

compile() { # ARGUMENTS: compiles as a user of the installed library would
  local words flags
  words=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs devexchange)
  eval "flags=($words)" # pkg-config quotes them for a shell
  "$CC" -std=c11 -O2 -g -Wall -Wextra -Wpedantic -Werror "$@" "${flags[@]}" -lm "-Wl,-rpath,$prefix/lib"
}

build_weather() { compile -fPIC -shared -o "$weather" "$demo/producer"/{table,weather}.c; }

build_c() {
  compile -o "$build/c/demo" "$demo/c/demo.c" -I"$demo/producer" -L"$build" -lweather "-Wl,-rpath,$build"
}

build_java() {
  if [ -z "$JAVA_HOME" ]; then echo "no JDK >= 17 found; 'make setup' says more"; return 1; fi
  if [ ! -e "$java_project/pom.xml" ]; then echo "$java_project is not there"; return 1; fi
  if ! devx_jar_is_fresh; then
    if [ -z "$MVN" ]; then echo "no Maven found; 'make setup' says more"; return 1; fi
    devx_mvn -DskipTests package
  fi
  DEVX_JAR=$(devx_find_jar)
  if [ -z "$DEVX_JAR" ]; then echo "Maven left no jar in $java_project/target"; return 1; fi
  CC=$CC DEVX_JAR=$DEVX_JAR "$demo/java/build.sh" "$build/java"
}

build_julia() { # there is nothing to compile; this reports a missing Julia or program before anything runs
  if [ -z "$JULIA" ]; then echo "no Julia >= 1.5 found; 'make setup' says more"; return 1; fi
  if [ ! -e "$demo/julia/demo.jl" ]; then echo "$demo/julia/demo.jl is not there"; return 1; fi
}

build_probe() {
  "$CC" -std=c11 -O2 -Wall -Wextra -Werror -D_GNU_SOURCE -o "$build/driver" "$demo/c/driver.c" -ldl
}

place_simulated() { "$DEVX_ROOT/tests/simcuda/driver/place.sh" "$build/simcuda"; }

probe_driver() { { read -r driver && read -r device_name; } < <("$build/driver" </dev/null 2>/dev/null); }

# Finds a real driver with a device, or else places the simulated one, which the programs find through LD_LIBRARY_PATH.
find_driver() {
  needed_step driver "the question for a CUDA driver" build_probe
  probe_driver || { driver=none device_name="the question for a driver died"; }
  if [ "$driver" = none ]; then
    local why=$device_name
    needed_step simcuda "the simulated CUDA driver" place_simulated
    export LD_LIBRARY_PATH=$build/simcuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    if ! probe_driver || [ "$driver" != simulated ]; then
      echo "demo: FAILED: no GPU ($why), and the simulated driver in $build/simcuda does not work"
      exit 1
    fi
  fi
  # The simulated driver makes a program fail at its end if it found a race, a use after free or a similar fault.
  if [ "$driver" = simulated ]; then export SIMCUDA_FATAL=exit; fi
}

build_all() {
  echo "building"
  needed_step libdevexchange "libdevexchange, installed" build_library
  if [ "$device" = cuda ]; then find_driver; fi
  needed_step libweather "libweather, the third party" build_weather
  local language
  for language in "${languages[@]}"; do
    mkdir -p "$build/$language"
    step "$build/$language/build.log" "the program in ${titles[$language]}" "build_$language"
    if [ "$stepped" -ne 0 ]; then
      reasons[$language]="it could not be built"
      logs[$language]=$build/$language/build.log
    fi
  done
}

# --- running ---

run_c() { "$build/c/demo" "$data"; }

run_java() { DEVX_JAR=$(devx_find_jar) "$demo/java/run.sh" "$build/java" "$data"; }

run_julia() { "$JULIA" --startup-file=no --project="$julia_project" "$demo/julia/demo.jl" "$data"; }

# Runs a program with its time limit. `timeout` cannot run a function, so it runs a new shell.
run_limited() { # LANGUAGE
  DEMO_RUN=$1 timeout --kill-after=5 "$time_limit" bash "$demo/run.sh"
}

run_language() { # LANGUAGE
  local language=$1 out=$build/$1/out.txt err=$build/$1/err.txt status=0
  run_limited "$language" </dev/null >"$out" 2>"$err" || status=$?
  read_values "$language" "$out"
  if [ "$status" -eq 0 ]; then return; fi
  logs[$language]=$err
  case $status in
    124 | 137) reasons[$language]="it took longer than $time_limit s" ;;
    *) if [ "$status" -gt 128 ]; then reasons[$language]="it was killed by SIG$(kill -l $((status - 128)))"
       else reasons[$language]="exit status $status"; fi ;;
  esac
}

read_values() { # LANGUAGE FILE
  local key value
  while IFS='=' read -r key value || [ -n "$key" ]; do
    case $key in *[!a-z_]* | '') continue ;; esac
    values[$1,$key]=$value
  done <"$2"
}

run_all() {
  local language
  echo "running"
  for language in "${languages[@]}"; do
    if [ -z "${reasons[$language]:-}" ]; then run_language "$language"; fi
    if [ -z "${reasons[$language]:-}" ]; then
      printf '  %-34sdone\n' "${titles[$language]}"
    else
      printf '  %-34sFAILED\n' "${titles[$language]}"
    fi
  done
}

# --- the table ---

figures=(airports top_states mean_temp_max mean_temp_min wettest_day categories zero_copy means_checked)
ledger=(outstanding producer_outstanding producer_live_buffers)

if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
if [ "$(locale charmap 2>/dev/null)" = UTF-8 ]; then mark='✓' degree='°'; else mark='=' degree=''; fi

declare -A differs=() # LANGUAGE -> 1

cells() { # LABEL CELL... REMARK
  local label=$1 remark=${*: -1} cell
  printf '  %s%*s' "$label" $((34 - ${#label})) '' # %-34s would count bytes
  for cell in "${@:2:$#-2}"; do printf ' %12s' "$cell"; done
  printf '   %s\n' "$remark"
}

# One row, with a cell for each of the three languages. Java and Julia are compared with C.
row() { # LABEL CELL...
  local label=$1 remark=$mark i cell
  shift
  for ((i = 0; i < ${#languages[@]}; ++i)); do
    cell=${*:i+1:1}
    if [ "$cell" != - ] && [ "$1" != - ] && [ "$cell" != "$1" ]; then
      differs[${languages[i]}]=1
      remark="<- they differ"
    elif [ "$cell" = - ] && [ "$remark" = "$mark" ]; then
      remark="<- missing"
    fi
  done
  cells "$label" "$@" "$remark"
}

of_all() { # KEY: puts the values of all languages into `got`, in the order of `languages`
  local language
  got=()
  for language in "${languages[@]}"; do got+=("${values[$language,$1]:--}"); done
}

row_of() { # LABEL KEY
  of_all "$2"
  row "$1" "${got[@]}"
}

# Prints one row for each entry of a list NAME:COUNT,... A cell shows its entry's name, too, if that name differs from the
# row's.
rows_of_list() { # LABEL KEY
  local n=0 i k entry name label items shown
  of_all "$2"
  for entry in "${got[@]}"; do
    IFS=, read -ra items <<<"$entry"
    if [ "${#items[@]}" -gt "$n" ]; then n=${#items[@]}; fi
  done
  for ((i = 0; i < n; ++i)); do
    name='' shown=()
    for ((k = 0; k < ${#got[@]}; ++k)); do
      IFS=, read -ra items <<<"${got[k]}"
      entry=${items[i]:--}
      case $entry in *:*) name=${name:-${entry%:*}} ;; esac
      if [ -n "$name" ] && [ "${entry%:*}" = "$name" ]; then entry=${entry##*:}; fi
      shown+=("$entry")
    done
    label=${1/NAME/${name:-?}}
    row "$label" "${shown[@]}"
  done
}

# Prints the day and its precipitation, one row each.
rows_of_wettest_day() {
  local entry days=() amounts=()
  of_all wettest_day
  for entry in "${got[@]}"; do
    days+=("${entry%% *}")
    amounts+=("${entry##* }")
  done
  row "wettest day in Seattle" "${days[@]}"
  row "  precipitation, mm" "${amounts[@]}"
}

# A run on the simulated driver must not look like a result of a GPU.
print_device() {
  case $driver in
    real) echo "The device is a real GPU: $device_name." ;;
    simulated) echo "The device is SIMULATED, no GPU was used: $device_name, the driver in tests/simcuda." ;;
  esac
}

print_table() {
  local head="host memory, nothing copied"
  if [ "$device" = cuda ]; then head=$device_name; fi
  echo
  print_device
  printf '%s' "$bold"
  cells "${head:0:34}" C Java Julia ""
  printf '%s' "$plain"
  row_of "airports" airports
  rows_of_list "  in NAME" top_states
  row_of "mean of the daily highs, ${degree}C" mean_temp_max
  row_of "mean of the daily lows, ${degree}C" mean_temp_min
  rows_of_wettest_day
  rows_of_list "days with NAME" categories
  row_of "buffers at the producer's address" zero_copy
  row_of "tensor handed back, checked" means_checked
  echo
  printf '%s' "$bold"
  cells "the ledger: what is not released" C Java Julia ""
  printf '%s' "$plain"
  row_of "by the program" outstanding
  row_of "by libweather" producer_outstanding
  row_of "sets of libweather's buffers" producer_live_buffers
  echo
}

# --- the verdict ---

# A program that ran on another device counts as failed, even if its figures are right.
find_stray() { # LANGUAGE
  local said=${values[$1,device]:-}
  if [ "$device" = cuda ] && [ -z "${reasons[$1]:-}" ] && [ "$said" != "$device_name" ]; then
    reasons[$1]="it was not on the device, but on: ${said:-it did not say}"
    logs[$1]=$build/$1/err.txt
  fi
}

# A program that succeeded but did not print every key counts as failed, too.
find_silence() { # LANGUAGE
  local key missing=''
  for key in "${figures[@]}" "${ledger[@]}"; do
    if [ -z "${values[$1,$key]:-}" ]; then missing+=" $key"; fi
  done
  if [ -n "$missing" ] && [ -z "${reasons[$1]:-}" ]; then
    reasons[$1]="it did not say:$missing"
    logs[$1]=$build/$1/err.txt
  fi
}

print_reasons() {
  local language log
  for language in "${languages[@]}"; do
    [ -n "${reasons[$language]:-}" ] || continue
    echo
    echo "${bold}${titles[$language]} FAILED: ${reasons[$language]}${plain}"
    log=${logs[$language]:-}
    if [ -s "$log" ]; then tail -n 25 "$log" | indented; echo "    ($log)"; fi
  done
}

# The sum of everything outstanding in all programs; "?" if one of them did not print a number.
sum_of_ledger() {
  local language key sum=0 value
  for language in "${languages[@]}"; do
    for key in "${ledger[@]}"; do
      value=${values[$language,$key]:-}
      case $value in '' | *[!0-9-]*) echo '?'; return ;; esac
      sum=$((sum + value))
    done
  done
  echo "$sum"
}

verdict() {
  local language words=() status=0 sum
  sum=$(sum_of_ledger)
  for language in "${languages[@]}"; do
    if [ -n "${reasons[$language]:-}" ]; then words+=("$language FAILED"); status=1
    elif [ -n "${differs[$language]:-}" ]; then words+=("$language DIFFERS"); status=1
    else words+=("$language ok"); fi
  done
  if [ "$sum" != 0 ]; then status=1; fi
  printf 'demo: %s, %s, %s; outstanding %s\n' "${words[@]}" "$sum"
  return "$status"
}

main() {
  case $device in
    host | cuda) ;;
    *) echo "demo: DEVICE=$device is unknown; there are host and cuda"; exit 2 ;;
  esac
  mkdir -p "$build"
  build_all
  run_all
  local language
  for language in "${languages[@]}"; do
    find_silence "$language"
    find_stray "$language"
  done
  print_reasons
  print_table
  verdict
}

# The environment of the three programs; see README.md beside this file.
export DEVX_PREFIX=$prefix DEVX_WEATHER=$weather DEVEXCHANGE_LIBRARY_DIR=$DEVX_LIBDIR DEVX_DEVICE=$device

if [ -n "${DEMO_RUN:-}" ]; then "run_$DEMO_RUN"; else main; fi
