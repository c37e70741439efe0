#!/usr/bin/env bash
# Tests the C side as a user has it: from an installed tree, never from the checkout.
#
#   scripts/test-c.sh             everything
#   scripts/test-c.sh tensor      only bindings-c/tests/c/test_*tensor*.{c,cpp}, plain and under valgrind
#   SANITIZED=address scripts/test-c.sh test_  the test programs with a sanitizer (address, thread) instead of
#                                 valgrind, and with the library that scripts/sanitize.sh built with the same
#   ROUNDS=1000000 scripts/test-c.sh rounds    as many rounds of every exchange instead of 10000, and the memory of each
#
# test_stream*, test_corpus and test_faults* run without a CUDA driver (or with this machine's) and again on the
# simulated one.
#
# Prints a line for each test and ends with the line `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"

tests=$DEVX_ROOT/bindings-c/tests/c
valgrind_status=99
export DEVX_ROUNDS=${ROUNDS:-10000}
valgrind_rounds=1000 # valgrind shows a single leak; the many rounds are for the memory of the process
# shellcheck source=scripts/sanitizers.sh
. "$DEVX_ROOT/scripts/sanitizers.sh"
include=$DEVX_PREFIX/include
lib=$DEVX_PREFIX/lib
if [ -n "${SANITIZED:-}" ]; then
  sanitizer "$SANITIZED"
  include=$DEVX_ROOT/bindings-c/include
  lib=$sanitized_lib
fi
warnings=(-Wall -Wextra -Wpedantic -Werror)
work=$(mktemp -d) # outside the tree: there nothing is found by accident that a user would not find
trap 'rm -rf "$work"' EXIT

install_prefix() {
  rm -rf "$DEVX_PREFIX"
  check "make install" make --no-print-directory -C "$DEVX_ROOT" install PREFIX="$DEVX_PREFIX" DESTDIR=
}

# --- the installed tree ---

soname_of() { readelf -d "$1" | sed -nE 's/.*\(SONAME\).*\[(.*)\]/\1/p'; }

# Releases go through the library even when the program that loaded it has closed it.
stays() { # NAME LIBRARY
  if readelf -d "$2" | grep -q NODELETE; then ok "$1 stays when it is closed"
  else not_ok "$1 stays when it is closed" "it has no flag NODELETE"; fi
}

# glibc has as little as 512 bytes for all libraries that are loaded late.
takes_little_tls() { # NAME LIBRARY
  local size
  size=$(readelf -lW "$2" | awk '$1 == "TLS" { print $6 }')
  if [ -n "$size" ] && [ $((size)) -le 256 ]; then ok "$1 takes at most 256 bytes of thread-local memory"
  else not_ok "$1 takes at most 256 bytes of thread-local memory" "it takes $((size))"; fi
}

needs_our_library() { readelf -d "$1" | grep -q 'NEEDED.*libdevexchange'; }

check_soname() {
  local wanted=$DEVX_SONAME
  same "soname is $wanted" "$wanted" "$(soname_of "$DEVX_PREFIX/lib/libdevexchange.so")"
  if [ "$(readlink "$DEVX_PREFIX/lib/libdevexchange.so")" = "$wanted" ] &&
    [ "$(readlink "$DEVX_PREFIX/lib/$wanted")" = "libdevexchange.so.$DEVX_VERSION" ]; then
    ok "links lead from .so to the soname to the file"
  else
    not_ok "links lead from .so to the soname to the file" \
      "$(find "$DEVX_PREFIX/lib" -maxdepth 1 -name '*.so*' -printf '%f->%l ')"
  fi
}

check_bitcode() {
  local members
  members=$(readelf -SW "$DEVX_PREFIX/lib/libdevexchange.a" | grep -c '\.llvmbc') || true
  if [ "$members" -eq 0 ]; then ok "the archive has no bitcode"
  else not_ok "the archive has no bitcode" "$members of its objects have"; fi
}

# The functions that the installed headers declare, as the preprocessor leaves them (no comments); a name followed by (*
# is the result type of a callback.
declared_functions() {
  find "$DEVX_PREFIX/include" -name '*.h' -printf '#include "%P"\n' | sort |
    "$CC" -std=c11 -E -P -I"$DEVX_PREFIX/include" -x c - | tr '\n' ' ' | grep -oE '\bdevx_[a-z0-9_]+ *\([^*]' | sed 's/ *(.*//' | sort -u
}

