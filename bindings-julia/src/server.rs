//! How Julia is called on one of its own threads.

use core::ffi::c_void;
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::OnceLock;

use crate::call::Call;

thread_local!(static CALLED: Cell<*mut Call> = const { Cell::new(null_mut()) });

/// The call of the innermost [`Server::serve`] on this thread.
pub(crate) fn called() -> *mut Call {
    CALLED.get()
}

/// Two Julia functions that answer calls, and the functions of Julia's runtime with which they are called.
///
/// From Julia 1.10 on, an interrupt (Ctrl-C) is thrown wherever a function is entered, so no Julia function can promise not to
/// throw. Thrown out of a C function pointer of Julia (`@cfunction`), the exception would skip all frames of its callers: locks
/// would stay locked. `jl_call0` catches everything. It takes no arguments, because Julia's objects can only be made where an
/// exception may be thrown; hence [`called`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Server {
    /// `jl_call0`: calls a Julia function without arguments, and returns NULL if it threw.
    pub(crate) call: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    /// `jl_get_ptls_states`: Julia's record of the calling thread.
    pub(crate) thread: unsafe extern "C" fn() -> *mut u8,
    pub(crate) collector: Collector,
    /// The Julia function that answers a call.
    pub(crate) answer: *mut c_void,
    /// The Julia function for a call whose `answer` threw: writes why, and takes back what was answered.
    pub(crate) refuse: *mut c_void,
}

/// What a thread tells Julia's garbage collector: whether it has to wait for the thread. It must wait while Julia code runs, but
/// need not during a foreign call (`@ccall gc_safe=true`), which may lead to a call here. Each function returns what was told
/// before, or takes it back.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Collector {
    /// `jl_gc_unsafe_enter`: it has to wait. May throw an interrupt, in Julia 1.12 even if that was told before.
    pub(crate) wait: unsafe extern "C" fn() -> i8,
    /// `jl_gc_unsafe_leave`. May throw an interrupt.
    pub(crate) end_wait: unsafe extern "C" fn(i8),
    /// `jl_gc_safe_enter`: it need not wait.
    pub(crate) go_on: unsafe extern "C" fn() -> i8,
    /// `jl_gc_safe_leave`.
    pub(crate) end_go_on: unsafe extern "C" fn(i8),
}

/// How often in a row `refuse` may be interrupted. Nobody presses Ctrl-C that fast; but what throws for another reason always
/// throws.
const ATTEMPTS: u32 = 8;

/// Where Julia's record of a thread says whether the collector waits for it (0 if it does); `None` if that was not found.
static PLACE: OnceLock<Option<usize>> = OnceLock::new();

/// How many bytes of the record are searched for that. Julia 1.12 has it at 25.
const SEARCHED: usize = 128;

impl Server {
    /// Finds out once what [`serve`](Self::serve) has to know. No function of Julia tells whether the collector waits for a
    /// thread, so this looks for the byte of the record that changes with it.
    ///
    /// # Safety
    /// This is a Julia thread, which runs Julia code: the collector waits for it.
    pub(crate) unsafe fn prepare(&self) {
        PLACE.get_or_init(|| {
            let byte = |place| self.byte(place);
            let mut places: Vec<usize> = (0..SEARCHED).collect();
            // Other bytes may change by chance, but not every time.
            for _ in 0..4 {
                places.retain(|&place| byte(place) == 0);
                // SAFETY: nothing of Julia's is touched until this is taken back.
                let before = unsafe { (self.collector.go_on)() };
                places.retain(|&place| byte(place) != 0);
                // SAFETY: what `go_on` returned on this thread.
                unsafe { (self.collector.end_go_on)(before) };
            }
            places.retain(|&place| byte(place) == 0);
            if let [place] = *places { Some(place) } else { None }
        });
    }

    /// Has Julia answer a call.
    ///
    /// # Safety
    /// This is a Julia thread, which may run Julia code now, and [`prepare`](Self::prepare) was called.
    pub(crate) unsafe fn serve(&self, call: &mut Call) {
        let outer = CALLED.replace(call);
        if PLACE.get().copied().flatten().is_some_and(|place| self.byte(place) == 0) {
            // SAFETY: the caller's contract.
            unsafe { self.serve_while_it_waits() };
        } else {
            // SAFETY: a function of Julia's runtime, on a Julia thread.
            let before = unsafe { (self.collector.wait)() };
            // SAFETY: the caller's contract.
            unsafe { self.serve_while_it_waits() };
            // SAFETY: what `wait` returned on this thread.
            unsafe { (self.collector.end_wait)(before) };
        }
        CALLED.set(outer);
    }

    /// A byte of the calling thread's record, which is one of Julia's.
    fn byte(&self, place: usize) -> u8 {
        assert!(place < SEARCHED);
        // SAFETY: a function of Julia's runtime, on a Julia thread.
        let record = unsafe { (self.thread)() };
        // SAFETY: the record is longer than that.
        let byte = unsafe { record.add(place) };
        // SAFETY: as above. Only this thread writes what is looked for.
        unsafe { byte.read_volatile() }
    }

    /// # Safety
    /// Same as [`serve`](Self::serve), and the collector waits for this thread.
    unsafe fn serve_while_it_waits(&self) {
        // SAFETY: as above; Julia keeps its functions for ever.
        let ended = |function| !unsafe { (self.call)(function) }.is_null();
        if !ended(self.answer) {
            let _ = (0..ATTEMPTS).any(|_| ended(self.refuse));
        }
    }
}
