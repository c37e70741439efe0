//! A tensor: the what, where, who and when of an n-dimensional array, from any producer.

mod elements;
mod gather;
mod order;
mod slice;
mod transfer;

use core::ffi::c_void;
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::{MaybeUninit, offset_of};
use std::ops::BitOr;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;

use crate::abi::dlpack::{
    DLDevice, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    DLPACK_FLAG_BITMASK_READ_ONLY, DLTensor,
};
use crate::device::{Device, DeviceType};
use crate::dtype::{DType, Element};
use crate::error::{Refused, Result, refuse};
use crate::layout::{self, Layout};
use crate::memory::{Borrowed, Owner, Room, Slab, TailSize, entry, held_by_bindings, set_entry};
use crate::order::{Ready, Uses};
use crate::runtime::cuda::pointer;
use crate::stream::Stream;

/// Properties of a tensor that DLPack carries as bits (`DLPACK_FLAG_BITMASK_…`). Unknown bits are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u64);

impl Flags {
    /// The memory must not be written.
    pub const READ_ONLY: Self = Self(DLPACK_FLAG_BITMASK_READ_ONLY);
    /// The memory is a copy made for this exchange, which nobody else has.
    pub const IS_COPIED: Self = Self(DLPACK_FLAG_BITMASK_IS_COPIED);
    /// Each sub-byte element occupies a byte of its own.
    pub const SUBBYTE_PADDED: Self = Self(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);

    /// Whether all bits of `other` are set.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns these flags with the bits of `other` set.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these flags with the bits of `other` cleared.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the flags for a holder that shares the memory: a copy would be "solely owned throughout its lifetime by the
    /// consumer" (DLPack 1.3, `DLPACK_FLAG_BITMASK_IS_COPIED`).
    pub(crate) fn shared(self) -> Self {
        self.without(Self::IS_COPIED)
    }
}

/// Same as [`Flags::with`].
impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

/// A producer's description of memory.
#[derive(Clone, Copy, Debug)]
pub struct TensorDesc<'a> {
    /// Address that `byte_offset` counts from; can be NULL if there are no elements.
    pub data: *mut c_void,
    /// Where the memory is.
    pub device: Device,
    /// Type of the elements.
    pub dtype: DType,
    /// Extents.
    pub shape: &'a [i64],
    /// Distance between neighbours along each dimension, in elements; `None` for compact row-major.
    pub strides: Option<&'a [i64]>,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
    /// Properties.
    pub flags: Flags,
}

impl TensorDesc<'_> {
    /// Returns the description as a `DLTensor`; `None` if it has strides, but not one for each dimension, or too many
    /// dimensions.
    fn as_dltensor(&self) -> Option<DLTensor> {
        let TensorDesc { data, device, dtype, shape, strides, byte_offset, .. } = *self;
        if strides.is_some_and(|strides| strides.len() != shape.len()) {
            return None;
        }
        Some(DLTensor {
            data,
            device: device.to_dlpack(),
            ndim: i32::try_from(shape.len()).ok()?,
            dtype: dtype.to_dlpack(),
            shape: shape.as_ptr().cast_mut(),
            strides: strides.map_or(ptr::null_mut(), |strides| strides.as_ptr().cast_mut()),
            byte_offset,
        })
    }
}

/// A tensor. Cloning shares it; the memory is released when the last clone and the last export are gone.
#[derive(Clone)]
pub struct Tensor(Slab<Header>);

/// Bytes of a cache line.
const LINE: usize = 64;

/// Laid out so that no cache line that other threads write (neither the one with the count, in front of the header, nor those
/// of a consumer's struct) holds anything that sharing a tensor reads: the description, and the extents behind the header.
#[repr(C)]
struct Header {
    owner: Owner,
    /// The tensor in DLPack's form: device and type are checked, `byte_offset` is 0, and extents and strides are in the slab's
    /// own tail. Without dimensions both are NULL.
    described: DLTensor,
    flags: Flags,
    uses: Uses,
    ready: Ready,
    layout: Layout,
    /// The struct of one consumer at a time: the one that has the slab's claim.
    handed: UnsafeCell<MaybeUninit<DLManagedTensorVersioned>>,
    /// Keeps `handed` off the cache lines of the extents, which follow.
    apart: MaybeUninit<[u8; LINE]>,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(offset_of!(Header, described) + size_of::<usize>() >= LINE);
    assert!(offset_of!(Header, handed) >= offset_of!(Header, uses) + LINE);
};

