//! Sharing tensors and batches between the processes of one machine, zero-copy.
//!
//! The exporter [offers](Server::offer_tensor) them under a name. The importer [connects](connect()) and
//! [imports](Client::import_tensor) them: the same memory, with the same type, shape and order. The exporter keeps the memory
//! until the importer releases it or is gone, whichever comes first. The importer's release takes effect after the work that it
//! named with `used_on`, as everywhere.
//!
//! | memory | how it is shared | what is necessary |
//! |---|---|---|
//! | host memory | a memory file, whose descriptor goes over the socket | [`allocate`], or an import; else a copy, if allowed |
//! | device memory | a handle of the driver | an allocation that is not from a pool |
//! | memory of a pool | the pool's descriptor and a handle | [`Pool::shareable`](crate::manager::Pool::shareable) |
//!
//! Other CUDA memory (pinned, managed, of a pool for one process, of another process) cannot be shared; if the caller allows
//! it, it is copied into plain device memory. Data that is not ready is sent with an event, which the importer's streams wait
//! for as for any other. A device is named by its UUID, because processes can number devices differently.
//!
//! The importer treats what it gets as untrusted bytes: a versioned descriptor, every number of which is checked before it is
//! used, and files, which must be sealed and as large as the descriptor says. Both sides look at the user of the other process,
//! and refuse another user. The data itself is shared: no check can find an exporter that alters it under
//! a reader, or whose offsets lead astray. That is why an import is `unsafe`.
//!
//! ```
//! use devexchange_core::{DType, dlpack::Copying, ipc};
//!
//! let address = format!("@devexchange-doc-{}", std::process::id());
//! let server = ipc::Server::bind(&address)?;
//! let tensor = ipc::allocate_tensor(DType::FLOAT32, &[2, 3])?;
//! server.offer_tensor("weights", &tensor, Copying::Never)?;
//! // Usually in another process:
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

// Here because `export` forbids unsafe code.
impl Exported {
    /// Returns the file descriptors that go with the [`descriptor`](Exported::descriptor), in this order.
    ///
    /// # Safety
    /// Nobody who is given the descriptors writes the memory through them while anyone in this process reads it: a slice of it
    /// (see [`Tensor::as_slice`](crate::Tensor::as_slice)) would change under its holder.
    pub unsafe fn fds(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        self.files().iter().map(|fd| fd.as_fd())
    }
}
