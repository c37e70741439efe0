//! The Python type `devexchange.Tensor`. Its base is PyO3's class (`tensor`), which has nearly all of it. The parts that
//! every exchange needs are written by hand here, with as few steps as in a C extension: making an object, ending it, and
//! asking it for its capsule.

use core::ffi::{CStr, c_int, c_void};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

use devexchange_core::Tensor as CoreTensor;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use crate::python::aside::Aside;
use crate::python::quick;
use crate::tensor::{Tensor, quick_methods};

/// The parts of both types that are used here. The types live as long as the process.
struct Kind {
    object: *mut ffi::PyTypeObject,
    make: ffi::newfunc,
    end: ffi::destructor,
    /// The offset in an object of its list of weak references.
    weak: isize,
}
// SAFETY: only attached threads touch the types.
unsafe impl Send for Kind {}
// SAFETY: as above.
unsafe impl Sync for Kind {}

impl Kind {
    /// Whether an object that ends may have weak references. It hardly ever has, and this check costs less than a call.
    /// Without a GIL the answer is always yes, because other threads may use the list, too.
    #[inline]
    fn may_be_referred_to(&self, object: *mut ffi::PyObject) -> bool {
        // SAFETY: the offset is within the object.
        let list = unsafe { object.byte_offset(self.weak) }.cast::<*mut ffi::PyObject>();
        // SAFETY: the object has its list there.
        cfg!(Py_GIL_DISABLED) || !unsafe { *list }.is_null()
    }
}

static KIND: OnceLock<Kind> = OnceLock::new();

/// Returns the type, which is made once, however often the module is imported.
pub(crate) fn init<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyType>> {
    if let Some(kind) = KIND.get() {
        // SAFETY: attached, and the type is never given up.
        let kind = unsafe { Bound::from_borrowed_ptr(py, kind.object.cast()) };
        return Ok(kind.cast_into()?);
    }
    let base = py.get_type::<Tensor>();
    let text = CString::new(base.getattr("__doc__")?.extract::<String>()?)?;
    let mut slots = [
        ffi::PyType_Slot { slot: ffi::Py_tp_doc, pfunc: text.as_ptr().cast_mut().cast() },
        ffi::PyType_Slot { slot: ffi::Py_tp_new, pfunc: refuse_new as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: end as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_methods, pfunc: quick_methods::definitions(&base)?.cast() },
        ffi::PyType_Slot { slot: 0, pfunc: null_mut() },
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"devexchange.Tensor".as_ptr(),
        basicsize: 0,
        itemsize: 0,
        flags: ffi::Py_TPFLAGS_DEFAULT as _,
        slots: slots.as_mut_ptr(),
    };
    let bases = PyTuple::new(py, [&base])?;
    // SAFETY: attached; the slots have functions and texts of the right kinds, and the last slot is 0.
    let made = unsafe { ffi::PyType_FromSpecWithBases(&raw mut spec, bases.as_ptr()) };
    // SAFETY: a new reference, or NULL with an exception.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, made) }?.cast_into::<PyType>()?;
    // On the type itself, because consumers may look for it only there.
    let table = intern!(py, "__dlpack_c_exchange_api__");
    object.setattr(table, base.getattr(table)?)?;
    let weak = base.getattr("__weakrefoffset__")?.extract()?;
    let (make, end) = (slot(&base, ffi::Py_tp_new), slot(&base, ffi::Py_tp_dealloc));
    let none = || PyTypeError::new_err("the base of Tensor makes no objects");
    // SAFETY: the slot has a function of this type.
    let make = unsafe { std::mem::transmute::<Option<NonNull<c_void>>, Option<ffi::newfunc>>(make) };
    // SAFETY: as above.
    let end = unsafe { std::mem::transmute::<Option<NonNull<c_void>>, Option<ffi::destructor>>(end) };
    let (make, end) = (make.ok_or_else(none)?, end.ok_or_else(none)?);
    // The type is never given up.
    KIND.get_or_init(|| Kind { object: object.clone().into_ptr().cast(), make, end, weak });
    Ok(object)
}

fn slot(kind: &Bound<'_, PyType>, slot: c_int) -> Option<NonNull<c_void>> {
    // SAFETY: attached, and a type with slots.
    NonNull::new(unsafe { ffi::PyType_GetSlot(kind.as_type_ptr(), slot) })
}

