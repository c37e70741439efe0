//! Streams of batches: from Rust and from foreign producers, to Rust and to foreign consumers; ends, errors, releases.
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "a test plays the part of a foreign program")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

mod exports;
mod foreign;
mod imports;

use core::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};

use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::arrow_device_stream::ArrowDeviceArrayStream;
use devexchange_core::abi::arrow_stream::ArrowArrayStream;
use devexchange_core::abi::types::*;
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::arrow::{release_array, release_device_stream, release_schema, release_stream};
use devexchange_core::{Batch, BatchStream, Device, DeviceType, Error, Owner, Result, Schema};

const CPU: DeviceType = DeviceType::CPU;

fn schema() -> Schema {
    Schema::new(&[FieldDesc::batch(1), FieldDesc::new(c"n", c"i")]).unwrap()
}

/// A batch of one column of equal numbers, which the batch keeps alive; `released` counts its releases.
fn batch(schema: &Schema, value: i32, released: &Arc<AtomicUsize>) -> Batch {
    let values = vec![value; 3];
    let (validity, numbers) = ([null()], [null(), values.as_ptr().cast::<c_void>()]);
    let node = |buffers| NodeDesc { length: 3, null_count: 0, offset: 0, buffers };
    let released = Arc::clone(released);
    let owner = Owner::on_release(move || {
        drop(values);
        released.fetch_add(1, SeqCst);
    });
    unsafe { Batch::from_raw_parts(schema, Device::CPU, &[node(&validity), node(&numbers)], owner) }.unwrap()
}

fn value_of(batch: &Batch) -> i32 {
    batch.column(0).unwrap().values::<i32>().unwrap()[0]
}

/// Batches with the values 0, 1, 2, ...
fn counting(n: i32, released: &Arc<AtomicUsize>) -> BatchStream {
    let (of, released) = (schema(), Arc::clone(released));
    BatchStream::of(&schema(), CPU, (0..n).map(move |value| Ok(batch(&of, value, &released)))).unwrap()
}

#[track_caller]
fn check_error<T: std::fmt::Debug>(result: Result<T>, status: DevxStatus, part: &str) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.status(), status, "{error}");
    assert!(error.message().contains(part), "{:?} lacks {part:?}", error.message());
    error
}
