#!/usr/bin/env bash
# Checks whether the tests notice small changes of the code (`make mutants`): cargo-mutants changes one expression after
# the other in a copy of the tree and runs the tests of that module.
#
#   scripts/mutants.sh                     every module
#   scripts/mutants.sh release             the modules with this text in their name
#   SHARD=0/8 scripts/mutants.sh schema    every eighth mutant of the module
#   ON=yes scripts/mutants.sh              continues a run that was stopped: caught mutants are not tried again
#   SINCE=v1.0 scripts/mutants.sh          only lines that changed since that commit
#
# Prints a line for each module and, below it, the mutants that no test noticed. A mutant is caught if a test fails, or
# does not end, with it; one that does not build is not counted. The run fails if less than 85 % of a module is caught.
# .cargo/mutants.toml lists what is left alone, with reasons.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

version=27.1.0
least_percent=85
modules=(layout tensor dlpack convert order release-memory release-device event schema value batch batch-stream asynchronous
  manager fork cuda-array cudarc arrow-rs device driver error ipc)

work=$DEVX_TARGET/mutants
tree=$work/tree
failed=0

files_of() { # MODULE
  case $1 in
    layout) echo core/src/layout.rs ;;
    tensor) echo core/src/tensor/{mod,elements,transfer,gather,slice}.rs core/src/{dtype,transfer}.rs ;;
    dlpack) echo core/src/dlpack.rs core/src/dlpack/{legacy,versioned}.rs ;;
    convert) echo core/src/convert/{mod,column,fixed_shape,matrix,tensor}.rs ;;
    order) echo core/src/{order,order/ready,order/uses,order/behind,tensor/order,arrow/batch/order,view}.rs ;;
    release-memory)
      echo core/src/memory/{blocks,borrowed,counted,fallible,foreign,lazy,nesting,owner,queue,shielded,slab,sorted,table}.rs \
        core/src/local/{blocks,lines,list,nesting,slot}.rs core/src/{ledger,local,vacant}.rs ;;
    release-device) echo core/src/runtime/cuda/{closed,inbox,lost,reaper,waiting}.rs ;;
    event) echo core/src/runtime/cuda/{event,kept,context}.rs ;;
    schema)
      echo core/src/arrow/{schema,field,names,read,record,format,type_name,metadata,count,check,table,tree,pointers}.rs \
        core/src/arrow/{depth_first,check/array,check/plain}.rs ;;
    value) echo core/src/arrow/{value,bitmap,temporal}.rs ;;
    batch)
      echo core/src/arrow/{batch,transfer,taken,offsets,column,builder,node,sizes}.rs \
        core/src/arrow/{batch/describe,batch/import,column/row,column/rows,column/share}.rs ;;
    batch-stream) echo core/src/arrow/batch_stream/{alone,export,import,interface,mod}.rs core/src/arrow/owned.rs ;;
    asynchronous)
      echo core/src/arrow/asynchronous/{bell,block,handler,mod,offers,owned,producer,reader,reading}.rs \
        core/src/arrow/asynchronous/{task,wake,writer,writing}.rs ;;
    manager) echo core/src/manager/{mod,books,depth,driver,limited,own,pointers,pool,records,table}.rs ;;
    fork) echo core/src/{fork,thread,trace}.rs ;;
    cuda-array) echo core/src/cuda_array.rs core/src/cuda_array/typestr.rs ;;
    cudarc) echo core/src/cudarc_slice.rs ;;
    arrow-rs) echo core/src/arrow_rs.rs ;;
    device) echo core/src/{device,stream,runtime/device}.rs ;;
    driver) echo core/src/runtime/cuda/{allocation,copy,driver,info,ipc,mod,pointer,pool,stream}.rs ;;
    error) echo core/src/{error,setting,text}.rs ;;
    ipc)
      echo core/src/ipc/{changes,client,credentials,descriptor,export,holds,import,interrupt,memory,message}.rs \
        core/src/ipc/{mod,offers,regions,server,serving,socket,socket_file,turn,wire}.rs ;;
  esac
}

