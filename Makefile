# Every command of the project. `make help` prints this table; the commands themselves are in scripts/.

# make hands these four to scripts/install.sh, which has the same defaults.
PREFIX ?= /usr/local
LIBDIR ?= lib
DESTDIR ?=
STATIC_TLS ?= yes
# Where the demo's memory is: host, or cuda (a GPU, or the simulated driver if there is none).
DEVICE ?= host
# The number of exchanges of `make soak-python` for each protocol.
ROUNDS ?= 1000000
# `make fuzz`: the minutes for each target. `make soak`: the minutes in all, the seed (a new one if empty), and the
# number of processes at once.
MINUTES ?= 5
SEED ?=
PROCESSES ?= 2

# The scripts find the tools, including those that `make setup` put into the checkout.
env := . scripts/env.sh &&

SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help setup build wheel dist demo install uninstall \
        test test-rust test-c test-java test-julia test-python test-torch test-python-ft test-python-debug test-arm64 \
        test-newest soak soak-python test-soak test-pairs test-numba test-third-party conformance test-readme fuzz test-fuzz \
        fuzz-account fuzz-corpus loom sanitize mutants seeded-bugs gpu-test gpu-bundle gpu-rehearsal gpu-bench bench bench-jmh \
        test-bench headers conformance-table third-party lint clean distclean

##@ Start here
help: ## this table
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@printf '\nVariables: PREFIX=%s LIBDIR=%s DESTDIR=%s STATIC_TLS=%s (install), DEVICE=%s (demo: host or cuda), CARGO_TARGET_DIR\n' \
	  '$(PREFIX)' '$(LIBDIR)' '$(DESTDIR)' '$(STATIC_TLS)' '$(DEVICE)'

demo: ## two real tables and a matrix through C, Java and Julia without a copy
	@scripts/setup.sh --quiet rust c java julia
	@scripts/build.sh --quiet
	@DEVICE='$(DEVICE)' examples/demo/run.sh

test: ## every test in every language; installs what is missing, ends with one line of counts
	@scripts/test.sh

##@ Build and install
setup: ## install the missing tools (JDK, Maven, Julia, ...), or say in one line what is missing
	@scripts/setup.sh

build: ## the release libraries
	@scripts/setup.sh --quiet rust
	@scripts/build.sh

wheel: ## the wheel of the Python binding, for CPython 3.11 and newer, into target/wheels
	@scripts/setup.sh --quiet rust python
	@scripts/build-python.sh --wheel

dist: ## all packages for people who build nothing, in target/dist, for glibc 2.17 or newer; ALSO=aarch64: for Arm, too
	@scripts/setup.sh --quiet
	@scripts/dist.sh

install: ## the C library, its headers, pkg-config and CMake files below PREFIX
	@scripts/install.sh install

uninstall: ## take the same files away again
	@scripts/install.sh uninstall

##@ Test one part
test-rust: ## the Rust tests, documentation examples included
	@scripts/test.sh rust

test-c: ## C and C++: the installed tree, consumers outside it, every test plain and under valgrind
	@scripts/test.sh c

test-java: ## the Maven project
	@scripts/test.sh java

test-julia: ## DevExchange.jl; tests that use threads run with several, too
	@scripts/test.sh julia

test-python: ## the wheel with NumPy, PyArrow, polars, DuckDB, JAX, …, a JVM; cuda.core on the simulated driver
	@scripts/test.sh python

test-torch: ## the wheel with PyTorch on the CPU and a JVM (not in `make test`: fetches half a gigabyte)
	@scripts/setup.sh --quiet rust python java
	@scripts/test-torch.sh

test-python-ft: ## the wheel on a CPython without a GIL: FREE_THREADED_PYTHON=python3.14t (not in `make test`)
	@scripts/setup.sh --quiet rust python
	@scripts/test-python-ft.sh

test-python-debug: ## the same on a debug build of CPython, Debian's or DEBUG_PYTHON=python3.14d (not in `make test`)
	@scripts/setup.sh --quiet rust python
	@scripts/test-python-debug.sh

test-arm64: ## Rust, C and C++ for 64-bit Arm, run by qemu (not in `make test`: needs a cross compiler and minutes)
	@scripts/setup.sh --quiet rust
	@scripts/test-arm64.sh

test-newest: ## Rust, C, Java and Python with all that Debian's unstable suite brings (not in `make test`: root; ONLY='c java')
	@scripts/setup.sh --quiet rust
	@scripts/test-newest.sh $(ONLY)

soak-python: ## a million exchanges for each protocol in Python, with memory measured; ROUNDS=1000000
	@scripts/setup.sh --quiet rust python
	@ROUNDS='$(ROUNDS)' scripts/soak-python.sh

soak: ## random exchanges of four languages in one process, with memory measured (MINUTES=5 SEED= PROCESSES=2 SIMCUDA=)
	@scripts/setup.sh --quiet rust c java julia python
	@scripts/build.sh --quiet
	@scripts/build-python.sh >/dev/null
	@scripts/soak.sh --seconds $$(awk 'BEGIN { print 60 * $(MINUTES) }') $(if $(SEED),--seed '$(SEED)') \
	  --processes '$(PROCESSES)'

test-soak: ## the same for a few seconds, in host and in simulated device memory
	@scripts/test.sh soak

test-pairs: ## C, Java, Julia, Python and Rust share memory with each other, each in its own process
	@scripts/test.sh pairs

test-numba: ## Numba's own tests on our memory managers, in both of its generations, on the simulated driver
	@scripts/test.sh numba

test-third-party: ## cuda.core, nanoarrow and NumPy as producers and consumers, on the simulated driver
	@scripts/test.sh third-party