impl Drop for Header {
    #[inline(always)]
    fn drop(&mut self) {
        let Self { uses, owner, .. } = self;
        uses.then_release(|| std::mem::replace(owner, Owner::none()).into());
    }
}

// SAFETY: the pointers are to the slab's own tail and to memory that the owner keeps alive. Once the tensor exists, the header
// does not change, except for the part that belongs to the holder of the claim.
unsafe impl Send for Header {}
// SAFETY: as above.
unsafe impl Sync for Header {}

// What a panic can interrupt leaves a tensor as it was: its description does not change, and its order and uses are changed
// under locks or atomically.
impl UnwindSafe for Tensor {}
impl RefUnwindSafe for Tensor {}

impl Tensor {
    /// Creates a tensor over the caller's memory, which `owner` keeps alive. Takes one block of memory; shape and strides are
    /// copied.
    ///
    /// # Errors
    /// `DEVX_INVALID_SHAPE` and `DEVX_INVALID_ARGUMENT` with the field and its value; the owner is given back, not released.
    ///
    /// # Safety
    /// `desc.data` with its offset, shape and strides describes memory that is valid until `owner` is released. Unless the
    /// consumers agree on it, the memory is not written until then.
    pub unsafe fn from_raw_parts(desc: &TensorDesc<'_>, owner: Owner) -> std::result::Result<Self, Refused<Owner>> {
        let owner = match desc.as_dltensor() {
            // SAFETY: the caller's contract; shape and strides are as long as `ndim` says.
            Some(tensor) => match unsafe { Self::plain::<false, _>(&tensor, desc.flags, || owner) } {
                Ok(plain) => return Ok(plain),
                Err(owner) => owner(),
            },
            None => owner,
        };
        let mut tensor = match Self::describe(desc) {
            Ok(tensor) => tensor,
            Err(error) => return Err(Refused { error, returned: owner }),
        };
        tensor.adopt(owner);
        Ok(tensor)
    }

    /// Makes the tensor without its owner: does everything that can fail, before anything is taken.
    pub(crate) fn describe(desc: &TensorDesc<'_>) -> Result<Self> {
        let (layout, data) = check(desc)?;
        let TensorDesc { device, dtype, shape: extents, flags, .. } = *desc;
        let ndim = extents.len();
        let room = Slab::room(TailSize::of::<[i64; 2]>(ndim))?;
        let mut described = described_in(&room, ndim);
        (described.data, described.device, described.dtype) = (data, device.to_dlpack(), dtype.to_dlpack());
        if ndim > 0 {
            // SAFETY: the tail has room for `ndim` extents.
            unsafe { described.shape.copy_from_nonoverlapping(extents.as_ptr(), ndim) };
            // SAFETY: zero is a valid stride and the tail has room for `ndim` of them.
            unsafe { described.strides.write_bytes(0, ndim) };
            // SAFETY: initialised in the line above, and nothing else refers to it yet.
            let strides = unsafe { std::slice::from_raw_parts_mut(described.strides, ndim) };
            match desc.strides {
                Some(given) => strides.copy_from_slice(given),
                None => layout::row_major_strides(extents, strides),
            }
        }
        let header = Header {
            described,
            flags,
            layout,
            ready: Ready::unknown_at(device, data),
            uses: Uses::default(),
            owner: Owner::none(),
            handed: UnsafeCell::new(MaybeUninit::uninit()),
            apart: MaybeUninit::uninit(),
        };
        Ok(Self(room.fill(header)))
    }

