//! Tasks: those of foreign producers, which are extracted exactly once, and ours, which hold an array for the consumer.

use core::ffi::{c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};

use super::{offers, shielded};
use crate::abi::arrow_async::ArrowAsyncTask;
use crate::abi::arrow_device::ArrowDeviceArray;
use crate::arrow::batch_stream::require_device_type;
use crate::arrow::{Batch, Schema};
use crate::device::DeviceType;
use crate::error::{Error, Result};
use crate::memory::release;

/// An array that we have to release or hand on.
struct Held(ArrowDeviceArray);

// SAFETY: the Arrow C data interface lets an array be released on any thread, and nothing else is done with this one.
unsafe impl Send for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the array is ours alone.
        unsafe { release(&mut self.0.array) }
    }
}

/// A producer's task, moved to us. It is extracted once: by [`Task::take`], or without its data on drop.
pub(super) struct Task(ArrowAsyncTask);

// SAFETY: the consumer may extract a task on any thread ("more complex and efficient thread handling").
unsafe impl Send for Task {}

impl Task {
    /// Moves a task out of the struct of a callback.
    ///
    /// # Safety
    /// `task` points to a valid task that nobody else extracts.
    pub(super) unsafe fn copy(task: *const ArrowAsyncTask) -> Self {
        // SAFETY: the caller's contract.
        Self(unsafe { task.read() })
    }

    pub(super) fn can_be_extracted(&self) -> bool {
        self.0.extract_data.is_some()
    }

    /// Extracts the batch of the task.
    pub(super) fn take(self, schema: &Schema, device_type: DeviceType) -> Result<Batch> {
        let mut array = Held(ArrowDeviceArray::RELEASED);
        let code = ManuallyDrop::new(self).extract(&mut array.0);
        if code != 0 {
            // Whatever `array` contains now, it is not ours.
            std::mem::forget(array);
            return Err(Error::callback(code, format_args!("the producer's extract_data returned {code}")));
        }
        require_device_type(DeviceType(array.0.device_type), device_type)?;
        // SAFETY: the array was extracted just now, and is ours. If it is refused, it is released here.
        unsafe { Batch::import_device(&mut array.0, schema) }
    }

    fn extract(&mut self, out: *mut ArrowDeviceArray) -> c_int {
        // SAFETY: the task was moved to us, and neither caller uses it afterwards.
        self.0.extract_data.map_or(0, |extract| unsafe { extract(&mut self.0, out) })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.extract(std::ptr::null_mut());
    }
}

/// A task of this library. Its array is exported already, so extracting it is a move and cannot fail.
pub(super) struct Offer(ArrowAsyncTask);

impl Offer {
    /// Makes the task of a batch, for a stream that uses this part of the table.
    ///
    /// # Errors
    /// Same as [`Batch::export_device`].
    pub(super) fn new(batch: Batch, shelf: usize) -> Result<Self> {
        let mut array = Held(ArrowDeviceArray::RELEASED);
        // SAFETY: there is room for an array.
        unsafe { batch.export_device(&mut array.0) }?;
        let private_data = std::ptr::without_provenance_mut::<c_void>(offers::put(shelf, &array.0)?);
        // The array was moved into the table.
        std::mem::forget(array);
        Ok(Self(ArrowAsyncTask { extract_data: Some(extract_data), private_data }))
    }

    /// The task for the consumer, which may copy or change it.
    pub(super) fn as_mut_ptr(&mut self) -> *mut ArrowAsyncTask {
        &raw mut self.0
    }

    /// Releases the array, unless the consumer extracted it.
    pub(super) fn withdraw(number: usize) {
        extract(number, None);
    }

    pub(super) fn number(&self) -> usize {
        self.0.private_data.addr()
    }
}

unsafe extern "C" fn extract_data(task: *mut ArrowAsyncTask, out: *mut ArrowDeviceArray) -> c_int {
    shielded(libc::EIO, || {
        // SAFETY: a consumer passes the task or its copy of it.
        let number = unsafe { (*task).private_data }.addr();
        // SAFETY: `out` is NULL or has room for an array.
        extract(number, unsafe { out.cast::<MaybeUninit<ArrowDeviceArray>>().as_mut() })
    })
}

/// Moves the array of an offer to `out`, or releases it if there is no `out`. Succeeds once.
fn extract(number: usize, out: Option<&mut MaybeUninit<ArrowDeviceArray>>) -> c_int {
    let taken = match out {
        Some(out) => offers::take(number, out),
        None => {
            let mut array = MaybeUninit::uninit();
            let taken = offers::take(number, &mut array);
            if taken {
                // SAFETY: the array was moved here just now, and is ours.
                drop(Held(unsafe { array.assume_init() }));
            }
            taken
        }
    };
    if taken { 0 } else { libc::EINVAL }
}
