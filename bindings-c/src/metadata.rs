//! `devx_metadata_*`: metadata blocks that do not belong to a schema.

use devexchange_core::arrow::asynchronous::MetadataBlock;
use safer_ffi::ffi_export;
use safer_ffi::prelude::Out;

use crate::ctypes::{Char, ErrorRecord, Status};
use crate::error::{guard, guard_release, handle};

handle! {
    /// A metadata block: one reference.
    MetadataHandle = "devx_metadata" of MetadataBlock
}

impl MetadataHandle {
    /// Writes a handle of the block, or NULL if there is none.
    pub(crate) fn write(block: Option<MetadataBlock>, out: Option<Out<'_, *mut Self>>) {
        if let Some(out) = out {
            out.write(block.map_or(std::ptr::null_mut(), Self::give));
        }
    }
}

/// Gives the block, encoded as `ArrowSchema.metadata`, and its size in bytes.
///
/// The block is valid as long as the handle. Either output may be NULL.
#[ffi_export]
unsafe fn devx_metadata_block(
    metadata: *const MetadataHandle,
    block: Option<Out<'_, *const Char>>,
    bytes: Option<Out<'_, usize>>,
    error: Option<&mut ErrorRecord>,
) -> Status {
    guard(error, || {
        // SAFETY: the caller gives a living handle.
        let metadata = unsafe { MetadataHandle::borrow(metadata, "metadata") }?;
        if let Some(out) = block {
            out.write(metadata.as_bytes().as_ptr().cast());
        }
        if let Some(out) = bytes {
            out.write(metadata.as_bytes().len());
        }
        Ok(())
    })
}

/// Releases a metadata block and sets the handle to NULL, on any thread. NULL and a handle that is NULL are fine.
#[ffi_export]
unsafe fn devx_metadata_release(metadata: Option<&mut *mut MetadataHandle>) {
    // SAFETY: the caller gives a living handle, or NULL.
    guard_release(|| drop(unsafe { MetadataHandle::take(metadata) }));
}
