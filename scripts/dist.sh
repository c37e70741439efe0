#!/usr/bin/env bash
# `make dist`: the packages for people who do not build them, for any Linux on this processor with glibc 2.17 or newer,
# in target/dist:
#
#   devexchange-VERSION-linux-ARCH.tar.gz     the C library, shared and static, headers, pkg-config and CMake files
#   devexchange-VERSION.jar                   the jar with its native library; also -sources.jar, -javadoc.jar and .pom
#   DevExchange.jl-VERSION-linux-ARCH.tar.gz  the Julia package with its native libraries
#   devexchange-VERSION-…-manylinux….whl      the wheel
#   devexchange-core-VERSION.crate            the Rust crate, as cargo packages it
#   SHA256SUMS
#
# Then each is unpacked or installed elsewhere, and the programs of the documents run with it. SHA256SUMS is written
# only if they do what the documents say.
set -euo pipefail
export DEVX_GLIBC=2.17
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

arch=$(uname -m)
name=devexchange-$DEVX_VERSION
c_name=$name-linux-$arch
julia_name=DevExchange.jl-$DEVX_VERSION-linux-$arch
licenses=("$DEVX_ROOT"/LICENSE-{MIT,APACHE,THIRD-PARTY})
dist=$DEVX_TARGET/dist
work=$DEVX_TARGET/dist-work
tools=$DEVX_TARGET/dist-tools
logs=$work/logs

# Builds of one commit give identical files, whoever builds them, where and when: their date is the commit's, their modes
# are not this machine's, and the source paths in panic messages of crates contain nobody's home directory. (Flags cannot
# contain a space.)
umask 022
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$DEVX_ROOT" log -1 --format=%ct 2>/dev/null || echo 315532800)}
case ${CARGO_HOME:-$HOME/.cargo} in
  *" "*) ;;
  *) export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo" ;;
esac

fail() { echo "dist: $*" >&2; exit 1; }

