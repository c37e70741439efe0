//! The ledger, in its own process: each kind is counted where it belongs, on whatever thread.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "what a helper of a test needs must be there")]

use std::cell::RefCell;
use std::mem::MaybeUninit;

use devexchange_core::abi::dlpack::DLManagedTensor;
use devexchange_core::abi::types::{DevxCount, DevxLedger};
use devexchange_core::dlpack::{self, Copying, Owned, Request};
use devexchange_core::{Batch, BatchStream, DeviceType, Owner, Schema, Tensor, convert, ledger};

/// All kinds: tensors, batches, schemas, each exported and imported, then owners and streams.
fn kinds(l: &DevxLedger) -> [DevxCount; 9] {
    let (tensors, batches) = ([l.tensor_exports, l.tensor_imports], [l.batch_exports, l.batch_imports]);
    let (schemas, streams) = ([l.schema_exports, l.schema_imports], [l.stream_exports, l.stream_imports]);
    let ([a, b], [c, d], [e, f], [g, h]) = (tensors, batches, schemas, streams);
    [a, b, c, d, e, f, l.owners, g, h]
}

/// How many of each kind there have ever been, and how many there are now.
fn total_and_live() -> ([i64; 9], [i64; 9]) {
    let kinds = kinds(&ledger::read());
    (kinds.map(|count| count.total), kinds.map(|count| count.live))
}

/// A view of the tensor.
fn batch_of(tensor: &Tensor) -> Batch {
    convert::column(tensor, "n", Copying::Never).unwrap()
}

/// Each kind in turn, one more each time; all are kept until the end.
fn each_kind_is_counted() {
    let mut expected = [0; 9];
    assert_eq!((total_and_live(), ledger::outstanding()), ((expected, expected), 0));
    let mut check = |more: &[usize]| {
        more.iter().for_each(|&kind| expected[kind] += 1);
        let sum = expected.iter().sum::<i64>();
        assert_eq!((total_and_live(), ledger::outstanding()), ((expected, expected), sum), "after {more:?}");
    };
    let tensor = Tensor::from_vec(vec![1_i32, 2], &[2]).unwrap();
    check(&[6]);
    let exported: Owned<DLManagedTensor> = dlpack::export(tensor.clone(), &Request::default()).unwrap();
    check(&[0]);
    let tensor_in = exported.import().unwrap();
    check(&[1]);
    let batch = batch_of(&tensor);
    // The tensor behind the view is counted already.
    check(&[]);
    let mut schema_out = MaybeUninit::uninit();
    // SAFETY: room for the struct.
    unsafe { batch.schema().export(schema_out.as_mut_ptr()) }.unwrap();
    check(&[4]);
    // SAFETY: just exported, and given to nobody else.
    let schema = unsafe { Schema::import(schema_out.as_mut_ptr()) }.unwrap();
    check(&[5]);
    let mut array = MaybeUninit::uninit();
    // SAFETY: room for the struct.
    unsafe { batch.clone().export(array.as_mut_ptr()) }.unwrap();
    check(&[2]);
    // SAFETY: just exported, and given to nobody else.
    let batch_in = unsafe { Batch::import(array.as_mut_ptr(), &schema) }.unwrap();
    check(&[3]);
    let stream = BatchStream::of(&schema, DeviceType::CPU, Vec::new()).unwrap();
    let mut stream_out = MaybeUninit::uninit();
    // SAFETY: room for the struct.
    unsafe { stream.export(stream_out.as_mut_ptr()) }.unwrap();
    check(&[7]);
    // SAFETY: just exported, and given to nobody else.
    let stream_in = unsafe { BatchStream::import(stream_out.as_mut_ptr()) }.unwrap();
    // With its schema.
    check(&[8, 4, 5]);
    drop((tensor, tensor_in, batch, schema, batch_in, stream_in));
    assert_eq!((total_and_live(), ledger::outstanding()), ((expected, [0; 9]), 0));
}

/// What a thread does when it ends, after it has given up what it kept, is counted, too.
fn threads_that_end_are_counted() {
    struct Last(RefCell<Vec<Owner>>);
    impl Drop for Last {
        fn drop(&mut self) {
            // One more owner, which is dropped with the others.
            self.0.get_mut().push(Owner::new(()));
        }
    }
    thread_local!(static LAST: Last = const { Last(RefCell::new(Vec::new())) });
    let before = ledger::read().owners;
    std::thread::spawn(|| {
        // The thread knows it before the library, so it is destroyed after the library's.
        LAST.with(|last| last.0.borrow_mut().push(Owner::none()));
        LAST.with(|last| last.0.borrow_mut().push(Owner::new(())));
    })
    .join()
    .unwrap();
    let after = ledger::read().owners;
    assert_eq!((after.total - before.total, after.live, ledger::outstanding()), (2, 0, 0));
}

#[test]
fn everything_is_counted_once() {
    each_kind_is_counted();
    threads_that_end_are_counted();
}
