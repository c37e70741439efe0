//! Memory that was exported and imported again and again: each import keeps the export that it came from, and that
//! export keeps the import before. The last one to be released releases all of them, on a stack with little room.
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests hand over valid structs that they own")]
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

use std::cell::Cell;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_stream::ArrowArrayStream;
use devexchange_core::abi::dlpack::{DLManagedTensor, DLManagedTensorVersioned};
use devexchange_core::arrow::batch::NodeDesc;
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::dlpack::{self, Copying, Managed, Owned, Request};
use devexchange_core::{
    Batch, BatchStream, DType, Device, DeviceType, Flags, Owner, Schema, Tensor, TensorDesc, convert,
};

const LINKS: usize = 50_000;
const STACK: usize = 128 << 10;

/// Runs `test` on a thread with a small stack. `test` gets an owner, whose release must have run once when `test` is
/// done.
fn on_a_small_stack(test: impl FnOnce(Owner) + Send + 'static) {
    let released = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&released);
    let owner = Owner::on_release(move || {
        count.fetch_add(1, SeqCst);
    });
    let thread = std::thread::Builder::new().stack_size(STACK);
    thread.spawn(move || test(owner)).unwrap().join().unwrap();
    assert_eq!(released.load(SeqCst), 1);
}

fn tensor(owner: Owner) -> Tensor {
    tensor_of(&[2, 3], owner)
}

fn tensor_of(shape: &[i64], owner: Owner) -> Tensor {
    static VALUES: [f32; 6] = [0.0; 6];
    let data = VALUES.as_ptr().cast_mut().cast();
    let (device, dtype, flags) = (Device::CPU, DType::FLOAT32, Flags::default());
    let desc = TensorDesc { data, device, dtype, shape, strides: None, byte_offset: 0, flags };
    unsafe { Tensor::from_raw_parts(&desc, owner) }.unwrap()
}

fn schema() -> Schema {
    Schema::new(&[FieldDesc::batch(0)]).unwrap()
}

fn batch(owner: Owner) -> Batch {
    let node = NodeDesc { length: 3, null_count: 0, offset: 0, buffers: &[null()] };
    unsafe { Batch::from_raw_parts(&schema(), Device::CPU, &[node], owner) }.unwrap()
}

fn tensors<M: Managed + 'static>() {
    on_a_small_stack(|owner| {
        let mut last = tensor(owner);
        for _ in 0..LINKS {
            let exported: Owned<M> = dlpack::export(last, &Request::default()).unwrap();
            last = exported.import().unwrap();
        }
        drop(last);
    });
}

#[test]
fn of_tensors() {
    tensors::<DLManagedTensorVersioned>();
    tensors::<DLManagedTensor>();
}

/// A chain of tensors over memory of `owner`.
fn chain(owner: Owner) -> Tensor {
    (0..LINKS).fold(tensor(owner), |last, _| {
        let exported: Owned<DLManagedTensorVersioned> = dlpack::export(last, &Request::default()).unwrap();
        exported.import().unwrap()
    })
}

/// A thread that only releases, as a consumer's may be.
#[test]
fn of_tensors_on_another_thread() {
    on_a_small_stack(|owner| {
        let last = chain(owner);
        std::thread::Builder::new().stack_size(STACK).spawn(move || drop(last)).unwrap().join().unwrap();
    });
}

/// What a thread keeps until its end may be released after everything that the library keeps for it.
#[test]
fn of_tensors_at_the_end_of_a_thread() {
    thread_local!(static KEPT: Cell<Option<Tensor>> = const { Cell::new(None) });
    on_a_small_stack(|owner| {
        // Made first, so it is dropped last.
        KEPT.set(None);
        KEPT.set(Some(chain(owner)));
    });
}

#[test]
fn of_batches() {
    on_a_small_stack(|owner| {
        let (mut last, schema) = (batch(owner), schema());
        for _ in 0..LINKS {
            let mut array = ArrowArray::RELEASED;
            unsafe { last.export(&mut array) }.unwrap();
            last = unsafe { Batch::import(&mut array, &schema) }.unwrap();
        }
        drop(last);
    });
}

#[test]
fn of_slices() {
    on_a_small_stack(|owner| {
        let node = NodeDesc { length: LINKS as i64, null_count: 0, offset: 0, buffers: &[null()] };
        let mut last = unsafe { Batch::from_raw_parts(&schema(), Device::CPU, &[node], owner) }.unwrap();
        while last.length() > 0 {
            last = last.slice(1, last.length() - 1).unwrap();
        }
        drop(last);
    });
    on_a_small_stack(|owner| {
        static VALUES: [u8; LINKS] = [0; LINKS];
        let shape = [LINKS as i64];
        let (data, device, dtype) = (VALUES.as_ptr().cast_mut().cast(), Device::CPU, DType::UINT8);
        let desc =
            TensorDesc { data, device, dtype, shape: &shape, strides: None, byte_offset: 0, flags: Flags::default() };
        let mut last = unsafe { Tensor::from_raw_parts(&desc, owner) }.unwrap();
        while last.shape() != [0] {
            last = last.slice(0, 1, last.shape()[0] - 1).unwrap();
        }
        drop(last);
    });
}

