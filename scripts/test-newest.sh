#!/usr/bin/env bash
# Tests with the newest compilers, JDK and Pythons (`make test-newest`): those of Debian's unstable suite, with its glibc,
# valgrind, CMake and Maven, in a root directory of their own below the target directory. Not part of `make test`.
#
#   scripts/test-newest.sh [SUITE...]         suites of scripts/test.sh; default: rust c java python
#   DEBIAN=testing scripts/test-newest.sh …   another of Debian's suites
#
# `python` is run with each Python that is there; one for which the tests' packages have no wheels yet is skipped.
#
# Needs root, for chroot, debootstrap, and Rust from rustup. That toolchain, what Cargo and Maven have downloaded, and the
# trusted certificates are this machine's. Remove target/newest-SUITE to have the packages of today.
#
# Ends with the line `counts: N passed, N failed, N skipped`.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/debian.sh
. "$DEVX_ROOT/scripts/debian.sh"
# shellcheck source=scripts/report.sh
. "$DEVX_ROOT/scripts/report.sh"

fail() { echo "test-newest: $*" >&2; exit 1; }

debian=${DEBIAN:-sid}
root=$DEVX_TARGET/newest-$debian
tree=/devexchange # in the root, like the next ones
rust=/opt/rust
path=$rust/bin:/usr/sbin:/usr/bin:/sbin:/bin
toolchain=$("$RUSTC" --print sysroot)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
packages=(ca-certificates cmake file g++ git make maven ninja-build pkg-config procps unzip valgrind xz-utils)
suites=("$@")
if [ $# -eq 0 ]; then suites=(rust c java python); fi

# What of this machine is in the root: a directory here, and its place there. Nothing while packages are installed, whose
# scripts would change it.
places=()

# Runs a command in ROOT. Its mounts are seen by nobody else, and end with it.
inside() { # ROOT COMMAND...
  # shellcheck disable=SC2016 # expanded by the inner shell
  unshare --mount --propagation private bash -euc '
    root=$1 count=$2 path=$3
    shift 3
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    for ((; count > 0; count--)); do
      mount --bind "$1" "$root$2"
      shift 2
    done
    exec chroot "$root" env -i HOME=/root LANG=C.UTF-8 PATH="$path" DEBIAN_FRONTEND=noninteractive \
      JAVA_HOME="${JAVA_HOME:-}" PYTHON="${PYTHON:-}" "$@"' \
    inside "$1" $((${#places[@]} / 2)) "$path" "${places[@]}" "${@:2}"
}

# Names of packages in ROOT that match, the newest last.
matching() { # ROOT PATTERN
  inside "$1" apt-cache pkgnames | grep -xE "$2" | sort -V || true
}

# Made beside its final place and moved there, so that an interrupted run leaves nothing half done.
make_root() {
  local mirror more
  if [ -d "$root" ]; then return; fi
  mirror=$(debian_mirror)
  [ -n "$mirror" ] || fail "there is no Debian mirror in this machine's apt sources"
  echo "test-newest: fetching Debian's $debian into $root" >&2
  rm -rf "$root.new"
  debootstrap --variant=minbase "$debian" "$root.new" "$mirror" >"$root.log" 2>&1 ||
    fail "debootstrap failed; $root.log says why"
  mkdir -p "$root.new"{$rust,$tree,/root/.cargo,/root/.m2}
  more=$(matching "$root.new" 'openjdk-[0-9]+-jdk-headless' | tail -n 1; matching "$root.new" 'python3\.[0-9]+-venv')
  # shellcheck disable=SC2086 # each word is a package
  inside "$root.new" apt-get install -q -y --no-install-recommends "${packages[@]}" $more >>"$root.log" 2>&1 ||
    fail "Debian's packages could not be installed; $root.log says why"
  mv "$root.new" "$root"
}

# Lets programs in the root reach what programs here can reach. Never through a link in the root, which could lead out of it.
copy_settings() {
  local file
  for file in /etc/resolv.conf /etc/pip.conf /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/java/cacerts; do
    if [ -e "$file" ]; then cp -L --remove-destination "$file" "$root$file"; fi
  done
}

# What git knows or would add. Files keep their times, and what was built stays, so that only changes are built again.
copy_tree() {
  find "$root$tree" -mindepth 1 -maxdepth 1 ! -name target ! -name .tools -exec rm -rf {} +
  git -C "$DEVX_ROOT" ls-files -z --cached --others --exclude-standard --deduplicate |
    tar -C "$DEVX_ROOT" --null --ignore-failed-read -T - -cf - 2>/dev/null | tar -C "$root$tree" -xf -
}

run_suite() { # NAME COMMAND...
  local log=$DEVX_TARGET/newest-$1.log status=0
  echo "--- $1"
  # The counts of scripts/test.sh have nothing in front.
  inside "$root" "${@:2}" 2>&1 | sed -uE 's/^([0-9]+ passed, [0-9]+ failed, [0-9]+ skipped)$/counts: \1/' |
    tee "$log" || status=$?
  add_counts "$1" "$status" "$log"
}

has_wheels() { # PYTHON
  inside "$root" sh -c "$1 -m venv /tmp/probe && /tmp/probe/bin/pip -q install --dry-run --only-binary :all: \
    -r $tree/bindings-python/tests/requirements.txt" >"$DEVX_TARGET/newest-$1-wheels.log" 2>&1
}

test_python() {
  local python
  for python in $(cd "$root/usr/bin" && printf '%s\n' python3.[0-9]* | grep -xE 'python3\.[0-9]+' | sort -V); do
    if has_wheels "$python"; then
      PYTHON=$python run_suite "$python" "$tree/scripts/test-python.sh"
    else
      skipped "$python" "the packages of its tests have no wheels for it"
    fi
  done
}

[ "$(id -u)" = 0 ] || fail "only root can run chroot"
command -v debootstrap >/dev/null || fail "debootstrap is missing: install Debian's package debootstrap"
[ "$toolchain" != /usr ] || fail "this Rust is a part of the system; one of rustup is needed"
make_root
copy_settings
copy_tree
mkdir -p "$HOME/.m2"
places=("$toolchain" "$rust" "$cargo_home" /root/.cargo "$HOME/.m2" /root/.m2)
JAVA_HOME=$(cd "$root" && printf '/%s\n' usr/lib/jvm/java-*-openjdk-* | grep -v '/java-1\.' | sort -V | tail -n 1)
export JAVA_HOME
# shellcheck disable=SC2016 # expanded in the root
inside "$root" sh -c 'ldd --version; gcc --version; cmake --version; valgrind --version; "$JAVA_HOME/bin/java" --version
  mvn --version' 2>&1 | sed 's/\x1b\[[0-9;]*m//g' | grep -E '^(ldd|gcc|cmake|valgrind|openjdk|Apache Maven)' || true
for suite in "${suites[@]}"; do
  if [ "$suite" = python ]; then test_python; else run_suite "$suite" "$tree/scripts/test.sh" "$suite"; fi
done
report_counts
