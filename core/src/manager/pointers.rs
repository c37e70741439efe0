//! Pointers to a manager, which are managers themselves: so a program can share a manager and keep it, too.

use core::ffi::c_void;
use std::sync::Arc;

use super::{Allocated, HostFlags, IpcHandle, Manager, MemoryInfo, Request, Statistics};
use crate::error::Result;
use crate::memory::Owner;

macro_rules! pointers {
    ($($Pointer:ident)*) => {$(
        // SAFETY: the memory of the manager is handed on unchanged.
        unsafe impl<M: Manager + ?Sized> Manager for $Pointer<M> {
            fn initialize(&self, ordinal: i32) -> Result<()> {
                (**self).initialize(ordinal)
            }

            fn allocate(&self, request: &Request) -> Result<Allocated> {
                (**self).allocate(request)
            }

            unsafe fn pin(&self, ordinal: i32, address: *mut c_void, bytes: usize, flags: HostFlags) -> Result<Owner> {
                // SAFETY: the caller's contract.
                unsafe { (**self).pin(ordinal, address, bytes, flags) }
            }

            fn memory_info(&self, ordinal: i32) -> Result<MemoryInfo> {
                (**self).memory_info(ordinal)
            }

            fn ipc_handle(&self, address: *const c_void) -> Result<IpcHandle> {
                (**self).ipc_handle(address)
            }

            unsafe fn reset(&self, ordinal: i32) -> Result<()> {
                // SAFETY: the caller's contract.
                unsafe { (**self).reset(ordinal) }
            }

            fn defer_cleanup(&self) {
                (**self).defer_cleanup();
            }

            fn resume_cleanup(&self) -> Result<()> {
                (**self).resume_cleanup()
            }

            fn trim(&self, ordinal: i32, keep: usize) -> Result<()> {
                (**self).trim(ordinal, keep)
            }

            fn statistics(&self) -> Statistics {
                (**self).statistics()
            }

            fn levels(&self) -> usize {
                (**self).levels()
            }
        }
    )*};
}
pointers! { Arc Box }
