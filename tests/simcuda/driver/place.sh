#!/bin/sh
# Builds the simulated CUDA driver and places it under both names that clients look for.
# Usage: place.sh DIRECTORY [VERSION]; then set LD_LIBRARY_PATH=DIRECTORY for a test, and only for that.
set -eu
[ $# -ge 1 ] || { echo "usage: $0 DIRECTORY [11080|12020|12090|13000]" >&2; exit 2; }
manifest=$(CDPATH='' cd "$(dirname "$0")" && pwd)/Cargo.toml
exec cargo run --quiet --manifest-path "$manifest" --bin simcuda-place -- "$@"
