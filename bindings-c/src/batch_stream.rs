//! `devx_batch_stream_*`: streams of batches, and their import and export as Arrow streams.

use core::ffi::c_void;

use devexchange_core::abi::types::{DEVX_ERROR_MESSAGE_BYTES, DEVX_OK, DevxBatch, DevxError, DevxOwner, DevxStatus};
use devexchange_core::arrow::BatchStream;
use devexchange_core::error::Returned;
use devexchange_core::{Batch, DeviceType, Error, Owner, Result, text};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::batch::BatchHandle;
use crate::ctypes::{ArrowArrayStream, ArrowDeviceArrayStream, BatchSourceRecord, ErrorRecord, Status};
use crate::error::{guard, guard_release, handed_over, handle, required};
use crate::schema::SchemaHandle;

handle! {
    /// A stream of batches of one schema on one kind of device: one reference. Valid until it is released or exported. Any
    /// thread may use it, but with one call at a time.
    BatchStreamHandle = "devx_batch_stream" of BatchStream
}
handed_over! { BatchStreamHandle of BatchStream, "stream" }

/// Makes a stream of the batches that `source` gives.
///
/// The batches have this schema and are on devices of this type (1, the CPU; 2, CUDA; ...). The source's release is called
/// once, when the stream is released. On failure, the source is still the caller's.
#[ffi_export]
unsafe fn devx_batch_stream_create(
    schema: *const SchemaHandle,
    device_type: i32,
    source: Option<&BatchSourceRecord>,
    out: Option<Out<'_, *mut BatchStreamHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let schema = unsafe { SchemaHandle::borrow(schema, "schema") }?;
        let source = required(source, "source")?.0;
        let next = required(source.next, "source.next")?;
        let stream = BatchStream::with(&schema, DeviceType(device_type), || {
            let owner = DevxOwner { context: source.context, release: source.release };
            // SAFETY: the caller hands over the source, and nothing can fail any more.
            let owner = unsafe { Owner::from_raw(owner) };
            let mut source = Source { next, context: source.context, record: NOTHING_SAID, _owner: owner };
            move || source.next()
        })?;
        out.write(BatchStreamHandle::give(stream));
        Ok(())
    })
}

struct Source {
    next: unsafe extern "C" fn(*mut c_void, *mut *mut DevxBatch, *mut DevxError) -> DevxStatus,
    context: *mut c_void,
    /// Where the source says what went wrong; empty before each call.
    record: DevxError,
    _owner: Owner,
}

const NOTHING_SAID: DevxError = DevxError { status: DEVX_OK, driver_code: 0, message: [0; DEVX_ERROR_MESSAGE_BYTES] };

// SAFETY: by the contract of `devx_batch_source`, its functions may be called on any thread.
unsafe impl Send for Source {}

impl Source {
    fn next(&mut self) -> Result<Option<Batch>> {
        let mut batch = std::ptr::null_mut();
        // SAFETY: the source is not released yet, and there is room for both outputs.
        let status = unsafe { (self.next)(self.context, &mut batch, &mut self.record) };
        let record = &mut self.record;
        if status != DEVX_OK {
            let said = text::read(&record.message);
            return Err(if said.0.is_empty() {
                Error::driver(status, record.driver_code, format_args!("{}", Returned("source.next", status)))
            } else {
                Error::driver(status, record.driver_code, format_args!("{said}"))
            });
        }
        if record.status != DEVX_OK || record.driver_code != 0 || record.message.first() != Some(&0) {
            *record = NOTHING_SAID;
        }
        let mut handle = batch.cast::<BatchHandle>();
        // SAFETY: the source gives NULL, or a living handle that it does not use any more.
        Ok(unsafe { BatchHandle::take(Some(&mut handle)) })
    }
}

