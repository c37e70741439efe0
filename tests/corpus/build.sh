#!/bin/sh
# Builds the library of the corpus and prints its path. Cargo does nothing if it is up to date.
set -eu
root=$(CDPATH='' cd "$(dirname "$0")/../.." && pwd)
cargo build --quiet --release --manifest-path "$root/Cargo.toml" --package devexchange-corpus --lib >&2
echo "${CARGO_TARGET_DIR:-$root/target}/release/libdevexchange_corpus.so"