#[test]
fn of_schemas() {
    on_a_small_stack(|owner| {
        let mut last = schema();
        for _ in 0..LINKS {
            let mut raw = ArrowSchema::RELEASED;
            unsafe { last.export(&mut raw) }.unwrap();
            last = unsafe { Schema::import(&mut raw) }.unwrap();
        }
        drop((last, owner));
    });
}

#[test]
fn of_conversions() {
    on_a_small_stack(|owner| {
        let mut last = tensor_of(&[6], owner);
        for _ in 0..LINKS {
            let column = convert::column(&last, "n", Copying::Never).unwrap();
            last = convert::tensor(column.root(), Copying::Never).unwrap();
        }
        drop(last);
    });
}

#[test]
fn of_streams() {
    on_a_small_stack(|owner| {
        let mut last = BatchStream::of(&schema(), DeviceType::CPU, std::iter::once(Ok(batch(owner)))).unwrap();
        // More streams within each other are refused.
        for _ in 0..64 {
            let mut stream = ArrowArrayStream::RELEASED;
            unsafe { last.export(&mut stream) }.unwrap();
            last = unsafe { BatchStream::import(&mut stream) }.unwrap();
        }
        drop(last);
    });
}

#[test]
fn of_owners() {
    on_a_small_stack(|owner| {
        let mut last = tensor(owner);
        for _ in 0..LINKS {
            last = tensor(Owner::on_release(move || drop(last)));
        }
        drop(last);
    });
}

/// Everything below is released, too, if there is more than one at each level.
#[test]
fn of_bushes() {
    const DEPTH: usize = 200;
    on_a_small_stack(|owner| {
        let root = tensor(owner);
        let mut level = vec![root];
        for _ in 0..DEPTH {
            level = (0..20)
                .map(|_| {
                    let below = level.clone();
                    tensor(Owner::on_release(move || drop(below)))
                })
                .collect();
        }
        drop(level);
    });
}

/// Of more than this many releases within each other, the lower ones are put off (docs/design.md, rule 5).
const NESTED: usize = 32;

/// A chain whose n-th release records its number after it has given up the links below, and calls `within` before it
/// returns.
fn numbered(links: usize, order: &Arc<Mutex<Vec<usize>>>, within: impl Fn(usize) + Send + Clone + 'static) -> Tensor {
    (0..links).rev().fold(tensor(Owner::none()), |below, number| {
        let (order, within) = (Arc::clone(order), within.clone());
        tensor(Owner::on_release(move || {
            drop(below);
            within(number);
            order.lock().unwrap().push(number);
        }))
    })
}

/// A release that is not nested too deep is over when the function that causes it goes on; a deeper one comes when the
/// outermost has returned. So a function must not wait for a release that it brings about.
#[test]
fn what_is_put_off_comes_after_the_functions_above() {
    let order = Arc::new(Mutex::new(Vec::new()));
    drop(numbered(NESTED, &order, |_| ()));
    assert_eq!(*order.lock().unwrap(), (0..NESTED).rev().collect::<Vec<_>>());
    order.lock().unwrap().clear();
    drop(numbered(NESTED + 3, &order, |_| ()));
    let expected = (0..NESTED).rev().chain((NESTED..NESTED + 3).rev()).collect::<Vec<_>>();
    assert_eq!(*order.lock().unwrap(), expected);
}

/// Another thread does not put off its releases because of the functions that wait for it: they are allowed to wait.
#[test]
fn a_thread_that_a_release_waits_for_releases_at_once() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let chain = numbered(2 * NESTED, &order, |_| {
        let own = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&own);
        let tensor = tensor(Owner::on_release(move || {
            count.fetch_add(1, SeqCst);
        }));
        std::thread::spawn(move || drop(tensor)).join().unwrap();
        assert_eq!(own.load(SeqCst), 1);
    });
    drop(chain);
    assert_eq!(order.lock().unwrap().len(), 2 * NESTED);
}

/// Whichever link of a chain is the first to be put off, its panic stops no owner above it.
#[test]
fn a_panic_in_a_release_that_is_put_off_ends_there() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    for links in NESTED - 3..NESTED + 3 {
        let source = Panics;
        let schema = Schema::new(&[FieldDesc::batch(0)]).unwrap();
        let stream = BatchStream::new(&schema, DeviceType::CPU, move || {
            let _held = &source;
            Ok(None)
        });
        let first = tensor(Owner::new(stream.unwrap()));
        drop((0..links).fold(first, |below, _| tensor(Owner::new(below))));
    }
}
