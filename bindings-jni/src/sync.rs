//! Atomics of std, for the part whose thread schedules are tested. `tests/schedules` builds the same file with those of
//! loom.

pub(crate) use std::sync::atomic;
