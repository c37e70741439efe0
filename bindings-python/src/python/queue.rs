//! Releases on their way to Python. Whoever gives up the last reference to something of Python's queues it, on any
//! thread, attached to the interpreter or not: that takes no GIL, waits for nothing and cannot fail. Python empties
//! the queue: whenever it calls in to take something or to close something, and through a pending call of the
//! interpreter, which its main thread runs soon. When the interpreter ends, pending calls end, too: what is queued
//! later by other threads is left to the process, and the trace says so.

use core::ffi::{c_int, c_void};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use devexchange_core::fork::{Lock, Locked, Process};
use devexchange_core::memory::ReleaseQueue;
use devexchange_core::runtime::cuda::Hold;
use devexchange_core::{Owner, Refused, trace};
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::call;

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

struct Wake {
    /// A pending call is on its way.
    scheduled: bool,
    /// The interpreter ends: there are no more pending calls, and nobody enters any more but the thread that ends it.
    ending: bool,
    /// How many threads are in Python, of this process: those that it has made, and those of others.
    own: usize,
    foreign: usize,
    process: Process,
}

impl Wake {
    /// A process that is forked has none of the threads that were inside.
    fn count_here(&mut self) {
        if !self.process.is_here() {
            (self.own, self.foreign, self.process) = (0, 0, Process::here());
        }
    }

    fn inside(&mut self, is_foreign: bool) -> &mut usize {
        if is_foreign { &mut self.foreign } else { &mut self.own }
    }
}

/// Releases take it, also in a process that is forked while another thread has it.
static WAKE: Lock<Wake> =
    Lock::new(Wake { scheduled: false, ending: false, own: 0, foreign: 0, process: Process::from_bits(0) });
/// How long the end of the interpreter waits for those inside: who does not come out is left to it. Its own threads are daemons
/// then, which end wherever they are; somebody may wait for those of others.
const OWN_AT_END: Duration = Duration::from_millis(500);
const FOREIGN_AT_END: Duration = Duration::from_secs(10);
/// Between two looks at them.
const PAUSE: Duration = Duration::from_millis(1);

/// Held for as long as it takes to note something, and never while Python runs.
fn waking() -> Locked<'static, Wake> {
    WAKE.lock()
}

/// Called after each push, on the thread that pushed.
fn wake() {
    PUSHED.store(true, Release);
    let mut wake = waking();
    if wake.ending {
        trace::say(format_args!(
            "an object of Python's is given up while the interpreter ends; it may be left to the process"
        ));
    } else if !wake.scheduled {
        // SAFETY: may be called on any thread, without the GIL; the interpreter has not begun to end, because `end`
        // takes the lock first.
        wake.scheduled = unsafe { ffi::Py_AddPendingCall(Some(pending_call), std::ptr::null_mut()) } == 0;
    }
}

