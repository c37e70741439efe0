//! `devx_async_reader_*`: the batches of a producer's asynchronous stream. Nothing here blocks unless it is given a time to
//! wait.

use devexchange_core::Error;
use devexchange_core::abi::types::DEVX_NOT_READY;
use devexchange_core::arrow::asynchronous::{AsyncReader, ReaderOptions};
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::batch::BatchHandle;
use crate::ctypes::{AsyncHandler, ErrorRecord, Status, WakeRecord};
use crate::error::{guard, guard_release, handle, required};
use crate::metadata::MetadataHandle;
use crate::schema::SchemaHandle;
use crate::wake::{timeout, with_wake};

handle! {
    /// The consumer of an asynchronous stream. All functions may be called from any thread, several at once, and within
    /// callbacks; each batch goes to one of the callers.
    AsyncReaderHandle = "devx_async_reader" of AsyncReader
}

/// Makes the consumer of an asynchronous stream.
///
/// It keeps `limit` batches requested: it requests that many when the schema has come, and one more for each batch that is
/// taken. If `limit` is 0, batches come only after `devx_async_reader_request`. `abi_h_metadata` is 1 if the producer's struct
/// is that of Arrow's `abi.h` (40 bytes), so that its metadata can be read; 0 if that is not known, because the
/// specification's text has another struct. `wake`, which may be NULL, is called when there is something to poll for.
#[ffi_export]
unsafe fn devx_async_reader_create(
    limit: i64,
    abi_h_metadata: i32,
    wake: Option<&WakeRecord>,
    out: Option<Out<'_, *mut AsyncReaderHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        let options = ReaderOptions { limit, abi_h_metadata: abi_h_metadata != 0 };
        // SAFETY: the caller gives its own record.
        let reader = unsafe { with_wake(wake, |wake| AsyncReader::new(options, wake)) }?;
        out.write(AsyncReaderHandle::give(reader));
        Ok(())
    })
}

/// Gives the handler to pass to a producer; a second call fails.
///
/// The producer that takes the handler calls its `release` exactly once; if none takes it, the caller does. The handler is
/// valid until then, also after the reader was released. The release waits for a call of the producer's `request` or `cancel`
/// that runs on another thread: during it, the producer must not hold a lock that these take.
#[ffi_export]
unsafe fn devx_async_reader_handler(
    reader: *const AsyncReaderHandle,
    out: Option<Out<'_, *mut AsyncHandler>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let reader = unsafe { AsyncReaderHandle::borrow(reader, "reader") }?;
        out.write(reader.handler()?.cast());
        Ok(())
    })
}

/// Requests `n` more batches (`n` > 0), besides those that the limit keeps requested. Does nothing after the end.
///
/// DEVX_OUT_OF_RANGE if the sum of all requests cannot be counted.
#[ffi_export]
unsafe fn devx_async_reader_request(
    reader: *const AsyncReaderHandle,
    n: i64,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { AsyncReaderHandle::borrow(reader, "reader") }?.request(n))
}

/// Asks the producer to stop, and gives up batches that have come: the stream ends here, without an error.
///
/// Does nothing when called again.
#[ffi_export]
unsafe fn devx_async_reader_cancel(reader: *const AsyncReaderHandle, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        unsafe { AsyncReaderHandle::borrow(reader, "reader") }?.cancel();
        Ok(())
    })
}

/// Gives a new reference to the schema, and waits for it if necessary.
///
/// Waits for at most `timeout_ns` nanoseconds, or as long as it takes if that is negative. DEVX_NOT_READY if the schema has not
/// come by then. Before it came, DEVX_CLOSED if the stream was cancelled, DEVX_CALLBACK if the producer failed or broke the
/// contract, the error of an import if the schema is invalid.
#[ffi_export]
unsafe fn devx_async_reader_schema(
    reader: *const AsyncReaderHandle,
    timeout_ns: i64,
    out: Option<Out<'_, *mut SchemaHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let reader = unsafe { AsyncReaderHandle::borrow(reader, "reader") }?;
        out.write(SchemaHandle::give(reader.wait_schema(timeout(timeout_ns))?));
        Ok(())
    })
}

/// Gives the next batch and its metadata.
///
/// The batch is NULL at the end, and when the stream was cancelled. `metadata`, which may be NULL, gets NULL if the batch has
/// none. Waits as `devx_async_reader_schema` does: DEVX_NOT_READY if no batch has come. An error is given once, after the
/// batches that came before it: DEVX_CALLBACK if the producer failed or broke the contract, the error of an import if an array
/// or its metadata is invalid, DEVX_MISMATCH or DEVX_DEVICE if the batch does not have the stream's schema or device type.
#[ffi_export]
unsafe fn devx_async_reader_next(
    reader: *const AsyncReaderHandle,
    timeout_ns: i64,
    out: Option<Out<'_, *mut BatchHandle>>,
    metadata: Option<Out<'_, *mut MetadataHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        let reader = unsafe { AsyncReaderHandle::borrow(reader, "reader") }?;
        let (batch, block) = reader.wait_batch(timeout(timeout_ns))?.unzip();
        out.write(batch.map_or(std::ptr::null_mut(), BatchHandle::give));
        MetadataHandle::write(block.flatten(), metadata);
        Ok(())
    })
}

/// Tells what the producer said about itself when the schema came.
///
/// `device_type` gets the type of the devices of all batches; `metadata` the producer's metadata, or NULL if there is none or
/// it must not be read. Either output may be NULL. DEVX_NOT_READY before the schema has come.
#[ffi_export]
unsafe fn devx_async_reader_producer(
    reader: *const AsyncReaderHandle,
    device_type: Option<Out<'_, i32>>,
    metadata: Option<Out<'_, *mut MetadataHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let reader = unsafe { AsyncReaderHandle::borrow(reader, "reader") }?;
        let found = reader.device_type().ok_or_else(|| Error::new(DEVX_NOT_READY, "the schema has not come"))?;
        if let Some(out) = device_type {
            out.write(found.0);
        }
        MetadataHandle::write(reader.metadata(), metadata);
        Ok(())
    })
}

/// Tells what the producer passed to `on_error` besides the text.
///
/// `code` gets the `errno` code, 0 if `on_error` was not called; `metadata` gets its metadata, or NULL if there is none. Either
/// output may be NULL.
#[ffi_export]
unsafe fn devx_async_reader_producer_error(
    reader: *const AsyncReaderHandle,
    code: Option<Out<'_, i32>>,
    metadata: Option<Out<'_, *mut MetadataHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let reader = unsafe { AsyncReaderHandle::borrow(reader, "reader") }?;
        let (said, block) = reader.producer_error().unwrap_or((0, None));
        if let Some(out) = code {
            out.write(said);
        }
        MetadataHandle::write(block, metadata);
        Ok(())
    })
}

/// Releases a reader and sets the handle to NULL, on any thread; the rest of the stream is cancelled. NULL and a handle that is
/// NULL are fine.
#[ffi_export]
unsafe fn devx_async_reader_release(reader: Option<&mut *mut AsyncReaderHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { AsyncReaderHandle::take(reader) }));
}
