//! The CUDA runtime: the only place that talks to the driver and, but for the feature of that name, names cudarc.

pub mod allocation;
mod closed;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod driver;
mod event;
mod inbox;
pub mod info;
pub(crate) mod ipc;
mod kept;
pub(crate) mod lost;
pub mod pointer;
mod pool;
pub mod reaper;
mod stream;
mod waiting;

pub use crate::stream::{LEGACY, NO_SYNC, PER_THREAD, RawStream, Stream};
pub use allocation::Allocation;
pub use closed::{HeldStream, Hold};
pub use context::require_device;
pub use event::{Event, ForeignEvent, kept_events};
pub use pool::MemoryPool;

/// Gives the driver back what is on its way there, and what is kept of a device for the next time: the device may be
/// reset next, by somebody else.
pub(crate) fn before_reset(ordinal: i32) {
    reaper::settle();
    if let Some(context) = context::known_primary(ordinal) {
        event::forget(context);
    }
}
