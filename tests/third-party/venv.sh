#!/usr/bin/env bash
# Makes the virtual environment for these tests, or does nothing if it exists already:
#
#   tests/third-party/venv.sh DIRECTORY DRIVER
#
#   DIRECTORY/venv        the packages of requirements.txt, and nanoarrow
#   DIRECTORY/nanoarrow   the sources of nanoarrow's C library, as nanoarrow bundles them
#   DRIVER                the directory of a libcuda.so to link with
#
# nanoarrow's wheels on the package index are built without CUDA, and its Meson files leave the CUDA part out. So this
# script builds it from its source distribution and adds that part.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/env.sh"

nanoarrow=nanoarrow==0.9.0

here=$DEVX_ROOT/tests/third-party
out=$1
driver=$2
venv=$out/venv
source=$out/source
pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input)

# Everything that the environment depends on: if it changes, the environment is made again.
inputs() {
  cat "$here"/{requirements.txt,venv.sh}
  "$PYTHON" -VV
  echo "$venv"
}

unpack() {
  local archives
  "${pip[@]}" download -q --no-deps --no-build-isolation --no-binary nanoarrow -d "$out" "$nanoarrow"
  archives=("$out"/nanoarrow-*.tar.gz)
  mkdir -p "$source"
  tar -xzf "${archives[0]}" -C "$source" --strip-components=1
}

# The Meson files have an option for CUDA, but only print a warning for it. The reader of IPC files is left out: the tests do
# not need it, and it requires three more libraries.
choose_parts() {
  local meson=$source/src/nanoarrow/meson.build device=$source/subprojects/arrow-nanoarrow/meson.build
  sed -i "s|warning('cuda option enabled but not implemented in Meson config!')|\
device_srcs += 'src/nanoarrow/device/cuda.c'\n\
        device_deps += meson.get_compiler('c').find_library('cuda')|" "$device"
  sed -i "/'_ipc_lib.pyx'/d; /^\(flatcc\|zstd\|lz4\|nanoarrow_ipc\)_dep = /d" "$meson"
  if ! grep -q 'device/cuda.c' "$device" || grep -q '^zstd_dep' "$meson"; then
    echo "the meson.build of $nanoarrow is not what this script expects" >&2
    return 1
  fi
}

build_package() {
  local includes part options=(-Csetup-args=-Doptimization=0 -Csetup-args=-Darrow-nanoarrow:cuda=enabled)
  for part in ipc ipc_with_zstd ipc_with_lz4; do options+=("-Csetup-args=-Darrow-nanoarrow:$part=disabled"); done
  includes=("$venv"/lib/python3*/site-packages/nvidia/cu13/include)
  CFLAGS=-DNANOARROW_DEVICE_WITH_CUDA CPATH=${includes[0]} LIBRARY_PATH=$driver \
    "${pip[@]}" wheel -q --no-deps --no-build-isolation -w "$out" "${options[@]}" "$source"
  "${pip[@]}" install -q --no-deps --no-index "$out"/nanoarrow-*.whl
}

bundle_sources() {
  "$venv/bin/python" "$source/subprojects/arrow-nanoarrow/ci/scripts/bundle.py" --with-device --header-namespace '' \
    --symbol-namespace ThirdParty --source-output-dir "$out/nanoarrow" --include-output-dir "$out/nanoarrow"
}

wanted=$(inputs | sha256sum)
if [ "$(cat "$out/inputs" 2>/dev/null)" = "$wanted" ]; then exit; fi
rm -rf "$out"
mkdir -p "$out/nanoarrow"
"$PYTHON" -m venv "$venv"
"${pip[@]}" install -q -r "$here/requirements.txt"
export PATH=$venv/bin:$PATH # for meson and what it calls
unpack
choose_parts
build_package
bundle_sources
rm -rf "$source" "$out"/nanoarrow-*
echo "$wanted" >"$out/inputs"
