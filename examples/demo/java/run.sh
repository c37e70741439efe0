#!/usr/bin/env bash
# Runs the demo in Java, as built by build.sh.
#
#   examples/demo/java/run.sh OUTDIR DATADIR
#
# DEVX_JAR is the jar of the Java binding. JAVA_HOME is used if it is set.
set -euo pipefail

out=${1:?usage: run.sh OUTDIR DATADIR}
exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" -ea -Xcheck:jni "-Djava.library.path=$out" \
  -cp "$out/classes:${DEVX_JAR:?}" Demo "${2:?usage: run.sh OUTDIR DATADIR}"
