#!/usr/bin/env bash
# Sanitizers for programs made of Rust and C (sourced, after env.sh):
#
#   sanitizer address|thread      sets the variables below, for one sanitizer
#   sanitized COMMAND...          runs cargo, or a script that runs it, so that all it builds has the sanitizer
#   place_driver DIRECTORY        places the simulated CUDA driver
#
#   sanitized_out                 where it is built
#   sanitized_lib                 where scripts/sanitize.sh leaves libdevexchange.so with it
#   sanitize_compile              flags for a C or C++ compiler that only compiles
#   sanitize_link                 flags for a compiler that links
#
# A program must have exactly one run-time library of a sanitizer. It is rustc's: code that gcc and clang compile calls
# the same functions, and the library includes the checks of undefined behaviour, except vptr.

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
  # The thread sanitizer must see std's own locks and counts, so std is built with it.
  sanitize_environment=(RUSTC_BOOTSTRAP=1 "RUSTFLAGS=-Zsanitizer=$1" "CARGO_BUILD_TARGET=$sanitize_host"
    "CARGO_TARGET_DIR=$sanitized_out")
  if [ "$1" = thread ]; then
    # Libraries that are loaded later, such as the driver, find the run-time library in the program.
    sanitize_environment+=(CARGO_UNSTABLE_BUILD_STD=std,test "RUSTFLAGS=-Zsanitizer=thread -Clink-arg=-rdynamic")
  fi
}

sanitized() { env "${sanitize_environment[@]}" "$@"; }

# Builds the driver with the thread sanitizer, if that is in use, because it must see the driver's locks. The address
# sanitizer sees the driver's use of malloc without that.
place_driver() { # DIRECTORY
  local place=("$DEVX_ROOT/tests/simcuda/driver/place.sh" "$1")
  if [[ ${sanitized_out:-} == */thread ]]; then sanitized "${place[@]}"; else "${place[@]}"; fi
}
