//! What a client of the library needs: for the tests, and for their processes in `src/bin/simcuda-child.rs`.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "not every client uses all of it, and a test that unwraps fails as it should"
)]

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::path::Path;

/// The exit code of a process that does not know its role; a panic has 101.
pub const UNKNOWN_ROLE: u8 = 64;

/// What a process writes before it takes on its role.
pub fn greeting(role: &str) -> String {
    format!("simcuda-child is {role}\n")
}

/// The driver in this process.
pub struct Cuda(Library);

impl Cuda {
    pub fn open(directory: &Path) -> Self {
        // SAFETY: loading our own library runs no code that could do harm.
        Self(unsafe { Library::open(Some(directory.join("libcuda.so.1")), RTLD_NOW | RTLD_LOCAL) }.unwrap())
    }

    /// A function by its exported name.
    ///
    /// # Safety
    /// `T` must be the type of that function.
    pub unsafe fn get<T: Copy>(&self, name: &str) -> T {
        // SAFETY: as promised by the caller.
        *unsafe { self.0.get::<T>(name.as_bytes()) }.unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn call(&self, name: &str, args: &[u64]) -> u32 {
        type Any = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> u32;
        let mut all = [0; 6];
        assert!(args.len() <= all.len());
        for (slot, arg) in all.iter_mut().zip(args) {
            *slot = *arg;
        }
        let [a, b, c, d, e, f] = all;
        // SAFETY: on x86-64 and AArch64, up to six integer arguments of any width go into registers, of which the
        // callee looks at those that it has, in its own widths.
        let function: Any = unsafe { self.get(name) };
        // SAFETY: the tests pass pointers to what the function expects, valid for the length of the call.
        unsafe { function(a, b, c, d, e, f) }
    }

    pub fn has(&self, name: &str) -> bool {
        // SAFETY: the symbol is only looked up.
        unsafe { self.0.get::<*const ()>(name.as_bytes()) }.is_ok()
    }
}

/// Calls a function with integer arguments: pointers, sizes, handles and smaller integers alike.
#[macro_export]
macro_rules! cu {
    ($cuda:expr, $name:literal $(, $arg:expr)*) => { $cuda.call($name, &[$($arg as u64),*]) };
}
