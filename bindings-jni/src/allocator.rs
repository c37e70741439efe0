//! A memory manager that Java fills in: the table of callbacks that the core takes from everybody.
//!
//! Whoever allocates does not enter the JVM: it leaves a question, queues the manager's token and waits, and a thread
//! of Java's takes the question and answers. As many at once as there are threads that ask.

use core::ffi::c_void;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use devexchange_core::abi::types::{
    DEVX_CALLBACK, DEVX_MANAGER_VERSION, DEVX_OK, DevxError, DevxIpcHandle, DevxManagerTable, DevxMemory,
    DevxMemoryInfo, DevxMemoryRequest, DevxOwner, DevxStatus,
};
use devexchange_core::manager::{Shared, driver_ipc_handle};
use devexchange_core::memory::Vacant;
use devexchange_core::{Error, Owner, Result as CoreResult, trace};
use jni::Env;
use jni::objects::{JClass, JString};
use jni::sys::{jint, jlong};

use crate::answers::{Answers, thrown};
use crate::error::{Result, native, plain};
use crate::handle::{give, take};
use crate::queue::{ask, cancel, owner, try_owner};

/// What is asked, one of the numbers below, and what about. `AllocatorTask.java` has the same numbers.
type Question = [jlong; 5];

const INITIALIZE: jlong = 0;
const ALLOCATE: jlong = 1;
const PIN: jlong = 2;
const MEMORY_INFO: jlong = 3;
const IPC_HANDLE: jlong = 4;
const RESET: jlong = 5;
const TRIM: jlong = 6;
const DEFER_CLEANUP: jlong = 7;

/// What Java says.
enum Answer {
    /// Two numbers, whose meaning is the question's, and who gives memory back.
    Said {
        first: jlong,
        second: jlong,
        owner: Owner,
    },
    IpcHandle(Box<DevxIpcHandle>),
}

/// Who waits for which question.
static ANSWERS: Answers<CoreResult<Answer>> = Answers::new();

/// What was asked and not taken yet, oldest first, by the token of the manager.
static QUESTIONS: Mutex<BTreeMap<jlong, VecDeque<(jlong, Question)>>> = Mutex::new(BTreeMap::new());

static LAST: AtomicI64 = AtomicI64::new(0);

fn questions() -> MutexGuard<'static, BTreeMap<jlong, VecDeque<(jlong, Question)>>> {
    QUESTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends every wait for Java, and those to come.
pub(crate) fn close() {
    ANSWERS.close();
}

