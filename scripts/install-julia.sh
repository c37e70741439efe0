#!/usr/bin/env bash
# Installs Julia below .tools/julia and prints the path of its launcher; nothing outside that folder is touched.
#
# Debian's bookworm and trixie have no Julia, bullseye has 1.5.3. So this script downloads bullseye's packages
# (scripts/debian.sh) and unpacks them. Needs apt-get and dpkg-deb, but not root; HOME plays no part.
#
#   scripts/install-julia.sh [PREFIX]       PREFIX: a folder for it alone; default: .tools/julia of the checkout
set -euo pipefail

root=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=scripts/debian.sh
. "$root/scripts/debian.sh"
prefix=$(realpath -m -- "${1:-$root/.tools/julia}")
launcher=$prefix/bin/julia
work=

fail() { echo "install-julia: $*" >&2; exit 1; }

clean_up() { if [ -n "$work" ]; then rm -rf "$work"; fi; }

works() { # LAUNCHER: prints nothing, not even on stderr, and is new enough
  local home said status=0
  home=$(mktemp -d)
  # A library that is missing shows as an "Error during initialization" warning, not as an exit status.
  said=$(HOME=$home JULIA_DEPOT_PATH=$home "$1" --startup-file=no \
    -e 'using Test, Libdl, LinearAlgebra; VERSION >= v"1.5" || exit(3); [1.0 2; 3 4] * [1.0, 1] == [3.0, 7] || exit(4)' \
    2>&1) || status=$?
  rm -rf "$home"
  if [ "$status" -eq 0 ] && [ -z "$said" ]; then return 0; fi
  problem="exit status $status: ${said%%$'\n'*}"
  return 1
}

download() { # MIRROR
  if ! debian_download "$work" "$1" bullseye "$(dpkg --print-architecture)" julia; then
    fail "Debian's mirror offers no Julia ($(grep -m1 '^E:' "$work/apt.out" || echo no reason given)); put any julia >= 1.5 on PATH"
  fi
}

# Unpacks Julia and the libraries it needs, except the C and C++ runtimes: those must be the system's, because what
# Julia loads later (libdevexchange) was linked against them.
unpack() { # INTO
  local deb name
  for deb in "$work"/cache/archives/*.deb; do
    name=${deb##*/}
    case ${name%%_*} in
      libc6 | libc-bin | libgcc-s1 | libstdc++6 | libcrypt1) ;;
      julia | julia-common | lib*) dpkg-deb -x "$deb" "$1" ;;
    esac
  done
}

# Removes the libraries beyond Julia's own ones that the system has too (same soname): the system's are newer, and the
# launcher's library path would otherwise put the old ones first for every program that Julia starts.
drop_what_the_system_has() { # ROOT
  local link soname own
  own=$(find "$1"/usr/lib/*-linux-gnu/julia -type l -printf '%l\n' | sed 's#.*/##')
  for link in "$1"/lib/*-linux-gnu/lib*.so.* "$1"/usr/lib/*-linux-gnu/lib*.so.*; do
    soname=${link##*/}
    if [ ! -L "$link" ] || grep -qxF "$soname" <<<"$own"; then continue; fi
    if compgen -G "/usr/lib/*-linux-gnu/$soname" >/dev/null || compgen -G "/lib/*-linux-gnu/$soname" >/dev/null; then
      rm -f "$(readlink -f "$link")" "$link"
    fi
  done
}

write_launcher() { # PREFIX
  cat >"$1/bin/julia" <<'LAUNCH'
#!/bin/sh
# Written by scripts/install-julia.sh: Debian's Julia with the libraries that came with it.
root=$(dirname "$(dirname "$(readlink -f "$0")")")/root
for dir in "$root"/usr/lib/*-linux-gnu "$root"/usr/lib/*-linux-gnu/julia "$root"/usr/lib/*-linux-gnu/blas \
  "$root"/usr/lib/*-linux-gnu/lapack "$root"/usr/lib/*-linux-gnu/openblas-pthread "$root"/lib/*-linux-gnu; do
  if [ -d "$dir" ]; then LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$dir; fi
done
export LD_LIBRARY_PATH
exec "$root/usr/bin/julia" "$@"
LAUNCH
  chmod +x "$1/bin/julia"
}

main() {
  local problem='' mirror
  if [ -x "$launcher" ] && works "$launcher"; then echo "$launcher"; return; fi
  # The folder is replaced as a whole.
  if [ -n "$(ls -A "$prefix" 2>/dev/null)" ] && ! grep -qs "^# Written by scripts/install-julia.sh" "$launcher"; then
    fail "$prefix is not empty, and what is in it is not from this script"
  fi
  if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then
    fail "no apt-get here to fetch one with; put any julia >= 1.5 on PATH"
  fi
  mirror=$(debian_mirror)
  [ -n "$mirror" ] || fail "no Debian mirror in this machine's apt sources; put any julia >= 1.5 on PATH"

  work=$(mktemp -d)
  trap clean_up EXIT
  echo "install-julia: fetching Debian's Julia 1.5 into $prefix" >&2
  download "$mirror"
  # Unpacked beside its final place and moved there as a whole, so that an interrupted run leaves nothing half done.
  rm -rf "$prefix" "$prefix.new"
  mkdir -p "$prefix.new"/{root,bin}
  unpack "$prefix.new/root"
  drop_what_the_system_has "$prefix.new/root"
  write_launcher "$prefix.new"
  works "$prefix.new/bin/julia" || fail "the unpacked Julia does not work: $problem"
  mv "$prefix.new" "$prefix"
  echo "$launcher"
}

main
