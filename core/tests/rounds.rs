//! Ten thousand rounds of export, import and release, of views of views, and a million batches through streams: nothing
//! is left over, and each step makes one allocation the first time and none later, when the thread has its own blocks
//! to take.
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::mem::zeroed;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use devexchange_core::abi::arrow_data::ArrowSchema;
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::dlpack::{DLManagedTensor, DLManagedTensorVersioned};
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::dlpack::{self, Copying, Managed, Owned, Request};
use devexchange_core::{
    Batch, BatchStream, Device, DeviceType, Owner, Refused, Result, Schema, Tensor, convert, ledger,
};

const ROUNDS: usize = 10_000;

/// Batches through each kind of stream.
const BATCHES: usize = 1_000_000;

thread_local! {
    /// Counts only this thread's: the thread that runs the tests also allocates, at unpredictable times.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: everything is passed on to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        LIVE_BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The result of `step`, and the number of allocations that it made.
fn counted<T>(step: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATIONS.get();
    let result = step();
    (result, ALLOCATIONS.get() - before)
}

fn tensor_rounds<M: Managed>(tensor: &Tensor) {
    for round in 0..ROUNDS {
        let (exported, export) = counted(|| dlpack::export(tensor.clone(), &Request::default()).unwrap());
        let exported: Owned<M> = exported;
        let (imported, import) = counted(|| exported.import().unwrap());
        let ((), release) = counted(|| drop(imported));
        let most = usize::from(round == 0);
        assert!(export <= most && import <= most && release == 0, "{export} {import} {release}");
    }
}

/// A batch with this many columns, all over the same numbers.
fn wide(columns: usize) -> Batch {
    static NUMBERS: [i32; 2] = [1, 2];
    let fields: Vec<_> = std::iter::once(FieldDesc::batch(columns as u32))
        .chain(std::iter::repeat_n(FieldDesc::new(c"n", c"i"), columns))
        .collect();
    let (validity, values) = ([null()], [null(), NUMBERS.as_ptr().cast()]);
    let nodes: Vec<_> = std::iter::once(&validity[..])
        .chain(std::iter::repeat_n(&values[..], columns))
        .map(|buffers| NodeDesc { length: 2, null_count: 0, offset: 0, buffers })
        .collect();
    let schema = Schema::new(&fields).unwrap();
    // SAFETY: the numbers are static, and there are two.
    unsafe { Batch::from_raw_parts(&schema, Device::CPU, &nodes, Owner::none()) }.unwrap()
}

fn batch_rounds(columns: usize, rounds: usize) {
    let batch = wide(columns);
    for round in 0..rounds {
        let mut schema = ArrowSchema::RELEASED;
        let mut array = ArrowDeviceArray::RELEASED;
        let (done, schema_export) = counted(|| {
            // SAFETY: there is room.
            unsafe { batch.schema().export(&mut schema) }
        });
        done.unwrap();
        let (done, export) = counted(|| {
            // SAFETY: there is room.
            unsafe { batch.clone().export_device(&mut array) }
        });
        done.unwrap();
        let (imported_schema, schema_import) = counted(|| {
            // SAFETY: just exported, and owned here.
            unsafe { Schema::import(&mut schema) }
        });
        let imported_schema = imported_schema.unwrap();
        let (imported, import) = counted(|| {
            // SAFETY: just exported, and owned here.
            unsafe { Batch::import_device(&mut array, &imported_schema) }
        });
        drop(imported.unwrap());
        let (steps, most) = ([schema_export, export, schema_import, import], usize::from(round == 0));
        assert!(steps.iter().all(|&step| step <= most), "{steps:?} for {columns} columns");
    }
}

/// One batch, a million times over, into a consumer's struct and out of it again.
fn stream_rounds<S>(
    export: unsafe fn(BatchStream, *mut S) -> std::result::Result<(), Refused<BatchStream>>,
    import: unsafe fn(*mut S) -> Result<BatchStream>,
) {
    let batch = wide(3);
    let source = BatchStream::of(batch.schema(), DeviceType::CPU, std::iter::repeat_n(Ok(batch.clone()), BATCHES));
    // SAFETY: an all-zero struct is a valid, released one.
    let mut exported = unsafe { zeroed::<S>() };
    // SAFETY: there is room.
    unsafe { export(source.unwrap(), &mut exported) }.unwrap();
    // SAFETY: just exported, and owned here.
    let stream = unsafe { import(&mut exported) }.unwrap();
    let first = stream.next().unwrap();
    drop(first);
    let live = LIVE_BYTES.load(Relaxed);
    for _ in 1..BATCHES {
        let (batch, pull) = counted(|| stream.next().unwrap().unwrap());
        assert_eq!((batch.length(), pull), (2, 0));
        drop(batch);
        assert_eq!(LIVE_BYTES.load(Relaxed), live);
    }
    let (end, pull) = counted(|| stream.next().unwrap());
    assert!(end.is_none() && pull == 0);
}

/// Views of views: each keeps the whole, and nothing of the views between.
fn view_rounds() {
    let mut tensor = Tensor::from_vec(vec![0_u8; 2 * ROUNDS], &[2 * ROUNDS as i64]).unwrap();
    let mut live = None;
    // Stops before a view without elements, whose description has another size.
    for rows in (3..2 * ROUNDS as i64).rev().step_by(2) {
        tensor = tensor.slice(0, 1, rows).unwrap();
        let column = convert::column(&tensor, "x", Copying::Never).unwrap();
        let shorter = column.slice(1, rows - 1).unwrap();
        tensor = convert::tensor(shorter.root(), Copying::Never).unwrap();
        drop((column, shorter));
        assert_eq!(*live.get_or_insert_with(|| LIVE_BYTES.load(Relaxed)), LIVE_BYTES.load(Relaxed));
    }
}

/// One test, because the counter and the ledger belong to the process.
#[test]
fn nothing_is_left_after_ten_thousand_rounds() {
    let tensor = Tensor::from_vec((0..24_u8).collect(), &[2, 3, 4]).unwrap();
    tensor_rounds::<DLManagedTensorVersioned>(&tensor);
    tensor_rounds::<DLManagedTensor>(&tensor);
    drop(tensor);
    batch_rounds(3, ROUNDS);
    batch_rounds(0, 10);
    batch_rounds(1_000, 10);
    batch_rounds(10_000, 3);
    stream_rounds(BatchStream::export, BatchStream::import);
    stream_rounds(BatchStream::export_device, BatchStream::import_device);
    view_rounds();
    assert_eq!(ledger::outstanding(), 0);
    assert_eq!(ledger::read().tensor_imports.total as usize, 2 * ROUNDS);
    assert_eq!(ledger::read().stream_imports.total, 2);
}
