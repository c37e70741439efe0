//! Conversions of columns to tensors.

use core::ffi::c_void;
use std::borrow::Cow;

use super::fixed_shape;
use super::{Plan, impossible, impossible_as, in_words};
use crate::abi::dlpack::DLDataType;
use crate::arrow::{Column, Type, bitmap};
use crate::device::Device;
use crate::dlpack::Copying;
use crate::dtype::DType;
use crate::error::{Result, refuse};
use crate::layout::MAX_NDIM;
use crate::tensor::{Flags, Tensor, TensorDesc};
use crate::transfer::{self, Memory};
use crate::view::View;

/// How a column can become a tensor. Reads the validity buffer if the number of nulls is not known.
///
/// # Errors
/// `DEVX_DEVICE` or `DEVX_NOT_READY` if nulls would have to be counted and the host cannot read the data.
pub fn plan_tensor(column: Column<'_>) -> Result<Plan> {
    planned(column, &mut Dimensions::none())
}

/// The plan, and if it is possible, the dimensions of the tensor.
fn planned(column: Column<'_>, dimensions: &mut Dimensions) -> Result<Plan> {
    let values = innermost(column);
    let (ty, dtype) = (values.ty(), values.ty().dtype());
    // The type comes first: nobody should replace nulls in vain, in a column whose type no tensor has.
    if values.dictionary().is_some() {
        return Ok(impossible(format_args!("the {ty} values are indices into a dictionary")));
    }
    if dtype.is_none() && ty != Type::Bool {
        return Ok(impossible(format_args!("{ty} has no element type in DLPack")));
    }
    for level in levels(column) {
        let (ty, nulls) = (level.ty(), level.null_count()?);
        if nulls > 0 {
            return Ok(impossible(format_args!(
                "{nulls} of {} values of {ty} are null, which a tensor cannot express",
                level.length()
            )));
        }
    }
    if let Err(error) = dimensions.set(column) {
        return impossible_as(error);
    }
    let copy = |width, reason| Plan::Copy { bytes: values.length() as usize * width, reason };
    let plan = match dtype {
        None => copy(1, "bools are bits in Arrow and bytes in DLPack".into()),
        Some(dtype) => match misaligned(values_of(values), values.length(), dtype) {
            Some(reason) => copy(dtype.element_bytes().unwrap_or(0), reason),
            None => Plan::View,
        },
    };
    Ok(plan.by_the_host(column.batch().device()))
}

/// The buffer of values of a column of numbers. Row 0 is at the column's offset in it.
fn values_of(column: Column<'_>) -> *const c_void {
    column.buffers().get(1).copied().unwrap_or(std::ptr::null())
}

/// The reason why values cannot be seen in place: Arrow only recommends an alignment, but a tensor needs one.
pub(super) fn misaligned(values: *const c_void, length: i64, dtype: DType) -> Option<Cow<'static, str>> {
    let alignment = dtype.alignment();
    let reason = || in_words(format_args!("the {dtype} values at {values:p} are not aligned to {alignment} bytes"));
    (length > 0 && !values.addr().is_multiple_of(alignment)).then(reason)
}

/// The column as a tensor: one dimension for the rows, and one more for each level of fixed-size lists, or as many as
/// the extension type `arrow.fixed_shape_tensor` says.
///
/// A view keeps the batch alive and is read-only, because Arrow data must not be changed. Bools are copied, and so are
/// values whose address is not a multiple of their size.
///
/// # Errors
/// Same as [`Plan::allow`]; `DEVX_DEVICE` or `DEVX_NOT_READY` if data would have to be read and the host cannot read it.
pub fn tensor(column: Column<'_>, copy: Copying) -> Result<Tensor> {
    let mut dimensions = Dimensions::none();
    let must_copy = planned(column, &mut dimensions)?.allow(copy).map_err(|error| column.named(error))?;
    let (values, (shape, strides)) = (innermost(column), dimensions.get());
    if values.ty() == Type::Bool {
        return of_bools(values, shape, strides);
    }
    let Some(dtype) = values.ty().dtype() else {
        return refuse!(DEVX_IMPOSSIBLE, "{} has no element type in DLPack", values.ty());
    };
    let width = dtype.element_bytes().unwrap_or(0);
    let data = values_of(values);
    let is_misaligned = misaligned(data, values.length(), dtype).is_some();
    let desc = TensorDesc {
        data: data.cast_mut(),
        device: column.batch().device(),
        dtype: if is_misaligned { bytes_of(dtype)? } else { dtype },
        shape,
        strides: Some(strides),
        byte_offset: values.offset() as u64 * width as u64,
        flags: Flags::READ_ONLY,
    };
    let view = View::of_batch(column.batch());
    // SAFETY: the batch describes the memory, which the owner keeps alive.
    let mut seen = unsafe { Tensor::from_raw_parts(&desc, view.owner()) }?;
    seen.set_view(view)?;
    if is_misaligned {
        return seen_as(&seen.copy()?, dtype);
    }
    if must_copy { seen.copy() } else { Ok(seen) }
}

