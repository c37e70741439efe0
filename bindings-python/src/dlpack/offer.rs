//! What the type of an object offers for exchanges of tensors.
//!
//! The attribute `__dlpack_c_exchange_api__` belongs to the type, and a consumer may cache it for each type (DLPack 1.3,
//! `DLPackExchangeAPI`). Only answers that cannot become wrong are cached: those of types that are not on the heap. These
//! belong to extension modules and to Python itself, no program can change them, and they are never freed. A class can gain
//! the attribute, lose it and die, so it is asked each time. The exception is PyTorch's own class of tensors: it is written
//! in Python, but lasts as long as those types.

use core::ffi::CStr;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire};

use devexchange_core::abi::dlpack::{DLPackExchangeAPI, DLPackExchangeAPIHeader};
use devexchange_core::dlpack::VERSION;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::dlpack::capsule;
use crate::dlpack::exchange::Table;
use crate::python::ask;
use crate::python::error::Result;

/// How many tables of a chain are looked at before the chain is taken for a circle.
const MAX_TABLES: usize = 16;

/// What is known about a type.
#[derive(Clone, Copy)]
pub(crate) struct Offer {
    /// The function table of the type, if it has one that this library can use.
    pub(crate) table: Option<Table>,
    /// Whether its objects can be marked, so that their memory must not be taken as it is.
    pub(crate) marks: bool,
    /// Whether all its objects are in host memory, so that they need not be asked for their device.
    pub(crate) on_host: bool,
}

impl Offer {
    /// Calls `act` with the offer of an object's type.
    #[inline]
    pub(crate) fn with<T>(obj: &Bound<'_, PyAny>, act: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        match recall(obj.get_type_ptr()) {
            Some(offer) => act(offer),
            None => act(&Self::ask(&obj.get_type())?),
        }
    }

    /// The cached offer of a type, if any.
    #[inline]
    pub(crate) fn known(kind: *mut ffi::PyTypeObject) -> Option<&'static Self> {
        recall(kind)
    }

    /// The table of a class that is asked each time, if it has one. Its objects may be marked. Also `None` for a type whose
    /// offer is to be cached.
    pub(crate) fn table_of_class(kind: &Bound<'_, PyType>) -> Option<Table> {
        if !is_class(kind) {
            return None;
        }
        let name = intern!(kind.py(), "__dlpack_c_exchange_api__");
        usable(&ask::attribute(kind, name)?).filter(|_| !is_of_pytorch(kind))
    }

    /// The offer of a type, cached or asked for.
    pub(crate) fn of(kind: &Bound<'_, PyType>) -> Result<Self> {
        match recall(kind.as_type_ptr()) {
            Some(offer) => Ok(*offer),
            None => Self::ask(kind),
        }
    }

    fn ask(kind: &Bound<'_, PyType>) -> Result<Self> {
        let table = table_of(kind)?;
        let lasts = !is_class(kind) || (table.is_some() && is_of_pytorch(kind));
        if let Some(raised) = PyErr::take(kind.py()) {
            return Err(raised.into());
        }
        let offer = Self {
            table,
            // The objects of a class that may change are always asked: it may gain the attribute later.
            marks: table.is_some() && (!lasts || kind.hasattr(intern!(kind.py(), "requires_grad"))?),
            on_host: lasts && is_of_numpy(kind)?,
        };
        if lasts {
            remember(kind, offer);
        }
        Ok(offer)
    }
}

/// Whether a type is on the heap, where a program can change it.
fn is_class(kind: &Bound<'_, PyType>) -> bool {
    // SAFETY: attached, and a type.
    unsafe { ffi::PyType_GetFlags(kind.as_type_ptr()) & ffi::Py_TPFLAGS_HEAPTYPE != 0 }
}

/// The table that a type offers. `None` if this library cannot use it: it is not in a capsule of the right name, has only
/// other major versions, or lacks a required function.
fn table_of(kind: &Bound<'_, PyType>) -> Result<Option<Table>> {
    let attribute = kind.getattr_opt(intern!(kind.py(), "__dlpack_c_exchange_api__"))?;
    Ok(attribute.as_ref().and_then(usable))
}

