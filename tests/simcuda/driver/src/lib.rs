//! The software CUDA driver for tests, behind the C ABI: `libcuda.so.1`.
//!
//! `place.sh` puts the library, as a driver of some version, under both of its names into a directory for
//! `LD_LIBRARY_PATH`. Environment variables (see `simcuda::Config`) and the `simcuda_*` functions of `simcuda.h`
//! configure it. Linked as a Rust library it offers the same entry points through [`lookup`], without `dlopen`.
//!
//! Never shipped: a program that finds the symbol `simcuda_version` does not run on a GPU.

mod context;
mod control;
mod copy;
mod device;
mod event;
mod glue;
mod memory;
mod module;
mod place;
mod pool;
mod proc;
mod stream;

pub use place::place;

use parking_lot::RwLock;
use simcuda::{Config, Fatal, Sim};
use std::sync::Arc;

static SIM: RwLock<Option<Arc<Sim>>> = RwLock::new(None);

fn fresh() -> Arc<Sim> {
    let placed = |name: &str| (name == "SIMCUDA_VERSION").then(place::version);
    let (cfg, complaints) = Config::from_env(|name| std::env::var(name).ok().or_else(|| placed(name)));
    for complaint in complaints {
        eprintln!("simcuda: {complaint}");
    }
    Arc::new(Sim::new(cfg))
}

/// The driver of this process, made at its first use.
fn sim() -> Arc<Sim> {
    if let Some(sim) = SIM.read().as_ref() {
        return Arc::clone(sim);
    }
    Arc::clone(SIM.write().get_or_insert_with(fresh))
}

/// Replaces the driver by a new one. Returns the old one.
fn replace() -> Option<Arc<Sim>> {
    SIM.write().replace(fresh())
}

/// The address of the entry point with this exported name.
#[must_use]
pub fn lookup(name: &str) -> Option<*const ()> {
    proc::exported(name)
}

/// The simulator behind the entry points, for inspection from Rust.
#[must_use]
pub fn simulator() -> Arc<Sim> {
    sim()
}

/// Runs at the end of the process: reports what was found and left over, and makes findings fatal if so configured.
/// Calls that come even later find the driver gone.
extern "C" fn finish() {
    let Some(sim) = SIM.try_read().and_then(|s| s.clone()) else { return };
    if sim.forked() {
        return;
    }
    sim.deinitialise();
    let var = |name| std::env::var(name).unwrap_or_default();
    let findings = sim.stat("findings").unwrap_or(0);
    let leaks = sim.stat("leaks").unwrap_or(0);
    let leaks_matter = match var("SIMCUDA_LEAKS").as_str() {
        "fatal" => leaks > 0,
        _ => false,
    };
    let wanted = var("SIMCUDA_REPORT");
    let fatal = sim.fatal() != Fatal::Off && findings > 0 || leaks_matter;
    match wanted.as_str() {
        "" if fatal || var("SIMCUDA_LEAKS") == "report" && leaks > 0 => eprint!("{}", sim.report()),
        "" => {}
        "stderr" => eprint!("{}", sim.report()),
        path => {
            use std::io::Write;
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            let calls: String = sim.all_calls().iter().map(|(f, n)| format!("  {f} {n}\n")).collect();
            let text = format!("pid {} {}{calls}", std::process::id(), sim.report());
            if file.and_then(|mut f| f.write_all(text.as_bytes())).is_err() {
                eprintln!("simcuda: cannot write the report to {path}");
            }
            if fatal {
                eprint!("{}", sim.report());
            }
        }
    }
    if fatal {
        eprintln!("simcuda: {findings} findings, {leaks} leaks; ending the process");
        // SAFETY: flushing all C streams needs nothing; `abort` would lose what the client printed.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        std::process::abort();
    }
}

/// Run by the loader when the process ends, after the client's own exit handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = finish;
