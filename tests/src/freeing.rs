//! A producer that frees its memory as soon as it is released, and a consumer that works on it: a release that comes
//! too early is a race.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use devexchange_core::dlpack;
use devexchange_core::{Batch, RawStream, Stream, Tensor};

use crate::cu_ok;
use crate::foreign::{self, CUDA0, bytes_schema};
use crate::sim;

/// The size of the memory in bytes.
pub const N: u64 = 256;

/// [`N`] bytes of foreign memory.
pub struct Foreign {
    /// The address of the bytes.
    pub address: u64,
    released: Arc<AtomicU32>,
    /// The thread that released them.
    pub thread: Arc<Mutex<Option<ThreadId>>>,
}

impl Foreign {
    /// Allocates new memory and writes to it.
    ///
    /// # Panics
    /// If the driver fails.
    pub fn allocate() -> Self {
        let address = sim::alloc(N);
        sim::fill(address, 1, N, 1);
        cu_ok!("cuStreamSynchronize", 1);
        Self { address, released: Arc::default(), thread: Arc::default() }
    }

    /// A function that frees the memory.
    pub fn on_release(&self) -> impl FnOnce() + Send + 'static {
        let (address, released, thread) = (self.address, Arc::clone(&self.released), Arc::clone(&self.thread));
        let context = sim::primary(0);
        move || {
            *thread.lock().expect("not poisoned") = Some(std::thread::current().id());
            cu_ok!("cuCtxPushCurrent_v2", context);
            sim::free(address);
            let mut popped = 0_u64;
            cu_ok!("cuCtxPopCurrent_v2", &raw mut popped);
            released.fetch_add(1, SeqCst);
        }
    }

    /// Imports the memory as a tensor, ready now.
    ///
    /// # Panics
    /// If the import is refused.
    pub fn tensor(&self) -> Tensor {
        let managed = foreign::dlpack(self.address, N, CUDA0, self.on_release());
        // SAFETY: a valid tensor, which nobody else owns.
        unsafe { dlpack::import_on(managed.as_ptr(), Some(RawStream::NO_SYNC)) }.expect("imported")
    }

    /// Imports the memory as a column of bytes, ready now.
    ///
    /// # Panics
    /// If the import is refused.
    pub fn batch(&self) -> Batch {
        let mut array = foreign::arrow(self.address, N, CUDA0, 0, self.on_release());
        // SAFETY: a valid array, which nobody else owns.
        unsafe { Batch::import_device(&raw mut array, &bytes_schema()) }.expect("imported")
    }

    /// How often the memory was released.
    pub fn released(&self) -> u32 {
        self.released.load(SeqCst)
    }

    /// Waits for everything that is queued and checks that the memory was then released.
    ///
    /// # Panics
    /// If it was not released, or more than once.
    pub fn end(self) {
        sim::settle();
        assert_eq!(self.released(), 1, "the release is called once");
    }
}

/// A consumer's stream with work that reads `from`.
pub struct Consumer {
    /// The stream's handle.
    pub stream: u64,
    /// Where the work writes.
    pub scratch: u64,
}

impl Consumer {
    /// Makes a consumer on a new stream.
    pub fn begin() -> Self {
        Self { stream: sim::stream(), scratch: sim::alloc(2 * N) }
    }

    /// Queues work that reads [`N`] bytes.
    pub fn read(&self, from: u64) {
        sim::copy(self.scratch, from, N, self.stream);
    }

    /// The consumer's stream.
    pub fn on(&self) -> Stream {
        sim::on(self.stream)
    }

    /// Waits for the work, and destroys the stream.
    pub fn end(self) {
        sim::synchronize(self.stream);
        sim::free(self.scratch);
        sim::destroy(self.stream);
    }
}
