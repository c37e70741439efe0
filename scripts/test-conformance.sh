#!/usr/bin/env bash
# Hands arrays of every Arrow type to other implementations of Arrow and back, and compares them
# (tests/conformance-arrow): Arrow C++, pyarrow, nanoarrow, arrow-rs, Arrow Java.
#
#   scripts/test-conformance.sh        after `make build`; DEVX_BLESS=1 rewrites docs/conformance.md
#
# Prints a matrix for each peer and ends with the line `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"

here=$DEVX_ROOT/tests/conformance-arrow
out=$DEVX_TARGET/conformance-arrow
prefix=$out/prefix
venv=$out/venv
nanoarrow=$out/nanoarrow
corpus=$out/corpus
results=$out/results
# A peer takes only seconds; the limit detects one that hangs.
limit=600

install_ours() {
  rm -rf "$prefix" &&
    make --no-print-directory -C "$DEVX_ROOT" install PREFIX="$prefix" DESTDIR=
}

build_ours() {
  local java=("$JAVA_HOME/include" "$JAVA_HOME/include/linux")
  "$CXX" -std=c++17 -O1 -g -Wall -Wextra -Wpedantic -Werror -fPIC -shared -I"$prefix/include" "${java[@]/#/-isystem}" \
    -o "$out/libours.so" "$here/ours.cpp" "$here/ours_jni.cpp" -L"$prefix/lib" -ldevexchange "-Wl,-rpath,$prefix/lib"
}

build_arrow_cpp() {
  local arrow=("$venv"/lib/python3*/site-packages/pyarrow) libraries
  libraries=("${arrow[0]}"/libarrow.so.*)
  "$CXX" -std=c++20 -O0 -g -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -isystem "${arrow[0]}/include" \
    -o "$out/peer-arrow-cpp" "$here/peer_cpp.cpp" "$out/libours.so" "${libraries[0]}" \
    -L"$prefix/lib" -ldevexchange -ldl "-Wl,-rpath,$out:$prefix/lib:${arrow[0]}"
}

build_nanoarrow() {
  local include=("$venv"/lib/python3*/site-packages/nvidia/cu13/include)
  "$CXX" -std=c++20 -O0 -g -Wall -Wextra -Werror -DNANOARROW_DEVICE_WITH_CUDA -I"$prefix/include" \
    -isystem "$nanoarrow/include" -isystem "${include[0]}" -o "$out/peer-nanoarrow" "$here/peer_nanoarrow.cpp" \
    "$nanoarrow"/*.o "$out/libours.so" -L"$prefix/lib" -ldevexchange -L"$out/simcuda" -lcuda \
    "-Wl,-rpath,$out:$prefix/lib"
}

build_arrow_rs() {
  "$CARGO" build --quiet --locked -p devexchange-conformance-arrow-rs
}

build_arrow_java() {
  "$MVN" -q -B -f "$here/java/pom.xml" -Dconformance.target="$out/java" compile dependency:build-classpath \
    -Dmdep.outputFile="$out/java.classpath" </dev/null
}

write_corpus() {
  rm -rf "$corpus" &&
    "$venv/bin/python" "$here/corpus" "$corpus"
}

prepare() {
  check "the simulated CUDA driver is there" "$DEVX_ROOT/tests/simcuda/driver/place.sh" "$out/simcuda" &&
    check "the packages are there" "$here/packages.sh" "$out" &&
    check "the library is installed" install_ours &&
    check "our side is built" build_ours &&
    check "Arrow C++ is built" build_arrow_cpp &&
    check "nanoarrow is built" build_nanoarrow &&
    check "arrow-rs is built" build_arrow_rs &&
    check "Arrow Java is built" build_arrow_java &&
    check "the corpus is written" write_corpus
}

# results.py judges the peer's output; here only that the peer ends well and that the driver found nothing.
run_peer() { # NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  check "$name runs to its end" in_surroundings "$results/$name.tsv" "$@" || true
  echo "  $((SECONDS - start)) s, $(wc -l <"$results/$name.tsv") exchanges"
}

in_surroundings() { # OUTPUT COMMAND...
  LD_LIBRARY_PATH=$out/simcuda SIMCUDA_FATAL=exit PYTHONDONTWRITEBYTECODE=1 timeout "$limit" "${@:2}" >"$1"
}

main() {
  mkdir -p "$out"
  export PYTHONDONTWRITEBYTECODE=1
  if ! prepare; then report_counts; return; fi
  rm -rf "$results"
  mkdir -p "$results"
  run_peer pyarrow "$venv/bin/python" "$here/peer_pyarrow.py" "$corpus" "$out/libours.so"
  run_peer arrow-cpp "$out/peer-arrow-cpp" "$corpus"
  # nanoarrow frees GPU memory that is still being written to, and relies on a driver that waits.
  SIMCUDA_FREE=waits run_peer nanoarrow "$out/peer-nanoarrow" "$corpus"
  run_peer arrow-rs "$DEVX_TARGET/debug/peer-arrow-rs" "$corpus" "$out/libours.so"
  run_peer arrow-java "$JAVA" -Xmx512m --add-opens=java.base/java.nio=ALL-UNNAMED \
    -cp "$out/java/classes:$(cat "$out/java.classpath")" Peer "$corpus" "$out/libours.so"
  echo
  local doc=(--doc "$DEVX_ROOT/docs/conformance.md") status=0
  if [ -n "${DEVX_BLESS:-}" ]; then doc+=(--bless); fi
  "$venv/bin/python" "$here/results.py" --corpus "$corpus" "${doc[@]}" --before "$tests_passed $tests_failed" \
    "$results"/*.tsv || status=$?
  return "$status"
}

main "$@"