# The arguments of cargo test besides the core's package: the programs that can notice changes of a module and are fast.
# The models of loom (devexchange-schedules) check what threads do with the memory of an exchange.
tests_of() { # MODULE
  case $1 in
    layout) echo --test layout ;;
    tensor | dlpack | convert)
      echo --package devexchange-corpus --lib --test corpus --test dlpack --test copies --test dtype --test elements \
        --test traits --test convert --test chains --test layout --test memory --test slices \
        --package devexchange-tests --test cuda_order --test cuda_bad_input --test cuda_array --test cuda_devices \
        --test cuda_default_streams --test cuda_manager --test cuda_views --test cuda_cudarc ;;
    order)
      echo --package devexchange-tests --lib --test order --test cuda_order --test cuda_budget --test cuda_release \
        --test cuda_array --test cuda_ipc --test cuda_devices --test cuda_default_streams --test cuda_pool_release \
        --test cuda_views --test rounds ;;
    release-memory)
      echo --package devexchange-schedules --lib --test memory --test ledger --test batch --test dlpack --test chains ;;
    release-device)
      echo --package devexchange-tests --test cuda_reaper --test cuda_closed_streams --test cuda_release \
        --test cuda_pool_release ;;
    event)
      echo --package devexchange-tests --test cuda_budget --test cuda_reaper --test cuda_order --test cuda_devices \
        --test cuda_default_streams --test cuda_ipc --test cuda_release ;;
    schema) echo --features arrow --lib --test format --test schema --test types --test temporal --test batch --test batch_stream ;;
    value) echo --features arrow --test types --test temporal ;;
    batch | batch-stream)
      echo --package devexchange-corpus --lib --test corpus --test batch --test batch_stream --test owned --test types \
        --test convert --test chains --test sizes --test slices --package devexchange-tests --test cuda_views --test cuda_arrow \
        --test cuda_pool_release ;;
    asynchronous)
      echo --package devexchange-corpus --lib --test corpus --test asynchronous --test owned --test fork \
        --package devexchange-tests --test async_schedules ;;
    manager)
      echo --package devexchange-tests --test manager --test memory --test fork --test cuda_manager --test cuda_ipc \
        --test cuda_default_streams ;;
    fork) echo --lib --test fork --test trace ;;
    cuda-array) echo --package devexchange-tests --test cuda_array ;;
    cudarc) echo --package devexchange-tests --test cuda_cudarc ;;
    arrow-rs) echo --package devexchange-tests --test arrow_rs --test cuda_arrow_rs ;;
    driver)
      echo --package devexchange-tests --lib --test cuda_devices --test cuda_absent --test cuda_default_streams \
        --test cuda_order --test cuda_bad_input --test cuda_manager --test cuda_budget --test cuda_ipc --test cuda_views \
        --test cuda_array --test cuda_arrow --test cuda_closed_streams --test cuda_pool_release ;;
    error)
      echo --package devexchange-corpus --package devexchange-tests --features arrow --lib --test corpus --test trace \
        --test dlpack --test dtype --test memory --test manager --test batch_stream --test asynchronous --test device \
        --test cuda_bad_input --test cuda_manager ;;
    device)
      echo --package devexchange-tests --lib --test device --test order --test traits --test cuda_devices \
        --test cuda_absent --test cuda_default_streams ;;
    ipc) echo --lib --test faults --package devexchange-tests --test ipc --test cuda_ipc ;;
  esac
}

install_tool() {
  if [ "$("$work/bin/cargo-mutants" mutants --version 2>/dev/null)" = "cargo-mutants $version" ]; then return; fi
  "$CARGO" install --quiet --locked cargo-mutants --version "$version" --root "$work" --target-dir "$work/build"
  rm -rf "$work/build"
}

# Places the simulated driver once; otherwise each test program would ask Cargo for it.
place_driver() {
  "$CARGO" run --quiet --release --locked --manifest-path "$DEVX_ROOT/tests/simcuda/driver/Cargo.toml" \
    --bin simcuda-place -- "$work/simcuda"
  export DEVX_SIM_PATH=$work/simcuda/libcuda.so.1
}

