//! Checks that an import from an untrusted process lies within its memory, and that it gives its exporter up. The fuzz target
//! includes this file, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::{Owner, Peer, Tensor};

/// An exporter, and whether it was given up.
pub(crate) fn watched() -> (Peer, Arc<AtomicBool>) {
    let flag = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&flag);
    (Peer { id: 0, keep: Owner::on_release(move || own.store(true, SeqCst)) }, flag)
}

/// Reads the lowest and the highest byte of a host tensor, which must be in a mapping.
pub(crate) fn touch(tensor: &Tensor) {
    let layout = tensor.layout();
    for offset in [layout.lowest, layout.end - 1].into_iter().filter(|_| layout.elements > 0) {
        let at = tensor.data().cast::<u8>().wrapping_offset(offset);
        // SAFETY: the imported memory is in a mapping, which is what this tests.
        std::hint::black_box(unsafe { at.read_volatile() });
    }
}
