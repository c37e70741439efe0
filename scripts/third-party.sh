#!/usr/bin/env bash
# LICENSE-THIRD-PARTY: the other people's code that is in the distributed libraries, and its licences.
#
#   scripts/third-party.sh            rewrites it, from Cargo.lock and the sources of the crates
#   scripts/third-party.sh --check    checks that it names the crates that are in Cargo.lock now (`make lint`)
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
export LC_ALL=C

file=$DEVX_ROOT/LICENSE-THIRD-PARTY
shipped=(devexchange-c devexchange-jni devexchange-julia devexchange-python)

# Lists NAME VERSION LICENCE, one crate per line, for everything that is linked into one of the libraries: no macros, no
# build scripts.
list_crates() {
  local name
  for name in "${shipped[@]}"; do
    "$CARGO" tree --quiet --color never --locked -p "$name" --edges normal,no-proc-macro --target "$DEVX_TRIPLE" \
      --prefix none --format '{p}|{l}'
  done | sed -E '/^devexchange-/d; s/ \(\*\)$//; s/^([^ ]+) v([^ |]+)[^|]*\|/\1 \2 /' | sort -u
}

aligned() { awk '{ name = $1 " " $2; $1 = $2 = ""; sub(/^ +/, ""); printf "  %-30s %s\n", name, $0 }'; }

# The crates that can be used under the Apache License alone, whose text is included anyway, or the other crates.
offering_apache() { # yes|no
  awk -v wanted="$1" '{ offers = / \(?Apache-2\.0( |$)| OR Apache-2\.0\)?( |$)/ && !/ AND / ? "yes" : "no" } offers == wanted'
}

# The directory of a crate's sources, wherever cargo keeps them.
sources_of() { # NAME VERSION
  local manifest
  manifest=$(grep -oE "\"[^\"]*/$1(-$2)?/Cargo\.toml\"" <<<"$metadata" | sed -n 1p | tr -d '"')
  dirname "$manifest"
}

text_of() { # NAME VERSION
  local directory name
  directory=$(sources_of "$1" "$2")
  for name in LICENSE-MIT LICENSE LICENSE.md LICENSE.txt COPYING; do
    if [ -e "$directory/$name" ]; then sed -E 's/[[:space:]]+$//' "$directory/$name"; return; fi
  done
  echo "third-party: no licence in $directory" >&2
  return 1
}

write() {
  local name version
  metadata=$("$CARGO" metadata --quiet --locked --format-version 1)
  cat <<'TEXT'
Third-party code in the libraries of devexchange
================================================

The libraries for C, Java, Julia and Python are linked with Rust's standard library (MIT OR Apache-2.0; its tables of
characters Unicode-3.0) and what it brings of LLVM's compiler-rt (Apache-2.0 WITH LLVM-exception), those that `make dist`
makes also with LLVM's libunwind (the same), and with these crates, not each with all of them. What may be used under the
Apache License, version 2.0, is; its text is that of LICENSE-APACHE:

TEXT
  offering_apache yes <<<"$crates" | aligned
  printf '\nThe others are used under these licences:\n\n'
  offering_apache no <<<"$crates" | aligned
  while read -r name version _; do
    heading "$name $version"
    text_of "$name" "$version"
  done < <(offering_apache no <<<"$crates")
  heading "the tables of characters in Rust's standard library"
  cat "$("$RUSTC" --print sysroot)/share/doc/rust/licenses/Unicode-3.0.txt"
}

heading() { printf '\n%s\n%s\n\n' "------------------------------------------------------------------------" "$1"; } # WHAT

crates=$(list_crates)
case ${1:-} in
  '')
    write >"$file.new"
    mv "$file.new" "$file"
    ;;
  --check)
    if ! diff <(aligned <<<"$crates") <(grep -E '^  [^ ]+ [0-9]+\.' "$file" | sort); then
      echo "third-party: $file does not match Cargo.lock; scripts/third-party.sh rewrites it" >&2
      exit 1
    fi
    ;;
  *) echo "third-party: the only option is --check" >&2; exit 1 ;;
esac