    /// Makes the kind of tensor that nearly all are: numbers of whole bytes in host memory, compact and row-major (column-major
    /// with `BY_COLUMNS`). For anything else, valid or not, and if there is no memory, returns `owner` uncalled:
    /// [`Tensor::describe`] then handles the general case and can say what is wrong.
    ///
    /// # Safety
    /// `tensor` is a valid `DLTensor` of DLPack 1.
    #[inline(always)]
    pub(crate) unsafe fn plain<const BY_COLUMNS: bool, F: FnOnce() -> Owner>(
        tensor: &DLTensor,
        flags: Flags,
        owner: F,
    ) -> std::result::Result<Self, F> {
        let DLTensor { ndim, device, dtype, shape, strides, .. } = *tensor;
        let ndim = ndim as usize; // more than there can be if it is negative
        if device != Device::CPU.to_dlpack() || ndim.wrapping_sub(1) >= PLAIN_NDIM {
            return Err(owner);
        }
        let Some(bytes_each) = DType::plain_bytes(dtype) else { return Err(owner) };
        // Without strides a tensor is row-major.
        if shape.is_null() || tensor.data.is_null() || (BY_COLUMNS && strides.is_null()) {
            return Err(owner);
        }
        let Ok(room) = Slab::room(TailSize::of::<[i64; 2]>(PLAIN_NDIM)) else { return Err(owner) };
        // Room for `ndim` extents, and for the strides behind them.
        let mine = room.start().cast::<i64>();
        let my_strides = mine.wrapping_add(ndim);
        let (mut elements, mut left, mut long) = (1_i64, ndim, 0);
        while left > 0 {
            left -= 1;
            let i = if BY_COLUMNS { ndim - 1 - left } else { left };
            // SAFETY: a producer's shape has `ndim` extents.
            let extent = unsafe { entry(shape.cast_const(), i) };
            // SAFETY: and `ndim` strides.
            let stride = if strides.is_null() { elements } else { unsafe { entry(strides, i) } };
            if extent <= 0 || (stride != elements && extent != 1) {
                return Err(owner);
            }
            // SAFETY: the tail has room for `ndim` extents.
            unsafe { set_entry(mine, i, extent) };
            // SAFETY: and as many strides.
            unsafe { set_entry(my_strides, i, elements) };
            long += i32::from(BY_COLUMNS && extent > 1);
            match elements.checked_mul(extent) {
                Some(more) => elements = more,
                None => return Err(owner),
            }
        }
        let Some(bytes) = elements.checked_mul(bytes_each as i64) else { return Err(owner) };
        let Some(first) = (tensor.data.addr() as u64).checked_add(tensor.byte_offset) else { return Err(owner) };
        if first & (bytes_each as u64 - 1) != 0 || first.checked_add(bytes as u64).is_none() {
            return Err(owner);
        }
        let data = tensor.data.with_addr(first as usize);
        let bytes = bytes as usize;
        // With at most one extent above 1, both orders are the same.
        let row_major = long < 2;
        let header = Header {
            // Evaluated first: if `owner` fails, nothing else has to be given up.
            owner: owner(),
            described: DLTensor { data, shape: mine, strides: my_strides, byte_offset: 0, ..*tensor },
            flags,
            layout: Layout { elements: elements as usize, bytes, lowest: 0, end: bytes as isize, row_major },
            ready: Ready::Now,
            uses: Uses::default(),
            handed: UnsafeCell::new(MaybeUninit::uninit()),
            apart: MaybeUninit::uninit(),
        };
        Ok(Self(room.fill(header)))
    }

    /// Returns the tensor's owner.
    pub(crate) fn owner(&self) -> &Owner {
        &self.0.header().owner
    }

    /// Turns the tensor into an owner that keeps it alive.
    pub(crate) fn into_owner(self) -> Owner {
        Owner::of_slab(self.0)
    }

    /// Gives a described tensor its owner.
    #[inline]
    pub(crate) fn adopt(&mut self, owner: Owner) {
        if let Some(header) = self.0.unique() {
            header.owner = owner;
        }
    }

    /// Returns the address of the first element; NULL if there are no elements.
    #[inline]
    pub fn data(&self) -> *mut c_void {
        self.0.header().described.data
    }

    /// Where the memory is.
    #[inline]
    pub fn device(&self) -> Device {
        let DLDevice { device_type, device_id } = self.0.header().described.device;
        Device { kind: DeviceType(device_type), id: device_id }
    }

