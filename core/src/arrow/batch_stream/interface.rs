//! One interface over the two stream structs and the arrays that they hand over.

use core::ffi::{c_char, c_int, c_void};

use crate::abi::arrow_data::{ArrowArray, ArrowSchema};
use crate::abi::arrow_device::ArrowDeviceArray;
use crate::abi::arrow_device_stream::ArrowDeviceArrayStream;
use crate::abi::arrow_stream::ArrowArrayStream;
use crate::arrow::{Batch, Schema};
use crate::device::DeviceType;
use crate::error::{Refused, Result};
use crate::memory::Releasable;

pub(super) type GetSchema<S> = unsafe extern "C" fn(*mut S, *mut ArrowSchema) -> c_int;
pub(super) type GetNext<S> = unsafe extern "C" fn(*mut S, *mut <S as Interface>::Chunk) -> c_int;
pub(super) type GetLastError<S> = unsafe extern "C" fn(*mut S) -> *const c_char;
pub(super) type Release<S> = unsafe extern "C" fn(*mut S);

/// The callbacks that a producer fills in.
pub(super) struct Callbacks<S: Interface> {
    pub(super) get_schema: GetSchema<S>,
    pub(super) get_next: GetNext<S>,
    pub(super) get_last_error: GetLastError<S>,
    pub(super) release: Release<S>,
}

/// A stream struct.
///
/// # Safety
/// Each accessor returns the struct's own member of that name.
pub(super) unsafe trait Interface: Releasable + 'static {
    type Chunk: Chunk;
    fn get_schema(&self) -> Option<GetSchema<Self>>;
    fn get_next(&self) -> Option<GetNext<Self>>;
    fn get_last_error(&self) -> Option<GetLastError<Self>>;
    fn private_data(&self) -> *mut c_void;
    /// The kind of device that the arrays lie on.
    fn device_type(&self) -> DeviceType;
    fn filled_in(device_type: DeviceType, callbacks: Callbacks<Self>, private_data: *mut c_void) -> Self;
}

/// An array as a stream hands it over.
///
/// # Safety
/// `array` returns the array within the struct. All bytes zero are a valid struct, whose array is released.
pub(super) unsafe trait Chunk {
    fn array(&mut self) -> &mut ArrowArray;
    /// The kind of device that the struct names.
    fn device_type(&self) -> DeviceType;
    /// # Safety
    /// Same as [`Batch::import_device`].
    unsafe fn import(&mut self, schema: &Schema) -> Result<Batch>;
    /// # Safety
    /// Same as [`Batch::export_device`].
    unsafe fn export(batch: Batch, out: *mut Self) -> std::result::Result<(), Refused<Batch>>;
}

macro_rules! interface {
    ($Struct:ident of $Chunk:ident, $where:expr $(, $device_type:ident)?) => {
        // SAFETY: `release` is the struct's own member.
        unsafe impl Releasable for $Struct {
            fn release(&self) -> Option<Release<Self>> {
                self.release
            }
            fn disarm(&mut self) {
                self.release = None;
            }
        }
        // SAFETY: each accessor is the member of its name.
        unsafe impl Interface for $Struct {
            type Chunk = $Chunk;
            fn get_schema(&self) -> Option<GetSchema<Self>> {
                self.get_schema
            }
            fn get_next(&self) -> Option<GetNext<Self>> {
                self.get_next
            }
            fn get_last_error(&self) -> Option<GetLastError<Self>> {
                self.get_last_error
            }
            fn private_data(&self) -> *mut c_void {
                self.private_data
            }
            fn device_type(&self) -> DeviceType {
                let device_type: fn(&Self) -> DeviceType = $where;
                device_type(self)
            }
            fn filled_in(_device_type: DeviceType, callbacks: Callbacks<Self>, private_data: *mut c_void) -> Self {
                let Callbacks { get_schema, get_next, get_last_error, release } = callbacks;
                Self {
                    $($device_type: _device_type.0,)?
                    get_schema: Some(get_schema),
                    get_next: Some(get_next),
                    get_last_error: Some(get_last_error),
                    release: Some(release),
                    private_data,
                }
            }
        }
    };
}
interface!(ArrowArrayStream of ArrowArray, |_| DeviceType::CPU);
interface!(ArrowDeviceArrayStream of ArrowDeviceArray, |stream| DeviceType(stream.device_type), device_type);

// SAFETY: the array is the struct itself; an all-zero `release` is NULL.
unsafe impl Chunk for ArrowArray {
    fn array(&mut self) -> &mut ArrowArray {
        self
    }
    fn device_type(&self) -> DeviceType {
        DeviceType::CPU
    }
    unsafe fn import(&mut self, schema: &Schema) -> Result<Batch> {
        // SAFETY: the caller's contract.
        unsafe { Batch::import(self, schema) }
    }
    unsafe fn export(batch: Batch, out: *mut Self) -> std::result::Result<(), Refused<Batch>> {
        // SAFETY: the caller's contract.
        unsafe { batch.export(out) }
    }
}

// SAFETY: the array is the struct's member; an all-zero `release` is NULL.
unsafe impl Chunk for ArrowDeviceArray {
    fn array(&mut self) -> &mut ArrowArray {
        &mut self.array
    }
    fn device_type(&self) -> DeviceType {
        DeviceType(self.device_type)
    }
    unsafe fn import(&mut self, schema: &Schema) -> Result<Batch> {
        // SAFETY: the caller's contract.
        unsafe { Batch::import_device(self, schema) }
    }
    unsafe fn export(batch: Batch, out: *mut Self) -> std::result::Result<(), Refused<Batch>> {
        // SAFETY: the caller's contract.
        unsafe { batch.export_device(out) }
    }
}