exported_symbols() { nm -D --defined-only "$1" | awk '{ sub(/@.*/, "", $3); print $3 }' | sort -u; }

check_exports() {
  declared_functions >"$work/declared"
  exported_symbols "$DEVX_PREFIX/lib/libdevexchange.so" >"$work/exported"
  local name odd
  name="every declared function is exported ($(wc -l <"$work/declared"))"
  odd=$(comm -23 "$work/declared" "$work/exported" | paste -sd ' ')
  if [ -n "$odd" ]; then not_ok "$name" "not exported: $odd"
  elif [ ! -s "$work/declared" ]; then not_ok "$name" "the headers declare none"
  else ok "$name"; fi
  odd=$(comm -13 "$work/declared" "$work/exported" | paste -sd ' ')
  none "nothing else is exported" "${odd:+in no header: $odd}"
}

# A program may contain the static libraries of several Rust projects, each with Rust's runtime in it.
check_archive() {
  local odd
  odd=$(nm --defined-only --extern-only "$DEVX_PREFIX/lib/libdevexchange.a" | awk 'NF == 3 { print $3 }' | sort -u |
    comm -3 "$work/declared" - | paste -sd ' ')
  none "the archive has the names of the headers and no others" "${odd:0:400}"
}

# C++ can do everything that C can: devexchange.hpp calls each function, except those that it covers by other means: its
# version in numbers, a release that is a member of the struct, the end of a stream, which it closes, and a batch
# without sizes.
check_completeness() {
  local function odd=()
  while read -r function; do
    case $function in devx_version | devx_cuda_array_release | devx_stream_destroy | devx_batch_create) continue ;; esac
    grep -qE "\\b$function\\b" "$DEVX_PREFIX/include/devexchange.hpp" || odd+=("$function")
  done <"$work/declared"
  none "devexchange.hpp has what the C functions have" "${odd:+but not: ${odd[*]}}"
}

# Alone and twice: a header includes what it needs and has a guard. Programs enable different warnings and cannot fix
# the headers that they include.
check_headers() {
  local header careful=(-Wshadow -Wconversion -Wsign-conversion -Wundef)
  local options=("${warnings[@]}" "${careful[@]}" -I"$DEVX_PREFIX/include" -fsyntax-only)
  while read -r header; do
    printf '#include "%s"\n#include "%s"\nint main(void) { return 0; }\n' "$header" "$header" >"$work/header.c"
    cp "$work/header.c" "$work/header.cpp"
    case $header in
      *.hpp) ;;
      *) check "$header alone and twice, C11" "$CC" -std=c11 "${options[@]}" -Wstrict-prototypes "$work/header.c" || true ;;
    esac
    check "$header alone and twice, C++17" "$CXX" -std=c++17 "${options[@]}" -Wold-style-cast -Wuseless-cast \
      -Wextra-semi "$work/header.cpp" || true
  done < <(cd "$DEVX_PREFIX/include" && find . -type f \( -name '*.h' -o -name '*.hpp' \) | sed 's#^\./##' | sort)
  # C++14 is the default of compilers before GCC 11.
  hpp_says "which C++ it needs" "needs C++17" -std=c++14
  hpp_says "that it needs exceptions" "needs exceptions" -std=c++17 -fno-exceptions
}

hpp_says() { # WHAT WORDS OPTIONS...: the first that the compiler says of devexchange.hpp has these words
  local said
  echo '#include <devexchange.hpp>' >"$work/needs.cpp"
  said=$("$CXX" "${@:3}" -I"$DEVX_PREFIX/include" -fsyntax-only "$work/needs.cpp" 2>&1 | grep -m1 error) || true
  says "devexchange.hpp says $1" "$2" "$said"
}

