//! Producers of `ArrowArrayStream` and `ArrowDeviceArrayStream` that do what a case says.

use core::ffi::{c_char, c_int, c_void};
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::{ARROW_DEVICE_CPU, ArrowDeviceArray};
use devexchange_core::abi::arrow_device_stream::ArrowDeviceArrayStream;
use devexchange_core::abi::arrow_stream::ArrowArrayStream;

use crate::callback::{self, How};
use crate::description::{Case, Step, tree as base};
use crate::edit;
use crate::layout::{DEVICE_STREAM, STREAM};
use crate::thing::{Record, Thing};
use crate::tree::{self, put};

/// A spoiled stream, and what it gave out.
pub(crate) struct Stream {
    pub(crate) thing: Thing,
    script: Box<Script>,
}

/// The data that `private_data` of a stream points to.
struct Script {
    case: &'static Case,
    record: *mut c_void,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    next: usize,
    error: Option<CString>,
    given: Vec<Thing>,
}

impl Stream {
    pub(crate) fn new(case: &'static Case, device: bool) -> Self {
        let mut thing = Thing::new(if device { &DEVICE_STREAM } else { &STREAM });
        let record = thing.record(Vec::new());
        let script = Box::new(Script { case, record, told: Mutex::default() });
        let private_data = std::ptr::from_ref(&*script).cast_mut().cast();
        if device {
            let stream = ArrowDeviceArrayStream {
                device_type: ARROW_DEVICE_CPU,
                get_schema: Some(get_schema),
                get_next: Some(get_next_device),
                get_last_error: Some(get_last_error),
                release: Some(release_device),
                private_data,
            };
            put(thing.root, stream);
        } else {
            let stream = ArrowArrayStream {
                get_schema: Some(get_schema),
                get_next: Some(get_next),
                get_last_error: Some(get_last_error),
                release: Some(release),
                private_data,
            };
            put(thing.root, stream);
        }
        Self { thing: thing.spoil(&case.edits), script }
    }

    /// Checks that everything that was given out has been released.
    pub(crate) fn check_given(&self) -> Result<(), String> {
        self.script.told().given.iter().try_for_each(|given| given.check("what the stream gave", 1))
    }
}