# Prints what is being done; the command's output is shown only if it failed. A failing command is the last one of its
# function, so `set -e` must be on for it, which is not the case within a condition.
step() { # WHAT COMMAND...
  local log=$logs/${2//[^a-z_]/}.log status
  printf '  %-52s' "$1"
  SECONDS=0
  set +e
  (set -e; "${@:2}") >"$log" 2>&1 </dev/null
  status=$?
  set -e
  if [ "$status" -ne 0 ]; then
    echo failed
    sed 's/^/    /' "$log" >&2
    fail "$1: failed, see above"
  fi
  printf '%4d s\n' "$SECONDS"
}

get_tools() {
  local wanted=$DEVX_ROOT/scripts/dist-requirements.txt
  if ! cmp -s "$wanted" "$tools/requirements.txt"; then
    rm -rf "$tools"
    "$PYTHON" -m venv "$tools"
    "$tools/bin/python" -m pip --disable-pip-version-check --no-input install -q -r "$wanted"
    cp "$wanted" "$tools/requirements.txt"
  fi
}

pack() { # DIRECTORY BELOW $work/stage
  # Directories inherit the bit for the group from a checkout that has it.
  tar -C "$work/stage" --sort=name --owner=0 --group=0 --numeric-owner --mode=g-s --mtime="@$SOURCE_DATE_EPOCH" -c "$1" |
    gzip -n9 >"$dist/$1.tar.gz"
}

# No library may need a symbol of a newer glibc than promised.
require_glibc() { # LIBRARY...
  local library needs
  for library in "$@"; do
    needs=$(objdump -T "$library" | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -n 1)
    if ! devx_version_ge "$DEVX_GLIBC" "${needs#GLIBC_}"; then
      echo "${library##*/} needs $needs, which is newer than $DEVX_GLIBC"
      return 1
    fi
  done
}

build_libraries() {
  "$DEVX_ROOT/scripts/build.sh"
  require_glibc "$DEVX_LIB_C" "$DEVX_LIB_JNI" "$DEVX_LIB_JULIA"
}

make_c() {
  PREFIX=/$c_name LIBDIR=lib DESTDIR=$work/stage "$DEVX_ROOT/scripts/install.sh" install
  strip --strip-unneeded "$work/stage/$c_name/lib/libdevexchange.so.$DEVX_VERSION"
  strip --strip-debug "$work/stage/$c_name/lib/libdevexchange.a"
  pack "$c_name"
}

make_jar() {
  local java=$DEVX_ROOT/bindings-jni/java
  devx_mvn -DskipTests clean package source:jar-no-fork javadoc:jar
  cp "$java/target/$name"{,-sources,-javadoc}.jar "$dist/"
  cp "$java/pom.xml" "$dist/$name.pom"
}

make_julia() {
  local file
  while IFS= read -r file; do
    install -D -m 644 "$DEVX_ROOT/bindings-julia/DevExchange.jl/$file" "$work/stage/$julia_name/$file"
  done < <(cd "$DEVX_ROOT/bindings-julia/DevExchange.jl" && find Project.toml src ext -type f)
  install -D -m 755 -s -t "$work/stage/$julia_name/lib" "$DEVX_LIB_C" "$DEVX_LIB_JULIA"
  install -m 644 -t "$work/stage/$julia_name" "${licenses[@]}"
  pack "$julia_name"
}

make_wheel() {
  cd "$DEVX_ROOT/bindings-python"
  maturin build --quiet --release --locked --zig --target "$DEVX_TRIPLE" --compatibility "manylinux_${DEVX_GLIBC/./_}" \
    --interpreter "$PYTHON" --out "$dist"
  "$DEVX_ROOT/scripts/document-wheel.sh" "$tools/bin/python" "$dist"/*.whl
}

make_crate() {
  cd "$DEVX_ROOT"
  # The crate is built later, as users would build it.
  "$CARGO" package --quiet --locked --allow-dirty --no-verify -p devexchange-core --target-dir "$work/crate"
  cp "$work/crate/package/devexchange-core-$DEVX_VERSION.crate" "$dist/"
}

# --- as users get it ---

# test-readme.sh uses these programs and libraries in place of the checkout's.
install_all() {
  local to=$work/installed
  mkdir -p "$to"
  tar -C "$to" -xzf "$dist/$c_name.tar.gz"
  mv "$to/$c_name" "$to/prefix"
  cp "$dist/$name.jar" "$to/devexchange.jar"
  tar -C "$to" -xzf "$dist/$julia_name.tar.gz"
  mv "$to/$julia_name" "$to/DevExchange.jl"
  tar -C "$to" -xzf "$dist/devexchange-core-$DEVX_VERSION.crate"
  mv "$to/devexchange-core-$DEVX_VERSION" "$to/core"
  cmp "$to/core/LICENSE-MIT" "${licenses[0]}"
  cmp "$to/core/LICENSE-APACHE" "${licenses[1]}"
  "$PYTHON" -m venv "$to/venv"
  "$to/venv/bin/python" -m pip --disable-pip-version-check --no-input install -q \
    -r "$DEVX_ROOT/bindings-python/tests/requirements.txt" "$dist"/*.whl
}

run_examples() {
  unset RUSTFLAGS # these are users' programs
  DEVX_INSTALLED=$work/installed "$DEVX_ROOT/scripts/test-readme.sh"
}

write_sums() {
  cd "$dist"
  sha256sum -- * >"$work/sums"
  mv "$work/sums" SHA256SUMS
}

if [ -z "$DEVX_JDK22" ]; then fail "JDK 22 or newer is missing: without one the jar would use JNI on every JVM"; fi
rm -rf "$dist" "$work"
mkdir -p "$dist" "$logs" "$work/stage"
PATH=$tools/bin:$PATH
echo "$name for Linux, $arch, glibc $DEVX_GLIBC or newer:"
step "the build tools" get_tools
step "the native libraries" build_libraries
step "C: headers, libraries" make_c
step "Java: the jar, its sources and documentation" make_jar
step "Julia: the package" make_julia
step "Python: the wheel" make_wheel
step "Rust: the crate" make_crate
step "all of it, unpacked and installed" install_all
step "the documents' programs, with these packages" run_examples
tail -n 1 "$logs/run_examples.log" | sed 's/^/    /'
write_sums
(cd "$dist" && du -h --apparent-size -- *) | awk -F '\t' '{ printf "  %8s  %s\n", $1, $2 }'
