#!/usr/bin/env bash
# Tests the examples in Markdown files: each is extracted, built as a user would build it, and run.
#
#   scripts/test-readme.sh [FILE...]     default: all documents with programs in them
#
# In a file, a line `<!-- test: NAME -->` before a fenced block (c, cpp, java, julia, python, rust) makes it a test, and
# `<!-- output: NAME -->` before a ```text block gives its expected output. Several languages can share one NAME and so
# one output; without an output the program must only end well. Programs run in examples/data. Those whose NAME begins
# with cuda, and those that use Numba, run with the simulated CUDA driver, as on a machine with a GPU.
#
# An example can leave out the boilerplate, which is added here: a C or C++ block without a main, a Java block without a
# class and a Rust block without a main become the body of one (#include and import lines go to the top).
#
# LANGUAGES='c cpp' runs only the programs in these languages.
#
# With DEVX_INSTALLED, a directory, the examples use what was installed there (prefix, devexchange.jar, DevExchange.jl,
# venv, core) and not what the checkout builds.
#
# Prints a line for each test and ends with the line `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"

if [ $# -eq 0 ]; then set -- "$DEVX_ROOT"/{README,docs/guide,core/README,bindings-python/about}.md; fi
documents=("$@")
out=$DEVX_TARGET/readme
driver=$out-simcuda
data=$DEVX_ROOT/examples/data
installed=${DEVX_INSTALLED:-}
prefix=${installed:+$installed/prefix}
prefix=${prefix:-$out/prefix}
julia_project=${installed:-$DEVX_ROOT/bindings-julia}/DevExchange.jl
venv=${installed:-$DEVX_TARGET/python}/venv
core=${installed:-$DEVX_ROOT}/core

# Writes $out/NAME.EXT and $out/NAME.expected; prints a line for everything that is marked but not understood.
extract() { # DOCUMENT
  awk -v out="$out" '
    function close_block() { if (file != "") close(file); file = ""; inside = 0 }
    function marker(line) { sub(/^<!-- *(test|output): */, "", line); sub(/ *-->.*$/, "", line); return line }
    BEGIN {
      split("c cpp java julia python rust", languages, " "); split("c cpp java jl py rs", endings, " ")
      for (i in languages) ending[languages[i]] = endings[i]
    }
    inside && /^```/ { close_block(); next }
    inside { if (file != "") print > file; next }
    /^<!-- *(test|output): / {
      if (kind != "") print "line " at ": no block follows <!-- " kind ": " name " -->"
      kind = ($0 ~ /^<!-- *test/) ? "test" : "output"; name = marker($0); at = NR
      if (name !~ /^[A-Za-z][A-Za-z0-9_]*$/) { print "line " NR ": \"" name "\" is no name (letters, digits, _)"; kind = "" }
      next
    }
    /^```/ {
      inside = 1; file = ""
      if (kind == "") next
      language = $0; sub(/^``` */, "", language); sub(/[ ,{].*/, "", language)
      if (kind == "output" && language == "text") file = out "/" name ".expected"
      else if (kind == "test" && language in ending) file = out "/" name "." ending[language]
      else print "line " NR ": a ```" language " block cannot be the " kind " of " name
      if (file in seen || file != "" && (getline line < file) >= 0) { print "line " NR ": " name " has this already"; file = "" }
      if (file != "") { seen[file] = 1; printf "" > file }
      kind = ""; next
    }
    kind != "" && !/^[[:space:]]*$/ { print "line " at ": no block follows <!-- " kind ": " name " -->"; kind = "" }
    END {
      if (kind != "") print "line " at ": no block follows <!-- " kind ": " name " -->"
      if (inside && file != "") print "the last block has no end"
    }' "$1"
}

# Puts the lines that match TOP first, then OPEN, the rest, CLOSE.
wrap() { # FILE TOP OPEN CLOSE
  local file=$1
  {
    grep -E "$2" "$file" || true
    printf '%s\n' "$3"
    grep -vE "$2" "$file" || true
    printf '%s\n' "$4"
  } >"$file.wrapped"
  mv "$file.wrapped" "$file"
}

# --- one function per language: prepares what it needs, then prints only what the example prints ---

# Once, and only if there is C or C++, and not where test-c.sh installs, which may run at the same time.
prepare_c() {
  [ -n "$installed" ] || make --no-print-directory -C "$DEVX_ROOT" install PREFIX="$prefix" DESTDIR=
}

compile_c() { # COMPILER STANDARD FILE
  local words flags
  words=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs devexchange) || return
  eval "flags=($words)" # pkg-config quotes them for a shell
  "$1" "$2" -Wall -Wextra -Wpedantic -Werror -g -o "$3.out" "$3" "${flags[@]}" -Wl,-rpath,"$prefix/lib" >&2
}

run_c() {
  if ! grep -qE '\bmain *\(' "$1"; then wrap "$1" '^#' 'int main(void) {' 'return 0; }'; fi
  compile_c "$CC" -std=c11 "$1" && "$1.out"
}

run_cpp() {
  if ! grep -qE '\bmain *\(' "$1"; then wrap "$1" '^#' 'int main() {' '}'; fi
  compile_c "$CXX" -std=c++17 "$1" && "$1.out"
}

prepare_java() { [ -n "$installed" ] || devx_make_jar; }

jar() { if [ -n "$installed" ]; then echo "$installed/devexchange.jar"; else devx_find_jar; fi; }

run_java() {
  if ! grep -qE '\b(class|interface|record|enum) +[A-Z]' "$1"; then
    wrap "$1" '^import ' 'class Example { public static void main(String[] args) throws Exception {' '} }'
  fi
  if uses_segments "$1"; then
    "$DEVX_JDK22/bin/java" -ea --enable-native-access=ALL-UNNAMED -cp "$(jar)" "$1"
  else
    "$JAVA" -ea -cp "$(jar)" "$1"
  fi
}

uses_segments() { grep -qE '^import java\.lang\.foreign\.' "$1"; }

prepare_julia() { [ -n "$installed" ] || "$DEVX_ROOT/scripts/build.sh"; }

run_julia() {
  "$JULIA" --startup-file=no --project="$julia_project" "$1"
}

# The wheel, installed as a user would install it; for Numba in an environment of its own.
prepare_python() {
  if [ -n "$installed" ]; then return; fi
  "$DEVX_ROOT/scripts/build-python.sh" || return
  if uses_numba "$out"/*.py; then "$DEVX_ROOT/scripts/test-numba.sh" --environments; fi
}

uses_numba() { grep -qE '^(import|from) numba\b' "$@"; }

run_python() {
  if ! uses_numba "$1"; then "$venv/bin/python" "$1"; return; fi
  local environment=$DEVX_TARGET/numba/numba-cuda
  SIMCUDA_FREE=waits SIMCUDA_STAGING=waits LD_LIBRARY_PATH=$environment/simcuda "$environment/venv/bin/python" "$1"
}

# A crate outside the workspace with a path dependency, and the versions of our lock file.
prepare_rust() {
  local crate=$out/crate
  mkdir -p "$crate/src/bin"
  cat >"$crate/Cargo.toml" <<TOML
[package]
name = "readme"
version = "0.0.0"
edition = "2024"
publish = false

[workspace]

[dependencies]
cudarc = { version = "*", default-features = false, features = ["driver", "cuda-13000"] }
devexchange-core = { path = "$core", features = ["cudarc"] }
TOML
  if [ -e "$DEVX_ROOT/Cargo.lock" ]; then cp "$DEVX_ROOT/Cargo.lock" "$crate/Cargo.lock"; fi
}

run_rust() {
  local name=${1##*/}
  if ! grep -qE '\bfn +main *\(' "$1"; then
    wrap "$1" '^#!\[' 'fn main() -> Result<(), Box<dyn std::error::Error>> {' 'Ok(()) }'
  fi
  cp "$1" "$out/crate/src/bin/$name"
  "$CARGO" run --quiet --manifest-path "$out/crate/Cargo.toml" --bin "${name%.rs}"
}

