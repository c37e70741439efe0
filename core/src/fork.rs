//! Locks that a child of `fork` can take, whatever the other threads of its parent were doing: nobody has one while the
//! process forks. They are held for moments only, one at a time, and nothing that happens meanwhile forks.

use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::yield_now;
use std::time::{Duration, Instant};

/// How many threads have a lock or wait for one, and above that how many fork.
static INSIDE: AtomicU64 = AtomicU64::new(0);
const FORKS: u64 = 1 << 32;

thread_local!(
    /// How many of them are this thread.
    static HERE: Cell<u64> = const { Cell::new(0) };
    /// Whether this thread is forking, between our handlers: what others have told the system to call then may use this library.
    static FORKING: Cell<bool> = const { Cell::new(false) }
);

/// When the library is loaded, so that who locks something in a call of this library has not told the system before, most
/// often, what to do in a fork.
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = register;

extern "C" fn register() {
    static REGISTERED: Once = Once::new();
    // SAFETY: functions without arguments that do not unwind. Without memory for them, a child may have to wait for
    // ever, as with any lock.
    REGISTERED.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(after), Some(in_child));
    });
}

/// How many forks there were between the process that loaded the library and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// A process, as it is told from its forks: by its number, and by the forks before it, as a fork in a name space of its own may
/// have the number of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// The one that asks.
    pub fn here() -> Self {
        // As for a lock.
        register();
        Self(GENERATION.load(Relaxed) << 32 | u64::from(std::process::id()))
    }

    /// Whether it is the one that asks.
    pub fn is_here(self) -> bool {
        self == Self::here()
    }

    /// As a number, which is never 0.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// What [`Process::to_bits`] gave; 0 is no process.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// The number that the system calls it by.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0 as u32)
    }
}

/// How long a fork waits for those who have a lock: for ever, if it comes from a signal handler of one of them.
const PATIENCE: Duration = Duration::from_secs(1);

/// A lock that nobody has while the process forks.
#[derive(Debug, Default)]
pub struct Lock<T>(Mutex<T>);

/// What a lock protects, as long as it is held.
#[derive(Debug)]
pub struct Locked<'a, T> {
    value: MutexGuard<'a, T>,
    _inside: Inside,
}

/// One of those who keep the process from forking.
#[derive(Debug)]
struct Inside;

impl<T> Lock<T> {
    /// A lock that nobody has.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for the lock, and has it until the result is dropped.
    pub fn lock(&self) -> Locked<'_, T> {
        let inside = Inside::enter();
        Locked { value: self.0.lock().unwrap_or_else(PoisonError::into_inner), _inside: inside }
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl Inside {
    fn enter() -> Self {
        // Where the linker has left out what is done when the library is loaded.
        register();
        // Who forks was waited for, with all others, and has to go on to end that.
        while INSIDE.fetch_add(1, Acquire) >= FORKS && !FORKING.get() {
            INSIDE.fetch_sub(1, Release);
            while INSIDE.load(Relaxed) >= FORKS {
                yield_now();
            }
        }
        HERE.set(HERE.get() + 1);
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        HERE.set(HERE.get() - 1);
        INSIDE.fetch_sub(1, Release);
    }
}

extern "C" fn before() {
    FORKING.set(true);
    INSIDE.fetch_add(FORKS, AcqRel);
    let end = Instant::now() + PATIENCE;
    while !INSIDE.load(Acquire).is_multiple_of(FORKS) && Instant::now() < end {
        yield_now();
    }
}

extern "C" fn after() {
    INSIDE.fetch_sub(FORKS, Release);
    FORKING.set(false);
}

extern "C" fn in_child() {
    // Of all threads there is only this one.
    INSIDE.store(HERE.get(), Relaxed);
    FORKING.set(false);
    GENERATION.fetch_add(1, Relaxed);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Whether a child that this thread forks gets the value of a lock. One that waits for ever is ended.
    fn child_finds(lock: &Lock<u32>, value: u32) -> bool {
        // SAFETY: the child takes a lock and ends without running handlers.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "a child");
        if pid == 0 {
            // SAFETY: no handler is set, so the signal ends the child.
            unsafe { libc::alarm(20) };
            let code = i32::from(*lock.lock() != value);
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) };
        }
        ended(pid) == 0
    }

    /// How a child has ended, when it has.
    fn ended(pid: libc::pid_t) -> i32 {
        let mut status = 0;
        // SAFETY: a child of this process.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status
    }

    #[test]
    fn a_fork_waits_for_who_has_a_lock() {
        let lock = Lock::new(0);
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut value = lock.lock();
                tell.send(()).expect("heard");
                std::thread::sleep(PATIENCE / 50);
                *value = 1;
            });
            told.recv().expect("told");
            assert!(child_finds(&lock, 1));
        });
        assert_eq!(*lock.lock(), 1);
    }

    /// Its number alone may be that of its parent, where each has a name space of its own.
    #[test]
    fn a_fork_is_another_process_whatever_its_number() {
        let parent = Process::here();
        // SAFETY: the child ends without running handlers.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let with_that_number = Process(Process::here().0 & !u64::from(u32::MAX) | u64::from(parent.0 as u32));
            let code = i32::from(parent.is_here() || with_that_number == parent);
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) };
        }
        assert_eq!(ended(pid), 0);
        assert!(parent.is_here() && Process::from_bits(parent.to_bits()) == parent);
        assert_eq!(parent.to_string(), std::process::id().to_string());
    }

    /// As from a signal handler of its own.
    #[test]
    fn a_fork_of_who_has_a_lock_waits_a_while_only() {
        let (held, other) = (Lock::new(0), Lock::new(2));
        let begin = Instant::now();
        let kept = held.lock();
        assert!(child_finds(&other, 2));
        // SAFETY: the child gives up the lock, takes another one and ends without running handlers.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: no handler is set, so the signal ends the child.
            unsafe { libc::alarm(20) };
            drop(kept);
            let code = i32::from(*other.lock() != 2);
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) };
        }
        assert_eq!(ended(pid), 0);
        drop(kept);
        assert!(begin.elapsed() >= PATIENCE);
        assert_eq!((*held.lock(), *other.lock()), (0, 2));
    }

    /// Whoever had a lock before has it no longer, also for the count that a child begins with.
    #[test]
    fn a_fork_within_a_fork_waits_for_nobody() {
        let lock = Lock::new(0);
        for _ in 0..3 {
            *lock.lock() += 1;
        }
        // SAFETY: the child takes a lock, forks and ends without running handlers.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: no handler is set, so the signal ends the child.
            unsafe { libc::alarm(20) };
            let begin = Instant::now();
            let code = i32::from(!child_finds(&lock, 3) || begin.elapsed() >= PATIENCE);
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) };
        }
        assert_eq!(ended(pid), 0);
    }
}