/// The context of the callbacks.
struct Allocator {
    token: jlong,
    owner: Owner,
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

/// The oldest question to a manager.
fn next(token: jlong) -> Option<(jlong, Question)> {
    let mut all = questions();
    let to_it = all.get_mut(&token)?;
    let next = to_it.pop_front();
    if to_it.is_empty() {
        all.remove(&token);
    }
    next
}

/// A manager that asks Java with `token`, which is released with it and all its memory. If this fails, Java keeps what
/// the token stands for.
pub(crate) fn manager(token: jlong) -> CoreResult<Shared> {
    let room = Vacant::new()?;
    let context = Box::into_raw(room.fill(Allocator { token, owner: try_owner(token)? }));
    let table = DevxManagerTable {
        version: DEVX_MANAGER_VERSION,
        reserved: 0,
        context: context.cast(),
        initialize: Some(initialize),
        allocate: Some(allocate),
        pin: Some(pin),
        memory_info: Some(memory_info),
        get_ipc_handle: Some(get_ipc_handle),
        reset: Some(reset),
        trim: Some(trim),
        defer_cleanup: Some(defer_cleanup),
        release: Some(release),
    };
    // SAFETY: any thread may call the callbacks, several at once.
    unsafe { Shared::of_table(&table) }.inspect_err(|_| {
        // SAFETY: nobody took the table, so the context is still ours.
        let allocator = unsafe { Box::from_raw(context) };
        cancel(allocator.owner);
    })
}

/// Asks Java, and has what it says written to where the callback is to write it.
///
/// # Safety
/// `context` is that of the table of a [`manager`] which is not released.
unsafe fn asked(
    context: *mut c_void,
    question: Question,
    write: impl FnOnce(Answer) -> CoreResult<()>,
) -> CoreResult<()> {
    // SAFETY: the caller's contract.
    let allocator = unsafe { &*context.cast::<Allocator>() };
    catch_unwind(AssertUnwindSafe(|| allocator.ask(question).and_then(write)))
        .unwrap_or_else(|payload| Err(Error::panicked(payload)))
}

/// As [`asked`], for a callback that returns a status.
///
/// # Safety
/// As [`asked`]; `error` is NULL or room for a record.
unsafe fn answered(
    context: *mut c_void,
    question: Question,
    error: *mut DevxError,
    write: impl FnOnce(Answer) -> CoreResult<()>,
) -> DevxStatus {
    // SAFETY: the caller's contract.
    let Err(why) = (unsafe { asked(context, question, write) }) else { return DEVX_OK };
    // SAFETY: the caller's contract.
    if let Some(error) = unsafe { error.as_mut() } {
        *error = why.to_raw();
    }
    why.status()
}

fn nothing(_: Answer) -> CoreResult<()> {
    Ok(())
}

unsafe extern "C" fn initialize(context: *mut c_void, device_id: i32, error: *mut DevxError) -> DevxStatus {
    // SAFETY: the contract of the table.
    unsafe { answered(context, [INITIALIZE, device_id.into(), 0, 0, 0], error, nothing) }
}

unsafe extern "C" fn allocate(
    context: *mut c_void,
    request: *const DevxMemoryRequest,
    out: *mut DevxMemory,
    error: *mut DevxError,
) -> DevxStatus {
    // SAFETY: the contract of the table: there is a request.
    let request = unsafe { &*request };
    let device = pack(request.device_type, request.device_id);
    let question = [ALLOCATE, device, request.bytes, request.stream, request.host_flags.into()];
    let write = |answer| {
        if let Answer::Said { first, second, owner } = answer {
            let (device_type, device_id) = (second as i32, (second >> 32) as i32);
            let memory = DevxMemory { address: take(first), device_type, device_id, owner: owner.into_raw() };
            // SAFETY: the contract of the table: there is room for the record.
            unsafe { out.write(memory) };
        }
        Ok(())
    };
    // SAFETY: the contract of the table.
    unsafe { answered(context, question, error, write) }
}

unsafe extern "C" fn pin(
    context: *mut c_void,
    device_id: i32,
    address: *mut c_void,
    bytes: i64,
    host_flags: u32,
    out: *mut DevxOwner,
    error: *mut DevxError,
) -> DevxStatus {
    let question = [PIN, device_id.into(), give(address), bytes, host_flags.into()];
    let write = |answer| {
        if let Answer::Said { owner, .. } = answer {
            // SAFETY: the contract of the table: there is room for the record.
            unsafe { out.write(owner.into_raw()) };
        }
        Ok(())
    };
    // SAFETY: the contract of the table.
    unsafe { answered(context, question, error, write) }
}

unsafe extern "C" fn memory_info(
    context: *mut c_void,
    device_id: i32,
    out: *mut DevxMemoryInfo,
    error: *mut DevxError,
) -> DevxStatus {
    let write = |answer| {
        if let Answer::Said { first: free_bytes, second: total_bytes, .. } = answer {
            // SAFETY: the contract of the table: there is room for the record.
            unsafe { out.write(DevxMemoryInfo { free_bytes, total_bytes }) };
        }
        Ok(())
    };
    // SAFETY: the contract of the table.
    unsafe { answered(context, [MEMORY_INFO, device_id.into(), 0, 0, 0], error, write) }
}

unsafe extern "C" fn get_ipc_handle(
    context: *mut c_void,
    address: *const c_void,
    out: *mut DevxIpcHandle,
    error: *mut DevxError,
) -> DevxStatus {
    let write = |answer| {
        let found = match answer {
            Answer::IpcHandle(found) => *found,
            // Java has none of its own.
            Answer::Said { .. } => driver_ipc_handle(address)?.to_raw(),
        };
        // SAFETY: the contract of the table: there is room for the record.
        unsafe { out.write(found) };
        Ok(())
    };
    // SAFETY: the contract of the table.
    unsafe { answered(context, [IPC_HANDLE, give(address.cast_mut()), 0, 0, 0], error, write) }
}

unsafe extern "C" fn reset(context: *mut c_void, device_id: i32, error: *mut DevxError) -> DevxStatus {
    // SAFETY: the contract of the table.
    unsafe { answered(context, [RESET, device_id.into(), 0, 0, 0], error, nothing) }
}

unsafe extern "C" fn trim(context: *mut c_void, device_id: i32, keep: i64, error: *mut DevxError) -> DevxStatus {
    // SAFETY: the contract of the table.
    unsafe { answered(context, [TRIM, device_id.into(), keep, 0, 0], error, nothing) }
}

unsafe extern "C" fn defer_cleanup(context: *mut c_void, begin: i32) {
    // SAFETY: the contract of the table.
    if let Err(error) = unsafe { asked(context, [DEFER_CLEANUP, begin.into(), 0, 0, 0], nothing) } {
        trace::say(format_args!("deferCleanup of a manager failed: {error}"));
    }
}

unsafe extern "C" fn release(context: *mut c_void) {
    // SAFETY: made by `manager`, and released once.
    drop(unsafe { Box::from_raw(context.cast::<Allocator>()) });
}

/// A device as Java passes it.
pub(crate) fn pack(device_type: i32, device_id: i32) -> jlong {
    jlong::from(device_type.cast_unsigned()) | jlong::from(device_id) << 32
}

plain! { allocator_take(token: jlong, out: jlong) -> jlong }
/// The number of the next question to the manager with this token, 0 if there is none. It is written as five longs,
/// unless `out` is 0.
fn allocator_take(token: jlong, out: jlong) -> Result<jlong> {
    let Some((number, question)) = next(token) else { return Ok(0) };
    if out != 0 {
        // SAFETY: Java gives the address of room for five longs.
        unsafe { take::<Question>(out).write_unaligned(question) };
    }
    Ok(number)
}

plain! { allocator_answer(question: jlong, first: jlong, second: jlong, token: jlong) }
/// Answers. `token` stands for what gives memory back, or is 0; if nobody waits any more, it is released now.
fn allocator_answer(question: jlong, first: jlong, second: jlong, token: jlong) -> Result<()> {
    ANSWERS.give(question, Ok(Answer::Said { first, second, owner: owner(token) }));
    Ok(())
}

plain! { allocator_answer_ipc_handle(question: jlong, record: jlong) }
/// Answers with the address of a record.
fn allocator_answer_ipc_handle(question: jlong, record: jlong) -> Result<()> {
    // SAFETY: Java gives the address of a record that it filled in.
    let found = unsafe { take::<DevxIpcHandle>(record).read() };
    ANSWERS.give(question, Ok(Answer::IpcHandle(Box::new(found))));
    Ok(())
}

native! { allocator_fail(question: jlong, status: jint, driver_code: jint, text: JString) }
/// Says why there is no answer.
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