# --- the tests ---

language_of() { # FILE
  case $1 in
    *.jl) echo julia ;;
    *.py) echo python ;;
    *.rs) echo rust ;;
    *) echo "${1##*.}" ;;
  esac
}

run_example() { # FILE
  local language name=${1##*/} status=0
  language=$(language_of "$1")
  if [ -n "$installed" ] && uses_numba "$1"; then skipped "$name" "Numba is not installed there"; return; fi
  if [ -z "$DEVX_JDK22" ] && uses_segments "$1"; then skipped "$name" "there is no JDK of 22 or newer"; return; fi
  case $name in cuda*) local -x LD_LIBRARY_PATH=$driver ;; esac
  (cd "$data" && "run_$language" "$1") >"$1.stdout" 2>"$1.stderr" </dev/null || status=$?
  if [ "$status" -ne 0 ]; then
    not_ok "$name" "exit status $status"
    indented <"$1.stderr"
    return
  fi
  compare "$name" "${1%.*}.expected" "$1.stdout"
}

compare() { # NAME EXPECTED ACTUAL
  if [ ! -e "$2" ]; then ok "$1"; return; fi
  # Blanks at the end of a line are invisible in a README, so they do not count.
  if diff -u --label "the document" "$2" --label "$1" "$3" --ignore-trailing-space >"$3.diff"; then ok "$1"; return; fi
  not_ok "$1" "prints something other than the document says"
  indented <"$3.diff"
}

run_language() { # LANGUAGE FILE...
  local language=$1 prepare=prepare_$1 file
  shift
  [ -e "$1" ] || return 0
  case " ${LANGUAGES:-$language} " in *" $language "*) ;; *) return 0 ;; esac
  if [ "$language" = cpp ]; then prepare=prepare_c; fi
  if ! "$prepare" >"$out/$language.prepare.log" 2>&1; then
    for file in "$@"; do not_ok "${file##*/}" "what it needs could not be built"; done
    indented <"$out/$language.prepare.log"
    return
  fi
  for file in "$@"; do run_example "$file"; done
}

check_outputs_belong_to_tests() {
  local file
  for file in "$out"/*.expected; do
    [ -e "$file" ] || continue
    if ! compgen -G "${file%.expected}.[cjpr]*" >/dev/null; then
      file=${file##*/}
      not_ok "${file%.expected}" "has an output in a document but no test"
    fi
  done
}

main() {
  rm -rf "$out"
  mkdir -p "$out"
  local document problem
  for document in "${documents[@]}"; do
    if [ ! -e "$document" ]; then not_ok "${document##*/}" "$document is missing"; continue; fi
    extract "$document" >"$out/problems"
    while read -r problem; do not_ok "${document##*/}" "$problem"; done <"$out/problems"
  done
  check_outputs_belong_to_tests
  if compgen -G "$out/cuda*" >/dev/null && ! "$DEVX_ROOT/tests/simcuda/driver/place.sh" "$driver" >"$out/driver.log" 2>&1; then
    not_ok driver "the simulated CUDA driver could not be built"
    indented <"$out/driver.log"
  fi
  run_language c "$out"/*.c
  run_language cpp "$out"/*.cpp
  run_language java "$out"/*.java
  run_language julia "$out"/*.jl
  run_language python "$out"/*.py
  run_language rust "$out"/*.rs
  report_counts
}

main
