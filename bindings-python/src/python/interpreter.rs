//! The interpreter: who enters it, on which thread, and how long its end waits for who is inside. This is for the main
//! interpreter of a process.

use core::ffi::{c_int, c_void};
use std::cell::Cell;
use std::time::{Duration, Instant};

use devexchange_core::fork::{Lock, Locked, Process};
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// What releases and those who enter ask.
struct State {
    /// A pending call is on its way.
    scheduled: bool,
    /// The interpreter ends: there are no more pending calls, and nobody enters any more but the thread that ends it.
    ending: bool,
    /// How many threads are in Python, of this process: those that it has made, and those of others.
    own: usize,
    foreign: usize,
    process: Process,
}

impl State {
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
static STATE: Lock<State> =
    Lock::new(State { scheduled: false, ending: false, own: 0, foreign: 0, process: Process::from_bits(0) });

/// Held for as long as it takes to note something, and never while Python runs.
fn state() -> Locked<'static, State> {
    STATE.lock()
}

/// Has the main thread call `call` soon, unless that is on its way already: it is until the call says by [`has_come`] that it
/// came. False when the interpreter ends: there are no more calls.
pub(super) fn call_soon(call: extern "C" fn(*mut c_void) -> c_int) -> bool {
    let mut state = state();
    if state.ending {
        return false;
    }
    if !state.scheduled {
        // SAFETY: may be called on any thread, without the GIL; the interpreter has not begun to end, because `end`
        // takes the lock first.
        state.scheduled = unsafe { ffi::Py_AddPendingCall(Some(call), std::ptr::null_mut()) } == 0;
    }
    true
}

/// The call has come: there may be another one.
pub(super) fn has_come() {
    state().scheduled = false;
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
            let mut state = state();
            // In a child of a fork within the call this thread may not be counted.
            if state.process == self.process {
                *state.inside(self.is_foreign) -= 1;
            }
        }
    }
    // SAFETY: may be called on any thread; it is of this thread, so it stays.
    let thread = unsafe { ffi::PyGILState_GetThisThreadState() };
    let was_foreign = IS_FOREIGN.get();
    let is_foreign = was_foreign || thread.is_null();
    let mut state = state();
    if state.ending && !IS_ENDING.get() {
        return Err(ENDS);
    }
    state.count_here();
    *state.inside(is_foreign) += 1;
    let _inside = Inside { process: state.process, is_foreign, was_foreign };
    drop(state);
    IS_FOREIGN.set(is_foreign);
    // SAFETY: of this thread.
    if unsafe { is_of_another_interpreter(thread) } {
        return Err("this thread is in another interpreter of Python than the main one, which has what is asked");
    }
    let _attached = (!thread.is_null()).then(Attached::new);
    Python::try_attach(act).ok_or(ENDS)
}

/// A thread that Python knows is attached, whatever it was. PyO3 takes one for attached that it has attached further up; but what
/// that called may be a library which has detached the thread since, as they do before they ask us for a batch.
struct Attached(ffi::PyGILState_STATE);

impl Attached {
    fn new() -> Self {
        // SAFETY: may be called on any thread, attached or not, while there is an interpreter, of which this is one.
        Self(unsafe { ffi::PyGILState_Ensure() })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: attached by `new`, on this thread, and left once.
        unsafe { ffi::PyGILState_Release(self.0) }
    }
}

thread_local! {
    /// Whether somebody else has made this thread, which has entered Python.
    static IS_FOREIGN: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread ends the interpreter. What it may not enter any more after the handlers of `atexit`, it is told then.
    static IS_ENDING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in [`enter`], and not one of Python's.
pub(super) fn is_on_foreign_thread() -> bool {
    IS_FOREIGN.get()
}

/// Whether the interpreter that this thread enters, or is in, is another one than the main one. In CPython 3.11 it is the one
/// that it was in first: who has switched to another one since then, and keeps the GIL, is not seen here.
///
/// # Safety
/// `thread` is the state of this thread, or NULL.
unsafe fn is_of_another_interpreter(thread: *mut ffi::PyThreadState) -> bool {
    if thread.is_null() {
        return false;
    }
    // SAFETY: a state that stays, which has an interpreter.
    let interpreter = unsafe { ffi::PyThreadState_GetInterpreter(thread) };
    // SAFETY: an interpreter lives as long as its threads.
    unsafe { ffi::PyInterpreterState_GetID(interpreter) != MAIN_INTERPRETER }
}

/// Refuses other interpreters of the process: the one queue cannot tell whose an object is.
pub(crate) fn require_main(py: Python<'_>) -> PyResult<()> {
    match interpreter(py) {
        MAIN_INTERPRETER => Ok(()),
        id => Err(PyImportError::new_err(format!(
            "this is interpreter {id}: devexchange is for the main interpreter only"
        ))),
    }
}

const MAIN_INTERPRETER: i64 = 0;

/// Whether this thread is attached to the main one.
pub(super) fn is_main(py: Python<'_>) -> bool {
    interpreter(py) == MAIN_INTERPRETER
}

/// The number of the interpreter that this thread is attached to.
fn interpreter(_py: Python<'_>) -> i64 {
    // SAFETY: attached, so there is a current interpreter.
    let current = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: as above.
    unsafe { ffi::PyInterpreterState_GetID(current) }
}

/// How long the end of the interpreter waits for those inside: who does not come out is left to it. Its own threads are daemons
/// then, which end wherever they are; somebody may wait for those of others.
const OWN_AT_END: Duration = Duration::from_millis(500);
const FOREIGN_AT_END: Duration = Duration::from_secs(10);
/// Between two looks at them.
const PAUSE: Duration = Duration::from_millis(1);

/// Lets nobody in any more but this thread, and waits for who is inside.
pub(super) fn end(py: Python<'_>) {
    IS_ENDING.set(true);
    {
        let mut state = state();
        state.ending = true;
        state.count_here();
    }
    py.detach(|| {
        let begun = Instant::now();
        let may_come_out = || {
            let (state, since) = (state(), begun.elapsed());
            (state.own > 0 && since < OWN_AT_END) || (state.foreign > 0 && since < FOREIGN_AT_END)
        };
        while may_come_out() {
            std::thread::sleep(PAUSE);
        }
    });
}
