//! A memory manager that is written in Java.
//!
//! A thread that allocates does not enter the JVM: it leaves a question, queues the manager's token and waits until a
//! Java thread has taken the question and answered. Any number of threads can ask at once.

use core::ffi::c_void;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use devexchange_core::abi::types::{DEVX_CALLBACK, DevxIpcHandle, DevxMemoryInfo};
use devexchange_core::manager::{Callbacks, IpcHandle, MemoryInfo, Request, Shared, driver_ipc_handle};
use devexchange_core::runtime::cuda::Allocation;
use devexchange_core::{Error, Owner, Result as CoreResult};
use jni::Env;
use jni::objects::{JClass, JString};
use jni::sys::{jint, jlong};

use crate::answers::{Answers, thrown};
use crate::device::{pack, unpack};
use crate::error::Result;
use crate::handle::{give, take};
use crate::native::{native, plain};
use crate::queue::{ask, owner, try_owner};

/// The kind of a question, one of the numbers below, and its arguments. `AllocatorTask.java` has the same numbers.
type Question = [jlong; 5];

const INITIALIZE: jlong = 0;
const ALLOCATE: jlong = 1;
const PIN: jlong = 2;
const MEMORY_INFO: jlong = 3;
const IPC_HANDLE: jlong = 4;
const RESET: jlong = 5;
const TRIM: jlong = 6;
const DEFER_CLEANUP: jlong = 7;

/// Java's answer: two numbers, whose meaning depends on the question, the owner that gives memory back, and a handle if
/// one was asked for.
struct Answer {
    first: jlong,
    second: jlong,
    owner: Owner,
    ipc_handle: Option<IpcHandle>,
}

/// The threads that wait, by question.
static ANSWERS: Answers<CoreResult<Answer>> = Answers::new();

/// The questions that were not taken yet, oldest first, by the token of the manager.
static QUESTIONS: Mutex<BTreeMap<jlong, VecDeque<(jlong, Question)>>> = Mutex::new(BTreeMap::new());

static LAST: AtomicI64 = AtomicI64::new(0);

fn questions() -> MutexGuard<'static, BTreeMap<jlong, VecDeque<(jlong, Question)>>> {
    QUESTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends every wait for Java, present and future.
pub(crate) fn close() {
    ANSWERS.close();
}

/// A manager that is written in Java.
#[derive(Debug)]
struct Allocator {
    token: jlong,
    _owner: Owner,
}

/// Makes a manager that asks Java with `token`, which is released with the manager and all its memory. If this fails,
/// Java keeps what the token stands for.
pub(crate) fn manager(token: jlong) -> CoreResult<Shared> {
    Shared::of_callbacks(|| Ok(Allocator { token, _owner: try_owner(token)? }))
}

impl Allocator {
    fn ask(&self, question: Question) -> CoreResult<Answer> {
        let number = LAST.fetch_add(1, Relaxed) + 1;
        let answer = ANSWERS.wait(number, || {
            questions().entry(self.token).or_default().push_back((number, question));
            ask(self.token);
        });
        answer.unwrap_or_else(|| Err(Error::new(DEVX_CALLBACK, "the JVM that the manager is in is exiting")))
    }
}

// SAFETY: the documentation of `Allocator` in Java requires that the memory is what Java says.
unsafe impl Callbacks for Allocator {
    fn initialize(&self, ordinal: i32) -> CoreResult<()> {
        self.ask([INITIALIZE, ordinal.into(), 0, 0, 0]).map(drop)
    }

    fn allocate(&self, request: &Request) -> CoreResult<Allocation> {
        let asked = request.to_raw();
        let device = pack(asked.device_type, asked.device_id);
        let answer = self.ask([ALLOCATE, device, asked.bytes, asked.stream, asked.host_flags.into()])?;
        Ok(Allocation { address: take(answer.first), device: unpack(answer.second), owner: answer.owner })
    }

    unsafe fn pin(&self, address: *mut c_void, request: &Request) -> CoreResult<Option<Owner>> {
        let asked = request.to_raw();
        let question = [PIN, asked.device_id.into(), give(address), asked.bytes, asked.host_flags.into()];
        Ok(Some(self.ask(question)?.owner))
    }

    fn memory_info(&self, ordinal: i32) -> CoreResult<Option<MemoryInfo>> {
        let answer = self.ask([MEMORY_INFO, ordinal.into(), 0, 0, 0])?;
        MemoryInfo::from_raw(DevxMemoryInfo { free_bytes: answer.first, total_bytes: answer.second }).map(Some)
    }

    fn ipc_handle(&self, address: *const c_void) -> CoreResult<Option<IpcHandle>> {
        let answer = self.ask([IPC_HANDLE, give(address.cast_mut()), 0, 0, 0])?;
        answer.ipc_handle.map_or_else(|| driver_ipc_handle(address), Ok).map(Some)
    }

    fn reset(&self, ordinal: i32) -> CoreResult<()> {
        self.ask([RESET, ordinal.into(), 0, 0, 0]).map(drop)
    }

    fn trim(&self, ordinal: i32, keep: usize) -> CoreResult<()> {
        self.ask([TRIM, ordinal.into(), keep as jlong, 0, 0]).map(drop)
    }

    fn defer_cleanup(&self, begin: bool) -> CoreResult<()> {
        self.ask([DEFER_CLEANUP, begin.into(), 0, 0, 0]).map(drop)
    }
}

/// Takes the oldest question to a manager.
fn next(token: jlong) -> Option<(jlong, Question)> {
    let mut all = questions();
    let to_it = all.get_mut(&token)?;
    let next = to_it.pop_front();
    if to_it.is_empty() {
        all.remove(&token);
    }
    next
}

plain! { allocator_take(token: jlong, out: jlong) -> jlong }
/// Takes the next question to the manager with this token; returns its number, 0 if there is none. The question is
/// written as five longs, unless `out` is 0.
fn allocator_take(token: jlong, out: jlong) -> Result<jlong> {
    let Some((number, question)) = next(token) else { return Ok(0) };
    if out != 0 {
        // SAFETY: Java gives the address of room for five longs.
        unsafe { take::<Question>(out).write_unaligned(question) };
    }
    Ok(number)
}

plain! { allocator_answer(question: jlong, first: jlong, second: jlong, token: jlong) }
/// Answers a question. `token` stands for what gives memory back, or is 0; if nobody waits any more, it is released
/// now.
fn allocator_answer(question: jlong, first: jlong, second: jlong, token: jlong) -> Result<()> {
    ANSWERS.give(question, Ok(Answer { first, second, owner: owner(token), ipc_handle: None }));
    Ok(())
}

plain! { allocator_answer_ipc_handle(question: jlong, record: jlong) }
/// Answers a question with the address of a record.
fn allocator_answer_ipc_handle(question: jlong, record: jlong) -> Result<()> {
    // SAFETY: Java gives the address of a record that it filled in.
    let found = unsafe { take::<DevxIpcHandle>(record).read() };
    let answer = |found| Answer { first: 0, second: 0, owner: Owner::none(), ipc_handle: Some(found) };
    ANSWERS.give(question, IpcHandle::from_raw(&found).map(answer));
    Ok(())
}

native! { allocator_fail(question: jlong, status: jint, driver_code: jint, text: JString) }
/// Answers a question with an error.
fn allocator_fail<'l>(
    env: &mut Env<'l>,
    _: JClass<'l>,
    question: jlong,
    status: jint,
    driver_code: jint,
    text: JString<'l>,
) -> Result<()> {
    ANSWERS.give(question, Err(thrown(env, status, driver_code, &text)));
    Ok(())
}
