//! The CUDA runtime. Only this module calls the driver; only this module and the feature `cudarc` use the crate cudarc.

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
pub(crate) mod reaper;
mod stream;
mod waiting;

pub use allocation::Allocation;
pub use closed::{DeviceStream, HeldStream, Hold};
pub use context::require_device;
pub use event::{Event, ForeignEvent, kept_events};
pub use lost::releases_lost;
pub use pool::MemoryPool;
pub use waiting::releases_waiting;

/// Gives back to the driver what is on its way there, and what is kept of a device for reuse: somebody else may reset the
/// device next.
pub(crate) fn before_reset(ordinal: i32) {
    reaper::settle();
    context::doubt(ordinal);
    if let Some(context) = context::known_primary(ordinal) {
        event::forget(context);
    }
}