# An install into a stage puts nothing elsewhere, and uninstall removes all of it.
check_stage_and_uninstall() {
  local args=(--no-print-directory -C "$DEVX_ROOT" PREFIX=/opt/devexchange DESTDIR="$work/stage") left
  local there=$work/stage/opt/devexchange/lib/pkgconfig mode=2770
  mkdir -p "$there"
  chmod "$mode" "$there"
  check "make install with DESTDIR" for_me_alone make "${args[@]}" install || return 0
  left=$(find "$work/stage/opt/devexchange" ! -type l ! -perm -444 ! -path "$there" -printf '%P ')
  none "what is installed is for everybody" "$left"
  for left in LICENSE-MIT LICENSE-APACHE LICENSE-THIRD-PARTY; do
    if cmp -s "$DEVX_ROOT/$left" "$work/stage/opt/devexchange/share/doc/devexchange/$left"; then ok "$left is installed"
    else not_ok "$left is installed" "share/doc/devexchange does not have it"; fi
  done
  same "a directory that is there stays as it is" "$mode" "$(stat -c %a "$there")"
  left=$(diff -r "$DEVX_PREFIX" "$work/stage/opt/devexchange" 2>&1 | sed -n 1p) || true
  none "what is installed does not depend on the place" "$left"
  check "make uninstall" make "${args[@]}" uninstall || return 0
  left=$(find "$work/stage" ! -type d -printf '%P ')
  none "uninstall leaves no file" "$left"
  left=$(cd "$work/stage/opt/devexchange" && find . \( -name devexchange -o -name arrow -o -name dlpack \) | paste -sd ' ')
  none "uninstall leaves no folder of its own" "$left"
  check_places
  check_spellings
  check_beside
  check_dlpack_of_others
}

# As somebody runs it whose own files are nobody else's business.
for_me_alone() (
  umask 077
  "$@"
)

# LIBDIR may repeat PREFIX, as packagers write it, and an uninstall elsewhere removes nothing.
check_places() {
  local args=(--no-print-directory -C "$DEVX_ROOT" PREFIX=/opt/devexchange DESTDIR="$work/places")
  check "make install with LIBDIR below PREFIX" make "${args[@]}" LIBDIR=/opt/devexchange/lib64 install || return 0
  if [ -e "$work/places/opt/devexchange/lib64/libdevexchange.so" ]; then ok "LIBDIR may repeat PREFIX"
  else not_ok "LIBDIR may repeat PREFIX" "$(find "$work/places" -name 'libdevexchange.so' | sed -n 1p)"; fi
  says "uninstall with another LIBDIR says so" "another LIBDIR[?]" "$(make "${args[@]}" uninstall 2>&1 || true)"
  check "make uninstall with LIBDIR below PREFIX" make "${args[@]}" LIBDIR=/opt/devexchange/lib64 uninstall || return 0
  says "an uninstall of nothing says so" "is not installed in" "$(make "${args[@]}" uninstall 2>&1 || true)"
}

