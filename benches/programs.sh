# shellcheck shell=bash
# Builds the programs with benches; sourced by scripts/bench.sh after scripts/env.sh, with benches, out and quick.
#
# Sets `programs`, the programs to measure, and `missing`, the options of run.py that say what is missing here.

: "${benches:?}" "${out:?}" "${JAVA=}" "${DEVX_JDK22=}"

programs=()
missing=()
bin=$out/bin
prefix=$out/prefix
# The Python environment with devexchange and the packages of its peers.
venv=$DEVX_TARGET/python/venv
preloaded=$bin/liballocations.so
not_quick="a quick run builds no such peers"

# `common` is in every C program: the harness and the exchanged data. `floor` is what other languages call.
common=("$benches"/c/{allocations,bench,data,threads}.c)
floor=("$benches"/c/floor/{table,tensor}.c "$benches/c/data.c")
c=(-std=gnu11 -O2 -g -Wall -Wextra -Werror -pthread)

is_missing() { # WHAT WHY
  missing+=(--missing "$1" "$2")
}

# --- C: devexchange and the floor, which are always needed ---

build_c() { # IMPLEMENTATION FLAGS...
  "$CC" "${c[@]}" "-DBENCH_IMPLEMENTATION=\"$1\"" -o "$bin/c-$1" "${common[@]}" "$benches/c/$1"/*.c "${@:2}"
  programs+=("$bin/c-$1")
}

build_ours() {
  if ! PREFIX=$prefix LIBDIR=lib DESTDIR='' "$DEVX_ROOT/scripts/install.sh" install >"$out/install.log" 2>&1; then
    cat "$out/install.log" >&2
    return 1
  fi
  build_c devexchange -I"$prefix/include" -L"$prefix/lib" -ldevexchange "-Wl,-rpath,$prefix/lib"
  build_c floor -I"$prefix/include"
}

# --- peers of C: each is built, or `is_missing` says why not ---

# Prints the directory with nanoarrow's C library as two source files, which nanoarrow's own script bundles. The tests
# with third-party libraries may have made them; otherwise, they are made from the same source distribution. Those of
# another version than the pinned one, made before that changed, are not taken.
nanoarrow_sources() {
  local version directory own=$out/nanoarrow
  version=$(sed -n 's/^nanoarrow=nanoarrow==//p' "$DEVX_ROOT/tests/third-party/venv.sh")
  for directory in "$DEVX_TARGET/third-party/packages/nanoarrow" "$own"; do
    if [ -e "$directory/nanoarrow_device.c" ] &&
      grep -qsxF "#define NANOARROW_VERSION \"$version\"" "$directory/nanoarrow.h"; then
      echo "$directory"
      return
    fi
  done
  [ -z "$quick" ] || return 1
  fetch_nanoarrow "$own" "$version" >"$out/nanoarrow.log" 2>&1 || return 1
  echo "$own"
}

fetch_nanoarrow() { # DIRECTORY VERSION
  local work=$out/nanoarrow-work
  rm -rf "$work" "$1"
  mkdir -p "$work/source"
  "$PYTHON" -m venv "$work/venv" &&
    "$work/venv/bin/python" -m pip --disable-pip-version-check --no-input download -q --no-deps --no-binary nanoarrow \
      -d "$work" "nanoarrow==$2" &&
    tar -xzf "$work"/nanoarrow-*.tar.gz -C "$work/source" --strip-components=1 &&
    "$work/venv/bin/python" "$work/source/subprojects/arrow-nanoarrow/ci/scripts/bundle.py" --with-device \
      --header-namespace '' --symbol-namespace Bench --source-output-dir "$work/bundle" \
      --include-output-dir "$work/bundle" &&
    mv "$work/bundle" "$1" &&
    rm -rf "$work"
}

build_nanoarrow() {
  local sources
  if ! sources=$(nanoarrow_sources); then
    if [ -n "$quick" ]; then is_missing nanoarrow "a quick run downloads nothing"
    else is_missing nanoarrow "its sources could not be had, see $out/nanoarrow.log"; fi
    return
  fi
  build_c nanoarrow -isystem "$sources" "$sources"/nanoarrow{,_device}.c
}

# devexchange and the crates of its peers, with a lock file of their own.
build_rust() {
  local log=$out/rust.log name why="a quick run builds no crates"
  if [ -z "$quick" ]; then
    if CARGO_TARGET_DIR=$out/rust "$CARGO" build --quiet --release --locked \
      --manifest-path "$benches/rust/Cargo.toml" >"$log" 2>&1; then
      for name in devexchange dlpark dlpack-rs arrow-rs; do programs+=("$out/rust/release/rust-$name"); done
      return
    fi
    why="cannot be built, see $log"
  fi
  for name in rust dlpark dlpack-rs arrow-rs; do is_missing "$name" "$why"; done
}

# The headers and the library come from the wheel.
build_tvm_ffi() {
  local log=$out/tvm-ffi.log package source objects=()
  if [ -n "$quick" ]; then is_missing tvm-ffi "$not_quick"; return; fi
  package=("$venv"/lib/python3*/site-packages/tvm_ffi)
  if [ ! -d "${package[0]}/include" ]; then is_missing tvm-ffi "its wheel is not in $venv"; return; fi
  for source in "${common[@]}"; do
    objects+=("$bin/tvm-ffi-$(basename "$source" .c).o")
    "$CC" "${c[@]}" '-DBENCH_IMPLEMENTATION="tvm-ffi"' -c -o "${objects[-1]}" "$source"
  done
  if ! "$CXX" -std=c++17 -O2 -g -Wall -Wextra -Werror -pthread -isystem "${package[0]}/include" -o "$bin/cpp-tvm-ffi" \
    "$benches/cpp/tvm_ffi.cpp" "${objects[@]}" -L"${package[0]}/lib" -ltvm_ffi "-Wl,-rpath,${package[0]}/lib" \
    >"$log" 2>&1; then
    is_missing tvm-ffi "cannot be built, see $log"
    return
  fi
  programs+=("$bin/cpp-tvm-ffi")
}

