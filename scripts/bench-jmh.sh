#!/usr/bin/env bash
# The benches of Java under JMH (`make bench-jmh`, docs/bench.md):
#
#   scripts/bench-jmh.sh [--only TEXT] [--compile] [OPTIONS OF JMH]
#
# --only runs the operations with this text in their name, or, for example with `:arrow-java`, those of one implementation.
# --compile builds everything and measures nothing.
# The JVM is that of JAVA_HOME; on JDK 22 and newer devexchange calls its library through foreign functions.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

benches=$DEVX_ROOT/benches
out=$DEVX_TARGET/bench/jmh
prefix=$DEVX_TARGET/bench/prefix
floor=$out/libfloor-java.so

build() {
  local classpath=$out/classpath sources
  if [ -z "$MVN" ] || [ -z "$JAVAC" ]; then echo "bench-jmh: needs a JDK and Maven" >&2; return 1; fi
  mkdir -p "$out"
  "$DEVX_ROOT/scripts/build.sh" --quiet
  devx_make_jar
  PREFIX=$prefix LIBDIR=lib DESTDIR='' "$DEVX_ROOT/scripts/install.sh" install >"$out/install.log"
  "$CC" -std=gnu11 -O2 -Wall -Wextra -Werror -pthread -shared -fPIC -I"$prefix/include" -I"$JAVA_HOME/include" \
    -I"$JAVA_HOME/include/linux" -o "$floor" "$benches/java/floor.c" "$benches"/c/floor/{table,tensor}.c \
    "$benches/c/data.c"
  "$MVN" -q -B -f "$benches/java/jmh/pom.xml" dependency:build-classpath -Dmdep.outputFile="$classpath" </dev/null
  rm -rf "$out/classes"
  mapfile -t sources < <(find "$benches/java" -name '*.java')
  path=$out/classes:$(devx_find_jar):$(cat "$classpath")
  "$JAVAC" -encoding UTF-8 -nowarn -processor org.openjdk.jmh.generators.BenchmarkProcessor -d "$out/classes" -cp "$path" \
    "${sources[@]}"
}

main() {
  local only='' compile='' options=(--add-opens=java.base/java.nio=ALL-UNNAMED "-Ddevexchange.bench.floor=$floor")
  while [ $# -gt 0 ]; do
    case $1 in
      --only) only=${2?"--only needs a text"}; shift 2 ;;
      --compile) compile=yes; shift ;;
      *) break ;;
    esac
  done
  build
  if [ -n "$compile" ]; then return; fi
  # The JVMs that JMH starts inherit the options of its own JVM.
  if devx_version_ge "$(devx_jdk_major "$JAVA_HOME")" 22; then options+=(--enable-native-access=ALL-UNNAMED); fi
  exec "$JAVA" -Xmx1g "${options[@]}" -cp "$path" dev.devexchange.JmhBenches "$only" "$@"
}

main "$@"
