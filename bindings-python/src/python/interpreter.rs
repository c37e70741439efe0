//! The interpreter: which threads enter it, and how long its end waits for the threads inside. This is for the main
//! interpreter of a process.

use core::ffi::{c_int, c_void};
use std::cell::Cell;
use std::sync::Once;
use std::time::{Duration, Instant};

use devexchange_core::fork::{Inside, Lock, Locked, Process, generation};
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The state that releases and entering threads ask for.
struct State {
    /// Whether a pending call is scheduled, or is being scheduled.
    scheduled: bool,
    /// How many threads are scheduling one just now, and the generation of their process.
    scheduling: usize,
    generation: u64,
    /// Whether the interpreter ends: there are no more pending calls, and only the thread that ends it can still enter.
    ending: bool,
    /// How many threads of `process` are inside: threads made by Python, and foreign threads.
    own: usize,
    foreign: usize,
    process: Process,
}

impl State {
    /// Starts the counts anew in a forked process, which has none of the threads that were inside.
    fn count_here(&mut self) {
        if !self.process.is_here() {
            (self.own, self.foreign, self.process) = (0, 0, Process::here());
        }
    }

    /// The same for the threads that were scheduling a call. Releases call this, so it has to cost little.
    fn schedule_here(&mut self) {
        if self.generation != generation() {
            self.generation = generation();
            self.scheduled &= std::mem::take(&mut self.scheduling) == 0;
        }
    }

    fn inside(&mut self, is_foreign: bool) -> &mut usize {
        if is_foreign { &mut self.foreign } else { &mut self.own }
    }
}

/// Releases take this lock, also in a process that is forked while another thread holds it.
static STATE: Lock<State> = Lock::new(State {
    scheduled: false,
    scheduling: 0,
    generation: 0,
    ending: false,
    own: 0,
    foreign: 0,
    process: Process::from_bits(0),
});

/// Locks the state. The lock is held only to note something, and never while Python runs.
fn state() -> Locked<'static, State> {
    STATE.lock()
}

/// Has the main thread call `call` soon, unless such a call is scheduled already. It counts as scheduled until the call
/// itself calls [`has_come`]. False when the interpreter ends: there are no more calls.
pub(super) fn call_soon(call: extern "C" fn(*mut c_void) -> c_int) -> bool {
    {
        let mut state = state();
        state.schedule_here();
        if state.ending || state.scheduled {
            return !state.ending;
        }
        state.scheduled = true;
        state.scheduling += 1;
    }
    // Without the lock: from CPython 3.13 on, a thread that is attached may let others attach here and wait until it is
    // attached again, while one of them waits for the lock.
    let is_scheduled = {
        // A child of a fork must not find Python's list of calls half changed.
        let _inside = Inside::enter();
        // SAFETY: this may be called on any thread, without the GIL. The interpreter has not begun to end, because `end`
        // waits for the threads that are here.
        unsafe { ffi::Py_AddPendingCall(Some(call), std::ptr::null_mut()) == 0 }
    };
    let mut state = state();
    state.scheduling -= 1;
    // If it is scheduled, it may have come already.
    state.scheduled &= is_scheduled;
    true
}

/// Notes that the pending call has come: another one can be scheduled.
pub(super) fn has_come() {
    state().scheduled = false;
}

/// Runs Python code on a thread that may know nothing of Python.
///
/// # Errors
/// * If the interpreter ends or is gone: a thread that tried to enter then would not come back, except the thread that ends the
///   interpreter and runs the program's own `atexit` handlers.
/// * If the thread belongs to another interpreter: it would enter that one, where our objects must not be used.
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
            // If the process forked within the call, this thread may not be counted in the child.
            if state.process == self.process {
                *state.inside(self.is_foreign) -= 1;
            }
        }
    }
    // SAFETY: this may be called on any thread. The state belongs to this thread, so it stays.
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
    // SAFETY: the state is that of this thread.
    if unsafe { is_of_another_interpreter(thread) } {
        return Err("this thread is in another interpreter of Python than the main one, which has what is asked");
    }
    let _attached = (!thread.is_null()).then(Attached::new);
    Python::try_attach(act).ok_or(ENDS)
}