extern "C" fn pending_call(_: *mut c_void) -> c_int {
    waking().scheduled = false;
    // After a release in another interpreter, CPython before 3.12 may run this there. To enter the main one from there would be
    // to wait for the GIL that this thread has. What is queued waits for the next call of the main one.
    // SAFETY: who runs pending calls is attached.
    if interpreter(unsafe { Python::assume_attached() }) == MAIN_INTERPRETER {
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

/// Runs Python on a thread that may know nothing of it.
///
/// # Errors
/// If the interpreter ends or is gone: a thread that tried to enter then would not come back, but for the one that ends it and
/// runs the program's own handlers of `atexit`. If the thread is one of another interpreter, which is what it would enter,
/// where our objects must not be used.
pub(crate) fn enter<T>(act: impl FnOnce(Python<'_>) -> T) -> std::result::Result<T, &'static str> {
    const ENDS: &str = "the interpreter of Python ends";
    struct Inside {
        process: Process,
        is_foreign: bool,
        was_foreign: bool,
    }
    impl Drop for Inside {
        fn drop(&mut self) {
            IS_FOREIGN.set(self.was_foreign);
            let mut wake = waking();
            // In a child of a fork within the call this thread may not be counted.
            if wake.process == self.process {
                *wake.inside(self.is_foreign) -= 1;
            }
        }
    }
    // SAFETY: may be called on any thread; it is of this thread, so it stays.
    let state = unsafe { ffi::PyGILState_GetThisThreadState() };
    let was_foreign = IS_FOREIGN.get();
    let is_foreign = was_foreign || state.is_null();
    let mut wake = waking();
    if wake.ending && !IS_ENDING.get() {
        return Err(ENDS);
    }
    wake.count_here();
    *wake.inside(is_foreign) += 1;
    let _inside = Inside { process: wake.process, is_foreign, was_foreign };
    drop(wake);
    IS_FOREIGN.set(is_foreign);
    // SAFETY: of this thread.
    if unsafe { is_of_another_interpreter(state) } {
        return Err("this thread is in another interpreter of Python than the main one, which has what is asked");
    }
    Python::try_attach(act).ok_or(ENDS)
}

thread_local! {
    /// Whether somebody else has made this thread, which has entered Python.
    static IS_FOREIGN: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread ends the interpreter. What it may not enter any more after the handlers of `atexit`, it is told then.
    static IS_ENDING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in [`enter`], and not one of Python's.
pub(crate) fn is_on_foreign_thread() -> bool {
    IS_FOREIGN.get()
}

/// Whether the interpreter that this thread enters, or is in, is another one than the main one. In CPython 3.11 it is the one
/// that it was in first: who has switched to another one since then, and keeps the GIL, is not seen here.
///
/// # Safety
/// `state` is this thread's, or NULL.
unsafe fn is_of_another_interpreter(state: *mut ffi::PyThreadState) -> bool {
    if state.is_null() {
        return false;
    }
    // SAFETY: a state that stays, which has an interpreter.
    let interpreter = unsafe { ffi::PyThreadState_GetInterpreter(state) };
    // SAFETY: an interpreter lives as long as its threads.
    unsafe { ffi::PyInterpreterState_GetID(interpreter) != MAIN_INTERPRETER }
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

/// Refuses other interpreters of the process: the one queue cannot tell whose an object is.
pub(crate) fn require_main_interpreter(py: Python<'_>) -> PyResult<()> {
    match interpreter(py) {
        MAIN_INTERPRETER => Ok(()),
        id => Err(PyImportError::new_err(format!(
            "this is interpreter {id}: devexchange is for the main interpreter only"
        ))),
    }
}

const MAIN_INTERPRETER: i64 = 0;

/// The number of the interpreter that this thread is attached to.
fn interpreter(_py: Python<'_>) -> i64 {
    // SAFETY: attached, so there is a current interpreter.
    let current = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: as above.
    unsafe { ffi::PyInterpreterState_GetID(current) }
}

/// Sees to it that the end of the interpreter is noticed.
pub(crate) fn at_exit(py: Python<'_>) -> PyResult<()> {
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(end, py)?,))?;
    Ok(())
}

#[pyfunction]
fn end(py: Python<'_>) {
    IS_ENDING.set(true);
    {
        let mut wake = waking();
        wake.ending = true;
        wake.count_here();
    }
    py.detach(|| {
        let begun = Instant::now();
        let may_come_out = || {
            let (wake, since) = (waking(), begun.elapsed());
            (wake.own > 0 && since < OWN_AT_END) || (wake.foreign > 0 && since < FOREIGN_AT_END)
        };
        while may_come_out() {
            std::thread::sleep(PAUSE);
        }
    });
    drain();
}

/// An exception that is on its way, put aside while foreign code runs that must not see or replace it.
pub(crate) struct Aside<'py> {
    exception: [*mut ffi::PyObject; 3],
    _py: Python<'py>,
}

impl<'py> Aside<'py> {
    pub(crate) fn new(py: Python<'py>) -> Self {
        let [mut kind, mut value, mut traceback] = [std::ptr::null_mut(); 3];
        // SAFETY: attached, and there is room for all three.
        unsafe { ffi::PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut traceback) };
        Self { exception: [kind, value, traceback], _py: py }
    }

    /// The same if there is an exception, for what is done so often that a look costs less.
    #[inline]
    pub(crate) fn if_raised(py: Python<'py>) -> Option<Self> {
        // SAFETY: attached.
        let raised = unsafe { !ffi::PyErr_Occurred().is_null() };
        raised.then(|| Self::new(py))
    }
}

/// Gives up what an object of Python's has at its end: an object may end because of an exception, which is still on its
/// way then. Without an interpreter to attach to there is none, and `end` is only dropped.
pub(crate) fn quietly(end: impl FnOnce(Python<'_>)) {
    Python::try_attach(|py| {
        let _aside = Aside::new(py);
        end(py);
    });
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        let [kind, value, traceback] = self.exception;
        // SAFETY: attached; the references are those that were taken, and are given back once.
        unsafe { ffi::PyErr_Restore(kind, value, traceback) }
    }
}
