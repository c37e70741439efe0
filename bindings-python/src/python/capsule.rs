//! PyCapsules, with which Python libraries hand C structs to each other.

use core::ffi::{CStr, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;

use crate::python::ask;

/// Whether an object is a capsule of this name.
pub(crate) fn is_named(capsule: &Bound<'_, PyAny>, name: &CStr) -> bool {
    // SAFETY: attached; any object may be asked.
    unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 1 }
}

/// The pointer that an object holds, if it is a capsule of this name.
#[inline]
pub(crate) fn named<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> Option<*mut T> {
    // SAFETY: any object may be asked.
    if unsafe { ffi::PyCapsule_CheckExact(capsule.as_ptr()) } == 0 {
        return None;
    }
    // SAFETY: attached, and a capsule.
    let own = unsafe { ffi::PyCapsule_GetName(capsule.as_ptr()) };
    // SAFETY: a capsule's name is NULL or a text that lives as long as the capsule.
    if own.is_null() || unsafe { CStr::from_ptr(own) } != name {
        return None;
    }
    // SAFETY: as above; the name is its own.
    Some(unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), own) }.cast())
}

/// Like [`named`], but for an object that almost always is such a capsule: if not, an exception is made and forgotten.
#[inline]
pub(crate) fn surely_named<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> Option<*mut T> {
    // SAFETY: attached; any object may be asked.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) };
    if pointer.is_null() {
        ask::has_raised(capsule.py());
        return None;
    }
    Some(pointer.cast())
}

/// The content of a capsule, claimed for this call only. Meanwhile the capsule has another name, under which nobody else
/// finds it; afterwards it has its own name again.
pub(crate) struct Claim<'a, 'py, T> {
    capsule: &'a Bound<'py, PyAny>,
    pub(crate) pointer: *mut T,
    meanwhile: &'static CStr,
    afterwards: &'static CStr,
}

impl<'a, 'py, T> Claim<'a, 'py, T> {
    /// Claims a capsule that `find` recognises by its name. If several threads try, only one finds the name; the others get
    /// `None`, as for objects that are not such capsules.
    #[inline]
    pub(crate) fn new(
        capsule: &'a Bound<'py, PyAny>,
        find: impl FnOnce(&Bound<'py, PyAny>, &CStr) -> Option<*mut T>,
        name: &'static CStr,
        meanwhile: &'static CStr,
    ) -> Option<Self> {
        with_critical_section(capsule, || {
            let pointer = find(capsule, name)?;
            rename(capsule, meanwhile);
            Some(Self { capsule, pointer, meanwhile, afterwards: name })
        })
    }

    /// Notes that the content was taken: the other name stays.
    #[inline]
    pub(crate) fn taken(&mut self) {
        self.afterwards = self.meanwhile;
    }
}

impl<T> Drop for Claim<'_, '_, T> {
    fn drop(&mut self) {
        if self.afterwards != self.meanwhile {
            rename(self.capsule, self.afterwards);
        }
    }
}

/// Gives a capsule another name, which can fail only for objects that are not capsules.
fn rename(capsule: &Bound<'_, PyAny>, name: &'static CStr) {
    // SAFETY: attached; the name lives for ever.
    unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) };
}

/// Makes a capsule.
///
/// # Safety
/// `destructor` is right for a capsule of this name around `pointer`.
pub(crate) unsafe fn new<'py>(
    py: Python<'py>,
    pointer: *mut c_void,
    name: &'static CStr,
    destructor: Option<ffi::PyCapsule_Destructor>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: attached; the name lives for ever.
    let capsule = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), destructor) };
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}
