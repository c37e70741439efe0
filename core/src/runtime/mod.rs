//! The runtimes that own memory.

pub mod cuda;
mod device;

pub use cuda::{releases_lost, releases_waiting};
