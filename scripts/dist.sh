#!/usr/bin/env bash
# `make dist`: the packages for people who do not build them, for any Linux on this processor with glibc 2.17 or newer,
# in target/dist. With ALSO=aarch64 (or x86_64) they are also made for that processor, and the jar is for both.
#
#   devexchange-VERSION-linux-ARCH.tar.gz     the C library, shared and static, headers, pkg-config and CMake files
#   devexchange-VERSION.jar                   the jar with its native libraries; also -sources.jar, -javadoc.jar and .pom
#   DevExchange.jl-VERSION-linux-ARCH.tar.gz  the Julia package with its native libraries
#   devexchange-VERSION-…-manylinux….whl      the wheel
#   devexchange-core-VERSION.crate            the Rust crate, as cargo packages it
#   SHA256SUMS
#
# Then each is unpacked or installed elsewhere, and the programs of the documents run with it; those for the other
# processor in an emulator (scripts/emulate.sh). SHA256SUMS is written only if they do what the documents say.
set -euo pipefail
export DEVX_GLIBC=2.17
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

here=$(uname -m)
also=${ALSO:-}
name=devexchange-$DEVX_VERSION
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

# The processor that the next steps are for.
build_for() { # ARCH
  export DEVX_ARCH=$1
  devx_env
  devx_export
  c_name=$name-linux-$1
  julia_name=DevExchange.jl-$DEVX_VERSION-linux-$1
  installed=$work/installed-$1
  export CROSS_COMPILE= # for install.sh
  if [ "$1" != "$here" ]; then CROSS_COMPILE=$1-linux-gnu-; fi
  strip=${CROSS_COMPILE}strip
}

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
    needs=$(readelf -VW "$library" | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -n 1)
    if ! devx_version_ge "$DEVX_GLIBC" "${needs#GLIBC_}"; then
      echo "${library##*/} needs $needs, which is newer than $DEVX_GLIBC"
      return 1
    fi
  done
}

build_libraries() {
  "$DEVX_ROOT/scripts/build.sh"
  require_glibc "$DEVX_LIB_C" "$DEVX_LIB_JNI" "$DEVX_LIB_JULIA"
  # The jar has this machine's library anyway; this one goes beside it. The JVM has its own name for x86_64.
  if [ "$DEVX_ARCH" != "$here" ]; then
    install -D -m 644 -t "$work/natives/linux-${DEVX_ARCH/x86_64/amd64}" "$DEVX_LIB_JNI"
  fi
}

make_c() {
  PREFIX=/$c_name LIBDIR=lib DESTDIR=$work/stage "$DEVX_ROOT/scripts/install.sh" install
  "$strip" --strip-unneeded "$work/stage/$c_name/lib/libdevexchange.so.$DEVX_VERSION"
  "$strip" --strip-debug "$work/stage/$c_name/lib/libdevexchange.a"
  pack "$c_name"
}

make_jar() {
  local java=$DEVX_ROOT/bindings-jni/java
  devx_mvn -DskipTests "-Ddevexchange.natives=$work/natives" clean package source:jar-no-fork javadoc:jar
  cp "$java/target/$name"{,-sources,-javadoc}.jar "$dist/"
  cp "$java/pom.xml" "$dist/$name.pom"
  add_sources_for_22 "$java" "$dist/$name-sources.jar"
  require_sources "$dist/$name.jar" "$dist/$name-sources.jar"
}

# Maven's plugin for sources knows the first folder of them alone.
add_sources_for_22() { # PROJECT JAR
  local stage=$work/sources date
  date=$(sed -n 's#.*<project\.build\.outputTimestamp>\(.*\)</.*#\1#p' "$1/pom.xml")
  mkdir -p "$stage/META-INF/versions"
  cp -r "$1/src/main/java22" "$stage/META-INF/versions/22"
  "$JAVA_HOME/bin/jar" --update --file "$2" --date="$date" -C "$stage" META-INF/versions/22
}

# Each class must have its source at the same place.
require_sources() { # JAR JAR-OF-SOURCES
  local missing
  missing=$(comm -23 <("$JAVA_HOME/bin/jar" -tf "$1" | sed -nE 's/(\$[^/]*)?\.class$//p' | sort -u) \
    <("$JAVA_HOME/bin/jar" -tf "$2" | sed -n 's/\.java$//p' | sort -u))
  if [ -n "$missing" ]; then echo "the jar of sources lacks $missing"; return 1; fi
}

