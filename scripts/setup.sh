#!/usr/bin/env bash
# Makes sure that the tools are there. A tool in a suitable version is used; a missing one is installed where this needs
# no question (as root, from Debian's packages; Julia needs no root), and otherwise named in one line.
#
#   scripts/setup.sh [--quiet] [rust] [c] [java] [julia] [python] [python-headers]      default: all of them
#
# --quiet: prints nothing about tools that are already there.
#
# A Rust toolchain is never installed: it is the one thing that this project asks you to bring.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

minimum_maven=3.6
minimum_cmake=3.16

quiet=
missing=()  # the tools' common names
packages=() # their Debian packages; same indexes

need() { # NAME PACKAGE...
  local name
  for name in "${missing[@]}"; do if [ "$name" = "$1" ]; then return; fi; done
  missing+=("$1")
  packages+=("${*:2}")
}

fail() { echo "setup: $*" >&2; exit 1; }

found() { [ -n "$quiet" ] || printf '  %-11s %s\n' "$1" "$2"; }

# The first text that looks like a version in the output of COMMAND --version; nothing if there is no such command.
first_version() { # COMMAND
  "$1" --version 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+)+' | sed -n 1p || true
}

have() { command -v "$1" >/dev/null 2>&1; }

check_rust() {
  local how="install it with rustup"
  if [ -z "$CARGO" ]; then fail "Rust >= $DEVX_RUST_VERSION is missing (no cargo on PATH); $how"; fi
  local version
  version=$("${RUSTC:-rustc}" --version 2>/dev/null | cut -d' ' -f2) || true
  if ! devx_version_ge "${version%%-*}" "$DEVX_RUST_VERSION"; then
    fail "Rust >= $DEVX_RUST_VERSION is needed, this is ${version:-a cargo without a rustc}; $how or: rustup update"
  fi
  # rustc links with cc, so cc belongs to Rust too.
  if [ -z "$CC" ]; then need "C and C++ compilers" g++; fi
  found rust "$version"
}

check_c() {
  if [ -n "$CC" ] && [ -n "$CXX" ]; then found cc "$(first_version "$CC")"; else need "C and C++ compilers" g++; fi
  local cmake
  cmake=$(first_version cmake)
  if devx_version_ge "$cmake" "$minimum_cmake"; then found cmake "$cmake"; else need "cmake >= $minimum_cmake" cmake; fi
  if have pkg-config; then found pkg-config "$(first_version pkg-config)"; else need pkg-config pkg-config; fi
  if have valgrind; then found valgrind "$(first_version valgrind)"; else need valgrind valgrind; fi
  if [ -n "$CC" ] && { ! have readelf || ! have nm; }; then need binutils binutils; fi
}

check_java() {
  if [ -n "$JAVA_HOME" ]; then found jdk "$("$JAVAC" -version 2>&1 | cut -d' ' -f2) ($JAVA_HOME)"; else need "a JDK >= 17" @jdk; fi
  local version=
  if [ -n "$MVN" ]; then
    # The JVM prints a line about _JAVA_OPTIONS; -v is coloured.
    version=$("$MVN" -v 2>/dev/null | sed -nE 's/.*Apache Maven ([0-9.]+).*/\1/p' | sed -n 1p) || true
    # Without any Java, Maven cannot print its version; the JDK will be installed, so assume that Maven works.
    if [ -z "$JAVA_HOME" ]; then version=${version:-$minimum_maven}; fi
  fi
  if devx_version_ge "$version" "$minimum_maven"; then found maven "$version"; else need "Maven >= $minimum_maven" maven; fi
}

check_python() {
  if [ -z "$PYTHON" ]; then need "Python 3 with pip and venv" python3 python3-pip python3-venv; return; fi
  if ! "$PYTHON" -m pip --version >/dev/null 2>&1; then need "Python's pip" python3-pip; fi
  if ! "$PYTHON" -c 'import venv, ensurepip' >/dev/null 2>&1; then need "Python's venv" python3-venv; fi
  found python "$("$PYTHON" -c 'import platform; print(platform.python_version())')"
}

# For packages with C code, which are built from source where no wheel fits.
check_python-headers() {
  if [ -z "$PYTHON" ]; then need "Python 3 with its headers" python3 python3-dev; return; fi
  local header
  header=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include") + "/Python.h")')
  if [ ! -e "$header" ]; then need "Python's headers" python3-dev; fi
}

can_install() { [ "$(id -u)" -eq 0 ] && have apt-get; }

# Debian's newest JDK package among those that are new enough; the name differs from release to release.
jdk_package() {
  local name
  for name in openjdk-17-jdk-headless openjdk-21-jdk-headless; do
    if apt-cache show "$name" >/dev/null 2>&1; then echo "$name"; return; fi
  done
  echo default-jdk-headless
}

install_packages() {
  local log wanted
  log=$(mktemp)
  echo "setup: installing $(joined "${missing[@]}") from Debian's packages"
  if ! DEBIAN_FRONTEND=noninteractive apt-get -q update >"$log" 2>&1; then
    sed 's/^/  /' "$log" >&2
    echo "setup: apt-get update failed; going on with the existing package lists" >&2
  fi
  wanted=${packages[*]//@jdk/$(jdk_package)}
  # shellcheck disable=SC2086 # package names are words
  if ! DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install $wanted >"$log" 2>&1 </dev/null; then
    sed 's/^/  /' "$log" >&2
    rm -f "$log"
    fail "missing: $(joined "${missing[@]}"); apt-get install $wanted failed, see its output above"
  fi
  rm -f "$log"
}

joined() {
  local IFS=';'
  local text="$*"
  echo "${text//;/, }"
}

install_missing() {
  if ! can_install; then
    local wanted=${packages[*]}
    fail "missing: $(joined "${missing[@]}"); on Debian: sudo apt-get install ${wanted//@jdk/openjdk-17-jdk-headless}"
  fi
  install_packages
}

check_all() {
  local part
  for part in "$@"; do
    case $part in
      rust | c | java | python | python-headers) "check_$part" ;;
      julia) ;;
      *) fail "unknown part '$part'; there are: rust c java julia python python-headers" ;;
    esac
  done
}

# After the packages: installing Julia needs only apt-get, and its output is already a single line.
setup_julia() {
  if [ -z "$JULIA" ]; then JULIA=$("$DEVX_ROOT/scripts/install-julia.sh") || exit 1; fi
  found julia "$(devx_julia_version "$JULIA") ($JULIA)"
}

main() {
  if [ "${1:-}" = --quiet ]; then quiet=yes; shift; fi
  if [ $# -eq 0 ]; then set -- rust c java python python-headers julia; fi
  check_all "$@" >/dev/null
  if [ ${#missing[@]} -ne 0 ]; then
    install_missing
    # Look again: an install without effect must not lead to a puzzling error later.
    missing=() packages=()
    devx_env
    devx_export
  fi
  check_all "$@"
  if [ ${#missing[@]} -ne 0 ]; then fail "installed, but still not usable: $(joined "${missing[@]}")"; fi
  case " $* " in *" julia "*) setup_julia ;; esac
}

main "$@"
