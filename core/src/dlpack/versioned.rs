//! The struct of DLPack since 1.0, which carries its version and flags.

use core::ffi::c_void;
use std::ptr::{NonNull, fn_addr_eq};

use super::{Copying, ImportParts, Managed, Owned, Request, VERSION, copy_if, hand_over, kept, take_back};
use crate::abi::dlpack::{DLManagedTensorVersioned, DLPackVersion, DLTensor};
use crate::error::{Refused, Result, refuse};
use crate::ledger::{Entry, Kind};
use crate::memory::Borrowed;
use crate::tensor::{Flags, Tensor};

impl Managed for DLManagedTensorVersioned {
    const IMPORT: ImportParts<Self> = ImportParts { describe: describe_versioned, delete: delete_versioned };

    unsafe fn exported<'a>(managed: *const Self) -> Option<Borrowed<'a, Tensor>> {
        // SAFETY: the deleter is at the same place in every major version.
        let is_ours = unsafe { (*managed).deleter }.is_some_and(|deleter| fn_addr_eq(deleter, DELETER));
        // SAFETY: a struct with our deleter has our layout.
        let context = is_ours.then(|| unsafe { (*managed).manager_ctx })?;
        Some(match context.addr() & IN_PLACE {
            // SAFETY: made by `hand_over` for this type, and not given back.
            0 => unsafe { kept::<Self>(context) },
            // SAFETY: written by `hand_over_in_place`: the tensor lives as long as the consumer holds its place.
            _ => unsafe { Tensor::borrow_raw(context.map_addr(|address| address & !IN_PLACE)) },
        })
    }

    #[inline(always)]
    fn export(tensor: Tensor, request: &Request) -> std::result::Result<Owned<Self>, Refused<Tensor>> {
        let version = match version_for(request, &tensor) {
            Ok(version) => version,
            Err(error) => return Err(Refused { error, returned: tensor }),
        };
        let mut tensor = copy_if(tensor, request.copy == Copying::Always)?;
        let flags = if tensor.is_alone() { tensor.flags() } else { tensor.flags().shared() };
        match tensor.give_place() {
            Some(place) => {
                let owned = hand_over_in_place(&tensor, place, version, flags);
                std::mem::forget(tensor); // the consumer has this reference now
                Ok(owned)
            }
            None => hand_over_versioned(tensor, version, flags),
        }
    }

    #[inline(always)]
    fn share(tensor: &Tensor, request: &Request) -> Result<Owned<Self>> {
        if request.copy == Copying::Always {
            return Ok(Self::export(tensor.clone(), request)?);
        }
        let (version, flags) = (version_for(request, tensor)?, tensor.flags().shared());
        match tensor.lend_place() {
            Some(place) => Ok(hand_over_in_place(tensor, place, version, flags)),
            None => Ok(hand_over_versioned(tensor.clone(), version, flags)?),
        }
    }
}

/// Chooses the version of the struct for a consumer.
#[inline(always)]
fn version_for(request: &Request, tensor: &Tensor) -> Result<DLPackVersion> {
    let asked = request.max_version;
    if asked.major < VERSION.major {
        return refuse!(
            DEVX_VERSION,
            "max_version is {}.{}: the versioned struct needs 1.0; ask for the legacy one",
            asked.major,
            asked.minor
        );
    }
    let minor = if asked.major == VERSION.major { asked.minor.min(VERSION.minor) } else { VERSION.minor };
    // Type codes of 1.1 go to a consumer of 1.0, too. It notices a code that it does not know, and PyTorch, which asks for 1.0,
    // knows them. An unknown flag, however, goes unnoticed.
    if minor == 0 && tensor.is_padded() {
        return refuse!(
            DEVX_UNSUPPORTED,
            "flags has SUBBYTE_PADDED, but max_version is 1.0: only a reader of 1.1 knows that flag"
        );
    }
    Ok(DLPackVersion { major: VERSION.major, minor })
}

/// Writes a consumer's struct to the place that the tensor lent.
#[inline(always)]
fn hand_over_in_place(
    tensor: &Tensor,
    place: *mut DLManagedTensorVersioned,
    version: DLPackVersion,
    flags: Flags,
) -> Owned<DLManagedTensorVersioned> {
    // Closed when the consumer gives it back.
    std::mem::forget(Entry::open(Kind::TensorExport));
    let manager_ctx = tensor.as_raw().map_addr(|address| address | IN_PLACE);
    let deleter = Some(DELETER);
    let (Flags(flags), dl_tensor) = (flags, tensor.as_dltensor());
    // SAFETY: the place is in the tensor's block, and lent to this consumer alone.
    unsafe { place.write(DLManagedTensorVersioned { version, manager_ctx, deleter, flags, dl_tensor }) };
    // SAFETY: the address is inside a block, so not NULL.
    Owned(unsafe { NonNull::new_unchecked(place) })
}

/// Like [`hand_over_in_place`], but in a block of its own.
#[cold]
#[inline(never)]
fn hand_over_versioned(
    tensor: Tensor,
    version: DLPackVersion,
    flags: Flags,
) -> std::result::Result<Owned<DLManagedTensorVersioned>, Refused<Tensor>> {
    hand_over(tensor, |tensor, context| DLManagedTensorVersioned {
        version,
        manager_ctx: context,
        deleter: Some(DELETER),
        flags: flags.0,
        dl_tensor: tensor.as_dltensor(),
    })
}

#[inline]
unsafe fn describe_versioned(source: *const DLManagedTensorVersioned) -> Result<(*const DLTensor, Flags)> {
    // SAFETY: `version` is the first member in every major version, so it may always be read.
    let DLPackVersion { major, minor } = unsafe { (*source).version };
    if major != VERSION.major {
        return refuse!(
            DEVX_VERSION,
            "version is {major}.{minor}: this library reads major version {}; call the deleter to give the tensor back",
            VERSION.major
        );
    }
    // SAFETY: the major version is ours, and so is the layout.
    let flags = unsafe { (*source).flags };
    // SAFETY: as above.
    Ok((unsafe { &raw const (*source).dl_tensor }, Flags(flags)))
}

unsafe extern "C" fn delete_versioned(context: *mut c_void) {
    let managed = context.cast::<DLManagedTensorVersioned>();
    // SAFETY: the deleter is at the same place in every major version.
    if let Some(deleter) = unsafe { (*managed).deleter } {
        // SAFETY: we own the tensor, and its owner calls this once.
        unsafe { deleter(managed) }
    }
}

const DELETER: unsafe extern "C" fn(*mut DLManagedTensorVersioned) = deleter_versioned;

/// Marks the context of a struct that is in the tensor's own block. Both kinds of struct have the same deleter, because a
/// binding can put its own deleter in front of it, which cannot tell them apart.
const IN_PLACE: usize = 1;

unsafe extern "C" fn deleter_versioned(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: a consumer gives back the struct that it was given.
    let context = unsafe { (*managed).manager_ctx };
    if context.addr() & IN_PLACE == 0 {
        // SAFETY: made by `hand_over` for this type; a consumer calls a deleter once.
        return unsafe { take_back::<DLManagedTensorVersioned>(context) };
    }
    let _entry = Entry::opened(Kind::TensorExport);
    // SAFETY: written by `hand_over_in_place` for a tensor that lent its place; a consumer calls a deleter once.
    unsafe { Tensor::take_back(context.map_addr(|address| address & !IN_PLACE)) }
}
