//! `devx_async_writer_*`: batches for a consumer's asynchronous handler. The handler is called within these functions and
//! nowhere else.

use devexchange_core::DeviceType;
use devexchange_core::arrow::asynchronous::AsyncWriter;
use devexchange_core::arrow::metadata;
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::batch::BatchHandle;
use crate::ctypes::{AsyncHandler, Char, ErrorRecord, Status, WakeRecord};
use crate::error::{guard, guard_release, handle, required, text};
use crate::schema::SchemaHandle;
use crate::wake::{timeout, with_wake};

handle! {
    /// The producer of an asynchronous stream, for one handler. All functions may be called from any thread; while a callback
    /// of the handler runs, functions that would call one are refused with DEVX_BUSY.
    AsyncWriterHandle = "devx_async_writer" of AsyncWriter
}

/// Makes the producer of an asynchronous stream, for a handler that it takes from its consumer.
///
/// The handler is released at the end; on failure of this call, it is untouched. All batches will be on devices of this type
/// (1, the CPU; 2, CUDA; ...). `metadata`, a block as in `ArrowSchema` or NULL, is for the whole stream. `wake`, which may be
/// NULL, is called when the consumer has asked for batches or for an end: then call `devx_async_writer_ready`, for example.
/// Like every function that sends something or ends the stream, it also releases the handler if the consumer cancelled.
#[ffi_export]
unsafe fn devx_async_writer_create(
    handler: *mut AsyncHandler,
    device_type: i32,
    metadata: *const Char,
    wake: Option<&WakeRecord>,
    out: Option<Out<'_, *mut AsyncWriterHandle>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives NULL or a block.
        let metadata = unsafe { metadata::block(metadata.cast()) }?;
        // SAFETY: the caller gives a handler that no other producer has.
        let make = |wake| unsafe { AsyncWriter::new(handler.cast(), DeviceType(device_type), metadata, wake) };
        // SAFETY: the caller gives its own record.
        let writer = unsafe { with_wake(wake, make) }?;
        out.write(AsyncWriterHandle::give(writer));
        Ok(())
    })
}

/// Sends the consumer the schema of all batches, which has to come first. DEVX_CALLBACK if the consumer refuses it, DEVX_CLOSED
/// if it cancelled, DEVX_INVALID_ARGUMENT the second time.
#[ffi_export]
unsafe fn devx_async_writer_start(
    writer: *const AsyncWriterHandle,
    schema: *const SchemaHandle,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let writer = unsafe { AsyncWriterHandle::borrow(writer, "writer") }?;
        // SAFETY: as above.
        let schema = unsafe { SchemaHandle::borrow(schema, "schema") }?;
        writer.start(&schema)
    })
}

/// Gives the number of batches that the consumer has requested and that were not sent yet; 0 when none can be sent any more.
#[ffi_export]
unsafe fn devx_async_writer_demand(
    writer: *const AsyncWriterHandle,
    out: Option<Out<'_, i64>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        out.write(unsafe { AsyncWriterHandle::borrow(writer, "writer") }?.demand());
        Ok(())
    })
}

/// Tells whether the consumer cancelled: `*out` gets 1 if it did, otherwise 0.
#[ffi_export]
unsafe fn devx_async_writer_is_cancelled(
    writer: *const AsyncWriterHandle,
    out: Option<Out<'_, i32>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        let out = required(out, "out")?;
        // SAFETY: the caller gives a living handle.
        out.write(unsafe { AsyncWriterHandle::borrow(writer, "writer") }?.is_cancelled().into());
        Ok(())
    })
}

/// Waits until a batch can be sent.
///
/// Waits for at most `timeout_ns` nanoseconds, or as long as it takes if that is negative. DEVX_NOT_READY if no batch can be
/// sent by then. DEVX_CLOSED if the consumer cancelled, DEVX_CALLBACK if it refused something, DEVX_INVALID_ARGUMENT if it made
/// an impossible request; in these three cases, the handler is released. Also DEVX_CLOSED if the stream was ended already, and
/// DEVX_INVALID_ARGUMENT if it was not started.
#[ffi_export]
unsafe fn devx_async_writer_ready(
    writer: *const AsyncWriterHandle,
    timeout_ns: i64,
    error: Option<&mut ErrorRecord>,
) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { AsyncWriterHandle::borrow(writer, "writer") }?.wait_ready(timeout(timeout_ns)))
}

/// Sends the consumer a batch with metadata (a block, or NULL), and sets the handle to NULL.
///
/// On failure, the handle is as before: DEVX_NOT_READY if the consumer has requested no more batches, DEVX_MISMATCH or
/// DEVX_DEVICE if the batch does not have the stream's schema or device type; the other errors are those of
/// `devx_async_writer_ready`.
#[ffi_export]
unsafe fn devx_async_writer_send_move(
    writer: *const AsyncWriterHandle,
    batch: Option<&mut *mut BatchHandle>,
    metadata: *const Char,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let writer = unsafe { AsyncWriterHandle::borrow(writer, "writer") }?;
        // SAFETY: the caller gives NULL or a block.
        let metadata = unsafe { metadata::block(metadata.cast()) }?;
        // SAFETY: the caller gives a living handle, or NULL.
        unsafe { BatchHandle::hand_over(batch, |batch| writer.try_send(batch, metadata)) }
    })
}

/// Ends the stream and releases the handler. Also succeeds if the consumer cancelled.
///
/// DEVX_CALLBACK if the consumer refused something, DEVX_CLOSED if the stream was ended already, DEVX_INVALID_ARGUMENT if it
/// was not started.
#[ffi_export]
unsafe fn devx_async_writer_finish(writer: *const AsyncWriterHandle, error: Option<&mut ErrorRecord>) -> Status {
    // SAFETY: the caller gives a living handle.
    guard(error, || unsafe { AsyncWriterHandle::borrow(writer, "writer") }?.finish())
}

/// Reports an error to the consumer and releases the handler.
///
/// `code` is an `errno` code other than 0; the text and the metadata block may be NULL. The stream need not have been started.
/// Also succeeds if the consumer cancelled; nothing is reported then. DEVX_CLOSED if the stream was ended already.
#[ffi_export]
unsafe fn devx_async_writer_fail(
    writer: *const AsyncWriterHandle,
    code: i32,
    message: *const Char,
    metadata: *const Char,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let writer = unsafe { AsyncWriterHandle::borrow(writer, "writer") }?;
        // SAFETY: the caller gives NULL or a text.
        let message = unsafe { text(message, "message") }?.unwrap_or_default();
        // SAFETY: the caller gives NULL or a block.
        writer.fail(code, message, unsafe { metadata::block(metadata.cast()) }?)
    })
}

/// Releases a writer and sets the handle to NULL. NULL and a handle that is NULL are fine.
///
/// If the stream was not ended, this is reported to the consumer (`on_error` with EPIPE), unless it cancelled.
#[ffi_export]
unsafe fn devx_async_writer_release(writer: Option<&mut *mut AsyncWriterHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { AsyncWriterHandle::take(writer) }));
}