# --- other languages: devexchange, the floor and the peers in one program, with a library that counts allocations ---

build_library() { # NAME FLAGS...
  "$CC" "${c[@]}" -shared -fPIC -I"$prefix/include" -o "$bin/$1" "${@:2}"
}

# The loader takes a space in LD_PRELOAD for the end of a name, so it gets the directory separately.
add_launcher() { # LANGUAGE VARIABLES AND COMMAND...
  # shellcheck disable=SC2016 # the launcher expands it
  printf '#!/usr/bin/env bash\nexport LD_LIBRARY_PATH=%q${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\nexec env LD_PRELOAD=%q' \
    "$bin" "${preloaded##*/}" >"$bin/$1"
  printf ' %q' "${@:2}" >>"$bin/$1"
  # shellcheck disable=SC2016 # the launcher expands it
  printf ' "$@"\n' >>"$bin/$1"
  chmod +x "$bin/$1"
  programs+=("$bin/$1")
}

build_python() {
  local include operation log=$out/python.log torch
  if [ -z "$quick" ] && ! "$DEVX_ROOT/scripts/build-python.sh" >"$log" 2>&1; then
    is_missing python "the wheel could not be built, see $log"
    return
  fi
  if ! "$venv/bin/python" -c 'import devexchange' 2>/dev/null; then
    is_missing python "the wheel is not installed, see scripts/build-python.sh"
    return
  fi
  include=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  if [ ! -e "$include/Python.h" ]; then is_missing python "there is no $include/Python.h"; return; fi
  build_library floor.so -isystem "$include" "$benches/python/floor.c" "${floor[@]}"
  # `make test-torch` installs PyTorch into another environment of the same interpreter, which is searched after
  # everything else.
  torch=("$DEVX_TARGET"/python/torch/venv/lib/python3*/site-packages)
  add_launcher python PYTHONPATH="$bin" BENCH_PACKAGES="${torch[0]}" "$venv/bin/python" "$benches/python/bench.py"
  if [ -d "${torch[0]}/torch" ] || "$venv/bin/python" -c 'import torch' 2>/dev/null; then return; fi
  for operation in torch-in torch-out torch-to; do
    is_missing "python/$operation" "PyTorch is not there; make test-torch installs it"
  done
}

