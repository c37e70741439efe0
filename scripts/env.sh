#!/usr/bin/env bash
# The places of all tools and outputs: sourced by the other scripts, and by anybody who wants the same environment.
#
#   . scripts/env.sh              in bash
#   eval "$(scripts/env.sh)"      in any other shell
#
# A tool that is missing gets an empty variable; scripts/setup.sh is what complains and installs.
#
#   DEVX_ROOT DEVX_VERSION DEVX_RUST_VERSION   the checkout, its version, the oldest Rust it builds with
#   DEVX_TARGET (= CARGO_TARGET_DIR)           cargo's target directory, absolute
#   DEVX_GLIBC                                 if set: build for machines with this glibc or a newer one (`make dist`)
#   DEVX_ARCH                                  if set, with DEVX_GLIBC: build for this processor (aarch64, x86_64)
#   DEVX_LIBDIR                                where `make build` leaves the release libraries; others for DEVX_GLIBC
#   DEVX_LIB_C DEVX_LIB_JNI DEVX_LIB_JULIA     those libraries
#   DEVX_SONAME                                what the loader calls the C library (bindings-c/build.rs)
#   DEVX_PREFIX                                the private prefix that the tests install to
#   JAVA_HOME JAVA JAVAC MVN JULIA PYTHON      the tools, as found
#   DEVX_JDK22                                 a JDK of 22 or newer, for the classes of the jar that need one
#   CARGO RUSTC CC CXX                         the same, but not exported

devx_version_ge() { # HAVE WANT
  [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | sed -n 1p)" = "$2" ]
}

# A value of [workspace.package], the one place that holds versions.
devx_cargo_value() { # KEY
  awk -F '"' -v key="$1" '
    /^\[/ { inside = ($0 == "[workspace.package]") }
    inside && $0 ~ "^" key "[ =]" { print $2; exit }' "$DEVX_ROOT/Cargo.toml"
}

devx_passwd_home() {
  getent passwd "$(id -u)" 2>/dev/null | cut -d: -f6 || true
}

devx_usable_dir() { [ -n "$1" ] && [ -d "$1" ] && [ -w "$1" ]; }

# Cargo, Maven and Julia need a home directory for their caches. Where there is none (a container that runs with HOME
# empty, unset or read-only) they get one below the target directory, except that an installed Rust toolchain stays
# where it is. Where that cannot be written to either, nothing is built that would need one.
devx_find_home() {
  local old=${HOME:-} real dir
  HOME=$old # never unset
  real=$(devx_passwd_home)
  for dir in "$old" "$real"; do
    [ -n "$dir" ] || continue
    if ! command -v cargo >/dev/null 2>&1 && [ -x "$dir/.cargo/bin/cargo" ]; then PATH=$dir/.cargo/bin:$PATH; fi
  done
  # The JVM asks the password file and not HOME, so Maven must be told separately.
  if ! devx_usable_dir "$real"; then
    mkdir -p "$DEVX_TARGET/home" 2>/dev/null || return 0
    case " ${MAVEN_OPTS:-} " in
      *" -Duser.home="*) ;;
      *) export MAVEN_OPTS="${MAVEN_OPTS:+$MAVEN_OPTS }-Duser.home=$DEVX_TARGET/home" ;;
    esac
  fi
  if devx_usable_dir "$old"; then return; fi

  mkdir -p "$DEVX_TARGET/home" 2>/dev/null || return 0
  HOME=$DEVX_TARGET/home
  for dir in "$old" "$real"; do
    [ -n "$dir" ] || continue
    if [ -z "${RUSTUP_HOME:-}" ] && [ -d "$dir/.rustup" ]; then export RUSTUP_HOME=$dir/.rustup; fi
    if [ -z "${CARGO_HOME:-}" ] && devx_usable_dir "$dir/.cargo"; then export CARGO_HOME=$dir/.cargo; fi
    # A read-only cargo home can still say where crates come from.
    if [ -z "${CARGO_HOME:-}" ] && [ -r "$dir/.cargo/config.toml" ] && [ ! -e "$HOME/.cargo/config.toml" ]; then
      mkdir -p "$HOME/.cargo"
      cp "$dir/.cargo/config.toml" "$HOME/.cargo/config.toml"
    fi
  done
}

devx_jdk_major() { # JAVA_HOME
  [ -x "$1/bin/javac" ] || return 0
  "$1/bin/javac" -version 2>&1 | sed -nE 's/^javac ([0-9]+).*/\1/p' | sed -n 1p
}

# The first JDK that is new enough: JAVA_HOME, the one on PATH, then what the distribution has installed.
devx_find_jdk() { # OLDEST
  local dir javac candidates=("${JAVA_HOME:-}")
  if javac=$(command -v javac 2>/dev/null); then
    javac=$(readlink -f "$javac")
    candidates+=("${javac%/bin/javac}")
  fi
  for dir in "${candidates[@]}" /usr/lib/jvm/*; do
    [ -n "$dir" ] || continue
    if devx_version_ge "$(devx_jdk_major "$dir")" "$1"; then echo "$dir"; return; fi
  done
}

devx_julia_version() { # JULIA
  "$1" --version 2>/dev/null | sed -nE 's/^julia version ([0-9.]+).*/\1/p' || true
}

devx_find_julia() {
  local candidate
  for candidate in "${JULIA:-}" "$(command -v julia 2>/dev/null || true)" "$DEVX_ROOT/.tools/julia/bin/julia"; do
    [ -n "$candidate" ] || continue
    if devx_version_ge "$(devx_julia_version "$candidate")" 1.5; then echo "$candidate"; return; fi
  done
}