# The configuration files count the folders from their own place up to PREFIX.
check_spellings() {
  local to="$work/it's here" said
  local args=(--no-print-directory -C "$DEVX_ROOT" PREFIX="$to/" LIBDIR="$to/./lib//deep/")
  check "make install with a quote in PREFIX, and . and // in LIBDIR" make "${args[@]}" install || return 0
  said=$(PKG_CONFIG_PATH=$to/lib/deep/pkgconfig pkg-config --variable=libdir devexchange 2>&1) || true
  same "pkg-config finds its libdir" "$(cd "$to/lib/deep" && pwd -P)" "$(cd "${said//\\/}" 2>&1 && pwd -P)"
  if said=$(make "${args[@]}" LIBDIR='li&b' install 2>&1); then
    not_ok "a LIBDIR with a character that the configuration files cannot have is refused" "$said"
  else
    ok "a LIBDIR with a character that the configuration files cannot have is refused"
  fi
}

# A later version that was installed beside this one stays whole when this one is removed.
check_beside() {
  local lib=$work/beside/lib later=99.1.2 left
  local args=(--no-print-directory -C "$DEVX_ROOT" PREFIX="$work/beside")
  check "make install beside another version" make "${args[@]}" install || return 0
  cp "$lib/libdevexchange.so.$DEVX_VERSION" "$lib/libdevexchange.so.$later"
  ln -s "libdevexchange.so.$later" "$lib/libdevexchange.so.99"
  ln -sf libdevexchange.so.99 "$lib/libdevexchange.so"
  sed -i "s/^Version: .*/Version: $later/" "$lib/pkgconfig/devexchange.pc"
  (cd "$work/beside" && find . ! -type d ! -name "$DEVX_SONAME*" | sort) >"$work/beside.wanted"
  check "make uninstall beside another version" make "${args[@]}" uninstall || return 0
  left=$(cd "$work/beside" && find . ! -type d | sort | diff - "$work/beside.wanted" | paste -sd ' ') || true
  none "uninstall leaves a later version whole" "$left"
}

# A header of DLPack that another package left stays if it has everything of ours.
check_dlpack_of_others() {
  local header=$work/others/include/dlpack/dlpack.h ours=$DEVX_ROOT/bindings-c/include/dlpack/dlpack.h
  local args=(--no-print-directory -C "$DEVX_ROOT" PREFIX="$work/others") minor
  mkdir -p "${header%/*}"
  for minor in 2 3 4; do
    printf '#define DLPACK_MAJOR_VERSION 1\n#define DLPACK_MINOR_VERSION %s\n' "$minor" >"$header"
    check "make install beside DLPack 1.$minor" make "${args[@]}" install || return 0
    if [ "$minor" -lt 3 ] && cmp -s "$ours" "$header"; then ok "a header of DLPack 1.$minor is replaced"
    elif [ "$minor" -ge 3 ] && [ "$(wc -l <"$header")" = 2 ]; then ok "a header of DLPack 1.$minor stays"
    else not_ok "of two headers of DLPack the newer one is there" "it was 1.$minor"; fi
  done
  check "make uninstall beside DLPack" make "${args[@]}" uninstall || return 0
  if [ -e "$header" ]; then ok "uninstall leaves another package's header"
  else not_ok "uninstall leaves another package's header" "$header is gone"; fi
}

# Without cargo, install uses the library that is built, and no other library than the one asked for. HOME and CDPATH
# play no part.
check_without_cargo() {
  local bare=$work/bare said
  local args=(env -i PATH="$bare:/usr/bin:/bin" HOME="$bare" CDPATH=. CARGO_TARGET_DIR="$DEVX_TARGET" make
    --no-print-directory -C "$DEVX_ROOT" PREFIX="$work/no-cargo" install)
  mkdir "$bare"
  printf '#!/bin/sh\nexit 2\n' >"$bare/getent"
  chmod +x "$bare/getent"
  if env -i PATH="$bare:/usr/bin:/bin" sh -c 'command -v cargo' >/dev/null; then
    skipped "make install without cargo" "it is in /usr/bin"
    return
  fi
  said=$("${args[@]/%install/build}" 2>&1 || true)
  says "make build without cargo says that it is missing" "setup: Rust*no cargo on PATH" "$said"
  check "make install without cargo" "${args[@]}" || return 0
  # As in a checkout that somebody without a home directory may only read.
  mkdir "$work/sealed"
  ln -s "$DEVX_LIBDIR" "$work/sealed/release"
  touch "$work/sealed/home"
  check "make install without cargo and without a place for a home directory" \
    "${args[@]/HOME=*/HOME=}" CARGO_TARGET_DIR="$work/sealed" PREFIX="$work/homeless" || true
  if ! readelf -d "$DEVX_LIB_C" | grep -q STATIC_TLS; then return; fi # not on every processor
  if said=$("${args[@]}" STATIC_TLS=no 2>&1); then
    said="it installed what is there"
  fi
  says "make install STATIC_TLS=no without cargo says that it cannot" "static TLS*no cargo" "$said"
}

# With a target, cargo leaves the library elsewhere, and an older one would be installed.
check_other_target() {
  local said
  mkdir "$work/cargo-home"
  printf '[build]\ntarget = "%s"\n' "$sanitize_host" >"$work/cargo-home/config.toml"
  said=$(CARGO_HOME=$work/cargo-home CARGO_NET_OFFLINE=true CARGO_TARGET_DIR=$work/other-target \
    "$DEVX_ROOT/scripts/build.sh" c 2>&1) || true
  says "a target in cargo's configuration is refused" "cargo builds for*this machine only" "$said"
}

# --- consumers outside the tree ---

says_version() { # NAME PROGRAM
  local said status=0
  said=$("$2" 2>&1) || status=$?
  if [ "$status" -eq 0 ] && [ "$said" = "$DEVX_VERSION" ]; then ok "$1"
  else not_ok "$1" "exit status $status, printed '$said'"; fi
}

# All consumers use a copy of the prefix: what works there is relocatable, unless it refers to the original place.
move_prefix() {
  moved=$work/moved
  cp -a "$DEVX_PREFIX" "$moved"
  local names
  names=$(grep -rlF "$DEVX_PREFIX" "$moved/lib/pkgconfig" "$moved/lib/cmake" || true)
  none "no package file names its prefix" "$names"
}

check_cmake() {
  local source=$work/cmake-source build=$work/cmake-build language
  local configure=(cmake -S "$source" -DCMAKE_PREFIX_PATH="$moved")
  cp -r "$tests/cmake-consumer" "$source"
  check "CMake: find_package" "${configure[@]}" -B "$build" -DWANTED_VERSION="${DEVX_VERSION%.*}" || return 0
  check "CMake: build" cmake --build "$build" || return 0
  for language in c cpp; do
    says_version "CMake: $language, devexchange::devexchange" "$build/$language-shared"
    says_version "CMake: $language, devexchange::static" "$build/$language-static"
  done
  if needs_our_library "$build/c-static"; then not_ok "CMake: devexchange::static is static" "it needs libdevexchange.so"
  else ok "CMake: devexchange::static is static"; fi
  check_plugin "CMake: a plugin with devexchange::static" "$build/libplugin-static.so"
  cmake_refuses "a version that is not there" 99.0
  cmake_refuses "a component that is not there" "COMPONENTS;part"
  check "CMake: the major version alone" \
    "${configure[@]}" -B "$work/cmake-major" -DWANTED_VERSION="${DEVX_VERSION%%.*}" || true
  check "CMake: exactly this version" "${configure[@]}" -B "$work/cmake-exact" "-DWANTED_VERSION=$DEVX_VERSION;EXACT" || true
  # Version ranges need CMake 3.19.
  if devx_version_ge "$(cmake --version | sed -nE '1s/.* ([0-9.]+).*/\1/p')" 3.19; then
    check "CMake: a range of versions" "${configure[@]}" -B "$work/cmake-range" -DWANTED_VERSION="0.0...$DEVX_VERSION" || true
    cmake_refuses "a range that ends before this version" "0...<$DEVX_VERSION"
  fi
  check_cmake_bits
  check_cmake_parts
}

# A plugin with the archive in it hides the archive's symbols, stays loaded as the shared library does, and takes as little
# thread-local memory.
check_plugin() { # NAME PLUGIN
  same "$1 exports what is its own" plugin_tensor "$(exported_symbols "$2" | paste -sd ' ')"
  stays "$1" "$2"
  takes_little_tls "$1" "$2"
}

# The file that find_package reads is read by itself: no project here can be compiled for 32 bits.
check_cmake_bits() {
  local script=$work/bits.cmake
  cat >"$script" <<'CMAKE'
include("${FILE}")
if(NOT PACKAGE_VERSION_UNSUITABLE)
  message(FATAL_ERROR "${PACKAGE_VERSION} would be taken")
endif()
CMAKE
  check "CMake: not for a program of 32 bits" cmake -DCMAKE_SIZEOF_VOID_P=4 \
    -DFILE="$moved/lib/cmake/devexchange/devexchange-config-version.cmake" -P "$script" || true
}

cmake_refuses() { # WHAT WANTED: what find_package is asked for
  if cmake -S "$work/cmake-source" -DCMAKE_PREFIX_PATH="$moved" -B "$work/cmake-refused" -DWANTED_VERSION="$2" \
    >/dev/null 2>&1; then
    not_ok "CMake: $1 is refused" "find_package(devexchange $2) found one"
  else
    ok "CMake: $1 is refused"
  fi
  rm -rf "$work/cmake-refused"
}

# Distributions have a separate package for the archive, or none; and their root folders are links into /usr.
check_cmake_parts() {
  local part=$work/cmake-part
  mkdir "$part"
  cp -a "$moved" "$part/prefix"
  ln -s prefix/lib "$part/lib"
  cat >"$part/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.16)
project(part LANGUAGES C)
find_package(devexchange REQUIRED)
if(NOT TARGET ${HAS} OR TARGET ${HAS_NOT})
  message(FATAL_ERROR "${HAS} is missing, or ${HAS_NOT} is there")
endif()
CMAKE
  check "CMake: by a link to lib" cmake -S "$part" -B "$part/link" -DCMAKE_PREFIX_PATH="$part" \
    -DHAS=devexchange::static -DHAS_NOT=devexchange::none || true
  mv "$part/prefix/lib/libdevexchange.a" "$part/"
  check "CMake: without the archive" cmake -S "$part" -B "$part/shared" -DCMAKE_PREFIX_PATH="$part/prefix" \
    -DHAS=devexchange::devexchange -DHAS_NOT=devexchange::static || true
  mv "$part/libdevexchange.a" "$part/prefix/lib/"
  check_cmake_again "$part"
  rm "$part/prefix/lib"/libdevexchange.so*
  check "CMake: with the archive alone" cmake -S "$part" -B "$part/static" -DCMAKE_PREFIX_PATH="$part/prefix" \
    -DHAS=devexchange::static -DHAS_NOT=devexchange::devexchange || true
}

# A project may look again, elsewhere, when it has found only a part.
check_cmake_again() { # PART: a folder with the folder prefix
  local again=$1/again
  mkdir "$again"
  cp -a "$1/prefix" "$1/incomplete"
  rm "$1/incomplete/include/devexchange.h"
  cat >"$again/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.16)
project(again LANGUAGES C)
set(devexchange_DIR "${PART}/incomplete/lib/cmake/devexchange")
find_package(devexchange QUIET)
if(devexchange_FOUND OR NOT devexchange_NOT_FOUND_MESSAGE MATCHES "incomplete/include/devexchange.h is missing")
  message(FATAL_ERROR "found: '${devexchange_FOUND}', message: '${devexchange_NOT_FOUND_MESSAGE}'")
endif()
set(devexchange_DIR "${PART}/prefix/lib/cmake/devexchange")
find_package(devexchange REQUIRED)
CMAKE
  check "CMake: a whole one after a part" cmake -S "$again" -B "$again/build" -DPART="$1" || true
}

# Called by `check`, so the output of pkg-config and cc is shown when they fail.
pkg_config_build() { # OUTPUT STATIC...
  local output=$1 flags
  shift
  flags=$(PKG_CONFIG_PATH=$moved/lib/pkgconfig pkg-config "$@" --cflags --libs devexchange) || return
  # shellcheck disable=SC2086 # the flags are words
  "$CC" -std=c11 "${warnings[@]}" ${1:+-static} -o "$output" "$tests/cmake-consumer/consumer.c" $flags \
    -Wl,-rpath,"$moved/lib"
}

pkg_config_plugin() { # OUTPUT
  local flags
  flags=$(PKG_CONFIG_PATH=$moved/lib/pkgconfig pkg-config --static --cflags --libs devexchange) || return
  # shellcheck disable=SC2086 # the flags are words
  "$CC" -std=c11 "${warnings[@]}" -shared -fPIC -o "$1" "$tests/cmake-consumer/plugin.c" \
    ${flags/-ldevexchange/-l:libdevexchange.a}
}

check_pkg_config() {
  local said
  said=$(PKG_CONFIG_PATH=$moved/lib/pkgconfig pkg-config --modversion devexchange 2>&1) || true
  same "pkg-config: version" "$DEVX_VERSION" "$said"
  if check "pkg-config: cc" pkg_config_build "$work/pc-shared"; then
    says_version "pkg-config: runs" "$work/pc-shared"
  fi
  # A program without any shared library checks Libs.private most strictly.
  if check "pkg-config: cc -static, --static" pkg_config_build "$work/pc-static" --static; then
    says_version "pkg-config: runs, static" "$work/pc-static"
    if readelf -d "$work/pc-static" | grep -q NEEDED; then not_ok "pkg-config: --static is static" "it needs shared libraries"
    else ok "pkg-config: --static is static"; fi
  fi
  if check "pkg-config: cc -shared with the archive" pkg_config_plugin "$work/pc-plugin.so"; then
    check_plugin "pkg-config: a plugin with the archive" "$work/pc-plugin.so"
  fi
}

# The other library is of the same Rust, which has most names in common, and has an allocator of its own.
beside_rust() { # OUTPUT ARCHIVE ARCHIVE
  "$CC" -std=c11 "${warnings[@]}" -o "$1" "$tests/beside-rust/program.c" -I"$moved/include" "$2" "$3" -pthread -lm \
    -ldl -lgcc_s
}

check_beside_rust() {
  local source=$tests/beside-rust/other.rs other=$work/libother.a ours=$moved/lib/libdevexchange.a
  check "another Rust library" "$RUSTC" --edition 2024 --crate-type staticlib -o "$other" "$source" || return 0
  if check "cc with the archive before another of Rust" beside_rust "$work/before" "$ours" "$other"; then
    says_version "before another of Rust, the archive works" "$work/before"
  fi
  if check "cc with the archive after another of Rust" beside_rust "$work/after" "$other" "$ours"; then
    says_version "after another of Rust, the archive works" "$work/after"
  fi
}

# --- bindings-c/tests/c/test_*.{c,cpp} ---

compile_test() { # SOURCE PROGRAM
  local compiler=("$CC" -std=c11) with=()
  case $1 in
    *.cpp) compiler=("$CXX" -std=c++17) ;;
    */test_corpus.c | */test_faults*.c)
      compiler+=(-I"$DEVX_ROOT/tests/corpus") with=("$("$DEVX_ROOT/tests/corpus/build.sh")")
      ;;
  esac
  "${compiler[@]}" "${warnings[@]}" "${sanitize_compile[@]}" -g -O1 -pthread -I"$include" -I"$tests" \
    "-DDEVX_TEST_VERSION=\"$DEVX_VERSION\"" "-DDEVX_TEST_DATA=\"$DEVX_ROOT/examples/data\"" -c -o "$2.o" "$1" &&
    "${compiler[@]}" -o "$2" "$2.o" "${with[@]}" -L"$lib" -ldevexchange "-Wl,-rpath,$lib" -pthread -lm -ldl \
      "${sanitize_link[@]}"
}

