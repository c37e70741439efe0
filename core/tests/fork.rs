//! Children of `fork`: a child can give things up, whatever other threads of the parent were doing at the fork.

mod patience;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use devexchange_core::arrow::asynchronous::{AsyncReader, AsyncWriter, ReaderOptions, Wake};
use devexchange_core::arrow::schema::FieldDesc;
use devexchange_core::manager::{Deferred, Driver, Limited, Shared};
use devexchange_core::{DType, Device, DeviceType, Schema, Tensor, trace};

const FORKS: u32 = 400;
const HANGS: Duration = Duration::from_secs(120);

/// Does something in a child, which must come to its end. Returns the child's status as its parent sees it: the exit
/// code in the second byte, the signal in the first, 9 if it hung.
fn in_a_child(act: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child ends without running handlers.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "a child");
    if pid == 0 {
        let code = if act() { 0 } else { 1 };
        // SAFETY: ends the child.
        unsafe { libc::_exit(code) };
    }
    let (mut status, end) = (0, Instant::now() + patience::patient(HANGS));
    // SAFETY: the child made above.
    while unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == 0 {
        if Instant::now() > end {
            // SAFETY: as above.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    status
}

/// A child that drops an asynchronous stream calls no peer, and so wakes nobody.
#[test]
fn asynchronous_streams_are_left_to_the_parent() {
    let woken = Arc::new(AtomicU32::new(0));
    let wake = || {
        let woken = Arc::clone(&woken);
        let counted = move || {
            woken.fetch_add(1, Relaxed);
        };
        Some(Wake::new(counted).unwrap())
    };
    let reader = AsyncReader::new(ReaderOptions::default(), wake()).unwrap();
    // SAFETY: a handler that nobody else has.
    let writer = unsafe { AsyncWriter::new(reader.handler().unwrap(), DeviceType::CPU, None, wake()) }.unwrap();
    writer.start(&Schema::new(&[FieldDesc::new(c"n", c"i")]).unwrap()).unwrap();
    let mut kept = Some((reader, writer));
    let given_up: [fn((AsyncReader, AsyncWriter)); 3] = [
        |(reader, writer)| {
            reader.cancel();
            std::mem::forget((reader, writer));
        },
        |(reader, writer)| drop((reader, writer)),
        |(reader, writer)| drop((writer, reader)),
    ];
    for give_up in given_up {
        let before = woken.load(Relaxed);
        let status = in_a_child(|| {
            kept.take().map(give_up);
            woken.load(Relaxed) == before
        });
        assert_eq!(status, 0);
    }
    let (reader, writer) = kept.unwrap();
    writer.finish().unwrap();
    assert!(matches!(reader.try_batch(), Poll::Ready(None)));
}

static IN_HANDLERS: Mutex<Option<(Shared, Tensor)>> = Mutex::new(None);

/// What a program does when it forks, with memory of a manager: it gives some up and allocates some.
extern "C" fn renew() {
    let mut kept = IN_HANDLERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((manager, tensor)) = &mut *kept
        && let Ok(other) = Tensor::allocate_with(&**manager, Device::CPU, DType::UINT8, &[64], None)
    {
        *tensor = other;
    }
}

/// Registers before the library is there, as a program does that loads the library later.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static REGISTER: extern "C" fn() = register;

extern "C" fn register() {
    // SAFETY: functions without arguments that do not unwind.
    unsafe { libc::pthread_atfork(Some(renew), Some(renew), Some(renew)) };
}

/// A program's own fork handlers can use the library as usual: both those registered before the library and those
/// registered after it.
#[test]
fn handlers_of_the_program_wait_for_nobody() {
    if std::env::var_os(TRACED).is_none() {
        let test = "handlers_of_the_program_wait_for_nobody";
        let mut run = Command::new(std::env::current_exe().unwrap());
        // Captured, because what it counts is not to be counted for this program.
        let run = run.args(["--exact", test]).env(TRACED, "1").output().unwrap();
        let text = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && text.contains("1 passed"), "{text}\n{}", String::from_utf8_lossy(&run.stderr));
        return;
    }
    register();
    // SAFETY: no handler is set, so the signal ends a process that waits for ever.
    unsafe { libc::alarm(240) };
    let manager = Shared::new(Driver::host_only().unwrap()).unwrap();
    let tensor = || Tensor::allocate_with(&*manager, Device::CPU, DType::UINT8, &[64], None).unwrap();
    *IN_HANDLERS.lock().unwrap() = Some((manager.clone(), tensor()));
    assert_eq!(in_a_child(|| manager.statistics().allocations == 1), 0);
    assert_eq!(manager.statistics().allocations, 1);
}

/// The environment variable that says which part of a test this process plays.
const TRACED: &str = "DEVX_TEST_TRACED";

/// Messages of releases in a child, with the trace on, wait for nobody either.
#[test]
fn what_is_said_in_a_child_is_said_at_once() {
    if std::env::var_os(TRACED).is_none() {
        let run = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "what_is_said_in_a_child_is_said_at_once"])
            .envs([(TRACED, "1"), ("DEVEXCHANGE_TRACE", "1")])
            .output()
            .unwrap();
        assert!(run.status.success());
        let said = String::from_utf8(run.stderr).unwrap();
        let by_children = said.lines().filter(|line| *line == "devexchange: something in a child").count();
        assert_eq!(by_children, FORKS as usize);
        return;
    }
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ends.load(Relaxed) {
                    trace::say(format_args!("something"));
                }
            });
        }
        let failed = (0..FORKS).find_map(|_| {
            let status = in_a_child(|| {
                trace::say(format_args!("something in a child"));
                true
            });
            (status != 0).then_some(status)
        });
        ends.store(true, Relaxed);
        assert_eq!(failed, None);
    });
}

#[test]
fn memory_of_a_manager_is_given_up_in_a_child() {
    let manager =
        Shared::new(Limited::new(Shared::new(Driver::host_only().unwrap()).unwrap(), 1 << 20).unwrap()).unwrap();
    let tensor = || Tensor::allocate_with(&*manager, Device::CPU, DType::UINT8, &[64], None).unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ends.load(Relaxed) {
                    drop(tensor());
                    drop(Deferred::new(&*manager));
                }
            });
        }
        let failed = (0..FORKS).find_map(|_| {
            let mut kept = Some(tensor());
            let status = in_a_child(|| {
                let before = manager.statistics().allocations;
                drop(kept.take());
                let after = manager.statistics().allocations;
                drop(tensor());
                before == after + 1
            });
            (status != 0).then_some(status)
        });
        ends.store(true, Relaxed);
        assert_eq!(failed, None);
    });
    assert_eq!(manager.statistics().bytes, 0);
}
