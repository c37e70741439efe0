#!/usr/bin/env bash
# Puts a Julia below .tools/julia and prints the path of its launcher; nothing outside that folder is touched.
#
# Debian's bookworm and trixie carry no Julia, bullseye has 1.5.3. So: fetch bullseye's packages from the mirror
# that this machine's apt already uses, with an apt state of our own, and unpack them (never install them).
# Needs apt-get and dpkg-deb, not root; HOME plays no part.
#
#   scripts/install-julia.sh [PREFIX]       PREFIX: .tools/julia of the checkout
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
prefix=${1:-$root/.tools/julia}
launcher=$prefix/bin/julia
work=

fail() { echo "install-julia: $*" >&2; exit 1; }

clean_up() { if [ -n "$work" ]; then rm -rf "$work"; fi; }

works() { # LAUNCHER: says nothing, also not on stderr, and is new enough
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

# Asked of apt itself, so that deb822 files and one-line files count alike.
# shellcheck disable=SC2016 # $(REPO_URI) is apt's, not the shell's
debian_mirror() {
  apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -E '/debian/?$' | sed -n 1p || true
}

# An apt that knows nothing but bullseye and thinks that nothing is installed.
private_apt() {
  apt-get -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o Dir::State::status="$work/status" \
    -o Dir::Log="$work/log" -o APT::Sandbox::User="$(id -un)" "$@"
}

download() { # MIRROR
  mkdir -p "$work"/{lists/partial,cache/archives/partial,log}
  : >"$work/status"
  local keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -r "$keyring" ] || fail "$keyring is missing; install Debian's package debian-archive-keyring"
  echo "deb [signed-by=$keyring] $1 bullseye main" >"$work/sources.list"
  if ! { private_apt update && private_apt install -y --no-install-recommends --download-only julia; } \
    >"$work/apt.out" 2>&1; then
    fail "Debian's mirror gives no Julia ($(grep -m1 '^E:' "$work/apt.out" || echo no reason)); put any julia >= 1.5 on PATH"
  fi
}

# Julia and the libraries it needs, bar the C and C++ runtimes: those have to be the system's, because what Julia
# loads later (libdevexchange) was linked against them.
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

# Of the libraries behind Julia's own ones, those that the system has too (same soname) go: the system's are newer,
# and the launcher's library path would otherwise put the old ones before every program that Julia starts.
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
  if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then
    fail "no apt-get here to get one with; put any julia >= 1.5 on PATH"
  fi
  mirror=$(debian_mirror)
  [ -n "$mirror" ] || fail "no Debian mirror in this machine's apt sources; put any julia >= 1.5 on PATH"

  work=$(mktemp -d)
  trap clean_up EXIT
  echo "install-julia: fetching Debian's Julia 1.5 into $prefix" >&2
  download "$mirror"
  # Unpacked beside its place and moved there whole, so that an interrupted run leaves nothing half done.
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