# C++20 checks more about a type at compile time.
compile_as_cpp20() { # SOURCE
  "$CXX" -std=c++20 "${warnings[@]}" -fsyntax-only -I"$include" -I"$tests" "-DDEVX_TEST_VERSION=\"$DEVX_VERSION\"" \
    "-DDEVX_TEST_DATA=\"$DEVX_ROOT/examples/data\"" "$1"
}

# Takes over the lines of a test program that ran; a program that died, or ended before it printed its counts, counts as
# one more failure.
take_over() { # NAME STATUS OUTPUT
  local line failed_before=$tests_failed counted=
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
      "ok - "*" # skip"*) tests_skipped=$((tests_skipped + 1)) ;;
      "ok - "*) tests_passed=$((tests_passed + 1)) ;;
      "not ok - "*) tests_failed=$((tests_failed + 1)) ;;
      "# "*" passed, "*) counted=yes ;;&
      *) printf '    '; line=${line#\# } ;;
    esac
    printf '%s\n' "$line"
  done <"$3"
  if [ "$tests_failed" -ne "$failed_before" ]; then return; fi
  if [ "$2" -ne 0 ]; then not_ok "$1 ends well" "$(meaning_of "$2")"
  elif [ -z "$counted" ]; then not_ok "$1 ends well" "it ended before its last test"; fi
}