impl Script {
    /// # Safety
    /// `stream` points to a stream of this module, whose last member this is.
    unsafe fn of<'a>(private_data: *mut c_void) -> &'a Self {
        // SAFETY: the caller's contract.
        unsafe { &*private_data.cast_const().cast::<Self>() }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the struct of a step, by default the subject of the case, or returns its error. If it is this callback's
    /// turn to fail, it fails; `wrong` is an edit that spoils what it gives.
    fn give(
        &self,
        step: &Step,
        wrong: fn() -> String,
        make: impl FnOnce(&str, &[String]) -> Thing,
    ) -> Result<Option<usize>, c_int> {
        let mut told = self.told();
        let step = &match callback::turn() {
            None => step.clone(),
            Some(How::Wrong) => Step { edits: vec![wrong()], ..Step::default() },
            Some(how) => {
                callback::code_is_told(how, "os error 5): the producer says no more");
                let text = (how == How::Text).then(|| callback::TEXT.to_owned());
                Step { error: Some(callback::CODE), text, ..Step::default() }
            }
        };
        if let Some(code) = step.error {
            told.error = step.text.as_ref().map(|text| {
                let bytes = edit::text(&format!("\"{text}\"")).expect("a text");
                CString::new(bytes).expect("a text without a NUL")
            });
            return Err(code);
        }
        if step.end {
            return Ok(None);
        }
        let thing = make(step.give.as_deref().unwrap_or(&self.case.base), &step.edits);
        let at = thing.root;
        told.given.push(thing);
        Ok(Some(at))
    }

    fn next(&self, make: impl FnOnce(&str, &[String]) -> Thing) -> Result<Option<usize>, c_int> {
        let step = {
            let mut told = self.told();
            told.next += 1;
            self.case.steps.get(told.next - 1).cloned()
        };
        let end = Step { end: true, ..Step::default() };
        self.give(&step.unwrap_or(end), callback::wrong_array, make)
    }
}

/// Moves a struct to the consumer's place for it.
///
/// # Safety
/// `out` has room for a struct, and what is at the place is one.
unsafe fn hand<T>(found: Result<Option<usize>, c_int>, out: *mut T) -> c_int {
    match found {
        Ok(Some(at)) => {
            let from = std::ptr::with_exposed_provenance::<T>(at);
            // SAFETY: the caller's contract.
            unsafe { out.copy_from_nonoverlapping(from, 1) };
            0
        }
        Ok(None) => {
            // SAFETY: a struct of zeros is a released one.
            unsafe { out.write_bytes(0, 1) };
            0
        }
        Err(code) => code,
    }
}

/// What both structs have in common; their addresses are never confused.
trait AnyStream {
    fn private_data(&self) -> *mut c_void;
    fn disarm(&mut self);
}

macro_rules! any {
    ($($Stream:ty)*) => {$(
        impl AnyStream for $Stream {
            fn private_data(&self) -> *mut c_void {
                self.private_data
            }
            fn disarm(&mut self) {
                self.release = None;
            }
        }
    )*};
}
any! { ArrowArrayStream ArrowDeviceArrayStream }

/// # Safety
/// `stream` points to a stream of this module.
unsafe fn script_of<'a, S: AnyStream>(stream: *mut S) -> &'a Script {
    // SAFETY: the caller's contract.
    let private_data = unsafe { &*stream }.private_data();
    // SAFETY: as above.
    unsafe { Script::of(private_data) }
}

unsafe extern "C" fn get_schema<S: AnyStream>(stream: *mut S, out: *mut ArrowSchema) -> c_int {
    // SAFETY: a consumer passes the stream that it was given.
    let script = unsafe { script_of(stream) };
    let step = script.case.schema.clone().unwrap_or_default();
    let found = script.give(&step, callback::wrong_schema, |name, edits| tree::schema(base(name), edits));
    // SAFETY: and a place for a schema.
    unsafe { hand(found, out) }
}

unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: a consumer passes the stream that it was given.
    let found = unsafe { script_of(stream) }.next(|name, edits| tree::array(base(name), edits));
    // SAFETY: and a place for an array.
    unsafe { hand(found, out) }
}

unsafe extern "C" fn get_next_device(stream: *mut ArrowDeviceArrayStream, out: *mut ArrowDeviceArray) -> c_int {
    let make = |name: &str, edits: &[String]| {
        // A step for both structs names the fields of the array.
        let within = |edit: &String| match edit.starts_with("device_") || edit.starts_with("sync_event") {
            true => edit.clone(),
            false => format!("array.{edit}"),
        };
        tree::device_array(base(name), &edits.iter().map(within).collect::<Vec<_>>())
    };
    // SAFETY: a consumer passes the stream that it was given.
    let found = unsafe { script_of(stream) }.next(make);
    // SAFETY: and a place for an array.
    unsafe { hand(found, out) }
}

unsafe extern "C" fn get_last_error<S: AnyStream>(stream: *mut S) -> *const c_char {
    // SAFETY: a consumer passes the stream that it was given.
    let told = unsafe { script_of(stream) }.told();
    told.error.as_ref().map_or(std::ptr::null(), |text| text.as_ptr())
}

/// # Safety
/// `stream` points to a stream of this module.
unsafe fn release_any<S: AnyStream>(stream: *mut S) {
    // SAFETY: the caller's contract.
    let script = unsafe { script_of(stream) };
    // SAFETY: the record lives as long as the case.
    unsafe { Record::of(script.record) }.count();
    // SAFETY: the caller's contract.
    unsafe { &mut *stream }.disarm();
}

unsafe extern "C" fn release(stream: *mut ArrowArrayStream) {
    // SAFETY: a consumer passes the stream that it was given.
    unsafe { release_any(stream) }
}

unsafe extern "C" fn release_device(stream: *mut ArrowDeviceArrayStream) {
    // SAFETY: a consumer passes the stream that it was given.
    unsafe { release_any(stream) }
}