/// Takes an Arrow stream of host arrays from its producer and asks it for its schema.
///
/// On success, `source` is moved from (its `release` is NULL), and released once, when the stream is released. On failure, it
/// still belongs to its owner. `DEVX_TOO_DEEP` for a stream that was exported and imported 64 times.
#[ffi_export]
unsafe fn devx_batch_stream_import(
    source: *mut ArrowArrayStream,
    out: Option<Out<'_, *mut BatchStreamHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a valid stream that it owns.
        let stream = unsafe { BatchStream::import(source.cast()) }?;
        out.write(BatchStreamHandle::give(stream));
        Ok(())
    })
}

/// Like `devx_batch_stream_import`, for a stream of device arrays.
#[ffi_export]
unsafe fn devx_batch_stream_import_device(
    source: *mut ArrowDeviceArrayStream,
    out: Option<Out<'_, *mut BatchStreamHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a valid stream that it owns.
        let stream = unsafe { BatchStream::import_device(source.cast()) }?;
        out.write(BatchStreamHandle::give(stream));
        Ok(())
    })
}

/// Gives a reference to the schema that all batches of the stream have.
#[ffi_export]
unsafe fn devx_batch_stream_schema(
    stream: *const BatchStreamHandle,
    out: Option<Out<'_, *mut SchemaHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let stream = unsafe { BatchStreamHandle::borrow(stream, "stream") }?;
        out.write(SchemaHandle::give(stream.schema().clone()));
        Ok(())
    })
}

/// Gives the type of the devices that the batches are on. Each batch says itself which device of that type it is on.
#[ffi_export]
unsafe fn devx_batch_stream_device_type(
    stream: *const BatchStreamHandle,
    out: Option<Out<'_, i32>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let stream = unsafe { BatchStreamHandle::borrow(stream, "stream") }?;
        out.write(stream.device_type().0);
        Ok(())
    })
}

/// Gives the next batch, or NULL at the end.
///
/// The batch outlives the stream. After the end, every call gives the end again; after an error, the same error again. That is
/// the error of the source, DEVX_CALLBACK if a callback of the producer failed, the error of an import if an array is invalid,
/// DEVX_MISMATCH or DEVX_DEVICE if the batch does not have the stream's schema or device type. `DEVX_BUSY` while another call
/// uses the stream: then nothing is lost. (If the source itself returns that status, the error is `DEVX_CALLBACK`.)
#[ffi_export]
unsafe fn devx_batch_stream_next(
    stream: *const BatchStreamHandle,
    out: Option<Out<'_, *mut BatchHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let stream = unsafe { BatchStreamHandle::borrow(stream, "stream") }?;
        out.write(stream.next()?.map_or(std::ptr::null_mut(), BatchHandle::give));
        Ok(())
    })
}

/// Hands the stream to a consumer, which releases `out`, and sets the handle to NULL.
///
/// What `out` held is overwritten, not released. On failure, the handle is as before. `DEVX_DEVICE` if the batches are not on
/// the CPU, because this struct cannot name a device. `DEVX_BUSY` while another call uses the stream: a consumer, which makes
/// one call at a time, would take a busy stream for an error.
#[ffi_export]
unsafe fn devx_batch_stream_export(
    stream: Option<&mut *mut BatchStreamHandle>,
    out: *mut ArrowArrayStream,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives room for a stream.
        let export = |given: BatchStream| unsafe { given.export(out.cast()) };
        // SAFETY: the caller gives a living handle.
        unsafe { BatchStreamHandle::hand_over(stream, export) }
    })
}

/// Like `devx_batch_stream_export`, with the device type.
#[ffi_export]
unsafe fn devx_batch_stream_export_device(
    stream: Option<&mut *mut BatchStreamHandle>,
    out: *mut ArrowDeviceArrayStream,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives room for a stream.
        let export = |given: BatchStream| unsafe { given.export_device(out.cast()) };
        // SAFETY: the caller gives a living handle.
        unsafe { BatchStreamHandle::hand_over(stream, export) }
    })
}

/// Releases a stream and sets the handle to NULL, on any thread; batches that came from it stay valid. NULL and a
/// handle that is NULL are fine.
#[ffi_export]
unsafe fn devx_batch_stream_release(stream: Option<&mut *mut BatchStreamHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { BatchStreamHandle::take(stream) }));
}
