//! A producer of Arrow's asynchronous stream that calls a handler as a case says, on the thread that requests it.

use core::ffi::{c_int, c_void};
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use devexchange_core::abi::arrow_async::{ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask};
use devexchange_core::abi::arrow_data::ArrowSchema;
use devexchange_core::abi::arrow_device::{ARROW_DEVICE_CPU, ArrowDeviceArray};
use devexchange_core::abi::types::DEVX_CALLBACK;

use crate::callback::{self, How};
use crate::description::{Case, Step, tree as base};
use crate::edit;
use crate::layout::PRODUCER;
use crate::memory::Arena;
use crate::thing::Thing;
use crate::tree::{self, put};

/// The producer, and the things that it handed out.
pub(crate) struct Producer {
    pub(crate) thing: Thing,
    case: &'static Case,
    asked: Box<Asked>,
    /// What was given, used only by the thread that drives.
    given: Mutex<Given>,
    driven: AtomicBool,
}

/// What the consumer requested, as far as that matters; `private_data` points here.
#[derive(Default)]
struct Asked {
    cancels: AtomicU32,
}

#[derive(Default)]
struct Given {
    schemas: Vec<Thing>,
    #[expect(clippy::vec_box, reason = "their addresses are given out")]
    tasks: Vec<Box<Task>>,
    texts: Arena,
}

/// The data that the `private_data` of a task points to.
struct Task {
    thing: Thing,
    fails: c_int,
    /// How often it was extracted in total, and how often with a place for its data.
    extracted: AtomicU32,
    taken: AtomicU32,
    can_be_extracted: bool,
}

type Handler = ArrowAsyncDeviceStreamHandler;

impl Producer {
    pub(crate) fn new(case: &'static Case) -> Self {
        let mut thing = Thing::new(&PRODUCER);
        let asked = Box::new(Asked::default());
        let producer = ArrowAsyncProducer {
            device_type: ARROW_DEVICE_CPU,
            request: Some(request),
            cancel: Some(cancel),
            additional_metadata: std::ptr::null(),
            private_data: std::ptr::from_ref(&*asked).cast_mut().cast(),
        };
        put(thing.root, producer);
        thing = thing.spoil(&case.edits);
        Self { thing, case, asked, given: Mutex::default(), driven: AtomicBool::new(false) }
    }

    /// Calls the handler as the case says, and releases it. NULL if there was no memory for a consumer.
    ///
    /// # Safety
    /// `handler` is NULL or a handler of a consumer, which nobody has called yet.
    pub(crate) unsafe fn drive(&self, handler: *mut Handler) {
        self.driven.store(true, SeqCst);
        if handler.is_null() {
            return;
        }
        let first = self.case.schema.clone().unwrap_or_default();
        if !first.unknown {
            // SAFETY: the caller's contract.
            unsafe { (*handler).producer = std::ptr::with_exposed_provenance_mut(self.thing.root) };
        }
        // SAFETY: as above.
        if !first.end && unsafe { self.schema(handler, &first) } != 0 {
            // SAFETY: as above.
            return unsafe { release(handler) };
        }
        let mut is_over = false;
        for step in &self.case.steps {
            if step.release {
                // SAFETY: as above.
                return unsafe { release(handler) };
            }
            // After the end nobody gets anything.
            let failed = if is_over { None } else { callback::turn() };
            is_over |= step.end;
            // SAFETY: as above.
            if failed.is_some_and(|how| unsafe { self.fail(handler, how) }) {
                break;
            }
            // SAFETY: as above.
            unsafe { self.step(handler, step) }
        }
        // SAFETY: as above.
        unsafe { release(handler) }
    }

    /// What the producer does when its turn to fail has come: it reports the failure, or gives a wrong array. Returns
    /// whether the stream is over then.
    ///
    /// # Safety
    /// The same as for [`Producer::schema`].
    unsafe fn fail(&self, handler: *mut Handler, how: How) -> bool {
        let step = if how == How::Wrong {
            Step { edits: vec![format!("array.{}", callback::wrong_array())], ..Step::default() }
        } else {
            callback::code_is_told(how, "the producer failed with error 5: it does not say why");
            let text = (how == How::Text).then(|| callback::TEXT.to_owned());
            Step { error: Some(callback::CODE), text, ..Step::default() }
        };
        // SAFETY: the caller's contract.
        unsafe { self.step(handler, &step) };
        how != How::Wrong
    }

    /// # Safety
    /// `handler` is not released.
    unsafe fn schema(&self, handler: *mut Handler, step: &Step) -> c_int {
        let edits = match callback::turn() {
            None => step.edits.clone(),
            Some(How::Wrong) => vec![callback::wrong_schema()],
            Some(how) => {
                // SAFETY: the caller's contract.
                unsafe { self.fail(handler, how) };
                return callback::CODE;
            }
        };
        let thing = tree::schema(base(step.give.as_deref().unwrap_or(&self.case.base)), &edits);
        let at = std::ptr::with_exposed_provenance_mut::<ArrowSchema>(thing.root);
        self.given.lock().unwrap_or_else(PoisonError::into_inner).schemas.push(thing);
        // SAFETY: the caller's contract.
        let on_schema = unsafe { (*handler).on_schema }.expect("on_schema");
        // SAFETY: the consumer may move or release the schema.
        unsafe { on_schema(handler, at) }
    }

