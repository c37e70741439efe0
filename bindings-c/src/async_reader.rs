//! `devx_async_reader_*`: the batches of somebody's asynchronous stream. Nothing here blocks unless it is given a
//! time.

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
    /// The consumer of an asynchronous stream. All functions may be called from any thread, several at once, and
    /// within callbacks; a batch goes to one of those who ask.
    AsyncReaderHandle = "devx_async_reader" of AsyncReader
}

/// Makes the consumer of an asynchronous stream. It keeps `limit` batches requested: so many when the schema has
/// come, and one more for each that is taken; with 0 they come only after `devx_async_reader_request`.
/// `abi_h_metadata` is 1 if the producer's struct is that of Arrow's `abi.h` (40 bytes), so that its metadata can be
/// read; 0 if that is not known, as the specification's text has another one. `wake`, which may be NULL, is called
/// when there is something to ask for.
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
        // SAFETY: the caller gives a record of its own.
        let reader = unsafe { with_wake(wake, |wake| AsyncReader::new(options, wake)) }?;
        out.write(AsyncReaderHandle::give(reader));
        Ok(())
    })
}

/// The handler for a producer, once. Whoever has it calls its `release` exactly once: the producer that took it, or
/// the caller if none did. It is valid until then, also after the reader was released.
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

/// Asks for `n` more batches (`n` > 0). After the end it does nothing.
#[ffi_export]
unsafe fn devx_async_reader_request(
    reader: *const AsyncReaderHandle,
    n: i64,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { AsyncReaderHandle::borrow(reader, "reader") }?.request(n))
}

/// Asks the producer to stop and takes nothing any more: the stream ends here, without an error. Again it does
/// nothing.
#[ffi_export]
unsafe fn devx_async_reader_cancel(reader: *const AsyncReaderHandle, error: Option<&mut ErrorRecord>) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        unsafe { AsyncReaderHandle::borrow(reader, "reader") }?.cancel();
        Ok(())
    })
}

/// The schema: a new reference. Waits for it for so many nanoseconds, 0 for not at all, negative for as long as it
/// takes; DEVX_NOT_READY if it has not come. DEVX_CLOSED if the stream was cancelled before.
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

/// The next batch, and with `metadata` not NULL its metadata, or NULL where there is none. At the end, and when the
/// stream was cancelled, the batch is NULL. Waits as `devx_async_reader_schema` does; DEVX_NOT_READY if none has
/// come. An error is given once, after the batches that came before it: DEVX_CALLBACK if the producer failed or broke
/// the contract.
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

/// What the producer said of itself when the schema came, DEVX_NOT_READY before: the type of the devices of all
/// batches, and its metadata, or NULL where there is none or it may not be read. Either output may be NULL.
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

/// What the producer's `on_error` said besides the text: its `errno` code, 0 if it was not called, and its metadata,
/// or NULL. Either output may be NULL.
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

/// Gives up a reader and sets the handle to NULL: what is left of the stream is cancelled. NULL and a handle that is
/// NULL are fine. From any thread.
#[ffi_export]
unsafe fn devx_async_reader_release(reader: Option<&mut *mut AsyncReaderHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { AsyncReaderHandle::take(reader) }));
}
