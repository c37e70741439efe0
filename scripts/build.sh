#!/usr/bin/env bash
# Builds the release libraries into the target directory (`make build`).
#
#   [STATIC_TLS=no] scripts/build.sh [--quiet] [c]
#
# --quiet: prints something only if there is something to do; c: only the C library; STATIC_TLS=no: the C library
# without static thread-local memory.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

cd "$DEVX_ROOT"

# With a target named, Cargo would leave the libraries elsewhere, and an older build would be taken for them. Cargo's
# configuration files may name one, too; what they say, stable versions of Cargo tell nobody yet.
named=${CARGO_BUILD_TARGET:-}
named=${named:-$(RUSTC_BOOTSTRAP=1 "$CARGO" -Zunstable-options config get build.target 2>/dev/null || true)}
if [ -n "$named" ]; then
  echo "build: cargo builds for ${named#build.target = }: this builds for this machine only; unset CARGO_BUILD_TARGET," \
    "or build.target in cargo's configuration" >&2
  exit 1
fi

mkdir -p "$DEVX_LIBDIR"

# rustc names the system libraries that a program needs besides libdevexchange.a; `make install` passes the list on to
# pkg-config and CMake. The list comes from the ordinary build, because cargo treats other arguments as another build.
native_libs=$DEVX_LIBDIR/libdevexchange.native-libs
build_c() {
  local features=()
  case ${STATIC_TLS:-yes} in
    yes) ;;
    no) features=(--no-default-features) ;;
    *) echo "build: STATIC_TLS is yes or no, not $STATIC_TLS" >&2; exit 1 ;;
  esac
  cargo_build rustc -p devexchange-c --lib "${features[@]}" -- --print "native-static-libs=$native_libs"
}

quiet=
if [ "${1:-}" = --quiet ]; then quiet=yes; shift; fi

# Leaves out rustc's notes about that list, which are for people who link by hand.
cargo_build() { # SUBCOMMAND ARGUMENTS
  local cargo=("$CARGO" "$1")
  # Links against the symbols of an older glibc.
  if [ -n "${DEVX_GLIBC:-}" ]; then cargo=(cargo-zigbuild "$1" --target "$DEVX_TRIPLE.$DEVX_GLIBC"); fi
  CARGO_TERM_COLOR=never "${cargo[@]}" --release --locked "${@:2}" 2>&1 |
    sed -u -e '/^note: native artifacts to link/,/^$/d' ${quiet:+-e '/^ *Finished /d'} >&2
}

build_c
if [ ! -s "$native_libs" ]; then
  # Somebody removed only the list, so cargo had nothing to do.
  "$CARGO" clean --quiet --release ${DEVX_GLIBC:+--target "$DEVX_TRIPLE"} -p devexchange-c
  build_c
fi
if [ "${1:-}" = c ]; then exit; fi
cargo_build build -p devexchange-jni -p devexchange-julia

if [ -n "$quiet" ]; then exit; fi
for lib in "$DEVX_LIB_C" "$DEVX_LIBDIR/libdevexchange.a" "$DEVX_LIB_JNI" "$DEVX_LIB_JULIA"; do
  printf '  %-46s %6s KiB\n' "${lib#"$DEVX_ROOT/"}" "$(($(wc -c <"$lib") / 1024))"
done
