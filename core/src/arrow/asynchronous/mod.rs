//! Arrow's asynchronous device stream, in both directions: [`AsyncReader`] is a consumer's handler, [`AsyncWriter`] is
//! a producer for somebody else's handler (Arrow C device data interface, "Async Device Stream Interface").
//!
//! Neither starts a thread. Each is polled, and calls a wake callback when there is something to poll for. The callback
//! can come on any thread, also while a callback of the peer runs further up on the same stack; it must only wake
//! whoever polls.
//!
//! The modules `reading` and `writing` decide what is allowed when: they are state machines without pointers. The other
//! modules only translate between them and the structs.
//!
//! Both ends in one program. Nothing waits here, because no more batches are sent than are requested at once:
//!
//! ```
//! use devexchange_core::arrow::asynchronous::{ReaderOptions, channel};
//! use devexchange_core::dlpack::Copying;
//! use devexchange_core::{DeviceType, Result, Tensor, convert};
//!
//! # fn main() -> Result<()> {
//! let batch = |first: i64| {
//!     let rows = Tensor::from_vec(vec![first, first + 1], &[2, 1])?;
//!     convert::batch(&rows, &["n"], Copying::Never)
//! };
//! let (writer, reader) = channel(ReaderOptions::default(), DeviceType::CPU)?;
//!
//! writer.start(batch(0)?.schema())?;
//! for first in [0, 2] {
//!     writer.wait_ready(None)?; // or `writer.ready().await?`
//!     writer.try_send(batch(first)?, None)?;
//! }
//! writer.finish()?;
//!
//! let mut values = Vec::new();
//! while let Some((batch, _metadata)) = reader.wait_batch(None)? { // or `reader.batch().await?`
//!     values.extend_from_slice(batch.column_named("n").unwrap().values::<i64>()?);
//! }
//! assert_eq!(values, [0, 1, 2, 3]);
//! # Ok(())
//! # }
//! ```

#[deny(unsafe_code)]
mod bell;
mod block;
#[cfg(test)]
#[deny(unsafe_code)]
mod explore;
mod handler;
mod offers;
mod owned;
mod producer;
mod reader;
#[deny(unsafe_code)]
mod reading;
mod task;
mod wake;
mod writer;
#[deny(unsafe_code)]
mod writing;

pub use block::MetadataBlock;
pub use owned::{OwnedHandler, channel};
pub use producer::QUARANTINE;
pub use reader::{AsyncReader, ReaderOptions, Received};
pub use wake::Wake;
pub use writer::AsyncWriter;

use crate::error::caught;
use crate::fork::generation;
use crate::thread::Caller;
use crate::trace;

/// Notes in which process a stream was made. A child of `fork` leaves the stream to that process: the peer is there, and a
/// thread that the child does not have may hold a lock of the stream or of the peer.
struct Home(u64);

impl Home {
    fn here() -> Self {
        Self(generation())
    }

    fn is_here(&self) -> bool {
        self.0 == generation()
    }
}

/// Runs the body of a callback of this library; a panic ends here.
fn shielded<R>(otherwise: R, body: impl FnOnce() -> R) -> R {
    caught(|| Ok(body())).unwrap_or_else(|error| {
        trace::say(format_args!("a callback of an asynchronous stream panicked: {error}"));
        otherwise
    })
}
