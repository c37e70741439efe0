//! Tasks: other people's, which are extracted exactly once, and ours, which hold an array for the consumer.

use core::ffi::{c_int, c_void};
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::shielded;
use crate::abi::arrow_async::ArrowAsyncTask;
use crate::abi::arrow_device::ArrowDeviceArray;
use crate::arrow::batch_stream::require_device_type;
use crate::arrow::{Batch, Schema};
use crate::device::DeviceType;
use crate::error::{Error, Refused, Result};
use crate::memory::release;

/// An array that is ours to release or to hand on.
struct Held(ArrowDeviceArray);

// SAFETY: the Arrow C data interface lets an array be released on any thread; nothing else is done with this one.
unsafe impl Send for Held {}

impl Held {
    fn into_inner(self) -> ArrowDeviceArray {
        ManuallyDrop::new(self).0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the array is ours alone.
        unsafe { release(&mut self.0.array) }
    }
}

fn no_array() -> ArrowDeviceArray {
    // SAFETY: an all-zero array is a released one.
    unsafe { std::mem::zeroed() }
}

/// A producer's task, moved to us. Extracted once: by [`Task::take`], or without its data on drop.
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

    /// The batch of the task.
    pub(super) fn take(self, schema: &Schema, device_type: DeviceType) -> Result<Batch> {
        let mut array = no_array();
        let code = ManuallyDrop::new(self).extract(&mut array);
        if code != 0 {
            return Err(Error::callback(code, format_args!("the producer's extract_data returned {code}")));
        }
        let mut array = Held(array);
        require_device_type(DeviceType(array.0.device_type), device_type)?;
        // SAFETY: extracted just now, and ours. If it is refused, it is released here.
        unsafe { Batch::import_device(&mut array.0, schema) }
    }

    fn extract(&mut self, out: *mut ArrowDeviceArray) -> c_int {
        // SAFETY: the task was moved to us, and both callers are done with it afterwards.
        self.0.extract_data.map_or(0, |extract| unsafe { extract(&mut self.0, out) })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.extract(std::ptr::null_mut());
    }
}

/// What our tasks hold, by number. A task carries the number and no pointer, so whatever a consumer does with one that
/// was extracted or withdrawn already, nothing dangles.
static OFFERS: [Mutex<BTreeMap<usize, Held>>; 16] = [const { Mutex::new(BTreeMap::new()) }; 16];
static NEXT: AtomicUsize = AtomicUsize::new(1);

fn offers(number: usize) -> MutexGuard<'static, BTreeMap<usize, Held>> {
    let [first, ..] = &OFFERS;
    let shard = OFFERS.get(number % OFFERS.len()).unwrap_or(first);
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn withdraw(number: usize) -> Option<Held> {
    offers(number).remove(&number)
}

/// A task of ours. The array is exported already, so extracting it is a move and cannot fail.
pub(super) struct Offer(ArrowAsyncTask);

impl Offer {
    /// # Errors
    /// As [`Batch::export_device`].
    pub(super) fn new(batch: Batch) -> std::result::Result<Self, Refused<Batch>> {
        let mut array = no_array();
        // SAFETY: there is room.
        unsafe { batch.export_device(&mut array) }?;
        let number = NEXT.fetch_add(1, Relaxed);
        offers(number).insert(number, Held(array));
        let private_data = std::ptr::without_provenance_mut::<c_void>(number);
        Ok(Self(ArrowAsyncTask { extract_data: Some(extract_data), private_data }))
    }

    /// For the consumer, who may copy it, or change it.
    pub(super) fn as_mut_ptr(&mut self) -> *mut ArrowAsyncTask {
        &raw mut self.0
    }

    /// Releases the array, unless the consumer extracted it.
    pub(super) fn withdraw(number: usize) {
        drop(withdraw(number));
    }

    pub(super) fn number(&self) -> usize {
        self.0.private_data.addr()
    }
}

unsafe extern "C" fn extract_data(task: *mut ArrowAsyncTask, out: *mut ArrowDeviceArray) -> c_int {
    shielded(libc::EIO, || {
        // SAFETY: a consumer passes the task, or its copy of it.
        let number = unsafe { (*task).private_data }.addr();
        // The lock is given up before a release is called.
        let Some(held) = withdraw(number) else { return libc::EINVAL };
        if !out.is_null() {
            // SAFETY: what is not NULL has room for an array.
            unsafe { out.write(held.into_inner()) };
        }
        0
    })
}
