//! Structs of Arrow that Rust owns: released once, whoever takes them, and whatever way a function is left.
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::arrow_device_stream::ArrowDeviceArrayStream;
use devexchange_core::abi::arrow_stream::ArrowArrayStream;
use devexchange_core::abi::types::*;
use devexchange_core::arrow::asynchronous::{AsyncReader, AsyncWriter, OwnedHandler, ReaderOptions, channel};
use devexchange_core::arrow::{Owned, OwnedBatch, Struct};
use devexchange_core::dlpack::Copying;
use devexchange_core::{
    Batch, BatchStream, DType, Device, DeviceType, Error, Flags, Owner, Result, Tensor, TensorDesc, convert, ledger,
};

/// Runs tests one at a time: the ledger belongs to the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn batch() -> Batch {
    let rows = Tensor::from_vec(vec![1_i64, 2, 3], &[3, 1]).unwrap();
    convert::batch(&rows, &["n"], Copying::Never).unwrap()
}

fn stream() -> BatchStream {
    let batch = batch();
    BatchStream::of(batch.schema(), DeviceType::CPU, vec![Ok(batch.clone())]).unwrap()
}

fn numbers(batch: &Batch) -> Vec<i64> {
    batch.column_named("n").unwrap().values::<i64>().unwrap().to_vec()
}

/// Leaves as `?` would.
fn left_early<T, U>(exported: std::result::Result<T, U>) -> Result<()>
where
    Error: From<U>,
{
    let _held = exported?;
    Err(Error::new(DEVX_CALLBACK, "something else failed"))
}

#[test]
fn what_is_handed_over_and_not_taken_is_released() {
    let _alone = alone();
    let functions: [fn() -> Result<()>; 6] = [
        || left_early(batch().schema().export_owned()),
        || left_early(batch().export_owned()),
        || left_early(batch().export_device_owned()),
        || left_early(stream().export_owned()),
        || left_early(stream().export_device_owned()),
        || left_early(AsyncReader::new(ReaderOptions::default(), None)?.owned_handler()),
    ];
    for (number, function) in functions.into_iter().enumerate() {
        assert_eq!(function().unwrap_err().status(), DEVX_CALLBACK);
        assert_eq!(ledger::outstanding(), 0, "{number}");
    }
}

#[test]
fn what_is_imported_is_what_was_exported() {
    let _alone = alone();
    let whole = batch();
    assert_eq!(&whole.schema().export_owned().unwrap().import().unwrap(), whole.schema());
    assert_eq!(numbers(&whole.clone().export_owned().unwrap().import().unwrap()), [1, 2, 3]);
    assert_eq!(numbers(&whole.clone().export_device_owned().unwrap().import().unwrap()), [1, 2, 3]);
    let (_, mut array) = whole.clone().export_owned().unwrap().into_parts();
    // SAFETY: the schema that the array was exported with.
    assert_eq!(numbers(&unsafe { array.import(whole.schema()) }.unwrap()), [1, 2, 3]);
    let (mut schema, mut array) = whole.clone().export_device_owned().unwrap().into_parts();
    // SAFETY: as above.
    assert_eq!(numbers(&unsafe { array.import(&schema.import().unwrap()) }.unwrap()), [1, 2, 3]);
    for pulled in
        [stream().export_owned().unwrap().import().unwrap(), stream().export_device_owned().unwrap().import().unwrap()]
    {
        let all: Vec<_> = pulled.batches().map(Result::unwrap).collect();
        assert_eq!(all.iter().map(numbers).collect::<Vec<_>>(), [[1, 2, 3]]);
    }
    drop(whole);
    assert_eq!(ledger::outstanding(), 0);
}

/// A consumer in C: moves the struct away, and releases it.
fn taken<S: Struct>(owned: &mut Owned<S>) -> Owned<S> {
    // SAFETY: a valid struct, in whose place nothing is left.
    let moved = unsafe { owned.as_mut_ptr().replace(Owned::empty().into_raw()) };
    // SAFETY: as above.
    unsafe { Owned::from_raw(moved) }
}