/// Makes an object without a tensor, which is put in afterwards.
pub(crate) fn empty(py: Python<'_>) -> PyResult<Bound<'_, Tensor>> {
    checked(py, empty_quickly(py))
}

/// Makes an object with a tensor.
pub(crate) fn make(py: Python<'_>, tensor: CoreTensor) -> PyResult<Bound<'_, Tensor>> {
    checked(py, make_quickly(py, tensor))
}

fn checked(py: Python<'_>, object: *mut ffi::PyObject) -> PyResult<Bound<'_, Tensor>> {
    // SAFETY: a new reference, or NULL with an exception.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, object) }?;
    // SAFETY: the object is of this type.
    Ok(unsafe { object.cast_into_unchecked() })
}

/// Like [`make`], but without a `PyErr`: a new reference, or NULL with an exception.
#[inline]
pub(crate) fn make_quickly(py: Python<'_>, tensor: CoreTensor) -> *mut ffi::PyObject {
    let object = empty_quickly(py);
    if object.is_null() {
        let _aside = Aside::new(py);
        drop(tensor);
        return object;
    }
    // SAFETY: the object is of this type, and the result keeps it alive.
    let made = unsafe { quick::borrowed::<Tensor>(py, object) };
    // SAFETY: the object was made just now, so nobody else has it.
    unsafe { made.get().fill_alone(tensor) };
    object
}

#[inline]
fn empty_quickly(py: Python<'_>) -> *mut ffi::PyObject {
    let Some(kind) = KIND.get() else { return type_error(py, c"the module is not there") };
    match spare::take(py) {
        // SAFETY: attached; the memory is that of a whole object of the type, with a closed handle in it, and nobody else has
        // it.
        Some(memory) => unsafe { ffi::PyObject_Init(memory.as_ptr(), kind.object) },
        None => fresh(py, kind),
    }
}

/// Makes an object in new memory.
#[inline(never)]
fn fresh(py: Python<'_>, kind: &Kind) -> *mut ffi::PyObject {
    // SAFETY: attached; there are no arguments.
    let object = unsafe { (kind.make)(kind.object, PyTuple::empty(py).as_ptr(), null_mut()) };
    if !object.is_null() {
        // Python's collector looks for objects that refer to each other. A tensor refers only to its type, which lives for
        // ever, so the collector never needs to see a tensor.
        // SAFETY: attached; the type takes part in garbage collection, like all types of PyO3.
        unsafe { ffi::PyObject_GC_UnTrack(object.cast()) };
    }
    object
}

/// Raises a `TypeError` and returns NULL.
#[cold]
fn type_error(_py: Python<'_>, text: &'static CStr) -> *mut ffi::PyObject {
    // SAFETY: the variable is never written.
    let error = unsafe { ffi::PyExc_TypeError };
    // SAFETY: attached; the text lives for ever.
    unsafe { ffi::PyErr_SetString(error, text.as_ptr()) };
    null_mut()
}

/// A tensor that is to become a Python object.
pub(crate) struct New(pub(crate) CoreTensor);

impl<'py> IntoPyObject<'py> for New {
    type Target = Tensor;
    type Output = Bound<'py, Tensor>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        make(py, self.0)
    }
}

/// Refuses the constructor: Python code cannot make a tensor from nothing.
unsafe extern "C" fn refuse_new(
    _: *mut ffi::PyTypeObject,
    _: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let text = c"Tensor has no constructor: from_dlpack, from_buffer, from_cuda_array_interface and empty make one";
    // SAFETY: Python calls this, so the thread is attached.
    type_error(unsafe { Python::assume_attached() }, text)
}

/// Ends an object, and keeps its memory for the next one.
unsafe extern "C" fn end(object: *mut ffi::PyObject) {
    // SAFETY: Python calls this, so the thread is attached.
    let py = unsafe { Python::assume_attached() };
    let kind = KIND.get();
    if kind.is_none_or(|kind| kind.may_be_referred_to(object)) {
        // SAFETY: attached, and the object still exists.
        unsafe { ffi::PyObject_ClearWeakRefs(object) };
    }
    // A panic goes to the trace; the object still ends.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // The object may end because of an exception, which a foreign release must not see.
        let _aside = Aside::if_raised(py);
        // SAFETY: the object is of this type. Its count is 0, so no counted reference may be made.
        let tensor = unsafe { quick::borrowed::<Tensor>(py, object) };
        // SAFETY: nobody else has the object.
        drop(unsafe { tensor.get().take_alone() });
        crate::python::queue::drain();
    }));
    if !spare::keep(py, object) {
        if let Some(kind) = kind {
            // SAFETY: PyO3's class made the object, and nobody else has it.
            unsafe { (kind.end)(object) };
        }
        return;
    }
    // SAFETY: the object's memory still exists.
    let kind = unsafe { ffi::Py_TYPE(object) };
    // SAFETY: an object counts its heap type, and this is no object any more.
    unsafe { ffi::Py_DECREF(kind.cast()) };
}

/// The memory of the object that ended last, with a closed handle in it, kept as CPython keeps the memory of its own small
/// objects. An attached thread has exclusive access to it.
#[cfg(not(Py_GIL_DISABLED))]
mod spare {
    use std::ptr::{NonNull, null_mut};
    use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

    use pyo3::ffi::PyObject;
    use pyo3::prelude::*;

    static SPARE: AtomicPtr<PyObject> = AtomicPtr::new(null_mut());

    #[inline]
    pub(super) fn take(_py: Python<'_>) -> Option<NonNull<PyObject>> {
        let memory = NonNull::new(SPARE.load(Relaxed))?;
        SPARE.store(null_mut(), Relaxed);
        Some(memory)
    }

    /// Keeps the memory of an object, if there is room. Returns whether there was.
    #[inline]
    pub(super) fn keep(_py: Python<'_>, object: *mut PyObject) -> bool {
        let room = SPARE.load(Relaxed).is_null();
        if room {
            SPARE.store(object, Relaxed);
        }
        room
    }
}

/// Without a GIL no memory is kept: this would need a lock, which takes as long as an allocation.
#[cfg(Py_GIL_DISABLED)]
mod spare {
    use std::ptr::NonNull;

    use pyo3::ffi::PyObject;
    use pyo3::prelude::*;

    pub(super) fn take(_py: Python<'_>) -> Option<NonNull<PyObject>> {
        None
    }

    pub(super) fn keep(_py: Python<'_>, _object: *mut PyObject) -> bool {
        false
    }
}
