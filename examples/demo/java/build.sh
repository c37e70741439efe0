#!/usr/bin/env bash
# Builds the demo in Java: the program and the JNI shim over libweather.
#
#   examples/demo/java/build.sh OUTDIR
#
# DEVX_PREFIX is where devexchange is installed, DEVX_JAR the jar of the Java binding, and DEVX_WEATHER the path of
# libweather.so. JAVA_HOME and CC are used if they are set.
set -euo pipefail

here=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
out=${1:?usage: build.sh OUTDIR}
weather=$(CDPATH='' cd "$(dirname "${DEVX_WEATHER:?}")" && pwd -P)
javac=${JAVA_HOME:+$JAVA_HOME/bin/}javac
# The JDK with jni.h; javac on PATH may be a link into it.
jdk=${JAVA_HOME:-$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")}

rm -rf "$out/classes" "$out/libweather_jni.so"
mkdir -p "$out/classes"
"$javac" -encoding UTF-8 --release 17 -Xlint:all -Werror -cp "${DEVX_JAR:?}" -d "$out/classes" -h "$out/classes" \
  "$here/Demo.java" "$here/Weather.java"

words=$(PKG_CONFIG_PATH=${DEVX_PREFIX:?}/lib/pkgconfig pkg-config --cflags --libs devexchange)
eval "flags=($words)" # pkg-config quotes them for a shell
"${CC:-cc}" -std=c11 -O2 -g -Wall -Wextra -Wpedantic -Werror -fPIC -shared -o "$out/libweather_jni.so" \
  "$here/weather_jni.c" -I"$out/classes" -I"$jdk/include" -I"$jdk/include/linux" -I"$here/../producer" \
  -L"$weather" -lweather "${flags[@]}" "-Wl,-rpath,$weather" "-Wl,-rpath,$DEVX_PREFIX/lib"
