//! Tensors for consumers whose type has a function table (`__dlpack_c_exchange_api__`, DLPack 1.3). One call makes the
//! consumer's object, without a capsule. The table does not synchronise, so the order is established here.

use std::cell::Cell;
use std::ptr::{NonNull, null, null_mut};
use std::sync::OnceLock;

use devexchange_core::RawStream;
use devexchange_core::Tensor as CoreTensor;
use devexchange_core::abi::dlpack::{DLManagedTensorVersioned, DLPackVersion};
use devexchange_core::dlpack::{self, Owned, Request};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::dlpack::exchange::{Table, ToObject, check};
use crate::dlpack::offer::Offer;
use crate::python::aside::Aside;
use crate::python::error::{Result, refuse, wrong_type};

/// A function table that makes objects.
pub(crate) struct Maker {
    table: Table,
    to_object: ToObject,
}

impl Maker {
    /// The maker of a type.
    pub(crate) fn of(kind: &Bound<'_, PyType>) -> Result<Self> {
        match Offer::of(kind)?.table.and_then(Self::new) {
            Some(maker) => Ok(maker),
            None => wrong_type!("{kind} has no __dlpack_c_exchange_api__ that makes objects"),
        }
    }

    /// Like [`of`](Self::of), but without a `PyErr`. `None` if there is no maker or that is not certain; [`of`](Self::of)
    /// then finds out.
    pub(crate) fn quickly_of(kind: &Bound<'_, PyType>) -> Option<Self> {
        match Offer::known(kind.as_type_ptr()) {
            Some(offer) => offer.table,
            None => Offer::table_of_class(kind),
        }
        .and_then(Self::new)
    }

    fn new(table: Table) -> Option<Self> {
        table.to_object.map(|to_object| Self { table, to_object })
    }

    /// Makes the consumer's object of a tensor. The stream that the consumer works on is made to wait for the elements.
    pub(crate) fn make<'py>(&self, py: Python<'py>, tensor: CoreTensor) -> Result<Bound<'py, PyAny>> {
        let device = tensor.device();
        let stream = if device.has_streams() { self.table.work_stream_of(py, device)? } else { RawStream::NO_SYNC };
        let request = Request { max_version: self.version(), stream, ..Request::default() };
        self.object_of(py, dlpack::export(tensor, &request)?)
    }

    /// The version that the consumer reads.
    pub(crate) fn version(&self) -> DLPackVersion {
        self.table.version
    }

    /// Makes the consumer's object of an exported tensor, which the consumer then owns and may read at once.
    pub(crate) fn object_of<'py>(
        &self,
        py: Python<'py>,
        exported: Owned<DLManagedTensorVersioned>,
    ) -> Result<Bound<'py, PyAny>> {
        let to_object = self.to_object;
        let mut out = null_mut();
        // SAFETY: attached; a tensor for the consumer to own, and room for an address.
        let code = hand_over(py, exported, |tensor| unsafe { to_object(tensor, &raw mut out) });
        // A failed call leaves no valid object there.
        let object = NonNull::new(out).filter(|_| code == 0);
        // SAFETY: the consumer made it for us: a new reference.
        let object = object.map(|object| unsafe { Bound::from_owned_ptr(py, object.as_ptr().cast()) });
        check(py, code, "managed_tensor_to_py_object_no_sync")?;
        match object {
            Some(object) => Ok(object),
            None => refuse!(DEVX_CALLBACK, "managed_tensor_to_py_object_no_sync gave NULL for an object"),
        }
    }
}

type Deleter = unsafe extern "C" fn(*mut DLManagedTensorVersioned);

/// The original deleter of exported tensors, which is the same for all of them.
static DELETER: OnceLock<Deleter> = OnceLock::new();

/// A tensor that is being handed to a consumer.
struct Handover {
    tensor: *mut DLManagedTensorVersioned,
    deleted: Cell<bool>,
    /// The handover during which this one happens.
    outer: *const Handover,
}

thread_local! {
    static INNERMOST: Cell<*const Handover> = const { Cell::new(null()) };
}

/// Gives a tensor to a function that returns 0 if it took the tensor over. DLPack 1.3 says that the function steals the
/// tensor (`DLPackManagedTensorToPyObjectNoSync`), but not whether it does so when it fails: some libraries have called the
/// deleter by then, others never will. So this notes whether the deleter was called, and calls it if a failed function did
/// not. The function may not have another thread call it and then fail: that is not noticed.
fn hand_over(
    py: Python<'_>,
    tensor: Owned<DLManagedTensorVersioned>,
    function: impl FnOnce(*mut DLManagedTensorVersioned) -> i32,
) -> i32 {
    let tensor = tensor.into_raw();
    // SAFETY: the tensor was exported just now, and nobody else has it.
    if let Some(deleter) = unsafe { (*tensor).deleter.replace(noted) } {
        DELETER.get_or_init(|| deleter);
    }
    let handover = Handover { tensor, deleted: Cell::new(false), outer: INNERMOST.get() };
    INNERMOST.set(&raw const handover);
    let code = function(tensor);
    INNERMOST.set(handover.outer);
    if code != 0
        && !handover.deleted.get()
        && let Some(tensor) = NonNull::new(tensor)
    {
        // The exception of the consumer, which a foreign release must not see.
        let _aside = Aside::if_raised(py);
        // SAFETY: the consumer failed and has not deleted it, so it is ours again.
        drop(unsafe { Owned::from_raw(tensor) });
    }
    code
}

/// The deleter of tensors that are handed over. It can be called on any thread, during the call or later.
unsafe extern "C" fn noted(tensor: *mut DLManagedTensorVersioned) {
    let mut next = INNERMOST.get();
    // SAFETY: the entries of this thread's list are on its stack, in calls that have not returned.
    while let Some(handover) = unsafe { next.as_ref() } {
        if handover.tensor == tensor {
            handover.deleted.set(true);
        }
        next = handover.outer;
    }
    if let Some(deleter) = DELETER.get() {
        // SAFETY: the tensor was exported with that deleter; a consumer calls it once.
        unsafe { deleter(tensor) }
    }
}