meaning_of() { # STATUS
  if [ "$1" -eq "$valgrind_status" ]; then echo "it found errors"
  elif [ "$1" -gt 128 ]; then echo "killed by SIG$(kill -l $(($1 - 128)))"; else echo "exit status $1"; fi
}

# Possibly lost blocks count too: a lost slab shows as a pointer into the middle of a block. Threads take turns:
# otherwise a polling thread can keep the thread that it waits for from running, for minutes.
under_valgrind() { # NAME PROGRAM
  # valgrind cannot run a program with sanitizers; the sanitizers have checked it by now.
  if [ -n "${SANITIZED:-}" ]; then return; fi
  local kinds="definite,indirect,possible"
  local options=(--quiet --leak-check=full "--errors-for-leak-kinds=$kinds" "--show-leak-kinds=$kinds"
    "--error-exitcode=$valgrind_status" --num-callers=24 --log-file="$work/valgrind.log" --fair-sched=try)
  if [ -e "$tests/valgrind.supp" ]; then options+=(--suppressions="$tests/valgrind.supp"); fi
  local status=0
  # valgrind does not see a block that a thread keeps as freed, so a use of it would go unnoticed.
  DEVEXCHANGE_KEEP_BLOCKS=0 DEVX_ROUNDS=$valgrind_rounds valgrind "${options[@]}" "$2" >"$work/valgrind.out" 2>&1 </dev/null || status=$?
  if [ "$status" -eq 0 ]; then ok "$1 under valgrind"; return; fi
  not_ok "$1 under valgrind" "$(meaning_of "$status")"
  { grep -v '^ok - ' "$work/valgrind.out"; sed -n 1,80p "$work/valgrind.log"; } | indented
}

