//! The gate before Julia's event loop: nobody touches its handle once the gate is closed.

use core::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

/// `uv_async_send`, or anything else that may be called from any thread and does nothing but wake somebody.
pub(crate) type Wake = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Whom to wake. Any number of threads may pass at the same time.
///
/// A flag alone would not do: a thread that has read it may still be on its way to the handle when that is freed. So
/// threads count themselves in before they look, and closing waits until those who may have looked are out again.
/// All accesses are `SeqCst`: either the thread is counted before the closer looks, or it finds the gate closed.
pub(crate) struct Gate {
    target: AtomicPtr<Target>,
    inside: AtomicUsize,
    /// Held by whoever opens or closes.
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

    /// Lets wakes through to `handle`, and no longer to the one before.
    ///
    /// # Safety
    /// `wake(handle)` may be called from any thread until the gate is closed or opened anew.
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
        // Those inside do one call that does not block.
        while self.inside.load(SeqCst) != 0 {
            std::thread::yield_now();
        }
        // SAFETY: `open` made it from a box, and with nobody inside since it was taken off, nobody has it.
        drop(unsafe { Box::from_raw(before) });
        drop(changing);
    }

    /// Wakes, if the gate is open.
    pub(crate) fn pass(&self) {
        self.inside.fetch_add(1, SeqCst);
        let target = self.target.load(SeqCst);
        // SAFETY: NULL, or a target that `change` does not free before this thread is counted out.
        if let Some(target) = unsafe { target.as_ref() } {
            // SAFETY: by `open` this may be called from any thread as long as the gate is open to this target, which
            // it counts as until this thread is out. What it returns would be an error of the handle's owner.
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

    /// A handle that knows whether it may still be touched.
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
                // Every other one is closed when somebody is surely passing, however late the threads begin.
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