devx_first_of() { # COMMAND...
  local name
  for name in "$@"; do
    [ -n "$name" ] || continue
    if command -v "$name" >/dev/null 2>&1; then echo "$name"; return; fi
  done
}

# Maven on our project, for a log: it prints colour codes even with -B and into a pipe. Needs `set -o pipefail`.
devx_mvn() { # GOALS AND OPTIONS
  "$MVN" -q -B -f "$DEVX_ROOT/bindings-jni/java/pom.xml" "$@" </dev/null 2>&1 | sed -u 's/\x1b\[[0-9;]*m//g'
}

# Copies the checkout, to be changed there. The copies get new timestamps: otherwise Cargo would take the last run's build of
# a changed tree for the build of the unchanged one.
devx_copy_tree() { # TREE
  rm -rf "$1"
  mkdir -p "$1"
  tar -C "$DEVX_ROOT" --exclude=target --exclude=.git --exclude=.tools -cf - . | tar -xmf - -C "$1"
}

# The jar that a user would put on the class path.
devx_find_jar() {
  find "$DEVX_ROOT/bindings-jni/java/target" -maxdepth 1 -name '*.jar' ! -name '*-sources.jar' ! -name '*-javadoc.jar' \
    ! -name '*-tests.jar' ! -name 'original-*.jar' 2>/dev/null | sort | sed -n 1p
}

# The jar contains the native library, so it is out of date if that, a source or the project file is newer.
devx_jar_is_fresh() {
  local project=$DEVX_ROOT/bindings-jni/java jar newer
  jar=$(devx_find_jar)
  [ -n "$jar" ] || return 1
  newer=$(find "$project/pom.xml" "$project/src/main" "$DEVX_LIB_JNI" -newer "$jar" 2>/dev/null | sed -n 1p)
  [ -z "$newer" ]
}

devx_make_jar() {
  if devx_jar_is_fresh; then return; fi
  "$DEVX_ROOT/scripts/build.sh" && devx_mvn -DskipTests package
}

# shellcheck disable=SC2034 # exported below, by name
devx_env() {
  DEVX_ROOT=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
  DEVX_TARGET=${CARGO_TARGET_DIR:-target}
  case $DEVX_TARGET in /*) ;; *) DEVX_TARGET=$DEVX_ROOT/$DEVX_TARGET ;; esac
  CARGO_TARGET_DIR=$DEVX_TARGET
  DEVX_VERSION=$(devx_cargo_value version)
  DEVX_RUST_VERSION=$(devx_cargo_value rust-version)
  DEVX_TRIPLE=${DEVX_ARCH:-$(uname -m)}-unknown-linux-gnu # as rustc calls what it builds for
  DEVX_LIBDIR=$DEVX_TARGET/${DEVX_GLIBC:+$DEVX_TRIPLE/}release
  DEVX_LIB_C=$DEVX_LIBDIR/libdevexchange.so
  DEVX_SONAME=libdevexchange.so.$(sed -nE 's/^(0\.[0-9]+|[0-9]+).*/\1/p' <<<"$DEVX_VERSION")
  DEVX_LIB_JNI=$DEVX_LIBDIR/libdevexchange_jni.so
  DEVX_LIB_JULIA=$DEVX_LIBDIR/libdevexchange_julia.so
  DEVX_PREFIX=$DEVX_TARGET/prefix
  devx_find_home
  CARGO=$(devx_first_of "${CARGO:-}" cargo)
  RUSTC=$(devx_first_of "${RUSTC:-}" rustc)
  CC=$(devx_first_of "${CC:-}" cc gcc clang)
  CXX=$(devx_first_of "${CXX:-}" c++ g++ clang++)
  JAVA_HOME=$(devx_find_jdk 17)
  DEVX_JDK22=$(devx_find_jdk 22)
  JAVA=${JAVA_HOME:+$JAVA_HOME/bin/java}
  JAVAC=${JAVA_HOME:+$JAVA_HOME/bin/javac}
  MVN=$(devx_first_of mvn)
  JULIA=$(devx_find_julia)
  PYTHON=$(devx_first_of "${PYTHON:-}" python3)
}

DEVX_EXPORTED="PATH HOME DEVX_ROOT DEVX_VERSION DEVX_RUST_VERSION DEVX_TARGET CARGO_TARGET_DIR DEVX_LIBDIR
  DEVX_LIB_C DEVX_SONAME DEVX_LIB_JNI DEVX_LIB_JULIA DEVX_PREFIX DEVX_JDK22 JAVA_HOME JAVA JAVAC MVN JULIA PYTHON"
# Only for scripts: cargo and its build scripts read these names themselves, and would rebuild everything between a
# caller whose environment has them and one whose environment does not.
DEVX_PLAIN="CARGO RUSTC CC CXX"

devx_export() {
  local name
  for name in $DEVX_EXPORTED; do
    # Tools that read JAVA_HOME would take an empty one literally.
    if [ -n "${!name}" ]; then export "${name?}"; else export -n "${name?}"; fi
  done
}

devx_env
devx_export

# Run instead of sourced: print it for the caller's `eval`.
if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  for name in $DEVX_EXPORTED RUSTUP_HOME CARGO_HOME MAVEN_OPTS; do
    if [ -n "${!name:-}" ]; then printf 'export %s=%q\n' "$name" "${!name}"; fi
  done
  for name in $DEVX_PLAIN; do printf '%s=%q\n' "$name" "${!name}"; done
fi
