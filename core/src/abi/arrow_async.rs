//! Arrow C asynchronous device stream interface (source of `arrow/c/async.h`): the producer pushes as
//! many arrays as the consumer requests. Experimental in Arrow.

use super::arrow_data::ArrowSchema;
use super::arrow_device::{ArrowDeviceArray, ArrowDeviceType};
use core::ffi::{c_char, c_int, c_void};

/// One array that is on its way: the consumer fetches it when and on whatever thread it likes.
///
/// There is no release: `extract_data` also cleans up.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArrowAsyncTask {
    /// Writes the array, which the caller then owns. Called exactly once, from any thread. Must be
    /// quick, and must not do blocking I/O.
    ///
    /// Returns 0, or an `errno` code; the handler's `on_error` is then called, too.
    pub extract_data: Option<unsafe extern "C" fn(task: *mut ArrowAsyncTask, out: *mut ArrowDeviceArray) -> c_int>,
    /// For the producer's own use.
    pub private_data: *mut c_void,
}

/// The producer as one consumer sees it: the consumer asks it for more arrays, or for an end.
///
/// The struct belongs to the producer, which cleans it up after it has called the handler's `release`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArrowAsyncProducer {
    /// Kind of the device that all arrays lie on, one of `ARROW_DEVICE_…`.
    pub device_type: ArrowDeviceType,
    /// Asks for `n` more arrays (`n` > 0); without a request, none come.
    ///
    /// May be called within `on_schema` and `on_next_task`, and never calls `on_next_task` itself.
    /// After `cancel` it does nothing. A failure is reported through `on_error`.
    pub request: Option<unsafe extern "C" fn(producer: *mut ArrowAsyncProducer, n: i64)>,
    /// Asks for an end, from any thread, any number of times.
    ///
    /// Arrays may still come; the last call is that of the handler's `release`. Cancelling is not an
    /// error: `on_error` is called only if cancelling fails.
    pub cancel: Option<unsafe extern "C" fn(producer: *mut ArrowAsyncProducer)>,
    /// Metadata of the whole stream, encoded as in `ArrowSchema`, or NULL. Valid as long as this struct.
    pub additional_metadata: *const c_char,
    /// For the producer's own use.
    pub private_data: *mut c_void,
}

/// The consumer as the producer sees it: the producer passes it the type, each array, errors and the
/// end.
///
/// The functions that return `int` return 0, or an `errno` code, upon which the producer stops and
/// calls `release`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArrowAsyncDeviceStreamHandler {
    /// Called once, before the other functions, unless an error comes first. The consumer moves or
    /// releases the schema; the struct that held it stays the producer's.
    pub on_schema: Option<
        unsafe extern "C" fn(handler: *mut ArrowAsyncDeviceStreamHandler, stream_schema: *mut ArrowSchema) -> c_int,
    >,
    /// Called for each array, never from two threads at once. A NULL task marks the end.
    ///
    /// The consumer may copy the task to use it later. `metadata` is encoded as in `ArrowSchema`, may
    /// be NULL, and is valid only during the call.
    pub on_next_task: Option<
        unsafe extern "C" fn(
            handler: *mut ArrowAsyncDeviceStreamHandler,
            task: *mut ArrowAsyncTask,
            metadata: *const c_char,
        ) -> c_int,
    >,
    /// Called on an error, with an `errno` code; `release` follows. `message` and `metadata` may be
    /// NULL and are valid only during the call. Must not call the producer.
    pub on_error: Option<
        unsafe extern "C" fn(
            handler: *mut ArrowAsyncDeviceStreamHandler,
            code: c_int,
            message: *const c_char,
            metadata: *const c_char,
        ),
    >,
    /// Called last, in every case. Must not call the producer.
    pub release: Option<unsafe extern "C" fn(handler: *mut ArrowAsyncDeviceStreamHandler)>,
    /// Set by the producer before it first calls a function other than `release`; valid until `release`.
    pub producer: *mut ArrowAsyncProducer,
    /// For the consumer's own use.
    pub private_data: *mut c_void,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<ArrowAsyncTask>() == 16);
    assert!(size_of::<ArrowAsyncProducer>() == 40);
    assert!(size_of::<ArrowAsyncDeviceStreamHandler>() == 48);
};
