//! Calling threads, and the library's own threads.
//!
//! Signals belong to the program. It may block a signal in its threads and wait for it (`sigwait`). A thread that did not
//! block it would receive it instead, which by default ends the process.

use core::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::thread::{Builder, JoinHandle};

/// A thread that is in a call now. It is unique among living threads, and getting it allocates nothing; std's thread id would
/// allocate in a thread that Rust has not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller(pub(crate) usize);

impl Caller {
    pub(crate) fn me() -> Self {
        thread_local!(static PLACE: u8 = const { 0 });
        Self(PLACE.with(|place| std::ptr::from_ref(place).addr()))
    }
}

/// The signals that a thread causes itself. Blocking them is undefined (POSIX, `pthread_sigmask`).
const FAULTS: [c_int; 6] = [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];

/// Starts a thread that blocks all signals but faults.
///
/// # Errors
/// Same as [`Builder::spawn`].
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // A new thread inherits the signal mask of the thread that starts it.
    let _blocked = Blocked::new();
    Builder::new().name(name.into()).spawn(run)
}

/// As large as std makes it; the system's choice would depend on the limits of the process.
const STACK: usize = 2 << 20;

/// Like [`spawn`], but for a thread that nobody waits for, and without memory from Rust's allocator: where that has none, std
/// would end the process. The name has at most 15 bytes.
///
/// # Errors
/// The system's error, for example if there are too many threads or no memory.
pub(crate) fn start(name: &'static CStr, run: fn()) -> io::Result<()> {
    let _blocked = Blocked::new();
    let (mut thread, mut attributes) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: room for the attributes.
    made(unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) })?;
    // SAFETY: initialised above; the size is a multiple of every page size.
    let sized = made(unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK) });
    let started = sized.and_then(|()| {
        // SAFETY: as above, room for the thread's handle, and what `begin` takes.
        made(unsafe { libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), begin, run as *mut c_void) })
    });
    // SAFETY: initialised above, and not used any more.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    started?;
    // SAFETY: written by `pthread_create`.
    let thread = unsafe { thread.assume_init() };
    // SAFETY: a thread that is not detached yet, and a C string.
    unsafe { libc::pthread_setname_np(thread, name.as_ptr()) };
    // SAFETY: a thread that nobody has joined or detached.
    unsafe { libc::pthread_detach(thread) };
    Ok(())
}

/// Keeps the library loaded as long as its thread runs: the loader unloads no library with such a destructor to call.
struct Stays;

impl Drop for Stays {
    fn drop(&mut self) {}
}

extern "C" fn begin(run: *mut c_void) -> *mut c_void {
    thread_local!(static STAYS: Stays = const { Stays });
    STAYS.with(|_| ());
    // SAFETY: `start` passes a function of this type.
    let run = unsafe { std::mem::transmute::<*mut c_void, fn()>(run) };
    // A panic ends the thread and nothing else, as one of std's threads; the hook has reported it.
    drop(std::panic::catch_unwind(run));
    null_mut()
}

fn made(code: c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// Blocks all signals but faults on this thread until it is dropped.
struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    fn new() -> Self {
        let mut signals = empty();
        // SAFETY: a set of signals.
        unsafe { libc::sigfillset(&raw mut signals) };
        for fault in FAULTS {
            // SAFETY: as above, and a signal.
            unsafe { libc::sigdelset(&raw mut signals, fault) };
        }
        let mut before = empty();
        // SAFETY: two sets of signals.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, &raw mut before) };
        Self { before }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set from before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut()) };
    }
}

fn empty() -> libc::sigset_t {
    let mut signals = MaybeUninit::uninit();
    // SAFETY: room for a set of signals.
    unsafe { libc::sigemptyset(signals.as_mut_ptr()) };
    // SAFETY: written above.
    unsafe { signals.assume_init() }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    /// Which of all signals this thread blocks.
    fn blocked() -> Vec<c_int> {
        let mut now = empty();
        // SAFETY: room for a set of signals; nothing is changed.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut now) };
        // SAFETY: a set of signals.
        (1..32).filter(|&signal| unsafe { libc::sigismember(&raw const now, signal) } == 1).collect()
    }

    #[test]
    fn a_thread_blocks_signals_and_who_starts_it_does_not() {
        let before = blocked();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = spawn("test", move || tell.send(blocked()).expect("heard")).expect("started");
        thread.join().expect("ended");
        let its = told.recv().expect("told");
        assert_eq!(blocked(), before);
        assert!([libc::SIGTERM, libc::SIGINT, libc::SIGCHLD, libc::SIGUSR1].iter().all(|signal| its.contains(signal)));
        assert!(FAULTS.iter().all(|fault| !its.contains(fault) || before.contains(fault)));
    }

    #[test]
    fn a_thread_that_nobody_waits_for_blocks_signals_too() {
        static ITS: OnceLock<Vec<c_int>> = OnceLock::new();
        let before = blocked();
        start(c"test", || ITS.set(blocked()).expect("once")).expect("started");
        assert!([libc::SIGTERM, libc::SIGINT].iter().all(|signal| ITS.wait().contains(signal)));
        assert_eq!(blocked(), before);
    }
}
