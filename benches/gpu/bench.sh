#!/usr/bin/env bash
# Measures what exchanges cost on this machine's GPU, with the programs in ../bin (docs/gpu.md):
#
#   bench.sh [--quick] [--only TEXT] [--results DIRECTORY] [--record FILE] [--simulated]
#
# --quick only checks that everything runs; --only runs the operations with this text in their name.
# --record writes device, driver, date and the table to FILE; it is allowed only for a full run on a GPU.
# --simulated is a quick rehearsal on the simulated driver in ../sim.
#
# Writes gpu.json, gpu-quick.json or gpu-simulated.json to DIRECTORY (default: that of this script). It needs only
# Python 3. If Python has an rmm that works, that is a peer. Exit status 3 means that there is no GPU; the reason is printed.
set -euo pipefail

here=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${here%/*}
python=${PYTHON:-python3}
directory=$here
record=
quick=
options=()

usage() {
  echo "usage: ${0##*/} [--quick] [--only TEXT] [--results DIRECTORY] [--record FILE] [--simulated]" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=yes ;;
    --only) [ $# -gt 1 ] || usage; options+=(--only "$2"); shift ;;
    --results) [ $# -gt 1 ] || usage; directory=$2; shift ;;
    --record) [ $# -gt 1 ] || usage; record=$2; shift ;;
    --simulated)
      quick=yes
      export LD_LIBRARY_PATH=$root/sim
      # One GPU; a race or a use after free makes a program fail; queued work finishes soon.
      export SIMCUDA_MODE=threads SIMCUDA_DEVICES=1 SIMCUDA_FATAL=exit SIMCUDA_DELAY_US=1 SIMCUDA_POISON=0
      ;;
    *) usage ;;
  esac
  shift
done

about=$("$root/bin/gpu-peer" about)
file=gpu
case $about in
  SIMULATED*) file=gpu-simulated ;;
  *) if [ -n "$quick" ]; then file=gpu-quick; fi ;;
esac
if [ -n "$quick" ]; then options+=(--quick); fi
if [ -n "$record" ] && { [ "$file" != gpu ] || [ ${#options[@]} -gt 0 ]; }; then
  echo "gpu-bench: only a full run on a GPU is recorded" >&2
  exit 2
fi

mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
programs=("$root/bin/gpu-bench")
# An rmm that can be imported need not work with the driver, or have the same functions.
if why=$(printf 'memory/pool/4096\trmm\t1\n' | "$python" -B "$here/rmm_pool.py" 2>&1); then
  printf '#!/bin/sh\nexec %q %q "$@"\n' "$python" "$here/rmm_pool.py" >"$directory/rmm-pool"
  chmod +x "$directory/rmm-pool"
  programs+=("$directory/rmm-pool")
else
  options+=(--missing rmm "${why##*$'\n'}")
fi

# Not every machine lets processes share device memory. If this one does not, the rest is still measured.
ipc='ipc/first-import\tfloor\t1\nipc/import-again\tdevexchange\t1\n'
# shellcheck disable=SC2059 # $ipc is a format
if ! why=$(printf "$ipc" | "$root/bin/gpu-bench" 2>&1); then options+=(--missing ipc "${why##*$'\n'}"); fi

run() {
  echo "$about"
  "$python" -B "$here/run.py" --times-only --operations "$here/operations.tsv" --results "$directory/$file.json" \
    "${options[@]}" "${programs[@]}"
}

if [ -n "$record" ]; then run | tee "$record"; else run; fi
