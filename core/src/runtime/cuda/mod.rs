//! The CUDA runtime: the only place that talks to the driver, and the only one that names cudarc.

pub mod allocation;
mod context;
pub mod copy;
mod driver;
mod event;
pub mod info;
pub(crate) mod ipc;
pub mod pointer;
mod pool;
pub mod reaper;
mod stream;

pub use allocation::Allocation;
pub use context::require_device;
pub use event::{Event, ForeignEvent, kept_events};
pub use pool::MemoryPool;
pub use stream::{LEGACY, PER_THREAD, Stream};
