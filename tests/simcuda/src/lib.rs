//! A CUDA driver in software, for tests only: the engine, usable in process.
//!
//! [`Sim`] has one method for each driver function, with handles and device addresses as plain numbers. Work really
//! is queued and runs later, in an order chosen by a seeded scheduler ([`Mode`]). Happens-before is tracked over
//! every byte range read, written and freed, so a missing wait is found whatever order the work ran in; what is
//! wrong becomes a [`Finding`], and a simulator that is dropped with findings panics. Faults can be injected at any
//! call, and a ledger knows everything that is live.
//!
//! `simcuda-driver` is the same engine behind the C ABI.

mod alloc;
mod api_context;
mod api_copy;
mod api_device;
mod api_event;
mod api_ipc;
mod api_memory;
mod api_pointer;
mod api_pool;
mod api_stream;
mod call;
mod callback;
mod capture;
mod clock;
mod code;
mod config;
mod context;
mod control;
mod fault;
mod finding;
mod ledger;
mod memory;
mod race;
mod ranges;
mod rng;
mod sched;
mod state;

pub use api_event::{EVENT_BLOCKING_SYNC, EVENT_DISABLE_TIMING, EVENT_INTERPROCESS};
pub use api_ipc::IpcHandle;
pub use api_memory::MEM_ATTACH_GLOBAL;
pub use api_pointer::Attribute;
pub use api_pool::{HANDLE_TYPE_FD, PoolPointer, PoolProps};
pub use api_stream::{EVENT_EXTERNAL, STREAM_NON_BLOCKING};
pub use call::Sim;
pub use capture::CaptureStatus;
pub use code::{Code, CuResult};
pub use config::{Config, Fatal, HostOrder, Mode};
pub use fault::Fault;
pub use finding::{Finding, Kind, Site, SiteInfo};
pub use ledger::{Live, LiveKind};
pub use memory::Addr;

/// `CU_STREAM_LEGACY`.
pub const LEGACY: u64 = context::LEGACY;
/// `CU_STREAM_PER_THREAD`.
pub const PER_THREAD: u64 = context::PER_THREAD;
