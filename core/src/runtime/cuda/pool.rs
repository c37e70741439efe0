//! Pools of device memory, in the order of streams.

use core::ffi::{c_int, c_uint, c_void};
use std::mem::zeroed;

use cudarc::driver::sys::{
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPool_attribute_enum as Attribute, CUmemPoolProps, CUmemoryPool,
};

use super::context::Apart;
use super::driver::Driver;
use super::{context, lost, require_device};
use crate::error::Result;

/// A pool of one device. It ends when this handle and all memory of the pool are given up.
#[derive(Debug)]
pub struct MemoryPool {
    handle: CUmemoryPool,
    ordinal: i32,
}

// SAFETY: the driver lets every thread use a pool.
unsafe impl Send for MemoryPool {}
// SAFETY: as above.
unsafe impl Sync for MemoryPool {}

impl MemoryPool {
    /// A pool that keeps up to `keep` unused bytes when a stream is synchronised.
    ///
    /// # Errors
    /// `DEVX_DEVICE`, `DEVX_OUT_OF_MEMORY`, `DEVX_DRIVER`.
    pub fn new(ordinal: i32, keep: u64) -> Result<Self> {
        Self::make(ordinal, keep, CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE)
    }

    /// Like [`MemoryPool::new`], but with memory that can be shared with other processes.
    ///
    /// # Errors
    /// Same as [`MemoryPool::new`]; `DEVX_DRIVER` also if the driver has no such pools.
    pub fn shareable(ordinal: i32, keep: u64) -> Result<Self> {
        Self::make(ordinal, keep, CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    }

    fn make(ordinal: i32, keep: u64, handles: CUmemAllocationHandleType) -> Result<Self> {
        require_device(ordinal)?;
        let driver = Driver::get()?;
        // The device has to be in use before it has pools.
        context::primary(driver, ordinal)?;
        let props = properties(ordinal, handles);
        let _apart = Apart::enter(driver)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a call of the driver with room for its result.
        driver.check("cuMemPoolCreate", unsafe { (driver.mem_pool_create)(&mut handle, &props) })?;
        let pool = Self { handle, ordinal };
        let mut keep = keep;
        let attribute = Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as c_uint;
        // SAFETY: a pool that is alive, and a value of the attribute's type.
        let code = unsafe { (driver.mem_pool_set_attribute)(handle, attribute, (&raw mut keep).cast::<c_void>()) };
        driver.check("cuMemPoolSetAttribute", code)?;
        Ok(pool)
    }

    /// The device of the pool.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    pub(crate) fn raw(&self) -> CUmemoryPool {
        self.handle
    }

    /// Gives unused memory back to the driver, except for `keep` bytes.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub fn trim(&self, keep: usize) -> Result<()> {
        let driver = Driver::get()?;
        let _apart = Apart::enter(driver)?;
        // SAFETY: a pool that is alive.
        driver.check("cuMemPoolTrimTo", unsafe { (driver.mem_pool_trim)(self.handle, keep) })
    }

    /// Bytes that the pool holds, in use or not.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub fn reserved(&self) -> Result<u64> {
        self.attribute(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    }

    /// Bytes that are in use.
    ///
    /// # Errors
    /// `DEVX_DRIVER`.
    pub fn used(&self) -> Result<u64> {
        self.attribute(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
    }

    fn attribute(&self, attribute: Attribute) -> Result<u64> {
        let driver = Driver::get()?;
        let _apart = Apart::enter(driver)?;
        let mut value = 0_u64;
        let to = (&raw mut value).cast::<c_void>();
        // SAFETY: a pool that is alive, and room for a value of the attribute's type.
        let code = unsafe { (driver.mem_pool_get_attribute)(self.handle, attribute as c_uint, to) };
        driver.check("cuMemPoolGetAttribute", code)?;
        Ok(value)
    }
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        // A forked process, or one whose driver is gone, leaves the pool to the system.
        let Some(driver) = Driver::loaded() else { return };
        let _apart = Apart::enter(driver);
        // SAFETY: the last use of the pool; the driver keeps it until its memory is given back.
        let code = unsafe { (driver.mem_pool_destroy)(self.handle) };
        lost::check_returned("a memory pool", code);
    }
}

/// The properties of a pool on a device. The fields named here are at the same place in every version of the driver's
/// types. The others differ, and stay 0.
fn properties(ordinal: i32, handles: CUmemAllocationHandleType) -> CUmemPoolProps {
    /// `CUmemLocation`, whose second field has no name in some versions.
    #[repr(C)]
    struct Location {
        kind: CUmemLocationType,
        id: c_int,
    }
    // SAFETY: numbers, a pointer and enums that have a value of 0.
    let mut props = unsafe { zeroed::<CUmemPoolProps>() };
    props.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = handles;
    let location = Location { kind: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: ordinal };
    // SAFETY: a struct of the same layout.
    unsafe { (&raw mut props.location).cast::<Location>().write(location) };
    const { assert!(size_of::<Location>() == size_of::<CUmemLocation>() && size_of::<CUmemPoolProps>() == 88) };
    props
}
