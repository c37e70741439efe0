//! Data that is filled after it was made, on another stream than the one on which its memory is given back.

use devexchange_core::{Batch, Stream, Tensor};

use crate::sim::{self, Session};

/// How many bytes are filled.
pub const FILLED: u64 = 16;

/// A tensor or a batch that can be filled.
pub trait Filled {
    /// States that the data is ready after what is queued on `filler`.
    ///
    /// # Panics
    /// If it is shared, or the driver fails.
    fn order(&mut self, filler: Stream);

    /// The address of [`FILLED`] bytes of it.
    fn data(&self) -> u64;
}

impl Filled for Tensor {
    fn order(&mut self, filler: Stream) {
        self.wait(filler).expect("waits");
        // SAFETY: consumers wait for what is queued there, and the tests queue the rest there before anybody reads.
        unsafe { self.produced_on(filler) }.expect("not shared");
    }

    fn data(&self) -> u64 {
        self.data().expose_provenance() as u64
    }
}

impl Filled for Batch {
    fn order(&mut self, filler: Stream) {
        self.wait(filler).expect("waits");
        // SAFETY: consumers wait for what is queued there, and the tests queue the rest there before anybody reads.
        unsafe { self.produced_on(filler) }.expect("not shared");
    }

    fn data(&self) -> u64 {
        let mut column = self.root();
        while let Some(below) = column.child(0) {
            column = below;
        }
        column.buffers().get(1).expect("values").expose_provenance() as u64
    }
}

/// Makes data in memory that is given back on one stream, fills it on another one, and gives it up without reading it.
///
/// # Panics
/// Like [`Session::each`]: if the memory is given back before it was filled.
pub fn fill_and_drop<T: Filled>(session: &Session, seeds: u64, make: impl Fn(Stream) -> T) {
    session.each(seeds, || {
        let (own, filler) = (sim::stream(), sim::stream());
        let mut made = make(sim::on(own));
        made.order(sim::on(filler));
        sim::fill(made.data(), 1, FILLED, filler);
        drop(made);
        sim::settle();
        sim::finish([own, filler]);
    });
}
