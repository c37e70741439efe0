#!/usr/bin/env bash
# devexchange against its peers and against the least that can be done (`make bench`, docs/bench.md):
#
#   scripts/bench.sh [--quick] [--record WHERE] [--only TEXT]
#
# --quick only checks that everything builds and runs; its figures mean nothing. It downloads nothing, and uses only
#   what is there already: of the peers nanoarrow's sources, of Python the wheel and the packages beside it.
# --record writes the picture and the tables in README.md and docs/bench.md from this run; WHERE names the machine. It
#   is refused if a language or a peer is missing.
# --only runs the operations with this text in their name.
#
# Builds the programs (benches/programs.sh), prints a table, and writes target/bench/results.json (quick.json) and
# target/bench/bench.svg.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

benches=$DEVX_ROOT/benches
out=$DEVX_TARGET/bench
quick=
record=
results=$out/results.json

# shellcheck source=benches/programs.sh
. "$benches/programs.sh"

main() {
  local options=()
  while [ $# -gt 0 ]; do
    case $1 in
      --quick) quick=yes results=$out/quick.json options+=(--quick); shift ;;
      --record) record=${2?"--record needs the name of the machine"}; shift 2 ;;
      --only) options+=(--only "${2?"--only needs a text"}"); shift 2 ;;
      *) echo "bench: unknown option '$1'" >&2; exit 2 ;;
    esac
  done
  if [ -n "$record" ] && [ ${#options[@]} -gt 0 ]; then
    echo "bench: only a full run is recorded" >&2
    exit 2
  fi

  build_programs
  # Otherwise the tables would lose the rows of what is not here.
  if [ -n "$record" ] && [ ${#missing[@]} -gt 0 ]; then
    { echo "bench: not recorded, because this is not here:" && printf '%.0s  %s: %s\n' "${missing[@]}"; } >&2
    exit 1
  fi
  "$PYTHON" "$benches/run.py" --results "$results" "${options[@]}" "${missing[@]}" "${programs[@]}"
  if [ ${#options[@]} -eq 0 ]; then
    "$PYTHON" "$benches/picture.py" "$results" "$out/bench.svg"
    echo "picture in $out/bench.svg"
  fi
  if [ -n "$record" ]; then
    cp "$out/bench.svg" "$DEVX_ROOT/docs/bench.svg"
    "$PYTHON" "$benches/record.py" "$results" "$record" "$DEVX_ROOT/README.md" "$DEVX_ROOT/docs/bench.md"
  fi
}

main "$@"