/// Attaches a thread that Python knows, whether or not it is attached already. PyO3 takes a thread for attached if PyO3
/// attached it further up the stack. But a library called since then may have detached it, as libraries do before they ask us
/// for a batch.
struct Attached(ffi::PyGILState_STATE);

impl Attached {
    fn new() -> Self {
        // SAFETY: this may be called on any thread, attached or not, while its interpreter exists. Python knows this thread.
        Self(unsafe { ffi::PyGILState_Ensure() })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: `new` attached this thread, and it is released once.
        unsafe { ffi::PyGILState_Release(self.0) }
    }
}

thread_local! {
    /// Whether this thread is in Python but was not made by Python.
    static IS_FOREIGN: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread ends the interpreter. Attaching fails by itself once the thread can no longer enter, after the
    /// `atexit` handlers.
    static IS_ENDING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in [`enter`], and was not made by Python.
pub(super) fn is_on_foreign_thread() -> bool {
    IS_FOREIGN.get()
}

/// Whether the interpreter that this thread enters or is in is not the main one. CPython 3.11 reports the interpreter that
/// the thread was in first: a thread that has switched to another one since then, and keeps the GIL, is not detected.
///
/// # Safety
/// `thread` is the state of this thread, or NULL.
unsafe fn is_of_another_interpreter(thread: *mut ffi::PyThreadState) -> bool {
    if thread.is_null() {
        return false;
    }
    // SAFETY: the state stays valid, and every state has an interpreter.
    let interpreter = unsafe { ffi::PyThreadState_GetInterpreter(thread) };
    // SAFETY: an interpreter lives as long as its threads.
    unsafe { ffi::PyInterpreterState_GetID(interpreter) != MAIN_INTERPRETER }
}

/// Refuses other interpreters of the process: the single queue cannot tell which interpreter an object belongs to.
pub(crate) fn require_main(py: Python<'_>) -> PyResult<()> {
    match interpreter(py) {
        MAIN_INTERPRETER => Ok(()),
        id => Err(PyImportError::new_err(format!(
            "this is interpreter {id}: devexchange is for the main interpreter only"
        ))),
    }
}

const MAIN_INTERPRETER: i64 = 0;

/// Whether this thread is attached to the main interpreter.
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

/// How long the end of the interpreter waits for the threads inside. A thread that does not come out in time is left to the
/// interpreter. Python's own threads are daemons by then and end wherever they are; somebody may wait for foreign threads.
const OWN_AT_END: Duration = Duration::from_millis(500);
const FOREIGN_AT_END: Duration = Duration::from_secs(10);
/// The pause between two looks at the counts.
const PAUSE: Duration = Duration::from_millis(1);

/// Has the end of the interpreter noticed even if a handler of `atexit` imports the package: then it is too late to register
/// another handler.
pub(super) fn notice_end() {
    static REGISTERED: Once = Once::new();
    // SAFETY: a function that needs no Python and does not unwind. Python has room for 32 of them.
    REGISTERED.call_once(|| _ = unsafe { ffi::Py_AtExit(Some(ended)) });
}

/// Called when the interpreter is gone.
extern "C" fn ended() {
    state().ending = true;
}

/// From now on lets only this thread enter, and waits for the threads inside.
pub(super) fn end(py: Python<'_>) {
    IS_ENDING.set(true);
    {
        let mut state = state();
        state.ending = true;
        state.count_here();
        state.schedule_here();
    }
    py.detach(|| {
        let begun = Instant::now();
        let may_come_out = || {
            let (state, since) = (state(), begun.elapsed());
            let foreign = state.foreign + state.scheduling;
            (state.own > 0 && since < OWN_AT_END) || (foreign > 0 && since < FOREIGN_AT_END)
        };
        while may_come_out() {
            std::thread::sleep(PAUSE);
        }
    });
}
