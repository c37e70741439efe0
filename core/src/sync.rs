//! Atomics and locks for the parts whose schedules are tried: of std. `tests/schedules` builds the same files with
//! those of loom, which lets threads meet in every order that there is.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};