    /// Type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        DType::checked(self.0.header().described.dtype)
    }

    /// Properties.
    #[inline]
    pub fn flags(&self) -> Flags {
        self.0.header().flags
    }

    /// Extents.
    pub fn shape(&self) -> &[i64] {
        let DLTensor { shape, ndim, .. } = self.0.header().described;
        // SAFETY: NULL, or in the slab's tail, which lives as long as `self` and was filled by its maker.
        unsafe { numbers(shape, ndim) }
    }

    /// Strides in elements. Along a dimension of extent 1 the stride has no effect and can differ from the producer's.
    pub fn strides(&self) -> &[i64] {
        let DLTensor { strides, ndim, .. } = self.0.header().described;
        // SAFETY: NULL, or in the slab's tail, which lives as long as `self` and was filled by its maker.
        unsafe { numbers(strides, ndim) }
    }

    /// Returns what shape and strides amount to.
    pub fn layout(&self) -> Layout {
        self.0.header().layout
    }

    /// Returns the elements of a compact row-major host tensor.
    ///
    /// The elements do not change meanwhile: whoever made the tensor, imported it or handed out its memory has promised this
    /// (see [`Tensor::from_raw_parts`], [`ipc::import_tensor`](crate::ipc::import_tensor),
    /// [`Exported::fds`](crate::ipc::Exported::fds)). A producer that offers the tensor to other processes, which can then
    /// write it, must agree on this with them.
    ///
    /// # Errors
    /// `DEVX_MISMATCH` for another element type, `DEVX_DEVICE` for device memory, `DEVX_NOT_READY`, `DEVX_COPY_REQUIRED` if the
    /// strides are not row-major.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.require_elements::<T>()?;
        self.require_host()?;
        self.require_compact()?;
        let elements = self.layout().elements;
        if elements == 0 {
            return Ok(&[]);
        }
        // SAFETY: `check` verified address, alignment and size, and the producer vouched for the rest when it made the tensor;
        // every bit pattern is an `Element`.
        Ok(unsafe { std::slice::from_raw_parts(self.data().cast::<T>(), elements) })
    }

    /// Returns the bytes of a compact row-major host tensor of any element type; see [`Tensor::as_slice`].
    ///
    /// # Errors
    /// `DEVX_DEVICE` for device memory, `DEVX_NOT_READY`, `DEVX_COPY_REQUIRED` if the strides are not row-major.
    pub fn as_bytes(&self) -> Result<&[u8]> {
        self.require_host()?;
        self.require_compact()?;
        let bytes = self.layout().bytes;
        if bytes == 0 {
            return Ok(&[]);
        }
        // SAFETY: as for `as_slice`; bytes need no alignment.
        Ok(unsafe { std::slice::from_raw_parts(self.data().cast::<u8>(), bytes) })
    }

    pub(crate) fn require_elements<T: Element>(&self) -> Result<()> {
        self.require_dtype(T::DTYPE)
    }

    fn require_dtype(&self, wanted: DType) -> Result<()> {
        let dtype = self.dtype();
        if dtype == wanted { Ok(()) } else { refuse!(DEVX_MISMATCH, "dtype is {dtype}, not {wanted}") }
    }

    /// Checks with the driver that all of the memory is where the tensor says, which no description can prove. Memory of the
    /// CPU is not checked.
    ///
    /// # Errors
    /// `DEVX_DEVICE`, `DEVX_DRIVER`.
    pub fn check_pointers(&self) -> Result<()> {
        let Layout { elements, lowest, end, .. } = self.layout();
        if elements == 0 || self.device() == Device::CPU {
            return Ok(());
        }
        pointer::require(self.data().wrapping_byte_offset(lowest), (end - lowest) as usize, self.device())
    }

    /// Whether each element occupies bytes of its own without filling them. For elements of whole bytes the flag has no
    /// meaning.
    pub(crate) fn is_padded(&self) -> bool {
        self.flags().has(Flags::SUBBYTE_PADDED) && self.dtype().element_bytes().is_none()
    }

    /// Checks that the host can read the elements where they are, now. Elements that were produced on a stream pass once that
    /// work is done.
    ///
    /// # Errors
    /// `DEVX_DEVICE` for device memory, `DEVX_NOT_READY`, `DEVX_DRIVER`.
    pub fn require_host(&self) -> Result<()> {
        self.device().require_host()?;
        self.ready().require_now()
    }

    /// Returns the tensor as DLPack describes it. Everything in it belongs to the tensor and lives as long.
    #[inline]
    pub fn as_dltensor(&self) -> DLTensor {
        self.0.header().described
    }

    /// Whether this is the only reference to the tensor, so that whoever is given it is the only holder.
    #[inline]
    pub(crate) fn is_alone(&mut self) -> bool {
        self.0.unique().is_some()
    }

    /// Lends the place in the tensor's own block for a consumer's struct, together with a reference; `None` while another
    /// consumer has it. Place and reference are given back with [`Tensor::take_back`].
    #[inline]
    pub(crate) fn lend_place(&self) -> Option<*mut DLManagedTensorVersioned> {
        self.0.claim().then(|| self.place())
    }

    /// Like [`Tensor::lend_place`], but passes on this very reference with the place; the caller forgets the tensor then.
    #[inline]
    pub(crate) fn give_place(&mut self) -> Option<*mut DLManagedTensorVersioned> {
        self.0.claim_whole().then(|| self.place())
    }

    #[inline]
    fn place(&self) -> *mut DLManagedTensorVersioned {
        self.0.header().handed.get().cast()
    }

    /// Takes back a place that was lent by [`Tensor::lend_place`] or [`Tensor::give_place`], and its reference.
    ///
    /// # Safety
    /// `raw` is the address of a tensor ([`Tensor::as_raw`]) whose place was lent, and the place is given back here once.
    #[inline]
    pub(crate) unsafe fn take_back(raw: *mut c_void) {
        // SAFETY: the caller's contract: the claim and a reference came with the place.
        unsafe { Slab::<Header>::release_claimed(raw) }
    }

    /// Returns the address of the tensor; the reference stays with `self`.
    #[inline]
    pub(crate) fn as_raw(&self) -> *mut c_void {
        self.0.as_raw()
    }
}

