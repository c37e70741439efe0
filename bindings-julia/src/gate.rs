//! The gate in front of Julia's event loop: once it is closed, nobody touches the loop's handle.

use core::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

/// `uv_async_send`, or any function that only wakes someone and can be called from any thread.
pub(crate) type Wake = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The handle to wake. Any number of threads can pass the gate at the same time.
///
/// A flag would not be enough: a thread that has read it may still be about to touch the handle when that is freed. So threads
/// count themselves in before they read the target, and closing waits until all that may have read it are out again. All
/// accesses are `SeqCst`: either the thread is counted before the closer looks, or it finds the gate closed.
pub(crate) struct Gate {
    target: AtomicPtr<Target>,
    inside: AtomicUsize,
    /// Held while the gate is opened or closed.
    changing: Mutex<()>,
}

struct Target {
    wake: Wake,
    handle: *mut c_void,
}

impl Gate {
    /// A closed gate.
    pub(crate) const fn new() -> Self {
        Self { target: AtomicPtr::new(null_mut()), inside: AtomicUsize::new(0), changing: Mutex::new(()) }
    }

    /// Lets wakes through to `handle` from now on, and no longer to the previous handle.
    ///
    /// # Safety
    /// `wake(handle)` can be called from any thread until the gate is closed or opened again.
    pub(crate) unsafe fn open(&self, wake: Wake, handle: *mut c_void) {
        self.change(Box::into_raw(Box::new(Target { wake, handle })));
    }

    /// Returns when no thread touches the handle any more, and none will.
    pub(crate) fn close(&self) {
        self.change(null_mut());
    }

    fn change(&self, target: *mut Target) {
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.target.swap(target, SeqCst);
        if before.is_null() {
            return;
        }
        // Threads inside make a single call, which does not block.
        while self.inside.load(SeqCst) != 0 {
            std::thread::yield_now();
        }
        // SAFETY: `open` made it from a box. Nobody was inside after it was replaced, so nobody has it.
        drop(unsafe { Box::from_raw(before) });
        drop(changing);
    }

    /// Wakes, if the gate is open.
    pub(crate) fn pass(&self) {
        self.inside.fetch_add(1, SeqCst);
        let target = self.target.load(SeqCst);
        // SAFETY: NULL, or a target that `change` does not free before this thread is counted out.
        if let Some(target) = unsafe { target.as_ref() } {
            // SAFETY: by `open` this can be called from any thread while the gate is open to this target, and `change` waits
            // for this thread. An error that it returns concerns the owner of the handle.
            unsafe { (target.wake)(target.handle) };
        }
        self.inside.fetch_sub(1, SeqCst);
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("open", &!self.target.load(SeqCst).is_null()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// A handle that detects whether it is touched after its end.
    #[derive(Default)]
    struct Handle {
        closed: AtomicBool,
        wakes: AtomicUsize,
        touched_late: AtomicBool,
    }

    unsafe extern "C" fn touch(handle: *mut c_void) -> c_int {
        // SAFETY: the tests open the gate to handles that outlive it.
        let handle = unsafe { &*handle.cast::<Handle>() };
        handle.wakes.fetch_add(1, SeqCst);
        std::thread::yield_now();
        if handle.closed.load(SeqCst) {
            handle.touched_late.store(true, SeqCst);
        }
        0
    }

    fn open_to(gate: &Gate, handle: &Handle) {
        // SAFETY: the handle outlives the gate, and `touch` may be called from any thread.
        unsafe { gate.open(touch, std::ptr::from_ref(handle).cast_mut().cast()) };
    }

    #[test]
    fn a_closed_gate_wakes_nobody() {
        let (gate, handle) = (Gate::new(), Handle::default());
        gate.pass();
        open_to(&gate, &handle);
        gate.pass();
        gate.close();
        gate.pass();
        gate.close();
        assert_eq!(handle.wakes.load(SeqCst), 1);
    }

    #[test]
    fn the_newest_handle_is_woken() {
        let (gate, first, second) = (Gate::new(), Handle::default(), Handle::default());
        open_to(&gate, &first);
        open_to(&gate, &second);
        gate.pass();
        gate.close();
        assert_eq!((first.wakes.load(SeqCst), second.wakes.load(SeqCst)), (0, 1));
    }

    #[test]
    fn no_handle_is_touched_after_it_was_closed() {
        let (gate, done) = (Gate::new(), AtomicBool::new(false));
        let handles: Vec<_> = (0..40).map(|_| Handle::default()).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(SeqCst) {
                        gate.pass();
                    }
                });
            }
            for (number, handle) in handles.iter().enumerate() {
                open_to(&gate, handle);
                // Every other handle is closed when a thread has certainly passed, however late the threads begin.
                while number % 2 == 0 && handle.wakes.load(SeqCst) == 0 {
                    std::thread::yield_now();
                }
                gate.close();
                handle.closed.store(true, SeqCst);
            }
            done.store(true, SeqCst);
        });
        assert!(!handles.iter().any(|handle| handle.touched_late.load(SeqCst)));
    }
}