#[test]
fn what_was_taken_is_not_released_again() {
    let _alone = alone();
    let mut schema: Owned<ArrowSchema> = batch().schema().export_owned().unwrap();
    let (_, mut array): (_, Owned<ArrowArray>) = batch().export_owned().unwrap().into_parts();
    let (_, mut device): (_, Owned<ArrowDeviceArray>) = batch().export_device_owned().unwrap().into_parts();
    let mut pulled: Owned<ArrowArrayStream> = stream().export_owned().unwrap();
    let mut on_device: Owned<ArrowDeviceArrayStream> = stream().export_device_owned().unwrap();
    assert!(!schema.is_empty() && !array.is_empty() && !device.is_empty());
    assert!(!pulled.is_empty() && !on_device.is_empty());
    drop((taken(&mut schema), taken(&mut array), taken(&mut device), taken(&mut pulled), taken(&mut on_device)));
    assert_eq!(ledger::outstanding(), 0);
    assert!(schema.is_empty() && array.is_empty() && device.is_empty() && pulled.is_empty() && on_device.is_empty());

    // There is nothing to import.
    assert_eq!(schema.import().unwrap_err().status(), DEVX_RELEASED);
    assert_eq!(pulled.import().unwrap_err().status(), DEVX_RELEASED);
    assert_eq!(on_device.import().unwrap_err().status(), DEVX_RELEASED);
    // SAFETY: there is no array.
    assert_eq!(unsafe { array.import(batch().schema()) }.unwrap_err().status(), DEVX_RELEASED);
    // SAFETY: as above.
    assert_eq!(unsafe { device.import(batch().schema()) }.unwrap_err().status(), DEVX_RELEASED);

    // A schema without its array stays where it is.
    // SAFETY: as above.
    let mut pair = unsafe { OwnedBatch::from_parts(batch().schema().export_owned().unwrap(), array) };
    assert_eq!(pair.import().unwrap_err().status(), DEVX_RELEASED);
    let (schema, array) = pair.into_parts();
    assert!(array.is_empty() && !schema.is_empty());
    // SAFETY: as above.
    let mut pair = unsafe { OwnedBatch::from_parts(schema, device) };
    assert_eq!(pair.import().unwrap_err().status(), DEVX_RELEASED);
    assert!(!pair.into_parts().0.is_empty());
    assert_eq!(ledger::outstanding(), 0);
}

/// A plain array is host memory.
#[test]
fn a_refused_export_gives_the_batch_back() {
    let _alone = alone();
    let mut values = [1_i64, 2, 3];
    let desc = TensorDesc {
        data: values.as_mut_ptr().cast(),
        device: Device::cuda(0),
        dtype: DType::INT64,
        shape: &[3, 1],
        strides: None,
        byte_offset: 0,
        flags: Flags::default(),
    };
    // SAFETY: nothing is done with the memory.
    let rows = unsafe { Tensor::from_raw_parts(&desc, Owner::none()) }.unwrap();
    let batch = convert::batch(&rows, &["n"], Copying::Never).unwrap();
    drop(rows);
    let refused = batch.export_owned().unwrap_err();
    assert_eq!((refused.error.status(), refused.returned.length()), (DEVX_DEVICE, 3));
    drop(refused);
    assert_eq!(ledger::outstanding(), 0);
}

#[test]
fn both_ends_of_an_asynchronous_stream_without_pointers() {
    let _alone = alone();
    let (writer, reader) = channel(ReaderOptions::default(), DeviceType::CPU).unwrap();
    writer.start(batch().schema()).unwrap();
    writer.try_send(batch(), None).map_err(Error::from).unwrap();
    writer.finish().unwrap();
    assert_eq!(numbers(&reader.wait_batch(None).unwrap().unwrap().0), [1, 2, 3]);
    assert!(reader.wait_batch(None).unwrap().is_none());
    drop((writer, reader));
    assert_eq!(ledger::outstanding(), 0);

    let negative = ReaderOptions { limit: -1, ..ReaderOptions::default() };
    assert_eq!(channel(negative, DeviceType::CPU).unwrap_err().status(), DEVX_INVALID_ARGUMENT);
    assert_eq!(channel(ReaderOptions::default(), DeviceType(99)).unwrap_err().status(), DEVX_DEVICE);
    assert_eq!(ledger::outstanding(), 0);
}

#[test]
fn a_refused_handler_is_given_back() {
    let _alone = alone();
    let reader = AsyncReader::new(ReaderOptions::default(), None).unwrap();
    let handler = reader.owned_handler().unwrap();
    assert_eq!(reader.owned_handler().unwrap_err().status(), DEVX_INVALID_ARGUMENT);
    let refused = AsyncWriter::of(handler, DeviceType(99), None, None).unwrap_err();
    assert_eq!(refused.error.status(), DEVX_DEVICE);
    let raw = NonNull::new(refused.returned.into_raw()).unwrap();
    // SAFETY: not released yet, and nobody else has it.
    drop(AsyncWriter::of(unsafe { OwnedHandler::from_raw(raw) }, DeviceType::CPU, None, None).unwrap());
    assert_eq!(reader.wait_schema(None).unwrap_err().errno(), libc::EPIPE);
    drop(reader);
    assert_eq!(ledger::outstanding(), 0);
}

/// As in a capsule of Python, whose consumers read the struct at its address.
#[test]
fn what_is_owned_is_the_struct_in_memory() {
    #[deny(improper_ctypes_definitions, reason = "the layout has to be promised")]
    extern "C" fn producer() -> Owned<ArrowArrayStream> {
        stream().export_owned().unwrap()
    }
    /// What a consumer does.
    fn rows(capsule: *mut ArrowArrayStream) -> i64 {
        // SAFETY: the struct, which was handed over.
        let pulled = unsafe { BatchStream::import(capsule) }.unwrap();
        pulled.batches().map(|batch| batch.unwrap().length()).sum()
    }
    let _alone = alone();
    let mut capsule = Box::new(producer());
    assert_eq!(rows((&raw mut *capsule).cast()), 3);
    assert!(capsule.is_empty());
    drop(capsule);
    assert_eq!(ledger::outstanding(), 0);
}
