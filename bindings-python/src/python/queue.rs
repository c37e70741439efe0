//! The queue of releases on their way to Python. A thread that gives up the last reference to a Python object queues the
//! object, whether or not the thread is attached to the interpreter: this takes no GIL, waits for nothing and cannot fail.
//! Python empties the queue whenever it calls in to take or close something, and through a pending call of the interpreter,
//! which its main thread runs soon. When the interpreter ends, pending calls end, too: what other threads queue later is left
//! to the process, and the trace says so.

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
use crate::python::call::Reference;
use crate::python::{call, interpreter};

/// A Python object that keeps memory alive.
pub(crate) enum Held {
    /// An object that is only held.
    #[expect(dead_code, reason = "it is held, and dropped")]
    Object(Reference),
    /// A buffer that an object has lent; it must not move.
    Buffer(Box<ffi::Py_buffer>),
    /// A function that is called without arguments when it is given up. Its exception goes to `sys.unraisablehook`. It may
    /// need a stream, which is held until then.
    Call(Reference, #[expect(dead_code, reason = "as above")] Hold),
    /// A manager that is written in Python. If it has a method `close`, that is called when the manager is given up; its
    /// exception goes to `sys.unraisablehook`, too.
    Manager { object: Arc<Reference>, closes: bool },
}

// SAFETY: only threads that are attached to the interpreter touch the buffer.
unsafe impl Send for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        match self {
            Self::Object(_) | Self::Manager { closes: false, .. } => {}
            // SAFETY: the object that lent the buffer filled it in, and `drain`, which is attached, drops it.
            Self::Buffer(buffer) => unsafe { call::give_back(buffer) },
            Self::Call(function, _) => tell(function, |function| Ok(function.clone())),
            Self::Manager { object, .. } => tell(object, |object| object.getattr("close")),
        }
    }
}

/// Calls a function whose exception has no caller to go to.
fn tell(object: &Reference, function: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>) {
    Python::attach(|py| {
        let object = object.bind(py);
        if let Err(error) = function(object).and_then(|function| call::call(&function, ())) {
            error.write_unraisable(py, Some(object));
        }
    });
}

static QUEUE: LazyLock<Arc<ReleaseQueue>> = LazyLock::new(|| ReleaseQueue::new(wake));

/// Whether something was pushed that nobody has begun to drain. Every call looks at this.
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
    // After a release in another interpreter, CPython before 3.12 may run this there. Entering the main interpreter from
    // there would wait for the GIL that this thread holds. So the queue waits for the next call from the main interpreter.
    // SAFETY: a thread that runs pending calls is attached.
    if interpreter::is_main(unsafe { Python::assume_attached() }) {
        drain();
    }
    0
}

/// Gives up what is queued. A propagating exception is preserved. Without an interpreter nothing happens.
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

/// Empties the queue. Giving up one entry may push another, and so on: the loop of the outermost call takes all of them, so
/// that a long chain needs no more stack than a short one.
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
            // Before the look into the queue: a later push is seen by that look or by the next call.
            PUSHED.swap(false, AcqRel);
            let taken = QUEUE.drain(&mut tokens);
            for &token in tokens.iter().take(taken) {
                // SAFETY: `owner` made the token, and each token comes out once.
                drop(unsafe { Box::from_raw(pointer(token)) });
            }
            // Only when nothing is left: an inner call on this thread has returned at once, and left its entries to this
            // loop.
            if taken == 0 {
                break;
            }
        }
    });
}

fn pointer(token: u64) -> *mut Held {
    std::ptr::with_exposed_provenance_mut(token as usize)
}

/// Makes an owner, which the core holds in place of a Python object.
pub(crate) fn owner(held: Held) -> Owner {
    let owner = QUEUE.register(Box::into_raw(Box::new(held)).expose_provenance() as u64);
    // SAFETY: an owner of the queue may be released once, by any thread, at any time.
    unsafe { Owner::from_raw(owner) }
}

/// Returns the result of a call that was given such an owner. If it was refused, Python gets its object back.
pub(crate) fn keep<T>(made: std::result::Result<T, Refused<Owner>>) -> devexchange_core::Result<T> {
    made.map_err(|refused| {
        drop(refused.returned);
        drain();
        refused.error
    })
}

/// Registers with `atexit`, so that the end of the interpreter is noticed.
pub(crate) fn at_exit(py: Python<'_>) -> PyResult<()> {
    interpreter::notice_end();
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(end, py)?,))?;
    Ok(())
}

#[pyfunction]
fn end(py: Python<'_>) {
    interpreter::end(py);
    drain();
}
