//! Arrow C asynchronous device stream interface (source of `arrow/c/async.h`): the producer pushes,
//! the consumer says how much it takes. Experimental in Arrow.

use super::arrow_data::ArrowSchema;
use super::arrow_device::{ArrowDeviceArray, ArrowDeviceType};
use core::ffi::{c_char, c_int, c_void};

/// One array that is on its way: the consumer fetches it when and where it suits.
///
/// There is no release: `extract_data` cleans up too.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArrowAsyncTask {
    /// Writes the array, which the caller then owns. Called exactly once, from any thread; quick, and
    /// without blocking I/O.
    ///
    /// Returns 0, or an `errno` code; then the handler's `on_error` is called too.
    pub extract_data: Option<unsafe extern "C" fn(task: *mut ArrowAsyncTask, out: *mut ArrowDeviceArray) -> c_int>,
    /// For the producer's own use.
    pub private_data: *mut c_void,
}

/// The producer as one consumer sees it: asks for more, or for an end.
///
/// Belongs to the producer, who cleans it up when it has called the handler's `release`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArrowAsyncProducer {
    /// Kind of the device that all arrays lie on, one of `ARROW_DEVICE_…`.
    pub device_type: ArrowDeviceType,
    /// Asks for `n` more arrays (`n` > 0); without it none come.
    ///
    /// May be called within `on_schema` and `on_next_task`, and never calls `on_next_task` itself.
    /// After `cancel` it does nothing. A failure is told through `on_error`.
    pub request: Option<unsafe extern "C" fn(producer: *mut ArrowAsyncProducer, n: i64)>,
    /// Asks for an end, from any thread, any number of times.
    ///
    /// Arrays may still come; at last the handler's `release` is called. Not an error in itself:
    /// `on_error` is called only if cancelling fails.
    pub cancel: Option<unsafe extern "C" fn(producer: *mut ArrowAsyncProducer)>,
    /// Metadata of the whole stream, encoded as in `ArrowSchema`, or NULL. Valid as long as the struct.
    pub additional_metadata: *const c_char,
    /// For the producer's own use.
    pub private_data: *mut c_void,
}

/// The consumer as the producer sees it: told of the type, of each array, of errors and of the end.
///
/// The functions that return `int` return 0, or an `errno` code; then the producer stops and calls
/// `release`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArrowAsyncDeviceStreamHandler {
    /// Called once and first, unless there is an error first. The consumer moves or releases the
    /// schema; the struct around it stays the producer's.
    pub on_schema: Option<
        unsafe extern "C" fn(handler: *mut ArrowAsyncDeviceStreamHandler, stream_schema: *mut ArrowSchema) -> c_int,
    >,
    /// Called for each array, never from two threads at once; a NULL task is the end.
    ///
    /// The task may be copied to be used later. `metadata` is encoded as in `ArrowSchema`, may be
    /// NULL, and is valid only during the call.
    pub on_next_task: Option<
        unsafe extern "C" fn(
            handler: *mut ArrowAsyncDeviceStreamHandler,
            task: *mut ArrowAsyncTask,
            metadata: *const c_char,
        ) -> c_int,
    >,
    /// Called on an error with an `errno` code; then `release` follows. `message` and `metadata` may
    /// be NULL and are valid only during the call. Must not call the producer.
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
    /// Written by the producer before its first call (other than `release`), valid until `release`.
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
