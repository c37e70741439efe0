//! Sharing tensors and batches between the processes of one machine, zero-copy.
//!
//! The exporter [offers](Server::offer_tensor) them under a name, the importer [connects](connect()) and
//! [imports](Client::import_tensor) them: the same memory, with the same type, shape and order. The exporter keeps the
//! memory until the importer releases it or is gone, whichever comes first; the importer's release comes after the work
//! that it named with `used_on`, as everywhere.
//!
//! | memory | how | what it takes |
//! |---|---|---|
//! | of the host | a memory file, whose descriptor goes over the socket | [`allocate`]; else it is copied, if allowed |
//! | of a device | a handle of the driver's | an allocation that is not of a pool |
//! | of a pool | the pool's descriptor and a handle | [`Pool::shareable`](crate::manager::Pool::shareable) |
//!
//! Other memory of CUDA (pinned, managed, of a pool for one process, from another process) cannot be shared; if the caller
//! allows it, it is copied into plain device memory. Data that is not ready goes with an event, for which the importer's
//! streams wait as for any other. A device is named by its UUID, because processes may count them differently.
//!
//! What an importer gets is taken for the untrusted bytes that it is: a versioned descriptor, every number of which is
//! checked before it is used, and files that are sealed and as large as it says. Both sides look at the other's user,
//! and refuse another one unless told otherwise. The data itself is shared: an exporter that alters it under a reader,
//! or whose offsets lead astray, is a defect that no check can find, so to import is `unsafe`.
//!
//! ```
//! use devexchange_core::{DType, dlpack::Copying, ipc};
//!
//! let address = format!("@devexchange-doc-{}", std::process::id());
//! let server = ipc::Server::bind(&address)?;
//! let tensor = ipc::allocate_tensor(DType::FLOAT32, &[2, 3])?;
//! server.offer_tensor("weights", &tensor, Copying::Never)?;
//! // In another process, as a rule.
//! let client = ipc::connect(&address)?;
//! // SAFETY: nobody writes the weights.
//! let imported = unsafe { client.import_tensor("weights") }?;
//! assert_eq!(imported.shape(), [2, 3]);
//! # Ok::<(), devexchange_core::Error>(())
//! ```

mod changes;
mod client;
mod credentials;
mod descriptor;
mod export;
#[cfg(fuzzing)]
pub mod fuzzing;
mod holds;
mod import;
mod interrupt;
mod memory;
mod message;
mod offers;
mod regions;
mod server;
mod serving;
mod socket;
mod socket_file;
mod turn;
mod wire;

#[cfg(test)]
mod tests;

pub use client::{Client, TIMEOUT, connect};
pub use descriptor::{MAX_BYTES, MAX_REGIONS, VERSION};
pub use export::{Exported, copy_batch, export_batch, export_tensor, plan_batch, plan_tensor};
pub use import::{Peer, import_batch, import_tensor};
pub use interrupt::interruptible;
pub use memory::{allocate, allocate_tensor};
pub use message::MAX_NAME;
pub use server::Server;

use std::os::fd::{AsFd, BorrowedFd};

// Here, as `export` has no unsafe code.
impl Exported {
    /// The file descriptors that go with the [`descriptor`](Exported::descriptor), in this order.
    ///
    /// # Safety
    /// Memory that can be written through them is not, by whomever they are given to, as long as somebody in this process
    /// reads it: a slice of it (see [`Tensor::as_slice`](crate::Tensor::as_slice)) would change under who holds it.
    pub unsafe fn fds(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        self.files().iter().map(|fd| fd.as_fd())
    }
}
