//! Arrays, schemas and readers of arrow-rs: every type both ways at the same addresses, refusals, readers that fail.
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

mod arrays;
mod batches;
mod readers;

use core::ffi::c_void;
use std::collections::HashMap;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::builder::*;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::*;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef, TimeUnit, UnionFields, UnionMode};

use devexchange_core::abi::types::*;
use devexchange_core::arrow::builder::ArrayBuilder as OurBuilder;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::arrow::{Column, Type};
use devexchange_core::{Batch, BatchStream, Device, DeviceType, Error, Owner, Result, ledger};

/// One test at a time, because the ledger counts for the whole process: a test fails if it does not release everything.
struct Alone(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

fn alone() -> Alone {
    static ONE: Mutex<()> = Mutex::new(());
    Alone(ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

impl Drop for Alone {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(ledger::outstanding(), 0);
        }
    }
}

#[track_caller]
fn check_error<T>(result: Result<T>, status: DevxStatus, part: &str) {
    let error = result.map(drop).unwrap_err();
    assert_eq!(error.status(), status, "{error}");
    assert!(error.message().contains(part), "{:?} lacks {part:?}", error.message());
}

fn record_batch(first: i32) -> RecordBatch {
    let metadata = HashMap::from([("made".to_owned(), "by hand".to_owned())]);
    let fields = vec![Field::new("n", DataType::Int32, false), Field::new("t", DataType::Utf8, true)];
    let texts: ArrayRef = Arc::new(StringArray::from_iter([Some("a"), None, Some("c")]));
    let numbers = Arc::new(Int32Array::from_iter_values(first..first + 3));
    RecordBatch::try_new(Arc::new(Schema::new_with_metadata(fields, metadata)), vec![numbers, texts]).unwrap()
}

fn reader_of(batches: &[RecordBatch]) -> impl RecordBatchReader + Send + 'static {
    let (schema, batches) = (batches[0].schema(), batches.to_vec());
    RecordBatchIterator::new(batches.into_iter().map(Ok), schema)
}
