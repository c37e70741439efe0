//! A handler with an owner, and both ends of a stream within one program.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::{AsyncReader, AsyncWriter, ReaderOptions, Wake};
use crate::abi::arrow_async::ArrowAsyncDeviceStreamHandler;
use crate::device::DeviceType;
use crate::error::{Error, Refused, Result};

/// A consumer's handler that no producer has taken yet. The holder of this value owns the handler; dropping it calls its
/// release, which ends the stream with an error for the consumer.
#[derive(Debug)]
pub struct OwnedHandler(NonNull<ArrowAsyncDeviceStreamHandler>);

// SAFETY: a handler may be used and released on any thread, one call at a time.
unsafe impl Send for OwnedHandler {}
// SAFETY: a shared reference does not read the handler.
unsafe impl Sync for OwnedHandler {}

impl OwnedHandler {
    /// Takes ownership of a handler from outside.
    ///
    /// # Safety
    /// `handler` is valid, not released, and stays so until its release is called; no producer has it, and the caller does not
    /// use it any more.
    pub unsafe fn from_raw(handler: NonNull<ArrowAsyncDeviceStreamHandler>) -> Self {
        Self(handler)
    }

    /// Returns the handler for a producer, which then has to release it.
    pub fn into_raw(self) -> *mut ArrowAsyncDeviceStreamHandler {
        ManuallyDrop::new(self).0.as_ptr()
    }
}

impl Drop for OwnedHandler {
    fn drop(&mut self) {
        // SAFETY: valid, because it is not released yet.
        if let Some(release) = unsafe { self.0.as_ref() }.release {
            // SAFETY: owned and not given away, so the release is ours to call.
            unsafe { release(self.0.as_ptr()) }
        }
    }
}

impl AsyncReader {
    /// Like [`AsyncReader::handler`], but with its owner.
    ///
    /// # Errors
    /// Same as [`AsyncReader::handler`].
    pub fn owned_handler(&self) -> Result<OwnedHandler> {
        let handler = NonNull::new(self.handler()?);
        handler.map(OwnedHandler).ok_or_else(|| Error::new(crate::abi::types::DEVX_NULL_ARGUMENT, "handler is NULL"))
    }
}

impl AsyncWriter {
    /// Like [`AsyncWriter::new`], but takes a handler from its owner; if it is refused, it is given back.
    ///
    /// # Errors
    /// Same as [`AsyncWriter::new`].
    pub fn of(
        handler: OwnedHandler,
        device_type: DeviceType,
        metadata: Option<&[u8]>,
        wake: Option<Wake>,
    ) -> std::result::Result<Self, Refused<OwnedHandler>> {
        // SAFETY: valid and owned, so no other producer has it.
        match unsafe { Self::new(handler.0.as_ptr(), device_type, metadata, wake) } {
            Ok(writer) => {
                handler.into_raw();
                Ok(writer)
            }
            Err(error) => Err(Refused { error, returned: handler }),
        }
    }
}

/// Makes both ends of a stream of batches on devices of `device_type`, without metadata or wake callbacks.
///
/// # Errors
/// Those of [`AsyncReader::new`] and [`AsyncWriter::new`].
pub fn channel(options: ReaderOptions, device_type: DeviceType) -> Result<(AsyncWriter, AsyncReader)> {
    let reader = AsyncReader::new(options, None)?;
    let writer = AsyncWriter::of(reader.owned_handler()?, device_type, None, None)?;
    Ok((writer, reader))
}
