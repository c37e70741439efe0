//! Locks that a child of `fork` can take, whatever the other threads of its parent were doing: no thread holds one
//! while the process forks. They are held only briefly, one at a time, and nothing forks while one is held.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::yield_now;
use std::time::{Duration, Instant};

/// In the low half, how many threads hold a lock or wait for one; in the high half, how many are forking.
static INSIDE: AtomicU64 = AtomicU64::new(0);
const FORKS: u64 = 1 << 32;

thread_local!(
    /// How many of the locks in `INSIDE` are this thread's.
    static HERE: Cell<u64> = const { Cell::new(0) };
    /// Whether this thread is forking, between our handlers. Fork handlers of others, which run then, may use this library.
    static FORKING: Cell<bool> = const { Cell::new(false) }
);

/// Registers the fork handlers when the library is loaded, usually before those of anybody who holds a lock during calls of
/// this library.
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = register;

extern "C" fn register() {
    static REGISTERED: Once = Once::new();
    // SAFETY: functions without arguments that do not unwind. If there is no memory to register them, a child may wait
    // for ever, as with any lock.
    REGISTERED.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(after), Some(in_child));
    });
}

/// The number of forks between the process that loaded the library and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The number of forks between the process that loaded the library and the calling one. Unlike [`Process::here`], this makes no
/// system call, and does not see forks that bypass the C library.
pub fn generation() -> u64 {
    GENERATION.load(Relaxed)
}

/// A process, distinguished from its forks by its number and by the number of forks before it: a fork in its own PID namespace
/// may have the number of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// The calling process.
    pub fn here() -> Self {
        // The handlers count the forks.
        register();
        Self(GENERATION.load(Relaxed) << 32 | u64::from(std::process::id()))
    }

    /// Whether this is the calling process.
    pub fn is_here(self) -> bool {
        self == Self::here()
    }

    /// The process as a number, which is never 0.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The process that [`Process::to_bits`] was called on; 0 is no process.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// Shows the process id.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0 as u32)
    }
}

/// How long a fork waits for threads that hold a lock: it could wait for ever, if it comes from a signal handler
/// of such a thread.
const PATIENCE: Duration = Duration::from_secs(1);

/// A lock that no thread holds while the process forks.
#[derive(Debug, Default)]
pub struct Lock<T>(Mutex<T>);

/// The value that a lock protects, while the lock is held.
#[derive(Debug)]
pub struct Locked<'a, T> {
    value: MutexGuard<'a, T>,
    _inside: Inside,
}

/// Keeps the process from forking while it lives. Like a lock, it is held only briefly, not together with one, and given up on
/// its own thread.
#[derive(Debug)]
pub struct Inside(PhantomData<*const ()>);

