//! Releases on their way to Python. Whoever gives up the last reference to something of Python's queues it, on any
//! thread, attached to the interpreter or not: that takes no GIL, waits for nothing and cannot fail. Python empties
//! the queue: whenever it calls in to take something or to close something, and through a pending call of the
//! interpreter, which its main thread runs soon. When the interpreter ends, pending calls end, too: what is queued
//! later by other threads is left to the process, and the trace says so.

use core::ffi::{c_int, c_void};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, LazyLock};

use devexchange_core::memory::ReleaseQueue;
use devexchange_core::runtime::cuda::Hold;
use devexchange_core::{Owner, Refused, trace};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::aside::Aside;
use crate::python::{call, interpreter};

/// Something of Python's that keeps memory alive.
pub(crate) enum Held {
    /// An object.
    #[expect(dead_code, reason = "it is held, and dropped")]
    Object(Py<PyAny>),
    /// A buffer that an object has lent; it must not move.
    Buffer(Box<ffi::Py_buffer>),
    /// A function that is called without arguments when it is given up. What it raises goes to `sys.unraisablehook`. It may
    /// need a stream, which is held until then.
    Call(Py<PyAny>, #[expect(dead_code, reason = "as above")] Hold),
    /// A manager that is written in Python. If it has a method `close`, that is called when it is given up, with the same end
    /// for what it raises.
    Manager { object: Arc<Py<PyAny>>, closes: bool },
}

// SAFETY: the buffer is touched only by who is attached to the interpreter.
unsafe impl Send for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        match self {
            Self::Object(_) | Self::Manager { closes: false, .. } => {}
            // SAFETY: filled in by the object that lent it, and dropped by `drain`, which is attached.
            Self::Buffer(buffer) => unsafe { ffi::PyBuffer_Release(&raw mut **buffer) },
            Self::Call(function, _) => tell(function, |function| Ok(function.clone())),
            Self::Manager { object, .. } => tell(object, |object| object.getattr("close")),
        }
    }
}

/// Calls what has nobody to raise an exception to.
fn tell(object: &Py<PyAny>, function: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>) {
    Python::attach(|py| {
        let object = object.bind(py);
        if let Err(error) = function(object).and_then(|function| call::call(&function, ())) {
            error.write_unraisable(py, Some(object));
        }
    });
}

static QUEUE: LazyLock<Arc<ReleaseQueue>> = LazyLock::new(|| ReleaseQueue::new(wake));

/// Something was pushed that nobody has begun to drain: what each call looks at.
static PUSHED: AtomicBool = AtomicBool::new(false);

/// Called after each push, on the thread that pushed.
fn wake() {
    PUSHED.store(true, Release);
    if !interpreter::call_soon(pending_call) {
        trace::say(format_args!(
            "an object of Python's is given up while the interpreter ends; it may be left to the process"
        ));
    }
}

extern "C" fn pending_call(_: *mut c_void) -> c_int {
    interpreter::has_come();
    // After a release in another interpreter, CPython before 3.12 may run this there. To enter the main one from there would be
    // to wait for the GIL that this thread has. What is queued waits for the next call of the main one.
    // SAFETY: who runs pending calls is attached.
    if interpreter::is_main(unsafe { Python::assume_attached() }) {
        drain();
    }
    0
}

/// Gives up what is queued. An exception that is on its way stays on its way. Without an interpreter nothing happens.
#[inline]
pub(crate) fn drain() {
    if PUSHED.load(Acquire) {
        give_up();
    }
}

thread_local! {
    /// Whether this thread is in [`give_up`].
    static GIVING_UP: Cell<bool> = const { Cell::new(false) };
}

/// What is given up may hold something else of the queue's, and that again: the innermost comes out in the loop of the outermost,
/// so that a long chain takes no more of the stack than a short one.
#[cold]
fn give_up() {
    struct Outermost;
    impl Drop for Outermost {
        fn drop(&mut self) {
            GIVING_UP.set(false);
        }
    }
    if GIVING_UP.replace(true) {
        return;
    }
    let _outermost = Outermost;
    Python::try_attach(|py| {
        let _aside = Aside::new(py);
        let mut tokens = [0; 32];
        loop {
            // Before the queue is looked into: what is pushed from now on is seen by it, or by the next call.
            PUSHED.swap(false, AcqRel);
            let taken = QUEUE.drain(&mut tokens);
            for &token in tokens.iter().take(taken) {
                // SAFETY: made by `owner`, and a token comes out once.
                drop(unsafe { Box::from_raw(pointer(token)) });
            }
            // Not before nothing is left: who pushed something meanwhile, on this thread, has returned at once.
            if taken == 0 {
                break;
            }
        }
    });
}

fn pointer(token: u64) -> *mut Held {
    std::ptr::with_exposed_provenance_mut(token as usize)
}

/// What the core holds instead of something of Python's.
pub(crate) fn owner(held: Held) -> Owner {
    let owner = QUEUE.register(Box::into_raw(Box::new(held)).expose_provenance() as u64);
    // SAFETY: an owner of the queue may be released once, by any thread, at any time.
    unsafe { Owner::from_raw(owner) }
}

/// What a call came to that was given such an owner. If it was refused, Python has its object back.
pub(crate) fn keep<T>(made: std::result::Result<T, Refused<Owner>>) -> devexchange_core::Result<T> {
    made.map_err(|refused| {
        drop(refused.returned);
        drain();
        refused.error
    })
}

/// Sees to it that the end of the interpreter is noticed.
pub(crate) fn at_exit(py: Python<'_>) -> PyResult<()> {
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(end, py)?,))?;
    Ok(())
}

#[pyfunction]
fn end(py: Python<'_>) {
    interpreter::end(py);
    drain();
}