    /// # Safety
    /// The same as for [`Producer::schema`].
    unsafe fn step(&self, handler: *mut Handler, step: &Step) {
        if step.again {
            // SAFETY: the caller's contract.
            unsafe { self.schema(handler, step) };
            return;
        }
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let metadata = step.metadata.as_ref().map_or(0, |metadata| edit::value(metadata, &mut given.texts));
        let metadata = std::ptr::with_exposed_provenance(metadata);
        if let (Some(code), None) = (step.error, &step.give) {
            drop(given);
            let text = step.text.as_ref().map(|text| {
                CString::new(edit::text(&format!("\"{text}\"")).expect("a text")).expect("a text without a NUL")
            });
            let text = text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
            // SAFETY: the caller's contract.
            let on_error = unsafe { (*handler).on_error }.expect("on_error");
            // SAFETY: the text lives as long as the call.
            return unsafe { on_error(handler, code, text, metadata) };
        }
        let mut task = ArrowAsyncTask { extract_data: None, private_data: std::ptr::null_mut() };
        if !step.end {
            let node = base(step.give.as_deref().unwrap_or(&self.case.base));
            let made = Box::new(Task {
                thing: tree::device_array(node, &step.edits),
                fails: step.error.unwrap_or(0),
                extracted: AtomicU32::new(0),
                taken: AtomicU32::new(0),
                can_be_extracted: !step.no_extract,
            });
            task.private_data = std::ptr::from_ref(&*made).cast_mut().cast();
            task.extract_data = made.can_be_extracted.then_some(extract as _);
            given.tasks.push(made);
        }
        drop(given);
        // SAFETY: the caller's contract.
        let on_next_task = unsafe { (*handler).on_next_task }.expect("on_next_task");
        let task = if step.end { std::ptr::null_mut() } else { &raw mut task };
        // The result is ignored: our consumer takes every task.
        // SAFETY: the consumer may copy the task.
        unsafe { on_next_task(handler, task, metadata) };
    }

    /// Checks how the consumer treated what it was given.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !self.driven.load(SeqCst) {
            return Err("the handler was not driven".to_owned());
        }
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.schemas.iter().try_for_each(|schema| schema.check("the schema", 1))?;
        for task in &given.tasks {
            let (extracted, taken) = (task.extracted.load(SeqCst), task.taken.load(SeqCst));
            if extracted != u32::from(task.can_be_extracted) {
                return Err(format!("a task was extracted {extracted} times"));
            }
            // Nobody may release an array that was already released when it was given.
            task.thing.check("the array of a task", if task.thing.is_released() { 0 } else { taken })?;
        }
        let cancels = self.asked.cancels.load(SeqCst);
        if cancels > 1 {
            return Err(format!("cancel was called {cancels} times"));
        }
        if !self.thing.is_untouched() {
            return Err("the producer's struct was changed".to_owned());
        }
        Ok(())
    }
}

/// # Safety
/// `handler` is not released.
unsafe fn release(handler: *mut Handler) {
    // SAFETY: the caller's contract.
    let release = unsafe { (*handler).release }.expect("release");
    // SAFETY: as above.
    unsafe { release(handler) }
}

/// # Safety
/// `producer` is one of this module.
unsafe fn asked<'a>(producer: *mut ArrowAsyncProducer) -> &'a Asked {
    // SAFETY: the caller's contract.
    let private_data: *mut c_void = unsafe { (*producer).private_data };
    // SAFETY: as above.
    unsafe { &*private_data.cast_const().cast::<Asked>() }
}

/// The case decides what comes, whether or not it was requested.
unsafe extern "C" fn request(_: *mut ArrowAsyncProducer, _: i64) {}

unsafe extern "C" fn cancel(producer: *mut ArrowAsyncProducer) {
    // SAFETY: a consumer passes the producer that it was given.
    unsafe { asked(producer) }.cancels.fetch_add(1, SeqCst);
}

unsafe extern "C" fn extract(task: *mut ArrowAsyncTask, out: *mut ArrowDeviceArray) -> c_int {
    // SAFETY: a consumer passes the task, or its copy of it.
    let private_data: *mut c_void = unsafe { (*task).private_data };
    // SAFETY: the task lives as long as the case.
    let task = unsafe { &*private_data.cast_const().cast::<Task>() };
    task.extracted.fetch_add(1, SeqCst);
    // An extraction without a place for the data cannot fail.
    if !out.is_null() && callback::turn().is_some() {
        callback::is_told(DEVX_CALLBACK, "extract_data returned 5");
        return callback::CODE;
    }
    if task.fails != 0 || out.is_null() {
        return task.fails;
    }
    task.taken.fetch_add(1, SeqCst);
    let from = std::ptr::with_exposed_provenance::<ArrowDeviceArray>(task.thing.root);
    // SAFETY: what is not NULL has room for an array.
    unsafe { out.copy_from_nonoverlapping(from, 1) };
    0
}
