#!/usr/bin/env bash
# Runs the CUDA part of the tests on the GPU of this machine (`make gpu-test`): makes the bundle if cargo is there, or
# else uses the one that was copied here, and runs it. The arguments are those of scripts/gpu-run.sh. The output stays
# in TARGET/gpu-results, where the next bundle leaves it alone.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

run=$DEVX_TARGET/gpu-bundle/run.sh
if [ -n "$CARGO" ]; then
  "$DEVX_ROOT/scripts/setup.sh" --quiet rust python
  "$DEVX_ROOT/scripts/gpu-bundle.sh"
elif [ ! -x "$run" ]; then
  echo "gpu-test: no cargo here, and no bundle in ${run%/*}; 'make gpu-bundle' makes one elsewhere" >&2
  exit 1
fi
exec "$run" --results "$DEVX_TARGET/gpu-results" "$@"