place_simulated() {
  if [ -z "${simulated_at:-}" ]; then
    check "the simulated CUDA driver is there" place_driver "$work/simcuda" || return
    simulated_at=$work/simcuda
  fi
}

# A test that one run of a program skips and the other one runs does not count as skipped.
done_elsewhere() { # REASON
  grep -v "^ok - .* # skip $1\$" "$work/out" >"$work/rest" || true
  mv "$work/rest" "$work/out"
}

# Runs the program again on the simulated CUDA driver, with two small devices: a race or a use after free makes it fail.
# Under valgrind the driver can have less room for its addresses.
run_on_simulated() { # NAME PROGRAM
  local status=0
  place_simulated || return 0
  local -x LD_LIBRARY_PATH=$simulated_at SIMCUDA_FATAL=exit SIMCUDA_MEM_MB=64 SIMCUDA_DEVICES=2 SIMCUDA_VA_GB=8
  "$2" >"$work/out" 2>&1 </dev/null || status=$?
  done_elsewhere "there is a CUDA driver"
  take_over "$1 on the simulated driver" "$status" "$work/out"
  under_valgrind "$1 on the simulated driver" "$2"
}

run_test_file() { # SOURCE
  local name=${1##*/} program status=0
  program=$work/${name//./_}
  echo
  echo "# $name"
  check "$name compiles" compile_test "$1" "$program" || return 0
  case $name in *.cpp) check "$name compiles as C++20" compile_as_cpp20 "$1" || true ;; esac
  "$program" >"$work/out" 2>&1 </dev/null || status=$?
  case $name in test_stream* | test_faults*) done_elsewhere "there is no CUDA driver" ;; esac
  take_over "$name" "$status" "$work/out"
  under_valgrind "$name" "$program"
  case $name in test_stream* | test_corpus* | test_faults*) run_on_simulated "$name" "$program" ;; esac
}

run_test_files() { # FILTER
  local file found=0
  for file in "$tests"/test_*.c "$tests"/test_*.cpp; do
    [ -e "$file" ] || continue
    case ${file##*/} in *"$1"*) ;; *) continue ;; esac
    found=1
    run_test_file "$file"
  done
  if [ "$found" -eq 0 ]; then not_ok "C tests" "no $tests/test_*$1*"; fi
}

main() {
  if [ -z "${SANITIZED:-}" ] && ! install_prefix; then report_counts; return; fi
  if [ $# -eq 0 ]; then
    echo; echo "# the installed tree"
    check_soname
    stays "the library" "$DEVX_PREFIX/lib/libdevexchange.so"
    check_bitcode
    check_exports
    check_archive
    check_completeness
    check_headers
    check_stage_and_uninstall
    check_without_cargo
    check_other_target
    echo; echo "# consumers outside the tree"
    move_prefix
    check_cmake
    check_pkg_config
    check_beside_rust
  fi
  run_test_files "${1:-}"
  echo
  report_counts
}

main "$@"
