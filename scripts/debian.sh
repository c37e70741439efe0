# shellcheck shell=bash
# Downloads Debian's packages without installing them (sourced). They come from the mirror that this machine's apt
# already uses, through an apt that sees nothing as installed. Needs apt-get, but not root.

# Prints nothing if there is no mirror. Asks apt itself, so that deb822 files and one-line files are both covered.
debian_mirror() {
  apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -E '/debian/?$' | sed -n 1p || true
}

# Downloads packages, and all that they need, into WORK/cache/archives. If that fails, WORK/apt.out says why.
debian_download() { # WORK MIRROR SUITE ARCHITECTURE PACKAGE...
  local work=$1 keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  mkdir -p "$work"/{lists/partial,cache/archives/partial,log}
  : >"$work/status"
  if [ ! -r "$keyring" ]; then
    echo "E: $keyring is missing; install Debian's package debian-archive-keyring" >"$work/apt.out"
    return 1
  fi
  echo "deb [arch=$4 signed-by=$keyring] $2 $3 main" >"$work/sources.list"
  local apt=(apt-get -q -o "APT::Architecture=$4" -o "APT::Architectures::=$4"
    -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$work/lists"
    -o Dir::Cache="$work/cache" -o Dir::State::status="$work/status" -o Dir::Log="$work/log"
    -o APT::Sandbox::User="$(id -un)")
  { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends --download-only "${@:5}"; } >"$work/apt.out" 2>&1
}
