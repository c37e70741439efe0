//! The runtimes that own memory.

pub mod cuda;
mod device;
