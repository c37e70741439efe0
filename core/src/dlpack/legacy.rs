//! The struct of DLPack before 1.0, which has neither version nor flags.

use core::ffi::c_void;
use std::ptr::fn_addr_eq;

use super::{Copying, ImportParts, Managed, Owned, Request, copy_if, hand_over, kept, require_no_padding, take_back};
use crate::abi::dlpack::{DLManagedTensor, DLTensor};
use crate::abi::types::DEVX_READ_ONLY;
use crate::error::{Error, Refused, Result};
use crate::memory::Borrowed;
use crate::tensor::{Flags, Tensor};

impl Managed for DLManagedTensor {
    const IMPORT: ImportParts<Self> = ImportParts { describe: describe_legacy, delete: delete_legacy };

    unsafe fn exported<'a>(managed: *const Self) -> Option<Borrowed<'a, Tensor>> {
        // SAFETY: valid by the caller's contract.
        let Self { deleter, manager_ctx, .. } = unsafe { &*managed };
        // SAFETY: made by `hand_over` for this type, and not given back.
        deleter.is_some_and(|deleter| fn_addr_eq(deleter, DELETER)).then(|| unsafe { kept::<Self>(*manager_ctx) })
    }

    fn export(tensor: Tensor, request: &Request) -> std::result::Result<Owned<Self>, Refused<Tensor>> {
        if let Err(error) = require_no_padding(&tensor) {
            return Err(Refused { error, returned: tensor });
        }
        let read_only = tensor.flags().has(Flags::READ_ONLY);
        if read_only && request.copy == Copying::Never {
            let error = Error::new(
                DEVX_READ_ONLY,
                "flags has READ_ONLY: the legacy struct of DLPack has no flags to say so; allow a copy or ask for version 1",
            );
            return Err(Refused { error, returned: tensor });
        }
        let why = if read_only {
            "flags has READ_ONLY, which the legacy struct cannot express, so a copy is needed: "
        } else {
            ""
        };
        let tensor = copy_if(tensor, read_only || request.copy == Copying::Always)
            .map_err(|Refused { error, returned }| Refused { error: error.within(why), returned })?;
        hand_over(tensor, |tensor, context| Self {
            dl_tensor: tensor.as_dltensor(),
            manager_ctx: context,
            deleter: Some(DELETER),
        })
    }
}

unsafe fn describe_legacy(source: *const DLManagedTensor) -> Result<(*const DLTensor, Flags)> {
    // SAFETY: valid by the contract of `import`.
    Ok((unsafe { &raw const (*source).dl_tensor }, Flags::default()))
}

unsafe extern "C" fn delete_legacy(context: *mut c_void) {
    let managed = context.cast::<DLManagedTensor>();
    // SAFETY: valid by the contract of `import`.
    if let Some(deleter) = unsafe { (*managed).deleter } {
        // SAFETY: we own the tensor, and its owner calls this once.
        unsafe { deleter(managed) }
    }
}

const DELETER: unsafe extern "C" fn(*mut DLManagedTensor) = deleter_legacy;

unsafe extern "C" fn deleter_legacy(managed: *mut DLManagedTensor) {
    // SAFETY: a consumer gives back the struct that it was given.
    let context = unsafe { (*managed).manager_ctx };
    // SAFETY: made by `hand_over` for this type; a consumer calls a deleter once.
    unsafe { take_back::<DLManagedTensor>(context) }
}