/// The table in a capsule; `None` as in [`table_of`].
fn usable(capsule: &Bound<'_, PyAny>) -> Option<Table> {
    let mut next = capsule::table_in(capsule);
    for _ in 0..MAX_TABLES {
        let Some(header) = next else { break };
        // SAFETY: a capsule of this name has a table that lives for ever; its header has the same layout in every version.
        let DLPackExchangeAPIHeader { version, prev_api } = unsafe { header.read_unaligned() };
        if version.major == VERSION.major {
            // SAFETY: as above; a table of our major version has our layout.
            return Table::new(&unsafe { header.cast::<DLPackExchangeAPI>().read_unaligned() });
        }
        next = NonNull::new(prev_api);
    }
    None
}

/// Whether a type is NumPy's own array type, which has host memory only. A subclass may have other memory.
fn is_of_numpy(kind: &Bound<'_, PyType>) -> Result<bool> {
    Ok(kind.name()? == "ndarray" && kind.module()? == "numpy")
}

/// Whether a type is PyTorch's own class of tensors, or claims to be.
fn is_of_pytorch(kind: &Bound<'_, PyType>) -> bool {
    // SAFETY: attached, and a type.
    let name = ask::given(kind.py(), unsafe { ffi::PyType_GetName(kind.as_type_ptr()) });
    name.is_some_and(|name| is_text(&name, c"Tensor"))
        && ask::attribute(kind, intern!(kind.py(), "__module__")).is_some_and(|module| is_text(&module, c"torch"))
}

fn is_text(object: &Bound<'_, PyAny>, text: &CStr) -> bool {
    // SAFETY: attached, and an object.
    let is_string = unsafe { ffi::PyUnicode_Check(object.as_ptr()) } != 0;
    // SAFETY: as above, and a string.
    is_string && unsafe { ffi::PyUnicode_CompareWithASCIIString(object.as_ptr(), text.as_ptr()) } == 0
}

/// A type that is never freed.
struct Known {
    kind: *mut ffi::PyTypeObject,
    offer: Offer,
}

/// How many types are cached at most. Types that do not fit are asked each time.
const SLOTS: usize = 64;
/// How many slots are tried for one type.
const PLACES: usize = 4;

/// The cache. Each slot is filled in once, and stays.
static KNOWN: [AtomicPtr<Known>; SLOTS] = [const { AtomicPtr::new(null_mut()) }; SLOTS];

/// The slots in which a type may be.
#[inline]
fn places(kind: *mut ffi::PyTypeObject) -> impl Iterator<Item = &'static AtomicPtr<Known>> {
    // Types are a few hundred bytes long.
    let first = (kind.addr() >> 5) ^ (kind.addr() >> 11);
    (0..PLACES).filter_map(move |next| KNOWN.get(first.wrapping_add(next) % SLOTS))
}

#[inline]
fn recall(kind: *mut ffi::PyTypeObject) -> Option<&'static Offer> {
    for place in places(kind) {
        // SAFETY: NULL, or from `remember`, and never freed.
        let known = unsafe { place.load(Acquire).as_ref() }?;
        if known.kind == kind {
            return Some(&known.offer);
        }
    }
    None
}

/// Caches the offer of a type; maybe twice, if two threads ask at once. A class is kept alive from then on, whatever it
/// claims to be: there must never be another class at its address.
fn remember(kind: &Bound<'_, PyType>, offer: Offer) {
    let known = Box::into_raw(Box::new(Known { kind: kind.as_type_ptr(), offer }));
    let free = |place: &AtomicPtr<Known>| place.compare_exchange(null_mut(), known, AcqRel, Acquire).is_ok();
    if places(kind.as_type_ptr()).any(free) {
        let _kept = kind.clone().into_ptr();
    } else {
        // SAFETY: the box was made above, and nobody else has it.
        drop(unsafe { Box::from_raw(known) });
    }
}
