#!/usr/bin/env bash
# `make install` and `make uninstall`: libdevexchange for programs outside this tree.
#
#   PREFIX=/usr/local [LIBDIR=lib] [DESTDIR=/stage] [STATIC_TLS=no] scripts/install.sh install|uninstall
#
# LIBDIR is below PREFIX: lib, lib64, lib/x86_64-linux-gnu, or PREFIX followed by one of these. The installed tree in
# PREFIX can be moved as a whole.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

major=${DEVX_VERSION%%.*}
minor=${DEVX_VERSION#*.}
minor=${minor%%.*}
real_name=libdevexchange.so.$DEVX_VERSION
packaging=$DEVX_ROOT/bindings-c/packaging
headers=$DEVX_ROOT/bindings-c/include
licenses=(LICENSE-MIT LICENSE-APACHE LICENSE-THIRD-PARTY)

fail() { echo "install: $*" >&2; exit 1; }

read_settings() {
  local below
  prefix=${PREFIX:-/usr/local}
  libdir=${LIBDIR:-lib}
  case $prefix in
    /*) ;;
    *)
      [ -z "${DESTDIR:-}" ] || fail "with DESTDIR, PREFIX has to be absolute: $prefix"
      prefix=$DEVX_ROOT/$prefix
      ;;
  esac
  # Without `.` and double slashes, so that way_up can count the folders.
  prefix=$(realpath -ms -- "$prefix")
  below=${prefix%/}/
  case $libdir in /*) ;; *) libdir=$below$libdir ;; esac
  libdir=$(realpath -ms -- "$libdir")
  case $libdir in
    "$below"?*) libdir=${libdir#"$below"} ;;
    *) fail "LIBDIR is ${LIBDIR:-}: it must be below PREFIX, which is $prefix; for example LIBDIR=lib64" ;;
  esac
  case $libdir in
    *[!A-Za-z0-9._/+-]*) fail "LIBDIR is $libdir: it may have letters, digits and any of . _ / + -" ;;
  esac
  to=${DESTDIR:-}$prefix
}

list_headers() { (cd "$headers" && find . -type f \( -name '*.h' -o -name '*.hpp' \) | sed 's#^\./##' | sort); }

# Every file that an install leaves below PREFIX, except headers.
list_products() {
  printf "$libdir/%s\n" "$real_name" "$DEVX_SONAME" libdevexchange.so libdevexchange.a \
    pkgconfig/devexchange.pc cmake/devexchange/devexchange-config.cmake \
    cmake/devexchange/devexchange-config-version.cmake
  printf 'share/doc/devexchange/%s\n' "${licenses[@]}"
}

# The C compiler links libc and its own runtime by itself, and knows which variant to use: with -lgcc_s in the list,
# `cc -static` could not link.
native_libs() {
  tr -s ' \n' '\n' <"$DEVX_LIBDIR/libdevexchange.native-libs" | sed -E '/^(-lgcc_s|-lc)?$/d' | paste -sd ' '
}

way_up() { # FOLDER BELOW PREFIX: the way back to PREFIX
  sed -E 's#[^/]+#..#g' <<<"$1"
}

fill_in() { # TEMPLATE SEPARATOR OUTPUT
  local libs
  libs=$(native_libs)
  sed -e "s#@VERSION@#$DEVX_VERSION#g" -e "s#@MAJOR@#$major#g" -e "s#@MINOR@#$minor#g" -e "s#@LIBDIR@#$libdir#g" \
    -e "s#@SONAME@#$DEVX_SONAME#g" \
    -e "s#@PREFIX_FROM_PKGCONFIG@#$(way_up "$libdir/pkgconfig")#g" \
    -e "s#@PREFIX_FROM_CMAKE@#$(way_up "$libdir/cmake/devexchange")#g" \
    -e "s#@NATIVE_LIBS@#${libs// /$2}#g" "$1" >"$3"
}

# `sudo make install` often has no cargo, or cannot write to the checkout; it then uses what `make build` left.
build_if_possible() {
  local why="no cargo here to build it"
  if [ -n "$CARGO" ]; then
    if { mkdir -p "$DEVX_LIBDIR" && [ -w "$DEVX_LIBDIR" ]; } 2>/dev/null; then
      "$DEVX_ROOT/scripts/build.sh" c
      return
    fi
    why="cannot write to $DEVX_LIBDIR to build it"
  fi
  if [ ! -e "$DEVX_LIB_C" ] || [ ! -e "$DEVX_LIBDIR/libdevexchange.native-libs" ]; then
    fail "no library built yet and $why; run 'make build' as the user who can"
  fi
  if [ "${STATIC_TLS:-yes}" != yes ] && ! without_static_tls; then
    fail "the library built here uses static TLS; $why without; run 'make build STATIC_TLS=no' as the user who can"
  fi
}

without_static_tls() {
  local flags
  flags=$(readelf -d "$DEVX_LIB_C") && ! grep -q STATIC_TLS <<<"$flags"
}

install_all() {
  umask 022 # installed files are for everybody; an existing directory stays as it is
  if ! mkdir -p "$to/$libdir" 2>/dev/null || [ ! -w "$to/$libdir" ]; then
    fail "cannot write to $to/$libdir; use sudo, or another place: make install PREFIX=\$HOME/.local"
  fi
  build_if_possible
  [ -e "$headers/devexchange.h" ] || fail "$headers/devexchange.h is missing; 'make headers' writes it"

  mkdir -p "$to/$libdir"/{pkgconfig,cmake/devexchange}
  install -m 755 "$DEVX_LIB_C" "$to/$libdir/$real_name"
  ln -sf "$real_name" "$to/$libdir/$DEVX_SONAME"
  ln -sf "$DEVX_SONAME" "$to/$libdir/libdevexchange.so"
  install -m 644 "$DEVX_LIBDIR/libdevexchange.a" "$to/$libdir/libdevexchange.a"
  close_archive "$to/$libdir/libdevexchange.a"
  fill_in "$packaging/devexchange.pc.in" " " "$to/$libdir/pkgconfig/devexchange.pc"
  fill_in "$packaging/devexchange-config.cmake.in" ";" "$to/$libdir/cmake/devexchange/devexchange-config.cmake"
  fill_in "$packaging/devexchange-config-version.cmake.in" ";" \
    "$to/$libdir/cmake/devexchange/devexchange-config-version.cmake"
  chmod 644 "$to/$libdir/pkgconfig/devexchange.pc" "$to/$libdir/cmake/devexchange"/*.cmake

  local header
  while read -r header; do
    if is_dlpack_of_others "$to/include/$header"; then echo "kept $to/include/$header: it is DLPack's, and as new as ours"
    else install -D -m 644 "$headers/$header" "$to/include/$header"; fi
  done < <(list_headers)
  install -D -m 644 -t "$to/share/doc/devexchange" "${licenses[@]/#/$DEVX_ROOT/}"
  refresh_loader_cache
  echo "installed devexchange $DEVX_VERSION into $to"
}

# Makes the archive one object that has what the functions of the headers need, and no other names than theirs. Otherwise a
# program could not also contain the static library of another Rust project: two releases of Rust's runtime have names in
# common, and so have two allocators.
close_archive() { # ARCHIVE
  local tools=${CROSS_COMPILE:-} object wanted
  command -v "${tools}objcopy" >/dev/null || return 0
  # Rust's objects contain LLVM's bitcode beside the code that it became: almost half of the archive. `clang -flto` reads it,
  # and fails if its LLVM is older than rustc's.
  "${tools}objcopy" --remove-section=.llvmbc --remove-section=.llvmcmd "$1"
  object=$(mktemp -d)/devexchange.o
  mapfile -t wanted < <(wanted_names "$1")
  # GNU's linker, which `ld` need not be.
  if "${tools}ld.bfd" -r --gc-sections --force-group-allocation "${wanted[@]}" -o "$object" "$1"; then
    # What only the omitted code referred to would otherwise stay as a name that the program has to define.
    "${tools}objcopy" --wildcard --keep-symbol='devx_*' --keep-global-symbol='devx_*' --strip-unneeded-symbol='*' "$object"
    rm "$1"
    "${tools}ar" rcsD "$1" "$object"
  else
    echo "install: ${tools}ld.bfd failed: the static library cannot stand beside that of another Rust project" >&2
  fi
  rm -r "${object%/*}"
}

# Our functions in the archive, as options of the linker: where it begins to look for what is needed.
wanted_names() { # ARCHIVE
  "${CROSS_COMPILE:-}nm" --defined-only --extern-only "$1" 2>/dev/null | awk '$3 ~ /^devx_/ { print "--undefined=" $3 }'
}

# Whether the header is one of DLPack that another package installed, and has everything of ours.
is_dlpack_of_others() { # HEADER
  local minor
  if [ ! -e "$1" ] || grep -q 'Generated by cbindgen from core/src/abi' "$1"; then return 1; fi
  minor=$(minor_of "$1")
  [ -n "$minor" ] && [ "$minor" -ge "$(minor_of "$headers/dlpack/dlpack.h")" ]
}

minor_of() { # HEADER: n, if it is of DLPack 1.n
  awk '$2 == "DLPACK_MAJOR_VERSION" { major = $3 } $2 == "DLPACK_MINOR_VERSION" { minor = $3 }
    END { if (major == 1) print minor }' "$1"
}

# Only system library folders are in the loader's cache.
refresh_loader_cache() {
  case $to in /usr | /usr/*) if [ "$(id -u)" -eq 0 ] && command -v ldconfig >/dev/null; then ldconfig; fi ;; esac
}

# Versions can stand side by side. The files whose names carry no version are those of the version installed last.
uninstall_older() {
  local last
  last=$(sed -n 's/^Version: //p' "$to/$libdir/pkgconfig/devexchange.pc" 2>/dev/null) || return 1
  if [ "$last" = "$DEVX_VERSION" ]; then return 1; fi
  rm -f "$to/$libdir/$real_name"
  if [ ! -e "$to/$libdir/$DEVX_SONAME" ]; then rm -f "$to/$libdir/$DEVX_SONAME"; fi
  refresh_loader_cache
  echo "removed $real_name from $to/$libdir; the other files stay, they are those of version $last"
}

# The headers of the standards have names that others use too: a header that is no longer the one we installed stays.
uninstall_all() {
  local file
  if [ ! -e "$to/$libdir/$real_name" ] && [ ! -e "$to/include/devexchange.h" ]; then
    echo "devexchange $DEVX_VERSION is not installed in $to"
    return
  fi
  if [ ! -e "$to/$libdir/$real_name" ]; then
    fail "no $real_name in $to/$libdir: was it installed with another LIBDIR?"
  fi
  if uninstall_older; then return; fi
  while read -r file; do rm -f "$to/$file"; done < <(list_products)
  while read -r file; do
    if cmp -s "$headers/$file" "$to/include/$file"; then rm -f "$to/include/$file"
    elif [ -e "$to/include/$file" ]; then echo "kept $to/include/$file: it is not the one of this version"; fi
  done < <(list_headers)
  for file in "$libdir/cmake/devexchange" include/devexchange include/arrow/c include/arrow include/dlpack \
    share/doc/devexchange; do
    rmdir "$to/$file" 2>/dev/null || true
  done
  refresh_loader_cache
  echo "removed devexchange $DEVX_VERSION from $to"
}

read_settings
case ${1:-} in
  install) install_all ;;
  uninstall) uninstall_all ;;
  *) fail "the argument must be install or uninstall" ;;
esac
