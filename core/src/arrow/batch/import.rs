//! Imports of arrays from their producers.

use super::{Batch, Header, Source};
use crate::abi::arrow_data::{ArrowArray, ArrowSchema};
use crate::abi::arrow_device::ArrowDeviceArray;
use crate::arrow::Schema;
use crate::arrow::check::{read_nodes, require_distinct, require_live};
use crate::device::{Device, DeviceType};
use crate::error::{Error, Refused, Result, refuse};
use crate::ledger::Kind;
use crate::memory::{Foreign, Room, Slab, TailSize, fill_in};
use crate::order::{self, Ready, Uses};

impl Batch {
    /// Takes an array from its producer.
    ///
    /// On success `*array` is marked as moved from, and this library calls its release once, when the last user is
    /// gone. On failure it is untouched. The import takes one block of memory and reads no buffer.
    ///
    /// # Errors
    /// `DEVX_NULL_ARGUMENT`, `DEVX_RELEASED`, `DEVX_INVALID_LENGTH`, `DEVX_INVALID_NULL_COUNT`, `DEVX_INVALID_BUFFERS`,
    /// `DEVX_INVALID_CHILDREN`, `DEVX_MISMATCH`. The error names the field and the value.
    ///
    /// # Safety
    /// `array` is NULL, or points to a valid `ArrowArray` (released or not) in host memory that nobody else uses now.
    /// Its type is that of `schema`.
    pub unsafe fn import(array: *mut ArrowArray, schema: &Schema) -> Result<Self> {
        // SAFETY: the caller's contract.
        unsafe { Self::import_host(array, schema) }.map_err(Error::from)
    }

    /// Like [`Batch::import`], but for an array that says where it is and when it may be touched.
    ///
    /// # Errors
    /// Same as [`Batch::import`]; also `DEVX_DEVICE` for a device that this library has no runtime for, an impossible
    /// device id, or an event on the CPU. Non-zero `reserved` bytes are ignored, because some producers leave them
    /// unset.
    ///
    /// # Safety
    /// Same as [`Batch::import`].
    pub unsafe fn import_device(array: *mut ArrowDeviceArray, schema: &Schema) -> Result<Self> {
        // SAFETY: the caller's contract.
        unsafe { Self::import_placed(array, schema) }.map_err(Error::from)
    }

    /// Takes an array and its schema from their producer, both or neither.
    ///
    /// # Errors
    /// Same as [`Schema::import`] and [`Batch::import`].
    ///
    /// # Safety
    /// Same as [`Schema::import`] and [`Batch::import`].
    pub unsafe fn import_pair(array: *mut ArrowArray, schema: *mut ArrowSchema) -> Result<Self> {
        // SAFETY: the caller's contract.
        let import = |schema| unsafe { Self::import_host(array, schema) };
        // SAFETY: as above.
        unsafe { Schema::import_for(schema, import) }
    }

    /// Like [`Batch::import_pair`], but for an array that says where it is and when it may be touched.
    ///
    /// # Errors
    /// Same as [`Schema::import`] and [`Batch::import_device`].
    ///
    /// # Safety
    /// Same as [`Batch::import_pair`].
    pub unsafe fn import_pair_device(array: *mut ArrowDeviceArray, schema: *mut ArrowSchema) -> Result<Self> {
        // SAFETY: the caller's contract.
        let import = |schema| unsafe { Self::import_placed(array, schema) };
        // SAFETY: as above.
        unsafe { Schema::import_for(schema, import) }
    }

    /// # Safety
    /// Same as [`Batch::import`].
    #[inline(always)]
    unsafe fn import_host<S: Kept>(array: *mut ArrowArray, schema: S) -> std::result::Result<Self, Refused<S>> {
        // SAFETY: the caller's contract.
        unsafe { Self::import_from(array, Device::CPU, Ready::Now, schema) }
    }