mutate() { # MODULE
  local file argument status=0 options=()
  # Leaves out the second run of each CUDA program, on threads, and the tests of descriptors: they are slow, and
  # descriptors have tests of their own.
  local skipped=(--skip run_by_threads)
  if [ "$1" != ipc ]; then skipped+=(--skip ipc::); fi
  for file in $(files_of "$1"); do options+=(--file "$file"); done
  for argument in $(tests_of "$1"); do options+=("--cargo-arg=$argument"); done
  if [ -n "${SINCE:-}" ]; then options+=(--in-diff "$work/since.diff"); fi
  if [ -n "${SHARD:-}" ]; then options+=(--sharding round-robin --shard "$SHARD"); fi
  if [ -n "${ON:-}" ]; then
    collect "$1"
    options+=(--iterate)
  else
    rm -rf "$work/results/$1"
  fi
  mkdir -p "$work/results/$1"
  # It fails if mutants were missed, which this script counts itself.
  (cd "$tree" && CARGO_TARGET_DIR=$work/target INSTA_UPDATE=no "$work/bin/cargo-mutants" mutants --in-place \
    --profile mutants --output "$work/results/$1" --timeout-multiplier 5 --minimum-test-timeout 60 \
    --cargo-arg=--locked "${options[@]}" -- -- "${skipped[@]}") </dev/null || status=$?
  collect "$1"
  case $status in
    # Without changes since the commit there is nothing to try, and so no lists of results.
    0) touch "$work/results/$1"/{caught,timeout,unviable,missed}.txt ;;
    # Some mutants were missed, or did not end.
    2 | 3) ;;
    *)
      echo "$1: cargo-mutants failed with status $status"
      failed=1
      ;;
  esac
}

# Adds the results of a module's last run to those of the runs before.
collect() { # MODULE
  local results=$work/results/$1 kind
  if [ ! -e "$results/mutants.out/caught.txt" ]; then return; fi
  for kind in caught timeout unviable missed; do
    touch "$results/$kind.txt"
    sort -u -o "$results/$kind.txt" "$results/$kind.txt" "$results/mutants.out/$kind.txt"
  done
  # Missed mutants are tried again.
  comm -23 "$results/missed.txt" <(sort -u "$results"/{caught,timeout}.txt) >"$results/still.txt"
  mv "$results/still.txt" "$results/missed.txt"
}

lines_of() { # MODULE FILE
  wc -l <"$work/results/$1/$2.txt"
}

report() { # MODULE
  local caught missed timeout unviable percent
  if ! caught=$(lines_of "$1" caught) || ! missed=$(lines_of "$1" missed); then
    echo "$1: cargo-mutants did not run"
    failed=1
    return
  fi
  timeout=$(lines_of "$1" timeout) unviable=$(lines_of "$1" unviable)
  percent=$(awk -v caught=$((caught + timeout)) -v all=$((caught + timeout + missed)) \
    'BEGIN { printf "%.1f", all ? 100 * caught / all : 100 }')
  printf '%-8s %s %% caught: %d caught, %d did not end, %d missed, %d did not build\n' "$1" "$percent" "$caught" \
    "$timeout" "$missed" "$unviable"
  sed 's/^/    missed: /' "$work/results/$1/missed.txt"
  if awk -v percent="$percent" -v least="$least_percent" 'BEGIN { exit percent >= least }'; then failed=1; fi
}

main() {
  local module chosen=()
  for module in "${modules[@]}"; do
    if [[ $module = *"${1-}"* ]]; then chosen+=("$module"); fi
  done
  if [ ${#chosen[@]} -eq 0 ]; then echo "no module is called $1; there are: ${modules[*]}" >&2; return 1; fi
  mkdir -p "$work"
  install_tool
  if [ -n "${SINCE:-}" ]; then git -C "$DEVX_ROOT" diff "$SINCE" -- core/src >"$work/since.diff"; fi
  devx_copy_tree "$tree"
  place_driver
  for module in "${chosen[@]}"; do mutate "$module"; done
  echo
  for module in "${chosen[@]}"; do report "$module"; done
  return "$failed"
}

main "$@"
