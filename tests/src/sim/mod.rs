//! The CUDA driver that the tests run on: the simulated one of `tests/simcuda`, loaded the way production loads a
//! driver, or with `DEVX_GPU=1` the real one of the machine. `DEVX_GPU=rehearsal` does everything as on a GPU, but on
//! the simulated driver, which must be the `libcuda.so.1` that the loader finds.
//!
//! cargo builds the cdylib. It is placed under both names of the driver and opened by its absolute path before the core
//! is called for the first time. Whoever opens `libcuda.so.1` afterwards, like the core, gets the library that is
//! loaded.

mod control;
mod session;
mod work;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

pub use control::*;
pub use session::*;
pub use work::*;

use crate::{peer, root};

/// Whether the tests run on the machine's driver, or rehearse that.
pub fn on_gpu() -> bool {
    rehearsal() || std::env::var_os("DEVX_GPU").is_some_and(|value| value == "1")
}

/// Whether queued work can finish before somebody waits for it, as on a GPU and with the threads of the simulated
/// driver.
pub fn goes_on() -> bool {
    on_gpu() || mode_of_process() == "threads"
}

/// Whether the tests for a GPU run on the simulated driver instead.
fn rehearsal() -> bool {
    std::env::var_os("DEVX_GPU").is_some_and(|value| value == "rehearsal")
}

static SKIPPED: AtomicU32 = AtomicU32::new(0);

/// Reports that a part of a test needs the simulated driver; for `if skipped("…") { return; }`. On a GPU the line that
/// it prints makes `make gpu-test` count the whole test as skipped, because less was tested than the name says.
pub fn skipped(why: &str) -> bool {
    if on_gpu() {
        let count = SKIPPED.fetch_add(1, Relaxed) + 1;
        println!("skipped ({count}): {why}");
    }
    on_gpu()
}

/// Builds the simulated driver and places it under both names that clients look for; cargo itself says where the build
/// is.
///
/// # Panics
/// If cargo fails.
pub fn place() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--package", "simcuda-driver", "--lib"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root())
        .output()
        .expect("run cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).expect("UTF-8");
    let built = messages.split('"').find(|text| text.ends_with("/libsimcuda_driver.so"));
    let built = Path::new(built.expect("cargo names the library"));
    let directory = built.with_file_name("simcuda");
    std::fs::create_dir_all(&directory).expect("make the directory");
    for name in ["libcuda.so.1", "libcuda.so"] {
        let link = directory.join(name);
        if std::fs::read_link(&link).ok().as_deref() != Some(built) {
            // Several test programs can place it at once: each makes its own link and renames it.
            let mine = directory.join(format!("{name}.{}", std::process::id()));
            let _ = std::fs::remove_file(&mine);
            std::os::unix::fs::symlink(built, &mine).expect("make the link");
            std::fs::rename(&mine, &link).expect("place the link");
        }
    }
    directory
}

/// The driver of this process, by its C functions.
pub struct Cuda {
    library: Library,
    /// The path from which it was loaded.
    pub path: PathBuf,
}

/// The simulated driver that is already placed, or that is placed now.
pub fn placed() -> PathBuf {
    std::env::var_os(PLACED).map_or_else(|| place().join("libcuda.so.1"), PathBuf::from)
}

/// A call with integers and pointers. The result is not checked.
#[macro_export]
macro_rules! cu {
    ($name:literal $(, $argument:expr)* $(,)?) => {
        $crate::sim::cuda().call($name, &[$($argument as u64),*])
    };
}

/// Like [`cu`], for a call that must succeed.
#[macro_export]
macro_rules! cu_ok {
    ($name:literal $(, $argument:expr)* $(,)?) => {
        assert_eq!($crate::cu!($name $(, $argument)*), 0, $name)
    };
}

/// Tells the children of a test the driver, so that they need not ask cargo again.
const CHILD: &str = "DEVX_SIM_CHILD";
const PLACED: &str = "DEVX_SIM_PATH";

static CHOSEN: OnceLock<PathBuf> = OnceLock::new();