held_by_bindings!(Tensor, "tensor", produced_on);

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("dtype", &self.dtype())
            .field("shape", &self.shape())
            .field("strides", &self.strides())
            .field("device", &self.device())
            .field("flags", &self.flags())
            .field("data", &self.data())
            .finish()
    }
}

impl Borrowed<'_, Tensor> {
    /// See [`Tensor::produced_on`].
    ///
    /// # Errors
    /// Same as [`Tensor::produced_on`].
    ///
    /// # Safety
    /// Same as [`Tensor::produced_on`].
    pub unsafe fn produced_on(&mut self, stream: Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.value_mut().produced_on(stream) }
    }
}

/// Most dimensions of a tensor that is recognised as plain.
const PLAIN_NDIM: usize = 8;

/// A description of `ndim` dimensions whose extents, and strides behind them, have a place in the tail, which has room for at
/// least as many. The other members are for the caller to fill in.
#[inline]
fn described_in(room: &Room<Header>, ndim: usize) -> DLTensor {
    let (shape, strides) = match ndim {
        0 => (ptr::null_mut(), ptr::null_mut()),
        _ => {
            let shape = room.tail().carve::<[i64; 2]>(ndim).cast::<i64>();
            (shape, shape.wrapping_add(ndim))
        }
    };
    let (device, dtype) = (Device::CPU.to_dlpack(), DType::UINT8.to_dlpack());
    DLTensor { data: ptr::null_mut(), device, ndim: ndim as i32, dtype, shape, strides, byte_offset: 0 }
}

/// # Safety
/// `first` is NULL, or points to `ndim` numbers that outlive the result.
unsafe fn numbers<'a>(first: *const i64, ndim: i32) -> &'a [i64] {
    if first.is_null() {
        return &[];
    }
    // SAFETY: the caller's contract.
    unsafe { std::slice::from_raw_parts(first, ndim as usize) }
}

/// Checks the rules that every description has to meet, our own and foreign ones alike.
fn check(desc: &TensorDesc<'_>) -> Result<(Layout, *mut c_void)> {
    let layout = layout::check(desc.dtype, desc.flags.has(Flags::SUBBYTE_PADDED), desc.shape, desc.strides)?;
    if layout.elements == 0 {
        return Ok((layout, ptr::null_mut()));
    }
    if desc.data.is_null() {
        return refuse!(DEVX_NULL_ARGUMENT, "data is NULL for shape {:?}", desc.shape);
    }
    let (data, offset) = (desc.data.addr(), desc.byte_offset);
    let first = usize::try_from(offset).ok().and_then(|offset| data.checked_add(offset));
    let in_range = first.filter(|first| {
        let low = first.checked_add_signed(layout.lowest);
        low.is_some() && first.checked_add_signed(layout.end).is_some()
    });
    let Some(first) = in_range else {
        return refuse!(DEVX_INVALID_SHAPE, "byte_offset is {offset}: with data {data:#x} it leaves the address space");
    };
    let alignment = desc.dtype.alignment();
    if first & (alignment - 1) != 0 {
        return refuse!(
            DEVX_INVALID_ARGUMENT,
            "data {data:#x} with byte_offset {offset} is not aligned to {alignment} bytes, as {} needs: \
             its producer has to copy it",
            desc.dtype
        );
    }
    Ok((layout, desc.data.with_addr(first)))
}
