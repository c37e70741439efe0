#!/usr/bin/env bash
# Sanitizers for programs that are made of Rust and of C (sourced, after env.sh):
#
#   sanitizer address|thread      sets what follows, for one of them
#   sanitized COMMAND...          runs cargo, or what runs it, so that all that it builds has the sanitizer
#   place_driver DIRECTORY        places the simulated CUDA driver
#
#   sanitized_out                 where that is built
#   sanitized_lib                 where scripts/sanitize.sh leaves libdevexchange.so with it
#   sanitize_compile              flags for a C or C++ compiler that only compiles
#   sanitize_link                 flags for one that links
#
# There has to be one run-time library of a sanitizer in a program. It is rustc's: what gcc and clang compile calls the
# same functions, and it has the checks of undefined behaviour in it, but those of vptr.
# shellcheck disable=SC2034,SC2054 # for the scripts that source this; the commas are those of the tools

sanitize_compile=()
sanitize_link=()
sanitize_environment=()
sanitize_host=$("$RUSTC" -vV | sed -n 's/^host: //p')

sanitizer() { # NAME
  local short=${1:0:1}san runtime
  sanitized_out=$DEVX_TARGET/sanitize/$1
  sanitized_lib=$sanitized_out/lib
  runtime=("$("$RUSTC" --print sysroot)/lib/rustlib/$sanitize_host/lib"/librustc-*_rt."$short".a)
  sanitize_compile=("-fsanitize=$1" -fsanitize=undefined -fno-sanitize=vptr -fno-sanitize-recover=all)
  sanitize_link=(-Wl,--whole-archive "${runtime[0]}" -Wl,--no-whole-archive -Wl,--export-dynamic -pthread -lm -ldl -lrt)
  # The thread sanitizer has to see std's own locks and counts, so std is built with it.
  sanitize_environment=(RUSTC_BOOTSTRAP=1 "RUSTFLAGS=-Zsanitizer=$1" "CARGO_BUILD_TARGET=$sanitize_host"
    "CARGO_TARGET_DIR=$sanitized_out")
  if [ "$1" = thread ]; then
    # What is loaded later, as the driver is, finds the run-time library in the program.
    sanitize_environment+=(CARGO_UNSTABLE_BUILD_STD=std,test "RUSTFLAGS=-Zsanitizer=thread -Clink-arg=-rdynamic")
  fi
}

sanitized() { env "${sanitize_environment[@]}" "$@"; }

# With the thread sanitizer, which has to see the driver's locks. The address sanitizer sees its use of malloc as it is.
place_driver() { # DIRECTORY
  local place=("$DEVX_ROOT/tests/simcuda/driver/place.sh" "$1")
  if [[ ${sanitized_out:-} == */thread ]]; then sanitized "${place[@]}"; else "${place[@]}"; fi
}
