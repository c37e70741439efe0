//! The batches that go through the streams: bytes, distinguished by their length.

use std::ffi::c_void;
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::{Batch, Device, Owner, Schema};

/// The contents of the batches; none is longer.
pub(crate) static VALUES: [u8; 16] = [7; 16];

thread_local!(static TYPE: Schema = Schema::new(&[FieldDesc::new(c"bytes", c"C")]).unwrap());

/// Made only once, so that the ledger does not count it: it was not handed to anybody.
pub(crate) fn type_of_batches() -> Schema {
    TYPE.with(Schema::clone)
}

/// Our own batch, and the number of its releases.
pub(crate) fn make(length: i64) -> (Batch, Arc<AtomicU32>) {
    let released = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&released);
    let buffers: [*const c_void; 2] = [null(), VALUES.as_ptr().cast()];
    let nodes = [NodeDesc { length, null_count: 0, offset: 0, buffers: &buffers }];
    let owner = Owner::on_release(move || {
        count.fetch_add(1, Relaxed);
    });
    // SAFETY: the values are static, and no batch is longer.
    let batch = unsafe { Batch::from_raw_parts(&type_of_batches(), Device::CPU, &nodes, owner) };
    (batch.map_err(|refused| refused.error).unwrap(), released)
}