/// Chooses the driver of this process: for programs that are not tests, before they call it.
///
/// # Panics
/// If one was chosen before.
pub fn choose(path: &Path) {
    CHOSEN.set(path.to_owned()).expect("chosen once");
}

/// The driver, loaded at the first call.
///
/// # Panics
/// If there is none, or the core found another one.
pub fn cuda() -> &'static Cuda {
    static CUDA: OnceLock<Cuda> = OnceLock::new();
    CUDA.get_or_init(|| {
        let path = match CHOSEN.get() {
            Some(path) => path.clone(),
            None if on_gpu() => PathBuf::from("libcuda.so.1"),
            None => placed(),
        };
        let settings = [("SIMCUDA_DEVICES", "2"), ("SIMCUDA_REACH", "documented"), ("SIMCUDA_MODE", mode_of_process())];
        for (name, value) in settings {
            if std::env::var_os(name).is_none() {
                // SAFETY: only this function changes the environment, once, and the tests read it only through std.
                unsafe { std::env::set_var(name, value) };
            }
        }
        // SAFETY: loading a CUDA driver runs no code that could do harm.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }.expect("open the driver");
        Cuda { library, path }
    })
}

/// `lazy`, or the mode that a parent asks for ([`again_with_threads`]): once there are worker threads, they stay.
fn mode_of_process() -> &'static str {
    if std::env::var_os("DEVX_SIM_THREADS").is_some() { "threads" } else { "lazy" }
}

impl Cuda {
    /// Calls a function of up to six integer or pointer arguments by its exported name.
    ///
    /// # Panics
    /// If there is no such function.
    pub fn call(&self, name: &str, arguments: &[u64]) -> u32 {
        type Any = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> u32;
        let mut all = [0; 6];
        assert!(arguments.len() <= all.len());
        for (slot, argument) in all.iter_mut().zip(arguments) {
            *slot = *argument;
        }
        let [a, b, c, d, e, f] = all;
        // SAFETY: up to six arguments of integer class go into registers on x86-64 and AArch64, and the callee reads only
        // those that it has, in its own widths.
        let function: Any = unsafe { self.function(name) };
        // SAFETY: the tests pass what the function expects, valid for the length of the call.
        unsafe { function(a, b, c, d, e, f) }
    }

    /// Whether there is a function of that name.
    pub fn has(&self, name: &str) -> bool {
        // SAFETY: the address is not used.
        unsafe { self.library.get::<*const ()>(name.as_bytes()) }.is_ok()
    }

    /// A function that [`call`](Self::call) cannot call.
    ///
    /// # Safety
    /// `T` is the type of the function of that name.
    ///
    /// # Panics
    /// If there is no such function.
    pub unsafe fn function<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the caller's contract.
        let symbol = unsafe { self.library.get::<T>(name.as_bytes()) };
        *symbol.unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

/// Runs the other tests of this program in a process where threads run the queued work.
///
/// # Panics
/// If a test fails there.
pub fn again_with_threads() {
    if mode_of_process() == "threads" || skipped("who runs the work is the driver's own affair") {
        return;
    }
    let output = Command::new(std::env::current_exe().expect("this program"))
        .env("DEVX_SIM_THREADS", "1")
        .env(PLACED, &cuda().path)
        .output()
        .expect("run this program");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Whether [`child`] started this process; a test then plays its other part.
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs one test of this program in its own process, where [`is_child`] returns true.
///
/// # Panics
/// Like [`peer::run`].
pub fn child(test: &str, variables: &[(&str, &str)]) -> std::process::Output {
    let path = cuda().path.to_str().expect("UTF-8");
    peer::run(test, &[&[(PLACED, path), (CHILD, "1")], variables].concat())
}

/// Runs one test of this program in its own process, where this returns true; for `if !is_apart(…) { return; }`.
///
/// # Panics
/// If it fails there.
pub fn is_apart(test: &str, variables: &[(&str, &str)]) -> bool {
    if is_child() {
        return true;
    }
    let output = child(test, variables);
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{}", said.concat());
    false
}