# Compiles the benches of Arrow Java, in the version of the conformance test.
arrow_java_classes() { # DIRECTORY
  local files=$out/arrow-java.classpath
  [ -n "$MVN" ] &&
    "$MVN" -q -B -f "$DEVX_ROOT/tests/conformance-arrow/java/pom.xml" dependency:build-classpath \
      -Dmdep.outputFile="$files" </dev/null &&
    "$JAVAC" -encoding UTF-8 -nowarn -d "$1" -cp "$1:$(cat "$files")" "$benches"/java/arrow-java/dev/devexchange/*.java
}

build_java() {
  local classes=$out/java log=$out/java.log path sources
  if [ -z "$JAVAC" ]; then
    is_missing java "no JDK"
    is_missing java-22 "no JDK"
    return
  fi
  rm -rf "$classes"
  mkdir -p "$classes"
  mapfile -t sources < <(find "$DEVX_ROOT/bindings-jni/java/src/main/java/dev" "$benches/java/src" -name '*.java')
  if ! "$JAVAC" -encoding UTF-8 -nowarn -d "$classes" "${sources[@]}" >"$log" 2>&1; then
    is_missing java "cannot be compiled, see $log"
    is_missing java-22 "cannot be compiled, see $log"
    return
  fi
  path=$classes
  if [ -n "$quick" ]; then is_missing arrow-java "$not_quick"
  elif arrow_java_classes "$classes" >"$log" 2>&1; then path+=:$(cat "$out/arrow-java.classpath")
  else is_missing arrow-java "could not be had, see $log"; fi
  build_library libfloor-java.so -I"$JAVA_HOME/include" -I"$JAVA_HOME/include/linux" "$benches/java/floor.c" \
    "${floor[@]}"
  add_java java "$JAVA" "$path" -Ddevexchange.backend=jni
  build_java_22 "$path"
}

# The same benches on a newer JVM, where devexchange calls foreign functions instead of JNI.
build_java_22() { # CLASS PATH
  local classes=$out/java-22 log=$out/java-22.log
  if [ -z "$DEVX_JDK22" ]; then is_missing java-22 "no JDK of 22 or newer"; return; fi
  rm -rf "$classes"
  mkdir -p "$classes"
  if ! "$DEVX_JDK22/bin/javac" -encoding UTF-8 -nowarn --release 22 -d "$classes" -cp "$1" \
    "$DEVX_ROOT"/bindings-jni/java/src/main/java22/dev/devexchange/*.java >"$log" 2>&1; then
    is_missing java-22 "cannot be compiled, see $log"
    return
  fi
  add_java java-22 "$DEVX_JDK22/bin/java" "$classes:$1" -Ddevexchange.backend=ffm --enable-native-access=ALL-UNNAMED
}

add_java() { # LANGUAGE JAVA CLASS-PATH OPTIONS...
  add_launcher "$1" "$2" -Xmx1g --add-opens=java.base/java.nio=ALL-UNNAMED \
    -Ddevexchange.library.path="$DEVX_LIBDIR" "${@:4}" -cp "$3" dev.devexchange.Benches "$1" "$bin"
}

build_julia() {
  if [ -z "$JULIA" ]; then is_missing julia "no Julia"; return; fi
  build_library libfloor-julia.so "$benches/julia/floor.c" "${floor[@]}"
  add_launcher julia DEVEXCHANGE_LIBRARY_DIR="$DEVX_LIBDIR" "$JULIA" --startup-file=no \
    --project="$DEVX_ROOT/bindings-julia/DevExchange.jl" "$benches/julia/bench.jl" "$bin/libfloor-julia.so"
}

build_programs() {
  mkdir -p "$bin"
  "$DEVX_ROOT/scripts/build.sh" --quiet
  build_ours
  "$CC" "${c[@]}" -shared -fPIC -o "$preloaded" "$benches/c/allocations.c"
  build_python
  build_nanoarrow
  build_rust
  build_tvm_ffi
  build_java
  build_julia
}