conformance: ## every Arrow type to Arrow C++, pyarrow, nanoarrow, arrow-rs, Arrow Java and back, compared
	@scripts/test.sh conformance

test-readme: ## the programs in the README, in docs/guide.md and in the packages' pages
	@scripts/test.sh readme

test-bench: ## whether the benches build and run
	@scripts/test.sh bench

test-fuzz: ## the fuzz targets, a short run each: committed inputs and 100000 executions
	@scripts/test.sh fuzz

##@ Look for what nobody thought of (docs/reliability.md)
fuzz: ## the fuzz targets with the address sanitizer, five minutes each; TARGET=arrow MINUTES=60
	@scripts/setup.sh --quiet rust
	@MINUTES='$(MINUTES)' scripts/fuzz.sh $(TARGET)

loom: ## the lock-free parts in every interleaving of threads; prints the number of interleavings
	@$(env) $$CARGO test --locked -p devexchange-schedules --lib -- --nocapture --test-threads=1

sanitize: ## the tests with sanitizers; each must first report a known fault; PART='address c thread miri'
	@scripts/setup.sh --quiet rust c
	@scripts/sanitize.sh $(PART)

fuzz-account: ## the executions of all long fuzz runs so far, and the open findings
	@scripts/fuzz.sh --account

fuzz-corpus: ## put what the long runs found into fuzz/corpus: the fewest inputs that reach all code
	@scripts/setup.sh --quiet rust
	@scripts/fuzz.sh --minimise $(TARGET)

##@ On a GPU (docs/gpu.md)
gpu-test: ## the CUDA part of the tests on the GPU of this machine, from the bundle; ONLY='python c': some parts
	@scripts/gpu-test.sh $(foreach part,$(ONLY),--only $(part))

gpu-bundle: ## the programs of gpu-test, as an archive for a machine without Rust
	@scripts/setup.sh --quiet rust python
	@scripts/gpu-bundle.sh

gpu-rehearsal: ## the same as gpu-test, but on the simulated driver
	@scripts/test.sh gpu-rehearsal

##@ How fast it is (docs/bench.md)
bench: ## devexchange against other libraries and the least that can be done (QUICK=1, ONLY=…, RECORD=…)
	@scripts/setup.sh --quiet rust c python
	@scripts/bench.sh $(if $(QUICK),--quick) $(if $(ONLY),--only '$(ONLY)') $(if $(RECORD),--record '$(RECORD)')

gpu-bench: ## what exchanges cost on the GPU of this machine, docs/gpu.md (QUICK=1, ONLY=…, RECORD=FILE, SIMULATED=1)
	@scripts/gpu-bench.sh $(if $(QUICK),--quick) $(if $(ONLY),--only '$(ONLY)') $(if $(RECORD),--record '$(RECORD)') \
	  $(if $(SIMULATED),--simulated)

bench-jmh: ## the operations of Java, ours and Arrow Java, by JMH (ONLY=…, JMH='-prof gc')
	@scripts/setup.sh --quiet rust c java
	@scripts/bench-jmh.sh $(if $(ONLY),--only '$(ONLY)') $(JMH)

##@ Work on it
headers: ## rewrite the generated headers and the snapshots (look at the diff afterwards)
	@$(env) DEVX_BLESS=1 $$CARGO test --locked -p devexchange-c --test headers
	@$(env) DEVX_BLESS=1 INSTA_UPDATE=always INSTA_FORCE_PASS=1 $$CARGO test --locked -p devexchange-tests

conformance-table: ## rewrite docs/cuda-conformance.md, with the recorded runs on real drivers
	@$(env) DEVX_BLESS=1 $$CARGO test --locked -p devexchange-tests --test conformance_cuda the_page_is_up_to_date

mutants: ## whether the tests notice small code changes (hours); ONLY=order, SHARD=0/8, SINCE=COMMIT; ON=yes continues
	@scripts/setup.sh --quiet rust
	@SHARD='$(SHARD)' ON='$(ON)' SINCE='$(SINCE)' scripts/mutants.sh $(ONLY)

third-party: ## rewrite LICENSE-THIRD-PARTY, after a change of Cargo.lock
	@scripts/third-party.sh

seeded-bugs: ## whether the tests notice known bugs, put in one after the other; ONLY=release: some of them
	@scripts/setup.sh --quiet rust
	@scripts/seeded-bugs.sh $(ONLY)

lint: ## rustfmt, clippy (cudarc's first and last CUDA version, benches and fuzz targets, too), rustdoc, whether all patches apply
	@$(env) $$CARGO fmt --all --check
	@$(env) $$CARGO clippy --workspace --all-targets --locked -- -D warnings
	@$(env) for features in cudarc/cuda-11040 cudarc,cudarc/cuda-13040; do \
	  $$CARGO clippy --quiet -p devexchange-core --locked --no-default-features --features $$features -- -D warnings || exit 1; \
	done
	@$(env) RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' $$CARGO doc --quiet --workspace --locked \
	  --no-deps --all-features --document-private-items
	@$(env) RUSTDOCFLAGS='-D warnings' $$CARGO doc --quiet -p devexchange-core --locked --no-deps --all-features
	@$(env) rust=benches/rust/Cargo.toml && $$CARGO fmt --manifest-path $$rust --check && \
	  $$CARGO clippy --quiet --manifest-path $$rust --target-dir "$$DEVX_TARGET/bench/rust" --locked -- -D warnings
	@scripts/fuzz.sh --lint
	@scripts/seeded-bugs.sh --check
	@scripts/third-party.sh --check

clean: ## remove what was built
	@$(env) rm -rf "$$DEVX_TARGET" bindings-jni/java/target

distclean: clean ## also remove the tools installed into the checkout (.tools)
	@rm -rf .tools