/// An element type of the same size that can lie at any address.
fn bytes_of(dtype: DType) -> Result<DType> {
    let lanes = dtype.element_bytes().unwrap_or(1) as u16;
    DType::from_dlpack(DLDataType { lanes, ..DType::UINT8.to_dlpack() })
}

/// A compact row-major tensor, seen as one of another element type of the same size.
fn seen_as(compact: &Tensor, dtype: DType) -> Result<Tensor> {
    let (data, device, shape, flags) = (compact.data(), compact.device(), compact.shape(), compact.flags());
    let desc = TensorDesc { data, device, dtype, shape, strides: None, byte_offset: 0, flags };
    // SAFETY: these are the same elements, which the tensor keeps alive.
    Ok(unsafe { Tensor::from_raw_parts(&desc, compact.clone().into_owner()) }?)
}

/// Makes a tensor with a byte for each bit.
fn of_bools(values: Column<'_>, shape: &[i64], strides: &[i64]) -> Result<Tensor> {
    if values.length() > 0 {
        values.require_host()?;
    }
    let length = values.length() as usize;
    let Memory { address: data, owner, .. } = transfer::allocate(Device::CPU, length, None)?;
    if length > 0 {
        let (place, first) = values.bits();
        let bits = values.buffer(1).cast::<u8>().wrapping_add(place.start);
        // SAFETY: the producer of the array promises a bit for each row.
        let bits = unsafe { std::slice::from_raw_parts(bits, place.len()) };
        // SAFETY: the new memory has a byte for each value, and nobody else knows of it yet.
        bitmap::unpack(bits, first, unsafe { std::slice::from_raw_parts_mut(data.cast(), length) });
    }
    let (device, dtype, strides) = (Device::CPU, DType::BOOL, Some(strides));
    let desc = TensorDesc { data, device, dtype, shape, strides, byte_offset: 0, flags: Flags::IS_COPIED };
    // SAFETY: the memory has a byte for each element, and the owner keeps it alive.
    Ok(unsafe { Tensor::from_raw_parts(&desc, owner) }?)
}

/// The column and, level by level, the values of its fixed-size lists.
fn levels(column: Column<'_>) -> impl Iterator<Item = Column<'_>> {
    std::iter::successors(Some(column), |level| match level.ty() {
        Type::FixedSizeList(_) => level.child(0),
        _ => None,
    })
}

/// The values below all fixed-size lists.
fn innermost(column: Column<'_>) -> Column<'_> {
    levels(column).last().unwrap_or(column)
}

/// The dimensions of the tensor: the rows, then one for each level of fixed-size lists, or as many as its extension
/// type says.
struct Dimensions {
    ndim: usize,
    shape: [i64; MAX_NDIM],
    /// Strides, in elements.
    strides: [i64; MAX_NDIM],
}

impl Dimensions {
    fn none() -> Self {
        Self { ndim: 0, shape: [0; MAX_NDIM], strides: [0; MAX_NDIM] }
    }

    fn set(&mut self, column: Column<'_>) -> Result<()> {
        self.push(column.length(), elements_of_each(column));
        for list in levels(column) {
            let Type::FixedSizeList(size) = list.ty() else { break };
            let inner = list.child(0).map_or(1, elements_of_each);
            for (extent, stride) in fixed_shape::of_list(list.field(), size.into())? {
                self.push(extent, stride.saturating_mul(inner));
            }
        }
        if self.ndim > MAX_NDIM {
            return refuse!(DEVX_INVALID_SHAPE, "there are {} dimensions: a tensor has at most {MAX_NDIM}", self.ndim);
        }
        Ok(())
    }

    /// Adds a dimension, which is only counted if there are too many.
    fn push(&mut self, extent: i64, stride: i64) {
        if let (Some(shape), Some(strides)) = (self.shape.get_mut(self.ndim), self.strides.get_mut(self.ndim)) {
            (*shape, *strides) = (extent, stride);
        }
        self.ndim += 1;
    }

    /// The shape and the strides.
    fn get(&self) -> (&[i64], &[i64]) {
        (self.shape.get(..self.ndim).unwrap_or_default(), self.strides.get(..self.ndim).unwrap_or_default())
    }
}

/// The number of elements in each value of a column: of all its levels of fixed-size lists together.
fn elements_of_each(column: Column<'_>) -> i64 {
    levels(column).fold(1, |elements, level| match level.ty() {
        Type::FixedSizeList(size) => elements.saturating_mul(size.into()),
        _ => elements,
    })
}