impl<T> Lock<T> {
    /// A new lock, which nobody holds.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for the lock, and holds it until the result is dropped.
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
    /// Waits until the process does not fork, and keeps it from forking until the result is dropped.
    pub fn enter() -> Self {
        // In case the linker has left `REGISTER` out.
        register();
        // Other threads wait for a fork to end. The forking thread itself must go on.
        while INSIDE.fetch_add(1, Acquire) >= FORKS && !FORKING.get() {
            INSIDE.fetch_sub(1, Release);
            while INSIDE.load(Relaxed) >= FORKS {
                yield_now();
            }
        }
        HERE.set(HERE.get() + 1);
        Self(PhantomData)
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
    // This is the only thread of the child.
    INSIDE.store(HERE.get(), Relaxed);
    FORKING.set(false);
    GENERATION.fetch_add(1, Relaxed);
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc::channel;
    use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

    use super::*;

    /// A child has the sockets of this process open until it ends or runs another program, so their addresses are in use.
    static CHILDREN: RwLock<()> = RwLock::new(());

    /// Held by a test that forks or starts a program.
    pub(crate) fn with_children() -> RwLockReadGuard<'static, ()> {
        CHILDREN.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held by a test that needs an address again as soon as its socket is closed.
    pub(crate) fn without_children() -> RwLockWriteGuard<'static, ()> {
        CHILDREN.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// `<Guard as OnItsThread<_>>::stays()` compiles only if the guard is not `Send`: otherwise it would not be clear which
    /// trait is meant.
    pub(crate) trait OnItsThread<Which> {
        fn stays() {}
    }
    impl<T> OnItsThread<()> for T {}
    impl<T: Send> OnItsThread<u8> for T {}

    /// One that is given up on another thread would be missing from that thread's count, and a child that the thread forks
    /// would wait for ever.
    #[test]
    fn who_keeps_the_process_from_forking_stays_on_its_thread() {
        <Inside as OnItsThread<_>>::stays();
    }

    /// A child that takes so many seconds hangs.
    const HANGS: u32 = 120;

    /// Whether a child that this thread forks finds this value in a lock. A child that waits for ever is killed.
    fn child_finds(lock: &Lock<u32>, value: u32) -> bool {
        // SAFETY: the child takes a lock and ends without running handlers.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "a child");
        if pid == 0 {
            // SAFETY: no handler is set, so the signal ends the child.
            unsafe { libc::alarm(HANGS) };
            let code = i32::from(*lock.lock() != value);
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) };
        }
        ended(pid) == 0
    }

    /// Waits for the end of a child, and returns its status.
    fn ended(pid: libc::pid_t) -> i32 {
        let mut status = 0;
        // SAFETY: a child of this process.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status
    }

    /// The fork waits for [`PATIENCE`] only. An attempt does not count if a busy machine lets the holder need longer.
    #[test]
    fn a_fork_waits_for_who_has_a_lock() {
        let _children = with_children();
        let held_for_a_while = || {
            let (lock, (tell, told)) = (Lock::new(0), channel());
            let (found, held) = std::thread::scope(|scope| {
                let holder = scope.spawn(|| {
                    let begin = Instant::now();
                    let mut value = lock.lock();
                    tell.send(()).expect("heard");
                    std::thread::sleep(PATIENCE / 50);
                    *value = 1;
                    drop(value);
                    begin.elapsed()
                });
                told.recv().expect("told");
                (child_finds(&lock, 1), holder.join().expect("ended"))
            });
            assert_eq!(*lock.lock(), 1);
            assert!(found || held >= PATIENCE, "{held:?}");
            held < PATIENCE
        };
        assert!((0..20).any(|_| held_for_a_while()), "the thread was never in time");
    }

    /// The number of the fork can be that of its parent, if each has its own PID namespace.
    #[test]
    fn a_fork_is_another_process_whatever_its_number() {
        let _children = with_children();
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

    /// As in a signal handler of the thread that holds the lock.
    #[test]
    fn a_fork_of_who_has_a_lock_waits_a_while_only() {
        let _children = with_children();
        let (held, other) = (Lock::new(0), Lock::new(2));
        let begin = Instant::now();
        let kept = held.lock();
        assert!(child_finds(&other, 2));
        // SAFETY: the child gives up the lock, takes another one and ends without running handlers.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: no handler is set, so the signal ends the child.
            unsafe { libc::alarm(HANGS) };
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

    /// Locks that were released before do not count, not even in the count that a child begins with.
    #[test]
    fn a_fork_within_a_fork_waits_for_nobody() {
        let _children = with_children();
        let lock = Lock::new(0);
        for _ in 0..3 {
            *lock.lock() += 1;
        }
        // SAFETY: the child takes a lock, forks and ends without running handlers.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: no handler is set, so the signal ends the child.
            unsafe { libc::alarm(HANGS) };
            // On a busy machine a fork may take long without waiting, though not each time.
            let waits = (0..20).all(|_| {
                let begin = Instant::now();
                !child_finds(&lock, 3) || begin.elapsed() >= PATIENCE
            });
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(waits)) };
        }
        assert_eq!(ended(pid), 0);
    }
}