make_julia() {
  local file
  while IFS= read -r file; do
    install -D -m 644 "$DEVX_ROOT/bindings-julia/DevExchange.jl/$file" "$work/stage/$julia_name/$file"
  done < <(cd "$DEVX_ROOT/bindings-julia/DevExchange.jl" && find Project.toml src ext -type f)
  install -D -m 755 -s --strip-program="$strip" -t "$work/stage/$julia_name/lib" "$DEVX_LIB_C" "$DEVX_LIB_JULIA"
  install -m 644 -t "$work/stage/$julia_name" "${licenses[@]}"
  pack "$julia_name"
}

make_wheel() {
  local wheel documented=
  cd "$DEVX_ROOT/bindings-python"
  if [ "$DEVX_ARCH" != "$here" ]; then documented=$(wheel_for "$here"); fi
  maturin build --quiet --release --locked --zig --target "$DEVX_TRIPLE" --compatibility "manylinux_${DEVX_GLIBC/./_}" \
    --interpreter "$PYTHON" --out "$dist"
  wheel=$(wheel_for "$DEVX_ARCH")
  "$DEVX_ROOT/scripts/document-wheel.sh" "$tools/bin/python" "$wheel" "$documented"
}

wheel_for() { echo "$dist"/*"$1.whl"; } # ARCH

make_crate() {
  cd "$DEVX_ROOT"
  # The crate is built later, as users would build it.
  "$CARGO" package --quiet --locked --allow-dirty --no-verify -p devexchange-core --target-dir "$work/crate"
  cp "$work/crate/package/devexchange-core-$DEVX_VERSION.crate" "$dist/"
}

# --- as users get it ---

# test-readme.sh uses these programs and libraries in place of the checkout's.
unpack_all() {
  local to=$installed
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
  cp "$(wheel_for "$DEVX_ARCH")" "$to"
}

install_wheel() {
  "$PYTHON" -m venv "$installed/venv"
  "$installed/venv/bin/python" -m pip --disable-pip-version-check --no-input install -q \
    -r "$DEVX_ROOT/bindings-python/tests/requirements.txt" "$installed"/*.whl
}

run_examples() {
  unset RUSTFLAGS # these are users' programs
  DEVX_INSTALLED=$installed "$DEVX_ROOT/scripts/test-readme.sh"
}

emulate_examples() {
  unset RUSTFLAGS
  "$DEVX_ROOT/scripts/emulate.sh" "$DEVX_ARCH" "$installed"
}

write_sums() {
  cd "$dist"
  sha256sum -- * >"$work/sums"
  mv "$work/sums" SHA256SUMS
}

if [ -z "$DEVX_JDK22" ]; then fail "JDK 22 or newer is missing: without one the jar would use JNI on every JVM"; fi
case $also in
  "" | aarch64 | x86_64) ;;
  *) fail "ALSO is $also: it must be aarch64 or x86_64" ;;
esac
if [ "$also" = "$here" ]; then fail "ALSO is $also, which this machine is"; fi
rm -rf "$dist" "$work"
mkdir -p "$dist" "$logs" "$work/stage"
PATH=$tools/bin:$PATH
echo "$name for Linux, $here${also:+ and $also}, glibc $DEVX_GLIBC or newer:"
step "the build tools" get_tools
if [ -n "$also" ]; then step "an emulator for $also" "$DEVX_ROOT/scripts/emulate.sh" "$also"; fi
for arch in "$here" $also; do
  build_for "$arch"
  step "$arch: the native libraries" build_libraries
  step "$arch: C, headers and libraries" make_c
  step "$arch: the Julia package" make_julia
  step "$arch: the wheel" make_wheel
done
build_for "$here"
step "the jar, its sources and documentation" make_jar
step "the crate" make_crate
step "all of it, unpacked" unpack_all
step "the wheel, installed" install_wheel
step "the documents' programs, with these packages" run_examples
tail -n 1 "$logs/run_examples.log" | sed 's/^/    /'
if [ -n "$also" ]; then
  build_for "$also"
  step "$also: all of it, unpacked" unpack_all
  step "$also: programs of the documents, emulated" emulate_examples
  tail -n 1 "$logs/emulate_examples.log" | sed 's/^/    /'
fi
write_sums
(cd "$dist" && du -h --apparent-size -- *) | awk -F '\t' '{ printf "  %8s  %s\n", $1, $2 }'
