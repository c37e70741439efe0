//! What a pointer points to: the driver knows, whatever the producer says.

use core::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::{CUdeviceptr, CUmemoryPool, CUpointer_attribute_enum as Attribute};

use super::driver::Driver;
use crate::device::{Device, DeviceType};
use crate::error::{Result, refuse};

/// `CU_MEMORYTYPE_HOST`.
const HOST: c_uint = 1;
/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE: c_uint = 2;

/// Where a pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The kind of memory and the device; `DeviceType::CPU` for memory that the driver does not know.
    pub device: Device,
    /// Device whose streams work on the memory; −1 for memory that the driver does not know.
    pub ordinal: i32,
}

/// Asks the driver what `address` points to. This takes one call of the driver, and needs no context.
///
/// # Errors
/// `DEVX_DEVICE` if there is no driver, `DEVX_DRIVER`.
pub fn locate(address: *const c_void) -> Result<Place> {
    ask(address).map(|found| found.place)
}

/// A range of addresses of the driver: an allocation, or what a pool has reserved for several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) place: Place,
    /// The address of its first byte.
    base: CUdeviceptr,
    bytes: usize,
    /// The pool that it is from, or NULL.
    pub(crate) pool: CUmemoryPool,
}

impl Found {
    /// The number of bytes from an address in the range to its end.
    fn left(&self, address: *const c_void) -> CUdeviceptr {
        let offset = (address.addr() as CUdeviceptr).saturating_sub(self.base);
        (self.bytes as CUdeviceptr).saturating_sub(offset)
    }
}

/// Asks the driver for the range of addresses that an address lies in.
///
/// # Errors
/// Same as [`locate`].
pub(crate) fn ask(address: *const c_void) -> Result<Found> {
    let driver = Driver::get()?;
    let (mut kind, mut managed, mut ordinal): (c_uint, c_uint, c_int) = (0, 0, -1);
    let (mut base, mut bytes): (CUdeviceptr, usize) = (0, 0);
    let mut pool: CUmemoryPool = std::ptr::null_mut();
    let mut attributes = [
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as c_uint,
        Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED as c_uint,
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as c_uint,
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR as c_uint,
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE as c_uint,
        Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE as c_uint,
    ];
    let mut values: [*mut c_void; 6] = [
        (&raw mut kind).cast(),
        (&raw mut managed).cast(),
        (&raw mut ordinal).cast(),
        (&raw mut base).cast(),
        (&raw mut bytes).cast(),
        (&raw mut pool).cast(),
    ];
    let count = attributes.len() as c_uint;
    // SAFETY: each value has a place of its attribute's type.
    let code = unsafe {
        (driver.pointer_get_attributes)(
            count,
            attributes.as_mut_ptr(),
            values.as_mut_ptr(),
            address.addr() as CUdeviceptr,
        )
    };
    driver.check("cuPointerGetAttributes", code)?;
    let kind = match kind {
        // The driver writes a byte for a bool.
        _ if managed & 0xff != 0 => DeviceType::CUDA_MANAGED,
        HOST => DeviceType::CUDA_HOST,
        DEVICE => DeviceType::CUDA,
        _ => {
            let place = Place { device: Device::CPU, ordinal: -1 };
            return Ok(Found { place, base: 0, bytes: 0, pool: std::ptr::null_mut() });
        }
    };
    // Pinned and managed memory belongs to no device in particular; by convention its id is 0 (DLPack, `device_id`).
    let id = if kind == DeviceType::CUDA { ordinal } else { 0 };
    Ok(Found { place: Place { device: Device { kind, id }, ordinal: ordinal.max(0) }, base, bytes, pool })
}

/// Checks that an address is where its producer says, and that the `bytes` bytes from there lie in one allocation.
///
/// # Errors
/// `DEVX_DEVICE` if the memory is somewhere else, was freed, or extends beyond its allocation; `DEVX_DRIVER`.
pub fn require(address: *const c_void, bytes: usize, declared: Device) -> Result<()> {
    let found = ask(address)?;
    let Found { place, base, bytes: size, .. } = found;
    if place.ordinal < 0 {
        return refuse!(DEVX_DEVICE, "data {address:p} is not CUDA memory (any more), but declared as {declared}");
    }
    if place.device != declared {
        return refuse!(DEVX_DEVICE, "data {address:p} is memory of {}, but declared as {declared}", place.device);
    }
    let left = found.left(address);
    if bytes as CUdeviceptr > left {
        return refuse!(
            DEVX_DEVICE,
            "data {address:p} needs {bytes} bytes, but its allocation of {size} bytes at {base:#x} ends after {left}"
        );
    }
    Ok(())
}

/// Whether the driver knows an allocation at `address` that ends before the `bytes` bytes from there do. Without a driver,
/// nobody knows one.
///
/// # Errors
/// `DEVX_DRIVER`.
pub(crate) fn ends_within(address: *const c_void, bytes: usize) -> Result<bool> {
    if Driver::get().is_err() {
        return Ok(false);
    }
    let found = ask(address)?;
    Ok(found.place.ordinal >= 0 && bytes as CUdeviceptr > found.left(address))
}
