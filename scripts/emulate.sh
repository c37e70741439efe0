#!/usr/bin/env bash
# Runs programs of the documents with the packages for another processor, which qemu emulates: those in C, C++, Java,
# Python and Rust. (Julia does not start under qemu.)
#
#   scripts/emulate.sh ARCH [INSTALLED]    ARCH: aarch64 or x86_64; INSTALLED: DEVX_INSTALLED of test-readme.sh, with
#                                          the wheel, for which this script makes the environment
#
# Without INSTALLED, it only makes sure that everything else is there.
#
# Needs Debian's gcc-ARCH-linux-gnu, g++-ARCH-linux-gnu and qemu-user-binfmt, and
# `rustup target add ARCH-unknown-linux-gnu`. A JDK and Python for that processor are downloaded from Debian and
# unpacked below the target directory.
#
# Ends with the line `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/debian.sh
. "$DEVX_ROOT/scripts/debian.sh"

fail() { echo "emulate: $*" >&2; exit 1; }

arch=$1
installed=${2:-}
triple=$arch-unknown-linux-gnu
root=$DEVX_TARGET/emulated-$arch
case $arch in
  aarch64) debian=arm64 ;;
  x86_64) debian=amd64 ;;
  *) fail "the processor is $arch: it must be aarch64 or x86_64" ;;
esac

require_tools() {
  local tool std
  for tool in "$arch-linux-gnu-gcc" "$arch-linux-gnu-g++" apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || fail "$tool is missing (scripts/emulate.sh says which packages it needs)"
  done
  std=$("$RUSTC" --print target-libdir --target "$triple")
  [ -d "$std" ] || fail "Rust's library for $arch is missing: rustup target add $triple"
}

# Unpacked beside its final place and moved there, so that an interrupted run leaves nothing half done.
make_root() {
  local deb link mirror
  if [ -d "$root" ]; then return; fi
  mirror=$(debian_mirror)
  [ -n "$mirror" ] || fail "there is no Debian mirror in this machine's apt sources"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  echo "emulate: fetching Debian's JDK and Python for $arch into $root" >&2
  if ! debian_download "$work" "$mirror" bookworm "$debian" openjdk-17-jdk-headless python3; then
    fail "Debian has no JDK 17 or no Python ($(grep -m1 '^E:' "$work/apt.out" || echo no reason given))"
  fi
  rm -rf "$root.new"
  mkdir -p "$root.new"
  for deb in "$work"/cache/archives/*.deb; do dpkg-deb -x "$deb" "$root.new"; done
  # A link to /etc would lead to this machine's.
  while IFS= read -r link; do ln -sfnr "$root.new$(readlink "$link")" "$link"; done \
    < <(find "$root.new" -type l -lname '/*')
  mv "$root.new" "$root"
}

# pip of this machine chooses the packages; an environment of Python's own would need its pip, which takes minutes here.
make_venv() {
  local python=$installed/venv/bin/python site=$installed/venv/packages platform platforms=()
  for platform in 2_17 2_24 2_27 2_28; do platforms+=(--platform "manylinux_${platform}_$arch"); done
  # shellcheck disable=SC2046 # each line is a package
  "$PYTHON" -m pip --disable-pip-version-check --no-input install -q --target "$site" --python-version 3.11 \
    --only-binary=:all: "${platforms[@]}" "$installed"/devexchange-*.whl \
    $(grep -E '^(numpy|pyarrow)==' "$DEVX_ROOT/bindings-python/tests/requirements.txt")
  mkdir -p "${python%/*}"
  printf '#!/bin/sh\nPYTHONPATH=%q exec %q "$@"\n' "$site" "$root/usr/bin/python3" >"$python"
  chmod +x "$python"
}

require_tools
make_root
export QEMU_LD_PREFIX=$root
"$root/usr/bin/python3" -c '' 2>/dev/null || fail "this machine cannot start programs for $arch: install qemu-user-binfmt"
if [ -z "$installed" ]; then exit; fi
make_venv
linker=CARGO_TARGET_${triple^^}_LINKER
export "${linker//-/_}=$arch-linux-gnu-gcc" CARGO_BUILD_TARGET=$triple
JAVA_HOME=$root/usr/lib/jvm/java-17-openjdk-$debian CC=$arch-linux-gnu-gcc CXX=$arch-linux-gnu-g++ \
  DEVX_INSTALLED=$installed LANGUAGES="c cpp java python rust" \
  "$DEVX_ROOT/scripts/test-readme.sh" "$DEVX_ROOT"/{README,core/README,bindings-python/about}.md