    /// # Safety
    /// Same as [`Batch::import`].
    #[inline(always)]
    unsafe fn import_placed<S: Kept>(array: *mut ArrowDeviceArray, schema: S) -> std::result::Result<Self, Refused<S>> {
        // SAFETY: the caller's contract.
        let (device, ready) = match unsafe { place_of(array) } {
            Ok(place) => place,
            Err(error) => return Err(Refused { error, returned: schema }),
        };
        // SAFETY: a member of a valid struct.
        let inner = unsafe { &raw mut (*array).array };
        // SAFETY: the caller's contract.
        unsafe { Self::import_from(inner, device, ready, schema) }
    }

    /// # Safety
    /// Same as [`Batch::import`].
    #[inline(always)]
    unsafe fn import_from<S: Kept>(
        array: *mut ArrowArray,
        device: Device,
        ready: Ready,
        schema: S,
    ) -> std::result::Result<Self, Refused<S>> {
        // SAFETY: the caller's contract.
        let (room, nodes) = match unsafe { checked(array, schema.look()) } {
            Ok(checked) => checked,
            Err(error) => return Err(Refused { error, returned: schema }),
        };
        let slab = fill_in!(
            room,
            1,
            Header {
                device: device,
                nodes: nodes,
                // SAFETY: the caller gives the array to us now that nothing can fail any more.
                source: Source::Foreign(unsafe { Foreign::take(array, Kind::BatchImport) }),
                ready: ready,
                uses: Uses::default(),
                schema: schema.keep(),
            }
        );
        Ok(Self::rooted(slab, nodes))
    }
}

/// A schema that is lent or given. Keeping a lent one takes a new reference; keeping a given one uses its own.
trait Kept {
    fn look(&self) -> &Schema;
    fn keep(self) -> Schema;
}

impl Kept for &Schema {
    fn look(&self) -> &Schema {
        self
    }

    fn keep(self) -> Schema {
        self.clone()
    }
}

impl Kept for Schema {
    fn look(&self) -> &Schema {
        self
    }

    fn keep(self) -> Schema {
        self
    }
}

/// Where an array is, and when it may be touched.
///
/// # Errors
/// `DEVX_NULL_ARGUMENT`, `DEVX_RELEASED`, `DEVX_DEVICE`.
///
/// # Safety
/// `array` is NULL or points to a valid struct, whose event lives as long as what is made from it.
#[inline(always)]
unsafe fn place_of(array: *const ArrowDeviceArray) -> Result<(Device, Ready)> {
    // SAFETY: the caller's contract.
    let Some(given) = (unsafe { array.as_ref() }) else {
        return refuse!(DEVX_NULL_ARGUMENT, "array is NULL");
    };
    require_live(&given.array)?;
    let device = Device::new(DeviceType(given.device_type), given.device_id)?;
    // SAFETY: the caller's contract.
    let ready = unsafe { order::of_sync_event(device, given.sync_event) }?;
    Ok((device, ready))
}

/// Checks an array. Returns room for a batch of it, and the addresses of the nodes in that room.
///
/// # Errors
/// Same as [`Batch::import`].
///
/// # Safety
/// Same as [`Batch::import`].
#[inline(always)]
unsafe fn checked(array: *const ArrowArray, schema: &Schema) -> Result<(Room<Header>, *mut *const ArrowArray)> {
    // SAFETY: the caller's contract.
    match unsafe { array.as_ref() } {
        None => return refuse!(DEVX_NULL_ARGUMENT, "array is NULL"),
        Some(array) => require_live(array)?,
    }
    let count = schema.nodes();
    // With room to sort the addresses in, in case that is needed.
    let room = Slab::room(TailSize::of::<*const ArrowArray>(count).with(TailSize::of::<usize>(count)))?;
    let mut tail = room.tail();
    let nodes = tail.carve::<*const ArrowArray>(count);
    // SAFETY: the tail has room for `count` addresses; the array is valid by the caller's contract.
    let ascending = unsafe { read_nodes(array, schema, nodes) }?;
    if !ascending {
        // SAFETY: written just now.
        unsafe { require_distinct(schema, nodes, tail.scratch(count)) }?;
    }
    Ok((room, nodes))
}
