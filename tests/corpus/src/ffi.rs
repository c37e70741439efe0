//! The corpus for every other language; `corpus.h` says what each function does.
#![expect(clippy::missing_safety_doc, reason = "the header says it")]
#![expect(missing_docs, reason = "the header says it")]

use core::ffi::{CStr, c_char, c_void};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Mutex, OnceLock, PoisonError};

use devexchange_core::abi::types::DevxStatus;
use devexchange_core::error::{STATUSES, status_name};

use crate::callback;
use crate::consumer::Consumer;
use crate::cuda;
use crate::description::{Case, cases};
use crate::fault;
use crate::made::Made;

fn case(i: i64) -> &'static Case {
    let found = usize::try_from(i).ok().and_then(|i| cases().get(i));
    found.unwrap_or_else(|| panic!("there is no case {i}"))
}

/// A text that is never freed.
fn kept(text: &str) -> *const c_char {
    static TEXTS: OnceLock<Mutex<BTreeMap<String, CString>>> = OnceLock::new();
    let mut texts = TEXTS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let new = || CString::new(text).expect("a text without a NUL");
    texts.entry(text.to_owned()).or_insert_with(new).as_ptr()
}

fn said(result: Result<(), String>) -> *const c_char {
    result.map_or_else(|wrong| kept(&wrong), |()| std::ptr::null())
}

/// # Safety
/// NUL-terminated.
unsafe fn text<'a>(from: *const c_char) -> &'a str {
    // SAFETY: the caller's contract.
    unsafe { CStr::from_ptr(from) }.to_str().expect("UTF-8")
}

#[unsafe(no_mangle)]
pub extern "C" fn corpus_count() -> i64 {
    cases().len() as i64
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn corpus_count_for(language: *const c_char) -> i64 {
    // SAFETY: the caller's contract.
    let language = unsafe { text(language) };
    cases().iter().filter(|case| case.is_for(language)).count() as i64
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn corpus_is_for(i: i64, language: *const c_char) -> i32 {
    // SAFETY: the caller's contract.
    i32::from(case(i).is_for(unsafe { text(language) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn corpus_text(i: i64, what: *const c_char) -> *const c_char {
    let case = case(i);
    // SAFETY: the caller's contract.
    match unsafe { text(what) } {
        "name" => kept(&case.name),
        "kind" => kept(&case.kind),
        "base" => kept(&case.base),
        "status" => kept(&case.status),
        "says" => kept(&case.says),
        "stage" => kept(&case.stage),
        "source" => kept(&case.source),
        "needs" => kept(if case.needs_cuda() { "cuda" } else { "" }),
        "edits" => kept(&case.edits.join("\n")),
        other => panic!("a case has no {other:?}"),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn corpus_status(i: i64) -> i32 {
    let status = &case(i).status;
    let number = |name: &str| {
        let named =
            |status: &&DevxStatus| status_name(**status).is_some_and(|other| other.to_bytes() == name.as_bytes());
        STATUSES.iter().find(named).map(|status| status.0)
    };
    if status.is_empty() { 0 } else { number(status).unwrap_or(-1) }
}

#[unsafe(no_mangle)]
pub extern "C" fn corpus_device_memory() -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(cuda::driver().map_or(0, |_| cuda::device_memory()))
}

#[unsafe(no_mangle)]
pub extern "C" fn corpus_batches(i: i64) -> i64 {
    case(i).batches.into()
}

#[unsafe(no_mangle)]
pub extern "C" fn corpus_make(i: i64) -> *mut c_void {
    Box::into_raw(Box::new(Made::new(case(i)))).cast()
}

/// # Safety
/// From `corpus_make`, and not ended.
unsafe fn made<'a>(made: *mut c_void) -> &'a mut Made {
    // SAFETY: the caller's contract.
    unsafe { &mut *made.cast::<Made>() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn corpus_address(of: *mut c_void) -> *mut c_void {
    // SAFETY: the caller's contract.
    std::ptr::with_exposed_provenance_mut(unsafe { made(of) }.address())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn corpus_schema(of: *mut c_void) -> *mut c_void {
    // SAFETY: the caller's contract.
    std::ptr::with_exposed_provenance_mut(unsafe { made(of) }.schema())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn corpus_listens(of: *mut c_void) -> *const c_char {
    // SAFETY: the caller's contract.
    kept(unsafe { made(of) }.listens())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn corpus_drive(of: *mut c_void, handler: *mut c_void) {
    // SAFETY: the caller's contract.
    let made = unsafe { made(of) };
    // SAFETY: as above.
    unsafe { made.drive(handler.cast()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn corpus_after(of: *mut c_void, refused: i32) -> *const c_char {
    // SAFETY: the caller's contract.
    said(unsafe { made(of) }.after(refused != 0))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn corpus_end(of: *mut c_void) -> *const c_char {
    // SAFETY: the caller's contract.
    let made = unsafe { Box::from_raw(of.cast::<Made>()) };
    said(made.end())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn corpus_fault_install(library: *const c_char) -> i32 {
    // SAFETY: the caller's contract.
    fault::install(unsafe { text(library) })
}

#[unsafe(no_mangle)]
pub extern "C" fn corpus_fault_arm(nth: i64, from_then_on: i32) {
    fault::arm(nth, from_then_on != 0);
}

#[unsafe(no_mangle)]
pub extern "C" fn corpus_fault_disarm() -> i64 {
    fault::disarm()
}

#[unsafe(no_mangle)]
pub extern "C" fn corpus_callback_arm(nth: i64, how: i32) {
    callback::arm(nth, how);
}

/// The error that must result from a failed callback; kept for `corpus_callback_says`.
static TOLD: Mutex<Option<callback::Told>> = Mutex::new(None);

#[unsafe(no_mangle)]
pub extern "C" fn corpus_callback_disarm() -> i32 {
    let told = callback::disarm();
    *TOLD.lock().unwrap_or_else(PoisonError::into_inner) = told;
    told.is_some().into()
}

#[unsafe(no_mangle)]
pub extern "C" fn corpus_callback_status() -> i32 {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).map_or(0, |told| told.status.0)
}

#[unsafe(no_mangle)]
pub extern "C" fn corpus_callback_says() -> *const c_char {
    kept(TOLD.lock().unwrap_or_else(PoisonError::into_inner).map_or("", |told| told.says))
}

#[unsafe(no_mangle)]
pub extern "C" fn corpus_consumer_make() -> *mut c_void {
    Box::into_raw(Consumer::new()).cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn corpus_consumer_handler(of: *mut c_void) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { &mut *of.cast::<Consumer>() }.handler().cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn corpus_consumer_end(of: *mut c_void) -> *const c_char {
    // SAFETY: the caller's contract.
    let consumer = unsafe { Box::from_raw(of.cast::<Consumer>()) };
    said(consumer.end())
}
