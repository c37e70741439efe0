#!/usr/bin/env bash
# Fetches the peers' libraries, or does nothing if they are there already:
#
#   tests/conformance-arrow/packages.sh DIRECTORY
#
#   DIRECTORY/venv                  the packages of requirements.txt: pyarrow, with Arrow C++ in it
#   DIRECTORY/nanoarrow/include     the headers of nanoarrow's C library
#   DIRECTORY/nanoarrow/*.o         the library, with its CUDA device and its reader of files
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/env.sh"

version=0.9.0

here=$DEVX_ROOT/tests/conformance-arrow
venv=$1/venv
nanoarrow=$1/nanoarrow
pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input -q)

# Everything that determines the result.
inputs() {
  cat "$here"/{requirements.txt,packages.sh}
  "$PYTHON" -VV
  echo "$1"
}

make_venv() {
  rm -rf "$venv"
  "$PYTHON" -m venv "$venv"
  "${pip[@]}" install -r "$here/requirements.txt"
}

# pip asks the build backend of a source distribution for its metadata before downloading it, and nanoarrow's would
# build the whole package to answer. This backend knows the answer.
write_backend() {
  cat <<PYTHON
import os

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(directory, config_settings=None):
    os.mkdir(os.path.join(directory, "nanoarrow-$version.dist-info"))
    with open(os.path.join(directory, "nanoarrow-$version.dist-info", "METADATA"), "w") as metadata:
        metadata.write("Metadata-Version: 2.1\\nName: nanoarrow\\nVersion: $version\\n")
    return "nanoarrow-$version.dist-info"

def build_wheel(directory, config_settings=None, metadata_directory=None):
    raise NotImplementedError("the sources are all that is wanted")
PYTHON
}

# nanoarrow's own script makes one source file of each of its parts.
make_nanoarrow() {
  local source=$nanoarrow/source include=("$venv"/lib/python3*/site-packages/nvidia/cu13/include) found name
  rm -rf "$nanoarrow"
  mkdir -p "$source"
  write_backend >"$source/mesonpy.py"
  PYTHONPATH=$source "${pip[@]}" download --no-deps --no-build-isolation --no-binary nanoarrow -d "$nanoarrow" \
    "nanoarrow==$version"
  found=("$nanoarrow"/nanoarrow-*.tar.gz)
  tar -xzf "${found[0]}" -C "$source" --strip-components=1
  # The script expects the file here; the source distribution has it there.
  found=("$source"/subprojects/flatcc-*/)
  mkdir "$source/subprojects/arrow-nanoarrow/thirdparty"
  ln -s "${found[0]}" "$source/subprojects/arrow-nanoarrow/thirdparty/flatcc"
  "$venv/bin/python" "$source/subprojects/arrow-nanoarrow/ci/scripts/bundle.py" --with-device --with-ipc --with-flatcc \
    --header-namespace '' --symbol-namespace ConformancePeer --source-output-dir "$nanoarrow/src" \
    --include-output-dir "$nanoarrow/include"
  for name in nanoarrow nanoarrow_device nanoarrow_ipc flatcc; do
    "$CC" -std=gnu11 -O0 -DNANOARROW_DEVICE_WITH_CUDA -I"$nanoarrow/include" -I"${include[0]}" -c \
      -o "$nanoarrow/$name.o" "$nanoarrow/src/$name.c"
  done
  rm -rf "$source"
}

wanted=$(inputs "$1" | sha256sum)
if [ "$(cat "$1/made-of" 2>/dev/null)" = "$wanted" ]; then exit; fi
mkdir -p "$1"
make_venv
make_nanoarrow
echo "$wanted" >"$1/made-of"
